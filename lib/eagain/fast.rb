# frozen_string_literal: true

require_relative "../eagain"
require_relative "kept"

# <tt>require "eagain/fast"</tt> makes blocking reads and writes in tasks faster: see Fast.
module Eagain
  # <tt>require "eagain/fast"</tt>, or <tt>ruby -reagain/fast script.rb</tt>, replaces IO#readpartial,
  # IO#read, IO#gets, IO#readline, IO#sysread, IO#write and IO#syswrite (and with them <tt><<</tt>, +print+,
  # +puts+, +p+ and +printf+, which call +write+) by ones that do the same by a shorter way in the tasks of an Eagain::Scheduler:
  # Ruby's own allocate an IO::Buffer for each call, take a lock, and ask the scheduler's hooks.
  #
  # Arguments, results, exceptions and messages are those of the Ruby that runs this. Whatever is not as it
  # nearly always is goes to Ruby's own methods: other threads and schedulers, an IO that is buffered
  # (<tt>sync = false</tt>) or transcodes, a file's reads, a write for which there is no room. They remain,
  # private, as <tt>__ruby_write</tt> and so on.
  #
  # The methods are replaced where they are, so what was prepended to IO stays in front, and +super+ arrives
  # here. One that the program has defined anew in IO itself stays as it is.
  module Fast
    NAMES = %i[readpartial read gets readline sysread write syswrite].freeze
    OWN = NAMES.reject { |name| Kept.replaced?(::IO, name) }.freeze
    private_constant :NAMES, :OWN

    Kept.keep(::IO, *NAMES)
    OWN.each { |name| ::IO.define_method(name, FastMethods.instance_method(name)) }
  end
end
