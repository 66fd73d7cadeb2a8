# frozen_string_literal: true

module Bench
  module Rows
    # A read that finds nothing in a socket, where an exception says so, and is rescued.
    class WouldBlockRaised < WouldBlockRow
      title "1,000,000 reads of an empty UNIX socket, with exception"
      unit "read"

      private

      def expected?(answer)
        answer == :raised
      end
    end
  end
end
