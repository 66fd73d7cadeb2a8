# frozen_string_literal: true

require_relative "aims"
require_relative "growth_chart"
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
      body = [header, summary, aims, missing, contents, *sections, how].compact.join("\n")
      <<~HTML
        <!DOCTYPE html>
        <html lang="en">
        <head>
        <meta charset="utf-8"/>
        <meta name="viewport" content="width=device-width, initial-scale=1"/>
        <meta name="color-scheme" content="light dark"/>
        <title>Eagain: benchmarks of #{h(@report[:date][0, 10])}</title>
        <style>
        #{STYLE}#{GrowthChart::STYLE}</style>
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
      return if SummaryChart.new(@report).empty?

      charts = { "wide" => SummaryChart::WIDE, "narrow" => SummaryChart::NARROW }.map do |css, width|
        "<div class=\"#{css}\">#{SummaryChart.new(@report, width: width, titled: false)}</div>"
      end

      counts = @headlines.values.filter_map(&:verdict).tally
      words = %i[ahead level behind].map { |verdict| "#{counts.fetch(verdict, 0)} #{verdict}" }.join(", ")
      "<h2>Summary</h2>\n<p>Eagain against the best other scheduler (in single calls, the best other way) in #{counts.values.sum} rows: " \
        "<strong>#{words}</strong>. " \
        "Ahead or behind means in every round; where rounds overlap it is level. " \
        "Left of 1 is less time, or less memory.#{one_round}</p>\n<div class=\"overview\">#{charts.join("\n")}</div>"
    end

    def one_round
      " With one round nothing is known of the spread." if @report[:options][:rounds] == 1
    end

    # What was to be reached: a line for each comparison, a column for each peer of ours.
    def aims
      found = @report[:rows].flat_map { |name, row| row[:aims].to_a.map { |aim| [name, aim] } }
      return if found.empty?

      peers = found.map { |_, aim| aim[:peer] }.uniq
      lines = found.group_by { |name, aim| [name, *aim.values_at(:most, :over)] }.map do |(name, most, over), some|
        cells = peers.map { |peer| aim_cell(some.find { |_, aim| aim[:peer] == peer }&.last) }.join
        "<tr><th><a href=\"##{name}\">#{h name.to_s.tr("_", " ")}</a></th>#{cells}<td class=\"text\">#{format("%.2f", most)} × #{h over}</td></tr>"
      end
      met = found.count { |_, aim| aim[:met] }
      "<h2>Aims</h2>\n<p>#{met} are met, <strong class=\"unmet\">#{found.size - met} are not met</strong>. " \
        "Threads, loops without tasks, and C are shown in each row, and are not what it is measured against where there is another scheduler.</p>\n" \
        "<div class=\"wide\"><table class=\"aims\"><thead><tr><th></th>#{peers.map { |peer| "<th>#{h peer}</th>" }.join}" \
        "<th class=\"text\">at most</th></tr></thead><tbody>#{lines.join}</tbody></table></div>"
    end

    def aim_cell(aim)
      return "<td></td>" unless aim

      "<td class=\"#{aim[:met] ? "met" : "unmet"}\">#{format("%.2f", aim[:ratio])} #{aim[:met] ? "met" : "not met"}</td>"
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
        #{with(row)}#{aims_of(row)}#{charts(row)}
        #{troubles(row)}#{figures(row)}
        </section>
      HTML
    end

    def operations(row)
      "Operations at this scale: #{Figure.count(row[:operations])} (#{row[:unit]})."
    end

    def with(row)
      found = row[:versions].to_h.map { |name, version| "#{name} #{version}" }.join(", ")
      found.empty? ? "" : "<p>With #{h found}.</p>\n"
    end

    def aims_of(row)
      lines = row[:aims].to_a.map do |aim|
        "<li><b>#{h aim[:peer]}</b>: #{format("%.2f", aim[:ratio])} × #{h aim[:over]}; the aim of #{format("%.2f", aim[:most])} is " \
          "<b class=\"#{aim[:met] ? "met" : "unmet"}\">#{aim[:met] ? "met" : "not met"}</b></li>"
      end
      lines.empty? ? "" : "<ul class=\"aims\">#{lines.join}</ul>\n"
    end

    def verdict(name)
      headline = @headlines[name]
      ratio = headline.ratio or return ""
      other = headline.best(headline.rivals).name
      " <span class=\"verdict #{headline.verdict}\">#{headline.verdict}: #{format("%.2f", ratio)} × #{h Headline.of(other)} #{h headline.title}</span>"
    end

    def charts(row)
      return growth(row) if row[:sizes]

      peers = row[:peers].select { |_, result| result[:wall] }
      return "<p>No peer did it.</p>" if peers.empty?

      [
        (chart(peers, "Memory of each", [[:bytes_each]]) { |value| Figure.bytes(value) } if any?(peers, :bytes_each)),
        (chart(peers, "Latency: median, 99th percentile", [%i[latency p50], %i[latency p99]]) { |value| Figure.seconds(value) } if any?(peers, :latency)),
        chart(peers, "Wall time, CPU time", [[:wall], [:cpu]]) { |value| Figure.seconds(value) }
      ].compact.join("\n")
    end

    def growth(row)
      return "<p>No peer did it.</p>" if GrowthChart.new(row, @report[:peers]).empty?

      charts = { "wide" => GrowthChart::WIDE, "narrow" => GrowthChart::NARROW }.map do |css, width|
        "<div class=\"#{css}\">#{GrowthChart.new(row, @report[:peers], width: width)}</div>"
      end
      ends = row[:ends] && "<p>Here it ends at #{Figure.count(row[:sizes].last)}: #{h row[:ends]}.</p>"
      "<figure class=\"overview\"><figcaption>CPU time of each #{h row[:unit]}, by how many there are at a time. Level is linear.</figcaption>" \
        "#{charts.join("\n")}</figure>#{ends}"
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
      stops = row[:peers].filter_map do |peer, result|
        "<li>#{h peer} ends before #{Figure.count(result[:stops_at])}: #{h result[:stops_because]}</li>" if result[:stops_at]
      end
      lines = left_out + stops + failures
      lines.empty? ? "" : "<ul class=\"troubles\">#{lines.join}</ul>\n"
    end

    def figures(row)
      return sizes(row) if row[:sizes]

      columns = columns(row)
      head = columns.keys.map { |name| "<th>#{h name}</th>" }.join
      lines = row[:peers].select { |_, result| result[:wall] }.map do |name, result|
        "<tr><th>#{h name}</th>#{columns.values.map { |figure| "<td>#{h(figure.call(result) || "–")}</td>" }.join}</tr>"
      end
      "<details><summary>Figures</summary><div class=\"wide\"><table><thead><tr><th></th>#{head}</tr></thead>" \
        "<tbody>#{lines.join}</tbody></table></div></details>"
    end

    def sizes(row)
      head = row[:sizes].map { |size| "<th>#{Figure.count(size)}</th>" }.join
      lines = row[:peers].map do |name, result|
        cells = row[:sizes].map { |size| "<td>#{result.dig(:sizes, size, :cpu)&.then { |cost| h Figure.seconds(cost[:median]) } || "–"}</td>" }
        "<tr><th>#{h name}</th>#{cells.join}</tr>"
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
