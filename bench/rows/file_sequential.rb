# frozen_string_literal: true

require "tempfile"

module Bench
  module Rows
    # Large reads from the beginning of a file to its end, which the kernel has in memory.
    class FileSequential < Row
      TASKS = 8
      TURNS = 10
      SIZE = 1 << 20
      BLOCKS = 32

      group "Files, names, programs"
      title "8 tasks, each reads a file of 32 MiB in the page cache 10 times, 1 MiB at a time (IO#read)"
      unit "read"

      def operations
        TASKS * scaled(TURNS) * BLOCKS
      end

      # Each block begins with its number.
      def prepare
        @file = Tempfile.new("eagain-bench")
        BLOCKS.times { |number| @file.write([number].pack("Q").ljust(SIZE, ".")) }
        @file.flush
      end

      def call
        @right = 0
        TASKS.times { spawn { File.open(@file.path, "rb") { |file| read_all(file) } } }
        wait
      end

      def result
        @right
      end

      private

      def read_all(file)
        buffer = +""
        scaled(TURNS).times do
          file.rewind
          BLOCKS.times do |number|
            file.read(SIZE, buffer)
            @right += 1 if buffer.bytesize == SIZE && buffer.unpack1("Q") == number
          end
        end
      end
    end
  end
end
