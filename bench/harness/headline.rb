# frozen_string_literal: true

module Bench
  # What a row is judged by, and who is ahead in it, from the report that Runner#run returns.
  class Headline
    # What it is called, and how it is found in a peer's result.
    MEASURES = {
      "wall" => ["wall time", proc { |result| result[:wall] }],
      "cpu" => ["CPU time", proc { |result| result[:cpu] }],
      "p99" => ["99th percentile of the latency", proc { |result| result.dig(:latency, :p99) }],
      "bytes_each" => ["memory of each", proc { |result| result[:bytes_each] }]
    }.freeze

    # In the order in which they are shown; others follow.
    GROUPS = ["Streams and sockets", "HTTP and TLS", "Databases", "Tasks, locks and queues", "Time", "Files, names, programs",
              "Latency under load", "Memory", "Single calls"].freeze

    # String: whose it is.
    def self.of(name)
      name.to_s.end_with?("s") ? "#{name}'" : "#{name}'s"
    end

    # Hash of group to what belongs to it of a Hash by the names of rows; the block has the group of a name.
    def self.grouped(by_name)
      groups = by_name.group_by { |name, _| yield name }
      groups.sort_by.with_index { |(group, _), index| [GROUPS.index(group) || GROUPS.size, index] }.to_h
    end

    # A peer's name, and its Hash of median, min and max.
    Entry = Struct.new(:name, :spread) do
      def median = spread[:median]
    end

    # Array of Entry: the peers of this project under which unchanged Ruby runs, or that make single calls; the
    # others; those of them that this project is measured against, which are the schedulers where there are some;
    # what is no Ruby at all; and all of these, and of those with calls of their own.
    attr_reader :ours, :others, :rivals, :floors, :figures

    # +row+:: a value of the report's +rows+
    # +peers+:: the report's +peers+
    def initialize(row, peers)
      @title, figure = MEASURES.fetch(row[:headline])
      entries = row[:peers].filter_map { |name, result| figure.call(result)&.then { |spread| Entry.new(name, spread) } }
      kinds = entries.to_h { |entry| [entry, peers.dig(entry.name, :kind).to_s] }
      @figures = entries
      @floors, entries = entries.partition { |entry| peers.dig(entry.name, :floor) }
      @ours, @others = entries.partition { |entry| peers.dig(entry.name, :ours) }
      @ours = @ours.reject { |entry| %w[own patched].include?(kinds[entry]) }
      schedulers = @others.select { |entry| kinds[entry] == "scheduler" }
      @rivals = schedulers.empty? ? @others.reject { |entry| kinds[entry] == "own" } : schedulers
    end

    # String: "wall time"
    attr_reader :title

    # The Entry with the least median; nil of none.
    def best(entries)
      entries.min_by(&:median)
    end

    # Float: our best over the best of the rivals; nil where one of them is missing.
    def ratio
      mine = best(ours)
      other = best(rivals)
      mine.median / other.median if mine && other&.median&.positive?
    end

    # :ahead or :behind if no round of one was as good as any of the best rival's, else :level; nil where one of them
    # is missing.
    def verdict
      return unless ratio

      mine = best(ours).spread
      other = best(rivals).spread
      if mine[:max] < other[:min] then :ahead
      elsif mine[:min] > other[:max] then :behind
      else :level
      end
    end
  end
end
