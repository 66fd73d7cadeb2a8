# frozen_string_literal: true

require_relative "helper"
require_relative "try_stream"
require_relative "tls"
require "io/nonblock"
require "io/wait"
require "pty"
require "stringio"

# tryreadv, trypeek, trywrite, trywritev; what is no IO; and all of them under bad conditions.
class TryReadvTest < EagainTest
  include TryStream

  def test_in_order
    [IO.pipe, UNIXSocket.pair].each do |r, w|
      assert_equal :wait_readable, Eagain.tryreadv(r, [3, 4])
      w.write("abcdef")
      assert_equal ["abc", "", "def", "", ""], Eagain.tryreadv(r, [3, 0, 5, 2, 0])
      w.write("abcdef")
      buffers = [+"old", +"x" * 100, "ä".dup, String.new]
      assert_same buffers, Eagain.tryreadv(r, [2, 3, 4, 5], buffers)
      assert_equal ["ab", "cde", "f", ""], buffers
      assert_equal [Encoding::UTF_8] * 3, buffers.first(3).map(&:encoding)
      assert_equal :wait_readable, Eagain.tryreadv(r, [2, 3], buffers.first(2))
      assert_equal %w[ab cde], buffers.first(2)
      w.close
      assert_nil Eagain.tryreadv(r, [2, 3], buffers.first(2))
      assert_equal ["", ""], buffers.first(2)
      assert_nil Eagain.tryreadv(r, [2, 3])
      r.close
    end
  end

  def test_one_system_call_in_place
    trace = strace(<<~RUBY)
      require "socket"
      a, b = UNIXSocket.pair
      buffers = [+"", +""]
      Eagain.tryread(a, 1)
      b.write("abcdef")
      mark
      Eagain.tryreadv(a, [2, 9], buffers)
      Eagain.tryreadv(a, [2, 9], buffers)
      mark
    RUBY
    assert_equal({ "recvmsg" => 2 }, trace.work.reject { |name, _| name == "getpgid" }, trace.to_s)
  end

  # Any number and size, with and without data that Ruby has read ahead.
  def test_pieces_of_every_kind
    random = Random.new(seed)
    60.times do
      lengths = Array.new(random.rand(1..200)) { random.rand([5, 300].sample(random: random)) }
      data = random.bytes(random.rand(1..30_000))
      expected = data.dup
      pieces = lengths.map { |len| expected.slice!(0, len) || "" }
      [UNIXSocket.pair, IO.pipe].each do |r, w|
        [nil, lengths.map { |len| "y" * [0, len, len + 5].sample(random: random) }].each do |buffers|
          w.write(data)
          answer = Eagain.tryreadv(r, lengths, buffers)
          rest = Eagain.tryread(r, 100_000)
          if lengths.sum.zero?
            assert_equal lengths.map { "" }, answer
          else
            assert_equal pieces, answer.map(&:b)
          end
          assert_equal expected, rest == :wait_readable ? "" : rest
        end
        w.write("line\n#{data}")
        r.gets
        ahead = Eagain.tryreadv(r, [lengths.sum + 1, 100_000], [+"", +""])
        text = ahead.join.b
        text << Eagain.tryread(r, 100_000) while text.bytesize < data.bytesize
        assert_bytes data, text
        close_all(r, w)
      end
    end
  end

  def test_arguments
    r, w = filled_pipe("hello")
    [[nil], [5], [[1, nil]], [[1, "2"]], [[1], 5], [[1], [5]], [[1], [nil]]].each do |arguments|
      assert_raises(TypeError, arguments.inspect) { Eagain.tryreadv(r, *arguments) }
    end
    [[[-1]], [[1, -1]], [[1], []], [[1, 2], [+""]], [[2**62, 2**62]]].each do |arguments|
      assert_raises(ArgumentError, arguments.inspect) { Eagain.tryreadv(r, *arguments) }
    end
    assert_raises(RangeError) { Eagain.tryreadv(r, [2**64]) }
    assert_raises(FrozenError) { Eagain.tryreadv(r, [1, 1], [+"", "frozen"]) }
    assert_raises(NoMemoryError) { Eagain.tryreadv(r, [2**61]) }
    assert_equal [], Eagain.tryreadv(r, [])
    assert_equal ["", ""], Eagain.tryreadv(r, [0, 0], [+"a", +"b"])
    assert_raises(IOError) { Eagain.tryreadv(w, [1]) }
    assert_equal ["he", "l"], Eagain.tryreadv(r, [2.9, 1])
    close_all(r, w)
    assert_raises(IOError) { Eagain.tryreadv(r, [1]) }
  end

  # What an argument's conversion does to the other arguments cannot hurt.
  def test_arguments_that_change_each_other
    r, w = filled_pipe("hello world")
    lengths = [1, 2, 3]
    buffers = [+"", +"", +""]
    evil = Object.new
    evil.define_singleton_method(:to_str) { lengths.replace([nil, :x]) && buffers.clear && +"" }
    lengths[0] = Object.new.tap { |o| o.define_singleton_method(:to_int) { buffers << evil && 1 } }
    assert_raises(ArgumentError) { Eagain.tryreadv(r, lengths, buffers) }
    lengths = [1, 2]
    assert_equal %w[h el], Eagain.tryreadv(r, lengths, [evil, +""])
    strings = ["a", Object.new]
    strings[1].define_singleton_method(:to_s) { strings.clear && "b" }
    assert_equal 2, Eagain.trywritev(w, strings)
    twice = +""
    assert_same twice, Eagain.tryreadv(r, [2, 3000], [twice, twice])[1]
    close_all(r, w)
  end
