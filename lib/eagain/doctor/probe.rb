# frozen_string_literal: true

module Eagain
  class Doctor
    # A blocking call to try.
    #
    # name:: what a user would look for.
    # call:: the call, as a block of a Stage; it must block until #release, or for some milliseconds.
    # release:: what lets it go on, done by another fiber of the same loop; nil if it ends by itself.
    # why_not:: the reason, for where it blocks the thread.
    # advice:: what to do instead there.
    # requires:: a library to load first, or nil.
    Call = Struct.new(:name, :requires, :why_not, :advice, :call, :release, keyword_init: true)

    # What one probe works with: its instance variables, and descriptors that are closed after it.
    class Stage
      def initialize
        @things = []
      end

      def keep(*things)
        @things.concat(things)
        things.size == 1 ? things.first : things
      end

      def close
        @things.each { |thing| thing.close unless thing.closed? }
      end
    end

    # Makes one call in a fiber of a new Eagain::Scheduler in a new thread. A second fiber
    # of the same loop releases the call. If the call blocks the thread, that fiber cannot run; a
    # thread releases it then.
    class Probe
      # Ends a call of which enough is known.
      class Abort < Exception
      end

      PATIENCE = 0.25 # seconds until the thread helps
      LIMIT = 5       # seconds until the probe is given up
      private_constant :PATIENCE, :LIMIT

      # Our scheduler, noting which hooks the fiber under test calls.
      class Recorder < Scheduler
        attr_accessor :fiber_under_test

        def recorded
          @recorded ||= []
        end

        (HOOKS = %i[
          io_wait io_read io_write io_pread io_pwrite io_select kernel_sleep block
          timeout_after address_resolve process_wait blocking_operation_wait
        ].freeze).each do |hook|
          next unless method_defined?(hook)

          define_method(hook) do |*arguments, &block|
            recorded << hook.to_s if Fiber.current.equal?(fiber_under_test)
            super(*arguments, &block)
          end
        end
      end

      # What io_uring_setup(2) means by these.
      URING_ERRORS = {
        Errno::EPERM => "forbidden, by kernel.io_uring_disabled or by the container's seccomp profile",
        Errno::EACCES => "forbidden, by a security module",
        Errno::ENOSYS => "this kernel, or the container that it is in, has none, or one older than Linux 5.13",
        Errno::ENOMEM => "RLIMIT_MEMLOCK (ulimit -l) leaves no room for it",
      }.freeze
      private_constant :URING_ERRORS

      # nil if the backend wakes a sleeper, or else the reason (String).
      def self.backend_error(name)
        reader, writer = IO.pipe
        thread = Thread.new do
          Fiber.set_scheduler(Scheduler.new(backend: name))
          Fiber.schedule { reader.read(1) }
          Fiber.schedule { writer.write("x") }
          Fiber.set_scheduler(nil)
        end
        thread.report_on_exception = false
        return if thread.join(LIMIT)

        thread.kill
        "does not wake up"
      rescue StandardError, NotImplementedError => error
        (URING_ERRORS[error.class] if name == "io_uring") || error.message
      ensure
        [reader, writer].each { |io| io&.close }
      end

      def initialize(call)
        @call = call
        @stage = Stage.new
        @passed = false   # the second fiber ran while the call was under way
        @finished = false # the call has returned or raised
        @released = false
        @error = nil
      end

      # A Hash: name, nonblocking (true, false, or nil for unknown), hooks (Array of
      # String), and, where it is not nonblocking, why_not and advice.
      def result
        require @call.requires if @call.requires
        run
        verdict
      rescue LoadError
        { name: @call.name, nonblocking: nil, hooks: [], why_not: "#{@call.requires} is not installed" }
      ensure
        # Closing what a stuck thread uses would wait for it.
        @stage.close unless stuck?
      end

      # Whether the call is still under way, for good.
      def stuck?
        @thread&.alive?
      end

      private

      def verdict
        hooks = @recorder ? @recorder.recorded.uniq : [] # no recorder: no backend started
        facts = { name: @call.name, nonblocking: @finished ? @passed || hooks.any? : nil, hooks: hooks }
        facts[:why_not] = @error if @error && !facts[:nonblocking]
        return facts if facts[:nonblocking]

        { **facts, why_not: facts[:why_not] || @call.why_not, advice: @call.advice }.compact
      end

      def run
        @thread = Thread.new { loop_of_fibers }
        @thread.report_on_exception = false
        return if @thread.join(PATIENCE)

        release
        return if @thread.join(LIMIT)

        @thread.kill
        @thread.join(LIMIT)
      rescue StandardError => error
        @error ||= error.message
      end

      def loop_of_fibers
        Fiber.set_scheduler(@recorder = Recorder.new)
        Fiber.schedule { make_call }
        Fiber.schedule { pass } unless @finished
        Fiber.set_scheduler(nil)
      end

      def make_call
        @recorder.fiber_under_test = Fiber.current
        @stage.instance_exec(&@call.call)
      rescue Abort
        nil
      rescue IOError, SystemCallError => error
        @error = error.message
      ensure
        @finished = true
      end

      def pass
        @passed = true unless @finished
        release
      end

      def release
        return if @released

        @released = true
        if @call.release.is_a?(Proc)
          @stage.instance_exec(&@call.release)
        elsif @call.release && @passed
          @recorder.raise(@recorder.fiber_under_test, Abort.new)
        end
      end
    end
  end
end
