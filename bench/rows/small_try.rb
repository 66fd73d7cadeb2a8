# frozen_string_literal: true

module Bench
  module Rows
    # A write that finds room and a read that finds data, without waiting.
    class SmallTry < MessageRow
      title "1,000,000 writes and reads of 11 bytes over a UNIX socket pair, non-blocking calls"
      unit "message"
    end
  end
end
