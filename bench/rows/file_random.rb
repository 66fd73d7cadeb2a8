# frozen_string_literal: true

require "tempfile"

module Bench
  module Rows
    # Small reads at random places of a file that the kernel has in memory.
    class FileRandom < Row
      TASKS = 32
      READS = 10_000
      SIZE = 4096
      BLOCKS = 8192

      group "Files, names, programs"
      title "32 tasks, each 10,000 reads of 4 KiB at random places of a file in the page cache (IO#pread)"
      unit "read"

      def operations
        TASKS * scaled(READS)
      end

      # Each block begins with its number.
      def prepare
        @file = Tempfile.new("eagain-bench")
        BLOCKS.times { |number| @file.write([number].pack("Q").ljust(SIZE, ".")) }
        @file.flush
      end

      def call
        @right = 0
        TASKS.times { |number| spawn { read_all(Random.new(number)) } }
        wait
      end

      def result
        @right
      end

      private

      def read_all(random)
        right = 0
        buffer = +""
        scaled(READS).times do
          number = random.rand(BLOCKS)
          @file.pread(SIZE, number * SIZE, buffer)
          right += 1 if buffer.bytesize == SIZE && buffer.unpack1("Q") == number
        end
        @right += right
      end
    end
  end
end
