# frozen_string_literal: true

# One measurement, in this process and nothing else of it: child.rb PEER ROW SCALE [SIZE], or child.rb
# PEER --probe, which only asks whether the peer can run. Prints one JSON object on the stdout it
# was given; whatever else a peer or a row prints goes to stderr.

require "json"
require_relative "registry"

module Bench
  # What happens inside of a measured process.
  class Child
    # A peer that did not do all of the work.
    class Lost < StandardError; end

    def initialize(peer_name)
      @class = Bench.peer(peer_name)
    end

    # Hash: +unavailable+ (String or nil), +versions+.
    def probe
      return { unavailable: "needs Ruby #{@class.ruby}", versions: {}, jit: jit } unless @class.ruby?

      activate_gems
      reason = @class.unavailable
      { unavailable: reason, versions: reason ? {} : @class.versions, jit: jit }
    rescue LoadError => e
      missing = @class.gems.keys.join(", ")
      hint = missing.empty? ? e.message : "#{missing} not installed: make bench-peers"
      { unavailable: hint, versions: {}, jit: jit }
    end

    # Hash: +wall+, +user+ and +system+ in seconds, +rss+ in bytes at the peak (nil where the
    # system does not tell), +gc+ (collections), +operations+; +latency+ and +bytes_each+ of the rows that
    # have them, as Row says.
    # +size+:: of a GrowthRow
    def measure(row_name, scale, size = nil)
      activate_gems(Bench.row(row_name).gems)
      row, peer = prepare(row_name, *[scale, size].compact)
      GC.start
      sample = timed { peer.call(row) }
      peer.teardown
      done = peer.result(row)
      raise Lost, "#{done} of #{row.operations} operations arrived" if done != row.operations

      sample.merge(rss: peak_rss, operations: row.operations,
                   latency: row.latency, bytes_each: row.bytes_each).compact
    end

    private

    def prepare(row_name, *arguments)
      # What the peer requires counts as start-up, and is not measured.
      reason = @class.unavailable
      raise reason if reason

      peer = @class.new
      peer.setup
      row = Bench.row(row_name).new(peer, *arguments)
      row.prepare
      [row, peer]
    end

    def timed
      collections = GC.count
      cpu = Process.times
      start = Process.clock_gettime(Process::CLOCK_MONOTONIC)
      yield
      wall = Process.clock_gettime(Process::CLOCK_MONOTONIC) - start
      now = Process.times
      { wall: wall, user: now.utime - cpu.utime, system: now.stime - cpu.stime, gc: GC.count - collections }
    end

    # The folder of the peers first, then the gems of this machine.
    def activate_gems(more = {})
      gems = @class.gems.merge(more)
      return if gems.empty?

      Gem.paths = { "GEM_HOME" => Bench.peers_dir, "GEM_PATH" => [Bench.peers_dir, *Gem.path].uniq.join(":") }
      gems.each { |name, requirement| gem name, *requirement }
    end

    def peak_rss
      status = File.read("/proc/self/status")
      kib = status[/^VmHWM:\s+(\d+) kB/, 1]
      kib && Integer(kib) * 1024
    rescue Errno::ENOENT
      nil
    end

    def jit
      return "yjit" if defined?(RubyVM::YJIT.enabled?) && RubyVM::YJIT.enabled?
      return "zjit" if defined?(RubyVM::ZJIT.enabled?) && RubyVM::ZJIT.enabled?
      return "rjit" if defined?(RubyVM::RJIT.enabled?) && RubyVM::RJIT.enabled?
      return "mjit" if defined?(RubyVM::MJIT.enabled?) && RubyVM::MJIT.enabled?

      "off"
    end
  end
end

answers = $stdout.dup
$stdout.reopen($stderr)
begin
  child = Bench::Child.new(ARGV.fetch(0))
  answer = ARGV[1] == "--probe" ? child.probe : child.measure(ARGV.fetch(1), Float(ARGV.fetch(2)), ARGV[3]&.to_i)
  answers.puts JSON.generate(answer)
rescue StandardError, ScriptError => e
  abort "#{e.class}: #{e.message}"
end
