# frozen_string_literal: true

module Bench
  module Rows
    # A read that finds nothing in a socket, and says so by a value.
    class WouldBlockSocket < WouldBlockRow
      title "1,000,000 reads of an empty UNIX socket, no exception"
      unit "read"
    end
  end
end
