# frozen_string_literal: true

require_relative "helper"
require_relative "opened"
require "eagain/io" unless PEER
require "io/wait"

# What a socket remembers of itself: always what the kernel says now. Ruby's own methods, which ask it,
# are behind ours.
class MemoryTest < EagainTest
  include Opened

  def setup
    only_ours
  end

  # --- The answers.

  def test_addresses_are_rubys
    sockets = tcp + unix + seqpacket + [keep(TCPServer.new("::1", 0))]
    udp = keep UDPSocket.new
    udp.bind("127.0.0.1", 0)
    connected = keep UDPSocket.new
    connected.connect("127.0.0.1", udp.local_address.ip_port)
    unnamed = keep(*UNIXSocket.pair(:DGRAM))
    sockets.push(udp, connected, *unnamed, keep(Socket.new(:INET, :STREAM)), keep(Socket.new(:UNIX, :DGRAM)))
    3.times { sockets.each { |socket| assert_asks_as_ruby(socket) } }
  end

  def test_errors_are_rubys
    r, w = IO.pipe
    keep r, w
    closed = TCPServer.new("127.0.0.1", 0).tap(&:close)
    unconnected = keep UDPSocket.new, TCPServer.new("127.0.0.1", 0)
    [closed, TCPSocket.allocate, *unconnected].each { |socket| assert_asks_as_ruby(socket) }
    # A number that is no socket any more.
    server, client, = tcp
    client.remote_address
    client.reopen(r)
    assert_instance_of IO, client
    server.reopen("/dev/null")
    assert_asks_as_ruby(server)
    [r, nil, 1, "x"].each do |other|
      assert_raises(TypeError) { Eagain.remote_address(other) }
      assert_raises(TypeError) { Eagain.local_address(other) }
    end
  end

  def test_an_accepted_socket_knows_its_peer_without_a_system_call
    trace = strace(<<~'RUBY')
      GC.disable # which closes what is forgotten
      require "eagain/io"
      servers = [TCPServer.new("127.0.0.1", 0), UNIXServer.new("\0eagain#{$$}")]
      servers.each { |server| server.local_address.connect.then { server.tryaccept } }
      clients = servers.map { |server| server.local_address.connect }
      accepted = servers.map(&:tryaccept)
      accepted.each(&:local_address)
      expected = clients.map { |client| client.local_address.inspect }
      mark
      100.times { accepted.each(&:remote_address) }
      100.times { accepted.each(&:local_address) }
      seen = accepted.map { |it| it.remote_address.inspect }
      mark
      raise seen.inspect unless seen == expected
    RUBY
    assert_empty trace.work, trace
  end

  def test_others_ask_once
    trace = strace(<<~'RUBY')
      GC.disable # which closes what is forgotten
      require "eagain/io"
      server = TCPServer.new("127.0.0.1", 0)
      sockets = [TCPSocket.new("127.0.0.1", server.local_address.ip_port), *UNIXSocket.pair,
                 *Socket.pair(:UNIX, :SEQPACKET)]
      mark
      10.times { sockets.each(&:remote_address) }
      10.times { sockets.each(&:local_address) }
      mark
    RUBY
    assert_equal({ "getpeername" => 5, "getsockopt" => 5, "getsockname" => 5 }, trace.work)
  end

  def test_messages_ask_nothing
    trace = strace(<<~'RUBY')
      GC.disable # which closes what is forgotten
      require "eagain/io"
      a, b = UNIXSocket.pair(:SEQPACKET)
      a.trysendmsg("x")
      b.tryrecv(11)
      mark
      1000.times { a.trysendmsg("hello world"); b.tryrecv(11) }
      mark
    RUBY
    assert_equal 2000, trace.work.values.sum, trace
    assert_equal 0, trace[:getsockname, :getsockopt, :fcntl]
  end

  def test_a_connection_that_was_reset_still_tells_where_it_led
    _, client, accepted = tcp
    expected = accepted.remote_address.inspect
    client.setsockopt(Socket::Option.linger(true, 0))
    client.close
    assert_raises(Errno::ECONNRESET) { accepted.wait_readable(1) && accepted.read_nonblock(1) }
    assert_raises(Errno::ENOTCONN) { accepted.method(:remote_address).super_method.call }
    assert_equal expected, accepted.remote_address.inspect
  end

  # --- Descriptors that change.

  def test_reopen
    _, client, accepted = tcp
    _, other, = tcp
    know(client, accepted, other)
    client.reopen(other)
    assert_asks_as_ruby(client)
    assert_equal other.remote_address.inspect, client.remote_address.inspect
    accepted.reopen(other)
    assert_asks_as_ruby(accepted)
  end

  def test_reopen_as_another_class
    _, client, = tcp
    _, local, = unix
    know(client, local)
    client.reopen(local)
    assert_instance_of local.class, client
    assert_asks_as_ruby(client)
    assert_predicate client.remote_address, :unix?
  end

  def test_reopen_of_another_object_for_the_number
    _, client, = tcp
    _, other, = tcp
    know(client, other)
    twin = IO.for_fd(client.fileno, autoclose: false)
    twin.reopen(other)
    assert_asks_as_ruby(client)
    assert_equal other.remote_address.inspect, client.remote_address.inspect
  end

  def test_a_reopen_that_fails
    _, client, = tcp
    know(client)
    assert_raises(Errno::ENOENT) { client.reopen("/nowhere/at/all") }
    assert_raises(TypeError) { client.reopen(1) }
    assert_asks_as_ruby(client)
  end

  def test_reopen_passes_its_arguments_on
    Tempfile.create("reopen") do |file|
      io = keep File.open(File::NULL)
      assert_same io, io.reopen(file.path, "w", encoding: "UTF-16LE")
      assert_equal Encoding::UTF_16LE, io.external_encoding
      assert_raises(ArgumentError) { io.reopen }
      assert_raises(ArgumentError) { io.reopen(file.path, "r", unknown: 1, mode: "w") }
      io.close
      assert_nil io.close
      assert_raises(ArgumentError) { io.close(1) }
    end
  end

  def test_dup_and_clone
    _, client, accepted = tcp
    _, other, = tcp
    know(client, accepted, other)
    [client, accepted].each do |socket|
      copies = keep socket.dup, socket.clone
      copies.each { |copy| 2.times { assert_asks_as_ruby(copy) } }
      copies[0].reopen(other)
      [*copies, socket].each { |it| assert_asks_as_ruby(it) }
      number = copies[1].fileno
      copies[1].close
      assert_asks_as_ruby(newcomer_with(number))
    end
  end

  def test_a_number_that_is_used_again
    _, client, accepted = tcp
    know(client, accepted)
    number = accepted.fileno
    accepted.close
    assert_raises(IOError) { accepted.remote_address }
    newcomer = newcomer_with(number)
    assert_asks_as_ruby(newcomer)
  end

  def test_a_number_that_another_object_closed
    _, client, = tcp
    know(client)
    Socket.for_fd(client.fileno).close
    client.autoclose = false
    newcomer = newcomer_with(client.fileno)
    know(newcomer)
    assert_asks_as_ruby(client)
  end

  # The second half closes the descriptor, and calls no #close for that.
  def test_a_number_that_both_halves_of_another_object_closed
    [%i[close_write close_read], %i[close_read close_write]].each do |halves|
      _, client, = tcp
      know(client)
      twin = Socket.for_fd(client.fileno)
      halves.each { |half| twin.public_send(half) }
      assert_predicate twin, :closed?
      client.autoclose = false
      newcomer = newcomer_with(client.fileno)
      know(newcomer)
      assert_asks_as_ruby(client)
    end
  end

  # An IO that is opened for one direction only is closed by the first half.
  def test_a_number_that_an_io_closed_by_half
    _, client, = tcp
    know(client)
    IO.for_fd(client.fileno, "r").close_read
    client.autoclose = false
    newcomer = newcomer_with(client.fileno)
    know(newcomer)
    assert_asks_as_ruby(client)
  end

  def test_accepting_into_a_number_that_another_object_still_has
    server, client, accepted = tcp
    know(accepted, client)
    stale = keep accepted
    IO.for_fd(accepted.fileno).close
    fresh = keep(TCPSocket.new("127.0.0.1", server.local_address.ip_port)) && keep(server.tryaccept)
    stale.autoclose = false
    [stale, fresh].each { |socket| assert_asks_as_ruby(socket) }
  end

  def test_for_fd
    _, client, = tcp
    know(client)
    twin = TCPSocket.for_fd(client.fileno)
    twin.autoclose = false
    2.times { assert_asks_as_ruby(twin) }
    twin.close
    assert_asks_as_ruby(client)
    assert_equal client.method(:remote_address).super_method.call.inspect, client.remote_address.inspect
  end

  def test_autoclose_off
    _, client, = tcp
    know(client)
    client.autoclose = false
    assert_asks_as_ruby(client)
    number = client.fileno
    client.close
    again = keep TCPSocket.for_fd(number)
    assert_asks_as_ruby(again)
  end

  def test_recv_io
    _, client, = tcp
    know(client)
    a, b = keep(*UNIXSocket.pair)
    know(a, b)
    a.send_io(client)
    received = keep b.recv_io(TCPSocket)
    2.times { assert_asks_as_ruby(received) }
    a.send_io(a)
    assert_asks_as_ruby(keep(b.recv_io(UNIXSocket)))
    assert_asks_as_ruby(client)
  end

  def test_fork
    _, client, accepted = tcp
    _, other, = tcp
    know(client, accepted, other)
    expected = [client, accepted, other].map { |socket| socket.remote_address.inspect }
    r, w = keep(*IO.pipe)
    pid = fork do
      seen = [client, accepted].map { |socket| socket.remote_address.inspect }
      client.reopen(other)
      w.write(Marshal.dump([seen, client.remote_address.inspect]))
      exit!(0)
    end
    w.close
    assert_equal [expected.first(2), expected.last], Marshal.load(r.read)
    Process.wait(pid)
    assert_equal expected.first, client.remote_address.inspect
  end

  def test_a_datagram_socket_that_is_connected_again
    peers = Array.new(2) { keep(UDPSocket.new).tap { |socket| socket.bind("127.0.0.1", 0) } }
    socket = keep UDPSocket.new
    copy = keep socket.dup
    2.times do
      peers.each do |peer|
        socket.connect("127.0.0.1", peer.local_address.ip_port)
        [socket, copy].each { |it| assert_asks_as_ruby(it) }
        copy.connect("127.0.0.1", peers[0].local_address.ip_port)
        [socket, copy].each { |it| assert_asks_as_ruby(it) }
        Eagain.tryconnect(copy, peer.local_address)
        assert_equal peer.local_address.ip_port, socket.remote_address.ip_port
      end
    end
  end

  def test_a_connection_that_is_dissolved
    server, = tcp
    other = keep TCPServer.new("127.0.0.1", 0)
    nowhere = [Socket::AF_UNSPEC].pack("S").ljust(16, "\0")
    %i[connect connect_nonblock tryconnect].each do |how|
      socket = keep Socket.new(:INET, :STREAM)
      socket.connect(server.local_address)
      know(socket)
      socket.public_send(how, nowhere)
      assert_raises(Errno::ENOTCONN) { socket.remote_address }
      assert_asks_as_ruby(socket)
      socket.connect(other.local_address)
      2.times { assert_asks_as_ruby(socket) }
      assert_equal other.local_address.inspect, socket.remote_address.inspect
    end
  end

  def test_binding_and_connecting_change_the_local_address
    server, = tcp
    socket = keep Socket.new(:INET, :STREAM)
    assert_asks_as_ruby(socket)
    socket.bind(Addrinfo.tcp("127.0.0.1", 0))
    2.times { assert_asks_as_ruby(socket) }
    socket.connect(server.local_address)
    3.times { assert_asks_as_ruby(socket) }
  end

  # Ruby 3.1 keeps the places of instance variables by class, and mixes them up when IO#reopen changes it.
  def may_change_class?(first, second) = RUBY_VERSION >= "3.2" || first.instance_of?(second.class)

  # Whatever happens to descriptors, addresses are those that Ruby's own methods give.
  def test_a_random_history
    random = Random.new(seed)
    servers = [keep(TCPServer.new("127.0.0.1", 0)), keep(UNIXServer.new("\0eagain#{$$}-#{rand(1 << 30)}"))]
    pool = []
    kept = [] # clients: their ends stay open, since a reset connection is remembered on purpose
    1500.times do
      case random.rand(9)
      when 0, 1
        server = servers.sample(random: random)
        kept << server.local_address.connect
        pool << (random.rand(2) == 0 ? server.tryaccept : server.accept)
      when 2 then pool.push(*UNIXSocket.pair(%i[STREAM DGRAM SEQPACKET].sample(random: random)))
      when 3 then pool << pool.sample(random: random).dup unless pool.empty?
      when 4
        first, second = pool.sample(2, random: random)
        first.reopen(second) if second && may_change_class?(first, second)
      when 5
        twin = IO.for_fd(pool.sample(random: random).fileno, autoclose: false) unless pool.empty?
        twin&.reopen(pool.sample(random: random))
      when 6, 7 then pool.delete_at(random.rand(pool.size)).close unless pool.empty?
      when 8 then GC.start if random.rand(20) == 0
      end
      pool.shift.close while pool.size > 20
      pool.sample(5, random: random).each { |socket| assert_asks_as_ruby(socket) }
    end
    (pool + kept).each { |socket| socket.close unless socket.closed? }
  end

  # --- The memory itself.

  def test_it_is_hidden
    _, client, accepted = tcp
    know(client, accepted)
    [client, accepted].each do |socket|
      assert_empty socket.instance_variables
      assert_equal 1, socket.inspect.lines.size
      error = assert_raises(TypeError) { Marshal.dump(socket) }
      assert_match(/TCPSocket/, error.message)
    end
    refute_includes Eagain.constants, :Memory
    assert_raises(NameError) { Eagain::Memory }
  end

  def test_an_address_cannot_be_changed
    _, _, accepted = tcp
    expected = accepted.remote_address.inspect
    bytes = accepted.remote_address.to_sockaddr
    bytes.replace("x" * 16) unless bytes.frozen?
    assert_equal expected, accepted.remote_address.inspect
  end

  def test_a_frozen_socket
    _, client, accepted = tcp
    server = keep TCPServer.new("127.0.0.1", 0)
    know(client)
    [client, accepted, server].each(&:freeze)
    [client, accepted].each { |socket| assert_asks_as_ruby(socket) }
    assert_raises(FrozenError) { server.accept_nonblock }
    assert_raises(FrozenError) { Eagain.tryaccept(server) }
    assert_raises(FrozenError) { Eagain.tryconnect(client, Addrinfo.tcp("127.0.0.1", 1)) }
  end

  def test_gc_stress_and_compaction
    _, client, accepted = tcp
    addresses = -> { [client, accepted].map { |it| [it.remote_address.inspect, it.local_address.inspect] } }
    expected = addresses.call
    _, fresh, = tcp
    fresh_expected = [:remote_address, :local_address].map { |name| fresh.method(name).super_method.call.inspect }
    GC.stress = true
    3.times { know(client, accepted, fresh) }
    GC.stress = false
    GC.compact if GC.respond_to?(:compact)
    assert_equal expected, addresses.call
    assert_equal fresh_expected, [fresh.remote_address.inspect, fresh.local_address.inspect]
  ensure
    GC.stress = false
  end

  def test_in_a_ractor
    assert_child "true\ntrue\n", <<~'RUBY'
      Warning[:experimental] = false
      require "eagain/io"
      server = TCPServer.new("127.0.0.1", 0)
      ractor = Ractor.new(server.local_address.ip_port) do |port|
        client = TCPSocket.new("127.0.0.1", port)
        3.times { client.remote_address }
        [client.remote_address.ip_port == port, client.close].first
      end
      p(ractor.respond_to?(:value) ? ractor.value : ractor.take)
      client = TCPSocket.new("127.0.0.1", server.local_address.ip_port)
      p client.remote_address.ip_port == server.local_address.ip_port
    RUBY
  end

  def test_threads_that_reopen_and_ask
    _, client, = tcp
    others = Array.new(2) { tcp[1] }
    know(client, *others)
    addresses = others.map { |other| other.remote_address.inspect }
    done = false
    asker = Thread.new do
      until done
        client.remote_address
        Thread.pass
      end
    end
    300.times do |i|
      client.reopen(others[i % 2])
      assert_equal addresses[i % 2], client.remote_address.inspect
      Thread.pass
    end
  ensure
    done = true
    asker&.join
  end

  # --- Without eagain/io.

  def test_nothing_is_patched_or_remembered_without_it
    assert_child "[]\ntrue\ntrue\n", <<~'RUBY'
      require "socket"
      p [IO, BasicSocket, Socket].flat_map(&:ancestors).grep(/Eagain/)
      sockets = Array.new(2) do
        server = TCPServer.new("127.0.0.1", 0)
        (@open ||= []) << server << TCPSocket.new("127.0.0.1", server.local_address.ip_port)
        Eagain.tryaccept(server)
      end
      sockets.each { |socket| Eagain.remote_address(socket) }
      expected = sockets[1].remote_address.inspect
      sockets[0].reopen(sockets[1])
      p Eagain.remote_address(sockets[0]).inspect == expected
      require "eagain/io"
      sockets[1].reopen(@open[1])
      p Eagain.remote_address(sockets[1]).inspect == @open[1].remote_address.inspect
    RUBY
  end

  private

  # A socket that gets this number, which is free. Lower ones may be, too: the collector closes what it finds.
  def newcomer_with(number)
    100.times do
      found = keep(*UNIXSocket.pair).find { |it| it.fileno == number }
      return found if found
    end
    flunk("#{number} was not free")
  end

  # [server, client, accepted by us]
  def tcp
    server = TCPServer.new("127.0.0.1", 0)
    client = TCPSocket.new("127.0.0.1", server.local_address.ip_port)
    keep server, client, server.tryaccept
  end

  def unix
    path = "#{Dir.tmpdir}/eagain-#{$$}-#{rand(1 << 30)}"
    server = UNIXServer.new(path)
    client = UNIXSocket.new(path)
    File.unlink(path)
    keep server, client, server.tryaccept
  end

  def seqpacket
    server = Socket.new(:UNIX, :SEQPACKET)
    server.bind(Addrinfo.unix("\0eagain#{$$}-#{rand(1 << 30)}"))
    server.listen(5)
    client = Socket.new(:UNIX, :SEQPACKET)
    client.connect(server.local_address)
    keep server, client, server.tryaccept
  end

  # Makes them remember.
  def know(*sockets)
    sockets.each do |socket|
      socket.remote_address
      socket.local_address
    end
  end

  def assert_asks_as_ruby(socket)
    %i[remote_address local_address].each do |name|
      theirs = facts { BasicSocket.instance_method(name).bind(socket).super_method.call }
      assert_equal theirs, facts { socket.public_send(name) }, name
      assert_equal theirs, facts { Eagain.public_send(name, socket) }, name
    end
  end

  def facts
    address = yield
    [address.class, address.to_sockaddr, address.afamily, address.pfamily, address.socktype, address.protocol,
     address.canonname, address.inspect]
  rescue SystemCallError, IOError, FrozenError => error
    [error.class, error.message]
  end
end
