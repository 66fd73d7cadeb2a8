# frozen_string_literal: true

module Bench
  module Rows
    # A read that finds nothing in a socket, where an exception says so, and is rescued.
    class WouldBlockRaised < WouldBlockRow
      title "1,000,000 reads of an empty UNIX socket, with exception"
      unit "read"

      private

      # Ruby looks through all rescue clauses of a method to find the one that is meant: so there is one, as
      # in a program.
      def at_once
        1
      end

      def expected?(answer)
        answer == :raised
      end
    end
  end
end
