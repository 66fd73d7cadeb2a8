# frozen_string_literal: true

require_relative "echo"

module Bench
  module Rows
    # The same with so many clients that most have to wait for their turn, not for the kernel.
    class Echo1000 < Echo
      CLIENTS = 1_000
      EACH = 120

      title "TCP echo over loopback, 1,000 clients, 120 round trips of 512 bytes each"
      unit "round trip"
    end
  end
end
