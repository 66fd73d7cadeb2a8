# frozen_string_literal: true

module Bench
  module Rows
    # A TCP echo server and its clients, in one process and under one peer: each message waits four
    # times in turn, so that this row is all about what a wait costs.
    #
    # The server answers what it gets (IO#readpartial, IO#write); a client reads the whole answer
    # (IO#read, which for an empty buffer reads straight into the string).
    class Echo < TcpRow
      include Clients

      CLIENTS = 30
      EACH = 4_000
      MESSAGE = ("*" * 512).freeze

      title "TCP echo over loopback, 30 clients, 4,000 round trips of 512 bytes each"
      unit "round trip"

      private

      def ask(port)
        socket = connect(port)
        count { echoed?(socket, MESSAGE) }
        socket.close
      end
    end
  end
end
