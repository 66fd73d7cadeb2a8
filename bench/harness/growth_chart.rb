# frozen_string_literal: true

require_relative "svg"

module Bench
  # What one of many costs, by how many there are: a line for each peer, both axes logarithmic. A cost that does not
  # depend on their number is a level line.
  class GrowthChart
    WIDE = 700
    NARROW = 340
    HEIGHT = 320
    LEFT = 52
    RIGHT = 104
    TOP = 16
    BOTTOM = 44
    # The least distance of two names.
    LINE = 15

    STYLE = <<~CSS
      svg.growth { font: 12px system-ui, "DejaVu Sans", sans-serif; display:block; width:100% }
      .growth text { fill:var(--ink) } .growth .soft { fill:var(--soft) } .growth .grid { stroke:var(--line) } .growth .faint { stroke:var(--line); stroke-opacity:.45 }
      .growth .end { stroke:var(--bad); stroke-dasharray:4 3 } .growth .middle { text-anchor:middle } .growth .right { text-anchor:end }
      .growth polyline { fill:none; stroke:currentColor; stroke-width:1.5 } .growth circle { fill:currentColor } .growth text.name { fill:currentColor }
      .growth .ours polyline { stroke-width:3 } .growth .ours text.name { font-weight:700 } .growth .lead { stroke:currentColor; stroke-opacity:.5; fill:none }
      .growth .second polyline { stroke-dasharray:7 4 }
    CSS
    OURS = "var(--ours)"
    OTHERS = ["#b7791f", "#7c6bc4", "#3f7fd0", "#c2578a", "#7f8f2f", "#8a8f94", "#a0643c", "#4b93a5"].freeze

    # +row+:: a value of the report's +rows+ that has +sizes+
    # +peers+:: the report's +peers+
    def initialize(row, peers, width: WIDE)
      @row = row
      @peers = peers
      @width = width
      @curves = row[:peers].filter_map do |name, result|
        costs = (result[:sizes] || {}).transform_values { |figures| figures[:cpu] }.compact.sort
        [name, costs] if costs.any?
      end
    end

    # Whether there is nothing to draw.
    def empty?
      @curves.empty?
    end

    # String
    def to_s
      SVG.tag("svg", { class: "growth", viewBox: "0 0 #{@width} #{HEIGHT}", role: "img", aria_label: title },
              raw: [grid, ending, *curves, axis_names].join("\n"))
    end

    private

    def title
      "CPU time of each #{@row[:unit]}, by how many there are"
    end

    def x(size)
      low, high = @row[:sizes].minmax.map { |it| Math.log(it) }
      (LEFT + (Math.log(size) - low) / (high - low) * (@width - LEFT - RIGHT)).round(1)
    end

    def bounds
      @bounds ||= begin
        costs = @curves.flat_map { |_, points| points.flat_map { |_, cost| cost.values_at(:min, :max) } }
        [costs.min / 1.15, costs.max * 1.15]
      end
    end

    def y(cost)
      low, high = bounds.map { |it| Math.log(it) }
      (HEIGHT - BOTTOM - (Math.log(cost) - low) / (high - low) * (HEIGHT - TOP - BOTTOM)).round(1)
    end

    def grid
      right = @width - RIGHT
      sizes = @row[:sizes].map do |size|
        place = x(size)
        # The last may be near the one before.
        SVG.tag("line", { class: "grid", x1: place, x2: place, y1: TOP, y2: HEIGHT - BOTTOM }) + text(place, HEIGHT - BOTTOM + 16, short(size), "soft middle")
      end
      sizes + steps.map do |cost, named|
        place = y(cost)
        SVG.tag("line", { class: named ? "grid" : "faint", x1: LEFT, x2: right, y1: place, y2: place }) +
          (named ? text(LEFT - 6, place + 4, Figure.seconds(cost).sub(/\.0+ /, " "), "soft right") : "")
      end
    end

    # Array of [cost, whether it gets a name]: 1, 2, 5 of each power of ten; only the powers have names where there
    # are many.
    def steps
      powers = (-9..3).flat_map { |power| [1, 2, 5].map { |digit| [digit * 10.0**power, digit] } }
      inside = powers.select { |cost, _| cost.between?(*bounds) }
      inside.map { |cost, digit| [cost, digit == 1 || inside.size <= 8] }
    end

    def ending
      return "" unless @row[:ends]

      place = x(@row[:sizes].last)
      SVG.tag("line", { class: "end", x1: place, x2: place, y1: TOP, y2: HEIGHT - BOTTOM }) + text(place, TOP - 4, "ends here", "soft middle")
    end

    # Names are at the ends of the lines, moved apart.
    def curves
      places = name_places
      others = OTHERS.cycle
      ours = 0
      @curves.map do |name, points|
        mine = @peers.dig(name, :ours)
        css = ["curve", ("ours" if mine), ("second" if mine && (ours += 1) > 1)].compact.join(" ")
        SVG.tag("g", { class: css, style: "color:#{mine ? OURS : others.next}" }, raw: curve(name, points) + name_of(name, points, places[name]))
      end
    end

    def curve(name, points)
      line = points.map { |size, cost| "#{x(size)},#{y(cost[:median])}" }.join(" ")
      dots = points.map do |size, cost|
        words = "#{name}, #{Figure.count(size)}: #{Figure.seconds(cost[:median])} (#{Figure.seconds(cost[:min])} to #{Figure.seconds(cost[:max])})"
        SVG.tag("circle", { cx: x(size), cy: y(cost[:median]), r: 3 }, raw: SVG.tag("title", {}, words))
      end
      SVG.tag("polyline", { points: line }) + dots.join
    end

    def name_of(name, points, place)
      size, cost = points.last
      at = @width - RIGHT + 12
      SVG.tag("path", { class: "lead", d: "M#{x(size) + 4} #{y(cost[:median])} L#{at - 3} #{place}" }) + text(at, place + 4, name, "name")
    end

    # From the top down, each at least a line below the one before; then up again from the bottom.
    def name_places
      wanted = @curves.map { |name, points| [name, y(points.last[1][:median])] }.sort_by(&:last)
      wanted.each_cons(2) { |before, it| it[1] = [it[1], before[1] + LINE].max }
      bottom = HEIGHT - BOTTOM + LINE
      wanted.reverse_each do |it|
        it[1] = [it[1], bottom - LINE].min
        bottom = it[1]
      end
      wanted.to_h
    end

    def axis_names
      text((LEFT + @width - RIGHT) / 2, HEIGHT - 8, "at a time", "soft middle")
    end

    # "10", "1 k", "31 k"
    def short(size)
      size >= 1_000 ? "#{(size / 1_000.0).round(1).to_s.delete_suffix(".0")} k" : size.to_s
    end

    def text(x, y, content, css)
      SVG.tag("text", { x: x, y: y, class: css }, content.to_s)
    end
  end
end
