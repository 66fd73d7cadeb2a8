# frozen_string_literal: true

require_relative "helper"

# Eagain::Scheduler beyond the hooks: its life, push, yield, raise, run, stats and backends.
class SchedulerTest < EagainTest
  class Mine < StandardError; end

  def setup
    only_ours
  end

  # Runs the block in a new thread with a scheduler that is set.
  def thread_with_scheduler(**options)
    thread = Thread.new do
      Thread.current.report_on_exception = false
      scheduler = Eagain::Scheduler.new(**options)
      Fiber.set_scheduler(scheduler)
      result = yield scheduler
      Fiber.set_scheduler(nil)
      result
    end
    watch(thread, PATIENCE)
  end

  def test_every_backend
    assert_includes Eagain::BACKENDS, "poll"
    backends.each do |name|
      text = nil
      assert_equal name, (thread_with_scheduler(backend: name) do |scheduler|
        r, w = IO.pipe
        Fiber.schedule { text = r.read }
        Fiber.schedule do
          10.times do
            w.write("x")
            sleep 0.001
          end
          w.close
        end
        scheduler.backend
      end)
      assert_equal "x" * 10, text
    end
  end

  def test_backend_that_is_not_there
    assert_raises(ArgumentError) { Eagain::Scheduler.new(backend: "no such backend") }
  end

  def test_backend_from_the_environment
    assert_child "poll\n", "puts Eagain::Scheduler.new.backend", env: { "EAGAIN_BACKEND" => "poll" }
    _, err, status = child("Eagain::Scheduler.new", env: { "EAGAIN_BACKEND" => "nonsense" })
    refute status.success?
    assert_match(/nonsense|EAGAIN_BACKEND/, err)
  end

  def test_interface_version
    assert_kind_of Integer, Eagain::Scheduler::INTERFACE_VERSION
    assert_includes 1..9, Eagain::Scheduler::INTERFACE_VERSION
  end

  def test_close_runs_to_the_end_and_is_final
    done = false
    thread = Thread.new do
      scheduler = Eagain::Scheduler.new
      Fiber.set_scheduler(scheduler)
      Fiber.schedule { sleep 0.005; done = true }
      refute scheduler.closed?
      Fiber.set_scheduler(nil)
      scheduler
    end
    scheduler = watch(thread, PATIENCE)
    assert done
    assert scheduler.closed?
    scheduler.close
  end

  def test_a_scheduler_that_was_never_used_can_be_closed
    scheduler = Eagain::Scheduler.new
    scheduler.close
    assert scheduler.closed?
  end

  def test_closed_scheduler_refuses_new_fibers
    scheduler = Eagain::Scheduler.new
    scheduler.close
    assert_raises(StandardError) { scheduler.fiber { nil } }
  end

  def test_run_returns_when_nothing_is_left
    thread_with_scheduler do |scheduler|
      assert_same scheduler, scheduler.run
      done = false
      Fiber.schedule { sleep 0.002; done = true }
      refute done
      scheduler.run
      assert done
      Fiber.schedule { done = 2 }
      scheduler.run
      assert_equal 2, done
    end
  end

  def test_push_runs_a_fiber_when_its_turn_comes
    order = []
    thread_with_scheduler do |scheduler|
      fiber = Fiber.new(blocking: false) { order << :pushed }
      assert_same fiber, scheduler.push(fiber)
      order << :main
      scheduler.run
    end
    assert_equal %i[main pushed], order
  end

  def test_push_from_another_thread
    thread_with_scheduler do |scheduler|
      done = nil
      fiber = Fiber.new(blocking: false) { done = Thread.current }
      waiting = Fiber.schedule { sleep 0.001 until done }
      scheduler.push(fiber)
      scheduler.run
      assert_same Thread.current, done
      refute waiting.alive?
    end
  end

  # Whoever pushed has gone on by the time that Ruby refuses: nobody else may be hit by it.
  def test_push_of_a_fiber_that_another_thread_made
    made = Queue.new
    started = false
    maker = Thread.new { made << Fiber.new(blocking: false) { started = true }; sleep }
    slept = nil
    _, err = capture_io do
      schedule do
        sleeper = task { sleep 0.01; :slept }
        Fiber.scheduler.push(made.pop)
        await("the sleeper") { sleeper.done? }
        slept = sleeper.value
      end
    end
    assert_equal :slept, slept
    refute started
    assert_match(/warning: a fiber that was pushed cannot run here: .*across threads/, err)
  ensure
    maker.kill.join
  end

  def test_yield_lets_the_others_run
    order = []
    schedule do
      other = task { 3.times { |i| order << [:b, i]; Fiber.scheduler.yield } }
      3.times { |i| order << [:a, i]; Fiber.scheduler.yield }
      await("other") { other.done? }
    end
    assert_equal [[:b, 0], [:a, 0], [:b, 1], [:a, 1], [:b, 2], [:a, 2]], order
  end

  WAITS = {
    sleep: -> { sleep },
    sleep_for: -> { sleep 100 },
    queue: -> { Queue.new.pop },
    read: -> { IO.pipe.then { |r, w| [r.readpartial(1), w] } },
    accept: -> { TCPServer.new("127.0.0.1", 0).accept },
    join: -> { Thread.new { sleep }.join },
    process: lambda do
      pid = spawn("exec sleep 100")
      begin
        Process.wait(pid)
      ensure
        Process.kill(:KILL, pid)
        Process.wait(pid)
      end
    end,
    wait: -> { IO.pipe.then { |r, w| [r.wait_readable(100), w] } },
    condition: -> { Mutex.new.then { |m| m.synchronize { ConditionVariable.new.wait(m) } } },
  }.freeze

  def test_raise_wakes_from_every_wait
    WAITS.each do |name, wait|
      next if name == :condition && RUBY_VERSION < "3.2" # the interpreter leaves the mutex unlocked

      schedule do
        job = task { assert_raises(Mine, name.to_s, &wait) }
        sleep 0.001
        refute job.done?, name
        assert_equal true, Fiber.scheduler.raise(job.fiber, Mine.new(name.to_s))
        await(name.to_s) { job.done? }
        assert_equal name.to_s, job.value.message
      end
    end
  end

  def test_raise_from_another_thread
    schedule do
      scheduler = Fiber.scheduler
      job = task { assert_raises(Mine) { sleep } }
      fiber = job.fiber
      thread = Thread.new { scheduler.raise(fiber, Mine.new) }
      await("raise") { job.done? }
      assert_equal true, thread.value
    end
  end

  def test_raise_to_a_runnable_fiber_arrives_when_it_runs
    schedule do
      job = task { assert_raises(Mine) { sleep 0; sleep } }
      assert_equal true, Fiber.scheduler.raise(job.fiber, Mine.new)
      refute job.done?
      await("raise") { job.done? }
    end
  end

  def test_raise_to_a_dead_fiber_is_false
    schedule do
      fiber = Fiber.schedule { nil }
      refute fiber.alive?
      assert_equal false, Fiber.scheduler.raise(fiber, Mine.new)
    end
  end

  def test_raise_to_an_unstarted_fiber_ends_it
    schedule do
      ran = false
      fiber = Fiber.new(blocking: false) { ran = true }
      Fiber.scheduler.push(fiber)
      assert_equal true, Fiber.scheduler.raise(fiber, Mine.new)
      sleep 0.002
      refute ran
    rescue Mine
      nil # where it ends is the scheduler's business; that it did not run is ours
    end
  end

  def test_two_raises_arrive_once_each
    schedule do
      seen = []
      job = task do
        2.times do
          sleep
        rescue Mine => e
          seen << e.message
        end
      end
      Fiber.scheduler.raise(job.fiber, Mine.new("1"))
      sleep 0.001
      Fiber.scheduler.raise(job.fiber, Mine.new("2"))
      await("both") { job.done? }
      assert_equal %w[1 2], seen
    end
  end

  def test_raise_and_readiness_at_once_lose_nothing
    random = Random.new(seed)
    schedule do
      scheduler = Fiber.scheduler
      300.times do |round|
        r, w = IO.pipe
        job = task do
          r.readpartial(10)
        rescue Mine
          :raised
        end
        fiber = job.fiber
        both = [-> { w.write("data") }, -> { scheduler.raise(fiber, Mine.new) }]
        both.shuffle(random: random).each(&:call)
        await("round #{round}") { job.done? }
        assert_includes ["data", :raised], job.value
        assert_equal "data", r.readpartial(10) if job.value == :raised
        close_all(r, w)
      end
    end
  end

  def test_stats
    schedule do
      stats = Fiber.scheduler.stats
      %i[turns switches wakeups parked ready fibers peak_fibers timers offloaded checks].each do |name|
        assert_kind_of Integer, stats[name], name
      end
      task { sleep 0.01 }
      stats = Fiber.scheduler.stats
      assert_operator stats[:fibers], :>=, 2
      assert_equal 1, stats[:timers]
      assert_operator stats[:peak_fibers], :>=, 2
      sleep 0.02
      assert_operator Fiber.scheduler.stats[:wakeups], :>, stats[:wakeups]
      assert_equal 0, Fiber.scheduler.stats[:timers]
    end
  end

  def test_setting_a_scheduler_twice_ends_the_first
    thread = Thread.new do
      done = []
      first = Eagain::Scheduler.new
      Fiber.set_scheduler(first)
      Fiber.schedule { sleep 0.002; done << 1 }
      Fiber.set_scheduler(Eagain::Scheduler.new)
      Fiber.schedule { sleep 0.002; done << 2 }
      Fiber.set_scheduler(nil)
      [done, first.closed?]
    end
    assert_equal [[1, 2], true], watch(thread, PATIENCE)
  end

  def test_main_thread_ends_with_tasks
    assert_child "late\n", <<~'RUBY'
      Fiber.set_scheduler(Eagain::Scheduler.new)
      Fiber.schedule { sleep 0.01; puts "late" }
    RUBY
  end

  def test_exception_of_a_task_ends_the_process_as_usual
    out, err, status = child(<<~'RUBY')
      Fiber.set_scheduler(Eagain::Scheduler.new)
      Fiber.schedule { sleep 0.01; raise "from a task" }
    RUBY
    assert_equal "", out
    assert_match(/from a task/, err)
    assert_equal 1, status.exitstatus
  end

  def test_ractors
    script = <<~'RUBY'
      ractor = Ractor.new do
        seen = []
        Fiber.set_scheduler(Eagain::Scheduler.new)
        Fiber.schedule { sleep 0.002; seen << 2 }
        Fiber.schedule { seen << 1 }
        Fiber.scheduler.run
        Fiber.set_scheduler(nil)
        seen
      end
      p ractor.respond_to?(:value) ? ractor.value : ractor.take
    RUBY
    out, err, status = child(script)
    assert status.success?, err
    assert_equal "[1, 2]\n", out
  end

  def test_no_descriptors_are_left_after_close
    GC.start
    before = Dir.children("/proc/self/fd").size
    10.times { thread_with_scheduler { Fiber.schedule { sleep 0.0001 } } }
    assert_operator Dir.children("/proc/self/fd").size, :<=, before
  end
end
