# frozen_string_literal: true

module Bench
  # An HTTP/1.1 server that keeps connections open, as small as it can be: it reads the lines of a request's
  # head and answers with the same #body each time.
  class HttpRow < TcpRow
    group "HTTP and TLS"

    private

    # What is answered (String).
    def body
      "Hello, world!\n"
    end

    def response
      @response ||= "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: #{body.bytesize}\r\n\r\n#{body}".freeze
    end

    def serve(connection)
      connection.write(response) while request?(connection)
    ensure
      connection.close
    end

    # Reads a request that has no body. Returns false at the end of the connection.
    def request?(connection)
      while (line = connection.gets)
        return true if line == "\r\n"
      end
      false
    end
  end
end
