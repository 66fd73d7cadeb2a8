# frozen_string_literal: true

require_relative "helper"
require_relative "opened"
require "fcntl"
require "io/nonblock"
require "io/wait"

# Eagain.tryaccept and Eagain.tryconnect, against Ruby's accept_nonblock and connect_nonblock.
class TryAcceptTest < EagainTest
  include Opened

  def setup
    only_ours
  end

  # --- tryaccept.

  # poll(2) says "readable" of it, which a listener would be for a connection.
  def test_a_datagram_socket_that_has_something_to_read
    socket = keep(Socket.new(:INET, :DGRAM))
    socket.bind(Addrinfo.udp("127.0.0.1", 0))
    socket.send("x", 0, socket.local_address)
    assert_equal [socket], IO.select([socket], nil, nil, 5)&.first
    expected = assert_raises(SystemCallError) { socket.accept_nonblock }
    assert_equal expected.message, assert_raises(expected.class) { Eagain.tryaccept(socket) }.message
  end

  def test_a_server_gives_what_its_accept_gives
    [tcp_server, unix_server, socket_server].each do |server|
      assert_equal :wait_readable, Eagain.tryaccept(server)
      client = connect_to(server)
      accepted = keep Eagain.tryaccept(server)
      theirs = connect_to(server) && keep(accept(server))
      assert_same theirs.class, accepted.class
      assert_same Encoding::BINARY, accepted.external_encoding
      %i[external_encoding internal_encoding sync binmode? close_on_exec? do_not_reverse_lookup autoclose?
         lineno].each { |name| assert_equal [theirs.__send__(name)], [accepted.__send__(name)], name }
      assert_equal theirs.fcntl(Fcntl::F_GETFL), accepted.fcntl(Fcntl::F_GETFL)
      assert_equal [theirs.remote_address.class, theirs.local_address.inspect],
                   [accepted.remote_address.class, accepted.local_address.inspect]
      accepted.puts "to the client"
      assert_equal "to the client\n", client.gets
      client.write "to the server\n"
      assert_equal "to the server\n", accepted.gets
      assert_equal :wait_readable, Eagain.tryaccept(server)
    end
  end

  def test_of_a_class
    own = Class.new(TCPSocket)
    { tcp_server => own, socket_server => BasicSocket, unix_server => UNIXSocket }.each do |server, klass|
      connect_to(server)
      assert_instance_of klass, keep(Eagain.tryaccept(server, class: klass))
    end
    server = tcp_server
    connect_to(server)
    assert_instance_of TCPSocket, keep(Eagain.tryaccept(server, class: nil))
  end

  def test_a_wrong_class_is_refused_before_the_connection_is_taken
    server = tcp_server
    connect_to(server)
    singleton = keep(TCPServer.new("127.0.0.1", 0)).singleton_class
    [String, IO, File, Comparable, "TCPSocket", 1, singleton].each do |klass|
      error = assert_raises(TypeError) { Eagain.tryaccept(server, class: klass) }
      assert_match(/not a subclass of BasicSocket/, error.message)
    end
    assert_raises(ArgumentError) { Eagain.tryaccept(server, klass: TCPSocket) }
    assert_raises(ArgumentError) { Eagain.tryaccept(server, TCPSocket) }
    assert_raises(ArgumentError) { Eagain.tryaccept }
    assert_instance_of TCPSocket, keep(Eagain.tryaccept(server))
  end

  def test_reverse_lookup_is_as_the_library_is_told
    server = tcp_server
    before = BasicSocket.do_not_reverse_lookup
    [true, false].each do |setting|
      BasicSocket.do_not_reverse_lookup = setting
      connect_to(server)
      assert_equal setting, keep(Eagain.tryaccept(server)).do_not_reverse_lookup
    end
  ensure
    BasicSocket.do_not_reverse_lookup = before
  end

  def test_errors_are_those_of_accept_nonblock
    closed = tcp_server.tap(&:close)
    connected = UNIXSocket.pair
    unbound = Socket.new(:INET, :STREAM)
    datagram = Socket.new(:INET, :DGRAM)
    keep connected, unbound, datagram
    half = Socket.for_fd(connected[0].fileno)
    half.autoclose = false
    [closed, TCPServer.allocate, UNIXServer.allocate, unbound, datagram, half].each do |socket|
      2.times { assert_same_error(-> { socket.accept_nonblock(exception: false) }, -> { Eagain.tryaccept(socket) }) }
    end
    r, w = IO.pipe
    keep r, w
    [r, $stdin, nil, 1, "x", Object.new].each { |other| assert_raises(TypeError) { Eagain.tryaccept(other) } }
  end

  def test_a_socket_that_listens_later
    socket = keep Socket.new(:INET, :STREAM)
    socket.bind(Addrinfo.tcp("127.0.0.1", 0))
    assert_raises(Errno::EINVAL) { Eagain.tryaccept(socket) }
    socket.listen(5)
    assert_equal :wait_readable, Eagain.tryaccept(socket)
    connect_to(socket)
    assert_instance_of Socket, keep(Eagain.tryaccept(socket))
    socket.shutdown
    assert_same_error(-> { socket.accept_nonblock(exception: false) }, -> { Eagain.tryaccept(socket) })
  end

  def test_a_would_block_allocates_nothing
    [tcp_server, unix_server, socket_server].each do |server|
      Eagain.tryaccept(server)
      assert_equal 0, allocations { Eagain.tryaccept(server) }
    end
  end

  def test_an_object_with_to_io
    server = tcp_server
    holder = Object.new
    holder.define_singleton_method(:to_io) { server }
    assert_equal :wait_readable, Eagain.tryaccept(holder)
    connect_to(server)
    assert_instance_of TCPSocket, keep(Eagain.tryaccept(holder))
  end

  def test_a_listener_in_blocking_mode_is_left_in_it
    server = tcp_server
    server.nonblock = false
    assert_equal :wait_readable, Eagain.tryaccept(server)
    connect_to(server)
    accepted = keep Eagain.tryaccept(server)
    assert_predicate accepted, :nonblock?
    refute_predicate server, :nonblock?
    assert_equal :wait_readable, Eagain.tryaccept(server)
  end

  def test_a_peer_that_resets_before
    server = tcp_server
    outcomes = [-> { server.accept_nonblock }, -> { Eagain.tryaccept(server) }].map do |accept|
      client = TCPSocket.new("127.0.0.1", port(server))
      client.setsockopt(Socket::Option.linger(true, 0))
      client.close
      server.wait_readable(1)
      accepted = keep accept.call
      [accepted.class, outcome { accepted.read_nonblock(1) }]
    end
    assert_equal(*outcomes)
    assert_equal :wait_readable, Eagain.tryaccept(server)
  end

  def test_a_thousand_at_once
    raise_nofile 2200
    server = keep Socket.new(:INET, :STREAM)
    server.bind(Addrinfo.tcp("127.0.0.1", 0))
    server.listen(Integer(File.read("/proc/sys/net/core/somaxconn"), 10))
    clients = Array.new(1000) { connect_to(server) }
    accepted = Array.new(1000) { keep Eagain.tryaccept(server) }
    assert_equal 1000, accepted.map(&:fileno).uniq.size
    assert_equal clients.map { |client| client.local_address.ip_port }.sort,
                 accepted.map { |socket| socket.remote_address.ip_port }.sort
    assert_equal :wait_readable, Eagain.tryaccept(server)
  end

  # The beginning of a script: a listener with one connection.
  CONNECTED = <<~'RUBY'
    require "socket"
    server = TCPServer.new("127.0.0.1", 0)
    client = TCPSocket.new("127.0.0.1", server.local_address.ip_port)
  RUBY

  def test_without_descriptors_the_connection_waits
    assert_child <<~OUT, CONNECTED + <<~'RUBY'
      Errno::EMFILE Too many open files - accept(2)
      true
      TCPSocket
      wait_readable
    OUT
      Process.setrlimit(:NOFILE, 64)
      files = []
      begin
        loop { files << File.open(File::NULL) }
      rescue Errno::EMFILE
      end
      errors = [-> { Eagain.tryaccept(server) }, -> { server.accept_nonblock }].map do |accept|
        accept.call
      rescue SystemCallError => error
        error
      end
      puts "#{errors[0].class} #{errors[0].message}"
      p [errors[0].class, errors[0].message] == [errors[1].class, errors[1].message]
      files.pop.close
      puts Eagain.tryaccept(server).class
      files.pop.close
      puts Eagain.tryaccept(server)
    RUBY
  end

  def test_descriptors_of_forgotten_objects_are_collected
    assert_child "TCPSocket\n", CONNECTED + <<~'RUBY'
      Process.setrlimit(:NOFILE, 64)
      numbers = []
      begin
        loop { numbers << IO.sysopen(File::NULL) }
      rescue Errno::EMFILE
      end
      def forget(numbers) = numbers.each { |number| IO.for_fd(number) }
      forget(numbers)
      puts Eagain.tryaccept(server).class
    RUBY
  end

  def test_a_number_without_an_object_is_closed
    assert_child "true\nwait_readable\n", CONNECTED + <<~'RUBY'
      Eagain.tryaccept(server).close
      client = TCPSocket.new("127.0.0.1", server.local_address.ip_port)
      numbers = -> { Dir.children("/proc/self/fd").size }
      before = numbers.call
      def BasicSocket.do_not_reverse_lookup = raise("no")
      begin
        Eagain.tryaccept(server)
      rescue RuntimeError
        p before == numbers.call
      end
      puts Eagain.tryaccept(server)
    RUBY
  end

  def test_system_calls_of_tryaccept
    trace = strace(<<~'RUBY')
      GC.disable # which closes what is forgotten
      require "socket"
      server = TCPServer.new("127.0.0.1", 0)
      clients = Array.new(10) { TCPSocket.new("127.0.0.1", server.local_address.ip_port) }
      accepted = Array.new(11)
      Eagain.tryaccept(TCPServer.new("127.0.0.1", 0))
      accepted[0] = Eagain.tryaccept(server)
      mark
      9.times { |i| accepted[i + 1] = Eagain.tryaccept(server) }
      mark
    RUBY
    assert_equal({ "poll" => 9, "accept4" => 9 }, trace.work)

    trace = strace(<<~'RUBY')
      GC.disable # which closes what is forgotten
      require "socket"
      servers = [TCPServer.new("127.0.0.1", 0), UNIXServer.new("\0eagain#{$$}")]
      servers.each { |server| Eagain.tryaccept(server) }
      mark
      10.times { servers.each { |server| Eagain.tryaccept(server) } }
      mark
    RUBY
    assert_equal({ "poll" => 20 }, trace.work)
  end

  def test_one_system_call_where_the_mode_is_remembered
    trace = strace(<<~'RUBY')
      GC.disable # which closes what is forgotten
      require "eagain/io"
      servers = [TCPServer.new("127.0.0.1", 0), UNIXServer.new("\0eagain#{$$}")]
      clients = Array.new(10) { servers.map { |server| server.local_address.connect } }
      accepted = Array.new(30)
      mark
      10.times { |i| 2.times { |j| accepted[2 * i + j] = servers[j].tryaccept } }
      10.times { servers.each(&:tryaccept) }
      mark
      raise "not accepted" unless accepted.compact.all?(BasicSocket)
    RUBY
    asked = trace.work.except("accept4", "getsockopt")
    assert_equal({ "openat" => 2, "read" => 2, "close" => 2 }, asked)
    assert_equal 40, trace[:accept4]
  end

  def test_a_mode_that_is_changed_is_asked_for_again
    ["server.nonblock = false", "copy.nonblock = false", "copy.fcntl(Fcntl::F_SETFL, File::RDWR)",
     "copy.ioctl(0x5421, [0].pack('i'))", "copy.nonblock(false) { changed.() }; next"].each do |change|
      # A listener that is believed to be non-blocking would stop here.
      assert_child ":wait_readable\nTCPSocket\n:wait_readable\n", <<~RUBY
        require "eagain/io"
        require "fcntl"
        server = TCPServer.new("127.0.0.1", 0)
        copy = server.dup
        p server.tryaccept
        changed = lambda do
          raise "non-blocking" if server.nonblock?
          client = TCPSocket.new("127.0.0.1", server.local_address.ip_port)
          p server.tryaccept.class, server.tryaccept
        end
        1.times do
          #{change}
          changed.call
        end
      RUBY
    end
  end

  # Ruby makes these blocking for the children that it starts.
  def test_the_mode_of_a_standard_stream_is_not_remembered
    assert_child ":wait_readable\n:wait_readable\n", <<~'RUBY'
      require "eagain/io"
      $stdin.reopen(TCPServer.new("127.0.0.1", 0))
      server = TCPServer.for_fd(0)
      p server.tryaccept
      system("true")
      p server.tryaccept
    RUBY
  end

  def test_an_empty_queue_is_a_would_block_at_the_descriptor_limit
    assert_child ":wait_readable\n:wait_readable\n#{Errno::EMFILE}\nTCPSocket\n", <<~'RUBY'
      require "eagain/io"
      server = TCPServer.new("127.0.0.1", 0)
      p server.tryaccept
      socket = Socket.new(:INET, :STREAM)
      Process.setrlimit(:NOFILE, 64)
      files = []
      begin
        loop { files << File.open(File::NULL) }
      rescue Errno::EMFILE
      end
      p server.tryaccept
      socket.connect(server.local_address)
      begin
        server.tryaccept
      rescue SystemCallError => error
        p error.class
      end
      files.pop.close
      p server.tryaccept.class
    RUBY
  end

  def test_connections_that_fail_in_the_queue_are_passed_over
    script = CONNECTED + <<~'RUBY'
      p Eagain.tryaccept(server).class
    RUBY
    assert_equal "TCPSocket\n", inject("accept4:error=ECONNABORTED:when=1..3", script)
    assert_equal "Symbol\n", inject("accept4:error=ECONNABORTED", script)
  end

  def test_a_forked_child_accepts_from_the_same_listener
    server = tcp_server
    Eagain.tryaccept(server)
    client = connect_to(server)
    pid = fork do
      accepted = Eagain.tryaccept(server)
      accepted.write("child #{accepted.remote_address.ip_port}")
      exit!(0)
    end
    assert_equal "child #{client.local_address.ip_port}", client.read
    Process.wait(pid)
    assert_equal :wait_readable, Eagain.tryaccept(server)
  end

  # --- tryconnect.

  def test_connecting
    server = tcp_server
    [server.local_address, server.local_address.to_sockaddr].each do |address|
      socket = keep Socket.new(:INET, :STREAM)
      connect(socket, address)
      assert_equal 0, Eagain.tryconnect(socket, address)
      accepted = keep server.accept
      socket.write("x")
      assert_equal "x", accepted.readpartial(1)
    end
  end

  def test_connecting_a_unix_socket
    server = unix_server
    socket = keep Socket.new(:UNIX, :STREAM)
    assert_equal 0, Eagain.tryconnect(socket, server.local_address)
    assert_equal 0, Eagain.tryconnect(socket, server.local_address)
  end

  def test_refused
    address = Addrinfo.tcp("127.0.0.1", unused_port)
    [address, address.to_sockaddr].each do |given|
      errors = %i[connect_nonblock tryconnect].map { |how| refusal(keep(Socket.new(:INET, :STREAM)), given, how) }
      assert_equal [Errno::ECONNREFUSED, "Connection refused - connect(2) for #{address.inspect_sockaddr}"], errors[0]
      assert_equal(*errors)
    end
  end

  def test_a_peer_that_never_answers
    silent = silent_server
    [true, false].each do |nonblock|
      socket = keep Socket.new(:INET, :STREAM)
      socket.nonblock = nonblock
      started = now
      3.times { assert_equal :wait_writable, Eagain.tryconnect(socket, silent) }
      assert_operator now - started, :<, 0.5
      refute socket.wait_writable(0)
      assert_equal nonblock, socket.nonblock?
    end
  end

  def test_sockets_in_blocking_mode_connect_and_stay_so
    server = tcp_server
    socket = keep Socket.new(:INET, :STREAM)
    socket.nonblock = false
    connect(socket, server.local_address)
    assert_equal 0, Eagain.tryconnect(socket, server.local_address)
    refute_predicate socket, :nonblock?
    accepted = keep server.accept
    accepted.write("x")
    assert_equal "x", socket.readpartial(1)

    refused = keep Socket.new(:INET, :STREAM)
    refused.nonblock = false
    address = Addrinfo.tcp("127.0.0.1", unused_port)
    assert_equal Errno::ECONNREFUSED, refusal(refused, address, :tryconnect).first
  end

  def test_a_blocking_socket_is_not_waited_for_where_fast_open_is_off
    output = inject("sendto:error=EOPNOTSUPP", <<~'RUBY')
      require "socket"
      require "io/nonblock"
      server = TCPServer.new("127.0.0.1", 0)
      socket = Socket.new(:INET, :STREAM)
      socket.nonblock = false
      begin
        Eagain.tryconnect(socket, server.local_address)
      rescue SystemCallError => error
        p error.class, socket.nonblock?
      end
      socket.nonblock = true
      p Eagain.tryconnect(socket, server.local_address)
    RUBY
    assert_equal "#{Errno::EOPNOTSUPP}\nfalse\n:wait_writable\n", output
  end

  def test_a_full_queue_of_a_unix_socket
    server = keep Socket.new(:UNIX, :STREAM)
    server.bind(Addrinfo.unix("\0eagain#{$$}-#{rand(1 << 30)}"))
    server.listen(0)
    address = server.local_address
    full = lambda do |how|
      loop { how.call(keep(Socket.new(:UNIX, :STREAM))) }
    rescue SystemCallError => error
      error
    end
    ours = full.call(->(socket) { Eagain.tryconnect(socket, address) })
    theirs = full.call(->(socket) { socket.connect_nonblock(address, exception: false) })
    assert_kind_of Errno::EAGAIN, ours
    assert_equal [theirs.class, theirs.message], [ours.class, ours.message]
  end

  def test_datagram_sockets_are_connected_at_once_and_again
    peers = Array.new(2) { keep(UDPSocket.new).tap { |socket| socket.bind("127.0.0.1", 0) } }
    socket = keep UDPSocket.new
    peers.each do |peer|
      assert_equal 0, Eagain.tryconnect(socket, peer.local_address)
      assert_equal peer.local_address.ip_port, socket.remote_address.ip_port
      socket.send("x", 0)
      assert_equal "x", peer.recv(1)
    end
    assert_equal 0, Eagain.tryconnect(socket, [Socket::AF_UNSPEC].pack("S").ljust(16, "\0"))
    assert_raises(Errno::ENOTCONN) { socket.remote_address }
  end

  def test_errors_are_those_of_connect_nonblock
    addresses = [nil, 1, :x, [], "", "\0", "\2", "x" * 10, "x" * 16, "y" * 200, "z" * 5000,
                 Addrinfo.unix("/nowhere/at/all"), Addrinfo.tcp("127.0.0.1", 1).to_s, Addrinfo.unix("x" * 100),
                 Addrinfo.tcp("::1", 1), Addrinfo.udp("127.0.0.1", 1).to_sockaddr[0, 7]]
    kinds = [%i[INET STREAM], %i[INET DGRAM], %i[UNIX STREAM], %i[UNIX DGRAM]]
    kinds.product(addresses) do |kind, address|
      theirs = keep Socket.new(*kind)
      ours = keep Socket.new(*kind)
      assert_same_error(-> { theirs.connect_nonblock(address, exception: false) },
                        -> { Eagain.tryconnect(ours, address) }, "#{kind} #{address.inspect}")
    end
    address = Addrinfo.tcp("127.0.0.1", 1)
    closed = Socket.new(:INET, :STREAM).tap(&:close)
    [closed, Socket.allocate].each do |socket|
      assert_same_error(-> { socket.connect_nonblock(address, exception: false) },
                        -> { Eagain.tryconnect(socket, address) })
    end
    r, w = IO.pipe
    keep r, w
    [r, nil, 1, "x"].each { |other| assert_raises(TypeError) { Eagain.tryconnect(other, address) } }
  end

  def test_an_address_whose_conversion_closes_the_socket
    socket = Socket.new(:INET, :STREAM)
    address = Object.new
    address.define_singleton_method(:to_str) do
      socket.close
      Socket.sockaddr_in(1, "127.0.0.1")
    end
    assert_raises(IOError) { Eagain.tryconnect(socket, address) }
  end

  def test_system_calls_of_tryconnect
    trace = strace(<<~'RUBY')
      GC.disable # which closes what is forgotten
      require "eagain/io"
      server = Socket.new(:INET, :STREAM)
      server.bind(Addrinfo.tcp("127.0.0.1", 0))
      server.listen(0)
      address = server.local_address
      sockets = Array.new(4) { Socket.new(:INET, :STREAM) }
      sockets.first(2).each { |socket| Eagain.tryconnect(socket, address) } # fills the queue
      sleep 0.05
      mark
      5.times { sockets.last.tryconnect(address) }
      mark
      raise "not silent" unless sockets.last.tryconnect(address) == :wait_writable
    RUBY
    assert_equal({ "openat" => 1, "read" => 1, "close" => 1, "connect" => 5 }, trace.work)
    assert_match %r{/proc/self/fdinfo/}, trace.of(:openat)
  end

  # --- Both.

  def test_gc_stress_and_compaction
    server = tcp_server
    5.times do
      connect_to(server)
      socket = keep Socket.new(:INET, :STREAM)
      GC.stress = true
      accepted = Eagain.tryaccept(server, class: TCPSocket)
      state = Eagain.tryconnect(socket, server.local_address)
      GC.stress = false
      GC.compact if GC.respond_to?(:compact)
      keep accepted
      assert_includes [0, :wait_writable], state
      assert_predicate accepted.remote_address, :ipv4_loopback?
      keep server.accept
    ensure
      GC.stress = false
    end
  end

  def test_random_arguments
    random = Random.new(seed)
    server = tcp_server
    values = [nil, true, 0, -1, 1 << 70, 1.5, "", "\0" * 16, "x" * 300, :x, [], {}, Object.new, TCPSocket, String, IO,
              BasicSocket, Class, Comparable, server.local_address, Socket.sockaddr_in(9, "127.0.0.1"), $stdin,
              TCPServer.allocate, Addrinfo.unix("/nowhere")]
    2000.times do
      socket = values.sample(random: random)
      socket = Socket.new(%i[INET UNIX].sample(random: random), :DGRAM) if random.rand(3) == 0
      arguments = values.sample(random.rand(3), random: random)
      options = random.rand(2) == 0 ? {} : { %i[class klass].sample(random: random) => values.sample(random: random) }
      begin
        if random.rand(2) == 0
          Eagain.tryaccept(random.rand(2) == 0 ? server : socket, *arguments.first(random.rand(2)), **options)
        else
          Eagain.tryconnect(socket, *arguments)
        end
      rescue TypeError, ArgumentError, RangeError, IOError, SystemCallError
        next
      ensure
        socket.close if socket.is_a?(Socket)
      end
    end
    connect_to(server)
    assert_instance_of TCPSocket, keep(Eagain.tryaccept(server))
  end

  private

  def tcp_server = keep(TCPServer.new("127.0.0.1", 0))
  def unix_server = keep(UNIXServer.new("\0eagain#{$$}-#{rand(1 << 30)}"))

  def socket_server
    server = Socket.new(:INET, :STREAM)
    server.bind(Addrinfo.tcp("127.0.0.1", 0))
    server.listen(5)
    keep server
  end

  # Socket#accept gives the address, too.
  def accept(server) = server.is_a?(Socket) ? server.accept.first : server.accept

  def port(server) = server.local_address.ip_port

  def connect_to(server)
    address = server.local_address
    keep(Socket.new(address.pfamily, :STREAM)).tap { |client| client.connect(address) }
  end

  def unused_port
    server = TCPServer.new("127.0.0.1", 0)
    port(server)
  ensure
    server.close
  end

  # The address of a listener whose queue is full: the kernel drops what comes.
  def silent_server
    server = keep Socket.new(:INET, :STREAM)
    server.bind(Addrinfo.tcp("127.0.0.1", 0))
    server.listen(0)
    address = server.local_address
    20.times do
      socket = keep Socket.new(:INET, :STREAM)
      next if socket.connect_nonblock(address, exception: false) == 0 || socket.wait_writable(0.1)

      return address
    end
    skip "this kernel's queue does not get full"
  end

  # Until it is connected.
  def connect(socket, address)
    while (state = Eagain.tryconnect(socket, address)) == :wait_writable
      assert socket.wait_writable(5), "not connected"
    end
    assert_equal 0, state
  end

  # How a connection is refused: [class, message].
  def refusal(socket, address, how)
    2.times do
      if how == :tryconnect
        Eagain.tryconnect(socket, address)
      else
        socket.connect_nonblock(address, exception: false)
      end
      socket.wait_writable(5)
    end
    flunk "not refused"
  rescue SystemCallError => error
    [error.class, error.message]
  end

  def outcome
    yield
  rescue SystemCallError, IOError, TypeError, ArgumentError, RangeError => error
    [error.class, error.message]
  end

  def assert_same_error(theirs, ours, about = nil)
    expected = outcome(&theirs)
    assert_equal expected, outcome(&ours), about
  end

  # Runs a script with a fault in a system call; returns what it printed.
  def inject(fault, script)
    needs_strace
    out, err, status = run_command({}, "strace", "-f", "-o", File::NULL, "-e", "trace=accept4,sendto", "-e",
                                   "inject=#{fault}", RUBY, "-I#{LIB}", "-reagain", "-e", script)
    assert status.success?, "#{status}\n#{err}"
    out
  end
end
