# frozen_string_literal: true

require "timeout"
require_relative "helper"

# Eagain.timeout, in a loop and outside of any.
class EagainTimeoutTest < EagainTest
  def setup
    only_ours
  end

  # Runs the block both ways.
  def everywhere
    yield
    Eagain.run { yield }
  end

  def test_returns_the_value_and_yields_the_seconds
    everywhere { assert_equal 5, Eagain.timeout(5) { |seconds| seconds } }
  end

  def test_no_limit
    everywhere do
      assert_equal 1, Eagain.timeout(nil) { sleep(0.001) && 1 }
      assert_equal 1, Eagain.timeout(0) { sleep(0.001) && 1 }
    end
  end

  def test_bad_arguments
    everywhere do
      assert_raises(ArgumentError) { Eagain.timeout(-1) {} }
      assert_raises(ArgumentError) { Eagain.timeout(1) }
    end
  end

  def test_what_is_no_time_is_refused_as_by_sleep
    everywhere do
      ["1", -1, -0.5, Object.new, Float::NAN, []].each do |seconds|
        as_of_sleep = assert_raises(StandardError) { sleep(seconds) }
        error = assert_raises(as_of_sleep.class) { Eagain.timeout(seconds) {} }
        assert_equal as_of_sleep.message, error.message
      end
    end
  end

  def test_times_of_every_kind
    everywhere do
      [3, 3.5, 7/2r, 2**30, Float::INFINITY].each { |seconds| assert_equal 1, Eagain.timeout(seconds) { 1 } }
    end
  end

  def test_raises_timeout_error
    everywhere do
      assert_equal "execution expired", assert_raises(Timeout::Error) { Eagain.timeout(0.005) { sleep 60 } }.message
      assert_equal "slow", assert_raises(Timeout::Error) { Eagain.timeout(0.005, nil, "slow") { sleep 60 } }.message
    end
  end

  def test_raises_the_given_class_inside_the_block
    everywhere do
      seen = Eagain.timeout(0.005, KeyError) do
        sleep 60
      rescue KeyError => e
        e
      end
      assert_kind_of KeyError, seen
      assert_raises(KeyError) { Eagain.timeout(0.005, KeyError) { sleep 60 } }
    end
  end

  def test_rescue_inside_the_block_does_not_swallow_it
    everywhere do
      ensured = false
      assert_raises(Timeout::Error) do
        Eagain.timeout(0.005) do
          sleep 60
        rescue StandardError
          flunk
        ensure
          ensured = true
        end
      end
      assert ensured
    end
  end

  def test_nested
    everywhere do
      outer = assert_raises(Timeout::Error) do
        Eagain.timeout(0.005, nil, "outer") { Eagain.timeout(60, nil, "inner") { sleep 60 } }
      end
      assert_equal "outer", outer.message
      inner = Eagain.timeout(60) do
        assert_raises(Timeout::Error) { Eagain.timeout(0.005, nil, "inner") { sleep 60 } }
      end
      assert_equal "inner", inner.message
    end
  end

  def test_the_timer_is_disarmed
    Eagain.run do
      Eagain.timeout(0.005) { 1 }
      sleep 0.01
    end
  end

  def test_interrupts_a_read_only_in_its_own_task
    reader, writer = IO.pipe
    Eagain.run do
      other = Eagain.spawn { reader.readpartial(1) }
      task = Eagain.spawn { Eagain.timeout(0.005) { Thread::Queue.new.pop } }.tap { _1.report_on_exception = false }
      assert_raises(Timeout::Error) { task.join }
      writer.write("x")
      assert_equal "x", other.value
    end
  ensure
    close_all(reader, writer)
  end

  def test_the_backtrace_shows_where_it_waited
    Eagain.run do
      error = assert_raises(Timeout::Error) { Eagain.timeout(0.005) { wait_here } }
      assert(error.backtrace.any? { |line| line.include?("wait_here") })
      assert_nil error.cause
    end
  end

  def wait_here
    sleep 60
  end
end
