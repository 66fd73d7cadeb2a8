# frozen_string_literal: true

require_relative "helper"
require "timeout"

# One test for each fault that was found in how fibers give way to each other, are raised in and are
# woken; named after it. Those that once crashed the process, or spun for ever, run in a child.
class RegressionsSwitchTest < EagainTest
  def setup = only_ours

  # A fiber that was raised in by Ruby itself kept the buffer of the read that this ended; nothing
  # marked it, and the next timeout freed it.
  def test_buffer_of_a_read_that_was_raised_in
    assert_child "raised: boom\nexpired\nraised: direct\nexpired\n", <<~'RUBY'
      require "timeout"
      $stdout.sync = true
      r, w = IO.pipe
      def deep(depth, r) = depth == 0 ? r.readpartial(10) : deep(depth - 1, r)
      def clean(depth) = depth == 0 ? 0 : clean(depth - 1) + 1
      def read_and_sleep(r)
        begin
          deep(50, r)
        rescue => e
          puts "raised: #{e.message}"
        end
        clean(200)
        20.times { GC.start; Array.new(5000) { Object.new; "x" * 100 } }
        Timeout.timeout(0.05) { sleep 1 }
      rescue Timeout::Error
        puts "expired"
      end
      Fiber.set_scheduler(Eagain::Scheduler.new)
      # What ends a task is raised in the fiber that the root had resumed.
      Fiber.schedule { sleep 0.02; raise "boom" }
      Fiber.new(blocking: false) { read_and_sleep(r) }.resume
      reader = nil
      Fiber.schedule { reader = Fiber.current; read_and_sleep(r) }
      Fiber.schedule { sleep 0.02; reader.raise("direct") }
    RUBY
  end

  # The waiters of a select in the parent were watched again in the child, which had given up the fiber
  # that had them on its stack.
  def test_fork_beside_a_select
    ruby_at_least("3.2", "IO.select has no hook")
    assert_child "", <<~'RUBY'
      pipes = Array.new(20) { IO.pipe }
      scheduler = Eagain::Scheduler.new
      Fiber.set_scheduler(scheduler)
      pipes.each { |r, _| Fiber.schedule { IO.select([r]) } }
      Fiber.schedule do
        pid = fork do
          sleep 0.01 # the child's first hook
          abort "still waiting: #{scheduler.stats}" if scheduler.stats[:waiting] > 0
          10.times { GC.start; Array.new(2000) { "x" * 200 }; Array.new(100) { Fiber.new { Fiber.yield }.resume } }
          pipes.each { |_, w| w.write "x" }
          3.times { sleep 0.02; GC.start }
          exit!(0)
        end
        Process.wait(pid)
        exit!($?.exitstatus || 1)
      end
      scheduler.run
    RUBY
  end

  # The end of all tasks, and each further signal, woke the fiber in #run, though a trap handler waited in
  # it for something else, and would again for ever.
  def test_trap_handler_that_waits_in_the_fiber_that_runs_the_loop
    assert_child "block ends\nabcd\nefgh\n", <<~'RUBY'
      $stdout.sync = true
      r, w = IO.pipe
      trap("USR1") { 2.times { puts r.readpartial(5) } }
      Fiber.new(blocking: false) do
        Eagain.run do
          Thread.new { sleep 0.1; Process.kill(:USR1, $$); sleep 0.3; w << "abcd"; sleep 0.1; w << "efgh" }
          sleep 0.2
          puts "block ends"
        end
      end.resume
    RUBY
  end

  # The second signal was for the fiber in #run, which waits in the handler of the first one: that wait was
  # ended, as if its IO had been closed.
  def test_signal_while_a_trap_handler_waits
    assert_child "1 2 true\n", <<~'RUBY'
      r, w = IO.pipe
      told = []
      trap("USR1") { told << r.readpartial(1) }
      trap("USR2") { told << "2" }
      def cpu = Process.clock_gettime(Process::CLOCK_PROCESS_CPUTIME_ID)
      before = cpu
      Fiber.new(blocking: false) do
        Eagain.run do
          ticking = Eagain.spawn { loop { sleep 0.02 } } # so that the fiber with the handler does not sleep last
          Process.wait(spawn("sleep 0.1; kill -USR1 #{$$}; sleep 0.1; kill -USR2 #{$$}; sleep 0.4; printf 1; sleep 0.1", out: w))
          ticking.cancel
        end
      end.resume
      puts [*told.sort, cpu - before < 0.25].join(" ")
    RUBY
  end

  # Nobody is in #run: the handler ran in the fiber that was parked, and parked it again.
  def test_trap_handler_that_waits_where_nothing_runs_the_loop
    assert_child "handled\ngot x\n", <<~'RUBY'
      $stdout.sync = true
      r, w = IO.pipe
      trap("USR1") { sleep 0.05; puts "handled"; w << "x" }
      Fiber.set_scheduler(Eagain::Scheduler.new)
      spawn("sleep 0.1; kill -USR1 #{$$}")
      Fiber.new(blocking: false) { puts "got #{r.readpartial(1)}" }.resume
    RUBY
  end

  # The books of a child's child counted a #run in the grandparent that had been given up.
  def test_child_of_a_child_ends_its_loop
    assert_child "grandchild\nchild\nparent\n", <<~'RUBY'
      $stdout.sync = true
      Eagain.run do
        child = fork do
          Eagain.spawn do
            grandchild = fork { Eagain.spawn { sleep 0.01; puts "grandchild" } }
            Process.wait(grandchild)
            puts "child"
          end
        end
        Process.wait(child)
        puts "parent"
      end
    RUBY
  end

  # The record that the parent had made was taken for the one of the fiber again: its wake-ups went to
  # another one, and its end was counted twice.
  def test_fiber_of_the_parent_goes_on_in_a_child
    assert_child "raised\npushed\npopped 1\n1\n", <<~'RUBY'
      $stdout.sync = true
      scheduler = Eagain::Scheduler.new
      Fiber.set_scheduler(scheduler)
      queue = Queue.new
      sleeper = nil
      Fiber.schedule do
        sleeper = Fiber.current
        sleep
      rescue IOError
        puts "raised"
        Fiber.schedule { sleep 0.02; puts "pushed"; queue << 1 }
        puts "popped #{queue.pop}"
      end
      Fiber.schedule do
        pid = fork do
          sleep 0 # a hook: the parent's fibers are given up
          sleeper.raise(IOError)
          sleep 0.1
          puts scheduler.stats[:fibers]
          exit!(0)
        end
        Process.wait(pid)
        exit!($?.exitstatus || 1)
      end
      scheduler.run
    RUBY
  end

  # A fiber that was left behind by a close that failed, in the middle of a write or of a wait for a child,
  # looked at the descriptors of a poller that was gone. (valgrind tells.)
  def test_fiber_that_outlives_an_aborted_close
    assert_child "close: cleanup\nwrite: late\nwait: late\n", <<~'RUBY'
      $stdout.sync = true
      r, w = IO.pipe
      w.sync = true
      pid = spawn("sleep 1")
      Thread.new do
        Fiber.set_scheduler(Eagain::Scheduler.new)
        fibers = [-> { w.write("a" * 200_000) }, -> { Process.wait(pid) }].map do |work|
          fiber = nil
          Fiber.schedule do
            fiber = Fiber.current
            2.times do # the first ends by the cancellation
              work.call
            rescue Exception
              raise if $!.message == "late"
            end
          end
          fiber
        end
        Fiber.schedule { begin; sleep; ensure; raise "cleanup" end }
        Fiber.schedule { sleep 0.05; raise "first" }
        Fiber.set_scheduler(nil) rescue puts "close: #{$!.message}"
        %w[write wait].zip(fibers) { |name, fiber| fiber.raise("late") rescue puts "#{name}: #{$!.message}" }
      end.join
      Process.kill(:KILL, pid)
    RUBY
  end

  # A close that failed waited for a fiber to see that the work for it was done; no fiber ran any more.
  def test_aborted_close_beside_work_for_a_fiber
    skip "no thread works for a fiber here" unless RUBY_VERSION.start_with?("3.4")
    assert_child "cleanup\n", <<~'RUBY'
      require "tmpdir"
      Dir.mktmpdir do |dir|
        fifo = File.join(dir, "fifo")
        File.mkfifo(fifo)
        Fiber.set_scheduler(Eagain::Scheduler.new)
        Fiber.schedule { File.open(fifo).close }
        Fiber.schedule { begin; sleep; ensure; raise "cleanup" end }
        Fiber.schedule { sleep 0.05; raise "first" }
        Thread.new { sleep 0.2; File.open(fifo, "w").close }
        Fiber.set_scheduler(nil) rescue puts $!.message
      end
    RUBY
  end

  # Ruby chose a waiter that had been cancelled and had not run yet; that one raised, and nobody else was
  # woken for the mutex, the item, the place or the signal.
  def test_wake_up_given_to_a_cancelled_task
    Eagain.run do
      mutex = Mutex.new.tap(&:lock)
      first, second = Array.new(2) { Eagain.spawn { mutex.synchronize { sleep 0.001 } } }
      sleep 0.005
      first.cancel
      mutex.unlock
      assert second.join(2), "the mutex: #{mutex.locked?}"
      assert_predicate first.join(2), :cancelled?

      queue = Queue.new
      takers = Array.new(2) { Eagain.spawn { queue.pop } }
      sleep 0.005
      takers[0].cancel
      queue << :item
      sleep 0.005
      assert_empty queue
      assert_equal 1, queue.num_waiting
      assert_equal :item, takers.reject(&:alive?).first.value
      takers.each(&:cancel)

      queue = SizedQueue.new(1) << 0
      givers = [1, 2].map { |item| Eagain.spawn { queue << item } }
      sleep 0.005
      givers[0].cancel
      assert_equal 0, queue.pop
      sleep 0.005
      assert_equal 1, queue.size
      givers.each(&:cancel)

      condition = ConditionVariable.new
      signalled = false
      waiter = Eagain.spawn { mutex.synchronize { condition.wait(mutex); signalled = true } }
      sleep 0.005
      waiter.cancel
      mutex.synchronize { condition.signal }
      sleep 0.005
      assert signalled
    end
  end

  # The same with a timeout in place of the cancellation.
  def test_wake_up_given_to_a_task_whose_time_is_up
    Eagain.run do
      mutex = Mutex.new.tap(&:lock)
      first = Eagain.spawn { Timeout.timeout(0.01) { mutex.synchronize { sleep 1 } } rescue :late }
      second = Eagain.spawn { mutex.synchronize { :here } }
      Eagain.spawn do
        sleep 0.001
        busy = now + 0.02
        nil until now > busy
      end
      sleep 0.005 # wakes in the same turn as the first one, and before it
      mutex.unlock
      assert second.join(2)
      assert_equal :late, first.value
    end
  end

  # The end of a long write woke one of those who waited for it; if that one raised, or wrote without
  # having to wait, nobody woke the next.
  def test_turn_to_write_is_handed_on
    Eagain.run do
      r, w = IO.pipe
      w.sync = true
      second = nil
      first = Eagain.spawn { w.write("a" * 200_000).tap { second.cancel } }
      sleep 0.002
      others = %w[b c d].map { |letter| Eagain.spawn { w.write(letter) } }
      second = others[0]
      sleep 0.002
      assert_equal 200_000, r.read(200_000).size
      first.value
      assert_equal [second, nil, nil], others.map { |task| task.join(2) ? (task if task.cancelled?) : :stuck }
      w.close
      assert_match(/\Ab?cd\z/, r.read) # a mutex of Ruby's may have been handed to the second one before
    end
  end

  def test_turn_to_write_to_what_is_closed
    { reader: Errno::EPIPE, writer: IOError }.each do |which, error|
      Eagain.run do
        r, w = IO.pipe
        w.sync = true
        tasks = ["a" * 200_000, "b", "c", "d"].map do |text|
          Eagain.spawn { w.write(text) rescue $!.class }.tap { sleep 0.002 }
        end
        { reader: r, writer: w }[which].close
        assert_equal [error] * 4, tasks.map { |task| task.join(2) ? task.value : :stuck }, which.to_s
      end
    end
  end

  # Raised in while it took its lock again, a fiber was taken to do that for ever: no timeout and no
  # cancellation woke it any more.
  def test_raised_in_while_it_locks_again
    schedule do
      mutex = Mutex.new
      fiber = nil
      expired = cancelled = false
      sleeper = task do
        fiber = Fiber.current
        begin
          mutex.lock
          mutex.sleep(0.002)
        rescue IOError
          nil
        end
        begin
          Timeout.timeout(0.005) { sleep 1 }
        rescue Timeout::Error
          expired = true
        end
        sleep 1
      rescue ArgumentError
        cancelled = true
      end
      mutex.lock
      sleep 0.01 # it waits for the mutex
      fiber.raise(IOError)
      mutex.unlock
      sleep 0.02
      Fiber.scheduler.raise(fiber, ArgumentError.new)
      sleep 0.001
      assert_equal [true, true, true], [expired, cancelled, sleeper.done?]
    end
  end

  # A second one took the place of the first, or was dropped if that was a cancellation.
  def test_exceptions_that_come_before_a_task_runs
    Eagain.run do
      told = []
      task = Eagain.spawn do
        4.times do
          sleep 0.05
          told << nil
        rescue Exception => e # rubocop:disable Lint/RescueException
          told << e.message
        end
      end
      sleep 0.001
      task.raise("one")
      task.raise(IOError, "two")
      task.cancel
      task.raise("three")
      task.join
      assert_equal ["one", "two", "the task was cancelled", "three"], told
    end
  end

  # Of those that came while a thread worked on a fiber's memory, the first alone was raised.
  def test_exceptions_that_come_during_work_for_a_fiber
    skip "no thread works for a fiber here" unless RUBY_VERSION.start_with?("3.4")
    schedule do
      Dir.mktmpdir do |dir|
        File.mkfifo(fifo = File.join(dir, "fifo"))
        told = []
        fiber = nil
        opening = task do
          fiber = Fiber.current
          [-> { File.open(fifo) }, -> { sleep }, -> { sleep }, -> { sleep 0.001 }].each do |work|
            work.call
          rescue StandardError => e
            told << e.message
          end
        end
        await("thread") { fiber && Thread.list.size > 2 }
        Fiber.scheduler.raise(fiber, IOError.new("one"))
        Fiber.scheduler.raise(fiber, IOError.new("two"))
        sleep 0.001
        fiber.raise("direct")
        Thread.new { File.open(fifo, "w").close }
        await("open") { opening.done? }
        assert_equal %w[direct one two], told
      end
    end
  end

  # A buffer of the program's, passed by IO::Buffer#read, was freed like one that Ruby makes for the hook.
  def test_buffer_of_the_program
    schedule do
      r, _w = IO.pipe
      [false, true].each do |locked|
        buffer = IO::Buffer.new(4096)
        buffer.set_string("hello")
        read = proc { Timeout.timeout(0.005) { buffer.read(r, 1) } }
        assert_raises(Timeout::Error) { locked ? buffer.locked(&read) : read.call }
        assert_equal "hello", buffer.get_string(0, 5)
      end
    end
  end

  # Bug #22298: that one is left locked, and pointing at memory that is gone, when the hook raises.
  def test_buffer_that_ruby_made
    skip "this Ruby sees to it" if Eagain::Scheduler::INTERFACE_VERSION >= 4
    schedule do
      r, w = IO.pipe
      lent = -> { ObjectSpace.each_object(IO::Buffer).count(&:locked?) }
      before = lent.call
      assert_raises(Timeout::Error) { Timeout.timeout(0.005) { r.readpartial(10) } }
      [[r, -> { r.readpartial(10) }], [w, -> { w.syswrite("x" * 200_000) }]].each do |io, work|
        using = task { work.call rescue $!.class }
        closing = task { sleep 0.001 and io.close }
        await("close") { using.done? && closing.done? }
        assert_includes [IOError, Errno::EPIPE], using.value
      end
      assert_equal before, lent.call
    end
  end

  # I/O that never has to wait was never interrupted: nothing looked at what was pending.
  def test_interrupts_reach_io_that_never_waits
    zero = File.open("/dev/zero")
    null = File.open(File::NULL, "w").tap { |io| io.sync = true }
    r, w = IO.pipe
    w.syswrite("x")
    kinds = { read: -> { zero.readpartial(1000) }, write: -> { null.write("x") }, look: -> { r.wait_readable(0) } }
    kinds[:select] = -> { IO.select([r]) } if hook?(:io_select) && RUBY_VERSION >= "3.2"
    kinds.each do |kind, work|
      busily = proc do
        deadline = now + 1
        work.call while now < deadline
        :uninterrupted
      end
      Eagain.run do
        task = Eagain.spawn(&busily)
        sleep 0.01
        task.cancel
        assert_raises(Eagain::Cancelled, "cancel, #{kind}") { task.value }
      end
      assert_raises(Timeout::Error, "timeout, #{kind}") { Eagain.run { Timeout.timeout(0.01, &busily) } }
      Eagain.run do
        task = Eagain.spawn(&busily)
        Thread.new { sleep 0.01; task.raise(ArgumentError, "of another thread") }
        task.report_on_exception = false
        assert_raises(ArgumentError, "raise, #{kind}") { task.value }
      end
    end
  end

  # Process.wait returned nil.
  def test_thread_that_waits_for_a_child_is_killed
    schedule(scheduler: new_scheduler(backend: "epoll")) do # io_uring needs no thread
      pid = spawn("sleep 5")
      before = Thread.list
      waiting = task { Process.wait(pid, Process::WUNTRACED) rescue $! }
      await("thread") { (Thread.list - before).any? }
      (Thread.list - before).each(&:kill)
      await("wait") { waiting.done? }
      assert_kind_of ThreadError, waiting.value
    ensure
      Process.kill(:KILL, pid)
      Process.wait(pid)
    end
  end

  # It was hidden from the block, like that of a call that names no class.
  def test_timeout_error_that_the_caller_named
    skip "the library asks for the same without a name" unless library_hides_its_error?
    schedule do
      inner = -> (*named) { Timeout.timeout(0.005, *named) { sleep rescue :inner } } # rubocop:disable Style/RescueModifier
      assert_equal :inner, inner.call(Timeout::Error)
      assert_raises(Timeout::Error) { inner.call }
      assert_equal :inner, inner.call(Timeout::Error, "late")
    end
  end

  # Does Timeout.timeout ask a scheduler for an exception of its own, where the caller names none?
  def library_hides_its_error?
    asked = nil
    scheduler = Class.new(Eagain::Scheduler) { define_method(:timeout_after) { |_, klass, *| asked = klass } }
    schedule(scheduler: scheduler.new) { Timeout.timeout(1) { nil } }
    asked != Timeout::Error
  end

  # A new fiber had the address of one that was collected, and was taken for that: it was never run.
  def test_task_at_the_address_of_a_fiber_that_is_gone
    assert_child "", <<~'RUBY'
      Eagain.run do
        3.times do
          50.times { Fiber.new(blocking: false) { sleep 0 }.resume }
          GC.start
          tasks = Array.new(3000) { Eagain.spawn { nil } }
          10.times { sleep 0 }
          exit!(1) if tasks.any?(&:alive?)
        end
      end
    RUBY
  end

  # The lock that an interrupted wait takes again was not known as such, and was interrupted in turn: the
  # mutex was not locked, which hid both exceptions.
  def test_raised_in_twice_in_a_wait_for_a_condition
    ruby_at_least("3.2", "an interrupted Mutex#sleep leaves the mutex unlocked")
    Eagain.run do
      mutex = Mutex.new
      told = []
      task = Eagain.spawn do
        mutex.synchronize do
          ConditionVariable.new.wait(mutex)
        ensure
          told << mutex.owned?
        end
      rescue IOError => e
        told << e.message
        sleep
      end
      task.report_on_exception = false
      sleep 0
      mutex.lock
      %w[one two].each { |message| task.raise(IOError, message); 2.times { sleep 0 } }
      mutex.unlock
      assert_equal "two", assert_raises(IOError) { task.value }.message
      assert_equal [true, "one"], told
    end
  end
end
