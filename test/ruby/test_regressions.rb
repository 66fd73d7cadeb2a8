# frozen_string_literal: true

require_relative "helper"
require "timeout"

# One test for each fault that was found in use, named after it. Those that once crashed the
# process run in a child.
class RegressionsTest < EagainTest
  # Has the GNU C library overwrite what is freed, at once.
  OVERWRITING = { "MALLOC_PERTURB_" => "85", "GLIBC_TUNABLES" => "glibc.malloc.tcache_count=0" }.freeze

  def setup = only_ours

  # The record of the fiber kept the IO of the read that was interrupted, and each turn of the loop
  # took the wait for the child for one whose IO had lost its number.
  def test_wait_after_an_interrupted_read_does_not_spin
    schedule do
      r, _w = IO.pipe
      assert_raises(Timeout::Error) { Timeout.timeout(0.01) { r.readpartial(1) } }
      turns = Fiber.scheduler.stats[:turns]
      Process.wait(spawn("sleep 0.3"))
      assert_operator Fiber.scheduler.stats[:turns] - turns, :<, 20
    end
  end

  # The handler parked the fiber that was parked already.
  def test_trap_handler_that_waits_while_a_task_is_parked
    assert_child "handled\nwoke\n", <<~'RUBY'
      trap("USR1") { sleep 0.01; puts "handled" }
      spawn("sleep 0.1; kill -USR1 #{$$}")
      Eagain.run { sleep 0.4; puts "woke" }
    RUBY
  end

  def test_exception_for_a_thread_whose_loop_is_idle
    worker = Thread.new do
      Thread.current.report_on_exception = false
      Eagain.run { Eagain.spawn { sleep }; sleep }
    end
    sleep 0.05
    worker.raise(ArgumentError, "enough")
    assert_raises(ArgumentError) { worker.join(5) || flunk("still there") }
  end

  # Its record, and with it the timeout, was dropped (and the timer was in the stack of a fiber that could be
  # collected), as the fiber was not known to hold anything.
  def test_fiber_that_is_set_aside_inside_a_timeout
    schedule do
      fibers = Array.new(100) do # more than are kept without a look at them
        fiber = Fiber.new do
          Timeout.timeout(0.1) { sleep 0.0001; Fiber.yield; sleep 1 }
        rescue Timeout::Error
          :late
        end
        fiber.resume
        sleep 0 # so that it is known who resumes the next one
        fiber
      end
      sleep 0.15
      assert_equal [:late], fibers.map { |fiber| fiber.resume }.uniq
    end
  end

  # The end of a task looked at the fiber that had called a hook last, and at the one that had resumed that,
  # which had been collected.
  def test_task_ends_after_its_inner_fibers_were_collected
    assert_child "ok\n", <<~'RUBY'
      def clean(depth) = depth == 0 ? 0 : clean(depth - 1) + 1
      Eagain.run do
        50.times do
          Eagain.spawn do
            Fiber.new { sleep 0; Fiber.new { sleep 0 }.resume }.resume
            clean(100)
            GC.start
            5000.times { "z" * 50 }
          end
          sleep 0.001
        end
      end
      puts "ok"
    RUBY
  end

  # Its fibers' stacks may be swept before it.
  def test_scheduler_collected_with_parked_fibers
    assert_child "ok\n", <<~'RUBY'
      50.times do
        scheduler = Eagain::Scheduler.new
        r, _w = IO.pipe
        10.times { scheduler.fiber { scheduler.timeout_after(10, IOError) { scheduler.kernel_sleep(100) } } }
        10.times { scheduler.fiber { scheduler.io_select([r], nil, nil, nil) } }
      end
      GC.start
      GC.start
      puts "ok"
    RUBY
  end

  # The turn to write was that of a fiber of the parent.
  def test_child_writes_what_a_task_of_the_parent_was_writing
    assert_child "200006\n", <<~'RUBY'
      r, w = IO.pipe
      Eagain.run do
        Eagain.spawn { w.write("a" * 200_000) }
        sleep 0.01
        pid = fork { w.syswrite("child\n"); exit!(0) } # write takes a Mutex of Ruby's since 3.2
        count = 0
        count += r.readpartial(65_536).size while count < 200_006
        Process.wait(pid)
        puts count
      end
    RUBY
  end

  # Its record had been freed with the parent's loop, and its frames still looked at it.
  def test_child_raises_in_a_task_of_the_parent
    assert_child "child: sleep\nchild: read\n0\n", <<~'RUBY', env: OVERWRITING
      $stdout.sync = true
      Eagain.run do
        fibers = %w[sleep read].map do |name|
          r, _w = IO.pipe
          task = Eagain.spawn do
            Thread.current[:name] = name
            name == "sleep" ? sleep : r.read(1)
          rescue IOError => e
            puts "child: #{e.message}"
            exit!(0) if name == "read"
            sleep 0
          end
          sleep 0.001
          [task, task.instance_variables.filter_map { |ivar| v = task.instance_variable_get(ivar); v if Fiber === v }.first]
        end
        pid = fork { fibers.each { |_, fiber| fiber.raise(IOError, fiber == fibers[0][1] ? "sleep" : "read") } }
        Process.wait(pid)
        p $?.exitstatus
        fibers.each { |task, _| task.cancel }
      end
    RUBY
  end

  def test_writes_that_never_wait_let_others_run
    schedule do
      slept = nil
      start = now
      task { sleep 0.02; slept = now - start }
      File.open(File::NULL, "w") do |file|
        file.sync = true
        file.write("x") until slept || now - start > 5
      end
      refute_nil slept
    end
  end

  if RUBY_VERSION >= "3.2" # IO.select has no hook before
    def test_select_with_more_entries_than_descriptors
      assert_child "[40, 40, 0]\n", <<~'RUBY'
        Process.setrlimit(:NOFILE, 64)
        r, w = IO.pipe
        w << "x"
        Eagain.run { p IO.select([r] * 40, [w] * 40, [r] * 40, 1).map(&:size) }
      RUBY
    end

    # Nothing but the select itself held the IO that to_io made.
    def test_select_with_an_object_that_makes_its_io
      schedule do
        r, w = IO.pipe
        number = r.fileno
        maker = Object.new
        maker.define_singleton_method(:to_io) { IO.for_fd(number, autoclose: false) }
        selecting = task { IO.select([maker], nil, nil, 5) }
        sleep 0.01
        GC.start
        10_000.times { Object.new }
        sleep 0.05
        w << "x"
        await("select") { selecting.done? }
        assert_equal [[maker], [], []], selecting.value
      end
    end
  end

  def test_hook_called_from_another_thread
    schedule do
      scheduler = Fiber.scheduler
      error = Thread.new { scheduler.kernel_sleep(0.001) rescue $! }.value
      assert_kind_of ThreadError, error
      sleep 0.001
    end
  end

  # A later raise took the place of the cancellation that had not been delivered.
  def test_cancel_is_not_lost_to_a_raise
    survived = false
    Eagain.run do
      task = Eagain.spawn do
        begin
          sleep
        rescue StandardError
          sleep 0.01
          survived = true
        end
      end
      sleep 0.001
      task.cancel
      task.raise("too late")
      task.join
    rescue StandardError
      nil
    end
    refute survived
  end

  # ConditionVariable#wait locks again whatever happens; that lock was interrupted.
  def test_raise_while_a_condition_variable_locks_again
    ruby_at_least("3.2", "an interrupted Mutex#sleep leaves the mutex unlocked")
    schedule do
      mutex = Mutex.new
      condition = ConditionVariable.new
      owned = nil
      waiting = Fiber.schedule do
        mutex.synchronize do
          condition.wait(mutex)
        ensure
          owned = mutex.owned?
        end
      rescue ArgumentError
        nil
      end
      mutex.lock
      condition.signal
      sleep 0.001 # it is woken, and waits for the mutex
      Fiber.scheduler.raise(waiting, ArgumentError.new("now"))
      sleep 0.001
      mutex.unlock
      await("waiting") { !waiting.alive? }
      assert owned
      refute mutex.locked?
    end
  end

  if RUBY_VERSION.start_with?("3.4")
    # Ruby 3.4 hands blocking work to a thread, which anybody may kill.
    def test_thread_that_works_for_a_fiber_is_killed
      schedule do
        Dir.mktmpdir do |dir|
          path = File.join(dir, "fifo")
          File.mkfifo(path)
          before = Thread.list
          opening = task { File.open(path) rescue $! }
          await("thread") { (Thread.list - before).any? }
          (Thread.list - before).each(&:kill)
          await("open") { opening.done? }
          assert_kind_of ThreadError, opening.value
        end
      end
    end
  end
end
