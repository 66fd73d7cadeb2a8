# frozen_string_literal: true

require_relative "helper"

# Kernel#sleep in fibers.
class SleepTest < EagainTest
  def test_never_wakes_early
    schedule do
      [0.001, 0.0105, 0.02].each do |seconds|
        start = now
        sleep seconds
        assert_operator now - start, :>=, seconds
      end
    end
  end

  def test_returns_whole_seconds
    schedule do
      assert_equal 0, sleep(0)
      assert_equal 0, sleep(0.01)
      assert_kind_of Integer, sleep(Rational(1, 1000))
    end
  end

  def test_sleepers_wake_in_the_order_of_their_deadlines
    order = []
    schedule do
      [5, 1, 4, 2, 3].each do |n|
        task do
          sleep n * 0.01
          order << n
        end
      end
    end
    assert_equal [1, 2, 3, 4, 5], order
  end

  def test_equal_deadlines_all_wake
    woken = 0
    schedule do
      1000.times do
        task do
          sleep 0.01
          woken += 1
        end
      end
    end
    assert_equal 1000, woken
  end

  def test_sleep_zero_lets_the_others_run
    order = []
    schedule do
      a = task { 3.times { order << :a; sleep 0 } }
      b = task { 3.times { order << :b; sleep 0 } }
      await("both") { a.done? && b.done? }
    end
    assert_equal 3, order.count(:a)
    assert_operator order.index(:b), :<, order.rindex(:a)
  end

  def test_sleep_without_an_end_is_woken_by_a_raise
    only_ours
    schedule do
      scheduler = Fiber.scheduler
      sleeper = task { assert_raises(RuntimeError) { sleep } }
      assert scheduler.raise(sleeper.fiber, RuntimeError.new("wake up"))
      await("sleeper") { sleeper.done? }
    end
  end

  if RUBY_VERSION >= "3.3" # it is an error before
    def test_sleep_of_nil_has_no_end
      only_ours
      schedule do
        scheduler = Fiber.scheduler
        sleeper = task { assert_raises(RuntimeError) { sleep(nil) } }
        sleep 0.005
        refute sleeper.done?
        scheduler.raise(sleeper.fiber, RuntimeError.new("wake up"))
        await("sleeper") { sleeper.done? }
      end
    end
  end

  def test_thread_wakeup_disturbs_nobody
    schedule do
      thread = Thread.current
      queue = Queue.new
      waker = Thread.new do
        queue.pop
        thread.wakeup
      end
      forever = task { Queue.new.tap { |q| @never = q }.pop }
      queue << true
      start = now
      sleep 0.005
      assert_operator now - start, :>=, 0.005
      waker.join
      refute forever.done?
      @never << :now
      await("the other") { forever.done? }
      assert_equal :now, forever.value
    end
  end

  def test_wrong_arguments_raise_as_usual
    schedule do
      assert_raises(ArgumentError) { sleep(-1) }
      assert_raises(TypeError) { sleep("1") }
      sleep 0.001
    end
  end

  def test_very_long_sleeps_can_be_left
    only_ours
    schedule do
      scheduler = Fiber.scheduler
      [1e9, 1e18, 2**62, Float::MAX].each do |seconds|
        sleeper = task { assert_raises(RuntimeError) { sleep seconds } }
        scheduler.raise(sleeper.fiber, RuntimeError.new)
        await("sleeper of #{seconds}") { sleeper.done? }
      end
    end
  end
end
