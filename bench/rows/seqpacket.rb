# frozen_string_literal: true

module Bench
  module Rows
    # A message of 11 bytes sent with sendmsg(2) and received with recv(2).
    class Seqpacket < CallRow
      title "1,000,000 messages of 11 bytes over a SOCK_SEQPACKET pair"
      unit "message"

      private

      def subjects
        a, b = @peer.unix_pair(:SEQPACKET)
        { a: a, b: b, message: "hello world", buffer: +"" }
      end

      def expected?(answer)
        answer == "hello world"
      end
    end
  end
end
