# frozen_string_literal: true

module Bench
  module Rows
    # Many connections that say nothing, each with a task that reads from it, and one that talks. Both ends of
    # each are in this process.
    class Idle < TcpRow
      IDLE = 10_000
      REQUESTS = 20_000
      MESSAGE = ("*" * 64).freeze

      group "Latency under load"
      headline "p99"
      title "20,000 round trips over a TCP connection, while 10,000 others are idle"
      unit "round trip"

      def operations
        scaled(REQUESTS)
      end

      def missing
        Descriptors.missing(2 * idle + 100)
      end

      # They are connected before the clock starts.
      def prepare
        Descriptors.raise_limit(2 * idle + 100)
        server = TCPServer.new("127.0.0.1", 0)
        port = server.local_address.ip_port
        @near = []
        @far = Array.new(idle) do
          @near << connect(port)
          server.accept
        end
        server.close
      end

      def call
        @answers = @ended = 0
        @far.each { |socket| spawn { serve(socket) } }
        port = listen(1)
        spawn { ask(port) }
        wait
      end

      # And each of the idle ones has seen the end of its connection.
      def result
        @ended == idle + 1 ? @answers : 0
      end

      private

      def idle
        scaled(IDLE)
      end

      def serve(connection)
        super
        @ended += 1
      end

      def ask(port)
        socket = connect(port)
        operations.times { @answers += 1 if timed { echoed?(socket, MESSAGE) } }
      ensure
        socket.close
        @near.each(&:close)
      end
    end
  end
end
