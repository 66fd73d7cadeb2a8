# frozen_string_literal: true

module Bench
  module Rows
    # A message of 11 bytes sent with sendmsg(2) and received with recv(2).
    class Seqpacket < MessageRow
      title "1,000,000 messages of 11 bytes over a SOCK_SEQPACKET pair"
      unit "message"

      private

      def pair = @peer.unix_pair(:SEQPACKET)
    end
  end
end
