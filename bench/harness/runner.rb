# frozen_string_literal: true

require "time"
require_relative "machine"
require_relative "process"
require_relative "registry"

module Bench
  # Measures rows by peers. In each round every peer runs once, each time starting with another
  # one, so that a slow spell of the machine falls on all of them.
  class Runner
    # The scales of the two runs under strace; the second pair for rows of few operations, which are the same
    # at both of the first. System calls per operation are the difference of their counts over the difference
    # of their operations: what start-up costs cancels out.
    STRACE_SCALES = [[0.03, 0.01], [0.3, 0.1]].freeze

    # +rows+, +peers+:: Arrays of names
    # +rounds+:: Integer
    # +scale+:: Float, the fraction of the full iterations
    # +limit+:: seconds for one process
    # +strace+:: false leaves the runs under strace out
    # +try_all+:: true measures also what a peer is known not to do
    # The block is called with a line of progress before each process.
    def initialize(rows:, peers:, rounds:, scale:, limit:, strace: true, try_all: false, &progress)
      @rows = rows
      @peers = peers
      @rounds = rounds
      @scale = scale
      @limit = limit
      @strace = strace
      @try_all = try_all
      @progress = progress
    end

    # Hash, ready for JSON; see docs/how-to/benchmark.md for its fields.
    def run
      machine = Machine.describe
      report = {
        format: "eagain-bench/1", date: Time.now.utc.iso8601, revision: Machine.revision,
        machine: machine, ruby: Machine.ruby,
        options: { rows: @rows, peers: @peers, rounds: @rounds, scale: @scale },
        peers: probe_all
      }
      report[:missing] = @rows.to_h { |name| [name, Bench.row(name).new(nil, @scale).missing] }.compact
      rows = @rows - report[:missing].keys
      report[:rows] = rows.to_h { |name| [name, measure_row(name, runnable(report[:peers], name))] }
      report
    end

    private

    def runnable(peers, row)
      peers.reject { |_, peer| peer[:unavailable] }.keys.select { |name| Bench.peer(name).rows.include?(row) }
    end

    def probe_all
      @peers.to_h do |name|
        tell "asking #{name}"
        peer = Bench.peer(name)
        [name, { title: peer.title, ours: peer.ours?, floor: peer.floor?, env: peer.env }.merge(probe(name))]
      end
    end

    def probe(name)
      child(name).probe
    rescue ChildProcess::Failed => e
      { unavailable: e.message, versions: {}, jit: nil }
    end

    def measure_row(name, peers)
      row = Bench.row(name)
      left_out, peers = leave_out(name, peers)
      results = peers.to_h { |peer| [peer, { samples: [], failures: [] }] }
      @rounds.times do |round|
        peers.rotate(round).each { |peer| take_sample(name, peer, round, results[peer]) }
      end
      peers.each { |peer| results[peer].merge!(summarise(results[peer][:samples]), count_calls(name, peer)) }
      compare(results)
      { title: row.title, group: row.group, unit: row.unit, headline: row.headline,
        operations: row.new(nil, @scale).operations, left_out: left_out, peers: results }
    end

    # Hash of the peers that cannot do the row to the reason, and Array of the others.
    def leave_out(row, peers)
      return [{}, peers] if @try_all

      reasons = peers.to_h { |peer| [peer, Bench.peer(peer).cannot[row.to_sym]] }.compact
      [reasons, peers - reasons.keys]
    end

    def take_sample(row, peer, round, result)
      return if result[:hangs]

      tell "#{row}: round #{round + 1} of #{@rounds}, #{peer}"
      result[:samples] << { round: round + 1 }.merge(child(peer).measure(row, @scale))
    rescue ChildProcess::Failed => e
      result[:hangs] = e.is_a?(ChildProcess::NoAnswer)
      result[:failures] << "round #{round + 1}: #{e.message}"
    end

    def summarise(samples)
      return {} if samples.empty?

      {
        wall: spread(samples.map { |s| s[:wall] }),
        cpu: spread(samples.map { |s| s[:user] + s[:system] }),
        rss: spread(samples.filter_map { |s| s[:rss] }),
        latency: latencies(samples.filter_map { |s| s[:latency] }),
        bytes_each: spread(samples.filter_map { |s| s[:bytes_each] })
      }
    end

    # Each percentile is one of a process; the spread is that of the processes.
    def latencies(samples)
      return if samples.empty?

      samples.flat_map(&:keys).uniq.to_h { |percentile| [percentile, spread(samples.filter_map { |s| s[percentile] })] }
    end

    # Hash: median, min, max of an Array of Numeric; nil of none.
    def spread(values)
      return if values.empty?

      sorted = values.sort
      middle = sorted.size / 2
      median = sorted.size.odd? ? sorted[middle] : (sorted[middle - 1] + sorted[middle]) / 2.0
      { median: median, min: sorted.first, max: sorted.last }
    end

    def count_calls(row, peer)
      return { calls: nil, calls_note: "--no-strace" } unless @strace
      return { calls: nil, calls_note: Bench.row(row).untraced } if Bench.row(row).untraced
      return { calls: nil, calls_note: "strace not installed" } unless ChildProcess.strace?

      tell "#{row}: under strace, #{peer}"
      { calls: calls_per_operation(row, peer), calls_note: nil }
    rescue ChildProcess::Failed => e
      { calls: nil, calls_note: "strace: #{e.message}" }
    end

    # Hash: +total+ and +by_name+, in calls per operation.
    def calls_per_operation(row, peer)
      (more, many), (less, few) = strace_scales(row).map { |scale| child(peer).system_calls(row, scale) }
      operations = more[:operations] - less[:operations]
      raise ChildProcess::Failed, "the scale is too small for a difference" unless operations.positive?

      per_name = (many.keys | few.keys).to_h { |name| [name, (many.fetch(name, 0) - few.fetch(name, 0)).fdiv(operations)] }
      shown = per_name.select { |_, calls| calls.abs >= 0.001 }.sort_by { |_, calls| -calls }
      { total: per_name.values.sum.round(3), by_name: shown.to_h.transform_values { |calls| calls.round(3) } }
    end

    # A run that is smaller than the one under strace would be makes that one smaller too.
    def strace_scales(row)
      pairs = STRACE_SCALES.map { |pair| pair.map { |scale| scale * [@scale / pair.max, 1].min } }
      pairs.find { |pair| pair.map { |scale| Bench.row(row).new(nil, scale).operations }.uniq.size == 2 } || pairs.first
    end

    # Each peer's median times over the least of the peers that are neither ours nor a floor, and over the
    # floor's; wall and CPU each on its own.
    def compare(results)
      floors, others = results.partition { |name, _| Bench.peer(name).floor? }
      others = others.reject { |name, _| Bench.peer(name).ours? }
      best = least(others)
      floor = least(floors)
      results.each_value do |result|
        result[:ratio] = best.to_h { |time, seconds| [time, over(result.dig(time, :median), seconds)] }
        result[:floor_ratio] = floor.to_h { |time, seconds| [time, over(result.dig(time, :median), seconds)] }
      end
    end

    def least(results)
      %i[wall cpu].to_h { |time| [time, results.filter_map { |_, result| result.dig(time, :median) }.min] }
    end

    def over(median, seconds)
      median / seconds if median && seconds&.positive?
    end

    def child(peer)
      ChildProcess.new(peer, limit: @limit)
    end

    def tell(text)
      @progress&.call(text)
    end
  end
end
