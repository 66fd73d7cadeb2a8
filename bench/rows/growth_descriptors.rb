# frozen_string_literal: true

require "socket"

module Bench
  module Rows
    # Sockets that a task each reads from, of which ten get a message at a time. One more sends them all, so that
    # there is no second descriptor for each.
    class GrowthDescriptors < GrowthRow
      COUNT = 100_000
      # Each gets some, so that what it costs to begin is not all.
      LEAST = 3
      AT_ONCE = 10
      MESSAGE = ("*" * 64).freeze
      PORTS = 10_000
      OTHERS = 100

      title "100,000 messages to 10 to 100,000 UDP sockets, each with a task that reads; 10 messages at a time"
      unit "message"

      class << self
        private

        # The lower of the two limits.
        def limit
          open = Descriptors.missing(GrowthRow::SIZES.last + OTHERS)
          open && Stacks.most > Descriptors.most(GrowthRow::SIZES.last + OTHERS) ? open : super || open
        end

        def most
          [super, round_down(Descriptors.most(GrowthRow::SIZES.last + OTHERS) - OTHERS)].min
        end
      end

      def prepare
        Descriptors.raise_limit(@size + OTHERS)
        # An address has ports for some of them, and another process has other addresses.
        @sockets = Array.new(@size) do |number|
          Socket.new(:INET, :DGRAM).tap { |socket| socket.bind(Addrinfo.udp("127.#{1 + Process.pid % 250}.#{number / PORTS}.1", 0)) }
        end
        @addresses = @sockets.map { |socket| socket.getsockname }.shuffle(random: Random.new(1))
      end

      def call
        @messages = 0
        arrived = Queue.new
        @sockets.each { |socket| spawn { receive(socket, arrived) } }
        spawn { send_all(arrived) }
        wait
      end

      def result
        @messages
      end

      private

      def receive(socket, arrived)
        turns.times do
          @messages += 1 if socket.readpartial(MESSAGE.bytesize) == MESSAGE
          arrived << true
        end
        socket.close
      end

      def send_all(arrived)
        sender = Socket.new(:INET, :DGRAM)
        turns.times do
          @addresses.each_slice(AT_ONCE) do |addresses|
            addresses.each { |address| sender.send(MESSAGE, 0, address) }
            addresses.size.times { arrived.pop }
          end
        end
        sender.close
      end
    end
  end
end
