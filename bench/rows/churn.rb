# frozen_string_literal: true

module Bench
  module Rows
    # Connections that hardly live: what a descriptor costs from connect(2) and accept(2) to close(2). One
    # byte goes each way, so that both sides know that the other was there.
    class Churn < TcpRow
      CLIENTS = 50
      CONNECTIONS = 200

      title "10,000 TCP connections, 50 at a time: connect, accept, one byte each way, close"
      unit "connection"

      def operations
        CLIENTS * scaled(CONNECTIONS)
      end

      def call
        @answers = 0
        port = listen(operations)
        CLIENTS.times { spawn { ask(port) } }
        wait
      end

      def result
        @answers
      end

      private

      def serve(connection)
        connection.write(connection.readpartial(1))
        connection.close
      end

      def ask(port)
        answers = 0
        scaled(CONNECTIONS).times do
          socket = connect(port)
          answers += 1 if echoed?(socket, "x") && socket.eof?
          socket.close
        end
        @answers += answers
      end
    end
  end
end
