# frozen_string_literal: true

module Bench
  module Rows
    # Small messages through pipes.
    class Pipes < StreamRow
      PAIRS = 48
      MESSAGES = 10_000
      MESSAGE = ("*" * 1024).freeze

      title "48 pipe pairs, 10,000 messages of 1 KiB through each"
      unit "message"

      private

      def pair = IO.pipe
    end
  end
end
