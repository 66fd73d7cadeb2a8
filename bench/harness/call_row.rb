# frozen_string_literal: true
# JRuby 9.3 runs this, too: the syntax is that of Ruby 2.6.

require "socket"

module Bench
  # One call, or a pair of them, over and over: what it costs by itself. Which call that is depends on the
  # peer: a CallPeer has the expression, and a row the objects that are its local variables.
  #
  # A subclass defines #subjects and #expected?, and has a bench/c/ROW.c that makes the same system calls.
  class CallRow < Row
    group "Single calls"

    COUNT = 1_000_000

    def operations
      (scaled(COUNT) + at_once - 1) / at_once * at_once
    end

    # Compiles the loop, and runs a tenth of it: what is learnt, cached or compiled at first need is not
    # what is measured.
    def prepare
      locals = subjects
      body = "proc { |count, #{locals.keys.join(", ")}| i = 0; " \
             "while i < count; #{"answer = (#{@peer.expression(name)}); " * at_once}i += #{at_once}; end; answer }"
      code = eval(body) # rubocop:disable Security/Eval -- a block would add a call to what is measured
      @loop = proc { |count| code.call(count, *locals.values) }
      @loop.call([operations / 10, 1].max)
    end

    def call
      @answer = @loop.call(operations)
    end

    # Each answer is like the last.
    def result
      expected?(@answer) ? operations : 0
    end

    private

    # So many calls in one turn of the loop, whose own cost is not what is measured. In C, CALLS_AT_ONCE.
    def at_once
      10
    end

    def name
      self.class.name[/\w+\z/].gsub(/(?<=[a-z])(?=[A-Z])/, "_").downcase
    end

    # Hash of the name (Symbol) of a local variable to its object.
    def subjects
      raise NotImplementedError, "#{self.class}#subjects"
    end

    # Whether that is what a call has to answer.
    def expected?(_answer)
      raise NotImplementedError, "#{self.class}#expected?"
    end
  end

  # A message of 11 bytes, written to one end of a pair and read from the other.
  class MessageRow < CallRow
    private

    def pair
      @peer.unix_pair
    end

    def subjects
      a, b = pair
      { a: a, b: b, message: "hello world", buffer: +"" }
    end

    def expected?(answer)
      answer == "hello world"
    end
  end

  # A read that finds nothing.
  class WouldBlockRow < CallRow
    private

    def pair
      @peer.unix_pair
    end

    def subjects
      @pair = pair # the other end stays open
      { a: @pair[0], buffer: +"" }
    end

    def expected?(answer)
      answer == :wait_readable
    end
  end

  # A peer of such rows. A subclass states the expression for each row that it has a call for.
  class CallPeer < Peer
    kind :calls

    class << self
      # Hash of row name (Symbol) to Ruby code (String). Sets it when given.
      def calls(expressions = @calls || {})
        @calls = expressions
      end

      def rows
        calls.keys.map(&:to_s)
      end
    end

    # The code (String) for a row.
    def expression(row)
      self.class.calls.fetch(row.to_sym)
    end

    # Two connected UNIX sockets; type is :STREAM or :SEQPACKET.
    def unix_pair(type = :STREAM)
      UNIXSocket.pair(type)
    end

    # A reader and a writer.
    def pipe
      IO.pipe
    end
  end
end
