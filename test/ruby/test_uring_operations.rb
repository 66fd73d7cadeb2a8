# frozen_string_literal: true

require_relative "helper"
require "etc"
require "timeout"

# Reads that the kernel carries out while their task sleeps (docs/decisions/io_uring.md). Nobody may notice, least of all
# by missing a byte.
class UringOperationsTest < EagainTest
  Mine = Class.new(StandardError)
  KINDS = { socket: -> { UNIXSocket.pair }, pipe: -> { IO.pipe } }.freeze

  def setup
    only_ours
    error = uring_error
    skip "no io_uring here: #{error.message}" if error
  end

  def uring(&block)
    schedule(scheduler: Eagain::Scheduler.new(backend: "io_uring"), &block)
  end

  # After this many reads that found nothing at first, the next ones are not tried any more.
  ROUNDS = 4

  # Reads that had to wait: from here on the kernel reads.
  def learn(reader, writer)
    seen = 0
    learner = task { ROUNDS.times { seen += reader.readpartial(1).size } }
    ROUNDS.times do |i|
      sleep 0.001
      writer.write("x")
      await { seen > i }
    end
    await { learner.done? }
  end

  # A pair whose reads are the kernel's, for each kind of descriptor.
  def each_kind
    KINDS.each_value do |make|
      reader, writer = make.call
      writer.sync = true
      learn(reader, writer)
      yield reader, writer
      close_all(reader, writer)
    end
  end

  def at_once(io) = io.read_nonblock(100, exception: false)

  def test_a_message_is_a_write_and_a_share_of_a_turn
    KINDS.each_key do |kind|
      t = strace(<<~RUBY)
        require "socket"
        Fiber.set_scheduler(Eagain::Scheduler.new(backend: "io_uring"))
        GC.disable
        Fiber.schedule do
          pairs = Array.new(100) { #{kind == :pipe ? "IO.pipe" : "UNIXSocket.pair"} }
          reads = 0
          pairs.each { |a, _| Fiber.schedule { reads += 1 while a.readpartial(10) != "end" } }
          round = proc { before = reads; pairs.each { |_, b| b.syswrite("x") }; sleep 0 until reads == before + 100 }
          4.times(&round)
          mark
          20.times(&round)
          mark
          pairs.each { |_, b| b.syswrite("end") }
        end
        Fiber.set_scheduler(nil)
      RUBY
      calls = t.work.values.sum
      assert_operator calls, :>=, 2000, "#{kind}: #{t.counts}" # the writes
      assert_operator calls, :<=, 2500, "#{kind}: #{t.counts}" # with epoll 6,000
    end
  end

  def test_an_end_of_file_and_a_reset
    uring do
      each_kind do |reader, writer|
        read = task { reader.read(1) }
        sleep 0.001
        writer.close
        await { read.done? }
        assert_nil read.value
      end
      a, b = tcp_pair
      learn(a, b)
      read = task do
        a.readpartial(1)
      rescue SystemCallError => error
        error.class
      end
      sleep 0.001
      b.setsockopt(:SOCKET, :LINGER, [1, 0].pack("ii"))
      b.close
      await { read.done? }
      assert_equal Errno::ECONNRESET, read.value
    end
  end

  def test_more_than_a_buffer
    uring do
      each_kind do |reader, writer|
        text = Random.bytes(10_000)
        read = task { reader.read(10_000) }
        sleep 0.001
        writer.write(text)
        await { read.done? }
        assert_bytes text, read.value
      end
    end
  end

  # What ends a wait, before anything has come: what comes after is for the next read.
  def test_interrupted_before_there_is_anything
    ways = {
      "Timeout" => ->(io) { assert_raises(Timeout::Error) { Timeout.timeout(0.002) { io.readpartial(1) } } },
      "Scheduler#raise" => lambda do |io|
        reader = task { assert_raises(Mine) { io.readpartial(1) } }
        sleep 0.001
        Fiber.scheduler.raise(reader.fiber, Mine.new)
        await { reader.done? }
      end,
      "Fiber#raise" => lambda do |io|
        reader = task { assert_raises(Mine) { io.readpartial(1) } }
        sleep 0.001
        reader.fiber.raise(Mine)
        await { reader.done? }
      end,
    }
    uring do
      each_kind do |reader, writer|
        ways.each do |name, way|
          3.times { way.call(reader) }
          writer.write(name)
          assert_equal name, at_once(reader)
        end
      end
    end
  end

  # Both have been given something, in the same turn, when the first one that runs raises in the other.
  def test_raised_in_after_bytes_have_come
    uring do
      each_kind do |reader, writer|
        other, other_writer = UNIXSocket.pair
        learn(other, other_writer)
        second = nil
        first = task do
          other.readpartial(1)
          second.fiber.raise(Mine)
        end
        second = task do
          assert_raises(Mine) { reader.readpartial(3) }
          [reader.read_nonblock(1), reader.readpartial(100)]
        end
        sleep 0.001
        together([other_writer, "x"], [writer, "abc"])
        await { first.done? && second.done? }
        assert_equal %w[a bc], second.value
        close_all(other, other_writer)
      end
    end
  end

  # Writes so that nobody runs in between: both are told of in the same turn.
  def together(*writes) = writes.each { |writer, text| Eagain.trywrite(writer, text) }

  # The same by way of the scheduler: the read has succeeded, and the next wait raises.
  def test_cancelled_after_bytes_have_come
    uring do
      each_kind do |reader, writer|
        other, other_writer = UNIXSocket.pair
        learn(other, other_writer)
        second = read = nil
        first = task do
          other.readpartial(1)
          Fiber.scheduler.raise(second.fiber, Mine.new)
        end
        second = task do
          read = reader.readpartial(3)
          assert_raises(Mine) { sleep }
          :raised
        end
        sleep 0.001
        together([other_writer, "x"], [writer, "abc"])
        await { first.done? && second.done? }
        assert_equal ["abc", :raised], [read, second.value]
        close_all(other, other_writer)
      end
    end
  end

  def test_killed_after_bytes_have_come
    skip "no Fiber#kill before Ruby 3.3" unless Fiber.method_defined?(:kill)
    uring do
      each_kind do |reader, writer|
        other, other_writer = UNIXSocket.pair
        learn(other, other_writer)
        second = nil
        first = task do
          other.readpartial(1)
          second.fiber.kill
        end
        second = task { reader.readpartial(3) }
        sleep 0.001
        together([other_writer, "x"], [writer, "abc"])
        await { first.done? && second.done? }
        assert_equal "abc", at_once(reader)
        close_all(other, other_writer)
      end
    end
  end

  # A request holds its file.
  def test_closed_in_mid_read
    uring do
      each_kind do |reader, writer|
        read = task { assert_raises(IOError) { reader.readpartial(1) } }
        sleep 0.001
        reader.close
        await { read.done? }
        assert_raises(Errno::EPIPE) { writer.write("x") }
      end
    end
  end

  def test_closed_after_a_read_that_timed_out
    uring do
      a, b = UNIXSocket.pair
      learn(a, b)
      assert_raises(Timeout::Error) { Timeout.timeout(0.002) { a.readpartial(1) } }
      a.close
      assert_nil b.read_nonblock(1, exception: false)
    end
  end

  def test_io_timeout
    skip "no IO#timeout before Ruby 3.2" unless IO.method_defined?(:timeout=)
    uring do
      each_kind do |reader, writer|
        reader.timeout = 0.002
        3.times { assert_raises(IO::TimeoutError) { reader.readpartial(1) } }
        writer.write("late")
        assert_equal "late", reader.readpartial(100)
      end
    end
  end

  def test_thread_raise_in_mid_read
    a, b = UNIXSocket.pair
    raised = 0
    read = nil
    body = proc do
      Fiber.set_scheduler(Eagain::Scheduler.new(backend: "io_uring"))
      Fiber.schedule { read = Array.new(200) { a.readpartial(1) }.join }
      begin
        Thread.handle_interrupt(Mine => :immediate) { Fiber.scheduler.run }
      rescue Mine
        raised += 1
        retry
      end
      Fiber.set_scheduler(nil)
    end
    thread = Thread.handle_interrupt(Mine => :never) { Thread.new(&body) } # it inherits that
    200.times do |i|
      thread.raise(Mine) if i % 3 == 0
      b.write("x")
      Thread.pass
    end
    watch(thread, PATIENCE)
    assert_equal "x" * 200, read
    assert_operator raised, :>, 0
  ensure
    close_all(a, b)
  end

  # Counted streams, and whatever may end a read at any moment, above all when bytes have come and the reader has
  # not run yet: each byte arrives once, and in its place.
  def test_no_byte_is_lost
    random = Random.new(seed)
    interrupted = Hash.new(0)
    uring do
      streams = Array.new(8) { |i| Stream.new(*KINDS.values[i % 2].call, random) }
      streams.each do |stream|
        stream.reading = task do
          until stream.complete?
            begin
              stream.read
              streams.sample(random: random).interrupt if random.rand(4) == 0
            rescue Timeout::Error, Mine => error
              interrupted[error.class] += 1
            end
          end
        end
      end
      writing = streams.map { |stream| task { stream.write } }
      until streams.all? { |stream| stream.reading.done? }
        sleep random.rand * 0.0005
        streams.sample(random: random).interrupt
      end
      await { writing.all?(&:done?) }
      streams.each { |stream| assert_bytes Stream::BYTES, stream.got }
    end
    assert_operator interrupted[Mine], :>, 10, interrupted.to_s
    assert_operator interrupted[Timeout::Error], :>, 10, interrupted.to_s
  end

  # One that is read in pieces of any size, now with a time limit, now without waiting.
  class Stream
    TOTAL = 50_000
    BYTES = Array.new(TOTAL) { |i| (i * 7 + i / 256) & 255 }.pack("C*")

    attr_reader :got
    attr_accessor :reading

    def initialize(reader, writer, random)
      @reader = reader
      @writer = writer
      @writer.sync = true
      @random = random
      @got = String.new
      @waits = false
    end

    def complete? = @got.size >= TOTAL

    def read
      size = 1 + @random.rand(300)
      case @random.rand(5)
      when 0 then Timeout.timeout(@random.rand * 0.0005) { waiting { @reader.readpartial(size) } }
      when 1 then add(@reader.read_nonblock(size, exception: false))
      else waiting { @reader.readpartial(size) }
      end
    end

    # Only where it waits: anywhere else it would come between the read and what is done with it.
    def interrupt
      return unless @waits

      @random.rand(2) == 0 ? @reading.fiber.raise(Mine) : Fiber.scheduler.raise(@reading.fiber, Mine.new)
    end

    def write
      sent = 0
      while sent < TOTAL
        sent += @writer.write(BYTES.byteslice(sent, 1 + @random.rand(200)))
        @random.rand(3) == 0 ? sleep(@random.rand * 0.0005) : sleep(0)
      end
    end

    private

    def waiting
      @waits = true
      some = yield
      @waits = false
      add(some)
    ensure
      @waits = false
    end

    def add(some)
      @got << some if some.is_a?(String)
    end
  end

  def test_under_gc_stress_and_compaction
    uring do
      each_kind do |reader, writer|
        got = String.new
        reading = task { got << reader.readpartial(100) while got.size < 300 }
        begin
          GC.stress = true
          10.times { |i| writer.write("0123456789") and sleep(i.even? ? 0.001 : 0) }
        ensure
          GC.stress = false
        end
        20.times do
          GC.respond_to?(:compact) ? GC.compact : GC.start
          writer.write("0123456789")
          sleep 0.001
        rescue NotImplementedError
          GC.start
        end
        await { reading.done? }
        assert_equal "0123456789" * 30, got
      end
    end
  end

  def test_fork_in_mid_read
    out = output_of(<<~RUBY)
      require "socket"
      Fiber.set_scheduler(Eagain::Scheduler.new(backend: "io_uring"))
      a, b = UNIXSocket.pair
      c, d = UNIXSocket.pair
      Fiber.schedule { puts "parent: \#{a.readpartial(1)}" while a.wait_readable && !a.eof? }
      read = []
      Fiber.schedule { read << c.readpartial(1) while read.size < 12 }
      Fiber.schedule do
        5.times { sleep 0.001; d.write("x") }
        sleep 0.001 # in mid-read
        pid = fork do
          e, f = UNIXSocket.pair
          seen = 0
          Fiber.schedule { seen += e.readpartial(1).size while seen < 5 }
          5.times { sleep 0.001; f.write("y") }
          sleep 0.001 until seen == 5
          puts "child: \#{seen}"
        end
        Process.wait(pid)
        7.times { d.write("z"); sleep 0.001 }
        b.write("p")
        b.close
      end
      Fiber.set_scheduler(nil)
      puts read.join
    RUBY
    assert_equal "child: 5\nparent: p\nxxxxxzzzzzzz\n", out
  end

  # What an exception left behind is let go of with the scheduler.
  def test_abandoned_in_mid_read
    out = output_of(<<~RUBY)
      require "socket"
      a, b = UNIXSocket.pair
      thread = Thread.new do
        Thread.current.report_on_exception = false
        Fiber.set_scheduler(Eagain::Scheduler.new(backend: "io_uring"))
        Fiber.schedule { a.readpartial(1) while true }
        Fiber.schedule { 5.times { sleep 0.001; b.write("x") }; sleep 0.005; raise IndexError }
        Fiber.set_scheduler(nil)
      end
      puts((thread.join rescue $!.class))
      a.close
      puts b.read_nonblock(1, exception: false).inspect
      3.times { GC.start }
    RUBY
    assert_equal "IndexError\nnil\n", out
  end

  # Any child, or one of a group (of its own here, as other tests have children): nothing else can wait for these but a thread.
  def test_a_child_of_a_group_is_waited_for_without_a_thread
    r, w = IO.pipe
    pid, waited, threads = uring do
      pid = spawn("read x; exit 3", in: r, pgroup: true)
      before = Thread.list.size
      waiting = task { Process.wait2(-pid) }
      sleep 0.005
      threads = Thread.list.size - before
      w.close
      await { waiting.done? }
      [pid, waiting.value, threads]
    end
    assert_equal pid, waited[0]
    assert_equal 3, waited[1].exitstatus
    skip "this kernel has no IORING_OP_WAITID (6.7)" if threads > 0 && Etc.uname[:release].to_f < 6.7
    assert_equal 0, threads
  ensure
    r.close
  end

  # What is not in the page cache. The kernel's own readahead may bring some of it in meanwhile.
  def test_a_cold_file_is_read_without_a_thread
    text = Random.bytes(3_000_000)
    Tempfile.create("cold", ROOT) do |file|
      file.binmode
      file.write(text)
      file.fsync
      file.advise(:dontneed)
      file.rewind
      read = offloaded = nil
      uring do
        read = String.new
        while (some = file.read(100_000))
          read << some
        end
        offloaded = Fiber.scheduler.stats[:offloaded]
      end
      assert_bytes text, read
      assert_equal 0, offloaded
    end
  end
end
