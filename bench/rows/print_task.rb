# frozen_string_literal: true

module Bench
  module Rows
    # IO#print in a task: each is a call that could wait, and never has to.
    class PrintTask < Row
      COUNT = 1_000_000

      group "Files, names, programs"
      aim 1.05, over: "threads"
      title "1,000,000 prints of a dot to /dev/null, in a task"
      unit "print"

      def operations
        scaled(COUNT)
      end

      def prepare
        @out = File.open(File::NULL, "w")
        @out.sync = true
      end

      def call
        spawn do
          operations.times { @out.print(".") }
          @ended = @out.fileno
        end
        wait
      end

      # /dev/null tells nobody what it got.
      def result
        @ended ? operations : 0
      end
    end
  end
end
