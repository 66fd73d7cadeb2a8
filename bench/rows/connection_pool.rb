# frozen_string_literal: true

module Bench
  module Rows
    # Few connections for many tasks, as to a database: a Queue holds those that are free.
    class ConnectionPool < TcpRow
      CONNECTIONS = 10
      TASKS = 200
      REQUESTS = 200
      MESSAGE = ("*" * 128).freeze

      title "A pool of 10 connections in a Queue, 200 tasks with 200 requests each"
      unit "request"

      def operations
        TASKS * scaled(REQUESTS)
      end

      def call
        @answers = 0
        @working = TASKS
        @pool = Queue.new
        port = listen(CONNECTIONS)
        CONNECTIONS.times { spawn { @pool << connect(port) } }
        TASKS.times { spawn { work } }
        wait
      end

      def result
        @answers
      end

      private

      def work
        scaled(REQUESTS).times do
          socket = @pool.pop
          @answers += 1 if echoed?(socket, MESSAGE)
          @pool << socket
        end
        CONNECTIONS.times { @pool.pop.close } if (@working -= 1).zero?
      end
    end
  end
end
