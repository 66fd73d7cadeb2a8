# frozen_string_literal: true

module Bench
  # What one of many costs as they become more: the same work with 10, 100, ... 100,000 of something, as far as this
  # machine goes. A subclass says COUNT, how often that work is done in all at scale 1, and LEAST, how often by each of
  # them at any scale. @size is how many there are.
  class GrowthRow < Row
    SIZES = [10, 100, 1_000, 10_000, 100_000].freeze
    # A size may be so many times what is to be done in all.
    TIMES = 4

    group "From 10 to 100,000"
    headline "cpu"
    untraced "it is measured in several sizes"

    class << self
      # Array of Integer: those that are not much for what is to be done in all. Where the machine ends before the last
      # of them, the last is where it ends.
      def sizes(scale)
        wanted = [self::COUNT * scale * TIMES, SIZES[1]].max
        last = limit ? most : SIZES.last
        fit = SIZES.select { |size| size <= [last, wanted].min }
        last > fit.last * 1.5 && last <= wanted ? [*fit, last] : fit
      end

      # nil, or why there are no more than the last size (String).
      def ends(scale)
        return limit if limit && sizes(scale).last >= most / 1.5

        "a scale of #{scale} is too small for more" if sizes(scale).last < SIZES.last
      end

      private

      # nil, or what the machine ends by (String).
      def limit
        Stacks.missing(SIZES.last)
      end

      # Integer, with two digits that are not 0.
      def most
        round_down(Stacks.most)
      end

      def round_down(number)
        digits = 10**(number.to_s.size - 2)
        number / digits * digits
      end
    end

    # +size+:: one of #sizes; nil for the last
    def initialize(peer, scale, size = nil)
      super(peer, scale)
      @size = size || self.class.sizes(scale).last
    end

    def operations
      @size * turns
    end

    private

    # How often each of them does its work, so that it is about as much in any size.
    def turns
      [scaled(self.class::COUNT) / @size, self.class::LEAST].max
    end
  end
end
