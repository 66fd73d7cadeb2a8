# frozen_string_literal: true

module Bench
  module Rows
    # The same by the calls that would wait, but do not have to.
    class SmallWait < CallRow
      title "1,000,000 writes and reads of 11 bytes over a UNIX socket pair, blocking calls"
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
