# frozen_string_literal: true

require_relative "registry"

module Bench
  # What is told of samples.
  module Statistics
    module_function

    # Hash of figures from an Array of samples, as Child#measure returns them.
    def of(samples)
      return {} if samples.empty?

      {
        wall: spread(samples.map { |s| s[:wall] }),
        cpu: spread(samples.map { |s| s[:user] + s[:system] }),
        rss: spread(samples.filter_map { |s| s[:rss] }),
        latency: latencies(samples.filter_map { |s| s[:latency] }),
        bytes_each: spread(samples.filter_map { |s| s[:bytes_each] })
      }
    end

    # The same of a row that is measured in several sizes: its figures are those of the last size, and +sizes+ has
    # +wall+ and +cpu+ of one operation, and +rss+, by size.
    def of_sizes(samples, last)
      by_size = samples.group_by { |sample| sample[:size] }
      of(by_size.fetch(last, [])).merge(sizes: by_size.transform_values { |some| each(some) })
    end

    # Hash: median, min, max of an Array of Numeric; nil of none.
    def spread(values)
      return if values.empty?

      sorted = values.sort
      middle = sorted.size / 2
      median = sorted.size.odd? ? sorted[middle] : (sorted[middle - 1] + sorted[middle]) / 2.0
      { median: median, min: sorted.first, max: sorted.last }
    end

    # Gives each peer's result its median times over the least of the other schedulers (where there is none, of all
    # that are not ours), and over the floor's; wall and CPU each on its own.
    def compare(results)
      others = results.reject { |name, _| Bench.peer(name).ours? }.group_by { |name, _| Bench.peer(name).kind }
      floor = least(others.delete(:floor).to_a)
      others.delete(:own)
      best = least(others[:scheduler] || others.values.flatten(1))
      results.each_value do |result|
        result[:ratio] = best.to_h { |time, seconds| [time, over(result.dig(time, :median), seconds)] }
        result[:floor_ratio] = floor.to_h { |time, seconds| [time, over(result.dig(time, :median), seconds)] }
      end
    end

    # Each percentile is one of a process; the spread is that of the processes.
    def latencies(samples)
      return if samples.empty?

      samples.flat_map(&:keys).uniq.to_h { |percentile| [percentile, spread(samples.filter_map { |s| s[percentile] })] }
    end

    def each(samples)
      {
        wall: spread(samples.map { |s| s[:wall] / s[:operations] }),
        cpu: spread(samples.map { |s| (s[:user] + s[:system]) / s[:operations] }),
        rss: spread(samples.filter_map { |s| s[:rss] })
      }
    end

    def least(results)
      %i[wall cpu].to_h { |time| [time, results.filter_map { |_, result| result.dig(time, :median) }.min] }
    end

    def over(median, seconds)
      median / seconds if median && seconds&.positive?
    end
    private_class_method :latencies, :each, :least, :over
  end
end
