# frozen_string_literal: true

require_relative "helper"

# Eagain.run: what it returns, waits for, and does with what is raised.
class RunTest < EagainTest
  def setup
    only_ours
  end

  def test_returns_the_value_of_the_block
    assert_equal 3, Eagain.run { 3 }
    assert_nil(Eagain.run {})
  end

  def test_needs_a_block
    assert_raises(ArgumentError) { Eagain.run }
  end

  def test_leaves_no_scheduler_behind
    Eagain.run { refute_nil Fiber.current_scheduler }
    assert_nil Fiber.scheduler
    assert_raises(RuntimeError) { Eagain.run { raise "x" } }
    assert_nil Fiber.scheduler
  end

  def test_every_backend
    backends.each do |name|
      assert_equal name, Eagain.run(backend: name) { Fiber.scheduler.backend }
    end
    assert_raises(ArgumentError) { Eagain.run(backend: "nonsense") {} }
    assert_nil Fiber.scheduler
  end

  def test_a_backend_may_be_a_symbol
    Eagain::BACKENDS.each do |name|
      assert_equal name, Eagain.run(backend: name.to_sym) { Fiber.scheduler.backend }
    end
  end

  def test_the_error_of_an_unknown_backend_names_those_that_there_are
    choices = "(there are #{Eagain::BACKENDS.join(", ")})"
    ["kqueue", :kqueue].each do |name|
      error = assert_raises(ArgumentError) { Eagain.run(backend: name) {} }
      assert_equal "unknown backend: #{name.inspect} #{choices}", error.message
    end
    assert_raises(TypeError) { Eagain.run(backend: 3) {} }
    assert_child "unknown backend in EAGAIN_BACKEND: kqueue #{choices}\n", <<~RUBY, env: { "EAGAIN_BACKEND" => "kqueue" }
      begin
        Eagain.run {}
      rescue ArgumentError => e
        puts e.message
      end
    RUBY
  end

  def test_waits_for_tasks_and_the_tasks_of_tasks
    seen = []
    Eagain.run do
      Eagain.spawn do
        sleep 0.01
        Eagain.spawn { sleep(0.01) && seen << :inner }
        seen << :outer
      end
      seen << :block
    end
    assert_equal %i[block outer inner], seen
  end

  def test_waits_for_plain_fibers_too
    seen = false
    Eagain.run { Fiber.schedule { sleep(0.01) && seen = true } }
    assert seen
  end

  def test_tasks_run_concurrently
    order = []
    Eagain.run do
      Eagain.spawn { order << 1 and sleep 0.02 and order << 4 }
      Eagain.spawn { order << 2 and sleep 0.01 and order << 3 }
    end
    assert_equal [1, 2, 3, 4], order
  end

  def test_an_exception_cancels_the_tasks_and_runs_their_ensure_blocks
    cleaned = []
    error = assert_raises(ArgumentError) do
      Eagain.run do
        Eagain.spawn { wait_and { cleaned << :plain } }
        Eagain.spawn { wait_and { sleep(0.01) && cleaned << :slow } }
        sleep 0.001
        raise ArgumentError, "from the block"
      end
    end
    assert_equal "from the block", error.message
    assert_equal %i[plain slow], cleaned
  end

  def test_an_ensure_block_may_spawn
    seen = []
    assert_raises(RuntimeError) do
      Eagain.run do
        Eagain.spawn { wait_and { Eagain.spawn { sleep(0.005) && seen << :late }.join } }
        sleep 0.001
        raise "x"
      end
    end
    assert_equal [:late], seen
  end

  def test_nested_waits_for_its_own_tasks_only
    seen = []
    Eagain.run do
      outer = Eagain.spawn { sleep 60 }
      value = Eagain.run do
        Eagain.spawn { sleep(0.005) && seen << :inner }
        :value
      end
      seen << value
      assert_predicate outer, :alive?
      outer.cancel
    end
    assert_equal %i[inner value], seen
  end

  def test_nested_in_a_task_keeps_the_current_task
    Eagain.run do
      Eagain.spawn do
        task = Eagain::Task.current
        Eagain.run { assert_same task, Eagain::Task.current }
      end.join
    end
  end

  def test_nested_exception_cancels_the_inner_tasks_only
    Eagain.run do
      outer = Eagain.spawn { sleep 60 }
      inner = nil
      assert_raises(KeyError) do
        Eagain.run do
          inner = Eagain.spawn { sleep 60 }
          sleep 0.001
          raise KeyError
        end
      end
      assert_predicate inner, :cancelled?
      refute_predicate inner, :alive?
      assert_predicate outer, :alive?
      outer.cancel
    end
  end

  def test_nested_can_be_left_by_throw_break_and_return
    cleaned = []
    Eagain.run do
      leave = proc do |&way|
        Eagain.spawn { wait_and { cleaned << 1 } }
        sleep 0.001
        way.call
      end
      assert_equal 8, catch(:done) { Eagain.run { leave.call { throw :done, 8 } } }
      assert_equal 9, (Eagain.run { Eagain.spawn { wait_and { cleaned << 1 } }; sleep 0.001; break 9 })
      assert_equal 10, return_from_run(cleaned)
    end
    assert_equal 3, cleaned.size
  end

  def return_from_run(cleaned)
    Eagain.run do
      Eagain.spawn { wait_and { cleaned << 1 } }
      sleep 0.001
      return 10
    end
  end

  def test_the_outermost_cannot_be_left_by_throw_or_break
    assert_raises(UncaughtThrowError) { catch(:done) { Eagain.run { throw :done } } }
    assert_raises(LocalJumpError) { Eagain.run { break 1 } }
  end

  def test_in_the_fiber_that_set_a_scheduler
    Thread.new do
      Fiber.set_scheduler(Eagain::Scheduler.new)
      other = Eagain.spawn { sleep 60 }
      seen = []
      assert_equal(4, Eagain.run { Eagain.spawn { sleep(0.005) && seen << 1 }; 4 })
      assert_equal [1], seen
      assert_predicate other, :alive?, "only its own tasks are waited for"
      assert_raises(KeyError) { Eagain.run { raise KeyError } }
      other.cancel
    ensure
      Fiber.set_scheduler(nil)
    end.join
  end

  def test_in_many_threads_at_once
    values = Array.new(4) { |i| Thread.new { Eagain.run { Eagain.spawn { sleep(0.005) && i }.value } } }.map(&:value)
    assert_equal [0, 1, 2, 3], values
  end

  def test_exit_in_a_task_is_raised_in_the_block
    cleaned = false
    exit = assert_raises(SystemExit) do
      Eagain.run do
        Eagain.spawn { exit 3 }
        wait_and { cleaned = true }
      end
    end
    assert_equal 3, exit.status
    assert cleaned
  end

  def test_the_block_may_rescue_the_exit_of_a_task
    value = Eagain.run do
      Eagain.spawn { exit 3 }
      sleep 60
    rescue SystemExit => e
      e.status
    end
    assert_equal 3, value
  end

  def test_exit_in_a_task_after_the_block_has_returned
    cleaned = false
    exit = assert_raises(SystemExit) do
      Eagain.run do
        Eagain.spawn { wait_and { sleep(0.005) && cleaned = true } }
        Eagain.spawn { sleep(0.005) && exit(4) }
      end
    end
    assert_equal 4, exit.status
    assert cleaned
  end

  def test_exit_in_a_nested_task_ends_everything
    cleaned = []
    exit = assert_raises(SystemExit) do
      Eagain.run do
        Eagain.spawn { wait_and { cleaned << :outer } }
        Eagain.spawn { Eagain.run { Eagain.spawn { exit 5 }; wait_and { cleaned << :inner } } }
        sleep 60
      end
    end
    assert_equal 5, exit.status
    assert_equal %i[inner outer], cleaned
  end

  def test_no_memory_error_ends_the_run
    assert_raises(NoMemoryError) { Eagain.run { Eagain.spawn { raise NoMemoryError, "as if" }; sleep 60 } }
  end

  def test_thread_raise_reaches_the_block
    thread = Thread.new do
      Thread.current.report_on_exception = false
      Eagain.run do
        sleep 60
      rescue KeyError => e
        e.message
      end
    end
    Thread.pass until thread.stop?
    thread.raise(KeyError, "from outside")
    assert_equal "from outside", thread.value
  end

  def test_timeout_around_a_run
    cleaned = false
    assert_raises(Timeout::Error) do
      Timeout.timeout(0.02) { Eagain.run { Eagain.spawn { wait_and { cleaned = true } } } }
    end
    assert cleaned
    assert_nil Fiber.scheduler
  end

  def test_a_killed_thread_runs_the_ensure_blocks
    cleaned = []
    thread = Thread.new { Eagain.run { Eagain.spawn { wait_and { cleaned << 1 } }; wait_and { cleaned << 2 } } }
    Thread.pass until thread.stop?
    thread.kill
    assert thread.join(5)
    assert_equal [1, 2], cleaned.sort
  end

  def test_spawn_needs_a_loop_and_a_block
    error = assert_raises(RuntimeError) { Eagain.spawn {} }
    assert_match(/Eagain.run/, error.message)
    error = assert_raises(ArgumentError) { Eagain.run { Eagain.spawn } }
    assert_equal "Eagain.spawn must be called with a block", error.message
    error = assert_raises(ArgumentError) { Eagain.run }
    assert_equal "Eagain.run must be called with a block", error.message
  end

  def test_spawn_with_a_scheduler_of_ones_own
    seen = nil
    Thread.new do
      Fiber.set_scheduler(Eagain::Scheduler.new)
      task = Eagain.spawn { sleep(0.005) && 42 }
      assert_nil task.join(0.001)
      assert_equal 42, task.value
      Eagain.spawn { sleep(0.005) && seen = 1 }
      Fiber.set_scheduler(nil)
    end.join
    assert_equal 1, seen
  end

  def test_spawn_in_an_enumerator
    seen = nil
    Eagain.run do
      Enumerator.new { |y| Eagain.spawn { seen = 1 } and y << 1 }.next
    end
    assert_equal 1, seen
  end

  # Ctrl-C and SIGTERM, in a process of their own.

  SIGNALS = { "INT" => 2, "TERM" => 15 }.freeze

  def test_a_signal_cancels_the_tasks_and_ends_the_process_by_it
    SIGNALS.each do |name, number|
      out, err, status = child(<<~RUBY)
        Eagain.run do
          Eagain.spawn { begin; sleep; ensure; sleep 0.01; puts "task" end }
          Eagain.spawn { sleep 0.02; Process.kill(:#{name}, $$) }
          begin; sleep; ensure; puts "block" end
        end
      RUBY
      assert_equal "block\ntask\n", out, err
      assert_equal number, status.termsig, "#{status} #{err}"
    end
  end

  def test_a_signal_after_the_block_has_returned
    SIGNALS.each do |name, number|
      out, err, status = child(<<~RUBY)
        Eagain.run do
          Thread.new { sleep 0.05; Process.kill(:#{name}, $$) }
          Eagain.spawn { begin; sleep; ensure; puts "task" end }
        end
      RUBY
      assert_equal "task\n", out, err
      assert_equal number, status.termsig, "#{status} #{err}"
    end
  end

  def test_a_signal_while_a_task_computes
    out, err, status = child(<<~RUBY)
      Eagain.run do
        Eagain.spawn { begin; sleep; ensure; puts "sleeper" end }
        Eagain.spawn { Process.kill(:TERM, $$); loop {} }
      end
    RUBY
    assert_equal "sleeper\n", out, err
    assert_equal 15, status.termsig, err
  end

  def test_the_block_rescues_an_interrupt_and_goes_on
    out, err, status = child(<<~RUBY)
      Eagain.run do
        ticks = 0
        Eagain.spawn { 3.times { sleep 0.02; ticks += 1 } }
        Thread.new { sleep 0.01; Process.kill(:INT, $$) }
        begin
          sleep
        rescue Interrupt
          puts "rescued"
        end
        sleep 0.1
        puts ticks
      end
    RUBY
    assert_equal "rescued\n3\n", out, err
    assert_predicate status, :success?
  end

  def test_a_second_interrupt_interrupts_the_clean_up
    out, err, status = child(<<~RUBY)
      Thread.new { 2.times { sleep 0.1; Process.kill(:INT, $$) } }
      Eagain.run do
        Eagain.spawn { begin; sleep; ensure; puts "cleaning"; begin; sleep 600; ensure; puts "interrupted"; end; end }
      end
    RUBY
    assert_equal "cleaning\ninterrupted\n", out, err
    assert_equal 2, status.termsig, err
  end

  def test_exit_in_a_task_is_the_status_of_the_process
    _, err, status = child('Eagain.run { Eagain.spawn { exit 7 }; sleep }')
    assert_equal 7, status.exitstatus, err
    assert_empty err
  end

  def test_in_a_forked_child
    assert_child("child 1\nparent 2\n", <<~RUBY)
      $stdout.sync = true
      Eagain.run do
        Eagain.spawn { sleep 0.001 }
        Process.wait(fork { puts "child \#{Thread.new { Eagain.run { Eagain.spawn { sleep 0.001; 1 }.value } }.value}" })
        puts "parent \#{Eagain.spawn { 2 }.value}"
      end
    RUBY
  end

  # A foreign loop: the gem async, where it is installed.
  def test_inside_async
    out, err, status = child(<<~RUBY)
      begin
        require "async"
      rescue LoadError
        exit 77
      end
      class IO; def timeout = nil; end unless IO.method_defined?(:timeout) # Async asks for it on 3.1 too
      Async do |outer|
        p(Eagain.run { [0.02, 0.01].map { |s| Eagain.spawn { sleep s; s } }.map(&:value) })
        task = Eagain.run { Eagain.spawn { begin; sleep; ensure; sleep 0.01; puts "ensure" end }.tap { sleep 0.01 }.cancel }
        p task.status
        begin
          Eagain.run { Eagain.spawn { begin; sleep; ensure; puts "cancelled" end }; Eagain.spawn { sleep 0.01; exit 3 } }
        rescue SystemExit => e
          p e.status
        end
        begin
          Eagain.timeout(0.01) { sleep }
        rescue Timeout::Error => e
          p e.class
        end
        stopped = outer.async { Eagain.run { Eagain.spawn { begin; sleep; ensure; puts "stopped" end }; sleep } }
        sleep 0.01
        stopped.stop
      end
    RUBY
    skip "the gem async is not installed" if status.exitstatus == 77

    assert_equal "[0.02, 0.01]\nensure\nfalse\ncancelled\n3\nTimeout::Error\nstopped\n", out, err
    assert_predicate status, :success?, err
  end

  FORK = <<~'RUBY'
    $stdout.sync = true
    Eagain.run do
      Eagain.spawn { begin; sleep 0.2; ensure; puts "ensure of #{$$ == $parent ? :parent : :child}"; end }
      $parent = $$
      sleep 0.01
      if (pid = fork)
        Process.wait(pid)
        puts "status #{$?.exitstatus}"
      else
        %s
      end
    end
  RUBY

  def test_a_forked_child_ends_with_its_task
    { "puts Eagain.spawn { sleep 0.01; 1 }.value" => 0, "puts 1; exit 4" => 4, "puts 1; exit!(5)" => 5,
      "puts 1; raise 'in the child'" => 1, "Eagain.run { Eagain.spawn { puts 1 } }" => 0 }.each do |code, number|
      out, err, status = child(format(FORK, code))
      assert_equal "1\nstatus #{number}\nensure of parent\n", out, err
      assert_predicate status, :success?, err
      assert_equal number == 1 ? 1 : 0, err.scan("in the child").size, err
    end
  end

  def test_in_a_ractor
    assert_equal "3\n", in_ractor("Eagain.run { Eagain.spawn { sleep 0.01; 3 }.value }")
  end

  def test_joined_from_a_thread_in_a_ractor
    assert_equal "4\n", in_ractor(<<~RUBY)
      Eagain.run do
        task = Eagain.spawn { sleep 0.01; 3 }
        Thread.new { task.value + 1 }.value
      end
    RUBY
  end

  private

  # What the script's value prints as, in a Ractor of a process of its own.
  def in_ractor(script)
    out, err, status = child(<<~RUBY)
      Warning[:experimental] = false
      ractor = Ractor.new { #{script} }
      puts ractor.public_send(ractor.respond_to?(:value) ? :value : :take)
    RUBY
    assert_predicate status, :success?, err
    out
  end

  # Waits for ever; the block is the clean-up.
  def wait_and
    sleep 60
  ensure
    yield
  end
end
