# frozen_string_literal: true

module Bench
  module Rows
    # Tasks that start, sleep and end, so many at a time. A task sleeps the longer the more there are, so that
    # they wake up at the same rate, and nearly all sleep at the same time.
    class GrowthTasks < GrowthRow
      COUNT = 100_000
      LEAST = 1
      # Seconds between two that wake up.
      APART = 0.00002

      title "100,000 tasks that start, sleep and end; 10 to 100,000 of them at a time"
      unit "task"

      def call
        @ended = 0
        spawn do
          done = Queue.new
          turns.times { run(done) }
        end
        wait
      end

      def result
        @ended
      end

      private

      def run(done)
        left = @size
        @size.times do |number|
          spawn do
            sleep(APART * (@size + number) / 2)
            @ended += 1
            done << true if (left -= 1).zero?
          end
        end
        done.pop
      end
    end
  end
end
