# frozen_string_literal: true

require_relative "eagain_epoll"

module Bench
  module Peers
    # The same, waiting with io_uring.
    class EagainUring < EagainEpoll
      title "Eagain::Scheduler on io_uring"
      env "EAGAIN_BACKEND" => "io_uring"

      def self.backend
        "io_uring"
      end

      def self.unavailable
        super || begin
          Eagain::Scheduler.new(backend: backend).close
          nil
        end
      rescue SystemCallError => e
        "not on this kernel (#{e.message})"
      end
    end
  end
end
