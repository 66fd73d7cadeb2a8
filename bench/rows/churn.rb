# frozen_string_literal: true

module Bench
  module Rows
    # Connections that hardly live: what a descriptor costs from connect(2) and accept(2) to close(2). One
    # byte goes each way, so that both sides know that the other was there.
    class Churn < TcpRow
      include Clients

      CLIENTS = 50
      EACH = 200

      title "10,000 TCP connections, 50 at a time: connect, accept, one byte each way, close"
      unit "connection"

      private

      def serve(connection)
        connection.write(connection.readpartial(1))
        connection.close
      end

      # Each for one question.
      def connections
        operations
      end

      def ask(port)
        count do
          socket = connect(port)
          right = echoed?(socket, "x") && socket.eof?
          socket.close
          right
        end
      end
    end
  end
end
