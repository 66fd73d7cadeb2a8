# frozen_string_literal: true

module Bench
  module Rows
    # A read that finds nothing in a socket, where an exception says so, and is rescued.
    class WouldBlockRaised < CallRow
      title "1,000,000 reads of an empty UNIX socket, with exception"
      unit "read"

      private

      def subjects
        @ios = @peer.unix_pair
        { a: @ios[0], buffer: +"" }
      end

      def expected?(answer)
        answer == :raised
      end
    end
  end
end