end

class TryPeekTest < EagainTest
  include TryStream

  def test_whatever_reads_next_gets_the_same
    makes = [-> { filled_pipe("hello\nworld\n") }, -> { filled_pair("hello\nworld\n") }, -> { [file("hello\nworld\n")] },
             -> { IO.popen("printf 'hello\nworld\n'; exec sleep 9", "r+").tap(&:wait_readable) },
             -> { PTY.open.tap { |master, _| master.write("hello\nworld\n") }.reverse }]
    reads = [-> { _1.gets }, -> { _1.readpartial(6) }, -> { _1.read_nonblock(6) }, -> { Eagain.tryread(_1, 6) }, -> { _1.getc + _1.read(5) },
             -> { Eagain.tryreadv(_1, [2, 4]).join }]
    makes.product(reads) do |make, read|
      made = Array(make.call.then { |m| m.is_a?(Array) ? m : [m] })
      io = made.first
      assert_equal "hel", Eagain.trypeek(io, 3), io.inspect
      assert_equal "hello\n", Eagain.trypeek(io, 100)[0, 6]
      buffer = +"ä" * 10
      assert_same buffer, Eagain.trypeek(io, 4, buffer)
      assert_equal "hell", buffer
      assert_equal "", Eagain.trypeek(io, 0)
      assert_equal "hello\n", read.call(io)
      assert_equal "world", Eagain.trypeek(io, 5)
      assert_equal "world", Eagain.tryread(io, 5)
      Process.kill(:KILL, io.pid) if io.pid
      close_all(made)
    end
  end

  def test_answers
    [IO.pipe, UNIXSocket.pair].each do |r, w|
      assert_equal :wait_readable, Eagain.trypeek(r, 10)
      assert_equal :wait_readable, Eagain.trypeek(r, 100_000)
      buffer = +"old"
      assert_equal :wait_readable, Eagain.trypeek(r, 10, buffer)
      assert_equal "old", buffer
      w.write("x" * 6000)
      assert_equal "x" * 5000, Eagain.trypeek(r, 5000)
      assert_equal "x" * 6000, Eagain.trypeek(r, 100_000)
      assert_equal "x" * 6000, Eagain.tryread(r, 100_000)
      w.close
      2.times { assert_nil Eagain.trypeek(r, 10) }
      assert_nil Eagain.trypeek(r, 10, buffer)
      assert_equal "", buffer
      assert_raises(FrozenError) { Eagain.trypeek(r, 10, "frozen") }
      assert_raises(ArgumentError) { Eagain.trypeek(r, -1) }
      assert_raises(TypeError) { Eagain.trypeek(r, nil) }
      r.close
      assert_raises(IOError) { Eagain.trypeek(r, 10) }
    end
  end

  def test_a_datagram_stays_whole
    a, b = UNIXSocket.pair(:DGRAM)
    b.send("hello", 0)
    b.send("world", 0)
    assert_equal "he", Eagain.trypeek(a, 2)
    assert_equal "hello", Eagain.tryread(a, 10)
    assert_equal "world", a.recv(10)
    close_all(a, b)
  end

  def test_a_file_keeps_its_place
    io = file("hello world", "r+")
    assert_equal "hello", Eagain.trypeek(io, 5)
    assert_equal 0, io.pos
    assert_equal 5, Eagain.trywrite(io, "HELLO")
    assert_equal " world", io.read
    io.rewind
    assert_equal "HELLO world", io.read
    io.close
  end
