# frozen_string_literal: true

require "rbconfig"
require_relative "eagain/version"

# Non-blocking I/O where "not ready yet" costs nothing.
#
#   Eagain.run { ... }       unchanged blocking Ruby inside, concurrent
#   Eagain.spawn { ... }     a task; see Eagain::Task
#   Eagain::Scheduler        for Fiber.set_scheduler
module Eagain
end

# A checkout keeps one extension per Ruby, so that several can share it; a gem has one.
extension = "eagain/#{RbConfig::CONFIG["ruby_version"]}/eagain"
in_checkout = File.exist?("#{__dir__}/#{extension}.#{RbConfig::CONFIG["DLEXT"]}")
require in_checkout ? extension : "eagain/eagain"

require_relative "eagain/run"
require_relative "eagain/task"
require_relative "eagain/timeout"
