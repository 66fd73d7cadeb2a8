# frozen_string_literal: true

module Bench
  module Rows
    # A database's client as programs use it: a connection for each task, and statements that are prepared once.
    # What PostgreSQL takes of a processor is not in this row's CPU time.
    class Postgresql < Row
      TASKS = 50
      QUERIES = 400
      QUERY = "SELECT n, md5(n::text) FROM generate_series($1::int, $1::int + 9) AS n"

      group "Databases"
      title "PostgreSQL (gem pg), 50 connections, 400 queries of 10 rows each"
      untraced "how often a client waits depends on the server's speed"
      unit "query"
      service "postgresql"
      gems "pg" => "1.7.0"

      def operations
        TASKS * scaled(QUERIES)
      end

      def prepare
        require "pg"
        @host = ENV.fetch("BENCH_POSTGRESQL")
      end

      def call
        @answers = 0
        TASKS.times { |number| spawn { query_all(number) } }
        wait
      end

      def result
        @answers
      end

      private

      def query_all(number)
        connection = PG.connect(host: @host, user: "bench", dbname: "postgres")
        connection.prepare("rows", QUERY)
        scaled(QUERIES).times do |i|
          first = number + i
          rows = connection.exec_prepared("rows", [first])
          @answers += 1 if rows.ntuples == 10 && rows.getvalue(0, 0) == first.to_s
        end
        connection.close
      end
    end
  end
end
