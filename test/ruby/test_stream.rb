# frozen_string_literal: true

require_relative "helper"
require_relative "opened"
require_relative "tiny_scheduler"

# Eagain::Stream reads: what IO would, whatever the pieces that it comes in.
class StreamTest < EagainTest
  extend Everywhere
  include Opened

  def stream(io, **options) = Eagain::Stream.new(io, **options)

  # A stream, and what to write to for it.
  def source(**options)
    a, b = pair
    [stream(a, **options), b]
  end

  # A stream with these bytes, and no more.
  def of(bytes, **options)
    input, output = source(**options)
    beside { output.write(bytes).tap { output.close } }
    input
  end

  # --- bytes

  everywhere :read_gives_so_many_bytes_or_the_rest do
    input = of("hello world", buffer_size: 4)
    assert_equal "", input.read(0)
    assert_equal "hel", input.read(3)
    assert_equal "lo wor", input.read(6)
    assert_equal Encoding::BINARY, input.read(1).encoding
    assert_equal "d", input.read(100)
    assert_nil input.read(1)
    assert_equal "", input.read(0)
    assert_equal "", input.read
    assert_equal "", input.read(nil)
  end

  everywhere :read_gives_all do
    bytes = Random.bytes(300_000)
    [1, 100, 16_384, 1_000_000].each do |size|
      input = of(bytes, buffer_size: size)
      assert_bytes bytes.byteslice(0, 10), input.read(10)
      assert_bytes bytes.byteslice(10..), input.read
    end
  end

  everywhere :read_into_a_buffer do
    input = of("abcdefghij" * 10, buffer_size: 16)
    buffer = +"something else"
    assert_same buffer, input.read(3, buffer)
    assert_equal "abc", buffer
    assert_same buffer, input.read(50, buffer)
    assert_equal "defghij#{"abcdefghij" * 4}abc", buffer
    assert_same buffer, input.read_exact(7, buffer)
    assert_equal "defghij", buffer
    assert_same buffer, input.readpartial(3, buffer)
    assert_equal "abc", buffer
    assert_same buffer, input.read(nil, buffer)
    assert_equal 37, buffer.bytesize
    assert_nil input.read(1, buffer)
    assert_equal "", buffer
    assert_raises(FrozenError) { input.read(1, "frozen".freeze) }
    assert_raises(TypeError) { input.read(1, 1) }
  end

  # Past the buffer, if what is asked for is longer.
  everywhere :large_reads do
    bytes = Random.bytes(3_000_000)
    input = of(bytes, buffer_size: 1000)
    buffer = +""
    at = 0
    [999, 1000, 1001, 50_000, 100, 2_000_000, 30_000].each_with_index do |length, i|
      got = i.odd? ? input.read_exact(length) : input.read_exact(length, buffer)
      assert_bytes bytes.byteslice(at, length), got
      at += length
    end
    while at < bytes.bytesize - 10_000
      got = input.readpartial(9_000, buffer)
      assert_bytes bytes.byteslice(at, got.bytesize), got
      at += got.bytesize
    end
    assert_bytes bytes.byteslice(at..), input.read(100_000)
  end

  # What is shared with another String is not written to.
  everywhere :buffers_that_are_shared do
    input = of("y" * 5000, buffer_size: 100)
    whole = "x" * 1000
    buffer = whole.dup
    copy = buffer.dup
    input.read_exact(1000, buffer)
    assert_equal "x" * 1000, copy
    assert_equal "y" * 1000, buffer
  end

  everywhere :read_exact_keeps_what_came_before_the_end do
    input = of("abc")
    error = assert_raises(EOFError) { input.read_exact(5) }
    assert_includes error.message, "3 of 5"
    assert_equal 3, input.pending
    assert_raises(EOFError) { input.read_exact(70_000) }
    assert_equal "abc", input.read_exact(3)
    assert_raises(EOFError) { input.read_exact(1) }
    assert_equal "", input.read_exact(0)
  end

  everywhere :readpartial_gives_what_is_there do
    input, output = source(buffer_size: 8)
    soon { output.write("abcdef") }
    assert_equal "abcd", input.readpartial(4)
    assert_equal 2, input.pending
    output.write("ghi")
    assert_equal "ef", input.readpartial(100)
    assert_equal "ghi", input.readpartial(100)
    assert_equal "", input.readpartial(0)
    output.close
    assert_raises(EOFError) { input.readpartial(1) }
    assert_raises(EOFError) { input.readpartial(1000) }
    assert_raises(ArgumentError) { input.readpartial(-1) }
    assert_raises(TypeError) { input.readpartial(nil) }
  end

  everywhere :peek_leaves_it do
    input, output = source(buffer_size: 2)
    soon { output.write("abcdef") }
    assert_equal "abcd", input.peek(4)
    assert_equal "abcd", input.peek(4)
    assert_equal "abcd", input.peek.byteslice(0, 4)
    assert_equal "", input.peek(0)
    output.close
    assert_equal "abcdef", input.peek(100)
    assert_equal "abcdef", input.read
    assert_nil input.peek
    assert_nil input.peek(1)
  end

  everywhere :bytes_one_by_one do
    input = of("a\xff".b)
    refute_predicate input, :eof?
    assert_equal 97, input.getbyte
    assert_equal 255, input.readbyte
    assert_nil input.getbyte
    assert_raises(EOFError) { input.readbyte }
    assert_predicate input, :eof?
  end

  # --- lines

  everywhere :gets do
    input = of("one\ntwo\r\n\nlast", buffer_size: 3)
    assert_equal ["one\n", "two\r\n", "\n", "last", nil, nil], Array.new(6) { input.gets }
    assert_equal Encoding::BINARY, of("x\n").gets.encoding
    input = of("one\ntwo\r\n\nlast", buffer_size: 3)
    assert_equal ["one", "two", "", "last", nil], Array.new(5) { input.gets(chomp: true) }
  end

  everywhere :readline_and_each_line do
    input = of("one\ntwo\n", buffer_size: 3)
    assert_equal "one\n", input.readline
    assert_equal "two", input.readline(chomp: true)
    assert_raises(EOFError) { input.readline }
    assert_equal %w[a b c], of("a\nb\nc").each_line(chomp: true).to_a
    assert_equal %w[a; b;], of("a;b;").each_line(";").to_a
    assert_equal ["a\n", "b"], of("a\nb").to_a
    assert_equal %w[A B], of("ab").each_line(1).map(&:upcase)
    input = of("x\ny\n")
    assert_same input, (input.each_line { |line| assert_equal 2, line.size })
    assert_raises(ArgumentError) { input.each_line(0) { flunk } }
  end

  everywhere :arguments_of_gets do
    input = of("")
    assert_raises(TypeError) { input.gets(1, 2) }
    assert_raises(TypeError) { input.gets(:sym) }
    assert_raises(ArgumentError) { input.gets("a", 1, 2) }
    assert_raises(ArgumentError) { input.gets(chop: true) }
    assert_raises(ArgumentError) { input.gets(limit: -1) }
    assert_raises(ArgumentError) { input.gets(timeout: -1) }
    assert_raises(ArgumentError) { input.read_until("") }
    assert_raises(TypeError) { input.read_until(1) }
    assert_raises(ArgumentError) { input.read(-1) }
    assert_raises(ArgumentError) { input.read(1, nil, nil) }
    assert_raises(ArgumentError) { input.read(1, time: 1) }
  end

  # Wherever a piece ends, and whatever fits into the buffer: a separator is found, and only a whole one.
  def test_separators_across_pieces
    schedule do
      ["\r\n", "--", "\n\n", "abcab", "\r\n\r\n"].each do |separator|
        text = "x#{separator[0]}y#{separator}-#{separator[..-2]}z#{separator}#{separator[..-2]}#{separator}end#{separator[0]}"
        expected = text.each_line(separator).to_a
        (0..text.bytesize).each do |at|
          (1..9).each do |size|
            input, output = source(buffer_size: size)
            task do
              output.write(text.byteslice(0, at))
              sleep 0
              output.write(text.byteslice(at..))
              output.close
            end
            found = []
            while (line = input.read_until(separator))
              found << line
            end
            assert_equal expected, found + [input.read]
            input.close
          end
        end
      end
    end
  end

  everywhere :read_until do
    input = of("a: 1\r\nb: 2\r\n\r\nbody", buffer_size: 3)
    assert_equal "a: 1", input.read_until("\r\n", chomp: true)
    assert_equal "b: 2\r\n\r\n", input.read_until("\r\n\r\n")
    assert_nil input.read_until("\r\n")
    assert_equal 4, input.pending
    assert_equal "body", input.read
  end

  # The separator is what it was at the time of the call.
  def test_a_separator_that_is_changed_in_the_wait
    schedule do
      input, output = source
      separator = +";"
      task do
        sleep 0
        separator.replace("!")
        output.write("a!b;")
      end
      assert_equal "a!b;", input.gets(separator)
    end
  end

  # A file's own methods say what comes out: the same calls on both give the same.
  def compare_with_io(text, encoding, pieces, size, calls)
    Tempfile.create("stream") do |file|
      file.binmode
      file.write(text)
      file.close
      File.open(file.path, "rb") do |io|
        io.set_encoding(encoding)
        input, output = source(buffer_size: size, external_encoding: encoding)
        task do
          pieces.each do |length|
            output.write(text.byteslice(0, length))
            text = text.byteslice(length..) || ""
            sleep 0
          end
          output.write(text)
          output.close
        end
        calls.each do |name, arguments, options|
          expected = io.public_send(name, *arguments, **options)
          got = input.public_send(name, *arguments, **options)
          assert_equal [expected, expected.respond_to?(:encoding) && expected.encoding],
                       [got, got.respond_to?(:encoding) && got.encoding],
                       "#{name} #{arguments} #{options}, buffer_size #{size}"
        end
        input.read # the writer may have some left
        input.close
      end
    end
  end

  def fuzz(rounds, encoding, alphabet, calls)
    random = Random.new(seed)
    schedule do
      rounds.times do
        text = Array.new(random.rand(200)) { alphabet.sample(random: random) }.join.b
        pieces = Array.new(random.rand(20)) { random.rand(20) }
        chosen = Array.new(40) { calls.sample(random: random).call(random) }
        compare_with_io(text, encoding, pieces, random.rand(1..40), chosen)
      end
    end
  end

  SEPARATORS = [";", ";;", "\r\n", "ab"].freeze
  LINES = [
    ->(_) { [:gets, [], {}] },
    ->(_) { [:gets, [], { chomp: true }] },
    ->(random) { [:gets, [random.rand(30)], {}] },
    ->(random) { [:gets, [random.rand(30)], { chomp: true }] },
    ->(random) { [:gets, [SEPARATORS.sample(random: random)], {}] },
    ->(random) { [:gets, [SEPARATORS.sample(random: random)], { chomp: true }] },
    # With one of several bytes, IO#gets overlooks a maxlen that ends within it.
    ->(random) { [:gets, [";", random.rand(-1..20)], {}] },
    ->(random) { [:gets, [nil, random.rand(1..20)], {}] }
  ].freeze

  def test_lines_are_those_of_io
    calls = LINES + [->(random) { [:read, [random.rand(30)], {}] }, ->(_) { [:getbyte, [], {}] }, ->(_) { [:eof?, [], {}] }]
    fuzz(150, Encoding::BINARY, %w[a b ; ;] + ["\n", "\r\n", "\r", "ab;;"], calls)
  end

  def test_lines_of_characters_are_those_of_io
    fuzz(150, Encoding::UTF_8, ["a", "ä", "€", "𝄞", "\n", ";"], LINES)
  end

  def test_paragraphs_are_those_of_io
    calls = [->(_) { [:gets, [""], {}] }, ->(_) { [:gets, [""], { chomp: true }] }]
    fuzz(100, Encoding::BINARY, ["a", "b", "\n", "\n\n"], calls)
  end

  everywhere :characters_are_not_cut do
    assert_equal ["äö", "üx", nil], of("äöüx").then { |s| s.external_encoding = "UTF-8"; Array.new(3) { s.gets(3) } }
    input = of("\xff\xfeab".b, external_encoding: Encoding::UTF_8)
    assert_equal ["\xff".b, "\xfea".b, "b"], [input.gets(1).b, input.gets(2).b, input.gets(9)]
    input = of("\xe2\x82".b, external_encoding: Encoding::UTF_8)
    assert_equal "\xe2\x82".b, input.gets(1).b
  end

  everywhere :encodings do
    input = of("ä\nö", external_encoding: "UTF-8")
    assert_equal [Encoding::UTF_8, "ä\n"], [input.external_encoding, input.gets]
    assert_equal "ö", input.read
    input.external_encoding = nil
    assert_equal Encoding::BINARY, input.external_encoding
    assert_raises(ArgumentError) { input.external_encoding = Encoding::UTF_16LE }
    assert_raises(ArgumentError) { stream(pair[0], external_encoding: "no such") }
  end

  # --- limits

  everywhere :a_line_that_is_too_long do
    [1, 4, 100].each do |size|
      input, output = source(buffer_size: size, limit: 5)
      output.write("12345\n123456\n1\n")
      assert_equal "12345\n", input.readline
      error = assert_raises(Eagain::LimitError) { input.readline }
      assert_kind_of IOError, error
      assert_equal 5, error.limit
      assert_raises(Eagain::LimitError) { input.gets(chomp: true) }
      assert_raises(Eagain::LimitError) { input.each_line { flunk } }
      assert_equal "123456\n", input.readline(limit: 6)
      assert_equal "1\n", input.gets
      input.close
    end
  end

  # It is known as soon as the end cannot come any more, and not before.
  everywhere :a_limit_and_half_a_separator do
    input, output = source
    output.write("abcd\r")
    assert_raises(Eagain::TimeoutError) { input.read_until("\r\n", limit: 4, timeout: 0.001) }
    output.write("\n")
    assert_equal "abcd\r\n", input.read_until("\r\n", limit: 4)
    output.write("abcd\rx")
    assert_raises(Eagain::LimitError) { input.read_until("\r\n", limit: 4) }
    assert_equal "abcd\rx", input.readpartial(10)
    output.write("abcd\r")
    assert_raises(Eagain::LimitError) { input.read_until("\r\n", limit: 3) }
    output.close
    assert_raises(Eagain::LimitError) { input.gets(limit: 4) }
    assert_nil input.read_until("\r\n", limit: 10)
    assert_equal "abcd\r", input.gets(limit: 5)
  end

  everywhere :limits_and_what_is_no_line do
    input = of("x" * 100, limit: 10)
    assert_equal "xxx", input.gets(3)
    assert_equal "x" * 10, input.gets(10)
    assert_equal 20, input.read(20).size
    assert_equal 67, input.gets(nil).size
    assert_nil input.gets
    assert_equal 10, input.limit
    input.limit = nil
    assert_nil input.limit
    assert_raises(ArgumentError) { input.limit = 0 }
  end

  # --- time

  everywhere :timeouts_keep_what_came do
    input, output = source(buffer_size: 4)
    output.write("abcdef")
    calls = [
      -> { input.gets(timeout: 0.005) }, -> { input.readline(timeout: 0.005) }, -> { input.read(10, timeout: 0.005) },
      -> { input.read(timeout: 0.005) }, -> { input.read_exact(10, timeout: 0.005) },
      -> { input.read_until("g", timeout: 0.005) }, -> { input.peek(7, timeout: 0.005) },
      -> { input.each_line(timeout: 0.005) { flunk } }
    ]
    calls.each do |call|
      start = now
      error = assert_raises(Eagain::TimeoutError, &call)
      assert_operator now - start, :>=, 0.005
      assert_equal 0, error.written
      assert_equal 6, input.pending
    end
    assert_equal "abcdef", input.readpartial(10, timeout: 0)
    [:getbyte, :readbyte, :eof?].each { |name| assert_raises(Eagain::TimeoutError) { input.public_send(name, timeout: 0) } }
    assert_raises(Eagain::TimeoutError) { input.readpartial(10, timeout: 0) }
    assert_raises(Eagain::TimeoutError) { input.readpartial(100_000, timeout: 0) }
  end

  everywhere :the_timeout_of_the_stream do
    input, output = source(timeout: 0.005)
    assert_equal 0.005, input.timeout
    assert_raises(Eagain::TimeoutError) { input.gets }
    input.timeout = nil
    soon { output.write("a\n") }
    assert_equal "a\n", input.gets
    input.timeout = 30
    assert_raises(Eagain::TimeoutError) { input.gets(timeout: 0.005) }
    assert_raises(ArgumentError) { input.timeout = -1 }
    assert_raises(TypeError) { input.timeout = "1" }
    assert_raises(ArgumentError) { stream(pair[0], timeout: -1) }
  end

  # What is written in pieces does not prolong the time.
  everywhere :a_timeout_is_for_the_whole_call do
    input, output = source
    stop = false
    writer = beside do
      until stop
        output.write(".")
        sleep 0.002
      end
    end
    assert_raises(Eagain::TimeoutError) { input.gets(timeout: 0.03) }
    stop = true
    assert_match(/\A\.+\z/, input.readpartial(1000))
    await("the writer") { writer.respond_to?(:done?) ? writer.done? : !writer.alive? }
  end

  # Ruby 3.1 said "Attempt to unlock a mutex which is not locked".
  def test_a_timeout_of_who_waits_for_another_reader_is_told_of
    schedule do
      input, output = source
      first = Eagain.spawn { input.gets }
      sleep(0) until first.status == "sleep"
      assert_raises(Timeout::Error) { Timeout.timeout(0.001) { input.gets } }
      output.write("line\n")
      assert_equal "line\n", first.value
    end
  end

  def test_a_task_that_is_cancelled_leaves_what_came
    only_ours
    Eagain.run do
      input, output = source(buffer_size: 4)
      output.write("abcdef")
      task = Eagain.spawn { input.read_exact(1000) }
      await("the reader") { input.pending == 6 }
      task.cancel.join
      assert_equal "abcdef", input.readpartial(10)
    end
  end

  # --- Ruby's own buffers

  everywhere :what_ruby_has_read_ahead_comes_first do
    r, w = pipe
    w.write("one\ntwo\nthree\n")
    assert_equal "one\n", r.gets
    input = stream(r, buffer_size: 4)
    w.write("four\n")
    w.close
    assert_equal "two\nthree\nfour\n", input.read
  end

  # --- costs

  # Sixteen lines that come together are one read(2); so is a large read into the String that it is for.
  def test_one_system_call_for_many_lines
    only_ours
    trace = strace(<<~'RUBY')
      Fiber.set_scheduler(Eagain::Scheduler.new)
      Fiber.schedule do
        r, w = IO.pipe
        input = Eagain::Stream.new(r)
        buffer = String.new(capacity: 65_536)
        work = proc do
          w.syswrite("line of text\n" * 16)
          16.times { input.gets }
          w.syswrite("x" * 32_768)
          input.read_exact(32_768, buffer)
        end
        work.call
        mark
        10.times(&work)
        mark
      end
      Fiber.set_scheduler(nil)
    RUBY
    assert_equal({ "pwritev2" => 20, "preadv2" => 20 }, trace.work, trace.to_s)
  end

  def test_lines_allocate_themselves_alone
    only_ours
    r, w = pipe
    input = stream(r)
    w.write("line\n" * 1000)
    input.gets
    assert_equal 100, allocations { input.gets }
    buffer = +""
    assert_equal 0, allocations { input.readpartial(3, buffer) }
    assert_equal 0, allocations { input.getbyte }
  end

  # A stream that waits holds no buffer.
  def test_who_waits_has_no_buffers
    only_ours
    require "objspace"
    schedule do
      input, output = source
      empty = ObjectSpace.memsize_of(input)
      output.write("line\nhalf")
      assert_equal "line\n", input.gets
      assert_operator ObjectSpace.memsize_of(input), :>=, empty + 16_384
      assert_equal "half", input.readpartial(10)
      input.write("answer")
      reader = task { input.gets }
      assert_equal "answer", output.readpartial(10)
      assert_equal empty, ObjectSpace.memsize_of(input)
      output.write("\n")
      await("the reader") { reader.done? }
    end
  end
end
