# frozen_string_literal: true

module Bench
  module Rows
    # The same server with a client that is a program of its own: wrk, which also says how long requests took.
    # What it takes of a processor is not in this row's CPU time.
    class HttpWrk < HttpRow
      CONNECTIONS = 64
      REQUESTS = 100_000

      title "HTTP server, 100,000 keep-alive requests by wrk over 64 connections, hello world"
      untraced "other programs do a part of the work"
      unit "request"

      def operations
        scaled(REQUESTS)
      end

      def missing
        "wrk is not installed (package wrk)" unless wrk
      end

      # Ends with the last of the requests: what wrk does then is not measured.
      def call
        @served = 0
        port = listen(CONNECTIONS)
        @output, output = IO.pipe
        @wrk = Process.spawn(wrk, "-t1", "-c#{CONNECTIONS}", "-d600s", "--timeout", "60s", "--latency",
                             "http://127.0.0.1:#{port}/", out: output, err: output, pgroup: true)
        output.close
        wait
      end

      # What both sides say: served, and received as it should be. The last answer of a connection may be on
      # its way when it is closed.
      def result
        return 0 if report.include?("Non-2xx")

        received = Integer(report[/(\d+) requests in/, 1] || 0)
        # What the connections had under way at the end may be more than what is asked for.
        received >= operations - CONNECTIONS ? [@served, operations].min : received
      end

      def latency
        found = report.scan(/^\s*(50|90|99)%\s+([\d.]+)(us|ms|s)$/)
        times = found.to_h { |percent, time, unit| [:"p#{percent}", Float(time) * { "us" => 1e-6, "ms" => 1e-3, "s" => 1 }[unit]] }
        times unless times.empty?
      end

      private

      def wrk
        ENV.fetch("PATH", "").split(":").map { |folder| File.join(folder, "wrk") }.find { |file| File.executable?(file) }
      end

      def serve(connection)
        while @served < operations && request?(connection)
          connection.write(response)
          @served += 1
        end
      ensure
        connection.close
      end

      # String: what wrk prints when it is interrupted.
      def report
        @report ||= begin
          Process.kill(:INT, @wrk)
          text = @output.read
          Process.wait(@wrk)
          text
        end
      end
    end
  end
end
