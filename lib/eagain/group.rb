# frozen_string_literal: true

module Eagain
  # The tasks that one Eagain.run waits for: those that its block spawns, and those that they
  # spawn.
  #
  # A group has a home (a scheduler on a thread) and an owner, the fiber that runs the block
  # of Eagain.run. What must not end one task alone (+exit+, signals) is raised in the owner, as Ruby
  # raises it in the main thread. When the owner is gone, or fails, the group is aborted:
  # its tasks are cancelled, and the run raises the reason at the end.
  #
  # Everything here but #deliver belongs to the home thread.
  class Group # :nodoc: all
    # Leaves Scheduler#run early, out of a task's fiber.
    class Stop < Exception
    end

    # The scheduler that runs the tasks (ours, or a foreign one), and its thread.
    attr_reader :scheduler, :thread

    # The fiber of Eagain.run's block. Nil for tasks outside of any run.
    attr_accessor :owner

    # The task that runs the block, if the block has one. What it raises belongs to Eagain.run.
    attr_accessor :main

    # Guards what waits in other threads for a task of this group. A task that only its own loop
    # waits for never touches it.
    attr_reader :remote

    # What the run shall raise, for another reason than its block.
    attr_reader :failure

    # The group that Eagain.spawn uses in the running fiber.
    def self.current
      context = Thread.current[:eagain_task]
      return context.group if context

      scheduler = Fiber.scheduler or
        raise "no event loop: call Eagain.spawn inside Eagain.run { ... } (or after Fiber.set_scheduler)"
      thread = Thread.current
      group = thread.thread_variable_get(:eagain_group)
      return group if group && group.scheduler.equal?(scheduler)

      # Tasks on a scheduler that the user set: its own end waits for them.
      new(scheduler).tap { |fresh| thread.thread_variable_set(:eagain_group, fresh) }
    end

    def initialize(scheduler, owner = nil)
      @scheduler = scheduler
      @native = scheduler.is_a?(Scheduler)
      @thread = Thread.current
      @process = Process.pid
      @remote = Thread::Mutex.new
      @owner = owner
      @main = nil
      @tasks = {}.compare_by_identity
      @waiter = nil       # the fiber in #wait
      @failure = nil
      @aborted = false
      @stops_loop = false # the root fiber is in #drive until the group is empty
    end

    # The group of what runs directly in this group's owner, if that is no task.
    def group
      self
    end

    def native?
      @native
    end

    def empty?
      @tasks.empty?
    end

    def spawn(name, block)
      task = Task.__send__(:new, self, name, block)
      @tasks[task] = true
      task.start
    end

    # A task of this group has ended.
    def delete(task)
      @tasks.delete(task)
      return unless @tasks.empty?

      @scheduler.unblock(self, @waiter) if @waiter
      raise Stop if @stops_loop && !forked?
    end

    # Whether this is a child that was forked in a task. It has that task only, and ends with it: Ruby
    # makes the fiber that forks the first one of the new process.
    def forked?
      Process.pid != @process
    end

    # Takes charge of what ended a task. Returns false if it is the task's own affair.
    def collect(task, exception)
      if task.equal?(@main)
        abort(nil)
      elsif exit?(exception)
        forward(exception)
      else
        return false
      end
      true
    end

    # Whether the block of the run has yet to end.
    def owned?
      @main ? @main.alive? : !!@owner&.alive?
    end

    # Raises +exception+ in the owner, or at the end of the run if there is none any more.
    def forward(exception)
      if owned?
        @main ? @main.deliver(exception) : deliver(@owner, exception)
      else
        abort(exception)
      end
    end

    # Cancels all tasks; asked again, also those that clean up from the first time.
    def abort(exception)
      @tasks.clear if forked?
      @failure ||= exception
      again = @aborted
      @aborted = true
      @tasks.keys.each { |task| again ? task.cancel! : task.cancel }
    end

    # Raises +exception+ in a fiber of this scheduler where it waits, from any thread.
    def deliver(fiber, exception)
      if @native
        @scheduler.raise(fiber, exception)
      elsif @scheduler.respond_to?(:fiber_interrupt)
        @scheduler.fiber_interrupt(fiber, exception)
      elsif !@thread.equal?(Thread.current)
        raise ThreadError, "#{@scheduler.class} cannot be interrupted from another thread"
      elsif @scheduler.class.public_method_defined?(:raise)
        @scheduler.raise(fiber, exception) # Async before it had fiber_interrupt
      else
        fiber.raise(exception)
      end
    end

    # Parks the running fiber until the group is empty. In a forked child the tasks are the parent's.
    def wait
      @tasks.clear if forked?
      @waiter = Fiber.current
      @scheduler.block(self, nil) until @tasks.empty?
    ensure
      @waiter = nil
    end

    # Waits to the end, whatever is raised here meanwhile; then raises the last of that.
    def drain
      failure = nil
      until @tasks.empty?
        begin
          wait
        rescue Exception => failure # rubocop:disable Lint/RescueException
          abort(nil)
        end
      end
      raise failure if failure
    end

    # Runs the scheduler in the root fiber until the block is true, or until the deadline. A foreign
    # scheduler runs to its own end, whatever the deadline, and must have a +run+.
    def drive(deadline = nil)
      return drive_foreign { yield } unless @native

      alarm = deadline && @scheduler.fiber { ring(deadline) }
      until yield
        begin
          @scheduler.run
          break
        rescue Stop
          break if alarm && !alarm.alive?
        end
      end
    ensure
      @scheduler.raise(alarm, Stop.new) if alarm&.alive?
    end

    # Runs the scheduler in the root fiber until the group is empty.
    def drive_to_end
      @stops_loop = @native
      drive { @tasks.empty? }
    ensure
      @stops_loop = false
    end

    # Whether a foreign scheduler raised it to end its fiber.
    def stopped_by?(exception)
      !@native && !exception.is_a?(StandardError) &&
        @scheduler.class.name.to_s[/\A\w+::/] == exception.class.name.to_s[/\A\w+::/]
    end

    # Whether a failure stands for something larger than a task.
    def exit?(exception)
      case exception
      when SystemExit, SignalException, NoMemoryError then true
      else exception.class.name == "fatal"
      end
    end

    private

    # The body of the fiber that ends #drive at its deadline.
    def ring(deadline)
      quiet = false
      rest = deadline - Process.clock_gettime(Process::CLOCK_MONOTONIC)
      sleep(rest) if rest > 0
    rescue Stop
      quiet = true # nobody waits any more
    ensure
      raise Stop unless quiet
    end

    def drive_foreign
      @scheduler.run until yield
    end
  end
end
