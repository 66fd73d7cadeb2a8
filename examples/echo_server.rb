# frozen_string_literal: true

# A TCP server that sends back what it gets, with a task per connection.
#
#   ruby -Ilib examples/echo_server.rb [PORT]    (then: telnet 127.0.0.1 PORT)
#
# Ctrl-C ends it: the tasks are cancelled, and their ensure blocks close the connections.

require "eagain"
require "socket"

def echo(connection)
  while (line = connection.gets)
    connection.write(line)
  end
rescue Errno::ECONNRESET, Errno::EPIPE
  nil # the client has gone
ensure
  connection.close
end

Eagain.run do
  server = TCPServer.new("127.0.0.1", Integer(ARGV.fetch(0, 0)))
  puts "listening on 127.0.0.1:#{server.local_address.ip_port}"
  $stdout.flush
  loop do
    connection = server.accept
    Eagain.spawn { echo(connection) }
  end
rescue Interrupt
  exit 130
end
