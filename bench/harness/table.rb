# frozen_string_literal: true

require_relative "aims"
require_relative "svg"

module Bench
  # The report on a terminal.
  class Table
    HEADINGS = ["", "wall s", "min-max", "of best", "of C", "cpu s", "min-max", "of best", "of C", "peak MiB", "calls"].freeze
    # Columns of the rows that have such figures: heading => how it is found in a result, and written.
    MORE = {
      "p50 ms" => proc { |result| result.dig(:latency, :p50, :median)&.then { |seconds| format("%.3f", seconds * 1e3) } },
      "p99 ms" => proc { |result| result.dig(:latency, :p99, :median)&.then { |seconds| format("%.3f", seconds * 1e3) } },
      "KiB each" => proc { |result| result.dig(:bytes_each, :median)&.then { |bytes| format("%.1f", bytes / 1024) } }
    }.freeze

    # +report+:: the Hash of Runner#run
    def initialize(report)
      @report = report
    end

    # String with one table per row of the benchmark, then what was to be reached, and what could not be measured.
    def to_s
      [heading, *@report[:rows].map { |name, row| row[:sizes] ? growth(name, row) : section(name, row) }, aims, legend, *notes]
        .compact.join("\n")
    end

    private

    def heading
      machine = @report[:machine]
      <<~TEXT
        #{@report[:ruby][:description]}
        #{machine[:kernel]}, #{machine[:processors]} x #{machine[:processor]}, load #{machine[:load]}
        #{@report[:options][:rounds]} rounds, scale #{@report[:options][:scale]}#{revision}
        JIT: #{jits}; #{versions}
      TEXT
    end

    # "yjit", or by peer where they differ.
    def jits
      by_jit = @report[:peers].select { |_, peer| peer[:jit] }.group_by { |_, peer| peer[:jit] }
      return by_jit.keys.first || "unknown" if by_jit.size < 2

      by_jit.map { |jit, peers| "#{jit} (#{peers.map(&:first).join(", ")})" }.join(", ")
    end

    def versions
      all = [@report[:peers], @report[:rows]].flat_map { |some| some.each_value.map { |it| it[:versions] || {} } }.reduce({}, :merge)
      all.map { |name, version| "#{name} #{version}" }.join(", ")
    end

    def revision
      @report[:revision] ? ", revision #{@report[:revision]}" : ""
    end

    def section(name, row)
      more = MORE.select { |_, figure| row[:peers].each_value.any?(&figure) }
      headings = HEADINGS + more.keys
      lines = [headings, *row[:peers].map { |peer, result| line(peer, result) + more.values.map { |it| it.call(result) || "-" } }]
      "#{name}: #{row[:title]}\n#{aligned(lines)}\n"
    end

    # What one costs, by how many there are.
    def growth(name, row)
      headings = ["CPU time of each, at", *row[:sizes].map { |size| Figure.count(size) }, "min-max of the last"]
      lines = row[:peers].map do |peer, result|
        costs = row[:sizes].map { |size| result.dig(:sizes, size, :cpu) }
        [peer, *costs.map { |cost| cost ? Figure.seconds(cost[:median]) : "-" },
         costs.last ? costs.last.values_at(:min, :max).map { |cost| Figure.seconds(cost) }.join(" - ") : "-"]
      end
      ends = row[:ends] ? "It ends at #{Figure.count(row[:sizes].last)}: #{row[:ends]}\n" : ""
      "#{name}: #{row[:title]}\n#{aligned([headings, *lines])}\n#{ends}"
    end

    def aims
      found = @report[:rows].flat_map { |name, row| row[:aims].to_a.map { |aim| [name, aim] } }
      return if found.empty?

      lines = found.map do |name, aim|
        [name, aim[:peer], format("%.2f", aim[:ratio]), "× #{aim[:over]}", "aim #{format("%.2f", aim[:most])}",
         aim[:met] ? "met" : "NOT MET"]
      end
      met = found.count { |_, aim| aim[:met] }
      "Aims: #{met} met, #{found.size - met} NOT MET\n#{aligned(lines, right: [2])}\n"
    end

    # String: columns, of which the first is on the left, and the others are on the right, or those given.
    def aligned(lines, right: 1...lines.first.size)
      widths = lines.first.each_index.map { |i| lines.map { |l| l[i].to_s.size }.max }
      lines.map do |fields|
        fields.each_with_index.map { |f, i| right.include?(i) ? f.to_s.rjust(widths[i]) : f.to_s.ljust(widths[i]) }.join("  ").rstrip
      end.join("\n")
    end

    def line(peer, result)
      [peer, seconds(result[:wall]), range(result[:wall]), number("%.2f", result.dig(:ratio, :wall)),
       number("%.2f", result.dig(:floor_ratio, :wall)),
       seconds(result[:cpu]), range(result[:cpu]), number("%.2f", result.dig(:ratio, :cpu)),
       number("%.2f", result.dig(:floor_ratio, :cpu)),
       number("%.1f", result.dig(:rss, :median)&.fdiv(1 << 20)),
       number("%.2f", result.dig(:calls, :total))]
    end

    def seconds(spread)
      number("%.3f", spread&.fetch(:median))
    end

    def range(spread)
      spread ? format("%.3f-%.3f", spread[:min], spread[:max]) : "-"
    end

    def number(pattern, value)
      value ? format(pattern, value) : "-"
    end

    def legend
      units = @report[:rows].map { |name, row| "#{row[:unit]} (#{name})" }.join(", ")
      "Medians. cpu: user + system of the process. of best: over the least of the other schedulers (where there is none, of the others). of C: over the same in C.\n" \
        "calls: system calls per #{units}, start-up not counted.\n" \
        "p50, p99: of single requests, each process by itself. KiB each: resident set for each one that waits.\n"
    end

    def notes
      missing = @report[:peers].filter_map { |name, peer| "not measured: #{name}: #{peer[:unavailable]}" if peer[:unavailable] }
      missing += @report[:rows].flat_map { |name, row| row[:left_out].map { |peer, why| "not measured: #{name}, #{peer}: #{why}" } }
      missing += @report[:missing].map { |name, reason| "not measured: row #{name}: #{reason}" }
      results = @report[:rows].flat_map { |name, row| row[:peers].map { |peer, result| ["#{name}, #{peer}", result] } }
      missing += results.filter_map { |where, result| "ends before #{result[:stops_at]}: #{where}: #{result[:stops_because]}" if result[:stops_at] }
      failed = results.flat_map { |where, result| result[:failures].map { |reason| "failed: #{where}: #{reason}" } }
      missing + failed + uncounted(results)
    end

    # One line per reason, as a missing strace is the same for all.
    def uncounted(results)
      without = results.select { |_, result| result[:calls_note] }
      without.group_by { |_, result| result[:calls_note] }.map do |reason, pairs|
        "calls not counted: #{reason}#{" (#{pairs.map(&:first).join("; ")})" if pairs.size < results.size}"
      end
    end
  end
end
