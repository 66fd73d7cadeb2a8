# frozen_string_literal: true

require_relative "headline"

module Bench
  # What was set out to be reached in a row, and whether it is: how many times the best of certain peers one of ours
  # may take at most.
  module Aims
    # Of a loop of ours that makes calls of our own: at most so often what C takes.
    OWN = 1.5
    # From the size of the second to the last: what one of many costs may grow by so much.
    GROWTH = 2.0
    FROM = 1_000

    module_function

    # Array of Hash: +peer+ (ours), +over+ (what it is compared with, String), +ratio+ (Float), +most+ (Float), +met+
    # (true, false). Empty where there is nothing to compare.
    #
    # +row+:: a value of the report's +rows+
    # +peers+:: the report's +peers+
    def of(row, peers)
      headline = Headline.new(row, peers)
      ours = headline.figures.select { |entry| peers.dig(entry.name, :ours) }
      unchanged, own = ours.partition { |entry| peers.dig(entry.name, :kind).to_s != "own" }
      aims = unchanged.filter_map { |entry| aim(entry, headline, rival(row, headline, peers), row.dig(:aim, :most)) }
      aims += own.flat_map { |entry| own_aims(entry, headline, peers) }
      aims + growth(row, peers)
    end

    # The Entry that an aim of the row is over; nil where it was not measured.
    def rival(row, headline, peers)
      over = row.dig(:aim, :over).to_s
      some = case over
             when "schedulers" then headline.others.select { |entry| peers.dig(entry.name, :kind).to_s == "scheduler" }
             when "others" then headline.others
             else headline.others.select { |entry| entry.name.to_s == over }
             end
      headline.best(some)
    end

    def own_aims(entry, headline, peers)
      others = headline.others.select { |other| peers.dig(other.name, :kind).to_s == "own" }
      [aim(entry, headline, headline.best(headline.floors), OWN), aim(entry, headline, headline.best(others), 1.0)].compact
    end

    def aim(entry, headline, rival, most)
      return unless rival && most && rival.median.positive?

      ratio = entry.median / rival.median
      { peer: entry.name.to_s, over: "#{Headline.of(rival.name)} #{headline.title}", ratio: ratio, most: most, met: ratio <= most }
    end

    # What each costs with the most of them, over what it does with a thousand.
    def growth(row, peers)
      return [] unless row[:sizes]

      row[:peers].filter_map do |name, result|
        next unless peers.dig(name, :ours)

        few, many = [FROM, row[:sizes].last].map { |size| result.dig(:sizes, size, :cpu, :median) }
        next unless few && many && row[:sizes].last > FROM

        { peer: name.to_s, over: "CPU time of each with 1,000", ratio: many / few, most: GROWTH, met: many / few <= GROWTH }
      end
    end
    private_class_method :rival, :own_aims, :aim, :growth
  end
end
