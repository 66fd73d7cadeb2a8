# frozen_string_literal: true

module Bench
  module Peers
    # Carbon Fiber, whose selector is Zig on io_uring.
    class CarbonFiber < SchedulerPeer
      title "Carbon Fiber"
      ruby ">= 3.4"
      gems "carbon_fiber" => "0.2.1"
      cannot(
        busy: "no answer: while tasks give way to each other it never asks the kernel",
        deadlines: "no answer: it comes to sleep, and does not wake up again"
      )

      def self.unavailable
        require "carbon_fiber"
        nil
      end

      def scheduler
        ::CarbonFiber::Scheduler.new
      end
    end
  end
end
