# frozen_string_literal: true

require_relative "headline"
require_relative "summary_chart"
require_relative "svg"

module Bench
  # The report as one HTML file that needs nothing else: no script, no font, no address.
  class Page
    STYLE = File.read(File.join(__dir__, "page.css")).freeze
    # Each peer's part of a chart: a line of text, and its bars below it.
    LINE = 19
    WIDE = 10
    NARROW = 6
    GAP = 9

    # +report+:: the Hash of Runner#run
    def initialize(report)
      @report = report
      @headlines = report[:rows].to_h { |name, row| [name, Headline.new(row, report[:peers])] }
    end

    # String
    def to_s
      body = [header, summary, missing, contents, *sections, how].compact.join("\n")
      <<~HTML
        <!DOCTYPE html>
        <html lang="en">
        <head>
        <meta charset="utf-8"/>
        <meta name="viewport" content="width=device-width, initial-scale=1"/>
        <meta name="color-scheme" content="light dark"/>
        <title>Eagain: benchmarks of #{h(@report[:date][0, 10])}</title>
        <style>
        #{STYLE}</style>
        </head>
        <body>
        <main>
        #{body}
        </main>
        </body>
        </html>
      HTML
    end

    private

    def tag(name, attributes = {}, content = nil, raw: nil)
      SVG.tag(name, attributes, content, raw: raw)
    end

    def h(text)
      CGI.escapeHTML(text.to_s)
    end

    def header
      machine = @report[:machine]
      jit = @report[:peers].values.filter_map { |peer| peer[:jit] }.uniq.join(", ")
      facts = {
        "Ruby" => "#{@report[:ruby][:description]}, JIT: #{jit.empty? ? "unknown" : jit}",
        "Machine" => "#{machine[:processors]} × #{machine[:processor]}#{", #{Figure.bytes(machine[:memory])}" if machine[:memory]}, " \
                     "load #{machine[:load]} at the start",
        "Kernel" => machine[:kernel],
        "Runs" => "#{@report[:options][:rounds]} rounds, scale #{@report[:options][:scale]}, #{@report[:date]}",
        "Revision" => @report[:revision] || "unknown"
      }
      "<h1>Eagain: benchmarks</h1>\n<dl>#{facts.map { |name, text| "<dt>#{h name}</dt><dd>#{h text}</dd>" }.join}</dl>"
    end

    def summary
      charts = { "wide" => SummaryChart::WIDE, "narrow" => SummaryChart::NARROW }.map do |css, width|
        "<div class=\"#{css}\">#{SummaryChart.new(@report, width: width, titled: false)}</div>"
      end
      return if SummaryChart.new(@report).empty?

      counts = @headlines.values.filter_map(&:verdict).tally
      words = %i[ahead level behind].map { |verdict| "#{counts.fetch(verdict, 0)} #{verdict}" }.join(", ")
      "<h2>Summary</h2>\n<p>Eagain against the best of the others in #{counts.values.sum} rows: <strong>#{words}</strong>. " \
        "Ahead or behind means in every round; where rounds overlap it is level. " \
        "Left of 1 is less time, or less memory.#{one_round}</p>\n<div class=\"overview\">#{charts.join("\n")}</div>"
    end

    def one_round
      " With one round nothing is known of the spread." if @report[:options][:rounds] == 1
    end

    # What is not there is said first.
    def missing
      peers = @report[:peers].filter_map { |name, peer| "<li><b>#{h name}</b>: #{h peer[:unavailable]}</li>" if peer[:unavailable] }
      rows = @report[:missing].map { |name, reason| "<li>row <b>#{h name}</b>: #{h reason}</li>" }
      return if peers.empty? && rows.empty?

      "<h2>Not measured</h2>\n<ul>#{(peers + rows).join}</ul>"
    end

    def contents
      links = groups.map do |group, rows|
        "<li>#{h group}: #{rows.map { |name, _| "<a href=\"##{name}\">#{h name.to_s.tr("_", " ")}</a>" }.join(", ")}</li>"
      end
      "<h2>Rows</h2>\n<ul>#{links.join}</ul>"
    end

    def groups
      Headline.grouped(@report[:rows]) { |name| @report[:rows][name][:group] }
    end

    def sections
      groups.flat_map { |group, rows| ["<h2>#{h group}</h2>", *rows.map { |name, row| section(name, row) }] }
    end

    def section(name, row)
      <<~HTML
        <section id="#{name}">
        <h3>#{h name.to_s.tr("_", " ")}#{verdict(name)}</h3>
        <p>#{h row[:title]}. #{h operations(row)}</p>
        #{charts(row)}
        #{troubles(row)}#{figures(row)}
        </section>
      HTML
    end

    def operations(row)
      "Operations at this scale: #{Figure.count(row[:operations])} (#{row[:unit]})."
    end

    def verdict(name)
      headline = @headlines[name]
      ratio = headline.ratio or return ""
      other = headline.best(headline.others).name
      " <span class=\"verdict #{headline.verdict}\">#{headline.verdict}: #{format("%.2f", ratio)} of #{h other}’s #{h headline.title}</span>"
    end

    def charts(row)
      peers = row[:peers].select { |_, result| result[:wall] }
      return "<p>No peer did it.</p>" if peers.empty?

      [
        (chart(peers, "Memory of each", [[:bytes_each]]) { |value| Figure.bytes(value) } if any?(peers, :bytes_each)),
        (chart(peers, "Latency: median, 99th percentile", [%i[latency p50], %i[latency p99]]) { |value| Figure.seconds(value) } if any?(peers, :latency)),
        chart(peers, "Wall time, CPU time", [[:wall], [:cpu]]) { |value| Figure.seconds(value) }
      ].compact.join("\n")
    end

    def any?(peers, figure)
      peers.each_value.any? { |result| result[figure] }
    end

    # The first of the figures has the wide bars. Peers from the best to the worst.
    def chart(peers, title, figures)
      spreads = peers.to_h { |name, result| [name, figures.filter_map { |path| result.dig(*path) }] }.reject { |_, found| found.empty? }
      scale = spreads.values.flatten.map { |spread| spread[:max] }.max
      y = 0
      parts = spreads.sort_by { |_, found| found.first[:median] }.map do |name, found|
        part = peer_bars(name, found, scale, y) { |value| yield value }
        y += LINE + WIDE + (figures.size - 1) * (NARROW + 2) + GAP
        part
      end
      height = y - GAP
      "<figure><figcaption>#{h title}</figcaption>" \
        "#{tag("svg", { class: "bars", width: "100%", height: height, role: "img", aria_label: title }, raw: "\n#{parts.join("\n")}\n")}</figure>"
    end

    def peer_bars(name, spreads, scale, y)
      css = kind(name)
      values = spreads.map { |spread| yield spread[:median] }.join(" · ")
      top = y + LINE
      bars = spreads.each_with_index.map do |spread, index|
        height = index.zero? ? WIDE : NARROW
        bar = SVG.bar(spread, scale, y: top, height: height, css: "bar #{css} #{"second" if index.positive?}".strip)
        top += height + 2
        bar
      end
      tag("text", { class: "name #{css}", x: 0, y: y + 13 }, name.to_s) +
        tag("text", { class: "value", x: "100%", y: y + 13 }, values) + bars.join
    end

    def kind(name)
      peer = @report[:peers].fetch(name)
      return "floor" if peer[:floor]

      peer[:ours] ? "ours" : "other"
    end

    def troubles(row)
      left_out = row[:left_out].map { |peer, reason| "<li>#{h peer} is left out: #{h reason}</li>" }
      failures = row[:peers].flat_map { |peer, result| result[:failures].map { |why| "<li>#{h peer} failed, #{h why}</li>" } }
      lines = left_out + failures
      lines.empty? ? "" : "<ul class=\"troubles\">#{lines.join}</ul>\n"
    end

    def figures(row)
      columns = columns(row)
      head = columns.keys.map { |name| "<th>#{h name}</th>" }.join
      lines = row[:peers].select { |_, result| result[:wall] }.map do |name, result|
        "<tr><th>#{h name}</th>#{columns.values.map { |figure| "<td>#{h(figure.call(result) || "–")}</td>" }.join}</tr>"
      end
      "<details><summary>Figures</summary><div class=\"wide\"><table><thead><tr><th></th>#{head}</tr></thead>" \
        "<tbody>#{lines.join}</tbody></table></div></details>"
    end

    def columns(row)
      all = {
        "wall" => proc { |result| Figure.seconds(result.dig(:wall, :median)) },
        "min–max" => proc { |result| range(result[:wall]) },
        "user + system" => proc { |result| Figure.seconds(result.dig(:cpu, :median)) },
        "CPU min–max" => proc { |result| range(result[:cpu]) },
        "p50" => percentile(:p50), "p90" => percentile(:p90), "p99" => percentile(:p99), "max" => percentile(:max),
        "each" => proc { |result| result[:bytes_each]&.then { |spread| Figure.bytes(spread[:median]) } },
        "peak memory" => proc { |result| result[:rss]&.then { |spread| Figure.bytes(spread[:median]) } },
        "system calls per #{row[:unit]}" => proc { |result| result.dig(:calls, :total)&.then { |calls| format("%.2f", calls) } }
      }
      all.select { |_, figure| row[:peers].each_value.any? { |result| result[:wall] && figure.call(result) } }
    end

    def range(spread)
      "#{Figure.seconds(spread[:min])}–#{Figure.seconds(spread[:max])}"
    end

    def percentile(name)
      proc { |result| result.dig(:latency, name)&.then { |spread| Figure.seconds(spread[:median]) } }
    end

    def how
      versions = @report[:peers].map do |name, peer|
        found = peer[:versions].map { |gem, version| "#{gem} #{version}" }.join(", ")
        "<tr><th>#{h name}</th><td>#{h peer[:title]}</td><td>#{h found}</td></tr>"
      end
      <<~HTML
        <h2>Peers, and how to read this</h2>
        <div class="wide"><table><tbody>#{versions.join}</tbody></table></div>
        <p>Each pair of row and peer ran in a process of its own, in each round once, the peers in turn. Bars are medians of the rounds,
        thin lines reach from the least to the largest. Shorter is better everywhere. Wall time is that of the row alone; CPU time is user and system
        of the process, all its threads. Each row counts what arrived: a peer that lost work is no bar but a failure. <i>c_limit</i> is no Ruby: the same
        system calls in C, on one thread.</p>
        <p>Check it: <code>make bench-peers &amp;&amp; bench/run --html report.html</code> in a checkout of the revision above.</p>
      HTML
    end
  end
end
