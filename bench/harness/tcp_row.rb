# frozen_string_literal: true

require "socket"

module Bench
  # A TCP server on the loopback interface and its clients, in one process and under one peer.
  class TcpRow < Row
    group "Streams and sockets"

    private

    # Starts a server that accepts so many connections, each served by a task of its own. Returns its port.
    def listen(connections)
      server = TCPServer.new("127.0.0.1", 0)
      spawn do
        connections.times do
          connection = server.accept
          spawn { serve(connection) }
        end
        server.close
      end
      server.local_address.ip_port
    end

    # What the server does with a connection: it answers what it gets.
    def serve(connection)
      loop { connection.write(connection.readpartial(4096)) }
    rescue EOFError
      connection.close
    end

    def connect(port)
      TCPSocket.new("127.0.0.1", port)
    end

    # One message and the whole answer. Returns whether that was the message again.
    def echoed?(socket, message)
      socket.write(message)
      socket.read(message.bytesize) == message
    end
  end
end
