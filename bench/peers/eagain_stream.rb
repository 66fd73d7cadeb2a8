# frozen_string_literal: true

require_relative "eagain_epoll"

module Bench
  module Peers
    # The rows by Eagain::Stream in place of Ruby's own IO: its buffers gather what is small, so that there
    # are fewer system calls than the other peers, and the C programs, make for the same messages.
    class EagainStream < EagainEpoll
      title "Eagain::Stream, on epoll"
      kind :own

      # In a StreamRow.
      module Streams
        private

        def send_all(writer)
          Eagain::Stream.open(writer) do |stream|
            scaled(self.class::MESSAGES).times { stream.write(@message) }
          end
        end

        def receive_all(reader)
          stream = Eagain::Stream.new(reader)
          bytes = 0
          size = @message.bytesize
          buffer = String.new(capacity: size)
          loop { bytes += stream.readpartial(size, buffer).bytesize }
        rescue EOFError
          stream.close
          @bytes += bytes
        end
      end

      # In a row of echoes. What is written goes out when the stream waits for what comes.
      module Echoes
        private

        def serve(connection)
          stream = Eagain::Stream.new(connection)
          buffer = String.new(capacity: 4096)
          loop { stream.write(stream.readpartial(4096, buffer)) }
        rescue EOFError
          stream.close
        end

        def connect(port)
          Eagain::Stream.new(super)
        end
      end

      # In an HttpRow: the server's side.
      module Servers
        private

        def serve(connection)
          super(Eagain::Stream.new(connection))
        end
      end

      LANES = { "pipes" => Streams, "sockets" => Streams, "echo" => Echoes, "echo_1000" => Echoes,
                "http_small" => Servers }.freeze

      def self.rows
        LANES.keys
      end

      def call(row)
        name = LANES.keys.find { |lane| row.instance_of?(Bench.row(lane)) }
        row.extend(LANES.fetch(name))
        super
      end
    end
  end
end
