# frozen_string_literal: true

module Bench
  module Rows
    # What an idle connection takes with the task that reads from it: both sockets are Ruby's, one task waits.
    class MemoryConnection < MemoryRow
      CONNECTIONS = 5_000

      title "5,000 idle UNIX socket pairs, each with a task that reads from it"
      unit "connection"

      def operations
        scaled(CONNECTIONS)
      end

      def missing
        Descriptors.missing(2 * operations + 100)
      end

      def prepare
        Descriptors.raise_limit(2 * operations + 100)
        super
      end

      private

      def hold
        near = Array.new(operations) do
          mine, other = UNIXSocket.pair
          spawn { park { other.read(1) } }
          mine
        end
        proc { near.each(&:close) }
      end
    end
  end
end