end

class TryWriteTest < EagainTest
  include TryStream

  KINDS = {
    "pipe" => -> { IO.pipe.reverse },
    "full pipe" => -> { IO.pipe.reverse.tap { |w, _| nil while w.write_nonblock("x" * 4096, exception: false) != :wait_writable } },
    "broken pipe" => -> { IO.pipe.reverse.tap { |_, r| r.close } },
    "UNIX socket" => -> { UNIXSocket.pair },
    "full UNIX socket" => -> { UNIXSocket.pair.tap { |a, _| nil while a.write_nonblock("x" * 4096, exception: false) != :wait_writable } },
    "broken UNIX socket" => -> { UNIXSocket.pair.tap { |_, b| b.close } },
    "TCP socket" => -> { tcp_pair },
    "datagrams" => -> { UNIXSocket.pair(:DGRAM) },
    "unconnected socket" => -> { [Socket.new(:INET, :STREAM)] },
    "unconnected datagrams" => -> { [UDPSocket.new] },
    "listener" => -> { [TCPServer.new("127.0.0.1", 0)] },
    "UNIX listener" => -> { [UNIXServer.new(path = "#{@dir ||= Dir.mktmpdir}/s")].each { File.unlink(path) } },
    "file" => -> { [file("hello", "r+")] },
    "file to append to" => -> { [file("hello", "a")] },
    "file that was read ahead" => -> { [file("one\ntwo\n", "r+").tap(&:gets)] },
    "/dev/null" => -> { [File.open(File::NULL, "w")] },
    "/dev/full" => -> { [File.open("/dev/full", "w")] },
    "terminal" => -> { PTY.open.reverse },
    "terminal's master" => -> { PTY.open },
    "child" => -> { [IO.popen("cat", "r+")] },
    "child that is not written to" => -> { [IO.popen("cat", "r+").tap(&:close_write)] },
    "text" => -> { IO.pipe.reverse.tap { |w, _| w.set_encoding("UTF-16LE", crlf_newline: true) } },
    "reading end" => -> { IO.pipe },
    "closed" => -> { IO.pipe.reverse.each(&:close) },
    "closed for writing" => -> { UNIXSocket.pair.tap { |a, _| a.close_write } },
    "frozen" => -> { IO.pipe.reverse.each(&:freeze) },
    "never opened" => -> { [IO.allocate] },
  }.freeze

  DATA = ["hello", "", "ä\r\n", "ä\n".encode("UTF-16LE"), "x" * 5000, "x" * 300_000, :symbol, 42, nil, [1, "a"], 2.5,
          Struct.new(:to_str).new("str"), "shared" * 50].freeze

  KINDS.each do |name, make|
    define_method("test_as_ruby_on_#{name.gsub(/\W+/, "_")}") do
      make = -> { instance_exec(&KINDS[name]) }
      DATA.each do |data|
        # Before a terminal takes it all, it waits (Ruby's own does); before a pipe, we ask for less.
        next if data.to_s.bytesize > 4096 && name.match?(/terminal/)
        # Nothing is nothing to writev(2), which is what asks whether a descriptor is good.
        next if data.to_s.empty? && name == "/dev/full"

        same_write(make, data, "#{name}, #{data.inspect[0, 50]}")
        same(make, "#{name}, #{data.inspect[0, 50]}") do |io, side|
          pieces = [data, "more", :symbol]
          given = pieces.map(&:to_s)
          given.map!(&:b) if given.any? { |s| s.encoding == Encoding::UTF_16LE }
          result = outcome { side == :ours ? Eagain.trywritev(io, pieces) : io.write_nonblock(given.join, exception: false) }
          io.rewind && result << io.read if name.start_with?("file") && name != "file to append to"
          result
        end
      end
    end
  end

  def test_what_arrives
    [IO.pipe, UNIXSocket.pair].each do |r, w|
      assert_equal 5, Eagain.trywrite(w, "hello")
      assert_equal 6, Eagain.trywritev(w, ["a", "", :bc, 123])
      assert_equal 0, Eagain.trywritev(w, [])
      assert_equal 0, Eagain.trywritev(w, ["", ""])
      assert_equal "helloabc123", Eagain.tryread(r, 100)
      close_all(r, w)
    end
  end

  def test_part_of_what_does_not_fit
    data = Random.bytes(1 << 20)
    pieces = data.scan(/.{1,1500}/mn)
    [-> { IO.pipe }, -> { UNIXSocket.pair }].each do |make|
      [-> { Eagain.trywrite(_1, data) }, -> { Eagain.trywritev(_1, pieces) }].each do |write|
        r, w = make.call
        total = write.call(w)
        assert_operator total, :<, data.bytesize
        assert_operator total, :>, 0
        assert_bytes data[0, total], r.read(total)
        close_all(r, w)
      end
    end
  end

  def test_more_strings_than_one_call_takes
    strings = Array.new(1500) { |i| "#{i}," }
    r, w = IO.pipe
    count = Eagain.trywritev(w, strings)
    assert_equal strings.first(1024).join, Eagain.tryread(r, 100_000)
    assert_equal strings.first(1024).join.bytesize, count
    assert_equal strings.first(100).join.bytesize, Eagain.trywritev(w, strings.first(100))
    close_all(r, w)

    a, b = UNIXSocket.pair(:SEQPACKET)
    assert_equal strings.first(1024).join.bytesize, Eagain.trywritev(a, strings.first(1024))
    assert_equal strings.first(1024).join, b.recv(100_000)
    close_all(a, b)
  end

  def test_one_system_call_and_no_object
    trace = strace(<<~RUBY)
      require "socket"
      a, b = UNIXSocket.pair
      n = File.open("/dev/null", "w")
      r, w = IO.pipe
      list = %w[a b]
      go = ->(*) { [a, n, w].each { |io| Eagain.trywrite(io, "x"); Eagain.trywritev(io, list) } }
      go.call
      mark
      50.times(&go)
      mark
    RUBY
    assert_equal({ "sendto" => 50, "sendmsg" => 50, "pwritev2" => 200 }, trace.work.reject { |name, _| name == "getpgid" }, trace.to_s)

    list = %w[a b]
    [IO.pipe.reverse, UNIXSocket.pair].each do |w, r|
      nil while Eagain.trywrite(w, "x" * 1000) != :wait_writable
      nil while Eagain.trywrite(w, "x") != :wait_writable
      assert_equal 0, allocations { Eagain.trywrite(w, "xxx") }
      assert_equal 0, allocations { Eagain.trywritev(w, list) }
      close_all(w, r)
    end
    io = File.open(File::NULL, "w")
    assert_equal 0, allocations { Eagain.trywrite(io, "xxx") }
    assert_equal 0, allocations { Eagain.trywritev(io, list) }
    io.close
  end

  def test_arguments
    r, w = IO.pipe
    assert_raises(TypeError) { Eagain.trywritev(w, "string") }
    assert_raises(TypeError) { Eagain.trywritev(w, nil) }
    closing = Object.new
    closing.define_singleton_method(:to_s) { w.close || "x" }
    assert_raises(IOError) { Eagain.trywrite(w, closing) }
    r, w = IO.pipe
    assert_raises(IOError) { Eagain.trywritev(w, [closing]) }
    r.close
  end

  def test_what_ruby_holds_back_and_cannot_write
    same(-> { [File.open("/dev/full", "w").tap { |io| io.write("held") }] }) do |io, side|
      klass, message = outcome { side == :ours ? Eagain.trywrite(io, "x") : io.write_nonblock("x", exception: false) }
      [klass, message.sub(/ @ \w+/, "")]
    end
  end
