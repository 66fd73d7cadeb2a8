# frozen_string_literal: true

# What every test of the Ruby side stands on.
#
# A test that waits for something that never happens must fail with a picture of who waits where,
# not hang: everything that runs a scheduler goes through #schedule, which has a watchdog.
#
# EAGAIN_TEST_PEER=async runs the same tests over Async's scheduler (gem async), to tell a fault of
# a test from a fault of ours. Tests of what only Eagain promises are skipped then.

Warning[:experimental] = false

require "minitest/autorun"
require "rbconfig"
require "socket"
require "tempfile"
require "tmpdir"

ROOT = File.expand_path("../..", __dir__)
PEER = ENV["EAGAIN_TEST_PEER"]
# Where eagain is loaded from, here and in children: the checkout, unless -I names another place.
LIB = $LOAD_PATH.find { |dir| File.exist?(File.join(dir, "eagain.rb")) } || File.join(ROOT, "lib")
$LOAD_PATH.unshift(LIB) unless $LOAD_PATH.include?(LIB)

if PEER
  require PEER
  Console.logger.off! if defined?(Console)
  IO.class_eval { def timeout = nil } unless IO.method_defined?(:timeout) # Async asks for it on 3.1 too
else
  require "eagain"
end

module Support
  # One fiber of a test: what it returned or raised.
  Job = Struct.new(:fiber, :value, :error, :state) do
    def done? = state == :done
  end

  # How long a test may take before the watchdog ends it, in seconds.
  PATIENCE = Float(ENV.fetch("EAGAIN_TEST_PATIENCE", "30"))

  RUBY = RbConfig.ruby

  # A seed for tests that choose at random; printed, so that a failure can be repeated.
  def seed
    @seed ||= Integer(ENV.fetch("SEED_STRESS", Random.new_seed % 0xffff_ffff)).tap do |value|
      warn "#{self.class}##{name}: SEED_STRESS=#{value}"
    end
  end

  def new_scheduler(**options)
    PEER ? Async::Scheduler.new : Eagain::Scheduler.new(**options)
  end

  # Runs the block in a fiber of a new scheduler in a new thread, until nothing is left to run.
  # Returns the block's value. Raises what the block, or a #task started inside, raised first.
  def schedule(timeout: PATIENCE, scheduler: nil, &block)
    jobs = []
    thread = Thread.new do
      Thread.current.report_on_exception = false
      Thread.current.thread_variable_set(:jobs, jobs)
      Fiber.set_scheduler(scheduler || new_scheduler)
      task(&block)
      Fiber.set_scheduler(nil)
    end
    watch(thread, timeout)
    error = thread.thread_variable_get(:first_error)
    raise error if error

    jobs.first.value
  end

  # Inside #schedule: one more fiber, started at once. Its exception fails the test.
  def task(&block)
    job = Job.new(nil, nil, nil, :new)
    Thread.current.thread_variable_get(:jobs) << job
    Fiber.schedule do
      job.fiber = Fiber.current # only while it runs: a fiber holds its block, and so all that it names
      job.state = :running
      job.value = block.call
    rescue Exception => error # rubocop:disable Lint/RescueException
      job.error = error
      Thread.current.thread_variable_get(:first_error) || Thread.current.thread_variable_set(:first_error, error)
    ensure
      job.state = :done
      job.fiber = nil
    end
    job
  end

  # Joins a thread, or fails with the backtraces of everything.
  def watch(thread, timeout)
    return thread.value if thread.join(timeout)

    picture = stacks
    thread.kill
    thread.join(2)
    flunk("nothing ended within #{timeout} s\n#{picture}")
  end

  def stacks
    threads = (Thread.list - [Thread.current]).reject { |t| t.inspect.include?("minitest") }
    threads.map! { |t| "thread #{t.inspect}\n  #{t.backtrace&.first(12)&.join("\n  ")}" }
    fibers = []
    ObjectSpace.each_object(Fiber) do |f|
      next if !f.alive? || f == Fiber.current || fibers.size >= 10

      trace = f.backtrace
      fibers << "fiber #{f.inspect}\n  #{trace.first(6).join("\n  ")}" if trace && !trace.empty?
    rescue StandardError
      next
    end
    (threads + fibers).join("\n")
  end

  # Lets the others run until the block is true.
  def await(what = "condition")
    deadline = now + PATIENCE
    turns = 0
    until yield
      flunk("#{what}: not within #{PATIENCE} s") if now > deadline
      sleep((turns += 1) < 1000 ? 0 : 0.001)
    end
  end

  def now = Process.clock_gettime(Process::CLOCK_MONOTONIC)

  # Compares long strings without printing them.
  def assert_bytes(expected, actual)
    refute_nil actual
    assert_equal expected.bytesize, actual.bytesize
    assert expected.b == actual.b, "the same length, but other bytes"
  end

  # The backends that start here: a kernel or a container may forbid io_uring.
  def backends
    Eagain::BACKENDS.select { |name| name != "io_uring" || uring_error.nil? }
  end

  def uring_error
    Eagain::Scheduler.new(backend: "io_uring").close
  rescue ArgumentError, SystemCallError => error
    error
  end

  def only_ours
    skip "about Eagain::Scheduler alone" if PEER
  end

  def ruby_at_least(version, why)
    skip "Ruby #{RUBY_VERSION}: #{why} (since #{version})" if Gem::Version.new(RUBY_VERSION) < Gem::Version.new(version)
  end

  def compacts?
    GC.respond_to?(:compact) && (!GC.respond_to?(:compaction_supported?) || GC.compaction_supported?) &&
      RUBY_PLATFORM.include?("linux")
  end

  # Raises the soft limit of descriptors to at least n, or skips.
  def raise_nofile(count)
    soft, hard = Process.getrlimit(:NOFILE)
    return if soft >= count

    begin
      Process.setrlimit(:NOFILE, count, [hard, count].max)
    rescue SystemCallError => e
      skip "needs #{count} descriptors, the hard limit is #{hard} (#{e.class})"
    end
  end

  # Objects that so many runs of the block allocate, beyond those of calling it.
  def allocations(times = 100)
    count = lambda do |body|
      before = GC.stat(:total_allocated_objects)
      times.times(&body)
      GC.stat(:total_allocated_objects) - before
    end
    body = proc { yield }
    nothing = proc {}
    Array.new(3) { count.call(body) - count.call(nothing) }.min
  end

  # Runs a script in a fresh Ruby. Returns [stdout, stderr, Process::Status].
  def child(script, *flags, env: {}, timeout: PATIENCE)
    lib = PEER ? ["-r#{PEER}"] : ["-I#{LIB}", "-reagain"]
    run_command(env, RUBY, "-W:no-experimental", *lib, *flags, "-e", script, timeout: timeout)
  end

  def run_command(env, *command, timeout: PATIENCE)
    out = Tempfile.new("out")
    err = Tempfile.new("err")
    pid = Process.spawn(env, *command, in: File::NULL, out: out.path, err: err.path, pgroup: true)
    waiter = Process.detach(pid)
    unless waiter.join(timeout)
      Process.kill(:KILL, -pid)
      waiter.join
      flunk("#{command.last(2).join(" ")[0, 200]} did not end within #{timeout} s\n#{File.read(err.path)}")
    end
    [File.read(out.path), File.read(err.path), waiter.value]
  ensure
    out&.close!
    err&.close!
  end

  # ruby -e script must print exactly this and exit with 0.
  def assert_child(expected, script, *flags, env: {}, timeout: PATIENCE)
    assert_equal expected, output_of(script, *flags, env: env, timeout: timeout)
  end

  # Runs a script in a fresh Ruby that must end well; returns what it printed.
  def output_of(script, *flags, env: {}, timeout: PATIENCE)
    out, err, status = child(script, *flags, env: env, timeout: timeout)
    assert status.success?, "#{status}\n#{out}\n#{err}"
    out
  end

  def needs_strace
    skip "strace is not installed" unless system("command -v strace >/dev/null")
    skip "strace may not trace here" unless system("strace", "-o", File::NULL, "true", err: File::NULL)
  end

  # What a region of a script asks of the kernel.
  #
  # The script calls #mark twice; the calls that its thread makes between the two marks are
  # counted. Returns a Trace. Skips where strace is missing or may not trace.
  def strace(script, env: {})
    needs_strace
    log = Tempfile.new("strace")
    prelude = <<~'RUBY'
      def checks = Fiber.scheduler.respond_to?(:stats) ? Fiber.scheduler.stats[:checks] : 0
      def mark
        clock = Process.clock_gettime(Process::CLOCK_MONOTONIC, :float_millisecond)
        Process.getpgid(0)
        return $first = [checks, clock] unless $first

        region = "#{checks - $first[0]} #{(clock - $first[1]).ceil}"
        at_exit { print region }
      end
    RUBY
    lib = PEER ? ["-r#{PEER}"] : ["-I#{LIB}", "-reagain"]
    out, err, status = run_command(env, "strace", "-f", "-s", "64", "-o", log.path, RUBY, "-W:no-experimental",
                                 *lib, "-e", prelude + script, timeout: PATIENCE * 2)
    assert status.success?, "#{status}\n#{err}"
    Trace.new(File.readlines(log.path), *out.split.map { |word| Integer(word) })
  ensure
    log&.close!
  end

  # The system calls between two marks: of the thread that made the marks, and of the others.
  class Trace
    attr_reader :lines, :others, :ms

    # ms: how long the region took. checks: how many sleepers the scheduler looked at again in the region, which it does now and
    # then in case that a descriptor was exchanged behind its back. poll(2) is for that, and only that.
    def initialize(log, checks, ms)
      @checks = checks
      @ms = ms
      marks = log.each_index.select { |i| log[i].match?(/\A\d+ +getpgid\(0/) }
      raise "expected two marks, found #{marks.size}" unless marks.size == 2

      thread = log[marks[0]][/\A\d+/]
      region = log[marks[0] + 1...marks[1]].grep_v(/<\.\.\. \w+ resumed>|\A\d+ +(---|\+\+\+)/)
      @lines, @others = region.partition { |line| line[/\A\d+/] == thread }
    end

    # Name of a call => how often the marking thread made it.
    def counts
      @counts ||= lines.each_with_object(Hash.new(0)) { |line, all| all[line[/\A\d+ +(\w+)/, 1]] += 1 }
    end

    def [](*names) = names.sum { |name| counts[name.to_s] }

    # Calls other than those that manage memory or, on some machines, tell the time.
    def work = counts.reject { |name, _| %w[brk mmap munmap mremap madvise mprotect prctl clock_gettime].include?(name) }

    # Calls that register, ask about or change a descriptor, but for the poll(2)s of the checks.
    def registering
      polled = lines.grep(/ poll\(/).sum { |line| Integer(line[/\], (\d+), 0\)/, 1] || 1_000_000) }
      of(:epoll_ctl, :fcntl, :ppoll, :ioctl, :getsockopt, :getsockname) + (polled > @checks ? of(:poll) : "")
    end

    # The lines of these calls.
    def of(*names) = lines.grep(/\A\d+ +(?:#{names.join("|")})\(/).join

    WAITING = /\A\d+ +(?:epoll_wait|epoll_pwait2?|p?poll|select|pselect6|io_uring_enter)\(/

    # Calls that ask for events, and those among them that may sleep.
    def waits = lines.grep(WAITING).size
    def sleeps = lines.grep(WAITING).grep_v(/, 0\) +=|tv_sec=0, tv_nsec=0\}/).size

    def to_s = lines.first(200).join
  end

  # A pair of connected TCP sockets over loopback.
  def tcp_pair
    server = TCPServer.new("127.0.0.1", 0)
    client = TCPSocket.new("127.0.0.1", server.local_address.ip_port)
    peer = server.accept
    server.close
    [client, peer]
  end

  def close_all(*ios) = ios.flatten.compact.each { |io| io.close unless io.closed? }
end

class EagainTest < Minitest::Test
  include Support

  # Does the scheduler have this hook, for tests that are defined only then?
  def self.hook?(name) = (PEER ? Async::Scheduler : Eagain::Scheduler).method_defined?(name)
  def hook?(name) = self.class.hook?(name)
end
