# frozen_string_literal: true

require_relative "helper"
require_relative "opened"
require_relative "tiny_scheduler"
require_relative "tls"
require "stringio"

# Eagain::Stream writes and closes, on all that it can be made for, and with several tasks at once.
class StreamWriteTest < EagainTest
  extend Everywhere
  include Opened

  def stream(io, **options) = Eagain::Stream.new(io, **options)

  # A stream, and where what it writes arrives.
  def sink(**options)
    a, b = pair
    [stream(a, **options), b]
  end

  # --- writing

  everywhere :what_is_written_goes_out_together do
    output, far = sink(buffer_size: 10)
    assert_equal 3, output.write("abc")
    assert_equal 4, output.write("de", :fg)
    assert_equal 7, output.unwritten
    assert_equal "", drain(far)
    assert_equal 3, output.write("hij")
    assert_equal "", drain(far)
    assert_equal 1, output.write("k")
    assert_equal "abcdefghijk", drain(far)
    assert_equal 0, output.unwritten
    assert_equal 3, output.write("lmn")
    assert_same output, output.flush
    assert_equal "lmn", drain(far)
    assert_same output, output.flush
    assert_equal 0, output.write
    assert_equal 0, output.write("", "")
    assert_equal 11, output.write("x" * 11)
    assert_equal "x" * 11, drain(far)
  end

  everywhere :as_the_methods_of_io do
    output, far = sink
    assert_same output, output << "a" << 1 << nil
    assert_nil output.puts("line", ["of", ["lists"]], "end\n", nil)
    assert_nil output.puts
    assert_nil output.print("p", 2)
    assert_nil output.printf("%03d", 7)
    assert_equal 3, output.write(1, nil, "äö"[0])
    output.flush
    assert_equal "a1line\nof\nlists\nend\n\n\np20071ä".b, drain(far)
    assert_equal 6, output.write([:a, 1].first, "12345")
    assert_raises(ArgumentError) { output.write("a", time: 1) }
  end

  everywhere :sync_writes_at_once do
    output, far = sink(sync: true)
    assert_equal true, output.sync
    output.write("a")
    assert_equal "a", drain(far)
    output.puts("b")
    assert_equal "b\n", drain(far)
    output.sync = false
    output.write("c")
    assert_equal "", drain(far)
    output.sync = true
    output.write("d", "e")
    assert_equal "cde", drain(far)
    output.write("")
    assert_equal "", drain(far)
  end

  everywhere :large_writes_arrive_whole do
    [true, false].each do |sync|
      output, far = sink(sync: sync, buffer_size: 1000)
      bytes = Random.bytes(1_000_000)
      pieces = [1, 999, 1, 1000, 5000, 400_000, 100, 300_000, 7]
      reader = beside { far.read }
      at = 0
      pieces.each do |length|
        assert_equal length, output.write(bytes.byteslice(at, length))
        at += length
      end
      rest = bytes.byteslice(at..)
      assert_equal rest.bytesize, output.write(*Array.new(20) { |i| rest.byteslice(i * 20_000, 20_000) || "" })
      output.close
      assert_bytes bytes.byteslice(0, at + 20 * 20_000), value_of(reader)
    end
  end

  def value_of(job)
    job.is_a?(Thread) ? job.value : await("a task") { job.done? } || job.value
  end

  # What others do to a string in the wait is not written.
  everywhere :strings_are_written_as_they_are do
    output, far = sink
    string = "a" * 1_000_000
    soon { string.replace("b") }
    reader = beside { sleep 0.02 and far.read }
    output.write(string)
    output.close
    assert_equal 1_000_000, value_of(reader).count("a")
  end

  everywhere :timeouts_keep_what_was_not_written do
    output, far = sink
    bytes = Random.bytes(1_000_000)
    start = now
    error = assert_raises(Eagain::TimeoutError) { output.write(bytes, timeout: 0.01) }
    assert_operator now - start, :>=, 0.01
    assert_operator output.unwritten, :>, 100_000
    assert_equal 0, error.written # in the wait
    error = assert_raises(Eagain::TimeoutError) { output.flush(timeout: 0) }
    assert_equal 0, error.written
    before = output.unwritten
    got = drain(far)
    error = assert_raises(Eagain::TimeoutError) { output.flush(timeout: 0.001) }
    assert_equal before - output.unwritten, error.written
    assert_operator error.written, :>, 0
    reader = beside { far.read }
    output.close(timeout: 30)
    assert_bytes bytes, got + value_of(reader)
  end

  # A request goes out before the wait for its answer.
  everywhere :reading_writes_first do
    input, far = sink
    beside { far.write(far.readpartial(100).upcase) }
    input.write("hello\n")
    assert_equal "HELLO\n", input.gets
    beside { far.write(far.readpartial(100).upcase).tap { far.close } }
    input.write("again")
    assert_equal "AGAIN", input.read
  end

  # Both sides send more than there is room for, and neither reads before: the wait to read writes, too.
  everywhere :reading_while_there_is_no_room_to_write do
    near, far = sink
    bytes = Random.bytes(600_000)
    assert_raises(Eagain::TimeoutError) { near.write(bytes, timeout: 0) }
    assert_operator near.unwritten, :>, 0
    other = beside do
      peer = stream(far)
      assert_raises(Eagain::TimeoutError) { peer.write(bytes, timeout: 0) }
      peer.read_exact(bytes.bytesize).tap { peer.flush }
    end
    assert_bytes bytes, near.read_exact(bytes.bytesize)
    assert_bytes bytes, value_of(other)
  end

  everywhere :errors_of_writes do
    output, far = sink
    far.close
    output.write("abc")
    assert_raises(Errno::EPIPE) { output.flush }
    assert_equal 3, output.unwritten
    assert_raises(Errno::EPIPE) { output.write("x" * 100_000) }
    assert_equal 3, output.unwritten
    assert_nil output.read(1) # who reads is not told
    assert_raises(Errno::EPIPE) { output.close }
    assert_predicate output, :closed?

    r, w = pipe
    assert_raises(IOError) { stream(r).write("x") }
    assert_raises(IOError) { stream(w).read(1) }
    assert_raises(IOError) { stream(w).gets }
  end

  # --- closing

  everywhere :close do
    output, far = sink
    output.write("last")
    refute_predicate output, :closed?
    assert_nil output.close
    assert_equal "last", far.read
    assert_predicate output, :closed?
    assert_predicate output.io, :closed?
    assert_nil output.close
    calls = [:gets, :read, :getbyte, :eof?, :peek, :flush, :readline, :close_write].map { |name| -> { output.public_send(name) } }
    calls += [-> { output.write("x") }, -> { output.read(1) }, -> { output.read(0) }, -> { output.readpartial(0) },
              -> { output.write }, -> { output.gets(0) }, -> { output.tryread(1) }, -> { output.trywrite("x") }, -> { output.puts }]
    calls.each { |call| assert_match(/closed/, assert_raises(IOError, &call).message) }

    other, = sink
    other.io.close
    assert_predicate other, :closed?
    assert_raises(IOError) { other.read(1) }
  end

  everywhere :close_in_mid_wait, Everywhere::NOTICES_A_CLOSE do
    [->(s) { s.gets }, ->(s) { s.read(10) }, ->(s) { s.read }, ->(s) { s.read_exact(100_000) }, ->(s) { s.peek(3) },
     ->(s) { s.readpartial(70_000) }].each do |call|
      input, far = sink
      far.write("a")
      input.peek
      soon { input.close }
      input.readpartial(1)
      assert_raises(IOError) { call.call(input) }
      far.close
    end
  end

  everywhere :close_while_another_writes, Everywhere::NOTICES_A_CLOSE do
    output, far = sink
    writer = beside { assert_raises(IOError) { output.write("x" * 1_000_000) } }
    await("the writer") { output.unwritten > 0 }
    assert_raises(Eagain::TimeoutError) { output.close(timeout: 0.01) }
    assert_predicate output, :closed?
    value_of(writer)
    assert_operator drain(far).bytesize, :>, 0
  end

  everywhere :close_write do
    output, far = sink
    beside { far.write(far.read.upcase).tap { far.close } }
    output.write("abc")
    assert_nil output.close_write
    assert_equal "ABC", output.read
    assert_raises(IOError) { output.write("x") }
    refute_predicate output, :closed?
    assert_raises(IOError) { stream(StringIO.new, buffer_size: 1).tap { |s| s.io.instance_eval { undef close_write } }.close_write }
  end

  everywhere :open_closes do
    a, b = pair
    assert_equal :value, (Eagain::Stream.open(a, buffer_size: 5) { |s| s.write("abc") && s.buffer_size == 5 && :value })
    assert_predicate a, :closed?
    assert_equal "abc", b.read
    r, w = pipe
    assert_raises(ZeroDivisionError) { Eagain::Stream.open(w) { |s| s.write("kept") && 1 / 0 } }
    assert_equal "kept", r.read
    assert_instance_of Eagain::Stream, Eagain::Stream.open(pair[0])
  end

  everywhere :options do
    a, = pair
    assert_equal 16_384, stream(a).buffer_size
    [{ buffer_size: 0 }, { buffer_size: -1 }, { limit: 0 }, { no_such: 1 }].each do |options|
      assert_raises(ArgumentError) { stream(a, **options) }
    end
    assert_raises(TypeError) { stream(a, buffer_size: nil) }
    assert_raises(ArgumentError) { Eagain::Stream.new }
    assert_raises(TypeError) { stream(Object.new) }
    assert_raises(IOError) { stream(pair[0].tap(&:close)) }
    blank = Eagain::Stream.allocate
    assert_predicate blank, :closed?
    [:gets, :read, :flush, :to_io].each { |name| assert_raises(IOError) { blank.public_send(name) } }
    assert_raises(IOError) { blank.write("x") }
    assert_nil blank.close
    assert_nil blank.io
    assert_raises(IOError) { stream(a).dup.gets }
    assert_same a, stream(a).to_io
  end

  # --- what it is made for

  everywhere :files do
    Tempfile.create("stream") do |file|
      Eagain::Stream.open(File.open(file.path, "w"), buffer_size: 100) { |s| 1000.times { |i| s.puts i } }
      assert_equal (0...1000).to_a, (Eagain::Stream.open(File.open(file.path)) { |s| s.each_line.map(&:to_i) })
      Eagain::Stream.open(File.open(file.path, "r+")) do |s|
        assert_equal "0\n", s.gets
        assert_equal 3890, s.read.bytesize + 2
      end
    end
    assert_equal "x" * 100, (Eagain::Stream.open(File.open("/dev/zero")) { |s| s.read(100).tr("\0", "x") })
    Eagain::Stream.open(File.open("/dev/null", "w")) { |s| assert_equal 100_000, s.write("x" * 100_000) }
  end

  everywhere :a_child do
    cat = stream(keep(IO.popen("cat", "r+")))
    bytes = Random.bytes(500_000)
    beside do
      cat.write(bytes)
      cat.close_write
    end
    assert_bytes bytes, cat.read
    cat = stream(keep(IO.popen("cat", "r+")))
    cat.puts("line")
    assert_equal "line\n", cat.gets
  end

  everywhere :tcp_and_a_terminal do
    server = keep(TCPServer.new("127.0.0.1", 0))
    client = stream(keep(Socket.tcp("127.0.0.1", server.local_address.ip_port)))
    peer = stream(keep(server.accept))
    client.puts("ping")
    client.flush
    assert_equal "ping\n", peer.gets
    require "pty"
    master, slave = keep(*PTY.open)
    stream(master).write("typed\n").then { |_| nil }
    Eagain::Stream.new(master, sync: true).write("typed\n")
    assert_equal "typed\n", stream(slave).gets
  end

  # #tryread and #trywrite are what it asks for: so a stream can be made for a stream.
  everywhere :a_stream_of_a_stream do
    a, b = pair
    inner = stream(a, buffer_size: 7)
    outer = stream(inner, buffer_size: 3)
    soon { b.write("one\ntwo\nrest") && b.close_write }
    assert_equal "one\n", outer.gets
    assert_equal "two\nrest", outer.read
    bytes = Random.bytes(500_000)
    reader = beside { b.read }
    outer.write(bytes)
    outer.close
    assert_bytes bytes, value_of(reader)
    assert_predicate a, :closed?
  end

  everywhere :the_try_calls_and_their_twins_take_a_stream do
    near, far = sink
    assert_equal :wait_readable, Eagain.tryread(near, 10)
    far.write("one\ntwo")
    assert_equal "one\n", near.gets
    assert_equal "tw", Eagain.tryread(near, 2)
    assert_equal "o", Eagain.read(near, 10)
    soon { far.write("late") }
    buffer = +""
    assert_same buffer, Eagain.read(near, 10, buffer)
    assert_equal "late", buffer
    near.write("first ")
    assert_equal 6, Eagain.write(near, "second")
    assert_equal "first second", drain(far)
    fill(near.to_io)
    near.write("buffered")
    assert_equal :wait_writable, Eagain.trywrite(near, "x")
    drain(far)
    assert_equal 1, Eagain.trywrite(near, "x")
    assert_equal "bufferedx", drain(far)
    far.close
    assert_nil Eagain.tryread(near, 10)
    assert_raises(ArgumentError) { near.tryread(-1) }
  end

  # Only readpartial and write, as somebody else's streams have.
  class Plain
    attr_reader :written

    def initialize(*parts)
      @parts = parts
      @written = +""
    end

    def readpartial(length) = @parts.empty? ? raise(EOFError) : @parts.shift.byteslice(0, length)
    def write(string) = @written << string
  end

  everywhere :what_has_readpartial_and_write do
    plain = Plain.new("one\ntw", "o\n", "rest")
    s = stream(plain, buffer_size: 20)
    assert_equal %W[one\n two\n], [s.gets, s.gets]
    assert_raises(EOFError) { s.read_exact(5) }
    assert_equal "rest", s.read
    assert_nil s.gets
    s.write("abc")
    assert_equal "", plain.written
    s.flush
    assert_equal "abc", plain.written
    s.write("x" * 100_000)
    assert_equal 100_003, plain.written.bytesize
    assert_raises(TypeError) { s.to_io }
    assert_equal 2, Eagain.trywrite(s, "yz")
    refute_predicate s, :closed?
    s.close
    assert_predicate s, :closed?
    assert_equal "text", stream(StringIO.new("text")).read
    assert_raises(TypeError) { stream(Plain.new(1).tap { |p| def p.readpartial(_) = 1 }).read }
  end

  # A reader in mid-call of such an object is not overtaken.
  def test_calls_that_wait_by_themselves_take_turns
    schedule do
      source = Class.new do
        def initialize = @n = 0
        def readpartial(_) = (n = @n += 1).then { |_| sleep 0 and "#{n}\n" }
        def write(string) = string.each_char { |char| sleep(0) && (@out ||= +"") << char }
        def out = @out
      end.new
      s = stream(source, buffer_size: 4)
      got = []
      readers = Array.new(3) { task { 5.times { got << s.gets } } }
      writers = %w[aaaa bbbb cccc].map { |text| task { 5.times { s.write(text) } } }
      await("all") { (readers + writers).all?(&:done?) }
      s.flush
      assert_equal (1..15).map { |n| "#{n}\n" }, got
      assert_equal [20] * 3, %w[a b c].map { |char| source.out.count(char) }
      assert_empty source.out.gsub(/aaaa|bbbb|cccc/, "")
    end
  end

  def tls_pair(far, near)
    server = OpenSSL::SSL::SSLSocket.new(far, TLS.server_context).tap { |ssl| ssl.sync_close = true }
    client = OpenSSL::SSL::SSLSocket.new(near, TLS.client_context).tap { |ssl| ssl.sync_close = true }
    accepted = beside { server.accept }
    client.connect
    value_of(accepted)
    [server, client]
  end

  everywhere :tls do
    server, client = tls_pair(*pair)
    near = stream(client, buffer_size: 100)
    far = stream(server, limit: 20)
    soon do
      near.puts("hello")
      near.flush
    end
    assert_equal "hello\n", far.gets
    far.write("answer\n")
    far.flush
    assert_equal "answer\n", near.readline
    assert_raises(Eagain::TimeoutError) { near.gets(timeout: 0.001) }
    near.write("x" * 50)
    near.flush
    assert_raises(Eagain::LimitError) { far.gets }
    assert_equal 50, far.read_exact(50).size
    bytes = Random.bytes(1_000_000)
    reader = beside { far.read_exact(bytes.bytesize) }
    assert_equal bytes.bytesize, near.write(bytes)
    near.flush
    assert_bytes bytes, value_of(reader)
    near.close
    assert_nil far.gets
    assert_predicate near, :closed?
  end

  # --- several at once

  def test_tasks_that_read_the_same_stream_share_its_lines
    [nil, 1].each do |size|
      schedule do
        a, b = pair
        input = stream(a, **{ buffer_size: size }.compact)
        got = []
        readers = Array.new(5) do
          task do
            while (line = input.gets)
              got << line
            end
          end
        end
        40.times do |i|
          b.write("line #{i}\nand ")
          b.write("#{i}\n")
          sleep 0.001 if (i % 10).zero?
        end
        b.close
        await("the readers") { readers.all?(&:done?) }
        assert_equal 80, got.size
        assert_equal 40, got.grep(/\Aline \d+\n\z/).size
      end
    end
  end

  # Bytes for several that come at once wake the first, and it the others.
  everywhere :nobody_is_forgotten do
    input, far = sink
    got = Queue.new
    readers = Array.new(3) { beside { got << input.gets(timeout: 30) } }
    sleep 0.01
    far.write("a\nb\nc\n")
    readers.each { |reader| value_of(reader) }
    assert_equal %W[a\n b\n c\n], Array.new(3) { got.pop }.sort
  end

  everywhere :who_waits_for_another_has_its_own_time do
    input, far = sink
    first = beside { input.gets(timeout: 30) }
    sleep 0.005
    start = now
    assert_raises(Eagain::TimeoutError) { input.gets(timeout: 0.01) }
    assert_operator now - start, :>=, 0.01
    far.write("line\n")
    assert_equal "line\n", value_of(first)
  end

  # Each write of each task is in one piece.
  everywhere :writes_do_not_mix do
    [true, false].each do |sync|
      output, far = sink(sync: sync, buffer_size: 5000)
      writers = %w[a b c d].map { |char| beside { 10.times { |i| output.write(char * 20_000, char * (i * 10), "\n") } } }
      reader = beside { far.read }
      writers.each { |writer| value_of(writer) }
      output.close
      lines = value_of(reader).lines(chomp: true)
      assert_equal 40, lines.size
      assert_empty(lines.reject { |line| line.squeeze.size == 1 })
    end
  end

  # One reads while the other writes, both more than there is room for.
  everywhere :both_directions do
    near, far = sink
    bytes = Random.bytes(2_000_000)
    peer = stream(far)
    jobs = [near, peer].flat_map do |s|
      [beside { (0...20).each { |i| s.write(bytes.byteslice(i * 100_000, 100_000)) } && s.flush }, beside { s.read_exact(bytes.bytesize) }]
    end
    results = jobs.map { |job| value_of(job) }
    assert_bytes bytes, results[1]
    assert_bytes bytes, results[3]
  end

  # --- costs

  def test_system_calls_of_writes
    only_ours
    trace = strace(<<~'RUBY')
      require "socket"
      require "eagain/io"
      Fiber.set_scheduler(Eagain::Scheduler.new)
      Fiber.schedule do
        a, b = UNIXSocket.pair
        output = Eagain::Stream.new(a)
        buffer = String.new(capacity: 65_536)
        work = proc do
          16.times { output.write("line of text\n") }
          output.flush
          b.tryread(65_536, buffer)
          output.write("head", "x" * 20_000, "tail")
          b.tryread(65_536, buffer)
        end
        work.call
        mark
        10.times(&work)
        mark
      end
      Fiber.set_scheduler(nil)
    RUBY
    assert_equal({ "sendto" => 10, "sendmsg" => 10, "recvfrom" => 20 }, trace.work, trace.to_s)
  end

  def test_writes_allocate_nothing
    only_ours
    output = stream(keep(File.open("/dev/null", "w")), buffer_size: 1000)
    string = "x" * 300
    large = "y" * 3000
    assert_equal 0, allocations { output.write(string) }
    assert_equal 0, allocations { output.write(large) }
    assert_equal 0, allocations { output.write(large, string) }
    assert_equal 0, allocations { output << string }
  end
end
