# frozen_string_literal: true

module Bench
  module Peers
    # UringMachine's scheduler. The versions before 1.0, which older Rubies take, lack parts of it.
    class Uringmachine < SchedulerPeer
      title "UringMachine"
      ruby ">= 3.5"
      gems "uringmachine" => ">= 1.0"

      def self.unavailable
        require "uringmachine"
        require "uringmachine/fiber_scheduler"
        nil
      end

      def scheduler
        ::UringMachine::FiberScheduler.new
      end

      # It has no #run: #join waits for the fibers that there are.
      def wait
        @scheduler.join until @scheduler.fiber_map.size.zero?
      end
    end
  end
end
