# frozen_string_literal: true

require_relative "helper"
require "timeout"

# Timeout.timeout goes through the scheduler: no thread per timeout, and nothing fires late.
class TimeoutTest < EagainTest
  SHORT = 0.01

  class Mine < StandardError; end

  def expires(seconds = SHORT, &block)
    schedule { assert_raises(Timeout::Error) { Timeout.timeout(seconds, &block) } }
  end

  # As outside of a scheduler, unless a class was named.
  def test_a_rescue_in_the_block_does_not_swallow_the_timeout
    only_ours
    schedule do
      seen = nil
      error = assert_raises(Timeout::Error) do
        Timeout.timeout(0.02) do
          sleep 5
        rescue => e
          seen = e
        end
      end
      assert_nil seen
      assert_equal "execution expired", error.message
      # Since Ruby 3.4 the timeout library itself hides the exception, and makes the one that is seen here.
      if Gem::Version.new(RUBY_VERSION) < Gem::Version.new("3.4")
        assert_nil error.cause
        assert_includes error.backtrace.join("\n"), "sleep"
      end
      assert_kind_of ArgumentError, Timeout.timeout(0.02, ArgumentError) { sleep 5 rescue $! }
    end
  end

  def test_returns_the_value_of_the_block
    schedule { assert_equal 1, Timeout.timeout(5) { 1 } }
  end

  def test_around_sleep
    expires { sleep 60 }
    expires { sleep }
  end

  def test_around_a_read
    r, w = IO.pipe
    expires { r.read(1) }
    expires { r.gets }
    expires { r.wait_readable }
    w.write("still usable")
    w.close
    schedule { assert_equal "still usable", r.read }
  ensure
    close_all(r, w)
  end

  def test_around_a_write
    r, w = IO.pipe
    expires { w.write("x" * 1_000_000) }
  ensure
    close_all(r, w)
  end

  def test_around_accept
    server = TCPServer.new("127.0.0.1", 0)
    expires { server.accept }
    schedule do
      accepted = task { server.accept }
      client = TCPSocket.new("127.0.0.1", server.local_address.ip_port)
      await("accept") { accepted.done? }
      close_all(client, accepted.value)
    end
  ensure
    close_all(server)
  end

  def test_around_queue_pop
    queue = Queue.new
    expires { queue.pop }
    queue << 1
    assert_equal 1, queue.pop(true), "the waiter that timed out must not have eaten the item"
  end

  def test_around_a_sized_queue_push
    queue = SizedQueue.new(1)
    queue << 1
    expires { queue << 2 }
    assert_equal 1, queue.size
  end

  def test_around_mutex_lock
    mutex = Mutex.new
    schedule do
      holder = task { mutex.synchronize { sleep SHORT * 5 } }
      assert_raises(Timeout::Error) { Timeout.timeout(SHORT) { mutex.lock } }
      refute mutex.owned?
      await("holder") { holder.done? }
      assert mutex.try_lock
      mutex.unlock
    end
  end

  def test_around_a_condition_variable
    ruby_at_least "3.2", "Mutex#sleep in a fiber leaves the mutex unlocked when it is interrupted"
    mutex = Mutex.new
    expires { mutex.synchronize { ConditionVariable.new.wait(mutex) } }
    refute mutex.locked?
  end

  def test_around_thread_join
    thread = Thread.new { sleep }
    expires { thread.join }
  ensure
    thread.kill
  end

  def test_around_a_subprocess
    start = now
    expires { system("sleep 30") }
    expires { Process.wait(spawn("sleep 30")) }
    assert_operator now - start, :<, 20
  ensure
    children = Dir["/proc/[0-9]*/stat"].filter_map do |path|
      pid, parent = File.read(path).match(/\A(\d+) \(sleep\) \S (\d+)/)&.captures
      pid if parent == Process.pid.to_s
    rescue SystemCallError
      next
    end
    refute_empty children
    children.each do |pid|
      Process.kill(:KILL, Integer(pid))
      Process.wait(Integer(pid))
    end
  end

  def test_with_an_exception_class_and_a_message
    schedule do
      assert_raises(Mine) { Timeout.timeout(SHORT, Mine) { sleep } }
      error = assert_raises(Mine) { Timeout.timeout(SHORT, Mine, "too slow") { sleep } }
      assert_equal "too slow", error.message
    end
  end

  def test_zero_and_nil_mean_no_timeout
    schedule do
      assert_equal 1, Timeout.timeout(0) { sleep(SHORT) && 1 }
      assert_equal 2, Timeout.timeout(nil) { sleep(SHORT) && 2 }
    end
  end

  def test_inner_expires_first
    schedule do
      assert_raises(Mine) { Timeout.timeout(30) { Timeout.timeout(SHORT, Mine) { sleep } } }
    end
  end

  def test_outer_expires_first
    schedule do
      assert_raises(Mine) { Timeout.timeout(SHORT, Mine) { Timeout.timeout(30) { sleep } } }
      sleep SHORT
    end
  end

  def test_inner_is_rescued_and_outer_goes_on
    schedule do
      assert_raises(Mine) do
        Timeout.timeout(SHORT * 4, Mine) do
          begin
            Timeout.timeout(SHORT) { sleep }
          rescue Timeout::Error
            nil
          end
          sleep
        end
      end
    end
  end

  def test_nothing_fires_after_the_block
    schedule do
      200.times { |i| assert_equal i, Timeout.timeout(0.005) { i } }
      Timeout.timeout(0.005) { sleep 0 }
      sleep 0.02
      # The same at the edge: the deadline and the end of the block race, and whichever wins, wins.
      50.times do
        begin
          Timeout.timeout(0.001) { sleep 0.001 }
        rescue Timeout::Error
          nil
        end
        sleep 0
      end
      sleep 0.01
    end
  end

  def test_the_rescue_and_ensure_of_the_block_run
    ensured = false
    schedule do
      assert_raises(Timeout::Error) do
        Timeout.timeout(SHORT) do
          sleep
        ensure
          sleep SHORT # blocking in ensure is allowed
          ensured = true
        end
      end
    end
    assert ensured
  end

  def test_many_timeouts_at_once
    schedule do
      expired = 0
      jobs = Array.new(500) do |i|
        task do
          Timeout.timeout(i.even? ? 0.005 : 30) { i.even? ? sleep : sleep(0.01) }
        rescue Timeout::Error
          expired += 1
        end
      end
      await("all") { jobs.all?(&:done?) }
      assert_equal 250, expired
    end
  end

  def test_a_busy_block_is_interrupted_at_its_next_wait
    schedule do
      assert_raises(Timeout::Error) do
        Timeout.timeout(SHORT) do
          start = now
          nil while now - start < SHORT * 2
          sleep 30
        end
      end
    end
  end

  def test_no_thread_is_started
    before = Thread.list.size
    schedule do
      jobs = Array.new(20) { task { Timeout.timeout(30) { sleep SHORT } } }
      during = Thread.list.size
      await("all") { jobs.all?(&:done?) }
      assert_operator during, :<=, before + 1
    end
  end

  def test_exceptions_of_the_block_pass_through
    schedule do
      assert_raises(Mine) { Timeout.timeout(30) { raise Mine } }
      assert_equal :thrown, catch(:tag) { Timeout.timeout(30) { throw :tag, :thrown } }
      assert_equal :returned, (-> { Timeout.timeout(30) { return :returned } }).call
    end
  end
end
