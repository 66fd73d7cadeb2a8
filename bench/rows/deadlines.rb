# frozen_string_literal: true

require "timeout"

module Bench
  module Rows
    # Deadlines, of which most are never met: a thousand tasks have one each, a hundred times; nine of ten are
    # cancelled, as what they limit is done at once, and the tenth expires.
    class Deadlines < Row
      TASKS = 1_000
      LIMITS = 100
      FAR = 60
      NEAR = 0.001

      group "Time"
      title "100,000 time limits, 1,000 at a time, 90 % of them cancelled and 10 % expired"
      unit "time limit"

      def operations
        tasks * LIMITS
      end

      def call
        @done = @expired = 0
        tasks.times { |number| spawn { arm(number) } }
        wait
      end

      # Those that should expire and no others.
      def result
        @expired == operations / 10 ? @done + @expired : 0
      end

      private

      def tasks
        scaled(TASKS)
      end

      def arm(number)
        LIMITS.times do |i|
          limited(((number + i) % 10).zero?)
          @done += 1
        rescue Timeout::Error
          @expired += 1
        end
      end

      # sleep(0) lets the others run: the timer is armed while they do.
      def limited(expires)
        Timeout.timeout(expires ? NEAR : FAR) { sleep(expires ? FAR : 0) }
      end
    end
  end
end
