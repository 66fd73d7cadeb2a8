# frozen_string_literal: true

require_relative "helper"
require_relative "opened"
require_relative "tiny_scheduler"
require_relative "tls"
require "io/wait"

# Eagain.wait and its kin: with no scheduler, with ours and with a foreign one.
class WaitTest < EagainTest
  extend Everywhere
  include Opened

  def full_pipe = pipe.tap { |_, writer| fill(writer) }

  def elapsed
    start = now
    yield
    now - start
  end

  everywhere :what_is_ready_is_not_waited_for do
    r, w = pipe
    w << "x"

    assert_same r, Eagain.wait_readable(r)
    assert_same w, Eagain.wait_writable(w)
    assert_same r, Eagain.wait_readable(r, 0)
    assert_same w, Eagain.wait_writable(w, 0)
    assert_equal IO::WRITABLE, Eagain.wait(w, IO::WRITABLE)
    assert_equal IO::READABLE, Eagain.wait(r, IO::READABLE, 0)
  end

  everywhere :waits_until_readable do
    r, w = pipe
    order = []
    beside { sleep 0.02; order << :wrote; w << "x" } # rubocop:disable Style/Semicolon
    assert_same r, Eagain.wait_readable(r)
    order << :woken

    assert_equal %i[wrote woken], order
  end

  everywhere :waits_until_writable do
    r, w = full_pipe
    beside { sleep 0.02; r.readpartial(1 << 20) } # rubocop:disable Style/Semicolon

    assert_nil Eagain.wait_writable(w, 0)
    assert_same w, Eagain.wait_writable(w)
  end

  everywhere :events_are_those_that_are_there do
    a, b = pair

    assert_equal IO::WRITABLE, Eagain.wait(a, IO::READABLE | IO::WRITABLE)
    b << "x"
    assert_equal IO::READABLE | IO::WRITABLE, Eagain.wait(a, IO::READABLE | IO::WRITABLE, 1)
    assert_equal IO::READABLE, Eagain.wait(a, IO::READABLE, 1)
    b.close
    assert_equal IO::READABLE, Eagain.wait(a, IO::READABLE)
  end

  everywhere :timeouts do
    r, = pipe

    [0, 0.0, 0.03, Rational(3, 100)].each do |timeout|
      result = :none
      took = elapsed { result = Eagain.wait_readable(r, timeout) }
      assert_nil result
      assert_operator took, :>=, timeout
      assert_operator took, :<, 5
      assert_nil Eagain.wait(r, IO::READABLE, timeout)
    end
  end

  # Never a wake-up before its time, even if that is between two ticks of a clock.
  everywhere :small_timeouts_are_not_too_short do
    r, = pipe
    [1e-9, 1e-7, 1e-6, 0.9e-6, 1.5e-6, 1e-5, 0.000_999_9].each do |timeout|
      took = elapsed { assert_nil Eagain.wait_readable(r, timeout) }
      assert_operator took, :>=, timeout
    end
  end

  everywhere :huge_and_infinite_timeouts do
    [Float::INFINITY, 1e300, 2**40, 2**62, 2**64, 2**200, Float::MAX].each do |timeout|
      r, w = pipe
      beside { sleep 0.002; w << "x" } # rubocop:disable Style/Semicolon
      assert_same r, Eagain.wait_readable(r, timeout), timeout.to_s
    end
  end

  everywhere :bad_timeouts_are_as_of_sleep do
    r, w = pipe
    w << "x"
    [-1, -0.5, Float::NAN, -Float::INFINITY, "1", :one, [], Object.new, -(2**70)].each do |timeout|
      expected = assert_raises(StandardError) { blocking { sleep(timeout) } }
      %i[wait_readable wait_writable].each do |name|
        error = assert_raises(StandardError, timeout.inspect) { Eagain.public_send(name, name == :wait_readable ? r : w, timeout) }
        assert_equal expected.class, error.class, timeout.inspect
        assert_equal expected.message, error.message
      end
      assert_raises(expected.class) { Eagain.wait(r, IO::READABLE, timeout) } if timeout != :one
    end
  end

  # Without a scheduler: what Ruby's own method says of bad arguments.
  def blocking(&block) = Thread.new { Thread.current.report_on_exception = false; block.call }.value # rubocop:disable Style/Semicolon

  everywhere :bad_events do
    r, = pipe
    [0, -1].each { |events| assert_raises(ArgumentError) { Eagain.wait(r, events, 0) } }
    ["r", nil, 2**40].each do |events|
      error = assert_raises(StandardError) { Eagain.wait(r, events, 0) }
      expected = assert_raises(StandardError) { blocking { r.wait(events, 0) } }
      assert_equal expected.class, error.class, events.inspect
    end
  end

  everywhere :the_wrong_direction do
    r, w = pipe
    expected = assert_raises(IOError) { blocking { w.wait_readable } }
    assert_equal expected.message, assert_raises(IOError) { Eagain.wait_readable(w) }.message
    expected = assert_raises(IOError) { blocking { r.wait_writable } }
    assert_equal expected.message, assert_raises(IOError) { Eagain.wait_writable(r) }.message
  end

  everywhere :a_closed_io_and_what_is_none do
    r, w = pipe
    r.close
    w.close
    assert_equal "closed stream", assert_raises(IOError) { Eagain.wait_readable(r) }.message
    assert_equal "closed stream", assert_raises(IOError) { Eagain.wait_writable(w, 0) }.message
    assert_raises(IOError) { Eagain.wait(r, IO::READABLE) }
    assert_raises(TypeError) { Eagain.wait_readable(1) }
    assert_raises(TypeError) { Eagain.wait(nil, IO::READABLE) }
    assert_raises(ArgumentError) { Eagain.wait_readable }
    assert_raises(ArgumentError) { Eagain.wait_readable(r, 1, 2) }
  end

  everywhere :what_was_read_ahead_counts do
    r, w = pipe
    w << "one\ntwo\n"
    assert_equal "one\n", r.gets
    assert_same r, Eagain.wait_readable(r)
    assert_equal IO::READABLE, Eagain.wait(r, IO::READABLE | IO::WRITABLE, 0)
    r.gets
    assert_nil Eagain.wait_readable(r, 0)
    r.ungetc("é")
    assert_same r, Eagain.wait_readable(r, 0)
  end

  everywhere :an_object_with_to_io do
    r, w = pipe
    object = Struct.new(:to_io).new(r)
    assert_nil Eagain.wait_readable(object, 0)
    w << "x"
    assert_same object, Eagain.wait_readable(object)
    assert_equal IO::READABLE, Eagain.wait(object, IO::READABLE)
  end

  everywhere :both_directions_of_a_popen do
    cat = IO.popen(%w[cat], "r+")
    assert_same cat, Eagain.wait_writable(cat)
    assert_nil Eagain.wait_readable(cat, 0)
    cat << "x"
    cat.flush
    assert_same cat, Eagain.wait_readable(cat)
  ensure
    cat.close
  end

  everywhere :regular_files_are_ready do
    File.open(__FILE__) { |file| assert_same file, Eagain.wait_readable(file) }
    File.open(File::NULL, "w") { |file| assert_same file, Eagain.wait_writable(file, 1) }
  end

  everywhere :a_close_in_mid_wait_is_an_io_error, Everywhere::NOTICES_A_CLOSE do
    r, = pipe
    beside { sleep 0.03; r.close } # rubocop:disable Style/Semicolon
    error = assert_raises(IOError) { Eagain.wait_readable(r) }
    assert_equal "stream closed in another thread", error.message
  end

  # In a scheduler of somebody else's the sleeper is woken by what it thinks of, and then finds the IO closed.
  def test_a_close_under_a_foreign_scheduler
    only_ours
    scheduler = TinyScheduler.new
    def scheduler.io_wait(*) = (sleep 0.02) && false
    r, = pipe
    schedule(scheduler: scheduler) do
      task { r.close }
      error = assert_raises(IOError) { r.closed? ? Eagain.wait_readable(r) : Eagain.wait(r, IO::READABLE) }
      assert_match(/closed/, error.message)
    end
  end

  # A wake-up that tells of nothing is waited out.
  def test_spurious_answers_of_a_foreign_scheduler
    only_ours
    scheduler = TinyScheduler.new
    answers = [false, nil, true]
    scheduler.define_singleton_method(:io_wait) { |*| answers.shift }
    r, = pipe
    schedule(scheduler: scheduler) { assert_same r, Eagain.wait_readable(r) }
    assert_empty answers
  end

  def test_a_foreign_scheduler_is_asked
    only_ours
    scheduler = TinyScheduler.new
    r, w = pipe
    schedule(scheduler: scheduler) do
      task { w << "x" }
      Eagain.wait_readable(r)
      r.read(1)
      task { sleep 0.001; w << "x" } # rubocop:disable Style/Semicolon
      assert_same r, Eagain.wait_readable(r, 5)
    end
    assert_operator scheduler.waits, :>=, 2
  end

  # Whoever replaces a hook of ours is heard.
  def test_a_replaced_io_wait_is_called
    only_ours
    asked = []
    counting = Class.new(Eagain::Scheduler) do
      define_method(:io_wait) { |*arguments| asked << arguments && super(*arguments) }
    end
    r, w = pipe
    schedule(scheduler: counting.new) do
      task { sleep 0.001; w << "x" } # rubocop:disable Style/Semicolon
      asked.clear
      Eagain.wait_readable(r)
    end
    assert_equal [[r, IO::READABLE, nil]], asked
  end

  def test_in_a_blocking_fiber_the_thread_waits
    only_ours
    r, w = pipe
    schedule do
      Fiber.new(blocking: true) do
        writer = Thread.new { sleep 0.02; w << "x" } # rubocop:disable Style/Semicolon
        assert_same r, Eagain.wait_readable(r)
        writer.join
      end.resume
    end
  end

  def test_other_threads_run_meanwhile
    only_ours
    r, w = pipe
    ticks = 0
    ticker = Thread.new { 20.times { ticks += 1; Thread.pass }; w << "x" } # rubocop:disable Style/Semicolon
    Eagain.wait_readable(r)
    ticker.join
    assert_equal 20, ticks
  end

  def waiting_thread(io)
    thread = Thread.new { Thread.current.report_on_exception = false; Eagain.wait_readable(io) } # rubocop:disable Style/Semicolon
    await("sleep") { thread.status == "sleep" }
    thread
  end

  def test_thread_raise_and_kill
    only_ours
    r, w = pipe
    thread = waiting_thread(r)
    thread.raise(ArgumentError, "now")
    assert_equal "now", assert_raises(ArgumentError) { watch(thread, 10) }.message

    thread = waiting_thread(r)
    thread.kill
    assert_nil watch(thread, 10)

    w << "x"
    assert_same r, Eagain.wait_readable(r)
  end

  def test_a_task_is_cancelled_and_raised_in
    only_ours
    r, = pipe
    Eagain.run do
      cancelled = Eagain.spawn { Eagain.wait_readable(r) }
      raised = Eagain.spawn { Eagain.wait_readable(r) }
      raised.report_on_exception = false
      sleep 0.01
      cancelled.cancel
      raised.raise(ArgumentError, "now")
      assert_raises(Eagain::Cancelled) { cancelled.value }
      assert_raises(ArgumentError) { raised.value }
    end
  end

  def test_a_signal_is_handled_in_mid_wait
    only_ours
    assert_child("handled\nready\n", <<~'RUBY')
      r, w = IO.pipe
      trap(:USR1) { puts "handled"; w << "x" }
      Thread.new { sleep 0.05; Process.kill(:USR1, $$) }
      Eagain.wait_readable(r)
      puts "ready"
    RUBY
  end

  def test_an_interrupt_ends_a_wait
    only_ours
    assert_child("Interrupt\n", <<~'RUBY')
      r, w = IO.pipe
      Thread.new { sleep 0.05; Process.kill(:INT, $$) }
      begin
        Eagain.wait_readable(r)
      rescue Interrupt => e
        puts e.class
      end
    RUBY
  end

  def test_a_forked_child_waits_by_itself
    only_ours
    r, w = pipe
    other, = pipe
    thread = waiting_thread(other)
    pid = fork do
      w << "x"
      exit!(Eagain.wait_readable(r, 10).equal?(r) && Eagain.wait_readable(other, 0.01).nil? ? 0 : 1)
    end
    Process.wait(pid)
    assert_predicate $?, :success? # rubocop:disable Style/SpecialGlobalVars
  ensure
    thread&.kill&.join
  end

  def test_in_a_ractor
    only_ours
    assert_child("true nil\n", <<~'RUBY')
      ractor = Ractor.new do
        r, w = IO.pipe
        nothing = Eagain.wait_readable(r, 0.01)
        Thread.new { sleep 0.01; w << "x" }
        "#{Eagain.wait_readable(r).equal?(r)} #{nothing.inspect}"
      end
      puts(ractor.respond_to?(:value) ? ractor.value : ractor.take)
    RUBY
  end

  if IO.method_defined?(:timeout) # since Ruby 3.2
    everywhere :io_timeout_is_honoured do
      r, = pipe
      r.timeout = 0.02
      assert_operator(elapsed { assert_nil Eagain.wait_readable(r) }, :>=, 0.02)
      assert_operator(elapsed { assert_nil Eagain.wait(r, IO::READABLE) }, :>=, 0.02)
      # One that is given counts alone.
      took = elapsed { assert_nil Eagain.wait_readable(r, 0.1) }
      assert_operator took, :>=, 0.1
    end
  end

  everywhere :a_tls_socket_waits_for_its_socket do
    a, b = pair
    ssl = OpenSSL::SSL::SSLSocket.new(a)
    assert_nil Eagain.wait_readable(ssl, 0)
    b << "x"
    assert_same ssl, Eagain.wait_readable(ssl)
    assert_same ssl, Eagain.wait_writable(ssl)
  end

  # A wait that knows the descriptor costs no call of its own: the kernel is asked once for all, when nobody can run.
  def test_a_wait_of_a_fiber_costs_no_registration
    only_ours
    trace = strace(<<~'RUBY')
      Fiber.set_scheduler(Eagain::Scheduler.new)
      Fiber.schedule do
        r, w = IO.pipe
        w.sync = true
        rounds = 0
        Fiber.schedule { loop { Eagain.wait_readable(r); break if r.readpartial(5) == "end"; rounds += 1 } }
        round = proc { before = rounds; w.write("x"); sleep 0 until rounds > before }
        5.times(&round)
        mark
        50.times(&round)
        mark
        w.write("end")
      end
      Fiber.set_scheduler(nil)
    RUBY
    assert_equal "", trace.registering
  end

  def test_a_thread_that_waits_asks_once
    only_ours
    trace = strace(<<~'RUBY')
      r, w = IO.pipe
      w << "x"
      Eagain.wait_readable(r)
      GC.disable
      mark
      100.times { Eagain.wait_readable(r) }
      mark
    RUBY
    assert_equal 100, trace.waits, trace.to_s
    assert_equal 100, trace.work.except("getpid").values.sum, trace.to_s # Ruby's own, about its timer
  end

  def test_gc_stress
    only_ours
    assert_child("ok\n", <<~'RUBY', timeout: 120)
      r, w = IO.pipe
      GC.stress = true
      3.times do
        Eagain.wait_readable(r, 0.001)
        Eagain.wait(w, IO::WRITABLE, 1)
      end
      Eagain.run { 3.times { Eagain.wait_readable(r, 0.001) } }
      GC.stress = false
      GC.compact if GC.respond_to?(:compact)
      w << "x"
      puts "ok" if Eagain.wait_readable(r).equal?(r)
    RUBY
  end
end
