# frozen_string_literal: true

module Bench
  # Much that is held at the same time, and what it takes of memory. A subclass defines #hold.
  class MemoryRow < Row
    group "Memory"
    headline "bytes_each"
    aim 1.0, over: :others

    def prepare
      GC.start
      @before = resident
    end

    def call
      @parked = @ended = 0
      release = hold
      spawn do
        sleep(0.001) until @parked == operations
        @after = resident
        release.call
      end
      wait
    end

    def result
      @ended
    end

    def bytes_each
      (@after - @before).fdiv(operations) if @after && @before
    end

    private

    # Starts as many tasks as there are operations, each of which calls #park. Returns a Proc that lets all go on.
    def hold
      raise NotImplementedError, "#{self.class}#hold"
    end

    # The block waits until everything is released, and then answers nil.
    def park
      @parked += 1
      @ended += 1 if yield.nil?
    end

    # Bytes (Integer) in memory now; nil where the system does not tell.
    def resident
      kib = File.read("/proc/self/status")[/^VmRSS:\s+(\d+) kB/, 1]
      kib && Integer(kib) * 1024
    rescue Errno::ENOENT
      nil
    end
  end
end
