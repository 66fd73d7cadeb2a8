# frozen_string_literal: true

require "json"
require "optparse"
require "rbconfig"
require_relative "page"
require_relative "progress"
require_relative "runner"
require_relative "summary_chart"
require_relative "table"

module Bench
  # The command line of bench/run.
  class CLI
    # Runs and returns the exit status (Integer): 0, 1 if a measurement failed, 2 for wrong usage,
    # 130 if interrupted.
    def self.start(arguments)
      new.start(arguments)
    rescue OptionParser::ParseError, ArgumentError => e
      warn "bench: #{e.message}"
      2
    rescue Interrupt
      130
    end

    def initialize
      @options = { rounds: 5, scale: 1.0, limit: 300, strace: true, try_all: false, yjit: false, files: {} }
    end

    def start(arguments)
      arguments = parser.parse(arguments)
      return 0 if @done

      # The files are opened before the first minute is spent.
      @options[:files].each_value { |path| File.open(path, "a") {} }
      @progress = Progress.new($stderr)
      report = runner(rows: @options[:rows] || names(arguments)).run
      @progress.clear
      puts Table.new(report)
      @options[:files].each { |format, path| File.write(path, written(report, format)) }
      status(report)
    rescue SystemCallError => e
      warn "bench: #{e.message}"
      2
    ensure
      @progress&.clear
    end

    private

    def written(report, format)
      case format
      when :json then "#{JSON.pretty_generate(report)}\n"
      when :html then Page.new(report).to_s
      when :svg then SummaryChart.new(report).standalone
      end
    end

    def names(arguments)
      arguments.empty? ? Bench.row_names : arguments
    end

    def runner(rows:)
      rows.each { |name| Bench.row(name) }
      peers = @options[:peers] || Bench.peer_names
      peers.each { |name| Bench.peer(name) }
      Runner.new(rows: rows, peers: peers, **@options.slice(:rounds, :scale, :limit, :strace, :try_all, :yjit)) do |line, done|
        @progress.show(line, done)
      end
    end

    def status(report)
      results = report[:rows].flat_map { |_, row| row[:peers].values }
      results.empty? || results.any? { |result| result[:failures].any? } ? 1 : 0
    end

    def parser
      OptionParser.new do |o|
        o.banner = "usage: #{ENV.delete("BENCH_PROGRAM") || "bench/run"} [options] [ROW...]"
        o.separator "Rows:  #{Bench.row_names.join(", ")}"
        o.separator "Peers: #{Bench.peer_names.join(", ")}"
        o.on("--rows LIST", Array, "rows to run (default: all)") { |v| @options[:rows] = v }
        o.on("--peers LIST", Array, "peers to run (default: all)") { |v| @options[:peers] = v.map { |n| n.tr("-", "_") } }
        o.on("--rounds N", Integer, "runs of each pair (default: 5)") { |v| @options[:rounds] = positive(v) }
        o.on("--scale X", Float, "fraction of the iterations (default: 1)") { |v| @options[:scale] = positive(v) }
        o.on("--timeout SECONDS", Float, "for one process (default: 300)") { |v| @options[:limit] = positive(v) }
        o.on("--[no-]strace", "count system calls (default: if installed)") { |v| @options[:strace] = v }
        o.on("--try-all", "also what a peer is known not to do") { @options[:try_all] = true }
        o.on("--yjit", "with YJIT, which this Ruby has to have") { @options[:yjit] = with_yjit }
        o.on("--json FILE", "write every sample there") { |v| @options[:files][:json] = v }
        o.on("--html FILE", "write a report with charts there") { |v| @options[:files][:html] = v }
        o.on("--svg FILE", "write one chart of all rows there") { |v| @options[:files][:svg] = v }
        o.on("-h", "--help", "print this") { finish(o.to_s) }
      end
    end

    # Without it Ruby would only warn, and run on.
    def with_yjit
      able = system(RbConfig.ruby, "--yjit", "-e", "exit RubyVM::YJIT.enabled?", out: File::NULL, err: File::NULL)
      raise OptionParser::InvalidArgument, "(this Ruby has no YJIT)" unless able

      true
    end

    def positive(value)
      raise OptionParser::InvalidArgument, "#{value} (must be above 0)" unless value.positive?

      value
    end

    def finish(text)
      puts text
      @done = true
    end
  end
end
