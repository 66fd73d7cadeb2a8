# frozen_string_literal: true

module Bench
  module Rows
    # An HTTP server that says hello, and clients that keep their connections. They do as little as they can
    # to know that the answer is right: it is the server that is measured, as far as one process can.
    class HttpServer < HttpRow
      CLIENTS = 100
      REQUESTS = 600
      REQUEST = "GET / HTTP/1.1\r\nHost: localhost\r\nUser-Agent: bench\r\nAccept: */*\r\n\r\n"

      title "HTTP server, 100 clients, 600 keep-alive requests each, hello world"
      unit "request"

      def operations
        CLIENTS * scaled(REQUESTS)
      end

      def call
        @answers = 0
        port = listen(CLIENTS)
        CLIENTS.times { spawn { ask(port) } }
        wait
      end

      def result
        @answers
      end

      private

      def ask(port)
        answers = 0
        socket = connect(port)
        scaled(REQUESTS).times do
          socket.write(REQUEST)
          answers += 1 if socket.read(response.bytesize) == response
        end
        socket.close
        @answers += answers
      end
    end
  end
end
