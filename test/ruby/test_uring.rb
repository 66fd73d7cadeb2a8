# frozen_string_literal: true

require_relative "helper"

# Waiting with io_uring. Its requests hold files, which nobody may notice: a close is a close, whoever waits.
class UringTest < EagainTest
  def setup
    only_ours
    error = uring_error
    skip "no io_uring here: #{error.message}" if error
  end

  def uring(&block)
    schedule(scheduler: Eagain::Scheduler.new(backend: "io_uring"), &block)
  end

  # What the other end reads at once, without a turn of the loop in between.
  def at_once(io) = io.read_nonblock(1, exception: false)

  def test_closed_after_a_wait_that_found_something
    uring do
      a, b = UNIXSocket.pair
      reader = task { a.readpartial(1) }
      sleep 0.001
      b.write("x")
      await { reader.done? }
      a.close
      assert_nil at_once(b)
    end
  end

  def test_closed_after_a_wait_that_timed_out
    uring do
      a, b = UNIXSocket.pair
      assert_nil a.wait_readable(0.005)
      a.close
      assert_nil at_once(b)
    end
  end

  def test_closed_after_a_wait_that_was_interrupted
    uring do
      a, b = UNIXSocket.pair
      seen = nil
      reader = task do
        a.readpartial(1)
      rescue IndexError
        a.close
        seen = at_once(b)
      end
      sleep 0.001
      Fiber.scheduler.raise(reader.fiber, IndexError.new)
      seen = :nothing
      await { reader.done? }
      assert_nil seen
    end
  end

  def test_closed_after_select
    uring do
      a, b = UNIXSocket.pair
      c, d = UNIXSocket.pair
      d.write("x")
      selected = task { IO.select([a, c]) }
      await { selected.done? }
      a.close
      assert_nil b.read(1)
      close_all(b, c, d)
    end
  end

  # Ruby tells us nothing: the wait is found to be void before the loop sleeps.
  def test_closed_by_another_task_in_mid_wait
    uring do
      a, b = UNIXSocket.pair
      reader = task do
        a.readpartial(1)
      rescue IOError
        :closed
      end
      sleep 0.001
      a.close
      assert_nil b.read(1)
      await { reader.done? }
      assert_equal :closed, reader.value
    end
  end

  def test_nothing_is_held_when_the_scheduler_is_closed
    a, b = UNIXSocket.pair
    Thread.new do
      Thread.current.report_on_exception = false
      Fiber.set_scheduler(Eagain::Scheduler.new(backend: "io_uring"))
      Fiber.schedule { a.readpartial(1) }
      Fiber.schedule { sleep 0.001 and raise IndexError }
      Fiber.set_scheduler(nil)
    end.join
  rescue IndexError
    a.close
    assert_nil at_once(b)
  end

  # One that is never closed holds a ring, and what waits on it, until the garbage collector finds it.
  def test_schedulers_that_are_collected_leave_no_descriptor
    out = output_of(<<~RUBY)
      count = -> { GC.start; Dir.children("/proc/self/fd").size }
      make = -> { 50.times { Eagain::Scheduler.new(backend: "io_uring") }; nil }
      make.call
      before = count.call
      3.times { make.call }
      puts count.call - before < 100
    RUBY
    assert_equal "true\n", out
  end

  def test_made_in_one_thread_and_run_in_another
    scheduler = Eagain::Scheduler.new(backend: "io_uring")
    a, b = UNIXSocket.pair
    read = nil
    watch(Thread.new do
      Fiber.set_scheduler(scheduler)
      Fiber.schedule { read = a.readpartial(5) }
      Fiber.schedule { sleep 0.001 and b.write("hello") }
      Fiber.set_scheduler(nil)
    end, PATIENCE)
    assert_equal "hello", read
  ensure
    close_all(a, b)
  end

  def test_fork_in_mid_wait
    out = output_of(<<~RUBY)
      require "socket"
      a, b = UNIXSocket.pair
      c, d = UNIXSocket.pair
      Fiber.set_scheduler(Eagain::Scheduler.new(backend: "io_uring"))
      Fiber.schedule { puts "parent: \#{a.readpartial(1)}" }
      Fiber.schedule do
        sleep 0.001
        pid = fork do
          Fiber.schedule { sleep 0.001 and d.write("c") }
          puts "child: \#{c.readpartial(1)}"
        end
        Process.wait(pid)
        b.write("p")
      end
      Fiber.set_scheduler(nil)
    RUBY
    assert_equal "child: c\nparent: p\n", out
  end

  # A wait has no system call of its own: in each round the reader finds nothing, waits, and finds something.
  def test_waits_ride_on_the_turns
    t = strace(<<~RUBY)
      require "socket"
      Fiber.set_scheduler(Eagain::Scheduler.new(backend: "io_uring"))
      GC.disable
      Fiber.schedule do
        pairs = Array.new(100) { UNIXSocket.pair }
        reads = 0
        pairs.each { |a, _| Fiber.schedule { reads += 1 while a.readpartial(10) != "end" } }
        round = proc { before = reads; pairs.each { |_, b| b.write("x") }; sleep 0 until reads == before + 100 }
        2.times(&round)
        mark
        10.times(&round)
        mark
        pairs.each { |_, b| b.write("end") }
      end
      Fiber.set_scheduler(nil)
    RUBY
    assert_equal "", t.registering
    assert_operator t[:io_uring_enter], :<=, 200, t.to_s # for 1,000 waits
    assert_operator t[:io_uring_enter], :>=, 10, t.to_s
    assert_equal 0, t[:epoll_wait, :epoll_pwait2, :io_uring_setup, :io_uring_register], t.to_s
  end

  # To look whether something happened, while others are runnable, is to look into memory.
  def test_looks_cost_no_call
    t = strace(<<~RUBY)
      Fiber.set_scheduler(Eagain::Scheduler.new(backend: "io_uring"))
      GC.disable
      r, w = IO.pipe
      Fiber.schedule { r.read(1) }
      Fiber.schedule do
        10.times { sleep 0 }
        mark
        1000.times { sleep 0 }
        mark
        w.write("x")
      end
      Fiber.set_scheduler(nil)
    RUBY
    assert_equal 0, t[:io_uring_enter], t.to_s
  end
end
