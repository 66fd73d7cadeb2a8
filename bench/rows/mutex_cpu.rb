# frozen_string_literal: true

require "zlib"

module Bench
  module Rows
    # A lock held while something is computed, which no other task can interrupt: what Mutex itself costs.
    class MutexCpu < Row
      GROUPS = 20
      TASKS = 10
      TURNS = 10_000
      DATA = ("*" * 1024).freeze
      SUM = Zlib.crc32(DATA)

      group "Tasks, locks and queues"
      title "20 mutexes, each shared by 10 tasks that compute 10,000 checksums of 1 KiB"
      unit "checksum"

      def operations
        GROUPS * TASKS * scaled(TURNS)
      end

      def call
        @sums = Array.new(GROUPS, 0)
        GROUPS.times do |group|
          mutex = Mutex.new
          TASKS.times { spawn { add_up(mutex, group) } }
        end
        wait
      end

      def result
        @sums.sum / SUM
      end

      private

      def add_up(mutex, group)
        scaled(TURNS).times { mutex.synchronize { @sums[group] += Zlib.crc32(DATA) } }
      end
    end
  end
end
