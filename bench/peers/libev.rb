# frozen_string_literal: true

module Bench
  module Peers
    # libev_scheduler, the first one that was written in C. It is of the time of Ruby 3.0.
    class Libev < SchedulerPeer
      WAITS = "its io_wait answers with the scheduler, and Ruby from 3.1 on expects the events"
      LIMITS = "it has no timeout_after: Timeout raises in whichever fiber runs"

      title "libev_scheduler"
      gems "libev_scheduler" => "0.2"
      cannot(
        %i[busy churn connection_pool echo echo_1000 http_large http_server http_small http_wrk idle pipes sockets
           fan_out tls_echo postgresql redis].to_h { |row| [row, WAITS] }.merge(
             deadlines: LIMITS, timeouts: LIMITS, timers: LIMITS, growth_descriptors: "it crashes (SIGSEGV)", processes: "its process_wait takes the status away"
           )
      )

      def self.unavailable
        require "libev_scheduler"
        nil
      end

      def scheduler
        ::Libev::Scheduler.new
      end
    end
  end
end
