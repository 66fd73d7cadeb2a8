# frozen_string_literal: true

# What ::spawn starts is a Task. Cancelled ends one early.
module Eagain
  # Raised inside a task by Task#cancel, where the task waits.
  #
  # It is not a StandardError, so that <tt>rescue => e</tt> in the code that is
  # cancelled does not swallow it. A task that rescues it on purpose must raise it
  # again, or it goes on as if nothing had happened.
  class Cancelled < Exception
    # The Task that was cancelled.
    attr_reader :task

    def initialize(message = "the task was cancelled", task: nil) # :nodoc:
      super(message)
      @task = task
    end
  end

  # One piece of concurrent work, made by Eagain.spawn. It reads like a Thread: #join,
  # #value, #raise, #alive?, #status, #name. What differs:
  #
  # * Tasks of one event loop run on one thread and change places only where they wait.
  # * #cancel takes the place of Thread#kill: it raises where the task waits, and
  #   +ensure+ blocks run to their end, even if they wait themselves.
  #
  # == How a task ends
  #
  #                            status    join            value
  #   the block returns        false     self            what the block returned
  #   an exception leaves it   nil       raises it       raises it
  #   cancelled                false     self            raises Cancelled
  #
  # An exception that leaves a task is written to <tt>$stderr</tt> at once, unless
  # somebody already waits in #join or #value to receive it; see #report_on_exception.
  #
  # SystemExit (+exit+ in a task), SignalException (Ctrl-C, SIGTERM) and NoMemoryError do
  # not end the task alone. They are raised in the block of the Eagain.run that the task
  # belongs to, as Ruby raises them in the main thread; if that block has returned already, the other
  # tasks are cancelled, and Eagain.run raises.
  #
  # == Threads
  #
  # Every method may be called from any thread, if the loop is Eagain's own. Under another
  # scheduler, #cancel and #raise from a foreign thread need its
  # +fiber_interrupt+ hook.
  class Task
    @report_on_exception = true

    class << self
      # Whether new tasks report the exception that ends them. True at first.
      attr_reader :report_on_exception

      # Sets the default for tasks that are made from now on.
      def report_on_exception=(flag)
        @report_on_exception = flag ? true : false
      end

      # The Task that is running, or nil outside of any. Code in a Fiber of its own
      # (an Enumerator with an external +next+, for one) is not in the task.
      def current
        task = Thread.current[:eagain_task]
        task if task.is_a?(Task)
      end

      private :new
    end

    # The name (String or nil), for #inspect and reports.
    attr_reader :name

    # Whether an exception that ends this task is reported on <tt>$stderr</tt>.
    attr_reader :report_on_exception

    # The group (one per Eagain.run) that waits for what this task spawns.
    attr_accessor :group # :nodoc:

    def initialize(group, name, block) # :nodoc:
      @group = @home = group
      @name = nil
      self.name = name unless name.nil?
      @block = block
      @report_on_exception = Task.report_on_exception
      @state = nil        # nil while alive, then :returned, :failed, :cancelled
      @result = nil       # the block's value, or the exception
      @pending = nil      # raised by #raise or #cancel before the block started
      @cancelled = false  # #cancel was called
      @waiters = nil      # fibers of this loop in #join: nil, one Fiber, or an Array
      @condition = nil    # for joins from other threads
      @stops_loop = false # the root fiber runs the loop in #join, until this task ends
      @fiber = nil
    end

    # Makes the task runnable. Our scheduler runs it when its turn comes, a foreign one
    # (+scheduler.fiber+ is all that it has) at once.
    def start # :nodoc:
      scheduler = @home.scheduler
      if @home.native?
        scheduler.push(@fiber = Fiber.new { main })
      else
        # The fiber has begun, and may have ended, when this returns.
        fiber = scheduler.fiber { main }
        @fiber = fiber unless @state
      end
      self
    end

    # Sets the name: a String, or nil. TypeError for anything else.
    def name=(name)
      string = name.nil? ? nil : String.try_convert(name)
      Kernel.raise TypeError, "no implicit conversion of #{name.class} into String" unless name.nil? || string

      @name = string
    end

    # Waits until the task has ended.
    #
    # timeout:: seconds (Integer, Float, Rational), or nil for no limit; a negative one is 0, as for
    #           Thread#join. TypeError, as of Kernel#sleep, for what is no number.
    #
    # Returns self, or nil if the time is over first. Raises the exception that ended the
    # task, each time it is called. In a task only that task waits; in another
    # thread, that thread; in the fiber that owns the loop (after
    # <tt>Fiber.set_scheduler</tt>), the loop runs meanwhile. A task that joins itself
    # gets a ThreadError.
    def join(timeout = nil)
      timeout = 0 if timeout.is_a?(Numeric) && timeout.real? && timeout.negative?
      deadline = timeout && (Eagain.__send__(:deadline, timeout) / 1e9)
      return nil unless @state || wait(deadline)

      Kernel.raise(@result, cause: @result.cause) if @state == :failed
      self
    end

    # Waits as #join does, and returns the value of the block. Raises the exception that
    # ended the task, or Cancelled, each time it is called.
    def value
      join
      return @result unless @state == :cancelled

      Kernel.raise(Cancelled.new(task: self))
    end

    # Asks the task to end: raises Cancelled where it waits. Returns self at once.
    #
    # Nothing happens if the task has ended or was cancelled before, so that the clean-up
    # is not interrupted. A task that has not started ends without running. A task that cancels
    # itself does not return from here.
    def cancel
      return self if @state || @cancelled

      @cancelled = true
      deliver(Cancelled.new(task: self))
      self
    end

    # Cancels even a task that is cleaning up after #cancel: a second Ctrl-C.
    def cancel! # :nodoc:
      return self if @state

      @cancelled = true
      deliver(Cancelled.new(task: self))
      self
    end

    # Whether #cancel was called (the task may still be cleaning up).
    def cancelled?
      @cancelled
    end

    # call-seq:
    #   raise
    #   raise(message)
    #   raise(exception [, message [, backtrace]])
    #
    # Raises an exception where the task waits, as Thread#raise. Returns nil; does nothing
    # if the task has ended. A task that has not started fails without running its block.
    def raise(*arguments)
      return if @state

      deliver(Task.exception(*arguments))
      nil
    end

    # Whether the task has yet to end (true or false).
    def alive?
      @state.nil?
    end

    # As Thread#status: <tt>"run"</tt> for the running task and one that has not started,
    # <tt>"sleep"</tt> while it waits or lets others run, +false+ after it ended, also by
    # cancellation, +nil+ after an exception.
    def status
      case @state
      when nil then @fiber.nil? || running? || unstarted? ? "run" : "sleep"
      when :failed then nil
      else false
      end
    end

    # Sets whether the exception that ends this task is reported.
    def report_on_exception=(flag)
      @report_on_exception = flag ? true : false
    end

    # <tt>#<Eagain::Task:0x00007f…@name file:line status></tt>: the status as of #status, +dead+ (and no place)
    # after the end, +run+ in a report.
    def inspect
      name = "@#{@name}" if @name
      location = @block&.source_location&.join(":")
      words = [Kernel.instance_method(:to_s).bind_call(self)[2..-2] + name.to_s, location, status_word]
      "#<#{words.compact.join(" ")}>"
    end
    # As #inspect.
    alias to_s inspect

    # The exception that Thread#raise would make of the same arguments.
    def self.exception(*arguments) # :nodoc:
      first, *rest = arguments
      case
      when arguments.empty? then RuntimeError.new("unhandled exception")
      when arguments.size > 3
        Kernel.raise ArgumentError, "wrong number of arguments (given #{arguments.size}, expected 0..3)"
      when first.is_a?(String) && rest.empty? then RuntimeError.new(first)
      when first.respond_to?(:exception)
        exception = first.exception(*rest.first(1))
        Kernel.raise TypeError, "exception object expected" unless exception.is_a?(Exception)
        exception.set_backtrace(rest[1]) if rest[1]
        exception
      else Kernel.raise TypeError, "exception class/object expected"
      end
    end

    # What ended the task, without waiting: an Exception, or nil.
    def failure # :nodoc:
      case @state
      when :failed then @result
      when :cancelled then Cancelled.new(task: self)
      end
    end

    # What the block returned, of a task that has ended so.
    def result # :nodoc:
      @result
    end

    # Raises +exception+ where the task waits, from any fiber or thread.
    def deliver(exception) # :nodoc:
      if running?
        Kernel.raise exception
      elsif unstarted?
        @pending ||= exception
      else
        @home.deliver(@fiber, exception)
      end
    end

    private

    # :stopdoc:

    def running?
      Fiber.current.equal?(@fiber)
    end

    # @block is given up by the fiber's first step.
    def unstarted?
      !@started
    end

    # The body of the task's fiber.
    def main
      Thread.current[:eagain_task] = self
      @fiber ||= Fiber.current
      @started = true
      Kernel.raise @pending if @pending
      @result = @block.call
      @state = :returned
    rescue Cancelled => exception
      exception.task.equal?(self) ? @state = :cancelled : fail(exception)
    rescue Exception => exception # rubocop:disable Lint/RescueException
      fail(exception)
    ensure
      finish
    end

    # A foreign scheduler stops its fibers with an exception of its own (Async::Stop).
    def fail(exception)
      @result = exception
      @state = @home.stopped_by?(exception) ? :cancelled : :failed
    end

    # Tells everybody who waits. Runs once, at the end of #main, whatever ended it; a fiber
    # that is killed (Fiber#kill, Thread#kill) has no state yet and counts as cancelled.
    def finish
      @state ||= :cancelled
      publish(@result) if @state == :failed
      @block = @fiber = nil
      wake if @waiters
      @home.remote.synchronize { @condition.broadcast } if @condition
      @home.delete(self)
      Kernel.raise Group::Stop if @stops_loop && @home.native?
    end

    # Somebody shall learn of the failure: the run, whoever waits here, or the user. In a forked
    # child, whose main program the task has become, it ends the process.
    def publish(exception)
      return end_process(exception) if @home.forked?
      return if @home.collect(self, exception) || @waiters || @condition || @stops_loop

      report(exception) if @report_on_exception
    end

    # Ruby 3.1 would set the status and not say why, 3.3 does both; so we say why.
    def end_process(exception)
      Kernel.raise(exception, cause: exception.cause) if @home.exit?(exception)
      report(exception)
      Kernel.exit(1)
    end

    def wake
      waiters = @waiters
      @waiters = nil
      return @home.scheduler.unblock(self, waiters) unless waiters.is_a?(Array)

      waiters.each { |fiber| @home.scheduler.unblock(self, fiber) }
    end

    # One write, so that two reports do not mix. A closed $stderr is no reason to fail.
    def report(exception)
      $stderr.write("#{inspect_for_report} terminated with exception (report_on_exception is true):\n" \
                    "#{exception.full_message(highlight: $stderr.tty?, order: :top)}")
    rescue IOError, SystemCallError
      nil
    end

    # Thread's report says "run" of the thread that ends.
    def inspect_for_report
      @state = nil
      @reporting = true
      inspect
    ensure
      @state = :failed
      @reporting = false
    end

    def status_word
      return "run" if @reporting

      @state ? "dead" : status
    end

    # Returns true once the task has ended, false after the deadline (of #now).
    def wait(deadline)
      Kernel.raise ThreadError, "Target task must not be current task" if running?

      if Fiber.current_scheduler.equal?(@home.scheduler)
        park(deadline)
      elsif @home.thread.equal?(Thread.current)
        drive(deadline)
      else
        wait_in_thread(deadline)
      end
    end

    # In a fiber of the same loop.
    def park(deadline)
      fiber = Fiber.current
      enlist(fiber)
      until @state
        rest = remaining(deadline)
        return false if rest == 0

        @home.scheduler.block(self, rest)
      end
      true
    ensure
      discharge(fiber) unless @state
    end

    # In a thread of its own, or in a fiber of another loop there.
    def wait_in_thread(deadline)
      @home.remote.synchronize do
        @condition ||= Thread::ConditionVariable.new
        until @state
          rest = remaining(deadline)
          return false if rest == 0

          @condition.wait(@home.remote, rest)
        end
      end
      true
    end

    # In the fiber that owns the loop: nobody else would run it.
    def drive(deadline)
      @stops_loop = true
      @home.drive(deadline) { @state }
      !@state.nil?
    ensure
      @stops_loop = false
    end

    def enlist(fiber)
      case @waiters
      when nil then @waiters = fiber
      when Array then @waiters << fiber
      else @waiters = [@waiters, fiber]
      end
    end

    def discharge(fiber)
      if @waiters.is_a?(Array)
        @waiters.delete(fiber)
      elsif @waiters.equal?(fiber)
        @waiters = nil
      end
    end

    def remaining(deadline)
      deadline && [deadline - now, 0].max
    end

    def now
      Process.clock_gettime(Process::CLOCK_MONOTONIC)
    end
  end
end
