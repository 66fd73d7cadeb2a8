# frozen_string_literal: true

module Bench
  module Rows
    # An HTTP server that says hello, and clients that keep their connections. They do as little as they can
    # to know that the answer is right: it is the server that is measured, as far as one process can.
    class HttpServer < HttpRow
      include Clients

      CLIENTS = 100
      EACH = 600
      REQUEST = "GET / HTTP/1.1\r\nHost: localhost\r\nUser-Agent: bench\r\nAccept: */*\r\n\r\n"

      title "HTTP server, 100 clients, 600 keep-alive requests each, hello world"
      unit "request"

      private

      def ask(port)
        socket = connect(port)
        count do
          socket.write(REQUEST)
          socket.read(response.bytesize) == response
        end
        socket.close
      end
    end
  end
end
