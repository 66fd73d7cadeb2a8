# frozen_string_literal: true

require_relative "task"
require_relative "group"

# ::run makes a loop, and ::spawn starts a task in it.
module Eagain
  class << self
    # Runs the block in an event loop, in which Ruby's blocking calls (sockets, pipes, +sleep+,
    # Queue, Mutex, DNS, subprocesses, ...) let other tasks run meanwhile. Waits until
    # the block and every task started inside, also by tasks, has ended.
    #
    #   Eagain.run do
    #     pages = urls.map { |url| Eagain.spawn { Net::HTTP.get(URI(url)) } }
    #     pages.map(&:value)
    #   end
    #
    # backend:: "epoll", "io_uring" or "poll", or a Symbol (see Eagain::BACKENDS); nil for the environment variable
    #           +EAGAIN_BACKEND+, or else the best that works. Ignored where a loop runs already.
    #
    # Returns the value of the block. Blocks the calling thread; other threads run.
    #
    # Inside another Eagain.run, or on a thread with another Fiber scheduler (Async, for
    # one), no second loop is made: the block runs in the calling fiber,
    # and only its own tasks are waited for.
    #
    # == When something is raised
    #
    # If an exception leaves the block, the tasks that still run are cancelled, their +ensure+
    # blocks run, and then the exception goes on. +throw+ and +break+ out of the
    # block do the same in a nested run; in the outermost one the block has a fiber of its
    # own, and they fail as in Thread.new.
    #
    # Ctrl-C, SIGTERM and +exit+ in a task are raised in the block, which may rescue them, as
    # Ruby does it with the main thread. Once the block has returned, they cancel the tasks and are raised
    # from here. A second Ctrl-C interrupts the clean-up of the first.
    #
    # Errors: ArgumentError for no block or an unknown backend, TypeError for one that is no name.
    def run(backend: nil, &block)
      raise ArgumentError, "Eagain.run must be called with a block" unless block

      if Fiber.current_scheduler
        run_nested(Fiber.current_scheduler, &block)
      elsif Fiber.scheduler
        run_on(Fiber.scheduler, block)
      else
        Runner.new(backend: backend).run_block(block)
      end
    end

    # Starts a task: the block runs when its turn comes, not before this returns (under a
    # foreign scheduler, at once). The fiber storage is inherited (Ruby 3.2).
    #
    # name:: for Task#inspect and for reports (String or nil).
    #
    # Returns the Task. Errors: RuntimeError where no loop runs on this thread, ArgumentError for no
    # block, TypeError for a name that is no String.
    def spawn(name: nil, &block)
      raise ArgumentError, "Eagain.spawn must be called with a block" unless block

      context = Thread.current[:eagain_task]
      (context ? context.group : Group.current).spawn(name, block)
    end

    private

    # :stopdoc:

    # In a fiber of a running loop: the block in this fiber, its tasks in a group.
    def run_nested(scheduler)
      group = Group.new(scheduler, Fiber.current)
      completed = false
      inside(group) do
        value = yield
        group.wait
        completed = true
        value
      ensure
        unless completed
          group.abort(nil)
          group.drain
        end
      end
    end

    # Makes +group+ the one that the running fiber spawns into.
    def inside(group)
      task = Task.current
      if task
        outer = task.group
        task.group = group
      else
        outer = Thread.current[:eagain_task]
        Thread.current[:eagain_task] = group
      end
      yield
    ensure
      task ? task.group = outer : Thread.current[:eagain_task] = outer
    end

    # In the fiber that has set a scheduler: as a part of that loop.
    def run_on(scheduler, block)
      group = Group.new(scheduler)
      main = group.main = group.spawn(nil, block)
      begin
        group.drive_to_end
      rescue Exception => exception # rubocop:disable Lint/RescueException
        group.forward(exception)
        retry
      end
      Runner.outcome(group, main)
    end
  end

  # The outermost run of a thread: makes the scheduler, runs it to the end, and frees it.
  class Runner # :nodoc: all
    # Scheduler#stats at the end (Hash), once the run is over.
    attr_reader :stats

    # What a run whose block was +main+ returns or raises.
    def self.outcome(group, main)
      failure = group.failure || main.failure
      raise(failure, cause: failure.cause) if failure

      main.result
    end

    def initialize(backend: nil)
      @scheduler = Scheduler.new(backend: backend)
      @group = Group.new(@scheduler)
    end

    # Runs the block as a task. Returns its value.
    def run_block(block)
      run { @group.main = @group.spawn(nil, block) }
      Runner.outcome(@group, @group.main)
    end

    # Runs a proc as the bare body of a fiber: with no frame of ours below it, so that its
    # backtraces are those of a main program. What it raises is raised here.
    def run_bare(body)
      run { @scheduler.push(@group.owner = Fiber.new(&body)) }
      raise(@group.failure, cause: @group.failure.cause) if @group.failure
    end

    private

    def run
      thread = Thread.current
      outer = thread.thread_variable_get(:eagain_group)
      thread.thread_variable_set(:eagain_group, @group)
      Fiber.set_scheduler(@scheduler)
      begin
        yield
        run_to_end
      ensure
        # If this thread is killed, the tasks still get to their ensure blocks.
        @group.abort(nil) unless @group.empty?
        @stats = @scheduler.stats
        Fiber.set_scheduler(nil)
        thread.thread_variable_set(:eagain_group, outer)
      end
    end

    # Signals, Thread#raise and what leaves a fiber that is no task come out of
    # Scheduler#run; it goes on with what is left.
    def run_to_end
      @scheduler.run
    rescue Exception => exception # rubocop:disable Lint/RescueException
      # What was raised here happens to the block, and shall show where that waits.
      exception.set_backtrace(nil) if @group.owned? && raised_here?(exception)
      @group.forward(exception)
      retry
    end

    def raised_here?(exception)
      exception.backtrace&.any? { |frame| frame.start_with?(__FILE__) }
    end
  end
  private_constant :Runner
end
