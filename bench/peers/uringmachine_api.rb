# frozen_string_literal: true

module Bench
  module Peers
    # UringMachine's own calls: fibers of its own, and descriptors that are numbers. Its scheduler needs Ruby 3.5;
    # for this the last version that Ruby 3.4 takes is enough.
    class UringmachineApi < Peer
      OLD = "0.20.0"

      title "UringMachine's own calls"
      kind :own
      ruby ">= 3.4"
      gems "uringmachine" => (RUBY_VERSION < "3.5" ? OLD : ">= 1.0")

      # In a StreamRow, whose ends stay open until the row is over: they are Ruby's.
      module Streams
        private

        def send_all(writer)
          machine = @peer.machine
          size = @message.bytesize
          number = writer.fileno
          scaled(self.class::MESSAGES).times do
            sent = machine.write(number, @message)
            sent += machine.write(number, @message.byteslice(sent..)) while sent < size
          end
          writer.close
        end

        def receive_all(reader)
          machine = @peer.machine
          size = @message.bytesize
          number = reader.fileno
          buffer = String.new(capacity: size)
          bytes = 0
          while (got = machine.read(number, buffer, size)).positive?
            bytes += got
          end
          reader.close
          @bytes += bytes
        end
      end

      class << self
        def rows
          %w[pipes sockets]
        end

        def unavailable
          require "uringmachine"
          nil
        end
      end

      attr_reader :machine

      def setup
        @machine = ::UringMachine.new
        @fibers = []
      end

      def call(row)
        row.extend(Streams)
        super
      end

      def spawn(&block)
        @fibers << @machine.spin(&block)
      end

      def wait
        @machine.join(*@fibers)
      end
    end
  end
end
