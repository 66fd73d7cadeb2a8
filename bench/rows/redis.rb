# frozen_string_literal: true

module Bench
  module Rows
    # A cache's client as programs use it, one for each task. What Redis takes of a processor is not in this row's
    # CPU time.
    class Redis < Row
      TASKS = 50
      TURNS = 400

      group "Databases"
      title "Redis (gem redis), 50 clients, 400 times SET and GET of 100 bytes each"
      untraced "how often a client waits depends on the server's speed"
      unit "command"
      service "redis"
      gems "redis" => (RUBY_VERSION < "3.2" ? "5.4.1" : "6.0.0")

      def operations
        2 * TASKS * scaled(TURNS)
      end

      def prepare
        require "redis"
        @path = ENV.fetch("BENCH_REDIS")
      end

      def call
        @answers = 0
        TASKS.times { |number| spawn { ask_all(number) } }
        wait
      end

      def result
        @answers
      end

      private

      def ask_all(number)
        client = ::Redis.new(path: @path)
        key = "key#{number}"
        scaled(TURNS).times do |i|
          value = i.to_s.ljust(100, "*")
          @answers += 1 if client.set(key, value) == "OK"
          @answers += 1 if client.get(key) == value
        end
        client.close
      end
    end
  end
end
