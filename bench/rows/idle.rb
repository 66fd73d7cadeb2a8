# frozen_string_literal: true

require "rbconfig"

module Bench
  module Rows
    # Many connections that say nothing, each with a task that reads from it, and one that talks. Another process
    # holds the far ends of the idle ones, so that this one needs no more descriptors than it waits for.
    class Idle < TcpRow
      IDLE = 10_000
      REQUESTS = 20_000
      MESSAGE = ("*" * 64).freeze
      # Connects so often, and ends when its standard input does.
      HOLD = 'sockets = Array.new(Integer(ARGV[1])) { TCPSocket.new("127.0.0.1", ARGV[0]) }; $stdin.read'

      group "Latency under load"
      headline "p99"
      aim 1.0, over: :others
      title "20,000 round trips over a TCP connection, while 10,000 others are idle"
      untraced "another process holds the other ends"
      unit "round trip"

      def operations
        scaled(REQUESTS)
      end

      def missing
        Descriptors.missing(idle + 100)
      end

      # They are connected before the clock starts.
      def prepare
        Descriptors.raise_limit(idle + 100)
        server = TCPServer.new("127.0.0.1", 0)
        reader, @release = IO.pipe
        @holder = Process.spawn(RbConfig.ruby, "-rsocket", "-e", HOLD, server.local_address.ip_port.to_s, idle.to_s,
                                in: reader, rlimit_nofile: idle + 100)
        reader.close
        @idle = Array.new(idle) { server.accept }
        server.close
      end

      def call
        @answers = @ended = 0
        @idle.each { |socket| spawn { serve(socket) } }
        port = listen(1)
        spawn { ask(port) }
        wait
      end

      # And each of the idle ones has seen the end of its connection.
      def result
        Process.wait(@holder)
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
        @release.close
      end
    end
  end
end
