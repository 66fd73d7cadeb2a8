# frozen_string_literal: true

require_relative "helper"

# Fibers, enumerators, exceptions and storage inside tasks.
class FibersTest < EagainTest
  class Mine < StandardError; end

  def test_schedule_runs_the_block_at_once
    order = []
    schedule do
      order << 1
      task { order << 2 }
      order << 3
    end
    assert_equal [1, 2, 3], order
  end

  def test_schedule_returns_a_nonblocking_fiber
    schedule do
      inside = nil
      fiber = Fiber.schedule { inside = Fiber.current.blocking? }
      assert_kind_of Fiber, fiber
      assert_equal false, inside
    end
  end

  def test_everything_that_was_scheduled_runs_to_its_end
    done = 0
    schedule do
      100.times do |i|
        task do
          sleep 0.001 * (i % 5)
          task do
            sleep 0.001
            done += 1
          end
        end
      end
    end
    assert_equal 100, done
  end

  def test_fibers_nested_in_a_task_may_block
    schedule do
      r, w = IO.pipe
      fiber = Fiber.new do
        sleep 0.001
        Fiber.yield :slept
        Fiber.yield r.readpartial(10)
        inner = Fiber.new { r.readpartial(10) }
        inner.resume
      end
      assert_equal :slept, fiber.resume
      task { w.write("one") }
      assert_equal "one", fiber.resume
      task do
        sleep 0.001
        w.write("two")
      end
      assert_equal "two", fiber.resume
      refute fiber.alive?
      close_all(r, w)
    end
  end

  def test_nested_fibers_of_many_tasks
    schedule do
      jobs = Array.new(50) do |i|
        task do
          fiber = Fiber.new do
            5.times do |n|
              sleep 0.001
              Fiber.yield [i, n]
            end
            :end
          end
          Array.new(6) { fiber.resume }
        end
      end
      await("all") { jobs.all?(&:done?) }
      jobs.each_with_index { |job, i| assert_equal Array.new(5) { |n| [i, n] } + [:end], job.value }
    end
  end

  def test_blocking_fibers_block_the_thread_as_asked
    schedule do
      other = 0
      task do
        5.times do
          other += 1
          sleep 0
        end
      end
      before = other
      Fiber.new(blocking: true) { sleep 0.01 }.resume
      assert_equal before, other
    end
  end

  def test_external_enumerators
    schedule do
      numbers = Enumerator.new do |y|
        3.times do |i|
          sleep 0.001
          y << i
        end
      end
      assert_equal [0, 1, 2], (Array.new(3) { numbers.next })
      assert_raises(StopIteration) { numbers.next }
      numbers.rewind
      assert_equal 0, numbers.peek
      assert_equal [0, 0], numbers.zip(numbers).first
    end
  end

  def test_external_enumerators_of_many_tasks
    schedule do
      jobs = Array.new(30) do |i|
        task do
          letters = Enumerator.new { |y| 10.times { |n| y << [i, n] } }
          Array.new(10) do
            sleep 0
            letters.next
          end
        end
      end
      await("all") { jobs.all?(&:done?) }
      jobs.each_with_index { |job, i| assert_equal Array.new(10) { |n| [i, n] }, job.value }
    end
  end

  def test_external_enumerator_over_io
    schedule do
      r, w = IO.pipe
      lines = r.each_line
      writer = Thread.new do
        3.times { |i| w.puts(i) }
        w.close
      end
      assert_equal %w[0 1 2], (Array.new(3) { lines.next.chomp })
      assert_raises(StopIteration) { lines.next }
      writer.join
      r.close
    end
  end

  def test_fiber_raise_reaches_a_sleeping_task_and_the_raiser_goes_on
    schedule do
      sleeper = task { assert_raises(Mine) { sleep } }
      sleeper.fiber.raise(Mine)
      await("sleeper") { sleeper.done? }
      sleep 0.001
    end
  end

  def test_fiber_raise_reaches_a_task_that_waits_for_io
    schedule do
      r, w = IO.pipe
      reader = task { assert_raises(Mine) { r.readpartial(1) } }
      reader.fiber.raise(Mine, "reason")
      await("reader") { reader.done? }
      assert_equal "reason", reader.value.message
      w.write("x")
      assert_equal "x", r.readpartial(1)
      close_all(r, w)
    end
  end

  def test_fiber_raise_that_is_rescued_lets_the_task_wait_again
    schedule do
      queue = Queue.new
      job = task do
        begin
          queue.pop
        rescue Mine
          nil
        end
        sleep 0.001
        queue.pop
      end
      job.fiber.raise(Mine)
      queue << :item
      await("job") { job.done? }
      assert_equal :item, job.value
    end
  end

  if Fiber.method_defined?(:kill) # since Ruby 3.3
    def test_fiber_kill_runs_ensure
      schedule do
        ensured = false
        sleeper = Fiber.schedule do
          sleep
        ensure
          ensured = true
        end
        sleeper.kill
        await("ensure") { ensured }
        refute sleeper.alive?
        sleep 0.001
      end
    end
  end

  def test_exception_of_a_scheduled_fiber_is_raised_by_run
    only_ours
    thread = Thread.new do
      Thread.current.report_on_exception = false
      scheduler = Eagain::Scheduler.new
      Fiber.set_scheduler(scheduler)
      Fiber.schedule do
        sleep 0.001
        raise Mine, "late"
      end
      seen = begin
        scheduler.run
      rescue Mine => e
        e.message
      end
      Fiber.set_scheduler(nil)
      seen
    end
    assert_equal "late", watch(thread, PATIENCE)
  end

  def test_run_can_go_on_after_an_exception
    only_ours
    finished = 0
    thread = Thread.new do
      Thread.current.report_on_exception = false
      scheduler = Eagain::Scheduler.new
      Fiber.set_scheduler(scheduler)
      3.times { Fiber.schedule { sleep 0.001; raise Mine } }
      3.times { Fiber.schedule { sleep 0.003; finished += 1 } }
      failures = 0
      begin
        scheduler.run
      rescue Mine
        failures += 1
        retry
      end
      Fiber.set_scheduler(nil)
      failures
    end
    assert_equal 3, watch(thread, PATIENCE)
    assert_equal 3, finished
  end

  def test_exception_before_the_first_wait
    only_ours
    thread = Thread.new do
      Thread.current.report_on_exception = false
      Fiber.set_scheduler(Eagain::Scheduler.new)
      begin
        Fiber.schedule { raise Mine }
        Fiber.scheduler.run
        :none
      rescue Mine
        :raised
      ensure
        Fiber.set_scheduler(nil)
      end
    end
    assert_equal :raised, watch(thread, PATIENCE)
  end

  def test_throw_and_break_do_not_leave_a_fiber
    schedule do
      job = task { assert_raises(UncaughtThrowError) { throw :nowhere } }
      assert job.done?
    end
  end

  def test_fiber_locals_are_of_the_fiber
    schedule do
      Thread.current[:x] = :outer
      job = task do
        inner = Thread.current[:x]
        Thread.current[:x] = :inner
        sleep 0.001
        [inner, Thread.current[:x]]
      end
      await("job") { job.done? }
      assert_equal [nil, :inner], job.value
      assert_equal :outer, Thread.current[:x]
    end
  end

  if Fiber.respond_to?(:[]) # since Ruby 3.2
    def test_fiber_storage_is_inherited
      schedule do
        Fiber[:request] = 1
        job = task do
          seen = Fiber[:request]
          Fiber[:request] = 2
          sleep 0.001
          [seen, Fiber[:request]]
        end
        await("job") { job.done? }
        assert_equal [1, 2], job.value
        assert_equal 1, Fiber[:request]
      end
    end
  end

  def test_backtrace_of_an_exception_names_the_task
    schedule do
      job = task do
        sleep 0.001
        begin
          raise Mine
        rescue Mine => e
          e.backtrace.first
        end
      end
      await("job") { job.done? }
      assert_includes job.value, File.basename(__FILE__)
    end
  end

  def test_deep_stacks_survive_switches
    depth = lambda do |n|
      next sleep(0.001) if n.zero?

      depth.call(n - 1)
    end
    schedule do
      jobs = Array.new(10) { task { depth.call(300) } }
      await("all") { jobs.all?(&:done?) }
    end
  end

  def test_current_scheduler
    schedule do
      assert_same Fiber.scheduler, Fiber.current_scheduler
      Fiber.new(blocking: true) { assert_nil Fiber.current_scheduler }.resume
    end
    assert_nil Fiber.scheduler
  end
end
