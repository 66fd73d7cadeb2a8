# frozen_string_literal: true

module Bench
  module Rows
    # The same on a pipe.
    class WouldBlockPipe < CallRow
      title "1,000,000 reads of an empty pipe, no exception"
      unit "read"

      private

      def subjects
        @ios = @peer.pipe
        { a: @ios[0], buffer: +"" }
      end

      def expected?(answer)
        answer == :wait_readable
      end
    end
  end
end
