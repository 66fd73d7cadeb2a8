# frozen_string_literal: true

require "socket"

module Bench
  module Rows
    # One request that becomes a hundred: a task starts a task for each of a hundred backends, and gathers
    # what they answer in a Queue.
    class FanOut < Row
      BACKENDS = 100
      REQUESTS = 300
      MESSAGE = ("*" * 64).freeze

      group "Tasks, locks and queues"
      title "300 requests, each by 100 new tasks that ask 100 backends; the answers are gathered"
      unit "answer"

      def operations
        BACKENDS * scaled(REQUESTS)
      end

      def call
        @answers = 0
        @backends = Array.new(BACKENDS) { UNIXSocket.pair }
        @backends.each { |_, far| spawn { answer(far) } }
        spawn { gather }
        wait
      end

      def result
        @answers
      end

      private

      def answer(socket)
        loop { socket.write(socket.readpartial(4096)) }
      rescue EOFError
        socket.close
      end

      def gather
        answers = Queue.new
        scaled(REQUESTS).times do
          @backends.each { |near, _| spawn { answers << ask(near) } }
          BACKENDS.times { @answers += 1 if answers.pop == MESSAGE }
        end
        @backends.each { |near, _| near.close }
      end

      def ask(socket)
        socket.write(MESSAGE)
        socket.read(MESSAGE.bytesize)
      end
    end
  end
end
