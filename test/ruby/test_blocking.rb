# frozen_string_literal: true

require_relative "helper"
require_relative "opened"
require_relative "tiny_scheduler"
require_relative "tls"

# The blocking twins of the try calls: with no scheduler, with ours and with a foreign one.
class BlockingTest < EagainTest
  extend Everywhere
  include Opened

  def assert_timeout(written = 0, at_least: 0)
    start = now
    error = assert_raises(Eagain::TimeoutError) { yield }
    assert_operator now - start, :>=, at_least
    assert_equal written, error.written if written
    error
  end

  # --- read, readv, peek

  everywhere :read_gives_what_is_there do
    r, w = pipe
    w << "abc"
    assert_equal "abc", Eagain.read(r, 10)
    w << "abc"
    assert_equal "ab", Eagain.read(r, 2)
    assert_equal "c", Eagain.read(r, 2)
  end

  everywhere :read_waits_for_the_first_byte do
    r, w = pipe
    soon { w << "late" }
    assert_equal "late", Eagain.read(r, 10)
    soon { w.close }
    assert_nil Eagain.read(r, 10)
    assert_nil Eagain.read(r, 10)
  end

  everywhere :read_into_a_buffer do
    r, w = pipe
    buffer = +"before"
    soon { w << "late" }
    assert_same buffer, Eagain.read(r, 10, buffer)
    assert_equal "late", buffer
    assert_timeout { Eagain.read(r, 10, buffer, timeout: 0.001) }
    w.close
    assert_nil Eagain.read(r, 10, buffer)
    assert_equal "", buffer
  end

  everywhere :read_gives_out_first_what_was_read_ahead do
    r, w = pipe
    w << "one\ntwo\n"
    assert_equal "one\n", r.gets
    assert_equal "two\n", Eagain.read(r, 100, timeout: 0)
  end

  everywhere :readv_waits do
    r, w = pipe
    soon { w << "abcde" }
    assert_equal %w[ab cde], Eagain.readv(r, [2, 10])
    assert_timeout { Eagain.readv(r, [2, 10], timeout: 0.001) }
    w.close
    assert_nil Eagain.readv(r, [2, 10])
  end

  everywhere :peek_leaves_what_it_returns do
    a, b = pair
    soon { b << "abc" }
    assert_equal "ab", Eagain.peek(a, 2)
    assert_equal "abc", Eagain.peek(a, 10)
    assert_equal "abc", Eagain.read(a, 10)
    assert_timeout { Eagain.peek(a, 1, timeout: 0.001) }
  end

  # What is not in memory has to come from the disk, which no event tells of.
  everywhere :read_of_a_file do
    bytes = Random.new(1).bytes(300_000)
    file = keep(Tempfile.new("eagain", File.join(ROOT, "build"), binmode: true))
    file.write(bytes)
    file.fsync
    file.rewind
    file.advise(:dontneed)
    assert_bytes bytes.byteslice(0, 10), Eagain.peek(file, 10) unless place == :tiny
    file.advise(:dontneed)
    read = +"".b
    while (part = Eagain.read(file, 50_000))
      read << part
    end
    assert_bytes bytes, read
  ensure
    file&.unlink
  end

  # A would-block of a file, which counts as ready all the same.
  everywhere :a_page_is_fetched_that_is_not_there do
    file = keep(File.open(__FILE__))
    answers = [:wait_readable, :wait_readable, :wait_readable, "x"]
    singleton = Eagain.singleton_class
    original = Eagain.method(:trypeek)
    silently { singleton.define_method(:trypeek) { |*| answers.shift } }
    assert_equal "x", Eagain.peek(file, 1)
    assert_equal 0, file.pos
    assert_empty answers
  ensure
    silently { singleton.define_method(:trypeek, original) }
  end

  def silently
    verbose = $VERBOSE
    $VERBOSE = nil
    yield
  ensure
    $VERBOSE = verbose
  end

  # --- write

  everywhere :write_in_full do
    r, w = pipe
    bytes = Random.new(2).bytes(1_000_000)
    reader = beside { r.read }
    assert_equal 1_000_000, Eagain.write(w, bytes)
    w.close
    await("reader") { place == :thread ? !reader.alive? : reader.done? }
    assert_bytes bytes, reader.value
  end

  everywhere :write_of_several_strings do
    r, w = pipe
    random = Random.new(3)
    strings = Array.new(3000) { |i| random.bytes(i % 7 * 100) }
    reader = beside { r.read }
    copies = strings.map(&:dup)
    assert_equal strings.sum(&:bytesize), Eagain.write(w, *strings)
    assert_equal copies, strings
    w.close
    await("reader") { place == :thread ? !reader.alive? : reader.done? }
    assert_bytes strings.join, reader.value
  end

  everywhere :write_of_anything do
    r, w = pipe
    assert_equal 13, Eagain.write(w, 12, :ab, nil, 3.5, [], "äö")
    assert_equal "12ab3.5[]äö".b, drain(r)
    assert_equal 2, Eagain.write(w, 42)
    assert_equal 0, Eagain.write(w)
    assert_equal 0, Eagain.write(w, "")
    assert_equal 0, Eagain.write(w, "", "")
    assert_equal "42", drain(r)
  end

  everywhere :write_that_times_out_says_how_much_was_written do
    [["x" * 1_000_000], ["x" * 300_000, "y" * 700_000], Array.new(2000) { "z" * 500 }].each do |strings|
      r, w = pipe
      error = assert_timeout(nil, at_least: 0.03) { Eagain.write(w, *strings, timeout: 0.03) }
      assert_equal strings.join.byteslice(0, error.written), drain(r)
      assert_operator error.written, :>, 0
      fill(w)
      assert_timeout(0) { Eagain.write(w, *strings, timeout: 0) }
    end
  end

  # What others do to the strings during the wait is not written, whether the wait is the first thing or not.
  # Others run when a fiber has gone on for long without a wait: before a write, or in the middle of it.
  def test_write_writes_what_the_strings_were_whoever_runs
    changed = 0
    Eagain.run do
      a, b = keep(*UNIXSocket.pair)
      got = +""
      reader = Eagain.spawn { while (part = Eagain.read(b, 65_536)) do got << part end }
      [["b"], ["b", "b"], ["a" * 300_000, "b"]].each do |kind|
        [{}, { timeout: 30 }].each do |options|
          300.times do
            strings = kind.map(&:dup)
            Eagain.spawn { strings.each { |string| string.replace("X" * string.bytesize) } && changed += 1 }
            stop = Process.clock_gettime(Process::CLOCK_MONOTONIC) + 0.0001
            nil while Process.clock_gettime(Process::CLOCK_MONOTONIC) < stop
            Eagain.write(a, *strings, **options)
          end
        end
      end
      a.close
      reader.value
      assert_equal 0, got.count("X")
    end
    assert_operator changed, :>, 0
  end

  everywhere :write_takes_the_strings_as_they_are do
    [[1, true], [3, true], [1, false], [3, false]].each do |count, full|
      r, w = pipe
      fill(w) if full
      strings = Array.new(count) { +"a" * 100_000 }
      soon do
        strings.each { |string| string.replace("b" * 10) }
        read = +""
        read << r.readpartial(1 << 16) until read.count("a") == 100_000 * count
        assert_equal 0, read.count("b")
      end
      assert_equal 100_000 * count, Eagain.write(w, *strings)
    end
  end

  everywhere :write_flushes_what_ruby_has_buffered do
    r, w = pipe
    w.sync = false
    w.write("before ")
    assert_equal 5, Eagain.write(w, "after")
    assert_equal "before after", drain(r)
  end

  everywhere :a_frozen_string_and_a_subclass do
    r, w = pipe
    assert_equal 3, Eagain.write(w, "abc")
    assert_equal 3, Eagain.write(w, Class.new(String).new("def"))
    assert_equal "abcdef", drain(r)
  end

  everywhere :write_to_a_popen do
    cat = keep(IO.popen(%w[cat], "r+"))
    bytes = "abc" * 100_000
    beside do
      Eagain.write(cat, bytes)
      cat.close_write
    end
    read = +""
    while (part = Eagain.read(cat, 100_000))
      read << part
    end
    assert_bytes bytes, read
  end

  # --- sockets

  everywhere :recv_and_sendto do
    a, b = pair
    soon { assert_equal 3, Eagain.sendto(b, "abc") }
    assert_equal "ab", Eagain.recv(a, 2, Socket::MSG_PEEK)
    buffer = +""
    assert_same buffer, Eagain.recv(a, 10, 0, buffer)
    assert_equal "abc", buffer
    assert_timeout { Eagain.recv(a, 1, timeout: 0.001) }
    b.close
    assert_nil Eagain.recv(a, 1)
  end

  everywhere :datagrams_and_their_senders do
    a = keep(UDPSocket.new)
    b = keep(UDPSocket.new)
    [a, b].each { |socket| socket.bind("127.0.0.1", 0) }
    address = Addrinfo.udp("127.0.0.1", a.local_address.ip_port)
    soon do
      assert_equal 3, Eagain.sendto(b, "abc", 0, address)
      assert_equal 0, Eagain.sendto(b, "", 0, address.to_sockaddr)
    end
    data, sender = Eagain.recvfrom(a, 100)
    assert_equal ["abc", b.local_address.ip_port], [data, sender[1]]
    assert_equal "", Eagain.recv(a, 100)
    assert_timeout { Eagain.recvfrom(a, 1, timeout: 0.001) }
  end

  everywhere :messages_wait_too do
    a, b = pair(:SEQPACKET)
    soon { Eagain.sendmsg(b, %w[ab cd]) }
    assert_equal "abcd", Eagain.recvmsg(a)[0]
    sent = 0
    timeout = assert_raises(Eagain::TimeoutError) { loop { sent += Eagain.sendmsg(b, "m" * 1000, timeout: 0.01) } }
    assert_equal 0, timeout.written
    soon { nil while a.recv_nonblock(1000, exception: false).is_a?(String) }
    assert_equal 5, Eagain.sendmsg(b, "after")
    assert_timeout { Eagain.recvmsg(b, timeout: 0.001) }
  end

  everywhere :ios_are_passed do
    a, b = pair
    r, w = pipe
    soon { Eagain.sendmsg(b, "here", 0, nil, w) }
    message = Eagain.recvmsg(a, 100, 0, 100, scm_rights: true)
    passed = keep(*message[3].unix_rights)
    passed.write("through")
    passed.close
    assert_equal "through", drain(r)
  end

  everywhere :sendto_a_full_socket do
    a, b = pair
    fill(a)
    assert_timeout { Eagain.sendto(a, "x" * 10, timeout: 0.001) }
    soon { drain(b) }
    assert_equal 10, Eagain.sendto(a, "x" * 10)
  end

  # --- accept and connect

  everywhere :accept_waits_for_a_connection do
    server = keep(TCPServer.new("127.0.0.1", 0))
    assert_timeout(at_least: 0.01) { Eagain.accept(server, timeout: 0.01) }
    soon { keep(Socket.tcp("127.0.0.1", server.local_address.ip_port)) }
    socket = keep(Eagain.accept(server))
    assert_instance_of TCPSocket, socket
    assert_predicate socket, :close_on_exec?
    klass = Class.new(TCPSocket)
    soon { keep(Socket.tcp("127.0.0.1", server.local_address.ip_port)) }
    assert_instance_of klass, keep(Eagain.accept(server, class: klass, timeout: 10))
    assert_raises(ArgumentError) { Eagain.accept(server, klass: 1) }
    assert_raises(ArgumentError) { Eagain.accept(server, timeout: -1) }
    assert_raises(ArgumentError) { Eagain.accept }
    assert_raises(TypeError) { Eagain.accept(1) }
  end

  everywhere :connect_waits_for_the_outcome do
    server = keep(TCPServer.new("127.0.0.1", 0))
    socket = keep(Socket.new(:INET, :STREAM))
    assert_equal 0, Eagain.connect(socket, server.local_address, timeout: 10)
    Eagain.write(socket, "hello")
    assert_equal "hello", Eagain.read(keep(Eagain.accept(server)), 10)

    address = server.local_address
    server.close
    expected = assert_raises(Errno::ECONNREFUSED) { keep(Socket.new(:INET, :STREAM)).connect(address) }
    error = assert_raises(Errno::ECONNREFUSED) { Eagain.connect(keep(Socket.new(:INET, :STREAM)), address) }
    assert_equal expected.message, error.message
  end

  # The queue of the listener is full: the kernel drops what comes, and the client waits.
  everywhere :connect_times_out do
    server = keep(Socket.new(:INET, :STREAM))
    server.bind(Addrinfo.tcp("127.0.0.1", 0))
    server.listen(0)
    sockets = Array.new(4) { keep(Socket.new(:INET, :STREAM)) }
    assert_timeout(nil, at_least: 0.02) do
      sockets.each { |socket| Eagain.connect(socket, server.local_address, timeout: 0.02) }
    end
  end

  everywhere :connect_to_a_unix_server_whose_queue_is_full do
    Dir.mktmpdir do |folder|
      server = keep(UNIXServer.new(File.join(folder, "socket")))
      server.listen(0)
      address = server.local_address
      connect = ->(timeout) { Eagain.connect(keep(Socket.new(:UNIX, :STREAM)), address, timeout: timeout) }
      assert_timeout(nil, at_least: 0.02) { 10.times { connect.call(0.02) } }
      assert_timeout { connect.call(0) }
      soon { 2.times { keep(server.accept) } }
      assert_equal 0, connect.call(nil)
    end
  end

  # --- sendfile and splice

  everywhere :sendfile_in_full do
    a, b = pair
    bytes = Random.new(4).bytes(2_000_000)
    Tempfile.create("eagain", binmode: true) do |file|
      file.write(bytes)
      file.flush
      reader = beside { b.read }
      file.rewind
      assert_equal 1_500_000, Eagain.sendfile(a, file, 1_500_000)
      assert_equal 500_000, Eagain.sendfile(a, file, 1_500_000)
      assert_equal 0, Eagain.sendfile(a, file, 10)
      assert_equal 1_999_999, Eagain.sendfile(a, file, 1 << 40, 1)
      assert_equal 2_000_000, file.pos
      assert_equal 0, Eagain.sendfile(a, file, 0)
      a.close
      await("reader") { place == :thread ? !reader.alive? : reader.done? }
      assert_bytes bytes + bytes.byteslice(1..), reader.value
    end
  end

  everywhere :sendfile_that_times_out do
    a, b = pair
    File.open(RbConfig.ruby, "rb") do |file|
      error = assert_timeout(nil, at_least: 0.01) { Eagain.sendfile(a, keep(Tempfile.new).tap { |f| f.write("x" * 3_000_000) }, 3_000_000, 0, timeout: 0.01) }
      assert_equal error.written, drain(b).bytesize
      assert_raises(ArgumentError) { Eagain.sendfile(a, file, 1, timeout: -1) }
      assert_raises(TypeError) { Eagain.sendfile(a, file, nil) }
      assert_raises(ArgumentError) { Eagain.sendfile(a, file, -1) }
    end
  end

  everywhere :splice_waits_for_both_ends do
    r, w = pipe
    a, b = pair
    soon { w << "abc" }
    assert_equal 3, Eagain.splice(r, a, 100)
    assert_equal "abc", drain(b)
    assert_timeout { Eagain.splice(r, a, 100, timeout: 0.001) }
    fill(a)
    w << "def"
    assert_timeout { Eagain.splice(r, a, 100, timeout: 0.001) }
    soon { drain(b) }
    assert_equal 3, Eagain.splice(r, a, 100)
    w.close
    assert_nil Eagain.splice(r, a, 100)
  end

  # --- timeouts

  READS = {
    read: [10], readv: [[10]], peek: [10], recv: [10], recvfrom: [10], recvmsg: [],
  }.freeze

  everywhere :timeouts_of_all_that_read do
    a, = pair
    READS.each do |name, arguments|
      error = assert_timeout(at_least: 0.005) { Eagain.public_send(name, a, *arguments, timeout: 0.005) }
      assert_equal "Blocking operation timed out!", error.message
      assert_timeout { Eagain.public_send(name, a, *arguments, timeout: 0) }
      assert_timeout { Eagain.public_send(name, a, *arguments, timeout: Rational(1, 1000)) }
    end
  end

  everywhere :bad_timeouts_are_refused_even_when_data_is_there do
    a, b = pair
    b << "data"
    READS.each do |name, arguments|
      assert_raises(ArgumentError) { Eagain.public_send(name, a, *arguments, timeout: -1) }
      assert_raises(TypeError) { Eagain.public_send(name, a, *arguments, timeout: "1") }
      assert_raises(RangeError) { Eagain.public_send(name, a, *arguments, timeout: Float::NAN) }
    end
    assert_raises(ArgumentError) { Eagain.write(a, "x", timeout: -0.1) }
    assert_equal "data", drain(a)
  end

  everywhere :what_is_there_is_read_without_time do
    a, b = pair
    b << "abcdef"
    assert_equal "abc", Eagain.read(a, 3, timeout: 0)
    assert_equal "def", Eagain.read(a, 3, timeout: 1e-12)
    assert_equal 1, Eagain.write(a, "x", timeout: 0)
  end

  everywhere :infinite_timeouts do
    [Float::INFINITY, 2**70, 1e40].each do |timeout|
      r, w = pipe
      soon { w << "x" }
      assert_equal "x", Eagain.read(r, 1, timeout: timeout)
    end
  end

  # For the whole call: bytes that trickle out do not make it longer.
  everywhere :the_time_is_that_of_the_whole_call do
    r, w = pipe
    stop = false
    beside do
      until stop
        sleep 0.005
        r.read_nonblock(5000, exception: false)
      end
    end
    start = now
    assert_raises(Eagain::TimeoutError) { Eagain.write(w, "x" * 100_000_000, timeout: 0.1) }
    assert_operator now - start, :<, 3
    stop = true
  end

  def test_the_exception
    only_ours
    expected = IO.const_defined?(:TimeoutError) ? IO::TimeoutError : Timeout::Error
    assert_equal expected, Eagain::TimeoutError.superclass
    assert_equal 0, Eagain::TimeoutError.new.written
    assert_equal "said", Eagain::TimeoutError.new("said").message
    error = Marshal.load(Marshal.dump(assert_raises(expected) { Eagain.read(pipe[0], 1, timeout: 0) })) # rubocop:disable Security/MarshalLoad
    assert_equal [Eagain::TimeoutError, 0], [error.class, error.written]
    assert_includes assert_raises(expected) { Eagain.read(pipe[0], 1, timeout: 0) }.backtrace.join, __method__.to_s
  end

  if IO.method_defined?(:timeout) # since Ruby 3.2
    def test_the_message_is_that_of_ruby
      only_ours
      r, = pipe
      r.timeout = 0.001
      theirs = assert_raises(IO::TimeoutError) { r.read(1) }
      assert_equal theirs.message, assert_raises(IO::TimeoutError) { Eagain.read(r, 1) }.message
    end

    everywhere :io_timeout_is_for_each_wait do
      r, w = pipe
      r.timeout = w.timeout = 0.02
      error = assert_raises(IO::TimeoutError) { Eagain.read(r, 1) }
      assert_equal "Blocking operation timed out!", error.message
      # Each wait is short, all of them are not.
      read = 0
      beside do
        while read < 1_000_000
          sleep 0.002
          part = r.read_nonblock(65_536, exception: false)
          read += part.bytesize if part.is_a?(String)
        end
      end
      assert_equal 1_000_000, Eagain.write(w, "x" * 1_000_000)
      await("reader") { read == 1_000_000 }
      fill(w)
      assert_timeout(0, at_least: 0.02) { Eagain.write(w, "x") }
      assert_timeout(0, at_least: 0.1) { Eagain.write(w, "x", timeout: 0.1) }
    end
  end

  # --- trouble in mid-wait

  everywhere :close_in_mid_wait, Everywhere::NOTICES_A_CLOSE do
    a, = pair
    soon { a.close }
    assert_match(/closed/, assert_raises(IOError) { Eagain.recv(a, 1) }.message)
    c, d = pair
    fill(d)
    soon { d.close }
    assert_match(/closed/, assert_raises(IOError) { Eagain.write(d, "x") }.message)
    assert c
  end

  everywhere :a_peer_that_goes_away do
    a, b = pair
    fill(a)
    soon { b.close }
    assert_raises(Errno::EPIPE, Errno::ECONNRESET) { Eagain.write(a, "x" * 100) }
  end

  everywhere :misuse_is_as_of_the_try_call do
    r, w = pipe
    assert_raises(IOError) { Eagain.read(w, 1) }
    assert_raises(IOError) { Eagain.write(r, "x") }
    assert_raises(TypeError) { Eagain.read(1, 1) }
    assert_raises(TypeError) { Eagain.recv(r, 1) }
    assert_raises(ArgumentError) { Eagain.read(r, -1) }
    assert_raises(TypeError) { Eagain.read(r, nil) }
    assert_raises(ArgumentError) { Eagain.read(r) }
    assert_raises(ArgumentError) { Eagain.read(r, 1, tmeout: 1) }
    assert_raises(FrozenError) { Eagain.read(r, 1, "frozen") }
    r.close
    assert_equal "closed stream", assert_raises(IOError) { Eagain.read(r, 1) }.message
    w.close
    assert_equal "closed stream", assert_raises(IOError) { Eagain.write(w, "x") }.message
    assert_equal "closed stream", assert_raises(IOError) { Eagain.write(w) }.message
  end

  def waiting_thread
    thread = Thread.new { Thread.current.report_on_exception = false; yield } # rubocop:disable Style/Semicolon
    await("sleep") { thread.status == "sleep" }
    thread
  end

  def test_thread_raise_and_kill
    only_ours
    r, w = pipe
    thread = waiting_thread { Eagain.read(r, 1) }
    thread.raise(ArgumentError, "now")
    assert_raises(ArgumentError) { watch(thread, 10) }
    thread = waiting_thread { Eagain.read(r, 1) }
    thread.kill
    watch(thread, 10)
    w << "x"
    assert_equal "x", Eagain.read(r, 1)
  end

  def test_an_exception_while_others_run_loses_nothing_that_was_read
    only_ours
    Eagain.run do
      r, w = pipe
      w << "x" * 1000
      read = 0
      task = Eagain.spawn { loop { read += Eagain.read(r, 1).bytesize } }
      task.report_on_exception = false
      sleep 0
      task.cancel
      assert_raises(Eagain::Cancelled) { task.value }
      assert_equal 1000, read + drain(r).bytesize
    end
  end

  # A fiber whose I/O always succeeds lets the others run all the same.
  def test_busy_fibers_starve_nobody
    only_ours
    Eagain.run do
      a, b = pair
      woken = false
      Eagain.spawn { sleep 0.001; woken = true } # rubocop:disable Style/Semicolon
      limit = now + 10
      until woken || now > limit
        Eagain.write(a, "x")
        Eagain.read(b, 1)
      end
      assert woken
    end
  end

  def test_a_signal_in_mid_wait
    only_ours
    assert_child("late\n", <<~'RUBY')
      r, w = IO.pipe
      trap(:USR1) { w << "late" }
      Thread.new { sleep 0.05; Process.kill(:USR1, $$) }
      puts Eagain.read(r, 10)
    RUBY
  end

  def test_a_forked_child
    only_ours
    assert_child("parent child\n", <<~'RUBY')
      r, w = IO.pipe
      r2, w2 = IO.pipe
      Eagain.run do
        waiting = Eagain.spawn { Eagain.read(r, 10) }
        sleep 0.001
        pid = fork do
          Thread.new { sleep 0.01; w2 << "go" }
          Eagain.read(r2, 10)
          w2 << "child"
          exit!(0)
        end
        Process.wait(pid)
        w << "parent"
        puts "#{waiting.value} #{Eagain.read(r2, 10)}"
      end
    RUBY
  end

  def test_in_a_ractor
    only_ours
    assert_child("late 5 Eagain::TimeoutError\n", <<~'RUBY')
      ractor = Ractor.new do
        r, w = IO.pipe
        Thread.new { sleep 0.01; w << "late" }
        late = Eagain.read(r, 10)
        written = Eagain.write(w, "12", "345")
        Eagain.read(r, 10)
        error = begin
          Eagain.read(r, 10, timeout: 0.01)
        rescue => e
          e.class
        end
        "#{late} #{written} #{error}"
      end
      puts(ractor.respond_to?(:value) ? ractor.value : ractor.take)
    RUBY
  end

  # --- TLS

  everywhere :tls do
    server, client = tls_pair
    reader = beside { client.read(400_000) }
    bytes = Random.new(5).bytes(400_000)
    assert_equal 400_000, Eagain.write(server, bytes.byteslice(0, 100), bytes.byteslice(100..))
    await("reader") { place == :thread ? !reader.alive? : reader.done? }
    assert_bytes bytes, reader.value

    soon { client.write("late") }
    assert_equal "late", Eagain.read(server, 100)
    soon { Eagain.write(client, "again") }
    buffer = +""
    assert_same buffer, Eagain.read(server, 100, buffer)
    assert_equal "again", buffer
    assert_timeout { Eagain.read(server, 1, timeout: 0.01) }
    error = assert_timeout(nil) { Eagain.write(server, "x" * 100_000_000, timeout: 0.05) }
    assert_operator error.written, :>, 0
    client.close
  end

  def tls_pair
    a, b = tcp_pair
    keep(a, b)
    server = OpenSSL::SSL::SSLSocket.new(a, TLS.server_context)
    client = OpenSSL::SSL::SSLSocket.new(b)
    accepting = beside { server.accept }
    client.connect
    place == :thread ? accepting.join : await("handshake") { accepting.done? }
    [server, client]
  end

  # Whatever is passed, it is an answer or an exception, and the sockets still work.
  def test_random_arguments
    only_ours
    random = Random.new(seed)
    a, b = pair
    r, w = pipe
    names = %i[read readv peek write recv recvfrom sendto recvmsg sendmsg accept connect sendfile splice
               wait wait_readable wait_writable]
    values = [a, b, r, w, nil, true, 0, 1, -1, 10, 2**40, 2**70, 1.5, Float::NAN, "x", +"", :x, [], [1, 2], ["a", "b"], {},
              Object.new, Class]
    600.times do
      arguments = Array.new(random.rand(0..5)) { values.sample(random: random) }
      options = random.rand(2).zero? ? {} : { timeout: [0, 0.0, -1, "1", 1e-4].sample(random: random) }
      name = names.sample(random: random)
      # Without a time, those that could wait do.
      options = { timeout: 0 } if options.empty? && !name.start_with?("wait")
      arguments[name == :wait ? 2 : 1] = 0 if name.start_with?("wait")
      begin
        result = Eagain.public_send(name, *arguments, **options)
        keep(result) if result.is_a?(IO) && !@open.include?(result)
      rescue NoMemoryError
        next # there is no such room, as Ruby's own methods say
      rescue StandardError => e
        # As Ruby's own sendmsg of a control that is none.
        refute_kind_of NoMethodError, e, "#{name} #{arguments.inspect} #{options}" unless name == :sendmsg
      end
      [a, b, r].each { |io| drain(io) }
    end
    Eagain.write(a, "still")
    assert_equal "still", Eagain.read(b, 10)
  end

  # --- costs

  def test_what_is_there_costs_one_call
    only_ours
    trace = strace(<<~'RUBY')
      require "socket"
      a, b = UNIXSocket.pair
      r, w = IO.pipe
      calls = proc do
        Eagain.write(a, "x")
        Eagain.read(b, 1)
        Eagain.write(w, "x", "y")
        Eagain.peek(b, 1, timeout: 0) rescue 0
        Eagain.read(r, 2)
        Eagain.sendto(a, "z")
        Eagain.recv(b, 1, timeout: 1)
      end
      calls.call
      GC.disable
      mark
      100.times(&calls)
      mark
    RUBY
    assert_equal 700, trace.work.values.sum, trace.to_s
  end

  def test_under_a_scheduler_what_is_there_costs_one_call
    only_ours
    trace = strace(<<~'RUBY')
      require "socket"
      Fiber.set_scheduler(Eagain::Scheduler.new)
      Fiber.schedule do
        a, b = UNIXSocket.pair
        r, w = IO.pipe
        calls = proc { Eagain.write(a, "x"); Eagain.read(b, 1); Eagain.write(w, "x"); Eagain.read(r, 1) }
        calls.call
        sleep 0.001 # the first turn of the loop sets up what io_uring needs
        mark
        100.times(&calls)
        mark
      end
      Fiber.set_scheduler(nil)
    RUBY
    assert_equal 400, trace.work.values.sum - trace.waits, trace.to_s
    assert_operator trace.waits, :<=, trace.ms + 1, trace.to_s # for the sake of fairness
  end

  # A round trip of two fibers: each read is tried twice, and nothing is registered.
  def test_waits_register_nothing
    only_ours
    trace = strace(<<~'RUBY')
      require "socket"
      Fiber.set_scheduler(Eagain::Scheduler.new)
      Fiber.schedule do
        a, b = UNIXSocket.pair
        Fiber.schedule { while (bytes = Eagain.read(b, 10)) do Eagain.write(b, bytes) end }
        round = proc { Eagain.write(a, "x"); Eagain.read(a, 1) }
        5.times(&round)
        mark
        50.times(&round)
        mark
        a.close
      end
      Fiber.set_scheduler(nil)
    RUBY
    assert_equal "", trace.registering
    assert_operator trace[:recvfrom], :<=, 205, trace.to_s
  end

  def test_there_are_no_other_keywords
    a, = pair
    given = { timeout: 1, other: 2 }
    [->(**all) { Eagain.read(a, 1, **all) }, ->(**all) { Eagain.write(a, "x", **all) },
     ->(**all) { Eagain.recv(a, 1, **all) }, ->(**all) { Eagain.sendto(a, "x", **all) }].each do |call|
      [given, { other: 2 }].each do |options|
        error = assert_raises(ArgumentError) { call.call(**options) }
        assert_equal "unknown keyword: :other", error.message
      end
    end
    assert_equal({ timeout: 1, other: 2 }, given)
  end

  # Keywords come to a method in C as a Hash.
  def test_a_hash_is_made_for_a_timeout_alone
    only_ours
    a, b = pair
    calls = lambda do
      Eagain.write(a, "x")
      Eagain.read(b, 1)
      Eagain.sendto(a, "x")
      Eagain.recv(b, 1)
    end
    timed = lambda do
      Eagain.write(a, "x", timeout: 1)
      Eagain.read(b, 1, timeout: 1)
    end
    assert_operator hashes(&calls), :<, 20
    assert_operator hashes(&timed), :<, 220
  end

  def hashes
    yield
    before = GC.disable && 0 || ObjectSpace.count_objects[:T_HASH]
    100.times { yield }
    ObjectSpace.count_objects[:T_HASH] - before
  ensure
    GC.enable
  end

  def test_gc_stress
    only_ours
    assert_child("ok\n", <<~'RUBY', timeout: 120)
      require "socket"
      a, b = UNIXSocket.pair
      GC.stress = true
      Eagain.write(a, "ab", "cd")
      Eagain.read(b, 2)
      Eagain.recv(b, 2)
      begin
        Eagain.write(a, "x" * 1_000_000, timeout: 0.01)
      rescue Eagain::TimeoutError
        Eagain.read(b, 1)
      end
      GC.stress = false
      GC.compact if GC.respond_to?(:compact)
      puts "ok"
    RUBY
  end
end
