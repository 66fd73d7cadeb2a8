# frozen_string_literal: true

require_relative "helper"
require "timeout"

# One test for each fault that was found in who runs on whose behalf: fibers that the program resumes by
# itself, and what Ruby runs in a fiber that waits (trap handlers, finalizers, Warning.warn).
class RegressionsNestingTest < EagainTest
  def setup = only_ours

  def fiber(&block) = Fiber.new(blocking: false, &block)

  # What the block does, and how: by name of the exception that ends it.
  def outcome
    yield
    :done
  rescue Exception => e # rubocop:disable Lint/RescueException
    e.class.name
  end

  # The one that yielded was taken to have resumed whoever called a hook next: that one got its timeout.
  def test_timeout_of_a_fiber_that_yielded
    schedule do
      told = {}
      yielding = fiber do
        told[:yielding] = outcome { Timeout.timeout(0.005) { Fiber.yield or sleep 5 } }
      end
      other = fiber { told[:other] = outcome { sleep 0.02 } }
      yielding.resume
      other.resume
      told[:resumer] = outcome { sleep 0.001 }
      assert_equal({ other: :done, resumer: :done }, told)
      yielding.resume
      assert_equal "Timeout::Error", told[:yielding]
    end
  end

  # The same, where the resumer is not one of ours either, and does I/O itself.
  def test_timeout_of_a_fiber_that_yielded_to_another_one
    schedule do
      told = {}
      r, w = IO.pipe
      resumer = fiber do
        yielding = fiber { told[:yielding] = outcome { Timeout.timeout(0.005) { Fiber.yield or sleep 5 } } }
        yielding.resume
        Fiber.schedule { sleep 0.02; w << "x" }
        told[:resumer] = outcome { r.readpartial(1) }
        yielding.resume
      end
      resumer.resume
      assert_equal({ resumer: :done, yielding: "Timeout::Error" }, told)
    end
  end

  # The resumer's timeout did not reach the second one, which was taken to run in the first.
  def test_timeout_of_the_resumer_after_another_one_yielded
    schedule do
      first = fiber { sleep(0) and Fiber.yield }
      second = fiber { sleep 5 }
      before = now
      assert_raises(Timeout::Error) { Timeout.timeout(0.01) { [first, second].each(&:resume) } }
      assert_operator now - before, :<, 2
    end
  end

  # Nor did it reach a fiber that one of its fibers had resumed, once that one had called a hook.
  def test_timeout_and_exception_two_resumes_further_in
    schedule do
      nested = proc { fiber { sleep(0) and fiber { sleep 5 }.resume }.resume }
      before = now
      assert_raises(Timeout::Error) { Timeout.timeout(0.01, &nested) }
      raised_in = nil
      job = task { raised_in = Fiber.current; outcome(&nested) }
      sleep 0.005
      Fiber.scheduler.raise(raised_in, IOError.new)
      await("raise") { job.done? }
      assert_equal "IOError", job.value
      assert_operator now - before, :<, 2
    end
  end

  # One that had yielded, and is resumed by somebody else, was told of what was meant for the first resumer.
  def test_fiber_that_is_resumed_by_another_one_than_before
    schedule do
      told = {}
      inner = fiber { sleep(0) and Fiber.yield or told[:inner] = outcome { sleep 0.02 } }
      first = fiber do
        told[:first] = outcome { Timeout.timeout(0.005) { inner.resume; Fiber.yield or sleep 5 } }
      end
      first.resume
      fiber { inner.resume }.resume
      assert_equal({ inner: :done }, told)
      first.resume
      assert_equal "Timeout::Error", told[:first]
    end
  end

  # It was pending for the fiber that waited on the task's behalf, and that one went on with what it had been
  # handed: the task itself never heard of it.
  def test_exception_for_a_task_whose_fiber_has_been_handed_something
    Eagain.run do
      queue = Queue.new
      told = []
      task = Eagain.spawn do
        taker = fiber { Fiber.yield(queue.pop) }
        told << taker.resume
        sleep 5
      rescue IOError => e
        told << e.class
      end
      sleep 0.001
      task.raise(IOError)
      queue << :item
      assert task.join(2)
      assert_equal [:item, IOError], told
    end
  end

  # As those of a thread: nobody is told of what is pending when it ends, and nothing else is disturbed.
  def test_exceptions_that_are_pending_at_the_end
    held, go = Array.new(2) { Queue.new }
    thread = Thread.handle_interrupt(RuntimeError => :never) { Thread.new { held << 1; go.pop; :value } }
    held.pop
    2.times { |i| thread.raise("pending #{i}") }
    go << 1
    assert_equal :value, thread.value

    Eagain.run do
      task = Eagain.spawn { sleep rescue $!.message }
      sleep 0
      2.times { |i| task.raise("pending #{i}") }
      assert_equal "pending 0", task.value
      sleep 0
      assert_nil task.raise("too late")
    end
  end

  # Their records, and so their Fibers, were kept for ever.
  def test_fibers_that_ended_with_an_exception_pending_are_collected
    schedule do
      count = -> { GC.start; ObjectSpace.each_object(Fiber).count }
      before = count.call
      500.times do
        current = nil
        Fiber.schedule do
          fiber { current = Fiber.current; sleep rescue nil }.resume
          sleep 0
        end
        2.times { Fiber.scheduler.raise(current, IOError.new) }
        2.times { sleep 0 }
      end
      assert_operator count.call - before, :<, 250
    end
  end

  # A program in which the scheduler warns while a fiber is parked, which so does what `warn` does.
  def assert_warned(expected, warn:, work:)
    assert_child expected, <<~RUBY
      require "timeout"
      $stdout.sync = true
      R, W = IO.pipe
      def now = Process.clock_gettime(Process::CLOCK_MONOTONIC)
      def Warning.warn(*) = #{warn}
      scheduler = Eagain::Scheduler.new
      Fiber.set_scheduler(scheduler)
      alien = Thread.new { Fiber.new { nil } }.value
      main = Fiber.new(blocking: false) do
        scheduler.push(alien) # found to be another thread's when its turn comes: that is a warning
        #{work}
      end
      main.resume
      scheduler.run
      abort scheduler.stats.inspect unless scheduler.stats.values_at(:parked, :ready, :fibers, :timers) == [0] * 4
    RUBY
  end

  # What Ruby ran in a fiber that was parked parked it once more.
  def test_handler_that_waits_in_a_parked_fiber
    assert_warned "warned\nread xy\n", warn: '(sleep 0.01; puts "warned")', work: <<~'RUBY'
      Fiber.schedule { sleep 0.003; W << "x"; sleep 0.02; W << "y" }
      puts "read #{R.read(2)}"
    RUBY
  end

  # The answer of the wait, which was there before, was that of the handler's.
  def test_handler_that_waits_longer_than_the_fiber
    assert_warned "warned\ntrue\n", warn: '(sleep 0.02; puts "warned")', work: <<~'RUBY'
      require "io/wait"
      Fiber.schedule { sleep 0.003; W << "x" }
      p R.wait_readable(5) == R
    RUBY
  end

  def test_handler_that_raises_after_it_waited
    assert_warned "raised\nread x\n", warn: '(sleep 0.002; raise IOError, "raised")', work: <<~'RUBY'
      begin
        R.read(1)
      rescue IOError
        puts $!.message
      end
      Fiber.schedule { sleep 0.003; W << "x" }
      puts "read #{R.read(1)}"
    RUBY
  end

  def test_timeout_while_a_handler_waits
    assert_warned "expired\nread x\n", warn: "sleep(5)", work: <<~'RUBY'
      before = now
      begin
        Timeout.timeout(0.01) { R.read(1) }
      rescue Timeout::Error
        puts now - before < 2 ? "expired" : "late"
      end
      Fiber.schedule { sleep 0.003; W << "x" }
      puts "read #{R.read(1)}"
    RUBY
  end

  def test_timeouts_of_the_fiber_and_of_the_handler
    assert_warned "warned\nexpired\n", warn: 'Timeout.timeout(1) { sleep 0.002; puts "warned" }', work: <<~'RUBY'
      before = now
      begin
        Timeout.timeout(0.02) { 3.times { sleep 0.002; Fiber.new(blocking: false) { sleep 0 }.resume }; sleep 5 }
      rescue Timeout::Error
        puts now - before < 2 ? "expired" : "late"
      end
    RUBY
  end

  def test_queues_of_the_fiber_and_of_the_handler
    assert_warned "handler 2\nfiber 1\n", warn: '(puts "handler #{$second.pop}")', work: <<~'RUBY'
      first = Queue.new
      $second = Queue.new
      Fiber.schedule { sleep 0.003; first << 1; sleep 0.003; $second << 2 }
      puts "fiber #{first.pop}"
    RUBY
  end

  def test_exception_for_a_fiber_while_its_handler_waits
    assert_warned "raised\n", warn: "sleep(5)", work: <<~'RUBY'
      main = Fiber.current
      Fiber.schedule { sleep 0.003; scheduler.raise(main, IOError.new("raised")) }
      begin
        R.read(1)
      rescue IOError
        puts $!.message
      end
    RUBY
  end

  def test_fork_in_a_handler
    assert_warned "child\nread x\n", warn: '(Process.wait(fork { sleep 0.001; puts "child" }))', work: <<~'RUBY'
      Fiber.schedule { sleep 0.02; W << "x" }
      puts "read #{R.read(1)}"
    RUBY
  end

  def test_handler_that_writes_to_what_its_fiber_is_writing_to
    skip "nobody waits for a turn here" if Eagain::Scheduler::INTERFACE_VERSION >= 4
    assert_warned "200001\n", warn: "W.syswrite('b')", work: <<~'RUBY'
      W.sync = true
      reading = nil
      Fiber.schedule { sleep 0.003; p R.read.size }
      W.write("a" * 200_000)
      W.close
    RUBY
  end

  # Signals come while one fiber hands over to the next: nothing is lost, and each wait gets its own answer.
  def test_signals_whose_handlers_wait
    assert_child "done\n", <<~'RUBY', timeout: 60
      require "io/wait"
      handled = 0
      trap("USR1") { sleep 0.001; handled += 1 }
      parent = $$
      killer = fork { while Process.ppid == parent; Process.kill(:USR1, parent); sleep(rand * 0.004); end }
      wait = lambda do |r, w|
        40.times do
          Fiber.schedule { 3.times { Fiber.schedule { sleep 0 } }; sleep 0.0001; w << "x" }
          abort "timed out" unless r.wait_readable(10)
          abort "lost" unless r.read_nonblock(1) == "x"
        end
      end
      scheduler = Eagain::Scheduler.new
      Fiber.set_scheduler(scheduler)
      10.times { Fiber.schedule { wait.call(*IO.pipe) } }
      Fiber.new(blocking: false) { wait.call(*IO.pipe) }.resume
      scheduler.run
      abort scheduler.stats.inspect unless scheduler.stats[:fibers] == 0
      Process.kill(:KILL, killer)
      puts handled > 0 ? "done" : "no signal"
    RUBY
  end

  # A look at what its resumer called last is a call that can be traced: the fiber was taken to be in that
  # handler for ever. So was one that had been woken while the handler waited.
  def test_trace_of_the_look_at_who_resumed_whom
    ["$stderr.syswrite('')", "sleep 0.003"].each do |handler|
      assert_child "value true\n", <<~RUBY
        traced = 0
        trace = TracePoint.new(:c_call) { |call| (traced += 1; #{handler}) if call.method_id == :backtrace_locations }
        def fiber(&block) = Fiber.new(blocking: false, &block)
        Eagain.run do
          task = Eagain.spawn { fiber { sleep(0) and fiber { sleep(0.001) and :value }.resume }.resume }
          trace.enable
          value = task.value
          trace.disable
          puts [value, traced.positive?].join(" ")
        end
      RUBY
    end
  end

  # The record of a task that had ended was looked at after the handler had dropped it.
  def test_handler_that_waits_where_a_task_ended
    assert_child "5\n", <<~'RUBY', env: { "MALLOC_PERTURB_" => "85" }
      main = ended = nil
      handled = 0
      trace = TracePoint.new(:fiber_switch) do
        (ended = false; handled += 1; sleep 0.001) if ended && Fiber.current.equal?(main)
      end
      Fiber.set_scheduler(scheduler = Eagain::Scheduler.new)
      main = Fiber.new(blocking: false) do
        5.times { Fiber.schedule { sleep 0.001; ended = true }; sleep 0.01 }
      end
      trace.enable { main.resume; scheduler.run }
      puts handled
    RUBY
  end

  # Those that were abandoned in a timeout were kept for ever, also after its time was up.
  def test_fibers_that_are_abandoned_in_a_timeout_are_collected
    # Stacks are used again as they are: what is left on one may look like a reference for a while.
    assert_child "few fibers, few timers\n", <<~'RUBY'
      require "timeout"
      Fiber.set_scheduler(scheduler = Eagain::Scheduler.new)
      Fiber.schedule do
        ([0.001, 1000] * 15).each do |seconds|
          300.times { Fiber.new(blocking: false) { Timeout.timeout(seconds) { Fiber.yield } }.resume }
          sleep 0.005
          GC.start
        end
        fibers = ObjectSpace.each_object(Fiber).count
        timers = scheduler.stats[:timers]
        puts "#{fibers < 4000 ? :few : fibers} fibers, #{timers < 4000 ? :few : timers} timers"
      end
    RUBY
  end

  # A new fiber that has the address of such a one is not told of its timeout.
  def test_fiber_at_the_address_of_one_that_was_abandoned_in_a_timeout
    assert_child "", <<~'RUBY'
      require "timeout"
      Eagain.run do
        abandoned = Array.new(3000) { Fiber.new(blocking: false) { Timeout.timeout(0.001) { Fiber.yield } } }
        abandoned.each(&:resume)
        sleep 0.005
        abandoned = nil
        GC.start(immediate_sweep: false)
        3000.times { Fiber.new(blocking: false) { $stderr.syswrite("") }.resume }
      end
    RUBY
  end

  # A fiber keeps its timeouts while it lives, whoever looks after the others.
  def test_timeout_of_a_fiber_that_yielded_outlives_the_collection
    schedule do
      told = nil
      yielding = fiber { told = outcome { Timeout.timeout(0.005) { Fiber.yield or sleep 5 } } }
      yielding.resume
      300.times { fiber { sleep(0) and Fiber.yield }.resume }
      GC.start
      sleep 0.01
      yielding.resume
      assert_equal "Timeout::Error", told
    end
  end

  # What was signalled was the handler's condition, and the fiber's sleep ended, too.
  def test_condition_in_the_handler_of_a_fiber_that_sleeps
    assert_warned "signalled\nslept\n", warn: '$mutex.synchronize { $cv.wait($mutex) } && puts("signalled")',
                                        work: <<~'RUBY'
      $mutex = Mutex.new
      $cv = ConditionVariable.new
      Fiber.schedule { sleep 0.003; $cv.signal }
      before = now
      sleep 0.1
      puts now - before >= 0.1 ? "slept" : "woken"
    RUBY
  end

  # A method of the program's that is named as one that resumes yields all the same.
  def test_enumerator_over_a_method_that_is_named_resume
    skip "an Enumerator's fiber is a blocking one here" if Enumerator.new { |y| y << Fiber.current.blocking? }.next
    schedule do
      each = Class.new do
        def next
          Timeout.timeout(0.005) { yield(1) or sleep 5 }
        end

        def resume = Timeout.timeout(0.005) { [1].each { |i| yield(i) or sleep 5 } }
      end
      %i[next resume].each do |name|
        yielding = each.new.to_enum(name)
        assert_equal 1, yielding.next
        assert_equal :done, outcome { fiber { sleep 0.02 }.resume }, name
        sleep 0.001
      end
    end
  end

  # A tracer of the look at who resumed whom that makes many fibers had the records swept that were looked at.
  def test_trace_that_makes_many_fibers
    assert_child "value\n", <<~'RUBY', env: { "MALLOC_PERTURB_" => "85" }
      def fiber(&block) = Fiber.new(blocking: false, &block)
      trace = TracePoint.new(:c_call) do |call|
        next unless call.method_id == :backtrace_locations
        200.times { fiber { $stderr.syswrite("") }.resume }
      end
      Eagain.run do
        task = Eagain.spawn do
          fiber { sleep(0) and fiber { sleep(0) and fiber { sleep(0.001) and :value }.resume }.resume }.resume
        end
        trace.enable
        puts task.value
        trace.disable
      end
    RUBY
  end
end
