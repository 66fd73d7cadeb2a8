# frozen_string_literal: true

require "eagain"
require_relative "script"

module Eagain
  module CLI
    # eagain run [options] SCRIPT [ARGS...]
    class Run
      def self.start(arguments)
        new.start(arguments)
      end

      def initialize
        @backend = nil
        @stats = false
        @fast = true
      end

      def start(arguments)
        options = CLI.parser("run [options] SCRIPT [ARGS...]") do |it|
          it.separator "Runs a Ruby script (- for standard input) as ruby does, but its blocking calls"
          it.separator "let other tasks (Eagain.spawn, Fiber.schedule) run meanwhile."
          it.separator ""
          it.on("--backend NAME", "wait with #{BACKENDS.join(" or ")}") { |name| @backend = CLI.check_backend(name) }
          it.on("--[no-]fast", "shorten the way of IO's reads and writes: eagain/fast (default: do)") { |fast| @fast = fast }
          it.on("--stats", "print the scheduler's counters to standard error at the end") { @stats = true }
        end
        path, *rest = options.order(arguments)
        raise Error, "no script given (see eagain run --help)" unless path

        CLI.check_environment unless @backend
        require_relative "../fast" if @fast
        execute(Script.open(path), rest)
      end

      private

      # Ends the process as the script does: by returning, or by raising what it raises.
      def execute(script, arguments)
        runner = Runner.new(backend: @backend)
        at_exit { report(runner.stats) } if @stats
        ARGV.replace(arguments)
        script.define_globals
        runner.run_bare(script.body)
      rescue SystemExit
        raise
      rescue Exception => exception # rubocop:disable Lint/RescueException
        script.clean(exception)
        raise
      end

      def report(stats)
        return unless stats

        width = stats.keys.map(&:size).max
        lines = stats.map { |name, value| "#{name.to_s.ljust(width)}  #{value.to_s.rjust(12)}\n" }
        $stderr.write(lines.join)
      end
    end
  end
end
