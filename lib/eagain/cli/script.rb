# frozen_string_literal: true

require "rbconfig"

module Eagain
  module CLI
    # A main program, to be run as +ruby+ would run it.
    #
    # It is compiled with RubyVM::InstructionSequence.compile_file, which names it as the user
    # did (load would expand the path, and look in $LOAD_PATH first), labels its frames
    # "<main>", and runs with self +main+, private top-level methods, and local variables of its own.
    # It is handed to Ruby's loader (through InstructionSequence.load_iseq, for this one
    # call) by a proc written in C, the whole body of its fiber, so that no frame of ours is
    # below the script's.
    #
    # What differs from +ruby+: TOPLEVEL_BINDING does not see the script's local variables, and
    # options on the #! line are not read.
    class Script
      HOOKS = %w[
        io_wait io_read io_write io_pread io_pwrite io_select io_close kernel_sleep block
        timeout_after address_resolve process_wait blocking_operation_wait yield
      ].freeze

      # The frame of the hook in which a fiber waited: plain Ruby has none there.
      HOOK_FRAME = /:in [`'](?:Eagain::Scheduler#)?(?:#{HOOKS.join("|")})'\z/
      private_constant :HOOKS, :HOOK_FRAME

      # Compiles the script at +path+ ("-": standard input). Raises Error if there is none. A
      # script with a syntax error is left to +ruby+, which tells the user in its own way;
      # then this does not return.
      def self.open(path)
        path == "-" ? StandardInput.new : new(path)
      end

      # A Proc that runs the script.
      attr_reader :body

      def initialize(path)
        @path = path
        check
        @program = compile
        @body = Eagain.loader(__FILE__)
      end

      # Sets what a main program finds set.
      def define_globals
        $0 = @path
        data = self.data
        Object.const_set(:DATA, data) if data
        load_instead(@program)
      end

      # Takes the frames that +ruby+ would not have off an exception and its causes. Its
      # backtrace_locations stay, for error_highlight.
      def clean(exception)
        seen = {}.compare_by_identity
        while exception && !seen[exception]
          seen[exception] = true
          clean_one(exception)
          exception = exception.cause
        end
      end

      private

      # Makes the next load (that of #body) run +program+ instead of its file.
      def load_instead(program)
        hooks = RubyVM::InstructionSequence.singleton_class
        outer = hooks.instance_method(:load_iseq) if hooks.method_defined?(:load_iseq)
        hooks.define_method(:load_iseq) do |_path|
          outer ? hooks.define_method(:load_iseq, outer) : hooks.remove_method(:load_iseq)
          program
        end
      end

      def clean_one(exception)
        trace = exception.backtrace
        cleaned = trace && clean_trace(trace)
        exception.define_singleton_method(:backtrace) { cleaned } if cleaned != trace && !exception.frozen?
      end

      def check
        stat = File.stat(@path)
        raise Error, "is a directory: #{@path}" if stat.directory?
        raise Error, "permission denied: #{@path}" unless stat.readable?
      rescue Errno::ENOENT, Errno::ENOTDIR
        raise Error, "no such file: #{@path}"
      rescue SystemCallError => error
        raise Error, error.message
      end

      def compile
        RubyVM::InstructionSequence.compile_file(@path)
      rescue SyntaxError
        exec(RbConfig.ruby, *verbosity, @path)
      end

      def verbosity
        case $VERBOSE
        when nil then ["-W0"]
        when true then ["-w"]
        else []
        end
      end

      # The File behind __END__, in the encoding of the source, or nil.
      def data
        source = File.binread(@path).force_encoding(Encoding::UTF_8)
        offset = end_offset(source) or return

        file = File.new(@path)
        file.set_encoding(Ripper.new(source).tap(&:parse).encoding)
        file.seek(offset)
        file
      end

      # The offset in bytes of what follows the line __END__. Ripper is asked only if there
      # may be one: such a line in a here-document is none.
      def end_offset(source)
        return unless source.b.match?(/^__END__\r?$/)

        require "ripper"
        line = Ripper.lex(source).reverse_each.find { |token| token[1] == :on___end__ }&.dig(0, 0)
        line && source.each_line.first(line).sum(&:bytesize)
      end

      def clean_trace(trace)
        trace = trace.drop(1) if trace.size > 1 && trace.first.match?(HOOK_FRAME)
        trace
      end
    end

    # A main program that comes in on standard input, up to a line __END__.
    class StandardInput < Script
      def initialize
        super("-")
      end

      private

      def check; end

      def compile
        @source = +""
        until @iseq
          finished = read_part
          begin
            @iseq = RubyVM::InstructionSequence.compile(@source, "-", "-")
          rescue SyntaxError
            # The line was perhaps a part of a here-document.
            refuse if finished
            @source << @separator
          end
        end
        @iseq
      end

      # Reads up to a line __END__, which is kept apart. Returns true at the end of the input.
      def read_part
        @separator = nil
        while (line = $stdin.gets)
          return !(@separator = line) if line.match?(/\A__END__\r?\n?\z/)

          @source << line
        end
        true
      end

      def refuse
        IO.popen([RbConfig.ruby, *verbosity, "-"], "w") { |ruby| ruby.write(@source) }
        exit $?.exitstatus
      end

      def data
        $stdin if @separator
      end

      def clean_trace(trace)
        super.map { |line| line.sub("<compiled>", "<main>") }
      end
    end
  end
end
