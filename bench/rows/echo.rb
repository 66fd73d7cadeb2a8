# frozen_string_literal: true

require "socket"

module Bench
  module Rows
    # A TCP echo server and its clients, in one process and under one peer: each message waits four
    # times in turn, so that this row is all about what a wait costs.
    #
    # The server answers what it gets (IO#readpartial, IO#write); a client reads the whole answer
    # (IO#read, which for an empty buffer reads straight into the string).
    class Echo < Row
      CLIENTS = 30
      MESSAGES = 4_000
      MESSAGE = ("*" * 512).freeze

      title "TCP echo over loopback, 30 clients, 4,000 round trips of 512 bytes each"
      unit "round trip"

      def operations
        CLIENTS * scaled(MESSAGES)
      end

      def call
        @answers = 0
        server = TCPServer.new("127.0.0.1", 0)
        port = server.local_address.ip_port
        spawn { serve(server) }
        CLIENTS.times { spawn { ask(port) } }
        wait
      end

      def result
        @answers
      end

      private

      def serve(server)
        CLIENTS.times do
          connection = server.accept
          spawn { echo(connection) }
        end
        server.close
      end

      def echo(connection)
        loop { connection.write(connection.readpartial(4096)) }
      rescue EOFError
        connection.close
      end

      def ask(port)
        answers = 0
        socket = TCPSocket.new("127.0.0.1", port)
        scaled(MESSAGES).times do
          socket.write(MESSAGE)
          answers += 1 if socket.read(MESSAGE.bytesize) == MESSAGE
        end
        socket.close
        @answers += answers
      end
    end
  end
end