end

class TryForeignTest < EagainTest
  include TryStream

  Wrapper = Struct.new(:to_io)

  class Own
    def tryread(*arguments) = [:own, *arguments]
    alias trywrite tryread
    alias tryreadv tryread
    alias trypeek tryread
    alias trywritev tryread
  end

  Included = Class.new(Wrapper) { include Eagain.const_get(:IOMethods) }

  def test_to_io
    [Wrapper, Included].each do |klass|
      a, b = UNIXSocket.pair.map { |io| klass.new(io) }
      assert_equal 5, Eagain.trywrite(b, "hello")
      assert_equal 3, Eagain.trywritev(b, %w[a bc])
      assert_equal "hel", Eagain.trypeek(a, 3)
      assert_equal ["he", "llo"], Eagain.tryreadv(a, [2, 3])
      assert_equal "abc", Eagain.tryread(a, 9)
      assert_equal :wait_readable, Eagain.tryread(a, 9)
      close_all(a.to_io, b.to_io)
    end
  end

  def test_methods_of_its_own
    assert_equal [:own, 5], Eagain.tryread(Own.new, 5)
    assert_equal [:own, 5, "b"], Eagain.tryread(Own.new, 5, "b")
    assert_equal [:own, [5]], Eagain.tryreadv(Own.new, [5])
    assert_equal [:own, 5], Eagain.trypeek(Own.new, 5)
    assert_equal [:own, "x"], Eagain.trywrite(Own.new, "x")
    assert_equal [:own, ["x"]], Eagain.trywritev(Own.new, ["x"])
  end

  def test_methods_of_an_io
    extended = UNIXSocket.pair.each { |io| io.extend(Eagain.const_get(:IOMethods)) }
    a, b = extended
    assert_equal 5, b.trywrite("hello")
    assert_equal 3, b.trywritev(%w[a bc])
    assert_equal "hel", a.trypeek(3)
    assert_equal %w[he llo], a.tryreadv([2, 3])
    assert_same buffer = +"", a.tryread(9, buffer)
    assert_equal "abc", buffer
    [[:tryread], [:tryread, 1, nil, nil], [:trywrite], [:trywritev, 1, 2]].each { |call| assert_raises(ArgumentError) { a.public_send(*call) } }
    close_all(extended)
  end

  def test_what_is_no_io
    [nil, 5, "io", :io, Object.new, BasicObject, StringIO.new, [IO.pipe]].each do |object|
      expected = assert_raises(TypeError) { IO.select([object]) }
      [[:tryread, 1], [:tryreadv, [1]], [:trypeek, 1], [:trywrite, "x"], [:trywritev, ["x"]]].each do |name, argument|
        error = assert_raises(TypeError) { Eagain.public_send(name, object, argument) }
        assert_equal expected.message, error.message
      end
    end
    assert_raises(TypeError) { Eagain.tryread(Wrapper.new(5), 1) }
  end

  def test_ssl
    server, client = tls_pair
    assert_equal :wait_readable, Eagain.tryread(server, 10)
    assert_equal :wait_readable, Eagain.trypeek(server, 10)
    assert_equal 5, Eagain.trywrite(client, "hello")
    assert_equal 6, Eagain.trywritev(client, ["ä", :bc, 12])
    server.to_io.wait_readable
    assert_equal "hel", Eagain.trypeek(server, 3)
    assert_same buffer = +"old", Eagain.trypeek(server, 4, buffer)
    assert_equal "hell", buffer
    assert_equal %w[he llo], Eagain.tryreadv(server, [2, 3])
    assert_equal "äbc12".b, Eagain.tryread(server, 100)
    assert_equal :wait_readable, Eagain.tryreadv(server, [2, 3])
    2.times do
      assert_equal 3, Eagain.trywrite(client, "abc")
      server.to_io.wait_readable
      assert_equal "ab", Eagain.trypeek(server, 2)
      buffers = [+"x", +"y"]
      assert_same buffers, Eagain.tryreadv(server, [2, 3], buffers)
      assert_equal %w[ab c], buffers
      assert_equal :wait_readable, Eagain.tryread(server, 5, buffer)
    end
    client.close
    server.to_io.wait_readable
    assert_nil Eagain.trypeek(server, 5)
    assert_nil Eagain.tryread(server, 5)
    assert_nil Eagain.tryreadv(server, [5], [buffer])
    assert_equal "", buffer
    server.close
  end

  # With the methods of eagain/io, too: test_io_methods.rb.
  def test_buffers_that_ssl_cannot_fill_lose_nothing
    server, client = tls_pair
    Eagain.trywrite(client, "hello")
    server.to_io.wait_readable
    bad = Object.new
    def bad.to_str = raise("no string")
    [[[5], ["".b.freeze], FrozenError], [[2, 3], [+""], ArgumentError], [[2, 3], [+"", bad], RuntimeError],
     [[2, 3], [+"", 5], TypeError], [[2, 3], :none, TypeError], [[-1], nil, ArgumentError], [[2**40], nil, RangeError]].each do |lengths, buffers, error|
      assert_raises(error) { Eagain.tryreadv(server, lengths, buffers) }
    end
    converted = Object.new
    converted.instance_variable_set(:@strings, [+"one", +"two"])
    def converted.to_str = @strings.shift
    first = +""
    assert_equal %w[he llo], Eagain.tryreadv(server, [2, 3], [first, converted])
    assert_equal "he", first
    assert_equal :wait_readable, Eagain.tryreadv(server, [2, 3], [first, +""])
  end

  private

  def tls_pair
    a, b = UNIXSocket.pair
    server = OpenSSL::SSL::SSLSocket.new(a, TLS.server_context)
    client = OpenSSL::SSL::SSLSocket.new(b, OpenSSL::SSL::SSLContext.new)
    [server, client].each { |ssl| ssl.sync_close = true }
    accepting = Thread.new { server.accept }
    client.connect
    accepting.join
    # Tickets come first.
    client.read_nonblock(1, exception: false)
    [server, client]
  end
