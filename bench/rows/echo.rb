# frozen_string_literal: true

module Bench
  module Rows
    # A TCP echo server and its clients, in one process and under one peer: each message waits four
    # times in turn, so that this row is all about what a wait costs.
    #
    # The server answers what it gets (IO#readpartial, IO#write); a client reads the whole answer
    # (IO#read, which for an empty buffer reads straight into the string).
    class Echo < TcpRow
      CLIENTS = 30
      MESSAGES = 4_000
      MESSAGE = ("*" * 512).freeze

      title "TCP echo over loopback, 30 clients, 4,000 round trips of 512 bytes each"
      unit "round trip"

      def operations
        clients * scaled(self.class::MESSAGES)
      end

      def call
        @answers = 0
        port = listen(clients)
        clients.times { spawn { ask(port) } }
        wait
      end

      def result
        @answers
      end

      # Integer: how many there are, at any scale.
      def clients
        self.class::CLIENTS
      end

      private

      def ask(port)
        answers = 0
        socket = connect(port)
        scaled(self.class::MESSAGES).times { answers += 1 if echoed?(socket, MESSAGE) }
        socket.close
        @answers += answers
      end
    end
  end
end
