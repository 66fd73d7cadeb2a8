# frozen_string_literal: true

require_relative "helper"
require_relative "try_stream"
require "fcntl"
require "io/nonblock"
require "io/wait"
require "objspace"
require "pty"
require "timeout"

# tryread, and what all calls of its kind have in common.
class TryReadTest < EagainTest
  include TryStream

  KINDS = {
    "pipe" => -> { filled_pipe("hello") },
    "empty pipe" => -> { IO.pipe },
    "ended pipe" => -> { ended_pipe("hello") },
    "pipe at its end" => -> { ended_pipe("") },
    "UNIX socket" => -> { filled_pair("hello") },
    "empty UNIX socket" => -> { UNIXSocket.pair },
    "ended UNIX socket" => -> { UNIXSocket.pair.tap { |_, b| b.close } },
    "TCP socket" => lambda {
      tcp_pair.tap do |a, b|
        b.write("hello")
        a.wait_readable
      end
    },
    "reset TCP socket" => lambda {
      tcp_pair.tap do |a, b|
        b.setsockopt(Socket::Option.linger(true, 0))
        b.close
        a.wait_readable
      end
    },
    "datagrams" => -> { UNIXSocket.pair(:DGRAM).tap { |_, b| %w[hello you].each { |s| b.send(s, 0) } } },
    "empty datagram" => -> { UNIXSocket.pair(:DGRAM).tap { |_, b| b.send("", 0) } },
    "packets" => -> { UNIXSocket.pair(:SEQPACKET).tap { |_, b| b.send("hello", 0) } },
    "listener" => -> { TCPServer.new("127.0.0.1", 0) },
    "unconnected socket" => -> { Socket.new(:INET, :STREAM) },
    "file" => -> { file("hello") },
    "empty file" => -> { file("") },
    "file to append to" => -> { file("hello", "a+") },
    "/dev/null" => -> { File.open(File::NULL) },
    "/dev/zero" => -> { File.open("/dev/zero") },
    "directory" => -> { File.open("/") },
    "terminal" => lambda {
      master, slave = PTY.open
      master.write("hello\n")
      [slave, master]
    },
    "terminal's master" => -> { PTY.open.tap { |_, slave| slave.write("hello") } },
    "child" => -> { IO.popen("cat", "r+").tap { |io| [io.write("hello"), io.flush, io.wait_readable] } },
    "number of a socket" => lambda {
      a, b = UNIXSocket.pair
      b.write("hello")
      [IO.for_fd(a.fileno, autoclose: false), a, b]
    },
    "writing end" => -> { IO.pipe.reverse },
    "file for writing" => -> { file("hello", "w") },
    "closed" => -> { IO.pipe.each(&:close) },
    "closed for reading" => -> { UNIXSocket.pair.tap { |a, _| a.close_read } },
    "frozen" => -> { filled_pipe("hello").each(&:freeze) },
    "never opened" => -> { IO.allocate },
    "pushed back bytes" => -> { filled_pipe("hello").tap { |r, _| r.ungetbyte("xyz") } },
    "pushed back characters" => -> { filled_pipe("hello").tap { |r, _| r.set_encoding("UTF-16LE:UTF-8") && r.ungetc("ä") } },
    "read ahead" => -> { filled_pipe("one\ntwo\nthree").tap { |r, _| r.gets } },
    "file that was read ahead" => -> { file("one\ntwo\nthree").tap(&:gets) },
    "socket that was read ahead" => -> { filled_pair("one\ntwo\nthree").tap { |a, _| a.gets } },
  }.freeze

  KINDS.each do |name, make|
    define_method("test_as_ruby_on_#{name.gsub(/\W+/, "_")}") do
      make = bind(make)
      [0, 1, 3, 5, 4096, 4097, 100_000].each do |maxlen|
        same_read(make, maxlen, "#{name}, #{maxlen}")
        same_read(make, maxlen, "#{name}, #{maxlen}, buffer") { +"äbuffer" }
      end
    end
  end

  LENGTHS = [-1, -2**70, 2**40, 2**62, 2**63 - 1, 2**63, nil, true, "5", 2.9, 0.0, Float::NAN, [], :a, Object,
             Rational(7, 2), Complex(1, 2), Struct.new(:to_int).new(3), Struct.new(:to_int).new("3")].freeze

  def test_lengths_are_as_ruby_takes_them
    LENGTHS.each do |maxlen|
      same_read(-> { filled_pipe("hello") }, maxlen, maxlen.inspect)
      same_read(-> { filled_pipe("hello") }, maxlen, maxlen.inspect) { +"buffer" }
      same_read(-> { filled_pair("hello") }, maxlen, maxlen.inspect)
      # A socket's own method overruns the buffer.
      same_read(-> { filled_pair("hello") }, maxlen, maxlen.inspect) { +"buffer" } unless maxlen == -1
      same_read(-> { IO.pipe.each(&:close) }, maxlen, maxlen.inspect)
    end
  end

  Convertible = Struct.new(:to_str)
  Subclass = Class.new(String)

  BUFFERS = {
    "empty" => -> { +"" }, "nil" => -> {}, "frozen" => -> { "frozen" }, "long" => -> { "x" * 10_000 },
    "literal" => -> { "x".dup }, "roomy" => -> { String.new(capacity: 20_000) }, "UTF-8" => -> { +"äöü" },
    "UTF-16" => -> { "äöü".encode("UTF-16LE") }, "UTF-32" => -> { "ä".encode("UTF-32BE") }, "binary" => -> { "\xff".b },
    "symbol" => -> { :symbol }, "number" => -> { 5 }, "array" => -> { [] }, "shared" => -> { ("x" * 1000)[3..] },
    "subclass" => -> { Subclass.new("abc") },
    "convertible" => -> { Convertible.new(+"abc") }, "badly convertible" => -> { Convertible.new(3) },
    "convertible to a frozen one" => -> { Convertible.new("abc") }
  }.freeze

  def test_buffers_are_as_ruby_takes_them
    BUFFERS.each do |name, make|
      [0, 3, 10, 20_000].each do |maxlen|
        label = "#{name}, #{maxlen}"
        same_read(-> { filled_pipe("hello") }, maxlen, label, &make)
        same_read(-> { filled_pair("hell\xc3\xb6") }, maxlen, label, &make)
        same_read(-> { IO.pipe }, maxlen, label, &make)
        same_read(-> { ended_pipe("") }, maxlen, label, &make)
        same_read(-> { file("he\nllo").tap(&:gets) }, maxlen, label, &make)
        same_read(-> { IO.pipe.each(&:close) }, maxlen, label, &make)
      end
    end
  end

  def test_the_buffer_is_the_answer
    a, b = filled_pair("hello")
    buffer = +"old"
    assert_same buffer, Eagain.tryread(a, 10, buffer)
    assert_same buffer, Eagain.tryread(a, 0, buffer)
    close_all(a, b)
  end

  def test_strings_that_share_memory_with_the_buffer_keep_theirs
    text = "abcdefghij" * 100
    [text.dup, text[10..], text.b, +"" << text].each do |buffer|
      witness = buffer.dup
      copy = +"" << witness
      a, b = filled_pair("X" * 2000)
      Eagain.tryread(a, 2000, buffer)
      assert_equal "X" * 2000, buffer
      assert_equal copy, witness
      close_all(a, b)
    end
    assert_equal "abcdefghij" * 100, text
  end

  def test_a_buffer_that_another_read_holds
    other, feeder = IO.pipe
    other.nonblock = feeder.nonblock = false
    buffer = +"x" * 50
    reader = Thread.new { other.readpartial(50, buffer) }
    Thread.pass until reader.status == "sleep"
    same_read(-> { filled_pipe("hello") }, 10) { buffer }
    feeder.write("done")
    assert_equal "done", reader.value
    close_all(other, feeder)
  end

  def test_large_answers_are_strings_of_their_own
    a, b = UNIXSocket.pair
    answers = Array.new(20) do |i|
      data = (i % 10).to_s * (i * 1000)
      b.write(data) && Eagain.tryread(a, 20_000) == :wait_readable unless data.empty?
      b.write(data)
      [data, Eagain.tryread(a, 40_000)]
    end
    answers.drop(1).each { |data, answer| assert_bytes data, answer.dup }
    answers.each { |_, answer| answer << "more" if answer.is_a?(String) }
    assert_equal "String", answers.last[1].class.name
    assert_equal Encoding::BINARY, answers.last[1].encoding
    close_all(a, b)
  end

  def test_few_bytes_of_a_large_read_take_little_memory
    a, b = UNIXSocket.pair
    [1, 100, 5000, 30_000].each do |size|
      b.write("x" * size)
      answer = Eagain.tryread(a, 1 << 20)
      assert_equal size, answer.bytesize
      assert_operator ObjectSpace.memsize_of(answer), :<, size + 5000
    end
    close_all(a, b)
  end

  def test_what_was_kept_for_the_next_read_is_dropped_by_the_gc
    output = output_of(<<~RUBY)
      def size = Integer(File.read("/proc/self/statm")[/\\d+/]) * 4096
      r, w = IO.pipe
      GC.start
      before = size
      Eagain.tryread(r, 1 << 28)
      kept = size - before
      GC.start
      w.write("x")
      print kept > 1 << 27, size - before < 1 << 27, Eagain.tryread(r, 1 << 20)
    RUBY
    assert_equal "truetruex", output
  end

  def test_a_would_block_makes_no_object
    [IO.pipe, UNIXSocket.pair, [UDPSocket.new.tap { |s| s.bind("127.0.0.1", 0) }]].each do |io, *rest|
      buffer = String.new(capacity: 100)
      pieces = [10, 10_000]
      buffers = [+"", +""]
      few = [10, 10]
      assert_equal :wait_readable, Eagain.tryread(io, 1)
      assert_equal 0, allocations { Eagain.tryread(io, 100) }, io.inspect
      assert_equal 0, allocations { Eagain.tryread(io, 100_000) }, io.inspect
      assert_equal 0, allocations { Eagain.tryread(io, 100_000, buffer) }, io.inspect
      assert_equal 0, allocations { Eagain.tryreadv(io, few) }, io.inspect
      assert_equal 0, allocations { Eagain.tryreadv(io, pieces) }, io.inspect
      assert_equal 0, allocations { Eagain.tryreadv(io, pieces, buffers) }, io.inspect
      assert_equal 0, allocations { Eagain.trypeek(io, 100) }, io.inspect
      assert_equal 0, allocations { Eagain.trypeek(io, 100_000) }, io.inspect
      close_all(io, rest)
    end
  end

  def test_one_string_is_made_for_a_read
    a, b = UNIXSocket.pair
    text = "x" * 1000
    assert_equal 1, allocations { Eagain.trywrite(b, text) && Eagain.tryread(a, 4000) }
    assert_equal 1, allocations { Eagain.trywrite(b, text) && Eagain.tryread(a, 40_000) }
    assert_equal 0, allocations { Eagain.trywrite(b, text) && Eagain.tryread(a, 40_000, text) }
    close_all(a, b)
  end

  def test_system_calls
    { "UNIXSocket.pair" => "recvfrom", "IO.pipe" => "preadv2" }.each do |make, call|
      trace = strace(<<~RUBY)
        require "socket"
        r, w = #{make}
        s = +""
        2.times { Eagain.tryread(r, 1); Eagain.tryread(r, 10_000) }
        mark
        50.times { Eagain.tryread(r, 1); Eagain.tryread(r, 10_000); Eagain.tryread(r, 10, s); Eagain.trypeek(r, 5) }
        mark
      RUBY
      assert_equal({ call => 200 }, trace.work.reject { |name, _| name == "getpgid" }, trace.to_s)
    end
  end

  def test_system_calls_on_a_fifo
    trace = strace(<<~RUBY)
      require "tmpdir"
      Dir.mktmpdir do |dir|
        File.mkfifo("\#{dir}/fifo")
        r = File.open("\#{dir}/fifo", "r+")
        Eagain.tryread(r, 1)
        mark
        50.times { Eagain.tryread(r, 1) }
        mark
      end
    RUBY
    assert_equal [50], trace.work.reject { |name, _| name == "getpgid" }.values, trace.to_s
  end

  def test_the_descriptor_stays_as_it_is
    [IO.pipe, UNIXSocket.pair, PTY.open].each do |a, b|
      [a, b].each { |io| io.nonblock = false }
      Timeout.timeout(10) do
        assert_equal :wait_readable, Eagain.tryread(a, 10)
        assert_equal :wait_readable, Eagain.tryread(a, 100_000, +"")
        assert_equal :wait_readable, Eagain.trypeek(a, 10)
        assert_equal :wait_readable, Eagain.tryreadv(a, [10])
        Eagain.trywrite(b, "x")
        Eagain.trywritev(b, %w[y z])
      end
      refute a.nonblock? || b.nonblock?
      close_all(a, b)
    end
  end

  # A file whose bytes are not in memory: there is no way to wait for them. Its number is that of a pipe
  # that was read from before.
  def test_a_file_that_is_not_in_memory
    data = Random.bytes(1 << 20)
    r, w = IO.pipe
    Eagain.tryread(r, 1)
    number = r.fileno
    r.close
    io = file(data)
    io.fileno == number or skip "another number was lower"
    io.fdatasync
    seen = +"".b
    20.times do
      io.advise(:dontneed)
      case piece = Eagain.tryread(io, 1 << 18)
      when nil then break
      else seen << piece
      end
    end
    assert_bytes data, seen
    close_all(io, w)
  end

  # Both ends of a connection, the first as an IO that is no socket to Ruby, and holds back what it writes.
  def buffered_pair
    a, b = UNIXSocket.pair
    [IO.for_fd(a.fileno, "r+", autoclose: false).tap { |io| io.sync = false }, b, a]
  end

  def test_writes_that_ruby_holds_back_go_first
    io, b, a = buffered_pair
    [-> { Eagain.tryread(io, 10) }, -> { Eagain.tryreadv(io, [10])&.first }, -> { Eagain.trypeek(io, 10) }].each do |read|
      io.write("question")
      b.write("answer")
      assert_equal "answer", read.call
      assert_equal "question", b.read_nonblock(100)
    end
    io.write("one")
    assert_equal 3, Eagain.trywrite(io, "two")
    io.write("three")
    assert_equal 4, Eagain.trywritev(io, %w[fo ur])
    assert_equal "onetwothreefour", b.read_nonblock(100)

    child = IO.popen("cat", "r+")
    child.sync = false
    child.write("hello")
    assert_equal :wait_readable, Eagain.tryread(child, 10)
    child.wait_readable
    assert_equal "hello", Eagain.tryread(child, 10)
    child.write("one")
    assert_equal 3, Eagain.trywrite(child, "two")
    child.close_write
    assert_equal "onetwo", child.read
    close_all(a, b, child)
  end

  def test_without_room_for_what_ruby_holds_back
    io, b, a = buffered_pair
    nil while a.write_nonblock("x" * 1000, exception: false) != :wait_writable
    io.write("held")
    b.write("answer")
    buffer = +"as it was"
    Timeout.timeout(10) do
      assert_equal :wait_writable, Eagain.tryread(io, 10)
      assert_equal :wait_writable, Eagain.tryread(io, 100_000, buffer)
      assert_equal :wait_writable, Eagain.tryreadv(io, [10])
      assert_equal :wait_writable, Eagain.trypeek(io, 10)
      assert_equal :wait_writable, Eagain.trywrite(io, "y")
      assert_equal :wait_writable, Eagain.trywritev(io, ["y"])
    end
    assert_equal "as it was", buffer
    text = +""
    while (answer = Eagain.tryread(io, 10)) == :wait_writable
      text << b.readpartial(100_000)
    end
    assert_equal "answer", answer
    assert_equal 1, Eagain.trywrite(io, "y")
    a.close
    text << b.read
    assert text.end_with?("xheldy"), text[-20..]
    b.close
  end

  # Its own method does not flush either.
  def test_a_socket_reads_whatever_is_held_back
    make = lambda do
      filled_pair("answer").tap do |a, _|
        a.sync = false
        a.write("held")
      end
    end
    same_read(make, 10)
  end

  def test_an_argument_that_closes_the_io
    a, b = filled_pair("hello")
    closing = Object.new
    closing.define_singleton_method(:to_int) { a.close && 5 || 5 }
    assert_raises(IOError) { Eagain.tryread(a, closing) }
    a, b = filled_pair("hello")
    buffer = Object.new
    buffer.define_singleton_method(:to_str) { a.close || +"x" }
    assert_raises(IOError) { Eagain.tryread(a, 5, buffer) }
    close_all(a, b)
  end

  def test_a_number_that_changes_hands
    r, w = IO.pipe
    pipe, feeder = IO.pipe
    a, b = UNIXSocket.pair
    3.times do
      assert_equal :wait_readable, Eagain.tryread(r, 10)
      r.reopen(a)
      assert_equal :wait_readable, Eagain.tryread(r, 10)
      b.write("socket")
      assert_equal "socket", Eagain.tryread(r, 10)
      r.reopen(r2 = file("disk"))
      assert_equal "disk", Eagain.tryread(r, 10)
      assert_nil Eagain.tryread(r, 10)
      r2.close
      r.reopen(pipe)
      assert_equal :wait_readable, Eagain.tryread(r, 10)
    end
    close_all(r, w, a, b, pipe, feeder)
  end

  def test_number_of_arguments
    [:tryread, :tryreadv, :trypeek].each do |name|
      [0, 1, 4].each { |n| assert_raises(ArgumentError) { Eagain.public_send(name, *Array.new(n) { 1 }) } }
    end
    [:trywrite, :trywritev].each do |name|
      [0, 1, 3].each { |n| assert_raises(ArgumentError) { Eagain.public_send(name, *Array.new(n) { 1 }) } }
    end
  end

  private

  # The lambdas of KINDS call methods of the test.
  def bind(callable) = -> { instance_exec(&callable) }
end
