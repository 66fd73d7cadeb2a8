# frozen_string_literal: true

module Bench
  module Rows
    # A read that finds nothing in a socket, and says so by a value.
    class WouldBlockSocket < CallRow
      title "1,000,000 reads of an empty UNIX socket, no exception"
      unit "read"

      private

      def subjects
        @ios = @peer.unix_pair
        { a: @ios[0], buffer: +"" }
      end

      def expected?(answer)
        answer == :wait_readable
      end
    end
  end
end
