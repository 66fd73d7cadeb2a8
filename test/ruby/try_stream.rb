# frozen_string_literal: true

require "fileutils"

# What the tests of tryread and its kin share: the same is done to two IOs that are alike, once by us
# and once by Ruby's own method, and everything that can be seen of it is compared.
module TryStream
  # What a block gives, as far as a caller can tell.
  def outcome
    value = yield
    [value.class, value, *(value.encoding if value.is_a?(String))]
  rescue StandardError, NoMemoryError => e
    [e.class, e.message.gsub(/0x\h+/, "0x").gsub(/fd \d+/, "fd")]
  end

  # make: returns an IO, or an Array that begins with one. The block gets that IO and the name of a
  # side, :ours or :ruby. Both must come out the same.
  def same(make, label = nil)
    results = %i[ours ruby].to_h do |side|
      made = make.call
      made = [made] unless made.is_a?(Array)
      [side, yield(made.first, side)]
    ensure
      close_quietly(made)
    end
    assert_equal results[:ruby].inspect, results[:ours].inspect, label
    results[:ours]
  end

  # tryread and read_nonblock: the answer, the buffer afterwards, and what is left.
  def same_read(make, maxlen, label = nil, &buffer)
    same(make, label) do |io, side|
      given = buffer&.call
      arguments = buffer ? [maxlen, given] : [maxlen]
      answer = outcome { side == :ours ? Eagain.tryread(io, *arguments) : io.read_nonblock(*arguments, exception: false) }
      state = [given, given.encoding, given.valid_encoding?] if given.is_a?(String)
      again = outcome { side == :ours ? Eagain.tryread(io, 100) : io.read_nonblock(100, exception: false) }
      [answer, state, again]
    end
  end

  def same_write(make, string, label = nil)
    same(make, label) do |io, side|
      outcome { side == :ours ? Eagain.trywrite(io, string) : io.write_nonblock(string, exception: false) }
    end
  end

  def close_quietly(things)
    (things || []).each { |io| io.close if io.respond_to?(:close) && !io.closed? }
  rescue IOError, SystemCallError
    nil
  end

  # Both ends, with data on the way.
  def filled_pipe(data) = IO.pipe.tap { |_, w| w.write(data) }
  def filled_pair(data) = UNIXSocket.pair.tap { |_, b| b.write(data) }

  def ended_pipe(data) = filled_pipe(data).tap { |_, w| w.close }

  def file(data, mode = "r")
    path = File.join(@dir ||= Dir.mktmpdir, "file")
    File.binwrite(path, data)
    File.open(path, mode)
  end

  def teardown
    FileUtils.rm_rf(@dir) if @dir
  end

  # Objects made by a call, on average.
  def allocations(times = 200)
    5.times { yield }
    before = GC.stat(:total_allocated_objects)
    i = 0
    while i < times
      yield
      i += 1
    end
    (GC.stat(:total_allocated_objects) - before).fdiv(times).round(1)
  end
end
