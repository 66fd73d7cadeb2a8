# frozen_string_literal: true

require_relative "helper"

# The scheduler's thread among other threads.
class ThreadsTest < EagainTest
  class Mine < StandardError; end

  # A thread that runs a scheduler with the block as its fiber, until something is raised out of it.
  def scheduler_thread(&block)
    ready = Queue.new
    thread = Thread.new do
      Thread.current.report_on_exception = false
      Fiber.set_scheduler(new_scheduler)
      Fiber.schedule(&block)
      ready << true
      Fiber.scheduler.run
      Fiber.set_scheduler(nil)
      :ended
    end
    ready.pop
    sleep 0.005 # let it go idle in the kernel
    thread
  end

  def test_other_threads_run_while_it_sleeps
    schedule do
      count = 0
      counter = Thread.new do
        100.times do
          count += 1
          Thread.pass
        end
      end
      await("counter") { count == 100 } # which sleeps
      counter.join
    end
  end

  def test_threads_started_in_tasks_have_no_scheduler
    schedule do
      jobs = Array.new(5) do
        task { Thread.new { [Fiber.scheduler, sleep(0.001), Fiber.current.blocking?] }.value }
      end
      await("threads") { jobs.all?(&:done?) }
      jobs.each { |job| assert_equal [nil, 0, true], job.value }
    end
  end

  # Ruby 3.4's fibers mistake another native thread's for theirs (ruby/ruby#17802).
  def test_fibers_of_an_mn_thread_stay_in_its_native_thread
    assert_child "done\n", <<~RUBY, env: { "RUBY_MN_THREADS" => "1" }
      threads = Array.new(3) do
        Thread.new do
          Fiber.set_scheduler(Eagain::Scheduler.new)
          20.times { Fiber.schedule { 20.times { sleep 0.0005; Thread.pass } } }
        end
      end
      threads.each(&:join)
      puts :done
    RUBY
  end

  def test_many_schedulers_in_many_threads
    results = Array.new(6) do |i|
      Thread.new do
        schedule do
          r, w = IO.pipe
          task do
            100.times do
              w.write(i.to_s)
              sleep 0
            end
            w.close
          end
          text = r.read
          r.close
          text
        end
      end
    end
    results.each_with_index { |thread, i| assert_equal i.to_s * 100, watch(thread, PATIENCE) }
  end

  def test_thread_raise_while_idle
    only_ours
    thread = scheduler_thread { sleep }
    thread.raise(Mine, "from outside")
    error = assert_raises(Mine) { watch(thread, PATIENCE) }
    assert_equal "from outside", error.message
  end

  def test_thread_kill_while_idle
    only_ours
    thread = scheduler_thread { sleep }
    thread.kill
    assert thread.join(PATIENCE), "killed while it slept, but goes on"
  end

  def test_thread_raise_while_waiting_for_io
    only_ours
    r, w = IO.pipe
    thread = scheduler_thread { r.read }
    thread.raise(Mine)
    assert_raises(Mine) { watch(thread, PATIENCE) }
  ensure
    close_all(r, w)
  end

  def test_thread_wakeup_while_idle
    only_ours
    queue = Queue.new
    thread = scheduler_thread { queue.pop }
    10.times do
      thread.wakeup
      sleep 0.001
    end
    queue << 1
    assert_equal :ended, watch(thread, PATIENCE)
  end

  def test_run_goes_on_after_thread_raise
    only_ours
    queue = Queue.new
    ready = Queue.new
    popped = nil
    thread = Thread.new do
      Thread.current.report_on_exception = false
      Fiber.set_scheduler(Eagain::Scheduler.new)
      Fiber.schedule { popped = queue.pop }
      ready << true
      interrupted = 0
      begin
        Fiber.scheduler.run
      rescue Mine
        interrupted += 1
        ready << true
        retry
      end
      Fiber.set_scheduler(nil)
      interrupted
    end
    3.times do
      ready.pop
      sleep 0.005
      thread.raise(Mine)
    end
    ready.pop
    queue << :item
    assert_equal 3, watch(thread, PATIENCE)
    assert_equal :item, popped
  end

  def test_signals_interrupt_the_wait_at_once
    only_ours
    script = <<~'RUBY'
      Fiber.set_scheduler(Eagain::Scheduler.new)
      seen = []
      trap(:USR1) { seen << :usr1 }
      Fiber.schedule do
        sleep 0.01 until seen.any?
        puts "handled"
      end
      Fiber.schedule { sleep 0.02; Process.kill(:USR1, $$) }
    RUBY
    assert_child "handled\n", script
  end

  def test_a_trap_runs_while_everything_sleeps
    only_ours
    script = <<~'RUBY'
      trap(:USR1) { puts "trapped"; exit!(0) }
      Fiber.set_scheduler(Eagain::Scheduler.new)
      Fiber.schedule { sleep }
      pid = $$
      Thread.new { sleep 0.05; Process.kill(:USR1, pid) }
      $stdout.sync = true
      Fiber.scheduler.run
    RUBY
    assert_child "trapped\n", script
  end

  def test_interrupt_is_raised_out_of_run
    only_ours
    script = <<~'RUBY'
      Fiber.set_scheduler(Eagain::Scheduler.new)
      Fiber.schedule do
        sleep
      ensure
        puts "ensured"
      end
      pid = $$
      Thread.new { sleep 0.05; Process.kill(:INT, pid) }
      begin
        Fiber.scheduler.run
      rescue Interrupt
        puts "interrupted"
        $stdout.flush
      end
      exit!(0)
    RUBY
    assert_child "interrupted\n", script
  end

  def test_unblock_from_many_threads_at_once
    schedule do
      queues = Array.new(50) { Queue.new }
      jobs = queues.map { |queue| task { Array.new(20) { queue.pop } } }
      threads = Array.new(4) do |t|
        Thread.new { queues.each { |queue| 5.times { |i| queue << ((t * 5) + i) } } }
      end
      await("items") { jobs.all?(&:done?) }
      jobs.each { |job| assert_equal (0...20).to_a, job.value.sort }
      threads.each(&:join)
    end
  end

  def test_another_thread_cannot_close_it
    only_ours
    scheduler = new_scheduler
    r, w = IO.pipe
    thread = Thread.new do
      Fiber.set_scheduler(scheduler)
      Fiber.new { r.read(1) }.resume # asleep in the poller, though not in #run
    end
    await("sleeper") { scheduler.stats[:parked] == 1 && thread.status == "sleep" }
    error = assert_raises(ThreadError) { scheduler.close }
    assert_equal "the scheduler belongs to another thread", error.message
    w.write("x")
    assert_equal "x", thread.value
    assert_predicate scheduler, :closed?
    close_all(r, w)
  end

  def test_thread_ends_while_fibers_of_it_are_parked
    only_ours
    # A thread that is killed leaves its fibers; nothing may touch them afterwards.
    5.times do
      r, w = IO.pipe
      queue = Queue.new
      thread = scheduler_thread do
        Fiber.schedule { queue.pop }
        Fiber.schedule { sleep 0.02 }
        r.read
      end
      thread.kill
      assert thread.join(PATIENCE)
      queue << 1
      w.write("x")
      close_all(r, w)
      GC.start
    end
    sleep 0.03
  end
end
