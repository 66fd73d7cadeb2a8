# frozen_string_literal: true

require "etc"
require "eagain"
require_relative "doctor/probe"
require_relative "doctor/calls"

module Eagain
  # Finds out what works on this machine, by doing it: every backend has to wake a sleeper, and
  # each blocking call is made in one task while another must be able to run.
  class Doctor
    # Ruby's hooks of a Fiber scheduler, in the order of its documentation.
    HOOKS = %i[
      io_wait io_read io_write io_pread io_pwrite io_select io_close kernel_sleep block unblock
      timeout_after address_resolve process_wait blocking_operation_wait fiber_interrupt yield fiber
    ].freeze

    # Everything as a Hash of Strings, Integers, booleans, Arrays and Hashes (keys: Symbol). Takes
    # about a second.
    def report
      @report ||= { eagain: eagain, kernel: kernel, ruby: ruby, backends: backends, calls: calls,
                    hooks: hooks, limits: limits }
    end

    # Whether the backend that Eagain.run would take works.
    def healthy?
      chosen = report[:eagain][:backend]
      report[:backends].any? { |backend| backend[:name] == chosen && backend[:works] }
    end

    # Whether a call never came back. The thread that made it cannot be ended.
    def stuck?
      report
      !!@stuck
    end

    private

    def eagain
      { version: VERSION, interface: Scheduler::INTERFACE_VERSION, backend: default_backend }
    end

    def default_backend
      scheduler = Scheduler.new
      scheduler.backend
    rescue StandardError, NotImplementedError
      nil
    ensure
      scheduler&.close
    end

    def kernel
      Etc.uname.slice(:sysname, :release, :machine).transform_keys(sysname: :name)
    end

    def ruby
      { version: RUBY_VERSION, patchlevel: RUBY_PATCHLEVEL, engine: RUBY_ENGINE, platform: RUBY_PLATFORM,
        fiber_storage: Fiber.respond_to?(:[]), fiber_kill: Fiber.method_defined?(:kill) }
    end

    # Those of this build, and what it was built without.
    def backends
      tried = BACKENDS.map do |name|
        error = Probe.backend_error(name)
        { name: name, works: error.nil? }.merge(error ? { why_not: error } : {})
      end
      return tried if BACKENDS.include?("io_uring") || !RUBY_PLATFORM.include?("linux")

      tried << { name: "io_uring", works: false, why_not: "built without liburing (2.3; Debian: liburing-dev)" }
    end

    def calls
      @calls ||= CALLS.map do |call|
        probe = Probe.new(call)
        probe.result.tap { @stuck ||= probe.stuck? }
      end
    end

    # Which hooks the scheduler has, and which of them the calls above have reached.
    def hooks
      reached = calls.flat_map { |call| call[:hooks] }
      HOOKS.map do |hook|
        { name: hook.to_s, defined: Scheduler.method_defined?(hook), reached: reached.include?(hook.to_s) }
      end
    end

    def limits
      soft, hard = Process.getrlimit(:NOFILE)
      { descriptors: soft, descriptors_hard: hard, memory_maps: memory_maps }
    end

    # Each fiber's stack takes two maps.
    def memory_maps
      Integer(File.read("/proc/sys/vm/max_map_count"))
    rescue SystemCallError, ArgumentError
      nil
    end
  end
end
