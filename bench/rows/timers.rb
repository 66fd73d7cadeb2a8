# frozen_string_literal: true

require "timeout"

module Bench
  module Rows
    # As many time limits at the same time: 10,000 tasks have nine each, inside of each other, and wait until all
    # have them. Then each waits for what never comes below a tenth, which expires; the nine are cancelled.
    class Timers < Row
      TASKS = 10_000
      LIMITS = [60, 50, 40, 30, 28, 26, 24, 22, 20].freeze
      NEAR = 0.001

      group "Time"
      title "100,000 time limits at the same time, 10 in each of 10,000 tasks: 90 % of them cancelled and 10 % expired"
      unit "time limit"

      def operations
        tasks * (LIMITS.size + 1)
      end

      def call
        @armed = @done = @expired = 0
        @gate = Queue.new
        tasks.times { spawn { arm(LIMITS) } }
        wait
      end

      # Those that should expire and no others.
      def result
        @expired == tasks ? @done : 0
      end

      private

      def tasks
        scaled(TASKS)
      end

      def arm(limits)
        if limits.empty?
          wait_for_all
          expire
        else
          Timeout.timeout(limits.first) { arm(limits.drop(1)) }
        end
        @done += 1
      end

      def wait_for_all
        @gate.close if (@armed += 1) == tasks
        @gate.pop
      end

      def expire
        Timeout.timeout(NEAR) { sleep(LIMITS.last) }
      rescue Timeout::Error
        @expired += 1
      end
    end
  end
end
