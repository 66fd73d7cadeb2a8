# frozen_string_literal: true

require "time"
require_relative "aims"
require_relative "machine"
require_relative "process"
require_relative "registry"
require_relative "statistics"

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
    # +yjit+:: true runs every peer's Ruby with YJIT
    # The block is called before each process, with a line that says what it is, and how much of all is done (Float, 0 to 1).
    def initialize(rows:, peers:, rounds:, scale:, limit:, strace: true, try_all: false, yjit: false, &progress)
      @rows = rows
      @peers = peers
      @rounds = rounds
      @scale = scale
      @limit = limit
      @strace = strace
      @try_all = try_all
      @yjit = yjit
      @progress = progress
    end

    # Hash, ready for JSON; see docs/how-to/benchmark.md for its fields.
    def run
      machine = Machine.describe
      report = {
        format: "eagain-bench/1", date: Time.now.utc.iso8601, revision: Machine.revision,
        machine: machine, ruby: Machine.ruby,
        options: { rows: @rows, peers: @peers, rounds: @rounds, scale: @scale, yjit: @yjit },
        peers: probe_all
      }
      report[:missing] = @rows.to_h { |name| [name, Bench.row(name).new(nil, @scale).missing] }.compact
      report[:rows] = {}
      measure_all(@rows - report[:missing].keys, report)
      report
    end

    private

    def measure_all(rows, report)
      rows.each_with_index do |name, index|
        @done = index.fdiv(rows.size)
        @part = 1.fdiv(rows.size)
        report[:rows][name] = with_service(name) { measure_row(name, runnable(report[:peers], name)) }
        report[:rows][name][:aims] = Aims.of(report[:rows][name], report[:peers])
      rescue Service::Failed => e
        report[:missing][name] = e.message
      end
    end

    def with_service(row, &measure)
      name = Bench.row(row).service or return measure.call
      tell "#{row}: starting its server"
      Bench.service(name).open do |env|
        @env = env
        measure.call
      end
    ensure
      @env = {}
    end

    def runnable(peers, row)
      peers.reject { |_, peer| peer[:unavailable] }.keys.select { |name| Bench.peer(name).rows.include?(row) }
    end

    def probe_all
      @peers.to_h do |name|
        tell "asking #{name}"
        peer = Bench.peer(name)
        [name, { title: peer.title, kind: peer.kind, ours: peer.ours?, floor: peer.floor?, env: peer.env }.merge(probe(name))]
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
      turns = (0...@rounds).flat_map { |round| peers.rotate(round).map { |peer| [peer, round] } }
      turns.each_with_index do |(peer, round), index|
        take_sample(name, peer, round, results[peer], index.fdiv(steps(peers)))
      end
      summarise(name, results)
      { title: row.title, group: row.group, unit: row.unit, headline: row.headline, aim: row.aim,
        operations: row.new(nil, @scale).operations, versions: versions(row), sizes: row.sizes(@scale), ends: (row.ends(@scale) if row.sizes(@scale)),
        left_out: left_out, peers: results }.compact
    end

    # Integer: each peer's rounds, and its runs under strace.
    def steps(peers)
      peers.size * (@rounds + (@strace ? 1 : 0))
    end

    # Hash of what the row needs besides its peers.
    def versions(row)
      gems = row.gems.to_h { |name, requirement| [name, Bench.installed_gem(name, requirement)] }
      row.service ? gems.merge(Bench.service(row.service).versions) : gems
    end

    def summarise(name, results)
      sizes = Bench.row(name).sizes(@scale)
      results.each_with_index do |(peer, result), index|
        figures = sizes ? Statistics.of_sizes(result[:samples], sizes.last) : Statistics.of(result[:samples])
        result.merge!(figures, count_calls(name, peer, (results.size * @rounds + index).fdiv(steps(results))))
      end
      Statistics.compare(results)
    end

    # Hash of the peers that cannot do the row to the reason, and Array of the others.
    def leave_out(row, peers)
      return [{}, peers] if @try_all

      reasons = peers.to_h { |peer| [peer, Bench.peer(peer).cannot[row.to_sym]] }.compact
      [reasons, peers - reasons.keys]
    end

    def take_sample(row, peer, round, result, share)
      sizes = Bench.row(row).sizes(@scale) or return measure(row, peer, round, result, share)

      sizes.each do |size|
        break if result[:stops_at]&.<=(size)

        more = Bench.peer(peer).most
        if more && size > more && !@try_all
          result[:stops_at] = size
          result[:stops_because] = "it is not asked for more than #{more} tasks, of which each is a thread of the system"
        else
          measure(row, peer, round, result, share, size)
        end
      end
    end

    # One that hangs is not asked again, nor one of many for more than it can do.
    def measure(row, peer, round, result, share, size = nil)
      return if result[:hangs]

      tell "#{row}: #{"#{size} " if size}round #{round + 1} of #{@rounds}, #{peer}", share
      result[:samples] << { round: round + 1, size: size }.compact.merge(child(peer).measure(row, @scale, size))
    rescue ChildProcess::Failed => e
      if size
        result[:stops_at] = size
        result[:stops_because] = e.message
      else
        result[:hangs] = e.is_a?(ChildProcess::NoAnswer)
      end
      result[:failures] << "round #{round + 1}#{", #{size} at a time" if size}: #{e.message}"
    end

    def count_calls(row, peer, share)
      return { calls: nil, calls_note: "--no-strace" } unless @strace
      return { calls: nil, calls_note: Bench.row(row).untraced } if Bench.row(row).untraced
      return { calls: nil, calls_note: "strace not installed" } unless ChildProcess.strace?

      tell "#{row}: under strace, #{peer}", share
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

    def child(peer)
      ChildProcess.new(peer, limit: @limit, env: @env || {}, options: @yjit ? ["--yjit"] : [])
    end

    # +share+:: what is done of the row
    def tell(text, share = 0)
      @progress&.call(text, (@done || 0) + (@part || 0) * share)
    end
  end
end
