# frozen_string_literal: true

module Bench
  module Rows
    # Tasks that wait once: each is started, gives way to the others, and ends.
    class Spawn < Row
      TASKS = 100_000
      AT_ONCE = 100

      group "Tasks, locks and queues"
      title "100,000 tasks that start, let the others run once, and end; 100 at a time"
      unit "task"

      def operations
        AT_ONCE * scaled(TASKS / AT_ONCE)
      end

      def call
        @ended = 0
        spawn do
          done = Queue.new
          scaled(TASKS / AT_ONCE).times do
            AT_ONCE.times { spawn { done << sleep(0) } }
            AT_ONCE.times { @ended += 1 if done.pop }
          end
        end
        wait
      end

      def result
        @ended
      end
    end
  end
end
