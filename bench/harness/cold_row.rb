# frozen_string_literal: true

require "fileutils"
require "tempfile"

module Bench
  # Reads of a file that the kernel does not have in memory. It lies in the checkout's build folder, as a temporary
  # folder may be memory itself. A subclass defines #files, and fills them with #cold_file.
  class ColdRow < Row
    FOLDER = File.expand_path("../../build", __dir__)
    # What has to come from the disk for the row to be what it says; the kernel may read ahead, and some twice.
    SHARE = 0.9

    group "Files, names, programs"
    untraced "how often it waits depends on the disk"

    def missing
      super || ("the kernel keeps files in memory here, or does not say what it read" unless cold?)
    end

    # Writes the files, and drops them from the page cache.
    def prepare
      FileUtils.mkdir_p(FOLDER)
      @files = files
      @before = read_bytes
    end

    # All of it, if it came from the disk.
    def result
      raise "only #{@read} of #{bytes} bytes were read from the disk" if @read < bytes * SHARE

      @right
    end

    private

    # Integer: what the operations read.
    def bytes
      operations * self.class::SIZE
    end

    # A Tempfile of blocks of SIZE, each of which begins with its number. None of it is in the page cache.
    def cold_file(blocks)
      Tempfile.new("bench", FOLDER).tap do |file|
        blocks.times { |number| file.write([number].pack("Q").ljust(self.class::SIZE, ".")) }
        file.fsync
        file.advise(:dontneed)
      end
    end

    # Whether that is the block.
    def right?(block, number)
      block.bytesize == self.class::SIZE && block.unpack1("Q") == number
    end

    def from_the_disk
      @read = read_bytes - @before
    end

    # Integer: what this process has had the kernel read from a disk, its threads included.
    def read_bytes
      Integer(File.read("/proc/self/io")[/^read_bytes: (\d+)$/, 1])
    end

    def cold?
      FileUtils.mkdir_p(FOLDER)
      before = read_bytes
      file = cold_file(1)
      file.pread(self.class::SIZE, 0)
      file.close!
      read_bytes > before
    rescue SystemCallError
      false
    end
  end
end
