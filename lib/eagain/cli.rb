# frozen_string_literal: true

require "optparse"
require_relative "version"

module Eagain
  # The command line: finds the command, and turns what the user got wrong into one line on
  # <tt>$stderr</tt> and the status 2.
  module CLI
    # The user asked for something that cannot be; the message is one line.
    class Error < StandardError
    end

    # Name => [file, class, what it does].
    COMMANDS = {
      "run" => ["cli/run", :Run, "run a Ruby script with concurrent I/O"],
      "doctor" => ["cli/doctor", :DoctorCommand, "show what works on this machine, and why not what does not"],
      "bench" => ["cli/bench", :Bench, "measure against the alternatives (in a checkout)"]
    }.freeze

    class << self
      # Runs the command that +arguments+ (Array of String) name, and ends the process with its status.
      def start(arguments)
        dispatch(arguments)
      rescue Error, OptionParser::ParseError => error
        warn "eagain: #{error.message.lines.first.chomp}"
        exit 2
      end

      # A parser with what every command has. +usage+ is the line after "Usage: eagain ".
      def parser(usage)
        OptionParser.new do |options|
          options.banner = "Usage: eagain #{usage}"
          options.separator ""
          yield options
          options.on("-h", "--help", "show this text") { finish(options.help) }
          options.on("--version", "show the version") { finish("eagain #{VERSION}\n") }
        end
      end

      # Returns +name+, if it is a backend's. +source+ says where it was given.
      def check_backend(name, source = "")
        return name if BACKENDS.include?(name)

        raise Error, "unknown backend#{source}: #{name} (there are #{BACKENDS.join(", ")})"
      end

      # EAGAIN_BACKEND is the user's, too.
      def check_environment
        name = ENV.fetch("EAGAIN_BACKEND", "")
        check_backend(name, " in EAGAIN_BACKEND") unless name.empty?
      end

      # Prints +text+ and ends the process well.
      def finish(text)
        $stdout.write(text)
        $stdout.flush
        exit 0
      rescue Errno::EPIPE
        exit 0 # the reader (head, less) has seen enough
      end

      private

      def dispatch(arguments)
        options = parser("COMMAND [ARGS...]") do |it|
          COMMANDS.each { |name, (_, _, what)| it.separator "    #{name.ljust(10)}#{what}" }
          it.separator ""
          it.separator "Options (eagain COMMAND --help shows those of a command):"
        end
        rest = options.order(arguments)
        name = rest.shift or raise Error, "no command given (see eagain --help)"
        file, constant = COMMANDS.fetch(name) { raise Error, "unknown command: #{name} (see eagain --help)" }
        begin
          require_relative file
        rescue LoadError => error
          raise error.message.start_with?("the C extension") ? Error.new(error.message) : error
        end
        const_get(constant).start(rest)
      end
    end
  end
end
