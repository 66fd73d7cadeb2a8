# frozen_string_literal: true

require_relative "async_epoll"

module Bench
  module Peers
    # Async, waiting with io_uring, where io-event found liburing when it was built.
    class AsyncUring < AsyncPeer
      title "Async on io-event's io_uring"
      gems GEMS
      env "IO_EVENT_SELECTOR" => "URing"

      def self.unavailable
        missing(:URing)
      end
    end
  end
end
