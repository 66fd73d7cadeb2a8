# frozen_string_literal: true

module Bench
  # A bar on a terminal's last line: what is done, how long the rest may take, and what is being done. Nothing where
  # the output is no terminal.
  class Progress
    WIDTH = 24

    def initialize(output)
      @output = output
      @start = now
    end

    # +line+:: what is being done
    # +done+:: how much of all is done (Float, 0 to 1)
    def show(line, done)
      return unless @output.tty?

      full = (WIDTH * done).round
      text = "[#{"#" * full}#{" " * (WIDTH - full)}] #{format("%3d", done * 100)} %#{left(done)}  #{line}"
      @output.print "\r\e[K#{text[0, columns - 1]}"
    end

    def clear
      @output.print "\r\e[K" if @output.tty?
    end

    private

    # By what it took until now; rows differ.
    def left(done)
      return "" if done < 0.02

      seconds = (now - @start) / done * (1 - done)
      seconds < 90 ? ", #{seconds.ceil} s" : ", #{(seconds / 60).ceil} min"
    end

    def columns
      require "io/console"
      size = @output.winsize.last
      size.positive? ? size : 80
    rescue LoadError, SystemCallError
      80
    end

    def now
      Process.clock_gettime(Process::CLOCK_MONOTONIC)
    end
  end
end
