# frozen_string_literal: true

module Bench
  module Rows
    # A thread that has work for tasks, through Queues: each item wakes a task from another thread, and its
    # answer wakes the thread. Ten are under way at a time.
    class CrossThread < Row
      TASKS = 10
      ITEMS = 50_000

      group "Tasks, locks and queues"
      title "50,000 items from a thread to 10 tasks, and their answers back, through Queues"
      unit "item"

      def operations
        TASKS * scaled(ITEMS / TASKS)
      end

      def call
        @requests = Queue.new
        @answers = Queue.new
        @sum = 0
        TASKS.times { spawn { answer } }
        thread = Thread.new { ask }
        wait
        thread.join
      end

      def result
        @sum == operations * (operations + 1) / 2 ? operations : 0
      end

      private

      def ask
        operations.times.each_slice(TASKS) do |numbers|
          numbers.each { |number| @requests << number }
          numbers.each { @sum += @answers.pop }
        end
        @requests.close
      end

      def answer
        while (number = @requests.pop)
          @answers << (number + 1)
        end
      end
    end
  end
end
