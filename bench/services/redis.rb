# frozen_string_literal: true

require "socket"

module Bench
  module Services
    # Redis, in memory only.
    class Redis < Service
      class << self
        def missing
          "redis-server is not installed (package redis-server): make bench-peers" unless server
        end

        def versions
          { "redis-server" => version_of(server) }
        end

        def server
          program("redis-server")
        end
      end

      def env
        { "BENCH_REDIS" => socket }
      end

      private

      def command
        [self.class.server, "--port", "0", "--unixsocket", socket, "--dir", @folder, "--save", "", "--appendonly", "no"]
      end

      def answers?
        UNIXSocket.open(socket) { true }
      rescue SystemCallError
        false
      end

      def socket
        File.join(@folder, "redis.sock")
      end
    end
  end
end
