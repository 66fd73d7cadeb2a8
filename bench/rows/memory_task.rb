# frozen_string_literal: true

module Bench
  module Rows
    # What a task takes while it waits: the resident set with all of them parked, less that without.
    class MemoryTask < MemoryRow
      TASKS = 10_000

      title "10,000 tasks that wait for a Queue"
      unit "task"

      def operations
        scaled(TASKS)
      end

      private

      def hold
        queue = Queue.new
        operations.times { spawn { park { queue.pop } } }
        proc { queue.close }
      end
    end
  end
end
