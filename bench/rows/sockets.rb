# frozen_string_literal: true

require "socket"

module Bench
  module Rows
    # Larger messages over UNIX stream sockets; a read may return less than a message.
    #
    # The calls are IO#write and IO#readpartial, as in the pipes row. Which system call a peer makes
    # of them (read or recv) is its own business.
    class Sockets < Row
      PAIRS = 48
      MESSAGES = 10_000
      MESSAGE = ("*" * (16 * 1024)).freeze

      title "48 UNIX socket pairs, 10,000 messages of 16 KiB through each"
      unit "message"

      def operations
        PAIRS * scaled(MESSAGES)
      end

      def call
        @bytes = 0
        PAIRS.times do
          reader, writer = UNIXSocket.pair
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
        loop { bytes += reader.readpartial(MESSAGE.bytesize).bytesize }
      rescue EOFError
        reader.close
        @bytes += bytes
      end
    end
  end
end
