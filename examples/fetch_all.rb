# frozen_string_literal: true

# Fetches every URL of the command line with Net::HTTP, counts, and says how long it took.
#
#   ruby examples/fetch_all.rb URL...             one after the other
#   exe/eagain run examples/fetch_all.rb URL...   all at once
#
# Nothing in here knows Eagain: Fiber.schedule is Ruby's own way to start one more thing.

require "net/http"
require "openssl"

def start(&block)
  Fiber.scheduler ? Fiber.schedule(&block) : block.call
end

# The response, or the exception.
def fetch(url)
  Net::HTTP.get_response(URI(url))
rescue SystemCallError, SocketError, IOError, Timeout::Error, OpenSSL::SSL::SSLError, URI::InvalidURIError => e
  e
end

def progress(done, total)
  if $stderr.tty?
    filled = done * 40 / total
    $stderr.print "\r[#{"#" * filled}#{"." * (40 - filled)}] #{done} of #{total}#{"\n" if done == total}"
  elsif done * 4 / total > (done - 1) * 4 / total
    warn "#{done} of #{total}"
  end
end

abort "usage: fetch_all.rb URL..." if ARGV.empty?

began = Process.clock_gettime(Process::CLOCK_MONOTONIC)
answers = Queue.new
running = peak = done = 0
ARGV.each do |url|
  start do
    peak = [peak, running += 1].max
    answers << fetch(url)
    running -= 1
    progress(done += 1, ARGV.size)
  end
end

good, bad = Array.new(ARGV.size) { answers.pop }.partition { |answer| answer.is_a?(Net::HTTPSuccess) }

puts "requests   #{ARGV.size}"
puts "errors     #{bad.size}"
puts "bytes      #{good.sum { |response| response.body.bytesize }}"
puts format("seconds    %.3f", Process.clock_gettime(Process::CLOCK_MONOTONIC) - began)
puts "at once    #{peak}"
bad.map(&:inspect).tally.each { |reason, times| warn "#{times} x #{reason}" }
exit bad.empty?
