# frozen_string_literal: true

module Bench
  module Peers
    # The scheduler of the Itsi server, whose selector is Rust's mio.
    class Itsi < SchedulerPeer
      AGAIN = "a socket that is waited for anew is refused (register error: File exists), and the fiber ends"

      title "itsi-scheduler"
      gems "itsi-scheduler" => "0.2.27"
      cannot(%i[http_small http_large].to_h { |row| [row, AGAIN] })

      def self.unavailable
        require "itsi/scheduler"
        nil
      end

      def scheduler
        ::Itsi::Scheduler.new
      end
    end
  end
end
