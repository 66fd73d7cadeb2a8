# frozen_string_literal: true

# An HTTP/1.1 server in the fast lane: a task and an Eagain::Stream for each connection.
#
#   ruby -Ilib examples/hello_server.rb [PORT]    (then: curl http://127.0.0.1:PORT/name)
#
# A line of more than 8 KiB is refused, and a client that says nothing for 30 seconds is left. Requests that come
# together are answered together: what is written goes out when there is nothing more to read.

require "eagain"
require "socket"

HEAD = "HTTP/1.1 %s\r\nContent-Type: text/plain\r\nContent-Length: %d\r\n\r\n"

def answer(stream, status, text)
  stream.write(format(HEAD, status, text.bytesize), text)
end

# Returns false at the end of the connection, or after an answer that is the last.
def request?(stream)
  method, path, = stream.readline(chomp: true).split
  raise ArgumentError, "no request" unless path

  length = 0
  until (line = stream.readline(chomp: true)).empty?
    name, value = line.split(":", 2)
    length = Integer(value) if name.casecmp?("Content-Length")
  end
  stream.read_exact(length)
  return answer(stream, "405 Method Not Allowed", "GET, please\n") && false unless method == "GET"

  answer(stream, "200 OK", "hello #{path.delete_prefix("/")}\n") && true
rescue Eagain::LimitError
  answer(stream, "431 Request Header Fields Too Large", "too long\n") && false
rescue ArgumentError, TypeError
  answer(stream, "400 Bad Request", "what?\n") && false
end

def serve(connection)
  Eagain::Stream.open(connection, limit: 8192, timeout: 30) do |stream|
    nil while request?(stream)
  end
rescue EOFError, Errno::ECONNRESET, Errno::EPIPE, Eagain::TimeoutError
  nil # the client has gone, or sleeps
end

Eagain.run do
  server = TCPServer.new("127.0.0.1", Integer(ARGV.fetch(0, 0)))
  puts "http://127.0.0.1:#{server.local_address.ip_port}"
  $stdout.flush
  loop do
    connection = Eagain.accept(server)
    Eagain.spawn { serve(connection) }
  end
rescue Interrupt
  exit 130
end
