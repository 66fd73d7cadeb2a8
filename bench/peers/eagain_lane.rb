# frozen_string_literal: true

require_relative "eagain_epoll"

module Bench
  module Peers
    # The rows by calls of this checkout in place of Ruby's own: Eagain.write, and Eagain.read into a String
    # that is used again. One system call each, as in the C programs.
    class EagainLane < EagainEpoll
      title "eagain's own calls, on epoll"
      kind :own

      # In a StreamRow.
      module Streams
        private

        def send_all(writer)
          left = scaled(self.class::MESSAGES)
          left -= 1 while left.positive? && Eagain.write(writer, @message)
          writer.close
        end

        def receive_all(reader)
          bytes = 0
          size = @message.bytesize
          buffer = String.new(capacity: size)
          bytes += buffer.bytesize while Eagain.read(reader, size, buffer)
          reader.close
          @bytes += bytes
        end
      end

      # In a row of echoes.
      module Echoes
        private

        def serve(connection)
          buffer = String.new(capacity: 4096)
          Eagain.write(connection, buffer) while Eagain.read(connection, 4096, buffer)
          connection.close
        end

        def echoed?(socket, message)
          Eagain.write(socket, message)
          answer = Eagain.read(socket, message.bytesize)
          answer << Eagain.read(socket, message.bytesize - answer.bytesize) while answer.bytesize < message.bytesize
          answer == message
        end
      end

      LANES = { "pipes" => Streams, "sockets" => Streams, "echo" => Echoes, "echo_1000" => Echoes }.freeze

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
