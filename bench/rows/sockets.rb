# frozen_string_literal: true

require "socket"

module Bench
  module Rows
    # Larger messages over UNIX stream sockets; a read may return less than a message.
    class Sockets < StreamRow
      PAIRS = 48
      MESSAGES = 10_000
      MESSAGE = ("*" * (16 * 1024)).freeze

      title "48 UNIX socket pairs, 10,000 messages of 16 KiB through each"
      unit "message"

      private

      def pair = UNIXSocket.pair
    end
  end
end
