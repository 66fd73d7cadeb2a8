# frozen_string_literal: true

# Runs shell commands, at most so many at a time, and prints each one's output when it ends.
#
#   ruby -Ilib examples/parallel_commands.rb [-j N] COMMAND...
#
# The exit status is 1 if one of them failed.

require "eagain"
require "etc"
require "open3"
require "optparse"

jobs = Etc.nprocessors
OptionParser.new { |o| o.on("-j", "--jobs N", Integer) { |n| jobs = [n, 1].max } }.parse!
abort "usage: parallel_commands.rb [-j N] COMMAND..." if ARGV.empty?

failed = Eagain.run do
  turns = SizedQueue.new(jobs)
  tasks = ARGV.map do |command|
    turns << command # waits while as many are running
    Eagain.spawn do
      output, status = Open3.capture2e("sh", "-c", command)
      print "== #{command} (#{status.to_s.sub(/\Apid \d+ /, "")})\n", output
      status
    ensure
      turns.pop
    end
  end
  tasks.map(&:value).count { |status| !status.success? }
end

exit failed.zero?
