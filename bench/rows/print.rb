# frozen_string_literal: true

module Bench
  module Rows
    # One byte at a time to where it costs nothing.
    class Print < CallRow
      title "1,000,000 prints of one byte to /dev/null"
      unit "print"

      private

      def subjects
        out = File.open(File::NULL, "w")
        out.sync = true
        { out: out }
      end

      def expected?(answer)
        [nil, 1].include?(answer)
      end
    end
  end
end
