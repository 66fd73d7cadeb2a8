# frozen_string_literal: true

module Bench
  module Rows
    # Many pipes that are now full, now empty: a writer and a reader on each.
    #
    # The calls are IO#write (a pipe made by IO.pipe has sync on, so each is one io_write) and
    # IO#readpartial (past Ruby's buffer, so each is one io_read). IO#read would fill the buffer
    # with several messages at once, and measure that buffer instead.
    class Pipes < Row
      PAIRS = 48
      MESSAGES = 10_000
      MESSAGE = ("*" * 1024).freeze

      title "48 pipe pairs, 10,000 messages of 1 KiB through each"
      unit "message"

      def operations
        PAIRS * scaled(MESSAGES)
      end

      def call
        @bytes = 0
        PAIRS.times do
          reader, writer = IO.pipe
          spawn { send_all(writer) }
          spawn { receive_all(reader) }
        end
        wait
      end

      def result
        @bytes / MESSAGE.bytesize
      end

      private

      def send_all(writer)
        scaled(MESSAGES).times { writer.write(MESSAGE) }
        writer.close
      end

      def receive_all(reader)
        bytes = 0
        scaled(MESSAGES).times { bytes += reader.readpartial(MESSAGE.bytesize).bytesize }
        reader.close
        @bytes += bytes
      end
    end
  end
end
