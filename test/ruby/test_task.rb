# frozen_string_literal: true

require "stringio"
require_relative "helper"

# Eagain::Task, method by method.
class TaskTest < EagainTest
  def setup
    only_ours
  end

  # Runs the block in a loop; returns what was reported on $stderr meanwhile.
  def reported
    stderr = $stderr
    $stderr = StringIO.new
    Eagain.run { yield }
    $stderr.string
  ensure
    $stderr = stderr
  end

  def failing(error = "boom")
    Eagain.spawn { raise error }.tap { |task| task.report_on_exception = false }
  end

  def test_spawn_does_not_run_the_block_at_once
    Eagain.run do
      started = false
      task = Eagain.spawn { started = true }
      refute started
      task.join
      assert started
    end
  end

  def test_new_is_private
    assert_raises(NoMethodError) { Eagain::Task.new }
  end

  def test_value
    Eagain.run do
      task = Eagain.spawn { sleep(0.001) && 5 }
      assert_equal 5, task.value
      assert_equal 5, task.value
      assert_nil Eagain.spawn {}.value
      assert_equal 6, Eagain.spawn { next 6 }.value
    end
  end

  def test_value_after_the_run
    task = Eagain.run { Eagain.spawn { 5 } }
    assert_equal 5, task.value
    assert_same task, task.join
  end

  def test_join_returns_self_or_nil
    Eagain.run do
      task = Eagain.spawn { sleep 0.02 }
      assert_nil task.join(0)
      assert_nil task.join(0.001)
      assert_same task, task.join
      assert_same task, task.join(0)
      assert_same task, task.join(nil)
    end
  end

  def test_many_join_one
    Eagain.run do
      task = Eagain.spawn { sleep(0.005) && 1 }
      assert_equal [1] * 5, Array.new(5) { Eagain.spawn { task.value } }.map(&:value)
    end
  end

  def test_a_joiner_that_gave_up_is_forgotten
    Eagain.run do
      task = Eagain.spawn { sleep 0.02 }
      gave_up = Array.new(3) { Eagain.spawn { task.join(0.001) } }
      stays = Eagain.spawn { task.join }
      assert_equal [nil] * 3, gave_up.map(&:value)
      assert_same task, stays.value
    end
  end

  def test_join_refuses_what_is_no_time_as_sleep_does
    Eagain.run do
      ended = Eagain.spawn {}.join
      alive = Eagain.spawn { sleep }
      [ended, alive].product(["x", Complex(1, 1), Object.new]).each do |task, timeout|
        as_of_sleep = assert_raises(StandardError) { sleep(timeout) }
        error = assert_raises(as_of_sleep.class) { task.join(timeout) }
        assert_equal as_of_sleep.message, error.message
      end
      assert_predicate alive, :alive?
      alive.cancel
    end
  end

  def test_join_takes_what_is_left_of_a_time_that_is_over_for_0
    Eagain.run do
      task = Eagain.spawn { sleep }
      [-1, -0.5, -2**70, -Float::INFINITY].each { |timeout| assert_nil task.join(timeout) }
      task.cancel
      assert_same task, task.join(-1) || task.join
    end
  end

  def test_join_takes_times_of_every_kind
    Eagain.run do
      [1, 1.5, 3/2r, 2**70, Float::INFINITY].each do |timeout|
        task = Eagain.spawn { sleep 0.001 }
        assert_same task, task.join(timeout)
      end
    end
  end

  def test_join_itself
    Eagain.run do
      task = Eagain.spawn { Eagain::Task.current.join }
      assert_raises(ThreadError) { task.join }
    end
  end

  def test_join_from_another_thread
    task = nil
    ready = Thread::Queue.new
    threads = Array.new(3) do
      Thread.new do
        Thread.current.report_on_exception = false
        ready.pop
        assert_nil task.join(0.001)
        task.value
      end
    end
    Eagain.run do
      task = Eagain.spawn { sleep(0.05) && :done }
      3.times { ready << 1 }
      # The loop waits for nobody but the task.
    end
    assert_equal %i[done] * 3, threads.map(&:value)
  end

  def test_join_from_another_loop
    tasks = Thread::Queue.new
    thread = Thread.new { task = tasks.pop; Eagain.run { Eagain.spawn { task.value }.value } }
    Eagain.run { tasks << Eagain.spawn { sleep(0.02) && 1 } }
    assert_equal 1, thread.value
  end

  def test_a_failed_task_raises_the_same_each_time
    Eagain.run do
      task = failing(KeyError.new("x"))
      errors = Array.new(2) { assert_raises(KeyError) { task.value } } << assert_raises(KeyError) { task.join }
      assert_equal 1, errors.uniq(&:object_id).size
      assert_nil task.status
      refute_predicate task, :alive?
    end
  end

  def test_the_cause_is_not_changed_by_raising_it_again
    Eagain.run do
      task = failing
      begin
        raise "unrelated"
      rescue StandardError
        assert_nil assert_raises(RuntimeError) { task.join }.cause
      end
    end
  end

  def test_throw_and_break_fail_as_in_a_thread
    Eagain.run do
      [[UncaughtThrowError, -> { throw :x }], [StopIteration, -> { raise StopIteration }]].each do |error, code|
        assert_raises(error) { Eagain.spawn(&code).tap { _1.report_on_exception = false }.join }
      end
      assert_raises(LocalJumpError) { Eagain.spawn { break }.tap { _1.report_on_exception = false }.join }
    end
  end

  def test_cancel_where_it_waits
    Eagain.run do
      cleaned = false
      task = Eagain.spawn do
        sleep 60
      ensure
        sleep 0.001
        cleaned = true
      end
      sleep 0.001
      assert_same task, task.cancel
      refute cleaned
      assert_predicate task, :cancelled?
      assert_same task, task.join
      assert cleaned
      assert_same false, task.status
    end
  end

  def test_the_value_of_a_cancelled_task
    Eagain.run do
      task = Eagain.spawn { sleep 60 }.cancel
      2.times { assert_same task, assert_raises(Eagain::Cancelled) { task.value }.task }
    end
  end

  def test_a_task_that_collects_a_cancelled_one_fails
    Eagain.run do
      victim = Eagain.spawn { sleep 60 }.cancel
      collector = Eagain.spawn { victim.value }.tap { _1.report_on_exception = false }
      assert_same victim, assert_raises(Eagain::Cancelled) { collector.join }.task
      refute_predicate collector, :cancelled?
      assert_nil collector.status
    end
  end

  def test_rescue_standard_error_does_not_see_cancel
    Eagain.run do
      task = Eagain.spawn do
        sleep 60
      rescue StandardError
        flunk
      end
      sleep 0.001
      assert_same task, task.cancel.join
    end
  end

  def test_cancel_is_idempotent_and_spares_the_clean_up
    Eagain.run do
      cleaned = 0
      task = Eagain.spawn do
        sleep 60
      ensure
        sleep 0.01
        cleaned += 1
      end
      sleep 0.001
      task.cancel
      sleep 0.001
      3.times { task.cancel }
      task.join
      assert_equal 1, cleaned
      assert_same task, task.cancel, "a dead task"
    end
  end

  def test_cancel_before_the_start
    Eagain.run do
      ran = false
      task = Eagain.spawn { ran = true }.cancel
      assert_same task, task.join
      refute ran
      assert_same false, task.status
    end
  end

  def test_cancel_itself
    Eagain.run do
      after = ensured = false
      task = Eagain.spawn do
        Eagain::Task.current.cancel
        after = true
      ensure
        ensured = true
      end
      task.join
      refute after
      assert ensured
    end
  end

  def test_cancel_a_runnable_task
    Eagain.run do
      rounds = 0
      task = Eagain.spawn { loop { rounds += 1 and sleep 0 } }
      sleep 0
      task.cancel.join
      seen = rounds
      sleep 0.001
      assert_equal seen, rounds
    end
  end

  def test_cancel_from_another_thread
    Eagain.run do
      task = Eagain.spawn { sleep 60 }
      sleep 0.001
      Thread.new { task.cancel }
      assert_same task, task.join
    end
  end

  def test_cancel_in_every_kind_of_wait
    reader, writer = IO.pipe
    mutex = Thread::Mutex.new
    waits = {
      read: -> { reader.readpartial(1) }, select: -> { IO.select([reader]) }, queue: -> { Thread::Queue.new.pop },
      mutex: -> { mutex.lock }, sleep: -> { sleep }, thread: -> { Thread.new { sleep 0.1 }.join },
      task: -> { Eagain.spawn { sleep 0.05 }.join }, run: -> { Eagain.run { Eagain.spawn { sleep 60 } } },
      process: -> { Process.wait(spawn("sleep 0.1")) }, timeout: -> { Timeout.timeout(60) { sleep } }
    }
    waits.delete(:select) if RUBY_VERSION < "3.2" # has no hook for it, and blocks the thread
    Eagain.run do
      mutex.synchronize do
        waits.each do |name, wait|
          task = Eagain.spawn { wait.call }
          sleep 0.002
          assert_predicate task, :alive?, name
          assert_same task, task.cancel.join(5), name
        end
      end
    end
  ensure
    close_all(reader, writer)
  end

  def test_raise_takes_what_thread_raise_takes
    Eagain.run do
      [[[], RuntimeError, "unhandled exception"], [["text"], RuntimeError, "text"],
       [[KeyError], KeyError, "KeyError"], [[KeyError, "text"], KeyError, "text"],
       [[KeyError.new("made")], KeyError, "made"],
       [[KeyError, "text", ["here:1"]], KeyError, "text"]].each do |arguments, error, message|
        task = Eagain.spawn { sleep 60 }.tap { _1.report_on_exception = false }
        sleep 0.001
        assert_nil task.raise(*arguments)
        assert_equal message, assert_raises(error) { task.join }.message
      end
    end
  end

  def test_raise_refuses_what_thread_raise_refuses
    Eagain.run do
      task = Eagain.spawn { sleep 60 }
      [[1], ["text", "more"], [Object], [nil]].each { |arguments| assert_raises(TypeError) { task.raise(*arguments) } }
      assert_raises(ArgumentError) { task.raise(KeyError, "a", [], 1) }
      task.cancel
    end
  end

  def test_raise_before_the_start_and_after_the_end
    Eagain.run do
      ran = false
      task = Eagain.spawn { ran = true }.tap { _1.report_on_exception = false }
      task.raise("early")
      assert_raises(RuntimeError) { task.join }
      refute ran
      assert_nil task.raise("late")
    end
  end

  def test_raise_can_be_rescued
    Eagain.run do
      task = Eagain.spawn do
        sleep 60
      rescue KeyError => e
        e.message
      end
      sleep 0.001
      task.raise(KeyError, "x")
      assert_equal "x", task.value
    end
  end

  def test_status_and_alive
    Eagain.run do
      task = Eagain.spawn { [Eagain::Task.current.status, sleep(0.005)].first }
      assert_equal "run", task.status
      assert_predicate task, :alive?
      sleep 0.001
      assert_equal "sleep", task.status
      assert_equal "run", task.value
      assert_same false, task.status
      refute_predicate task, :alive?
    end
  end

  def test_a_name_is_a_string_or_nil
    Eagain.run do
      error = assert_raises(TypeError) { Eagain.spawn(name: 1) { flunk } }
      assert_equal "no implicit conversion of Integer into String", error.message
      task = Eagain.spawn(name: "fetch") {}
      assert_raises(TypeError) { task.name = :symbol }
      assert_equal "fetch", task.name
      task.name = nil
      assert_nil task.name
    end
  end

  def test_name_and_inspect
    Eagain.run do
      task = Eagain.spawn(name: "fetch") { sleep 0.001 }
      assert_equal "fetch", task.name
      task.name = "other"
      assert_match(/\A#<Eagain::Task:0x\h+@other .*test_task\.rb:\d+ run>\z/, task.inspect)
      sleep 0
      assert_match(/ sleep>\z/, task.to_s)
      task.join
      assert_match(/\A#<Eagain::Task:0x\h+@other dead>\z/, task.inspect)
      assert_match(/\A#<Eagain::Task:0x\h+ \S/, Eagain.spawn {}.inspect)
    end
  end

  def test_current
    assert_nil Eagain::Task.current
    Eagain.run do
      task = Eagain.spawn { Eagain::Task.current }
      assert_same task, task.value
      assert_kind_of Eagain::Task, Eagain::Task.current, "the block of run is a task"
    end
    assert_nil Eagain::Task.current
  end

  def test_fiber_locals_are_the_tasks_own
    Eagain.run do
      Thread.current[:x] = 1
      assert_nil Eagain.spawn { Thread.current[:x] }.value
    end
  end

  if Fiber.respond_to?(:[]) # since Ruby 3.2
    def test_fiber_storage_is_inherited
      Eagain.run do
        Fiber[:x] = 1
        task = Eagain.spawn { Fiber[:x].tap { Fiber[:x] = 2 } }
        assert_equal 1, task.value
        assert_equal 1, Fiber[:x]
      end
    end
  end

  def test_a_failure_is_reported_once_in_the_format_of_threads
    task = nil
    text = reported do
      task = Eagain.spawn(name: "fetch") { raise KeyError, "boom" }
      sleep 0.001
      2.times { assert_raises(KeyError) { task.join } }
    end
    lines = text.lines
    assert_match(/\A#<Eagain::Task:0x\h+@fetch \S*test_task\.rb:\d+ run> terminated with exception/, lines[0])
    assert_match(/ \(report_on_exception is true\):\n\z/, lines[0])
    assert_match(/\A\S*test_task\.rb:\d+:in .*block.*: boom \(KeyError\)\n\z/, lines[1])
    assert_equal 1, text.scan("boom").size
  end

  def test_a_failure_is_reported_when_it_happens
    reported do
      Eagain.spawn { raise "boom" }
      sleep 0.001
      assert_match(/boom/, $stderr.string)
    end
  end

  def test_a_failure_that_somebody_waits_for_is_not_reported
    assert_empty(reported { assert_raises(RuntimeError) { Eagain.spawn { sleep(0.001) && raise("boom") }.join } })
    assert_empty(reported { assert_raises(RuntimeError) { Eagain.spawn { Eagain.run { raise "boom" } }.value } })
    assert_raises(RuntimeError) { assert_empty(reported { raise "boom" }) }
  end

  def test_report_on_exception
    assert_empty(reported { failing })
    Eagain::Task.report_on_exception = false
    assert_empty(reported { Eagain.spawn { raise "boom" } })
    Eagain::Task.report_on_exception = true
    assert_match(/boom/, reported { Eagain.spawn { raise "boom" } })
    assert_empty(reported { Eagain.spawn { sleep 60 }.cancel })
  ensure
    Eagain::Task.report_on_exception = true
  end

  def test_a_closed_stderr_is_no_reason_to_fail
    text = reported do
      $stderr.close
      Eagain.spawn { raise "boom" }
    end
    assert_empty text
  end

  def test_a_dead_task_keeps_neither_its_block_nor_its_fiber
    Eagain.run do
      task = Eagain.spawn { sleep 0 }.join
      kept = task.instance_variables.map { |name| task.instance_variable_get(name) }
      assert_empty kept.grep(Proc) + kept.grep(Fiber)
    end
  end

  # Task, Fiber, and the Proc of its body with the environment.
  def test_a_spawn_allocates_four_objects
    Eagain.run do
      body = proc {}
      spawn_many(body, 100) # warm
      sleep 0
      before = GC.stat(:total_allocated_objects)
      spawn_many(body, 1000)
      sleep 0.001
      assert_operator GC.stat(:total_allocated_objects) - before, :<=, 1000 * allocations_per_spawn + 100
    end
  end

  # Fiber storage is a Hash per fiber, if there is one.
  def allocations_per_spawn = Fiber.respond_to?(:[]) && Fiber.current.storage ? 5 : 4

  def spawn_many(body, count)
    count.times { Eagain.spawn(&body) }
  end

  def test_many_tasks
    Eagain.run do
      total = 0
      tasks = Array.new(10_000) { |i| Eagain.spawn { sleep(0) && total += i } }
      tasks.each(&:join)
      assert_equal 49_995_000, total
    end
  end
end
