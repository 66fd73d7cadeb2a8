# frozen_string_literal: true

require_relative "helper"

# Each hook, called as a Ruby of the interface version that is compiled in would call it.
#
# When the version is not the running Ruby's (see test_forced_versions.rb), Ruby's own I/O inside of
# fibers would call the hooks in another order than they expect; so these tests do theirs outside.
class HooksTest < EagainTest
  VERSION = PEER ? 0 : Eagain::Scheduler::INTERFACE_VERSION
  MINIMUM_PROGRESS = VERSION < 4 # what length means; later: at most
  EAGAIN = -Errno::EAGAIN::Errno
  EPIPE = -Errno::EPIPE::Errno

  class Mine < StandardError; end

  def setup
    only_ours
  end

  # Yields a scheduler and both ends of a pair, inside a fiber.
  def hooks(pair = UNIXSocket.pair)
    schedule do
      yield Fiber.scheduler, *pair
      outside { close_all(pair) }
    end
  end

  # Does I/O without the hooks.
  def outside(&block) = Fiber.new(blocking: true, &block).resume

  def later(scheduler, seconds = 0.002, &block)
    task do
      scheduler.kernel_sleep(seconds)
      outside(&block)
    end
  end

  def buffer(size, text = nil)
    IO::Buffer.new(size).tap { |b| b.set_string(text) if text }
  end

  # Calls a hook with its arguments in the order of the version.
  def call(scheduler, hook, io, buf, length:, offset: 0, from: nil)
    raise ArgumentError, "no offset before version 2" if VERSION < 2 && offset != 0

    where = VERSION < 2 ? [length, *from] : [*from, *(VERSION < 4 ? [length, offset] : [offset, length])]
    scheduler.public_send(hook, io, buf, *where)
  end

  def test_arity_is_that_of_the_version
    expected = VERSION < 2 ? [3, 4] : [4, 5]
    assert_equal expected.first, Eagain::Scheduler.instance_method(:io_read).arity
    assert_equal expected.first, Eagain::Scheduler.instance_method(:io_write).arity
    assert_equal expected.last, Eagain::Scheduler.instance_method(:io_pread).arity
    assert_equal expected.last, Eagain::Scheduler.instance_method(:io_pwrite).arity
  end

  # --- io_read

  def test_io_read_returns_what_is_there
    hooks do |scheduler, a, b|
      outside { b.write("abc") }
      buf = buffer(16)
      assert_equal 3, call(scheduler, :io_read, a, buf, length: MINIMUM_PROGRESS ? 1 : 16)
      assert_equal "abc", buf.get_string(0, 3)
    end
  end

  def test_io_read_at_the_end_is_zero
    hooks do |scheduler, a, b|
      outside { b.close }
      assert_equal 0, call(scheduler, :io_read, a, buffer(8), length: MINIMUM_PROGRESS ? 1 : 8)
    end
  end

  if VERSION >= 2
    def test_io_read_of_an_offset
      hooks do |scheduler, a, b|
        outside { b.write("abc") }
        buf = buffer(16, "................")
        assert_equal 3, call(scheduler, :io_read, a, buf, length: 3, offset: 5)
        assert_equal ".....abc........", buf.get_string
      end
    end
  end

  if MINIMUM_PROGRESS
    def test_io_read_makes_the_least_progress_that_was_asked
      hooks do |scheduler, a, b|
        later(scheduler) { b.write("ab") }
        later(scheduler, 0.004) { b.write("cde") }
        buf = buffer(16)
        assert_equal 5, call(scheduler, :io_read, a, buf, length: 4)
        assert_equal "abcde", buf.get_string(0, 5)
        outside { b.write("fg") }
        assert_equal 2, call(scheduler, :io_read, a, buf, length: 0)
        later(scheduler) { b.write("x") }
        later(scheduler, 0.004) { b.close }
        assert_equal 1, call(scheduler, :io_read, a, buf, length: 8)
      end
    end
  end

  unless MINIMUM_PROGRESS
    def test_io_read_is_one_transfer_of_at_most_length
      hooks do |scheduler, a, b|
        buf = buffer(16, "................")
        assert_equal EAGAIN, call(scheduler, :io_read, a, buf, length: 16)
        outside { b.write("abcdef") }
        assert_equal 2, call(scheduler, :io_read, a, buf, length: 2)
        assert_equal "ab..............", buf.get_string
        assert_equal 4, call(scheduler, :io_read, a, buf, length: 12, offset: 4), "a short count is returned at once"
        assert_equal "ab..cdef........", buf.get_string
        assert_equal EAGAIN, call(scheduler, :io_read, a, buf, length: 1)
      end
    end

    def test_zero_length_does_nothing
      hooks do |scheduler, a, b|
        assert_equal 0, call(scheduler, :io_read, a, buffer(4), length: 0)
        assert_equal 0, call(scheduler, :io_write, a, buffer(4, "abcd"), length: 0)
        outside { b.write("x") }
        assert_equal 0, call(scheduler, :io_read, a, buffer(4), length: 0)
        outside do
          assert_equal "x", a.readpartial(4)
          assert_equal :wait_readable, b.read_nonblock(1, exception: false)
        end
      end
    end
  end

  def test_range_outside_of_the_buffer_is_refused
    hooks do |scheduler, a, b|
      outside { b.write("abcdefgh") }
      %i[io_read io_write].each do |hook|
        result = begin
          call(scheduler, hook, a, buffer(4, "1234"), length: 5)
        rescue ArgumentError
          :refused
        end
        assert_includes [:refused, -Errno::EINVAL::Errno], result, hook
      end
      outside { assert_equal "abcdefgh", a.readpartial(100) }
    end
  end

  def test_io_read_from_a_pipe_that_is_in_blocking_mode
    require "io/nonblock"
    pair = IO.pipe
    pair.each { |io| io.nonblock = false }
    hooks(pair) do |scheduler, r, w|
      buf = buffer(8)
      if MINIMUM_PROGRESS
        later(scheduler) { w.write("abc") }
      else
        assert_equal EAGAIN, call(scheduler, :io_read, r, buf, length: 3)
        outside { w.write("abc") }
      end
      assert_equal 3, call(scheduler, :io_read, r, buf, length: 3)
      outside { refute r.nonblock? }
    end
  end

  def test_io_read_errors_are_negative
    hooks(IO.pipe) do |scheduler, r, w|
      result = call(scheduler, :io_read, File.open("/"), buffer(8), length: 1)
      assert_equal(-Errno::EISDIR::Errno, result)
      outside { r.close }
      assert_equal EPIPE, call(scheduler, :io_write, w, buffer(1, "x"), length: 1)
    end
  end

  # --- io_write

  def test_io_write_writes
    hooks do |scheduler, a, b|
      assert_equal 4, call(scheduler, :io_write, a, buffer(4, "abcd"), length: 4)
      outside { assert_equal "abcd", b.readpartial(10) }
    end
  end

  if VERSION >= 2
    def test_io_write_of_an_offset
      hooks do |scheduler, a, b|
        count = call(scheduler, :io_write, a, buffer(8, "abcdefgh"), length: 3, offset: 2)
        expected = MINIMUM_PROGRESS ? "cdefgh" : "cde"
        assert_equal expected.size, count
        outside { assert_equal expected, b.readpartial(10) }
      end
    end
  end

  if MINIMUM_PROGRESS
    def test_io_write_makes_the_least_progress_that_was_asked
      size = 1_000_000
      hooks do |scheduler, a, b|
        reader = Thread.new { b.read(size).bytesize }
        assert_equal size, call(scheduler, :io_write, a, buffer(size), length: size)
        assert_equal size, reader.value
      end
    end
  end

  unless MINIMUM_PROGRESS
    def test_io_write_is_one_transfer
      size = 10_000_000
      hooks do |scheduler, a, b|
        count = call(scheduler, :io_write, a, buffer(size), length: size)
        assert_includes 1...size, count
        filled = call(scheduler, :io_write, a, buffer(size), length: size) until filled == EAGAIN
        outside { b.readpartial(100_000) }
        assert_operator call(scheduler, :io_write, a, buffer(size), length: size), :>, 0
      end
    end
  end

  # --- io_pread, io_pwrite

  def test_positional_reads_and_writes
    Tempfile.create("hooks") do |file|
      hooks([file]) do |scheduler, f|
        assert_equal 8, call(scheduler, :io_pwrite, f, buffer(8, "abcdefgh"), from: 4, length: 8)
        buf = buffer(8)
        assert_equal 4, call(scheduler, :io_pread, f, buf, from: 8, length: MINIMUM_PROGRESS ? 1 : 4)
        assert_equal "efgh", buf.get_string(0, 4)
        assert_equal 0, call(scheduler, :io_pread, f, buf, from: 100, length: 1)
        assert_equal 12, File.size(f.path)
      end
    end
  end

  if VERSION >= 2
    def test_positional_hooks_of_an_offset
      Tempfile.create("hooks") do |file|
        hooks([file]) do |scheduler, f|
          call(scheduler, :io_pwrite, f, buffer(8, "abcdefgh"), from: 0, length: 6, offset: 2)
          buf = buffer(8, "........")
          count = call(scheduler, :io_pread, f, buf, from: 1, length: 3, offset: 5)
          assert_equal 3, count
          assert_equal ".....def", buf.get_string
        end
      end
    end
  end

  def test_positional_hooks_on_a_pipe_fail
    hooks(IO.pipe) do |scheduler, r, _w|
      assert_equal(-Errno::ESPIPE::Errno, call(scheduler, :io_pread, r, buffer(8), from: 0, length: 1))
    end
  end

  # --- io_wait, io_select

  def test_io_wait_returns_the_events
    hooks do |scheduler, a, b|
      both = IO::READABLE | IO::WRITABLE
      assert_equal IO::WRITABLE, scheduler.io_wait(a, both, nil)
      assert_equal false, scheduler.io_wait(a, IO::READABLE, 0.001)
      assert_equal false, scheduler.io_wait(a, IO::READABLE, 0)
      later(scheduler) { b.write("x") }
      assert_equal IO::READABLE, scheduler.io_wait(a, IO::READABLE, nil)
      assert_equal both, scheduler.io_wait(a, both, 1)
    end
  end

  def test_io_wait_reports_a_hangup_as_readable
    hooks do |scheduler, a, b|
      later(scheduler) { b.close }
      assert_equal IO::READABLE, scheduler.io_wait(a, IO::READABLE, nil)
    end
  end

  def test_io_select
    hooks do |scheduler, a, b|
      assert_equal [[], [a], []], scheduler.io_select([a], [a], [], nil)
      assert_nil scheduler.io_select([a], nil, nil, 0.001)
      assert_nil scheduler.io_select([a], [], [], 0)
      later(scheduler) { b.write("x") }
      assert_equal [[a], [], []], scheduler.io_select([a, b], nil, nil, nil)
      assert_nil scheduler.io_select(nil, nil, nil, 0.001)
    end
  end

  # --- io_close

  if VERSION >= 3
    def test_io_close_of_a_number_wakes_its_waiters
      hooks do |scheduler, a, b|
        waiter = task { assert_raises(IOError) { scheduler.io_wait(a, IO::READABLE, nil) } }
        scheduler.kernel_sleep(0.002)
        a.autoclose = false
        scheduler.io_close(a.fileno)
        await("waiter") { waiter.done? }
        outside { assert_equal "", b.read }
      end
    end
  end

  # --- kernel_sleep, block, unblock, yield, timeout_after

  def test_kernel_sleep
    hooks do |scheduler|
      start = now
      scheduler.kernel_sleep(0.01)
      assert_operator now - start, :>=, 0.01
      scheduler.kernel_sleep(0)
    end
  end

  def test_block_and_unblock
    hooks do |scheduler|
      job = task { scheduler.block(:blocker, nil) }
      fiber = job.fiber
      scheduler.kernel_sleep(0.001)
      refute job.done?
      scheduler.unblock(:blocker, fiber)
      refute job.done?, "unblock makes runnable, it does not switch"
      await("unblocked") { job.done? }
      assert_equal true, job.value
    end
  end

  def test_block_with_a_timeout_returns_false
    hooks do |scheduler|
      assert_equal false, scheduler.block(:blocker, 0.002)
      assert_equal false, scheduler.block(:blocker, 0)
    end
  end

  def test_unblock_of_a_finished_fiber_is_harmless
    hooks do |scheduler|
      fiber = nil
      task { fiber = Fiber.current }
      scheduler.unblock(:blocker, fiber)
      scheduler.kernel_sleep(0.001)
    end
  end

  def test_unblock_before_block_is_not_lost
    hooks do |scheduler|
      # As a Mutex does: whoever is about to block may have been unblocked by another thread already.
      100.times do
        fiber = Fiber.current
        thread = Thread.new { scheduler.unblock(:blocker, fiber) }
        assert_includes [true, false], scheduler.block(:blocker, 5)
        thread.join
      end
    end
  end

  def test_timeout_after
    hooks do |scheduler|
      error = assert_raises(Mine) { scheduler.timeout_after(0.002, Mine, "late") { scheduler.kernel_sleep(10) } }
      assert_equal "late", error.message
      assert_equal :value, scheduler.timeout_after(10, Mine, "late") { :value }
    end
  end

  # --- address_resolve, process_wait, blocking_operation_wait

  def test_address_resolve
    hooks do |scheduler|
      addresses = scheduler.address_resolve("localhost")
      assert_kind_of Array, addresses
      refute_empty addresses & %w[127.0.0.1 ::1]
      assert_equal ["127.0.0.1"], scheduler.address_resolve("127.0.0.1").uniq
      assert_empty Array(scheduler.address_resolve("no-such-name.invalid"))
    end
  end

  def test_process_wait
    hooks do |scheduler|
      pid = outside { spawn("exit 3") }
      status = scheduler.process_wait(pid, 0)
      assert_kind_of Process::Status, status
      assert_equal [pid, 3], [status.pid, status.exitstatus]
    end
  end

  if hook?(:blocking_operation_wait) && Fiber.respond_to?(:blocking)
    def test_blocking_operation_wait
      hooks do |scheduler|
        ran = false
        scheduler.blocking_operation_wait(-> { ran = true })
        assert ran
      end
    end

    def test_blocking_operation_is_done_here_when_there_can_be_no_thread
      hooks do |scheduler|
        ThreadGroup.new.add(Thread.current).freeze
        worker = nil
        scheduler.blocking_operation_wait(-> { worker = Thread.current })
        assert_same Thread.current, worker
        assert_nil $!
      end
    end

    # A method of File's, whose work is taken to be brief until it turns out not to be.
    def test_brief_work_goes_to_another_thread_only_while_it_is_slow
      def File.__work__(work) = Fiber.scheduler.blocking_operation_wait(work)
      hooks do |scheduler|
        handed_over = lambda do |count, seconds|
          before = scheduler.stats[:offloaded]
          count.times { File.__work__(-> { sleep(seconds) if seconds > 0 }) }
          scheduler.stats[:offloaded] - before
        end
        # One that is kept waiting for the processor sends 16 there.
        assert_operator handed_over[100, 0], :<=, 32
        assert_operator handed_over[21, 0.001], :>=, 16 # four are timed, and then one of 17
        assert_operator handed_over[100, 0], :>=, 40 # until one is tried here again
        assert_operator handed_over[100, 0], :<=, 32
        assert_operator handed_over[10, 0.03], :>=, 9 # too long to look at another
      end
    ensure
      File.singleton_class.send(:remove_method, :__work__)
    end
  end

  # --- fiber, fiber_interrupt

  def test_fiber_starts_at_once
    hooks do |scheduler|
      ran = false
      fiber = scheduler.fiber { ran = true }
      assert ran
      refute fiber.alive?
    end
  end

  def test_fiber_interrupt
    hooks do |scheduler|
      job = task { assert_raises(IOError) { scheduler.kernel_sleep(100) } }
      scheduler.fiber_interrupt(job.fiber, IOError.new("stream closed"))
      await("interrupt") { job.done? }
      assert_equal "stream closed", job.value.message
    end
  end

  # What Ruby hands over from version 5 on: it stands for one operation of a fiber, and holds the
  # exception. Alive only while that operation goes on; later its raise and transfer do nothing.
  class Operation
    attr_writer :exception

    def initialize(fiber)
      @fiber = fiber
      @active = true
    end

    def finish = @active = false
    def alive? = @active && @fiber.alive?
    def raise(exception = @exception) = alive? && @fiber.raise(exception)
    def transfer(*) = alive? && @fiber.raise(@exception)
  end

  # As IO#close does: stores the exception, then tells the scheduler.
  def interrupt(scheduler, operation)
    operation.exception = IOError.new("stream closed")
    scheduler.fiber_interrupt(operation, IOError.new("stream closed"))
  end

  if VERSION >= 5
    def test_fiber_interrupt_of_an_operation
      hooks do |scheduler|
        operation = nil
        job = task do
          operation = Operation.new(Fiber.current)
          begin
            scheduler.kernel_sleep(100)
            :slept
          rescue IOError => e
            e.message
          ensure
            operation.finish
          end
        end
        interrupt(scheduler, operation)
        await("interrupt") { job.done? }
        assert_equal "stream closed", job.value
      end
    end

    def test_fiber_interrupt_of_an_operation_that_is_over_disturbs_nobody
      hooks do |scheduler|
        operation = nil
        job = task do
          operation = Operation.new(Fiber.current)
          scheduler.kernel_sleep(0.001)
          operation.finish
          scheduler.kernel_sleep(0.01)
          :undisturbed
        end
        scheduler.kernel_sleep(0.004)
        interrupt(scheduler, operation)
        await("job") { job.done? }
        assert_equal :undisturbed, job.value
      end
    end

    def test_fiber_interrupt_from_a_thread_races_with_the_end_of_the_operation
      hooks do |scheduler|
        100.times do
          operation = nil
          job = task do
            operation = Operation.new(Fiber.current)
            begin
              scheduler.block(:blocker, nil)
            rescue IOError
              nil # the interrupt came first
            ensure
              operation.finish
            end
            scheduler.kernel_sleep(0.0005)
            :undisturbed
          end
          fiber = job.fiber
          thread = Thread.new { interrupt(scheduler, operation) }
          scheduler.unblock(:blocker, fiber)
          await("job") { job.done? }
          assert_equal :undisturbed, job.value
          thread.join
        end
      end
    end
  end
end
