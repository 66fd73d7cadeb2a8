# frozen_string_literal: true

module Bench
  module Rows
    # Small reads at random places of a file that lies on the disk, each place once.
    class FileRandomCold < ColdRow
      TASKS = 32
      READS = 256
      SIZE = 4096

      title "32 tasks, each 256 reads of 4 KiB at random places of a file that is not in the page cache (IO#pread)"
      unit "read"

      def operations
        TASKS * scaled(READS)
      end

      def call
        @right = 0
        @places.each { |places| spawn { read_all(places) } }
        wait
        from_the_disk
      end

      private

      def files
        @places = (0...TASKS * READS).to_a.shuffle(random: Random.new(1)).first(operations).each_slice(operations / TASKS)
        @file = cold_file(TASKS * READS)
      end

      def read_all(places)
        buffer = +""
        places.each do |number|
          @file.pread(SIZE, number * SIZE, buffer)
          @right += 1 if right?(buffer, number)
        end
      end
    end
  end
end
