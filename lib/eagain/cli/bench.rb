# frozen_string_literal: true

require "rbconfig"

module Eagain
  module CLI
    # eagain bench: the benchmarks of a checkout. They have options of their own.
    class Bench
      PROGRAM = File.expand_path("../../../bench/run", __dir__)
      private_constant :PROGRAM

      def self.start(arguments)
        CLI.finish("eagain #{VERSION}\n") if arguments == ["--version"]
        exec({ "BENCH_PROGRAM" => "eagain bench" }, PROGRAM, *arguments) if File.executable?(PROGRAM)

        options = CLI.parser("bench [NAME...]") do |it|
          it.separator "Runs the benchmarks of a source checkout; this is an installed gem without them."
          it.separator ""
        end
        # The other options are those of bench/run, which is not there to refuse them.
        options.parse(arguments & %w[-h --help])
        raise Error, "bench needs a checkout of the sources: the gem does not contain bench/"
      end
    end
  end
end
