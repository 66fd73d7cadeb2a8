# frozen_string_literal: true

require "cgi"

module Bench
  # The parts of a chart, as SVG. Places along the x axis are in per cent, so that a chart is as wide as what it
  # stands in while its text keeps its size.
  module SVG
    module_function

    # An element (String). Attributes with nil are left out; content is text unless it is +raw+.
    def tag(name, attributes = {}, content = nil, raw: nil)
      list = attributes.compact.map { |key, value| " #{key.to_s.tr("_", "-")}=\"#{CGI.escapeHTML(value.to_s)}\"" }.join
      inside = raw || (content && CGI.escapeHTML(content))
      inside ? "<#{name}#{list}>#{inside}</#{name}>" : "<#{name}#{list}/>"
    end

    # A bar from the left, with a line from the least to the largest value. +scale+ is what is 100 %.
    def bar(spread, scale, y:, height:, css:)
      middle = y + height / 2.0
      bar = tag("rect", { class: css, x: 0, y: y, width: percent(spread[:median], scale), height: height, rx: 2 })
      return bar if spread[:min] == spread[:max]

      bar + tag("line", { class: "spread", x1: percent(spread[:min], scale), x2: percent(spread[:max], scale), y1: middle, y2: middle }) +
        %i[min max].map { |end_| tick(percent(spread[end_], scale), middle, height) }.join
    end

    def tick(x, y, height)
      tag("line", { class: "spread", x1: x, x2: x, y1: y - height / 2.0 + 1, y2: y + height / 2.0 - 1 })
    end

    def percent(value, scale)
      "#{(value * 100.0 / scale).clamp(0, 100).round(2)}%"
    end
  end

  # Figures as people read them.
  module Figure
    module_function

    # Three digits, with a unit: "1.23 s", "45.6 ms", "789 µs".
    def seconds(value)
      unit, factor = { "s" => 1, "ms" => 1e3, "µs" => 1e6, "ns" => 1e9 }.find { |_, by| value * by >= 0.9995 } || ["ns", 1e9]
      "#{digits(value * factor)} #{unit}"
    end

    # "12.3 KiB", "45.6 MiB"
    def bytes(value)
      unit, size = { "GiB" => 1 << 30, "MiB" => 1 << 20, "KiB" => 1 << 10 }.find { |_, by| value >= by } || ["bytes", 1]
      "#{digits(value.fdiv(size))} #{unit}"
    end

    # "1,234,567"
    def count(value)
      value.to_s.gsub(/(?<=\d)(?=(\d{3})+\z)/, ",")
    end

    def digits(value)
      return format("%.0f", value) if value >= 99.95

      format(value >= 9.995 ? "%.1f" : "%.2f", value)
    end
  end
end
