# frozen_string_literal: true

module Bench
  module Rows
    # The same by the calls that would wait, but do not have to.
    class SmallWait < MessageRow
      title "1,000,000 writes and reads of 11 bytes over a UNIX socket pair, blocking calls"
      unit "message"
    end
  end
end
