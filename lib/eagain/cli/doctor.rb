# frozen_string_literal: true

require "json"
require "eagain/doctor"

module Eagain
  module CLI
    # eagain doctor [--json]
    class DoctorCommand
      def self.start(arguments)
        new.start(arguments)
      end

      def initialize
        @json = false
      end

      def start(arguments)
        options = CLI.parser("doctor [--json]") do |it|
          it.separator "Shows what works on this machine: it tries every backend and every kind of blocking"
          it.separator "call. Status: 0 if the default backend works, 1 if not."
          it.separator ""
          it.on("--json", "print one JSON object instead of text") { @json = true }
        end
        extra = options.parse(arguments)
        raise Error, "unexpected argument: #{extra.first}" unless extra.empty?

        CLI.check_environment
        doctor = Doctor.new
        $stdout.puts(@json ? JSON.pretty_generate(doctor.report) : text(doctor.report))
        $stdout.flush
        status = doctor.healthy? ? 0 : 1
        doctor.stuck? ? exit!(status) : exit(status)
      end

      private

      def text(report)
        [head(report), backends(report), calls(report), hooks(report), limits(report)].join("\n")
      end

      def head(report)
        eagain, kernel, ruby = report.values_at(:eagain, :kernel, :ruby)
        storage = ", no fiber storage (Ruby 3.2)" unless ruby[:fiber_storage]
        <<~TEXT
          eagain   #{eagain[:version]}, scheduler interface #{eagain[:interface]}, backend #{eagain[:backend] || "none"}
          ruby     #{ruby[:engine]} #{ruby[:version]} [#{ruby[:platform]}]#{storage}
          kernel   #{kernel.values_at(:name, :release, :machine).join(" ")}
        TEXT
      end

      def backends(report)
        lines = report[:backends].map do |backend|
          "  #{backend[:works] ? "works" : "FAILS"}  #{[backend[:name], backend[:why_not]].compact.join(": ")}\n"
        end
        "Backends\n#{lines.join}"
      end

      def calls(report)
        width = report[:calls].map { |call| call[:name].size }.max
        lines = report[:calls].map do |call|
          "#{"  #{mark(call)}  #{call[:name].ljust(width)}  #{remark(call)}".rstrip}\n"
        end
        "Blocking calls of Ruby: do other tasks run meanwhile?\n#{lines.join}"
      end

      def mark(call)
        { true => "yes", false => "NO ", nil => " ? " }.fetch(call[:nonblocking])
      end

      def remark(call)
        return "(#{call[:hooks].join(", ")})" if call[:nonblocking] && call[:hooks].any?

        call.values_at(:why_not, :advice).compact.join("; ")
      end

      def hooks(report)
        missing = report[:hooks].reject { |hook| hook[:defined] }.map { |hook| hook[:name] }
        return "" if missing.empty?

        "Hooks that are not there under this Ruby\n  #{missing.join(", ")}\n"
      end

      def limits(report)
        limits = report[:limits]
        maps = limits[:memory_maps]
        <<~TEXT
          Limits
            descriptors  #{limits[:descriptors]} (can be raised to #{limits[:descriptors_hard]}; ulimit -n)
            memory maps  #{maps ? "#{maps}, enough for about #{maps / 2} tasks (sysctl vm.max_map_count)" : "unknown"}
        TEXT
      end
    end
  end
end
