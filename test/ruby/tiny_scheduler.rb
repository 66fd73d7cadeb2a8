# frozen_string_literal: true

# A fiber scheduler of somebody else's, as small as one can be: it sleeps in IO.select, for one thread.
# Counts the waits that it was asked for (#waits).
class TinyScheduler
  attr_reader :waits

  def initialize
    @readable = {}
    @writable = {}
    @sleepers = {} # Fiber => time
    @ready = []
    @lock = Thread::Mutex.new
    @urgent = IO.pipe
    @waits = 0
  end

  def io_wait(io, events, timeout)
    @waits += 1
    fiber = Fiber.current
    @readable[io] = fiber if events.anybits?(IO::READABLE)
    @writable[io] = fiber if events.anybits?(IO::WRITABLE)
    @sleepers[fiber] = now + timeout if timeout
    Fiber.yield
  ensure
    @readable.delete(io) if @readable[io] == fiber
    @writable.delete(io) if @writable[io] == fiber
    @sleepers.delete(fiber)
  end

  def kernel_sleep(duration = nil)
    fiber = Fiber.current
    @sleepers[fiber] = now + duration if duration
    Fiber.yield
    true
  ensure
    @sleepers.delete(fiber)
  end

  def block(_blocker, timeout = nil)
    fiber = Fiber.current
    @blocked = (@blocked || 0) + 1
    @sleepers[fiber] = now + timeout if timeout
    Fiber.yield == :unblocked
  ensure
    @blocked -= 1
    @sleepers.delete(fiber)
  end

  def unblock(_blocker, fiber)
    @lock.synchronize { @ready << fiber }
    @urgent[1].write_nonblock(".")
  end

  def fiber(&block)
    Fiber.new(blocking: false, &block).tap(&:resume)
  end

  def close
    run
    @urgent.each(&:close)
  end

  def run
    step until @readable.empty? && @writable.empty? && @sleepers.empty? && @ready.empty? && (@blocked || 0).zero?
  end

  private

  def step
    limit = @ready.empty? ? @sleepers.values.min&.then { |time| [time - now, 0].max } : 0
    readable, writable = IO.select([@urgent[0], *@readable.keys], @writable.keys, nil, limit)
    @urgent[0].read_nonblock(100, exception: false) if readable&.delete(@urgent[0])
    events = Hash.new(0)
    readable&.each { |io| events[@readable[io]] |= IO::READABLE }
    writable&.each { |io| events[@writable[io]] |= IO::WRITABLE }
    events.each { |fiber, mask| fiber&.resume(mask) if fiber&.alive? }
    @lock.synchronize { @ready.slice!(0..) }.each { |fiber| fiber.resume(:unblocked) if fiber.alive? }
    over = @sleepers.select { |_, time| time <= now }.keys
    over.each { |fiber| (@sleepers.delete(fiber) && fiber.alive?) and fiber.resume(false) }
  end

  def now = Process.clock_gettime(Process::CLOCK_MONOTONIC)
end

# Runs the same test where there is no scheduler, with ours, and with a tiny one.
module Everywhere
  PLACES = %i[thread scheduler tiny].freeze
  NOTICES_A_CLOSE = %i[thread scheduler].freeze # IO.select has no notion of it

  # Defines test_NAME_in_a_thread and so on. The block, run in the test, may start others with #beside.
  def everywhere(name, places = PLACES, &body)
    places.each do |place|
      define_method("test_#{name}_in_a_#{place}") { at(place) { instance_exec(&body) } }
    end
  end

  # Of a test's instance.
  module Methods
    attr_reader :place

    def at(place, &block)
      only_ours
      @place = place
      return watch(Thread.new { quietly(&block) }, Support::PATIENCE) if place == :thread

      schedule(scheduler: place == :tiny ? TinyScheduler.new : nil, &block)
    end

    # Runs the block beside the test: a thread, or a task of the scheduler.
    def beside(&block)
      @place == :thread ? Thread.new { quietly(&block) } : task(&block)
    end

    # The same, a little later.
    def soon
      beside do
        sleep 0.01
        yield
      end
    end

    private

    def quietly
      Thread.current.report_on_exception = false
      yield
    end
  end

  def self.extended(klass) = klass.include(Methods)
end
