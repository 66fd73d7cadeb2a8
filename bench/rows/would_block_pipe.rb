# frozen_string_literal: true

module Bench
  module Rows
    # The same on a pipe.
    class WouldBlockPipe < WouldBlockRow
      title "1,000,000 reads of an empty pipe, no exception"
      unit "read"

      private

      def pair = @peer.pipe
    end
  end
end
