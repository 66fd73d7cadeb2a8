# frozen_string_literal: true

require_relative "headline"
require_relative "svg"

module Bench
  # One line for each row: where this project stands on a scale on which the best of the other schedulers is 1 (where
  # there is none, the best of the others), and where the others do. The scale is logarithmic: half and twice are as far from 1.
  class SummaryChart
    WIDE = 760
    NARROW = 358
    RIGHT = 52
    LINE = 22
    GROUP = 30

    STYLE = <<~CSS
      svg.summary { --ink:#1c2529; --soft:#5b6a72; --line:#d5dde1; --ours:#00796b; --other:#8fa1ab; --bad:#c2410c; --paper:#ffffff;
        font: 13px system-ui, "DejaVu Sans", sans-serif; }
      @media (prefers-color-scheme: dark) {
        svg.summary { --ink:#e3eaed; --soft:#9aa9b1; --line:#34424a; --ours:#4dd0b8; --other:#75868f; --bad:#ff9361; --paper:#141a1d; } }
      .summary .paper { fill:var(--paper) } .summary text { fill:var(--ink) } .summary .soft { fill:var(--soft); font-size:12px }
      .summary .group { font-weight:600 } .summary .grid { stroke:var(--line) } .summary .one { stroke:var(--soft); stroke-width:1.5 }
      .summary .ours { fill:var(--ours) } .summary .behind { fill:var(--bad) } .summary .other { fill:var(--paper); stroke:var(--other); stroke-width:1.5 }
      .summary .rival { fill:var(--other) } .summary .aim { stroke:var(--ours); stroke-dasharray:3 3 }
      .summary .level { fill:var(--soft) } .summary .reach { stroke:var(--ours); stroke-width:3; stroke-linecap:round }
      .summary .reach.behind { stroke:var(--bad) } .summary .reach.level { stroke:var(--soft) }
      .summary text.figure { font-weight:600; text-anchor:end; fill:var(--ours) } .summary text.figure.behind { fill:var(--bad) } .summary text.figure.level { fill:var(--soft) }
      .summary .middle { text-anchor:middle }
    CSS

    # +report+:: the Hash of Runner#run
    # +width+:: WIDE, or NARROW for a phone
    # +titled+:: whether it says what it is
    def initialize(report, width: WIDE, titled: true)
      @report = report
      @width = width
      @left = narrow? ? 128 : 180
      @top = titled ? 62 : 24
      @titled = titled
      headlines = report[:rows].to_h { |name, row| [name, Headline.new(row, report[:peers])] }
      @headlines = headlines.select { |_, headline| headline.ratio }
    end

    # Whether there is anything to compare.
    def empty?
      @headlines.empty?
    end

    # String: the chart as a file of its own.
    def standalone
      %(<?xml version="1.0" encoding="UTF-8"?>\n#{to_s(xmlns: "http://www.w3.org/2000/svg")}\n)
    end

    # String: the chart as a part of a page.
    def to_s(extra = {})
      groups = Headline.grouped(@headlines) { |name| @report[:rows][name][:group] }
      y = @top
      lines = groups.map do |group, headlines|
        text = heading(group, y)
        y += GROUP
        headlines.each do |name, headline|
          text += line(name, headline, y)
          y += LINE
        end
        text + "\n"
      end
      legend, height = legend(y + 18)
      frame(extra, height) { grid(y) + lines.join + legend }
    end

    private

    def narrow?
      @width < WIDE
    end

    def frame(extra, height)
      SVG.tag("svg", { class: "summary", viewBox: "0 0 #{@width} #{height}", role: "img", aria_label: title, **extra },
              raw: "#{SVG.tag("style", {}, raw: STYLE)}#{SVG.tag("rect", { class: "paper", width: "100%", height: "100%" })}" \
                   "#{heading_of_all if @titled}\n#{yield}")
    end

    def heading_of_all
      text(0, 18, title, class: "group") + text(0, 36, subtitle, class: "soft")
    end

    def title
      "Eagain against the best other scheduler, row by row"
    end

    def subtitle
      ruby = @report[:ruby]
      "Ruby #{ruby[:version]}, #{@report[:machine][:kernel][/\A\S+ [\d.]+/]}, #{@report[:options][:rounds]} rounds, " \
        "scale #{@report[:options][:scale]}. Left of 1 is less time (or memory)."
    end

    # A logarithmic axis that has all of ours, and of the others what is not too far off.
    def bounds
      @bounds ||= begin
        ours = @headlines.values.map(&:ratio)
        least = [ours.min * 0.9, 0.45].min
        [least, [ours.max * 1.1, 2.2, 1 / least].max.clamp(2.2, [10, ours.max * 1.1].max)]
      end
    end

    def x(ratio)
      low, high = bounds.map { |bound| Math.log(bound) }
      (@left + (Math.log(ratio).clamp(low, high) - low) / (high - low) * (@width - @left - RIGHT)).round(1)
    end

    def grid(bottom)
      steps = [0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 50, 100].select { |step| step.between?(*bounds) }
      aim = SVG.tag("line", { class: "aim", x1: x(0.8), x2: x(0.8), y1: @top, y2: bottom })
      aim + steps.map do |step|
        place = x(step)
        SVG.tag("line", { class: step == 1 ? "one" : "grid", x1: place, x2: place, y1: @top, y2: bottom }) +
          text(place, @top - 6, step == 1 && !narrow? ? "1 = best other" : "#{step}×", class: "soft middle")
      end.join
    end

    def heading(group, y)
      text(0, y + 20, group, class: "soft group")
    end

    def line(name, headline, y)
      middle = y + 11
      base = headline.best(headline.rivals).median
      others = (headline.others - headline.rivals).map { |entry| dot(entry, base, middle, 4, "other") }.join
      others += headline.rivals.map { |entry| dot(entry, base, middle, 4, "rival") }.join
      css = headline.verdict == :ahead ? "ours" : headline.verdict.to_s
      mine = headline.ours.map { |entry| dot(entry, base, middle, 5, css) }.join
      ends = [1, headline.ratio].map { |ratio| x(ratio) }
      SVG.tag("g", {}, raw: text(8, middle + 4, name.to_s.tr("_", " ")) +
        SVG.tag("line", { class: "reach #{css}", x1: ends.min, x2: ends.max, y1: middle, y2: middle }) + others + mine +
        text(@width, middle + 4, format("%.2f", headline.ratio), class: "figure #{headline.verdict}"))
    end

    def dot(entry, base, y, radius, css)
      ratio = entry.median / base
      title = SVG.tag("title", {}, "#{entry.name}: #{format("%.2f", ratio)}")
      SVG.tag("circle", { class: css, cx: x(ratio), cy: y, r: radius }, raw: title)
    end

    LEGEND = [
      ["ours", 5, "Eagain, ahead in every round"], ["level", 5, "level"], ["behind", 5, "behind in every round"],
      ["rival", 4, "other schedulers"], ["other", 4, "threads, loops (at the edge: beyond it)"]
    ].freeze
    private_constant :LEGEND

    # Array: the legend (String) and where it ends.
    def legend(y)
      at = 0
      parts = LEGEND.map do |css, radius, words|
        size = 32 + words.size * 6.6
        at, y = 0, y + 18 if at + size > @width
        part = SVG.tag("circle", { class: css, cx: at + 6, cy: y - 4, r: radius }) + text(at + 16, y, words, class: "soft")
        at += size
        part
      end
      parts << text(0, y + 18, "The dashed line: 0.8, the aim of most rows.", class: "soft")
      [parts.join, y + 28]
    end

    def text(x, y, content, attributes = {})
      SVG.tag("text", { x: x, y: y, **attributes }, content)
    end
  end
end
