# frozen_string_literal: true

require_relative "helper"
require "monitor"

# Queue, SizedQueue, Mutex, ConditionVariable, Monitor and Thread#join: between fibers of one
# thread, and between fibers and other threads.
class SyncTest < EagainTest
  def test_queue_between_fibers
    schedule do
      queue = Queue.new
      seen = []
      consumer = task { while (item = queue.pop) do seen << item end }
      100.times { |i| queue << i }
      queue << nil
      await("consumer") { consumer.done? }
      assert_equal (0...100).to_a, seen
    end
  end

  def test_queue_from_a_thread_to_a_fiber_and_back
    there = Queue.new
    back = Queue.new
    thread = Thread.new { while (item = there.pop) do back << (item * 2) end }
    schedule do
      1000.times do |i|
        there << i
        assert_equal i * 2, back.pop
      end
      there << nil
    end
  ensure
    thread&.join(5)
  end

  def test_queue_fed_by_many_threads
    queue = Queue.new
    threads = nil
    schedule do
      threads = Array.new(4) { |t| Thread.new { 500.times { |i| queue << [t, i] } } }
      consumers = Array.new(5) { task { Array.new(400) { queue.pop } } }
      await("consumers") { consumers.all?(&:done?) }
      seen = consumers.flat_map(&:value)
      assert_equal 2000, seen.uniq.size
    end
  ensure
    threads&.each(&:join)
  end

  def test_closed_queue_wakes_its_waiters
    schedule do
      queue = Queue.new
      waiters = Array.new(3) { task { queue.pop } }
      queue.close
      await("waiters") { waiters.all?(&:done?) }
      assert_equal [nil] * 3, waiters.map(&:value)
      assert_raises(ClosedQueueError) { queue << 1 }
    end
  end

  if RUBY_VERSION >= "3.2" # it has no timeout: before
    def test_queue_pop_with_timeout
      schedule do
        queue = Queue.new
        assert_nil queue.pop(timeout: 0.01)
        assert_nil queue.pop(timeout: 0)
        task { queue << 1 }
        assert_equal 1, queue.pop(timeout: 5)
        sized = SizedQueue.new(1)
        sized << 1
        assert_nil sized.push(2, timeout: 0.01)
        assert_equal 1, sized.pop(timeout: 1)
      end
    end
  end

  def test_sized_queue_holds_back_the_producer
    schedule do
      queue = SizedQueue.new(2)
      produced = 0
      producer = task do
        10.times do |i|
          queue << i
          produced += 1
        end
        queue.close
      end
      assert_equal 2, produced
      seen = []
      while (item = queue.pop) do seen << item end
      await("producer") { producer.done? }
      assert_equal (0...10).to_a, seen
    end
  end

  def test_sized_queue_between_threads_and_fibers
    queue = SizedQueue.new(3)
    thread = nil
    schedule do
      thread = Thread.new { 1000.times { |i| queue << i } }
      assert_equal (0...1000).to_a, (Array.new(1000) { queue.pop })
    end
  ensure
    thread&.join(5)
  end

  def test_mutex_between_fibers
    schedule do
      mutex = Mutex.new
      inside = 0
      jobs = Array.new(10) do
        task do
          mutex.synchronize do
            inside += 1
            assert_equal 1, inside
            sleep 0.001
            inside -= 1
          end
        end
      end
      await("all") { jobs.all?(&:done?) }
      refute mutex.locked?
    end
  end

  def test_mutex_held_by_a_thread
    mutex = Mutex.new
    locked = Queue.new
    release = Queue.new
    thread = Thread.new do
      mutex.synchronize do
        locked << true
        release.pop
      end
    end
    locked.pop
    schedule do
      ticks = 0
      waiter = task { mutex.synchronize { :got } }
      5.times do
        sleep 0.001
        ticks += 1
      end
      refute waiter.done?
      release << true
      await("mutex") { waiter.done? }
      assert_equal :got, waiter.value
      assert_equal 5, ticks
    end
  ensure
    thread&.join(5)
  end

  def test_mutex_handed_between_fibers_and_threads
    mutex = Mutex.new
    count = 0
    increment = lambda do
      mutex.synchronize do
        before = count
        Thread.pass
        count = before + 1
      end
    end
    threads = nil
    schedule do
      threads = Array.new(2) { Thread.new { 200.times { increment.call } } }
      jobs = Array.new(10) do
        task do
          40.times do
            increment.call
            sleep 0
          end
        end
      end
      await("all") { jobs.all?(&:done?) }
    end
    threads.each(&:join)
    assert_equal 800, count
  end

  def test_mutex_sleep
    schedule do
      mutex = Mutex.new
      order = []
      sleeper = task do
        mutex.synchronize do
          order << :before
          mutex.sleep(0.01)
          assert mutex.owned?
          order << :after
        end
      end
      mutex.synchronize { order << :between }
      await("sleeper") { sleeper.done? }
      assert_equal %i[before between after], order
    end
  end

  def test_condition_variable_signal_and_broadcast
    schedule do
      mutex = Mutex.new
      condition = ConditionVariable.new
      woken = 0
      waiters = Array.new(5) do
        task do
          mutex.synchronize do
            condition.wait(mutex)
            assert mutex.owned?
            woken += 1
          end
        end
      end
      mutex.synchronize { condition.signal }
      await("one") { woken == 1 }
      sleep 0.001
      assert_equal 1, woken
      mutex.synchronize { condition.broadcast }
      await("all") { waiters.all?(&:done?) }
      assert_equal 5, woken
    end
  end

  def test_condition_variable_wait_with_timeout
    schedule do
      mutex = Mutex.new
      condition = ConditionVariable.new
      mutex.synchronize do
        start = now
        condition.wait(mutex, 0.02)
        assert_operator now - start, :>=, 0.02
        assert mutex.owned?
      end
    end
  end

  def test_condition_variable_signalled_by_a_thread
    mutex = Mutex.new
    condition = ConditionVariable.new
    ready = false
    thread = nil
    schedule do
      waiter = task { mutex.synchronize { condition.wait(mutex) until ready } }
      thread = Thread.new do
        mutex.synchronize do
          ready = true
          condition.signal
        end
      end
      await("signal") { waiter.done? }
    end
  ensure
    thread&.join(5)
  end

  def test_monitor_is_reentrant_and_excludes_other_fibers
    schedule do
      monitor = Monitor.new
      inside = 0
      jobs = Array.new(5) do
        task do
          monitor.synchronize do
            monitor.synchronize do
              inside += 1
              assert_equal 1, inside
              sleep 0.001
              inside -= 1
            end
          end
        end
      end
      await("all") { jobs.all?(&:done?) }
    end
  end

  class Buffer
    include MonitorMixin

    def initialize
      super
      @items = []
      @filled = new_cond
    end

    def put(item)
      synchronize do
        @items << item
        @filled.signal
      end
    end

    def take
      synchronize do
        @filled.wait_while { @items.empty? }
        @items.shift
      end
    end

    def take_within(seconds)
      synchronize { @filled.wait(seconds) }
    end
  end

  def test_monitor_mixin_condition
    schedule do
      buffer = Buffer.new
      takers = Array.new(3) { task { buffer.take } }
      3.times { |i| buffer.put(i) }
      await("takers") { takers.all?(&:done?) }
      assert_equal [0, 1, 2], takers.map(&:value).sort
      buffer.take_within(0.001)
    end
  end

  def test_monitor_mixin_condition_fed_by_a_thread
    buffer = Buffer.new
    thread = nil
    schedule do
      thread = Thread.new { 100.times { |i| buffer.put(i) } }
      assert_equal (0...100).to_a, (Array.new(100) { buffer.take })
    end
  ensure
    thread&.join(5)
  end

  def test_thread_join_and_value_let_others_run
    schedule do
      go = Queue.new
      thread = Thread.new do
        go.pop
        :value
      end
      joiner = task { thread.value }
      refute joiner.done?
      go << true # reached only because the join did not block this thread
      await("join") { joiner.done? }
      assert_equal :value, joiner.value
    end
  end

  def test_thread_join_with_a_limit
    ruby_at_least "3.2", "Thread#join in a fiber ignores its limit"
    schedule do
      thread = Thread.new { sleep }
      assert_nil thread.join(0.01)
      assert_nil thread.join(0)
      thread.kill
      assert_same thread, thread.join
    end
  end

  def test_thread_join_by_many_fibers
    schedule do
      go = Queue.new
      thread = Thread.new { go.pop }
      joiners = Array.new(20) { task { thread.join.value } }
      go << 7
      await("joins") { joiners.all?(&:done?) }
      assert_equal [7] * 20, joiners.map(&:value)
    end
  end

  def test_thread_that_raises_is_joined
    schedule do
      thread = Thread.new { raise IOError, "inside" }
      thread.report_on_exception = false
      error = assert_raises(IOError) { thread.join }
      assert_equal "inside", error.message
    end
  end

  def test_no_wake_up_is_lost_between_threads
    rounds = 3000
    a = Queue.new
    b = Queue.new
    threads = nil
    schedule do
      threads = Array.new(2) { Thread.new { (rounds / 2).times { b << a.pop } } }
      job = task do
        rounds.times do |i|
          a << i
          b.pop
        end
      end
      await("rounds") { job.done? }
    end
  ensure
    threads&.each { |t| t.join(5) }
  end
end
