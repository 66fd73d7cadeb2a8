# frozen_string_literal: true

module Bench
  module Rows
    # A write that finds room and a read that finds data, without waiting.
    class SmallTry < CallRow
      title "1,000,000 writes and reads of 11 bytes over a UNIX socket pair, non-blocking calls"
      unit "message"

      private

      def subjects
        a, b = @peer.unix_pair
        { a: a, b: b, message: "hello world", buffer: +"" }
      end

      def expected?(answer)
        answer == "hello world"
      end
    end
  end
end
