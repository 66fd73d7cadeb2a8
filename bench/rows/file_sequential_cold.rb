# frozen_string_literal: true

module Bench
  module Rows
    # Large reads of files that lie on the disk, each from its beginning to its end. The kernel reads ahead.
    class FileSequentialCold < ColdRow
      TASKS = 8
      BLOCKS = 16
      SIZE = 1 << 20

      title "8 tasks, each reads a file of 16 MiB that is not in the page cache, 1 MiB at a time (IO#read)"
      unit "read"

      def operations
        TASKS * scaled(BLOCKS)
      end

      def call
        @right = 0
        @files.each { |file| spawn { File.open(file.path, "rb") { |it| read_all(it) } } }
        wait
        from_the_disk
      end

      private

      def files
        Array.new(TASKS) { cold_file(operations / TASKS) }
      end

      def read_all(file)
        buffer = +""
        (operations / TASKS).times do |number|
          file.read(SIZE, buffer)
          @right += 1 if right?(buffer, number)
        end
      end
    end
  end
end
