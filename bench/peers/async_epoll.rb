# frozen_string_literal: true

module Bench
  # Async on one of io-event's selectors.
  class AsyncPeer < SchedulerPeer
    # On Ruby 3.1 the last versions that support it, later the current ones.
    GEMS =
      if RUBY_VERSION < "3.3"
        { "io-event" => "1.11.2", "async" => "2.23.1" }
      else
        { "io-event" => ">= 1.14", "async" => ">= 2.34" }
      end.freeze

    # Asked after the gems are there; +selector+ is a constant of IO::Event::Selector.
    def self.missing(selector)
      require "async"
      "io-event was built without #{selector}" unless IO::Event::Selector.const_defined?(selector)
    end

    def scheduler
      require "async"
      Async::Scheduler.new
    end
  end

  module Peers
    # Async, waiting with epoll.
    class AsyncEpoll < AsyncPeer
      title "Async on io-event's epoll"
      gems GEMS
      env "IO_EVENT_SELECTOR" => "EPoll"

      def self.unavailable
        missing(:EPoll)
      end
    end
  end
end
