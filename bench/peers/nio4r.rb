# frozen_string_literal: true

require "socket"

module Bench
  module Peers
    # nio4r: no tasks, but a selector and what the program makes of it. The rows of messages as such a
    # program: one loop, a state for each descriptor, non-blocking calls.
    class Nio4r < Peer
      title "nio4r, a loop without tasks"
      kind :loop
      gems "nio4r" => "2.7.5"

      # One side of a conversation. A client begins, and ends after +left+ messages; a server answers until the
      # end of file.
      class Talker
        attr_reader :answers

        def initialize(socket, message, left = nil)
          @socket = socket
          @message = message
          @left = left
          @answers = 0
          @in = +""
          @out = left ? message : ""
        end

        # Goes on until it would block. Returns what it waits for, :r or :w, or nil at the end.
        def advance
          loop do
            return :w unless flush
            return if @left&.zero?

            case @socket.read_nonblock(4096, @in, exception: false)
            when :wait_readable then return :r
            when nil then return
            else hear
            end
          end
        end

        private

        def hear
          return @out = @in unless @left

          (@heard ||= +"") << @in
          return if @heard.bytesize < @message.bytesize

          @answers += 1 if @heard == @message
          @left -= 1
          @heard.clear
          @out = @message unless @left.zero?
        end

        def flush
          until @out.empty?
            sent = @socket.write_nonblock(@out, exception: false)
            return false if sent == :wait_writable

            @out = @out.byteslice(sent..)
          end
          true
        end
      end

      # Writes so many messages and closes, or reads to the end of file, as long as that does not block.
      class Stream
        attr_reader :bytes

        def initialize(io, message, left = nil)
          @io = io
          @message = message
          @left = left
          @rest = message
          @bytes = 0
          @buffer = +""
        end

        def advance
          @left ? write : read
        end

        private

        def write
          until @left.zero?
            sent = @io.write_nonblock(@rest, exception: false)
            return :w if sent == :wait_writable

            @rest = sent == @rest.bytesize ? (@left -= 1) && @message : @rest.byteslice(sent..)
          end
        end

        def read
          loop do
            case @io.read_nonblock(@message.bytesize, @buffer, exception: false)
            when :wait_readable then return :r
            when nil then return
            else @bytes += @buffer.bytesize
            end
          end
        end
      end

      class << self
        def rows
          %w[echo echo_1000 pipes sockets]
        end

        def unavailable
          require "nio"
          nil
        end
      end

      def setup
        @selector = NIO::Selector.new
        @open = 0
      end

      def call(row)
        @ends = []
        row.is_a?(StreamRow) ? stream(row) : echo(row)
        @selector.select { |monitor| go_on(monitor) } while @open.positive?
      end

      def result(row)
        row.is_a?(StreamRow) ? @ends.sum(&:bytes) / row.class::MESSAGE.bytesize : @ends.sum(&:answers)
      end

      private

      def stream(row)
        message = row.class::MESSAGE
        row.class::PAIRS.times do
          reader, writer = row.send(:pair)
          add(writer, Stream.new(writer, message, row.operations / row.class::PAIRS))
          add(reader, Stream.new(reader, message))
        end
      end

      def echo(row)
        message = row.class::MESSAGE
        server = TCPServer.new("127.0.0.1", 0)
        row.clients.times do
          client = TCPSocket.new("127.0.0.1", server.local_address.ip_port)
          add(client, Talker.new(client, message, row.operations / row.clients))
          connection = server.accept
          add(connection, Talker.new(connection, message))
        end
        server.close
      end

      def add(io, state)
        @ends << state
        wish = state.advance or return io.close
        monitor = @selector.register(io, wish)
        monitor.value = state
        @open += 1
      end

      # A monitor knows its descriptor: it has to go before that is closed.
      def go_on(monitor)
        wish = monitor.value.advance
        if wish
          monitor.interests = wish unless monitor.interests == wish
        else
          io = monitor.io
          monitor.close
          io.close
          @open -= 1
        end
      end
    end
  end
end
