# frozen_string_literal: true

module Bench
  module Rows
    # A lock held while something is written: 48 files, each with a Mutex and ten tasks that share both.
    class MutexFiles < Row
      GROUPS = 48
      TASKS = 10
      WRITES = 3_000
      DATA = ("*" * 1024).freeze

      group "Tasks, locks and queues"
      title "48 mutexes, each shared by 10 tasks that write 3,000 × 1 KiB to /dev/null"
      unit "write"

      def operations
        GROUPS * TASKS * scaled(WRITES)
      end

      def call
        @bytes = 0
        GROUPS.times do
          mutex = Mutex.new
          file = File.open(File::NULL, "w")
          file.sync = true
          TASKS.times { spawn { write_all(mutex, file) } }
        end
        wait
      end

      def result
        @bytes / DATA.bytesize
      end

      private

      def write_all(mutex, file)
        bytes = 0
        scaled(WRITES).times { mutex.synchronize { bytes += file.write(DATA) } }
        @bytes += bytes
      end
    end
  end
end