end

class TryStreamUnderStressTest < EagainTest
  include TryStream

  def test_gc_at_each_step
    expected = exercise
    begin
      GC.auto_compact = true if GC.respond_to?(:auto_compact=)
      GC.stress = true
      answers = exercise
    ensure
      GC.stress = false
      GC.auto_compact = false if GC.respond_to?(:auto_compact=)
    end
    assert_equal expected, answers
    return unless GC.respond_to?(:compact)

    5.times do
      GC.compact
      assert_equal expected, exercise
    end
  end

  # The spare String against the steps of an incremental GC: what it lends and gives away must never
  # be what the GC frees.
  def test_large_reads_during_incremental_gcs
    r, w = IO.pipe
    kept = []
    600.times do |i|
      data = (i % 10).to_s * (i % 3 == 0 ? 10 : 7000)
      assert_equal :wait_readable, Eagain.tryread(r, 8000)
      w.write(data)
      kept[i % 100] = [data, Eagain.tryread(r, 8000)]
      Array.new(50) { +"garbage #{i}" }
      GC.start(full_mark: i % 20 == 0, immediate_mark: false, immediate_sweep: false) if i % 5 == 0
    end
    kept.each { |data, answer| assert_equal data, answer }
    close_all(r, w)
  end

  def test_ractors
    assert_child("4 4 4 4", <<~'RUBY')
      ractors = Array.new(4) do
        Ractor.new do
          r, w = IO.pipe
          done = 0
          500.times do |i|
            size = i % 2 == 0 ? 10 : 20_000
            raise "not empty" unless Eagain.tryread(r, 30_000) == :wait_readable
            raise "no room" unless Eagain.trywrite(w, "x" * size) == size
            raise "wrong" unless Eagain.trypeek(r, 3) == "xxx" && Eagain.tryread(r, 30_000).size >= 10
            Eagain.tryread(r, 30_000)
            GC.start if i % 100 == 0
          end
          4
        end
      end
      print ractors.map { |ractor| ractor.respond_to?(:value) ? ractor.value : ractor.take }.join(" ")
    RUBY
  end

  def test_threads_and_signals
    r, w = IO.pipe
    got = 0
    trap = Signal.trap(:USR2) { got += 1 }
    sender = spawn("i=0; while [ $i -lt 200 ]; do kill -USR2 #{Process.pid}; sleep 0.001; i=$((i+1)); done")
    reads = 0
    until Process.wait(sender, Process::WNOHANG)
      assert_includes [:wait_readable, "x"], Eagain.tryread(r, 10)
      Eagain.trywrite(w, "x")
      reads += 1
    end
    assert_operator got, :>, 10
    assert_operator reads, :>, 10
    close_all(r, w)
  ensure
    Signal.trap(:USR2, trap || "DEFAULT")
  end

  ERRORS = [TypeError, ArgumentError, RangeError, IOError, SystemCallError, NoMemoryError, FrozenError, NoMethodError,
            FloatDomainError, RuntimeError, Encoding::CompatibilityError].freeze

  def test_random_arguments
    random = Random.new(seed)
    objects = [nil, true, 0, 1, 7, -1, 100, 4097, 2**20, 2**40, 2**64, 2.5, Float::NAN, "", "text", :symbol, [], [1, 2], [+"a", +"b"],
               [nil], {}, Object.new, BasicObject.new, IO, Struct.new(:to_str).new("s"), Struct.new(:to_int).new(3),
               Struct.new(:to_ary).new([1, 2]), Struct.new(:to_io).new(nil)]
    ios = [*IO.pipe, *UNIXSocket.pair, *IO.pipe.each(&:close), *UNIXSocket.pair(:DGRAM), IO.allocate, *PTY.open,
           file("hello", "r+"), File.open("/"), File.open(File::NULL, "r+")]
    5000.times do
      name = %i[tryread tryreadv trypeek trywrite trywritev].sample(random: random)
      arguments = Array.new(random.rand(1..3)) do
        object = objects.sample(random: random)
        String === object && random.rand < 0.5 ? +object : object
      end
      io = random.rand < 0.9 ? ios.sample(random: random) : objects.sample(random: random)
      begin
        answer = Eagain.public_send(name, io, *arguments)
        assert_includes [NilClass, Symbol, String, Array, Integer], answer.class
      rescue *ERRORS => e
        refute_empty e.message
      end
    end
    close_quietly(ios)
  end

  private

  # Each call, with each kind of answer.
  def exercise
    [IO.pipe, UNIXSocket.pair].flat_map do |from, to|
      answers = [Eagain.tryread(from, 10), Eagain.tryread(from, 10_000), Eagain.trywritev(to, ["a", :b, "x" * 9000]),
                 Eagain.trypeek(from, 2), Eagain.tryread(from, 2), Eagain.tryreadv(from, [2, 6000], [+"", +"ä" * 10]),
                 Eagain.tryread(from, 100_000), Eagain.trywrite(to, 12), Eagain.tryreadv(from, [1, 5000, 3]),
                 Eagain.tryreadv(from, [1, 5000, 3], ["x" * 30, +"", +""])]
      from.close
      to.close
      answers
    end
  end
end
