# frozen_string_literal: true

module Bench
  module Peers
    # This checkout, waiting with epoll.
    class EagainEpoll < SchedulerPeer
      title "Eagain::Scheduler on epoll"
      env "EAGAIN_BACKEND" => "epoll"

      def self.ours?
        true
      end

      def self.load
        library = File.join(ROOT, "lib")
        $LOAD_PATH.unshift(library) unless $LOAD_PATH.include?(library)
        require "eagain"
      end

      def self.unavailable
        load
        "not on this system" unless Eagain::BACKENDS.include?(backend)
      rescue LoadError => e
        "not built: run make (#{e.message})"
      end

      def self.versions
        { "eagain" => Eagain::VERSION }
      end

      def self.backend
        "epoll"
      end

      def scheduler
        Eagain::Scheduler.new(backend: self.class.backend)
      end
    end
  end
end
