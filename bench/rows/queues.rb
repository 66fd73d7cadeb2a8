# frozen_string_literal: true

module Bench
  module Rows
    # Queues between tasks: 40 of them, each with 5 tasks that push 10,000 numbers and 10 that pop what there
    # is. A consumer ends when its queue is closed and empty.
    class Queues < Row
      GROUPS = 40
      PRODUCERS = 5
      CONSUMERS = 10
      ITEMS = 10_000

      group "Tasks, locks and queues"
      title "40 queues, each with 50,000 items from 5 tasks to 10 others"
      unit "item"

      def operations
        GROUPS * PRODUCERS * scaled(ITEMS)
      end

      def call
        @items = @sum = 0
        GROUPS.times { start(Queue.new) }
        wait
      end

      # Each item is its number, so that one that came twice for another is noticed.
      def result
        count = scaled(ITEMS)
        @sum == GROUPS * PRODUCERS * count * (count - 1) / 2 ? @items : 0
      end

      private

      def start(queue)
        CONSUMERS.times { spawn { consume(queue) } }
        producing = PRODUCERS
        PRODUCERS.times do
          spawn do
            scaled(ITEMS).times { |number| queue << number }
            queue.close if (producing -= 1).zero?
          end
        end
      end

      def consume(queue)
        items = sum = 0
        while (number = queue.pop)
          items += 1
          sum += number
        end
        @items += items
        @sum += sum
      end
    end
  end
end
