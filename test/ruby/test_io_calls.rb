# frozen_string_literal: true

require_relative "helper"
require "io/wait"
require "io/nonblock"

# Each call of IO on pipes: it waits for the other end, which is a task of the same thread, so that
# a call that blocked the thread would never return.
class IOCallsTest < EagainTest
  # Yields both ends of a pipe inside a scheduler.
  def pipe
    schedule do
      r, w = IO.pipe
      yield r, w
      close_all(r, w)
    end
  end

  # Writes pieces with a pause before each, then closes.
  def feed(io, *pieces, close: true)
    task do
      pieces.each do |piece|
        sleep 0.001
        io.write(piece)
        io.flush
      end
      io.close if close
    end
  end

  def test_gets
    pipe do |r, w|
      feed(w, "on", "e\ntw", "o\n", "three")
      assert_equal ["one\n", "two\n", "three", nil], Array.new(4) { r.gets }
    end
  end

  def test_gets_with_separator_limit_and_chomp
    pipe do |r, w|
      feed(w, "a,b", "bb,ccccc", "\nd\n")
      assert_equal "a,", r.gets(",")
      assert_equal "bbb", r.gets(",", chomp: true)
      assert_equal "ccc", r.gets("\n", 3)
      assert_equal "cc\nd\n", r.gets(nil)
    end
  end

  def test_read_to_the_end
    pipe do |r, w|
      feed(w, "ab", "cd")
      assert_equal "abcd", r.read
    end
  end

  def test_read_of_a_length_waits_for_all_of_it
    pipe do |r, w|
      feed(w, "ab", "cd", "efg")
      assert_equal "abcde", r.read(5)
      assert_equal "fg", r.read(5)
      assert_nil r.read(5)
    end
  end

  def test_read_into_a_buffer
    pipe do |r, w|
      feed(w, "abc", "def")
      buffer = +""
      assert_same buffer, r.read(6, buffer)
      assert_equal "abcdef", buffer
    end
  end

  def test_readpartial_returns_what_is_there
    pipe do |r, w|
      feed(w, "ab", "cd")
      assert_equal "ab", r.readpartial(100)
      assert_equal "cd", r.readpartial(100)
      assert_raises(EOFError) { r.readpartial(100) }
    end
  end

  def test_sysread_and_syswrite
    pipe do |r, w|
      reader = task { r.wait_readable.sysread(10) }
      assert_equal 3, w.syswrite("abc")
      await("sysread") { reader.done? }
      assert_equal "abc", reader.value
    end
  end

  def test_readline_readlines_and_each_line
    pipe do |r, w|
      feed(w, "1\n2", "\n3\n", "4\n")
      assert_equal "1\n", r.readline
      lines = []
      r.each_line { |line| lines << line.chomp }
      assert_equal %w[2 3 4], lines
      assert_raises(EOFError) { r.readline }
    end
  end

  def test_readlines
    pipe do |r, w|
      feed(w, "1\n2", "\n3\n")
      assert_equal %w[1 2 3], r.readlines(chomp: true)
    end
  end

  def test_getc_getbyte_each_char_and_ungetc
    pipe do |r, w|
      feed(w, "é".b[0], "é".b[1], "xyz")
      r.set_encoding("UTF-8")
      assert_equal "é", r.getc
      assert_equal "x".ord, r.getbyte
      r.ungetc("q")
      assert_equal %w[q y z], r.each_char.to_a
      assert_nil r.getc
    end
  end

  def test_eof_waits
    pipe do |r, w|
      feed(w, "x")
      refute r.eof?
      assert_equal "x", r.read
      assert r.eof?
    end
  end

  def test_write_append_puts_print_printf_and_putc
    pipe do |r, w|
      reader = task { r.read }
      assert_equal 3, w.write("a", "bc")
      w << "d" << 1
      w.puts("p", ["q"])
      w.print("r")
      w.printf("%03d", 7)
      w.putc("z")
      w.close
      await("reader") { reader.done? }
      assert_equal "abcd1p\nq\nr007z", reader.value
    end
  end

  def test_write_larger_than_the_pipe
    data = Random.bytes(1 << 20)
    pipe do |r, w|
      writer = task do
        count = w.write(data)
        w.close
        count
      end
      assert_bytes data, r.read
      await("writer") { writer.done? }
      assert_equal data.bytesize, writer.value
    end
  end

  def test_write_of_many_strings_larger_than_the_pipe
    strings = Array.new(64) { |i| (i % 10).to_s * 4096 }
    [true, false].each do |sync|
      pipe do |r, w|
        w.sync = sync
        writer = task do
          count = w.write(*strings)
          w.close
          count
        end
        assert_bytes strings.join, r.read
        await("writer") { writer.done? }
        assert_equal 64 * 4096, writer.value
      end
    end
  end

  def test_buffered_writes_are_flushed_by_close_and_flush
    pipe do |r, w|
      w.sync = false
      w.write("a")
      w.flush
      assert_equal "a", r.readpartial(10)
      full = fill(w)
      w.write("b" * 5000)
      closer = task { w.close }
      assert_equal full + 5000, r.read.bytesize
      await("close") { closer.done? }
    end
  end

  def test_puts_from_many_fibers_keeps_lines_whole
    lines = 40
    writers = 8
    pipe do |r, w|
      w.sync = true
      jobs = Array.new(writers) do |i|
        task { lines.times { |n| w.puts("#{i}:#{n}:#{i.to_s * 3000}") } }
      end
      closer = task do
        await("writers") { jobs.all?(&:done?) }
        w.close
      end
      seen = r.each_line(chomp: true).to_a
      await("closer") { closer.done? }
      expected = Array.new(writers) { |i| Array.new(lines) { |n| "#{i}:#{n}:#{i.to_s * 3000}" } }.flatten
      assert_empty (seen - expected).map { |line| line.squeeze[0, 100] }, "torn lines"
      assert_equal expected.size, seen.size
    end
  end

  def test_puts_from_two_fibers_on_a_full_buffered_pipe_keeps_lines_whole
    pipe do |r, w|
      w.sync = false
      jobs = Array.new(2) { |i| task { 100.times { w.puts(i.to_s * 2000) } } }
      task do
        await("writers") { jobs.all?(&:done?) }
        w.close
      end
      seen = r.each_line(chomp: true).map { |line| [line.squeeze[0, 20], line.size] }.tally
      assert_equal({ ["0", 2000] => 100, ["1", 2000] => 100 }, seen)
    end
  end

  def test_copy_stream_between_pipes
    data = Random.bytes(300_000)
    schedule do
      r1, w1 = IO.pipe
      r2, w2 = IO.pipe
      copier = task do
        count = IO.copy_stream(r1, w2)
        w2.close
        count
      end
      task do
        w1.write(data)
        w1.close
      end
      assert_bytes data, r2.read
      await("copy") { copier.done? }
      assert_equal data.bytesize, copier.value
      close_all(r1, r2)
    end
  end

  def test_copy_stream_of_a_length_from_a_socket_to_a_file
    Tempfile.create("copy") do |file|
      schedule do
        a, b = UNIXSocket.pair
        task { 10.times { a.write("x" * 10_000) } }
        assert_equal 100_000, IO.copy_stream(b, file, 100_000)
        file.flush
        assert_equal 100_000, File.size(file.path)
        close_all(a, b)
      end
    end
  end

  def test_copy_stream_from_a_file_to_a_socket
    Tempfile.create("copy") do |file|
      data = Random.bytes(1 << 20)
      file.binmode
      file.write(data)
      file.flush
      schedule do
        a, b = UNIXSocket.pair
        reader = task { b.read }
        assert_equal data.bytesize, IO.copy_stream(file.path, a)
        a.close
        await("reader") { reader.done? }
        assert_bytes data, reader.value
        b.close
      end
    end
  end

  def test_wait_readable_and_wait_writable
    pipe do |r, w|
      assert_same w, w.wait_writable
      feed(w, "x", close: false)
      assert_same r, r.wait_readable
      assert_equal "x", r.readpartial(1)
      assert_nil r.wait_readable(0.01)
      assert_nil r.wait_readable(0)
    end
  end

  def test_wait_writable_on_a_full_pipe
    pipe do |r, w|
      full = fill(w)
      assert_nil w.wait_writable(0.01)
      waiter = task { w.wait_writable }
      sleep 0.001
      refute waiter.done?
      assert_equal full, r.read(full).bytesize
      await("writable") { waiter.done? }
      assert_same w, waiter.value
    end
  end

  def test_wait_with_events_and_timeout
    schedule do
      a, b = UNIXSocket.pair
      both = IO::READABLE | IO::WRITABLE
      assert_equal IO::WRITABLE, events(a.wait(both, 1), a)
      b.write("x")
      assert_equal both, events(a.wait(both, 1), a)
      a.readpartial(1)
      refute a.wait(IO::READABLE, 0.01)
      refute a.wait(0.01)
      task { b.write("y") }
      assert a.wait(5)
      close_all(a, b)
    end
  end

  def test_wait_sees_buffered_data_at_once
    pipe do |r, w|
      w.write("ab\ncd")
      r.gets
      assert r.wait_readable(0)
      assert r.wait(0)
      assert_equal "cd", r.readpartial(10)
    end
  end

  def test_wait_reports_the_end_of_file
    pipe do |r, w|
      task { w.close }
      assert_same r, r.wait_readable
      assert_nil r.read(1)
    end
  end

  def test_read_nonblock_does_not_wait
    pipe do |r, w|
      assert_equal :wait_readable, r.read_nonblock(10, exception: false)
      assert_raises(IO::WaitReadable) { r.read_nonblock(10) }
      w.write("x")
      assert_equal "x", r.read_nonblock(10)
      w.close
      assert_nil r.read_nonblock(10, exception: false)
      assert_raises(EOFError) { r.read_nonblock(10) }
    end
  end

  def test_read_nonblock_with_wait_readable
    pipe do |r, w|
      feed(w, "1", "2", "3")
      seen = +""
      begin
        loop { seen << r.read_nonblock(10) }
      rescue IO::WaitReadable
        r.wait_readable
        retry
      rescue EOFError
        assert_equal "123", seen
      end
    end
  end

  def test_write_nonblock_does_not_wait
    pipe do |r, w|
      full = fill(w)
      assert_equal :wait_writable, w.write_nonblock("x" * 10_000, exception: false)
      assert_raises(IO::WaitWritable) { w.write_nonblock("x" * 10_000) }
      assert_equal full, r.read(full).bytesize
      assert_equal 1, w.write_nonblock("x")
    end
  end

  def test_accept_nonblock_and_recv_nonblock_do_not_wait
    schedule do
      server = TCPServer.new("127.0.0.1", 0)
      assert_equal :wait_readable, server.accept_nonblock(exception: false)
      a, b = UNIXSocket.pair
      assert_equal :wait_readable, a.recv_nonblock(1, exception: false)
      assert_raises(IO::WaitReadable) { a.recv_nonblock(1) }
      close_all(server, a, b)
    end
  end

  def test_select_finds_what_is_ready
    pipe do |r, w|
      assert_equal [[], [w], []], IO.select([r], [w], [], 1)
      w.write("x")
      assert_equal [[r], [], []], IO.select([r], nil, nil, 1)
      r.readpartial(1)
      assert_nil IO.select([r], nil, nil, 0.01)
      assert_nil IO.select([r], nil, nil, 0)
      assert_nil IO.select(nil, nil, nil, 0.001)
    end
  end

  if RUBY_VERSION >= "3.2" # IO.select has no hook before
    def test_select_lets_others_run
      pipe do |r, w|
        r2, w2 = IO.pipe
        feed(w2, "x", close: false)
        assert_equal [[r2], [], []], IO.select([r, r2])
        w.write("y")
        assert_equal [[r, r2], [w], []], IO.select([r, r2], [w])
        close_all(r2, w2)
      end
    end
  end

  def test_select_raises_for_a_closed_io
    pipe do |r, w|
      w.close
      assert_raises(IOError) { IO.select(nil, [w], nil, 0) }
      assert_equal [[r], [], []], IO.select([r], nil, nil, 1)
    end
  end

  def test_blocking_pipes_are_not_made_nonblocking
    schedule do
      r, w = IO.pipe
      r.nonblock = false
      w.nonblock = false
      reader = task { r.readpartial(10) }
      w.write("x")
      await("reader") { reader.done? }
      assert_equal "x", reader.value
      writer = task { w.write("y" * 200_000) }
      assert_equal 200_000, r.read(200_000).bytesize
      await("writer") { writer.done? }
      refute r.nonblock?, "O_NONBLOCK belongs to everyone who shares the pipe"
      refute w.nonblock?, "O_NONBLOCK belongs to everyone who shares the pipe"
      close_all(r, w)
    end
  end

  if IO.method_defined?(:timeout) # since Ruby 3.2
    def test_timeout_of_an_io
      pipe do |r, w|
        r.timeout = 0.01
        assert_raises(IO::TimeoutError) { r.readpartial(10) }
        assert_raises(IO::TimeoutError) { r.gets }
        w.write("x")
        assert_equal "x", r.readpartial(10)
        w.timeout = 0.01
        assert_raises(IO::TimeoutError) { w.write("y" * 1_000_000) }
        r.read_nonblock(1 << 20)
        r.timeout = nil
        feed(w, "z")
        assert_equal "z", r.read
      end
    end
  end

  def test_stdin_and_stdout_of_a_child
    script = <<~RUBY
      Fiber.set_scheduler(#{PEER ? "Async::Scheduler" : "Eagain::Scheduler"}.new)
      Fiber.schedule { $stdout.puts "a"; $stdout.flush; sleep 0.001; puts "c" }
      Fiber.schedule { print "b", "\n"; $stderr.puts "error" }
    RUBY
    out, err, status = child(script)
    assert status.success?, err
    assert_equal "a\nb\nc\n", out
    assert_equal "error\n", err
  end

  def test_terminal
    require "pty"
    schedule do
      master, slave = PTY.open
      reader = task { slave.gets }
      master.puts("typed")
      await("terminal") { reader.done? }
      assert_equal "typed\n", reader.value
      close_all(master, slave)
    end
  end

  def test_read_and_write_of_buffers
    pipe do |r, w|
      buffer = IO::Buffer.new(8)
      buffer.set_string("abcdefgh")
      read = IO::Buffer.new(8)
      if RUBY_VERSION < "3.2" || INTERFACE < 4
        assert_equal 8, buffer.write(w, 8)
        assert_equal 8, read.read(r, 8)
      else
        assert_equal 8, buffer.write(w, 0, 8)
        assert_equal 8, read.read(r, 0, 8)
      end
      assert_equal "abcdefgh", read.get_string
    end
  end

  INTERFACE = PEER ? 2 : Eagain::Scheduler::INTERFACE_VERSION

  private

  # Fills a pipe; returns how many bytes fit.
  def fill(io)
    total = 0
    while (count = io.write_nonblock("x" * 4096, exception: false)) != :wait_writable
      total += count
    end
    total
  end

  # IO#wait gives the events, or the IO itself before Ruby 3.2 or so.
  def events(result, io)
    return result if result.is_a?(Integer)

    assert_same io, result
    ready = IO.select([io], [io], nil, 0)
    (ready[0].empty? ? 0 : IO::READABLE) | (ready[1].empty? ? 0 : IO::WRITABLE)
  end
end
