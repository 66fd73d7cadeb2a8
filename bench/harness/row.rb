# frozen_string_literal: true

module Bench
  # A workload, written once against plain Ruby. A row is one file in bench/rows, named after the
  # class in it (rows/pipes.rb holds Bench::Rows::Pipes), and knows no peer: whatever runs at the
  # same time goes through #spawn, and #wait blocks until all of that has ended.
  #
  # A subclass states its +title+ and +unit+ and defines #operations, #call and #result. One object
  # runs once, in a process of its own.
  class Row
    class << self
      # One line that says what is done, for the heading of the table. With an argument, sets it.
      def title(text = @title)
        @title = text
      end

      # What one operation is, in the singular: "message", "round trip". With an argument, sets it.
      def unit(text = @unit)
        @unit = text
      end

      # What it is about, in a few words: the heading that it stands under. A subclass has its superclass's.
      # With an argument, sets it.
      def group(text = nil)
        @group = text if text
        @group || (superclass.group if superclass.respond_to?(:group))
      end

      # The figure that it is judged by: "wall", "cpu", "p99" (of the latency) or "bytes_each". A subclass has its
      # superclass's. With an argument, sets it.
      def headline(figure = nil)
        @headline = figure if figure
        @headline || (superclass.respond_to?(:headline) ? superclass.headline : "wall")
      end

      # What is asked of this project: the most of the headline figure, as a multiple (Float) of the least of
      # +over+: :schedulers (the other ones), :others (all but ours and C), or a peer's name (String). Hash with
      # +most+ and +over+, or nil. A subclass has its superclass's. With a number, sets it.
      def aim(most = nil, over: :schedulers)
        @aim = { most: most, over: over } if most
        @aim || (superclass.aim if superclass.respond_to?(:aim))
      end

      # Hash of gem name to version requirement, for what the row itself needs. Sets it when given.
      def gems(requirements = @gems || {})
        @gems = requirements
      end

      # nil, or the name (String) of the Service that its clients talk to. With an argument, sets it.
      def service(name = @service)
        @service = name
      end

      # nil; or, for a GrowthRow, in which numbers it is measured at a scale.
      def sizes(_scale)
        nil
      end

      # nil, or why a count of system calls would say nothing about it (String). A subclass has its superclass's.
      # With an argument, sets it.
      def untraced(reason = nil)
        @untraced = reason if reason
        @untraced || (superclass.untraced if superclass.respond_to?(:untraced))
      end
    end

    aim 0.8

    # +peer+:: the Peer that runs what is spawned
    # +scale+:: the fraction (Float, above 0) of the full number of iterations
    def initialize(peer, scale)
      @peer = peer
      @scale = scale
    end

    # Integer: how many units the whole row makes at this scale.
    def operations
      raise NotImplementedError, "#{self.class}#operations"
    end

    # nil, or what this machine lacks for it (String). Asked before anything is measured.
    def missing
      server = self.class.service && Bench.service(self.class.service).missing
      return server if server

      gems = Bench.missing_gems(self.class.gems)
      "#{gems.keys.join(", ")} not installed: make bench-peers" if gems.any?
    end

    # What comes before the clock starts.
    def prepare; end

    # The measured part. Starts everything with #spawn and returns from #wait.
    def call
      raise NotImplementedError, "#{self.class}#call"
    end

    # Integer: the operations that really arrived. A peer that loses work is failed, not timed.
    def result
      raise NotImplementedError, "#{self.class}#result"
    end

    # Hash: +p50+, +p90+, +p99+, +max+ in seconds, of the requests that were timed one by one; nil where none
    # were.
    def latency
      @times && percentiles(@times)
    end

    # Bytes (Float) of the resident set that each of what is held at the same time takes; nil where that is
    # not what the row is about.
    def bytes_each
      nil
    end

    private

    # Runs the block, and keeps the time that it takes for #latency. Returns its value.
    def timed
      start = now
      value = yield
      (@times ||= []) << (now - start)
      value
    end

    def now
      Process.clock_gettime(Process::CLOCK_MONOTONIC)
    end

    # By the nearest rank: each is a time that was taken.
    def percentiles(times)
      sorted = times.sort
      rank = proc { |percent| sorted[[(sorted.size * percent / 100.0).ceil - 1, 0].max] }
      { p50: rank.call(50), p90: rank.call(90), p99: rank.call(99), max: sorted.last }
    end

    def spawn(&block)
      @peer.spawn(&block)
    end

    def wait
      @peer.wait
    end

    # The full number of iterations, at this row's scale; at least one.
    def scaled(count)
      [(count * @scale).round, 1].max
    end
  end

  # Holds the rows; each is found by the name of its file.
  module Rows
  end
end
