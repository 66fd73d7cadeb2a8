# frozen_string_literal: true

module Bench
  module Rows
    # Programs that run next to each other: what one prints is read to its end, and its status is taken.
    class Processes < Row
      TASKS = 20
      PROGRAMS = 20

      group "Files, names, programs"
      title "20 tasks that run 20 programs each, read what they print, and wait for them"
      untraced "other programs do a part of the work"
      unit "program"

      def operations
        TASKS * scaled(PROGRAMS)
      end

      def call
        @ended = 0
        TASKS.times { |number| spawn { run(number.to_s) } }
        wait
      end

      def result
        @ended
      end

      private

      def run(word)
        scaled(PROGRAMS).times do
          reader, writer = IO.pipe
          pid = Process.spawn("/bin/echo", word, out: writer)
          writer.close
          text = reader.read
          reader.close
          _, status = Process.wait2(pid)
          @ended += 1 if status.success? && text == "#{word}\n"
        end
      end
    end
  end
end
