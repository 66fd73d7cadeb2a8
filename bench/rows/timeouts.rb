# frozen_string_literal: true

require "timeout"

module Bench
  module Rows
    # Time limits inside of time limits, as a request has one, its session, its query and its socket. Each tenth
    # of the innermost expires, and the others must not notice.
    class Timeouts < Row
      TASKS = 100
      TURNS = 100
      LIMITS = [50, 40, 30, 20].freeze

      group "Time"
      title "100 tasks, 100 times a wait below five nested Timeout.timeout; each tenth of the inner ones expires"
      unit "wait"

      def operations
        TASKS * scaled(TURNS)
      end

      def call
        @done = @expired = 0
        TASKS.times { |number| spawn { wait_in_limits(number) } }
        wait
      end

      def result
        expected = TASKS * scaled(TURNS) / 10
        @expired == expected ? @done + @expired : 0
      end

      private

      def wait_in_limits(number)
        scaled(TURNS).times do |i|
          nest(LIMITS, ((number + i) % 10).zero?) ? @done += 1 : @expired += 1
        end
      end

      # Whether the innermost wait came to its end.
      def nest(limits, expires)
        return innermost(expires) if limits.empty?

        Timeout.timeout(limits.first) { nest(limits.drop(1), expires) }
      end

      def innermost(expires)
        Timeout.timeout(expires ? 0.001 : 10) { sleep(expires ? 10 : 0) }
        true
      rescue Timeout::Error
        false
      end
    end
  end
end
