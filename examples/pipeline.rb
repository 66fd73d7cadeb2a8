# frozen_string_literal: true

# Counts the words of files in three stages, which work at the same time: one finds the files, some
# read them, one adds up. The queues between them are bounded, so that no stage runs far ahead.
#
#   ruby -Ilib examples/pipeline.rb [FOLDER]

require "eagain"
require "find"

READERS = 4

# Puts what the queue holds into the block, until the queue is closed and empty.
def each_of(queue)
  while (item = queue.pop)
    yield item
  end
end

# Whatever the locale, and whatever is in the file.
def words_of(path)
  File.read(path, encoding: Encoding::UTF_8).scrub.scan(/[[:alpha:]]+/)
end

words = Eagain.run do
  paths = SizedQueue.new(16)
  counts = SizedQueue.new(16)

  Eagain.spawn do
    Find.find(ARGV.fetch(0, ".")) { |path| paths << path if path.end_with?(".rb", ".md", ".c", ".h") }
    paths.close
  end
  readers = Array.new(READERS) do
    Eagain.spawn { each_of(paths) { |path| counts << words_of(path).tally } }
  end
  Eagain.spawn do
    readers.each(&:join)
  ensure
    counts.close # also if a reader failed: the sum below would wait for ever
  end

  {}.tap { |sum| each_of(counts) { |count| sum.merge!(count) { |_, a, b| a + b } } }
end

words.max_by(10) { |_, times| times }.each { |word, times| puts format("%6d  %s", times, word) }
