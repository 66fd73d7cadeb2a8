# frozen_string_literal: true

require_relative "helper"

# What each thing costs, in system calls, between two marks of a traced child. These are the laws of
# the house: try first, remember, and ask the kernel nothing twice.
class SyscallsTest < EagainTest
  SETUP = <<~RUBY
    require "socket"
    Fiber.set_scheduler(#{PEER ? "Async::Scheduler" : "Eagain::Scheduler"}.new)
  RUBY

  # Traces the body, which runs in a fiber and calls mark twice.
  def trace(body)
    strace("#{SETUP}GC.disable\nFiber.schedule do\n#{body}\nend\nFiber.set_scheduler(nil)\n")
  end

  # How often the kernel may be asked while fibers are runnable: after 64 switches, or a millisecond (being traced is
  # slow), so that I/O does not starve; and once more for each time that nobody was.
  def looks(trace, switches) = (switches / 64) + trace.ms + trace.sleeps + 1

  READING = %i[read readv recvfrom recvmsg preadv2 pread64].freeze
  WRITING = %i[write writev sendto sendmsg pwritev2 pwrite64].freeze

  def assert_only(expected, trace)
    assert_equal expected, trace.work.values.sum, "system calls:\n#{trace}"
  end

  PAIRS = {
    "socket" => "UNIXSocket.pair",
    "pipe" => "IO.pipe",
  }.freeze

  PAIRS.each do |name, pair|
    define_method("test_readpartial_that_finds_data_is_one_call_on_a_#{name}") do
      t = trace(<<~RUBY)
        r, w = #{pair}
        task = Fiber.schedule { r.readpartial(10) }
        w.write("warm"); sleep 0.001
        w.write("data")
        mark
        r.readpartial(10)
        mark
      RUBY
      assert_equal 1, t[*READING], t.to_s
      assert_only 1, t
    end

    define_method("test_first_readpartial_that_finds_data_is_one_call_on_a_#{name}") do
      t = trace(<<~RUBY)
        r, w = #{pair}
        w.write("data")
        mark
        r.readpartial(10)
        mark
      RUBY
      assert_equal 1, t[*READING], t.to_s
      assert_only 1, t
    end

    define_method("test_write_that_finds_room_is_one_call_on_a_#{name}") do
      t = trace(<<~RUBY)
        r, w = #{pair}
        w.sync = true
        w.write("warm")
        mark
        w.write("data")
        mark
      RUBY
      assert_equal 1, t[*WRITING], t.to_s
      assert_only 1, t
    end

    # The attempt that found no room, and the one after the wait.
    define_method("test_write_that_waits_is_two_calls_on_a_#{name}") do
      t = trace(<<~RUBY)
        r, w = #{pair}
        w.sync = true
        begin
          loop { w.write_nonblock("x" * 1024) }
        rescue IO::WaitWritable
        end
        mark
        written = false
        Fiber.schedule { w.write("data"); written = true }
        r.readpartial(1 << 20) until written
        mark
      RUBY
      assert_equal 2, t[*WRITING], t.to_s
    end

    # A round: the reader has found nothing and waits, the other task writes, the reader reads.
    define_method("test_waits_on_a_known_#{name}_register_nothing") do
      t = trace(<<~RUBY)
        r, w = #{pair}
        w.sync = true
        reads = 0
        Fiber.schedule { while r.readpartial(10) != "end" do reads += 1 end }
        round = proc { before = reads; w.write("x"); sleep 0 until reads > before }
        5.times(&round)
        mark
        50.times(&round)
        mark
        w.write("end")
      RUBY
      assert_equal "", t.registering
      assert_equal 50, t[*WRITING], t.to_s
      assert_operator t[*READING], :<=, 100, t.to_s
      assert_operator t[*READING], :>=, (ENV["EAGAIN_BACKEND"] == "io_uring" ? 0 : 50), t.to_s
    end
  end

  def test_gets_that_finds_a_line_is_one_call
    t = trace(<<~RUBY)
      a, b = UNIXSocket.pair
      b.puts("warm"); a.gets
      b.puts("line")
      mark
      a.gets
      mark
    RUBY
    assert_only 1, t
  end

  # tmpfs refuses RWF_NOWAIT, and needs no thread.
  def test_a_read_of_a_file_in_memory_is_one_call
    skip "no tmpfs at /dev/shm" unless File.read("/proc/mounts").match?(%r{ /dev/shm tmpfs })
    t = trace(<<~RUBY)
      require "tempfile"
      Tempfile.create("eagain", "/dev/shm") do |file|
        file.write("0123456789" * 10)
        file.flush
        file.rewind
        2.times { file.pread(10, 0); file.readpartial(10) }
        buffer = +""
        mark
        10.times { |i| file.pread(10, i * 10, buffer) == "0123456789" or raise }
        3.times { file.readpartial(10) == "0123456789" or raise }
        mark
        begin
          file.pread(1, 1000)
          raise "not the end"
        rescue EOFError
        end
      end
    RUBY
    assert_equal 10, t[:pread64], t.to_s
    assert_equal 13, t[*READING], t.to_s
    assert_only 13, t
  end

  def test_waits_of_a_hundred_known_sockets_register_nothing
    t = trace(<<~RUBY)
      pairs = Array.new(100) { UNIXSocket.pair }
      reads = 0
      pairs.each { |a, _| Fiber.schedule { reads += 1 while a.readpartial(10) != "end" } }
      round = proc { before = reads; pairs.each { |_, b| b.write("x") }; sleep 0 until reads == before + 100 }
      2.times(&round)
      mark
      5.times(&round)
      mark
      pairs.each { |_, b| b.write("end") }
    RUBY
    assert_equal "", t.registering
    assert_operator t[*READING], :<=, 1000, t.to_s
    assert_operator t.waits, :<=, 100, t.to_s
  end

  def test_a_wait_between_processes_is_one_read_and_one_wait
    t = trace(<<~RUBY)
      mine, theirs = UNIXSocket.pair
      pid = fork { mine.close; while (x = theirs.read(1)) do theirs.write(x) end; exit!(0) }
      theirs.close
      round = proc { mine.write("x"); mine.readpartial(1) }
      5.times(&round)
      mark
      20.times(&round)
      mark
      mine.close
      Process.wait(pid)
    RUBY
    assert_equal "", t.registering
    assert_equal 20, t[*WRITING], t.to_s
    assert_operator t[*READING], :<=, 40, t.to_s
    assert_operator t.waits, :<=, 40, t.to_s
  end

  def test_falling_asleep_costs_no_call_per_sleeper
    t = trace(<<~RUBY)
      10.times { Fiber.schedule { sleep 0.001 } }
      sleep 0.01
      mark
      1000.times { Fiber.schedule { sleep 0.1 } }
      mark
    RUBY
    # Looks at the kernel come with switches and milliseconds, not with sleepers; the rest is Ruby's memory.
    assert_operator t.work.values.sum - t.waits, :<=, 20, t.to_s
    assert_operator t.waits, :<=, looks(t, 2 * 1000), t.to_s
    assert_equal 0, t[:timerfd_settime, :timer_settime, :epoll_ctl], t.to_s
  end

  def test_a_thousand_sleepers_cost_one_wait
    t = trace(<<~RUBY)
      woken = 0
      finish = Process.clock_gettime(Process::CLOCK_MONOTONIC) + 2
      rest = proc { finish - Process.clock_gettime(Process::CLOCK_MONOTONIC) }
      1000.times { Fiber.schedule { sleep rest.call; woken += 1 } }
      mark
      sleep rest.call + 0.01
      mark
      raise "woken: \#{woken}" unless woken == 1000
    RUBY
    # One for the thousand, one for the task that counts; another for a clock that ends a wait early.
    assert_operator t.sleeps, :<=, 4, t.to_s
    assert_operator t.waits, :<=, looks(t, 3 * 1000), t.to_s
    assert_equal 0, t[:epoll_ctl, :timerfd_settime], t.to_s
  end

  def test_queues_and_mutexes_between_fibers_cost_no_call
    t = trace(<<~RUBY)
      there, back, mutex = Queue.new, Queue.new, Mutex.new
      Fiber.schedule { while there.pop do back << 1 end }
      round = proc { there << 1; back.pop; mutex.synchronize { sleep 0 } }
      5.times(&round)
      mark
      20.times(&round)
      mark
      there << nil
    RUBY
    assert_equal 0, t[:epoll_ctl, :read, :write, :fcntl], t.to_s
  end

  def test_many_wake_ups_from_a_thread_are_few_writes
    t = trace(<<~RUBY)
      queue, go = Queue.new, Queue.new
      Thread.new { go.pop; 500.times { |i| queue << i } }
      sleep 0.01
      mark
      go << true
      500.times { queue.pop }
      mark
    RUBY
    writes = t.others.count { |line| line.match?(/ write\(\d+, "\\1\\0\\0\\0\\0\\0\\0\\0", 8\)/) }
    assert_operator writes, :<=, 500, t.others.first(50).join
    assert_equal 0, t[:epoll_ctl], t.to_s
  end

  def test_timeouts_that_do_not_expire_cost_no_call
    t = trace(<<~RUBY)
      require "timeout"
      Timeout.timeout(1) { sleep 0 }
      mark
      100.times { Timeout.timeout(10) { 1 } }
      mark
    RUBY
    assert_only 0, t
  end

  def test_accept_and_connect_do_not_change_modes
    t = trace(<<~RUBY)
      server = TCPServer.new("127.0.0.1", 0)
      port = server.local_address.ip_port
      served = 0
      Fiber.schedule { 12.times { server.accept.close; served += 1 } }
      connect = proc { c = TCPSocket.new("127.0.0.1", port); c.close }
      2.times(&connect)
      sleep 0.001 until served == 2
      mark
      10.times(&connect)
      sleep 0.001 until served == 12
      mark
    RUBY
    set_flags = t.lines.grep(/fcntl\(\d+, F_SETFL/)
    assert_empty set_flags, t.to_s
  end

  def test_standard_streams_keep_their_mode
    log = trace(<<~RUBY)
      r, w = IO.pipe
      mark
      pid = spawn("cat", in: r, out: File::NULL)
      w.close
      r.close
      Process.wait(pid)
      $stderr.write("")
      $stdout.write("\n")
      $stdout.flush
      mark
    RUBY
    assert_empty log.lines.grep(/fcntl\([012], F_SETFL/), log.to_s
  end
end
