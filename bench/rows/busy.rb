# frozen_string_literal: true

require "zlib"

module Bench
  module Rows
    # A request among a thousand tasks that always have something to do: whoever waits for the kernel must not
    # wait for all of them, again and again.
    class Busy < TcpRow
      TASKS = 1_000
      REQUESTS = 100
      MESSAGE = ("*" * 64).freeze
      WORK = ("*" * 16_384).freeze

      group "Latency under load"
      headline "p99"
      aim 1.0, over: :others
      title "100 round trips over TCP, one after the other, while 1,000 tasks compute"
      untraced "the tasks that compete make as many as there is time for"
      unit "round trip"

      def operations
        scaled(REQUESTS)
      end

      def call
        @answers = 0
        @over = false
        port = listen(1)
        TASKS.times { spawn { compete } }
        spawn { ask(port) }
        wait
      end

      def result
        @answers
      end

      private

      # A few microseconds each time, then the others.
      def compete
        until @over
          Zlib.crc32(WORK)
          sleep(0)
        end
      end

      def ask(port)
        socket = connect(port)
        operations.times { @answers += 1 if timed { echoed?(socket, MESSAGE) } }
        socket.close
      ensure
        @over = true
      end
    end
  end
end
