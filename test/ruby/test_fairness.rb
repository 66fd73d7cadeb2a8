# frozen_string_literal: true

require_relative "helper"

# Busy fibers never starve timers, sockets or other threads. Without fairness these do not end.
class FairnessTest < EagainTest
  # Everything that must get its turn while others are busy.
  def everyone_gets_a_turn
    finished = false
    schedule do
      a, b = UNIXSocket.pair
      jobs = [
        task { sleep 0.01 },
        task { b.write(b.readpartial(10)) },
        task do
          a.write("ping")
          assert_equal "ping", a.readpartial(10)
        end,
        task { Thread.new { sleep 0.001 }.join },
        task { assert_equal "child\n", `echo child` },
      ]
      yield(-> { finished })
      await("everyone") { jobs.all?(&:done?) }
      finished = true
      close_all(a, b)
    end
  end

  def test_a_fiber_that_sleeps_zero_in_a_loop
    everyone_gets_a_turn { |finished| task { sleep 0 until finished.call } }
  end

  def test_a_fiber_that_yields_in_a_loop
    only_ours
    everyone_gets_a_turn { |finished| task { Fiber.scheduler.yield until finished.call } }
  end

  def test_a_thousand_busy_fibers
    everyone_gets_a_turn { |finished| 1000.times { task { sleep 0 until finished.call } } }
  end

  def test_a_fiber_that_reads_what_is_always_ready
    r, w = IO.pipe
    stop = false
    feeder = Thread.new do
      Thread.current.report_on_exception = false # it may write when nobody reads any more
      until stop
        w.wait_writable
        w.write_nonblock("x" * 65_536, exception: false)
      end
    end
    everyone_gets_a_turn { |finished| task { r.readpartial(1) until finished.call } }
  ensure
    stop = true
    r.close
    begin
      feeder.join
    rescue SystemCallError, IOError
      nil
    end
    w.close
  end

  def test_a_fiber_that_reads_a_file_in_a_loop
    File.open(__FILE__) do |file|
      everyone_gets_a_turn do |finished|
        task do
          until finished.call
            file.rewind
            file.readpartial(10)
          end
        end
      end
    end
  end

  def test_two_fibers_that_wake_each_other_through_a_queue
    everyone_gets_a_turn do |finished|
      there = Queue.new
      back = Queue.new
      task do
        until finished.call
          there << 1
          back.pop
        end
        there << nil
      end
      task do
        while there.pop
          back << 1
        end
      end
    end
  end

  def test_two_fibers_that_wake_each_other_through_a_socket
    everyone_gets_a_turn do |finished|
      a, b = UNIXSocket.pair
      task do
        until finished.call
          a.write("x")
          a.readpartial(1)
        end
        a.close
      end
      task do
        loop { b.write(b.readpartial(1)) }
      rescue EOFError
        b.close
      end
    end
  end

  def test_fibers_that_fail_to_lock_in_a_loop
    everyone_gets_a_turn do |finished|
      mutex = Mutex.new
      2.times do
        task do
          mutex.synchronize { sleep 0 } until finished.call
        end
      end
    end
  end

  def test_spawning_in_a_loop
    everyone_gets_a_turn do |finished|
      task do
        until finished.call
          task { sleep 0 }
          sleep 0
        end
      end
    end
  end

  def test_every_ready_fiber_runs_equally_often
    counts = Hash.new(0)
    schedule do
      finished = false
      10.times do |i|
        task do
          until finished
            counts[i] += 1
            sleep 0
          end
        end
      end
      sleep 0.001 until counts.values.sum > 20_000
      finished = true
    end
    assert_equal 10, counts.size
    assert_operator counts.values.max - counts.values.min, :<=, 200
  end

  # Who runs when a task begins two others, and one beside it is runnable.
  def order_of_beginning
    only_ours
    order = []
    schedule do
      a, b = UNIXSocket.pair
      task do
        4.times do
          order << :beside
          sleep 0
        end
      end
      2.times do
        task { yield a }
        order << :begun
      end
      b.close
    end
    order
  end

  # A server's tasks: one that accepts all there is before the first connection is served has them all open.
  def test_a_fiber_that_begins_one_that_waits_for_a_descriptor_lets_the_others_run
    assert_equal %i[beside beside begun beside begun], order_of_beginning(&:read).first(5)
  end

  def test_a_fiber_that_begins_one_that_gives_way_goes_on
    assert_equal %i[beside begun begun], order_of_beginning { sleep 0 }.first(3)
  end

  # After much was written its reader is looked for at the next switch, while the data are in the processor's cache.
  def test_who_waits_for_much_that_was_written_runs_soon
    only_ours
    turns = 0
    read = written = nil
    schedule do
      a, b = UNIXSocket.pair
      task do
        b.readpartial(16_384)
        read = turns
      end
      task do
        until read
          turns += 1
          sleep 0
        end
      end
      task do
        3.times { a.write("x" * 16_384) }
        written = turns
      end
    end
    assert_operator read - written, :<=, 2
  end
end
