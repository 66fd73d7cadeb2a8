# frozen_string_literal: true

require_relative "kgio_support"

# eagain/kgio, beside test_kgio.rb: how it waits, servers and connections, files, poll, autopush, fork.
class KgioSocketsTest < EagainTest
  include KgioSupport

  # --- What it costs.

  def test_a_new_socket_with_the_highest_number_is_not_asked_about
    trace = strace(<<~'RUBY')
      require "eagain/kgio"
      require "io/wait"
      server = Kgio::TCPServer.new("127.0.0.1", 0)
      client = TCPSocket.new("127.0.0.1", server.addr[1])
      pipes = Array.new(150) { IO.pipe }
      nil until server.wait_readable(1)
      mark
      accepted = server.kgio_tryaccept
      mark
      exit!(1) unless [client, *pipes.flatten].all? { |io| io.fileno < accepted.fileno }
    RUBY
    assert_equal 0, trace[:fcntl], trace.work
  end

  def test_a_large_read_that_finds_nothing_allocates_nothing
    [pipe, pair].each do |r, w|
      read = -> { r.kgio_tryread(1 << 20) }
      assert_equal :wait_readable, read.call
      before = GC.stat(:total_allocated_objects)
      100.times { read.call }
      assert_operator GC.stat(:total_allocated_objects) - before, :<, 10
      w.kgio_trywrite("x" * 40_000)
      assert_equal "x" * 40_000, read.call
      assert_raises(FrozenError) { r.kgio_tryread(1 << 20, "".freeze) } # rubocop:disable Style/RedundantFreeze
    end
    trace = strace(<<~'RUBY')
      require "eagain/kgio"
      r, w = Kgio::Pipe.new
      r.kgio_tryread(1 << 20)
      mark
      100.times { r.kgio_tryread(1 << 20) }
      mark
    RUBY
    assert_equal({ "preadv2" => 100 }, trace.work.except("getpid"), trace.to_s) # getpid: Ruby's own, about its timer
  end

  def test_a_number_that_is_accepted_anew_ages
    skip "of the checkout" if PEER
    assert_child("true true\n", <<~'RUBY')
      require "eagain/io"
      require "eagain/kgio"
      require "io/wait"
      server = Kgio::TCPServer.new("127.0.0.1", 0)
      clients = Array.new(2) { TCPSocket.new("127.0.0.1", server.addr[1]) }
      old = server.kgio_accept
      old.autoclose = false
      stale = Socket.for_fd(old.fileno)
      stale.remote_address
      # As the collector or C code does it: nobody is told.
      IO.instance_method(:close).super_method.bind_call(IO.for_fd(old.fileno))
      stale.autoclose = false
      new = server.kgio_accept
      puts "#{new.fileno == stale.fileno} #{stale.remote_address.ip_port == clients[1].local_address.ip_port}"
    RUBY
  end

  # --- Waiting.

  def test_an_object_waits_its_own_way
    [pipe, pair].each do |r, w|
      waits = 0
      r.define_singleton_method(:kgio_wait_readable) { (waits += 1) == 3 ? w.syswrite("x") : nil }
      assert_equal "x", r.kgio_read(5)
      assert_equal 3, waits
      def w.kgio_wait_writable = raise("full")
      assert_equal("full", assert_raises(RuntimeError) { w.kgio_write("x" * (4 << 20)) }.message)
      assert_equal("full", assert_raises(RuntimeError) { w.kgio_writev(["x" * (4 << 20)]) }.message)
    end
  end

  def test_it_waits_through_the_scheduler
    data = Random.bytes(2 << 20)
    schedule do
      [pipe, pair].each do |r, w|
        reader = task do
          got = +""
          while (part = r.kgio_read(100_000))
            got << part
          end
          got
        end
        w.kgio_write(data)
        w.kgio_writev([data, "end"])
        w.close
        await("reader") { reader.done? }
        assert_bytes data + data + "end", reader.value
      end
      s = server
      accepted = task { s.kgio_accept }
      c = keep(Kgio::TCPSocket.new("127.0.0.1", s.addr[1]))
      await("accept") { accepted.done? }
      peeked = task { keep(accepted.value).kgio_peek(5) }
      c.kgio_write("abc")
      await("peek") { peeked.done? }
      assert_equal "abc", peeked.value
      r, = pipe
      assert_nil r.kgio_wait_readable(0.01)
    end
  end

  def test_poll_lets_other_fibers_run
    schedule do
      r, w = keep(*IO.pipe)
      poll = task { Kgio.poll({ r => Kgio::POLLIN }, 10_000) }
      sleep 0.01
      refute poll.done?
      w.syswrite("x")
      await("poll") { poll.done? }
      assert_equal({ r => Kgio::POLLIN }, poll.value)
      assert_nil Kgio.poll({ w => 0 }, 5)
      bad = task { Kgio.poll({ r => 1, w => :nonsense }) rescue $!.class }
      await("bad poll") { bad.done? }
      assert_equal ArgumentError, bad.value
    end
  end

  def test_waits_end_when_the_io_is_closed_or_the_thread_is_killed
    { read: -> { pipe[0] }, accept: -> { server } }.each do |what, open|
      2.times do |kill|
        io = open.call
        thread = Thread.new do
          Thread.current.report_on_exception = false
          what == :read ? io.kgio_read(5) : io.kgio_accept
        end
        Thread.pass until thread.stop?
        if kill == 1
          thread.kill
          assert_nil watch(thread, PATIENCE)
        else
          io.close
          assert_raises(IOError) { watch(thread, PATIENCE) }
        end
      end
    end
  end

  def test_syssend_blocks_its_thread_alone
    a, b = pair
    a.nonblock = false
    thread = Thread.new { a.kgio_syssend("x" * (4 << 20), 0) }
    got = 0
    got += b.readpartial(1 << 20).bytesize while got < 4 << 20
    assert_nil watch(thread, PATIENCE)
    thread = Thread.new { loop { a.kgio_syssend("x" * 100_000, 0) } }
    Thread.pass until thread.stop?
    thread.kill
    assert_nil watch(thread, PATIENCE)
  end

  # --- Servers and connections.

  def test_accepting
    s = server
    assert_nil s.kgio_tryaccept
    [["127.0.0.1", s.addr[1]]].each do |address|
      c = keep(Kgio::TCPSocket.new(*address))
      klass = Class.new(Kgio::Socket) { def initialize(*) = raise }
      a = keep(s.kgio_tryaccept(klass, Kgio::SOCK_NONBLOCK))
      assert_instance_of klass, a
      assert a.nonblock?
      refute a.close_on_exec?
      assert_equal "127.0.0.1", a.kgio_addr
      assert_equal [c.local_address.ip_port, "127.0.0.1"], [a.remote_address.ip_port, a.remote_address.ip_address]
      a.write("plain Ruby\n")
      assert_equal "plain Ruby\n", c.gets
    end
    assert_raises(TypeError) { s.kgio_tryaccept(String) }
    assert_raises(Errno::EINVAL) { s.kgio_tryaccept(nil, 1) }
  end

  def test_unix_servers
    Dir.mktmpdir do |dir|
      s = keep(Kgio::UNIXServer.new("#{dir}/s"))
      c = keep(Kgio::UNIXSocket.new("#{dir}/s"))
      a = keep(s.kgio_accept)
      assert_same Kgio::LOCALHOST, a.kgio_addr
      assert_equal Kgio::LOCALHOST, a.kgio_addr!
      c.kgio_write("x")
      assert_equal "x", a.kgio_read(5)
      s.listen(0)
      assert_raises(Errno::EAGAIN) { 10.times { keep(Kgio::UNIXSocket.new("#{dir}/s")) } }
    end
    skip "abstract names are Linux's" unless RUBY_PLATFORM.include?("linux")
    name = "\0eagain-test-#{$$}"
    keep(UNIXServer.new(name))
    assert_kind_of Kgio::UNIXSocket, keep(Kgio::UNIXSocket.new(name))
  end

  def test_without_descriptors_nothing_is_lost
    assert_child "Errno::EMFILE Too many open files - accept\nx\nErrno::EMFILE\nErrno::EMFILE\n:ok\n", <<~'RUBY'
      require "eagain/kgio"
      require "timeout"
      s = Kgio::TCPServer.new("127.0.0.1", 0)
      c = TCPSocket.new("127.0.0.1", s.addr[1])
      c.write("x")
      limits = Process.getrlimit(:NOFILE)
      Process.setrlimit(:NOFILE, 4, limits[1])
      begin
        s.kgio_tryaccept
      rescue SystemCallError => e
        puts "#{e.class} #{e.message}"
      end
      errors = [-> { Kgio::TCPSocket.new("127.0.0.1", 1) }, -> { Kgio::File.tryopen("/etc/passwd") }].map do |call|
        call.call
      rescue SystemCallError => e
        e.class
      end
      Process.setrlimit(:NOFILE, *limits)
      puts s.kgio_tryaccept.kgio_read(5), errors
      # What nobody refers to any more is closed when descriptors run out.
      Process.setrlimit(:NOFILE, 60, limits[1])
      200.times do
        begin
          TCPSocket.new("127.0.0.1", s.addr[1]).close
        rescue Errno::EMFILE # Ruby's own sockets do not always find the garbage
          GC.start
          retry
        end
        s.kgio_tryaccept or raise "no connection"
        Kgio::File.tryopen("/etc/passwd").class
      end
      p :ok
    RUBY
  end

  def test_a_failure_to_connect_is_told_by_the_first_use
    free = TCPServer.open("127.0.0.1", 0) { |s| s.addr[1] }
    assert_raises(Errno::ECONNREFUSED) { keep(Kgio::TCPSocket.new("127.0.0.1", free)).kgio_write("x") }
    assert_raises(Errno::ECONNREFUSED) do
      c = keep(Kgio::Socket.start(Socket.pack_sockaddr_in(free, "127.0.0.1")))
      c.kgio_wait_writable
      c.kgio_tryread(5)
    end
  end

  def test_names_are_not_looked_up
    ["localhost", "example.com", "", "1.2.3.4.5", "::1%"].each do |host|
      assert_raises(ArgumentError) { Kgio::TCPSocket.new(host, 80) }
    end
    [-1, 65_536, 70_000].each { |port| assert_raises(ArgumentError) { Kgio::TCPSocket.new("127.0.0.1", port) } }
    assert_raises(ArgumentError) { Kgio::TCPSocket.new("127.0.0.1\0x", 80) }
    assert_raises(TypeError) { Kgio::TCPSocket.new("127.0.0.1", "80") }
  end

  def test_opening
    assert_equal :ENOENT, Kgio::File.tryopen("/nonexistent")
    assert_equal :ENOTDIR, Kgio::File.tryopen("/etc/passwd/x")
    assert_equal :EISDIR, Kgio::File.tryopen("/", IO::WRONLY)
    file = keep(Kgio::File.tryopen(__FILE__))
    assert_equal [__FILE__, true, File.read(__FILE__)], [file.path, file.close_on_exec?, file.read]
    assert_raises(ArgumentError) { Kgio::File.tryopen(__FILE__, "r") }
    Dir.mktmpdir do |dir|
      File.mkfifo("#{dir}/fifo")
      thread = Thread.new { Kgio::File.tryopen("#{dir}/fifo") }
      Thread.pass until thread.stop?
      w = keep(Kgio::File.tryopen("#{dir}/fifo", IO::WRONLY))
      r = keep(watch(thread, PATIENCE))
      w.kgio_write("x")
      assert_equal "x", r.kgio_read(5)
      thread = Thread.new { Kgio::File.tryopen("#{dir}/fifo2") }
      File.mkfifo("#{dir}/fifo3")
      thread.join
      thread = Thread.new { Kgio::File.tryopen("#{dir}/fifo3") }
      Thread.pass until thread.stop?
      thread.kill
      assert_nil watch(thread, PATIENCE)
    end
  end

  def test_fast_open_in_blocking_mode
    s = server
    c = keep(Kgio::Socket.new(:INET, :STREAM))
    c.nonblock = false
    begin
      assert_nil c.kgio_fastopen("hello", s.getsockname)
    rescue Errno::EOPNOTSUPP
      skip "TCP Fast Open is switched off here"
    end
    assert_equal "hello", keep(s.kgio_accept).kgio_read(10)
  end

  def test_autopush_takes_two_system_calls_when_there_is_something_to_push
    trace = strace(<<~'RUBY')
      require "eagain/kgio"
      s = Kgio::TCPServer.new("127.0.0.1", 0)
      s.setsockopt(:TCP, Socket::TCP_CORK, 1)
      c = TCPSocket.new("127.0.0.1", s.addr[1])
      a = s.kgio_tryaccept
      raise "no autopush" unless a.kgio_autopush?
      d = TCPSocket.new("127.0.0.1", s.addr[1])
      e = Kgio::UNIXSocket.pair
      mark
      b = s.kgio_tryaccept # the listener was asked before
      a.kgio_tryread(5)
      a.kgio_write("x")
      a.kgio_writev(["y"])
      a.kgio_tryread(5)
      a.kgio_tryread(5)
      e[0].kgio_write("x")
      e[1].kgio_read(5)
      mark
      raise "held back" unless c.readpartial(5) == "xy"
      raise "no cork" unless a.getsockopt(:TCP, Socket::TCP_CORK).bool
      a.kgio_autopush = false
      raise "autopush" if a.kgio_autopush? || !b.kgio_autopush?
      Kgio.autopush = false
      f = TCPSocket.new("127.0.0.1", s.addr[1])
      raise "autopush" if s.kgio_tryaccept.kgio_autopush?
    RUBY
    assert_equal 2, trace.lines.grep(/TCP_CORK/).size, trace.lines.join
    assert_equal [2, 0], [trace[:setsockopt], trace[:getsockopt]]
  end

  # --- poll.

  def test_polling
    r, w = keep(*IO.pipe)
    set = { r => :wait_readable, w => :wait_writable }
    assert_same set, Kgio.poll(set)
    assert_equal({ w => Kgio::POLLOUT }, set)
    assert_nil Kgio.poll({ r => Kgio::POLLIN }, 1)
    assert_nil Kgio.poll({}, 1)
    assert_raises(TypeError) { Kgio.poll([]) }
    assert_raises(TypeError) { Kgio.poll({ r => 1 }, 0.5) }
    thread = Thread.new { Kgio.poll({ r => Kgio::POLLIN }) }
    Thread.pass until thread.stop?
    w.syswrite("x")
    assert_equal({ r => Kgio::POLLIN }, watch(thread, PATIENCE))
    r.read(1)
    thread = Thread.new { Kgio.poll({ r => Kgio::POLLIN }) }
    Thread.pass until thread.stop?
    thread.kill
    assert_nil watch(thread, PATIENCE)
  end

  def test_polling_goes_on_after_a_signal
    r, = keep(*IO.pipe)
    seen = 0
    old = trap(:USR2) { seen += 1 }
    started = now
    thread = Thread.new { 3.times { sleep(0.01) && Process.kill(:USR2, $$) } }
    assert_nil Kgio.poll({ r => Kgio::POLLIN }, 100)
    assert_operator now - started, :>=, 0.1
    thread.join
    assert_operator seen, :>=, 1
    trap(:USR2) { r.close unless r.closed? }
    thread = Thread.new { sleep(0.01) && Process.kill(:USR2, $$) }
    assert_equal({ r => Kgio::POLLNVAL }, Kgio.poll({ r => Kgio::POLLIN }, 10_000))
    thread.join
  ensure
    trap(:USR2, old || "DEFAULT")
  end

  # --- Processes.

  def test_fork
    assert_child "[\"child\", \"parent\", 0]\n", <<~'RUBY'
      require "eagain/kgio"
      s = Kgio::TCPServer.new("127.0.0.1", 0)
      r, w = Kgio::Pipe.new
      r.kgio_tryread(5)
      pid = fork do
        c = s.kgio_accept
        c.kgio_write("child")
        c.close
        w.kgio_write("done")
        exit!(0)
      end
      c = Kgio::TCPSocket.new("127.0.0.1", s.addr[1])
      first = c.kgio_read(10)
      raise "?" unless r.kgio_read(10) == "done"
      d = Kgio::TCPSocket.new("127.0.0.1", s.addr[1])
      s.kgio_accept.kgio_write("parent")
      Process.wait(pid)
      p [first, d.kgio_read(10), $?.exitstatus]
    RUBY
  end
end
