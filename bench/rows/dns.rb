# frozen_string_literal: true

require "socket"

module Bench
  module Rows
    # Names that are looked up at the same time. "localhost" is answered without a network.
    class Dns < Row
      TASKS = 100
      NAMES = 50

      group "Files, names, programs"
      title "100 tasks that look up localhost 50 times each, with Addrinfo.getaddrinfo"
      unit "name"

      def operations
        TASKS * scaled(NAMES)
      end

      def call
        @found = 0
        TASKS.times { spawn { look_up } }
        wait
      end

      def result
        @found
      end

      private

      def look_up
        scaled(NAMES).times do
          addresses = Addrinfo.getaddrinfo("localhost", 80, nil, :STREAM)
          @found += 1 if addresses.any? && addresses.all? { |it| it.ipv4_loopback? || it.ipv6_loopback? }
        end
      end
    end
  end
end
