# frozen_string_literal: true

require "rbconfig"
require_relative "eagain/version"

# Non-blocking I/O where "not ready yet" costs nothing.
#
#   Eagain.run { ... }       unchanged blocking Ruby inside, concurrent
#   Eagain.spawn { ... }     a task; see Eagain::Task
#   Eagain::Scheduler        for Fiber.set_scheduler
#   Eagain.tryread ...       one attempt, without an exception
#   Eagain.read ...          the same, and a wait if need be
module Eagain
  # Where <eagain/ruby.h> is (String), for the extconf.rb of a C extension:
  #
  #   $INCFLAGS << " -I#{Eagain.include_dir.shellescape}"
  def self.include_dir
    File.expand_path("../include", __dir__)
  end
end

# A checkout keeps one extension per Ruby, so that several can share it; a gem has one.
extension = "eagain/#{RbConfig::CONFIG["ruby_version"]}/eagain"
in_checkout = File.exist?("#{__dir__}/#{extension}.#{RbConfig::CONFIG["DLEXT"]}")
begin
  require in_checkout ? extension : "eagain/eagain"
rescue LoadError => error
  raise if error.path != "eagain/eagain"

  raise LoadError, "the C extension is not built for Ruby #{RbConfig::CONFIG["ruby_version"]}: run `make` in the checkout, " \
                   "or install the gem with this Ruby", cause: nil
end

require_relative "eagain/blocking"
require_relative "eagain/run"
require_relative "eagain/task"
require_relative "eagain/timeout"
