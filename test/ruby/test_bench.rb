# frozen_string_literal: true

require_relative "helper"
require_relative "../../bench/harness/registry"
require "json"
require "open3"
require "rbconfig"
require "socket"
require "tempfile"
require "tmpdir"

# The harness, not the figures: every row runs under plain threads and under ours, at a hundredth.
class TestBench < Minitest::Test
  RUN = File.expand_path("../../bench/run", __dir__)

  def bench(*arguments)
    Open3.capture3(RbConfig.ruby, RUN, *arguments)
  end

  def report(*arguments)
    Tempfile.create("bench") do |file|
      table, errors, status = bench("--json", file.path, *arguments)
      assert_predicate status, :success?, errors + table
      yield table, JSON.parse(File.read(file.path), symbolize_names: true)
    end
  end

  def test_every_row_is_measured_and_written_as_json
    report("--scale", "0.01", "--rounds", "1", "--no-strace", "--peers", "threads,eagain_epoll") do |table, json|
      assert_equal "eagain-bench/1", json[:format]
      assert_equal RUBY_VERSION, json[:ruby][:version]
      assert_equal %i[eagain_epoll threads], json[:peers].keys.sort
      assert_empty(json[:peers].values.filter_map { |peer| peer[:unavailable] })
      assert_includes json[:rows].keys, :pipes
      json[:rows].each do |name, row|
        assert_includes table, "#{name}: #{row[:title]}"
        row[:peers].each_value { |result| row[:sizes] ? assert_sizes(result, row[:sizes]) : assert_result(result, row[:operations]) }
      end
    end
  end

  # The work is done in each size, and what one costs is that of the samples.
  def assert_sizes(result, sizes)
    assert_empty result[:failures]
    assert_equal sizes, result[:samples].map { |sample| sample[:size] }
    result[:samples].each do |sample|
      assert_operator sample[:operations], :>=, sample[:size]
      assert_in_delta (sample[:user] + sample[:system]) / sample[:operations], result[:sizes][:"#{sample[:size]}"][:cpu][:median]
    end
    assert_in_delta result[:samples].last[:wall], result[:wall][:median]
  end

  def assert_result(result, operations)
    assert_empty result[:failures]
    assert_equal 1, result[:samples].size
    sample = result[:samples].first

    assert_equal operations, sample[:operations]
    assert_operator sample[:wall], :>, 0
    assert_in_delta sample[:user] + sample[:system], result[:cpu][:median]
    assert_in_delta sample[:wall], result[:wall][:max]
  end

  def test_latencies_are_in_the_order_of_their_percentiles
    report("--scale", "0.01", "--rounds", "2", "--no-strace", "--peers", "eagain_epoll", "idle") do |table, json|
      result = json[:rows][:idle][:peers][:eagain_epoll]
      samples = result[:samples].map { |sample| sample[:latency].values_at(:p50, :p90, :p99, :max) }

      samples.each { |times| assert_equal times.sort, times }
      assert_operator samples.flatten.min, :>, 0
      assert_equal samples.map(&:first).minmax, result[:latency][:p50].values_at(:min, :max)
      assert_match(/^ .*p99 ms/, table)
    end
  end

  # A fiber or a thread has a stack of some pages, and what it does not touch costs nothing.
  def test_memory_of_each_task
    report("--scale", "0.03", "--rounds", "1", "--no-strace", "--peers", "threads,eagain_epoll", "memory_task") do |_, json|
      json[:rows][:memory_task][:peers].each_value do |result|
        assert_includes 2_000..200_000, result[:bytes_each][:median]
      end
    end
  end

  # An answer that is wrong, or does not come, is no result.
  def test_a_peer_that_loses_work_has_failed
    code = <<~RUBY
      require "#{File.expand_path("../../bench/harness/registry", __dir__)}"
      Bench.row("queues").prepend(Module.new { def consume(queue) = queue.pop })
      ARGV.replace(["threads", "queues", "0.001"])
      load "#{File.expand_path("../../bench/harness/child.rb", __dir__)}"
    RUBY
    answer, errors, status = Open3.capture3(RbConfig.ruby, "-e", code)

    assert_equal 1, status.exitstatus
    assert_empty answer
    assert_match(/Lost: 0 of 2000 operations arrived/, errors)
  end

  def test_median_and_spread_of_the_rounds
    report("--scale", "0.001", "--rounds", "4", "--no-strace", "--peers", "threads", "echo") do |_, json|
      result = json[:rows][:echo][:peers][:threads]
      walls = result[:samples].map { |sample| sample[:wall] }.sort

      assert_equal [1, 2, 3, 4], result[:samples].map { |sample| sample[:round] }
      assert_in_delta (walls[1] + walls[2]) / 2, result[:wall][:median]
      assert_equal walls.minmax, result[:wall].values_at(:min, :max)
      assert_in_delta 1.0, result[:ratio][:wall]
    end
  end

  CALL_PEERS = %w[stock eagain_try eagain_nonblock eagain_kgio].freeze

  def test_rows_of_single_calls
    rows = %w[would_block_socket would_block_pipe would_block_raised seqpacket small_try small_wait print]
    report("--scale", "0.0005", "--rounds", "1", "--no-strace", "--peers", CALL_PEERS.join(","), *rows) do |_, json|
      assert_empty(json[:peers].values.filter_map { |peer| peer[:unavailable] })
      rows.each do |name|
        row = json[:rows].fetch(name.to_sym)
        assert_includes row[:peers].keys, :stock
        assert_operator row[:peers].size, :>, 1
        row[:peers].each_value { |result| assert_result(result, row[:operations]) }
      end
    end
  end

  # A message through a pipe is at least one write and one read; two starts differ by some.
  def test_system_calls_per_operation
    skip "strace not installed" unless system("strace", "-V", out: File::NULL, err: File::NULL)
    report("--scale", "0.01", "--rounds", "1", "--peers", "threads", "pipes") do |_, json|
      calls = json[:rows][:pipes][:peers][:threads][:calls]

      assert_in_delta 1.0, calls[:by_name][:write], 0.05
      assert_operator calls[:by_name][:read], :>=, 0.95
      assert_operator calls[:total], :>=, 1.9
    end
  end

  # Those of several sizes, or of a disk, say so once for all.
  def test_system_calls_are_not_counted_where_that_says_nothing
    skip "strace not installed" unless system("strace", "-V", out: File::NULL, err: File::NULL)
    report("--scale", "0.001", "--rounds", "1", "--peers", "threads", "growth_tasks") do |table, json|
      assert_equal Bench.row("growth_tasks").untraced, json[:rows][:growth_tasks][:peers][:threads][:calls_note]
      assert_match(/^calls not counted: it is measured in several sizes$/, table)
    end
  end

  def test_a_peer_that_cannot_run_is_named_and_not_a_failure
    table, errors, status = bench("--scale", "0.001", "--rounds", "1", "--no-strace",
                                  "--peers", "threads,threads_mn", "echo")

    assert_predicate status, :success?, errors
    if RUBY_VERSION < "3.3"
      assert_includes table, "not measured: threads_mn: not on this Ruby"
    else
      refute_includes table, "not measured"
    end
  end

  # libev_scheduler may be installed or not; UringMachine needs a newer Ruby.
  def test_what_a_peer_cannot_do_is_named_with_the_reason
    libev, uring = %w[libev uringmachine].map { |name| Bench.peer(name) }
    table, errors, status = bench("--scale", "0.001", "--rounds", "1", "--no-strace",
                                  "--peers", "threads,libev,uringmachine", "echo")

    assert_predicate status, :success?, errors
    reasons = ["libev: libev_scheduler not installed: make bench-peers", "echo, libev: #{libev.cannot.fetch(:echo)}"]
    assert(reasons.any? { |reason| table.include?("not measured: #{reason}\n") }, table)
    assert_includes table, "not measured: uringmachine: needs Ruby #{uring.ruby}\n" unless uring.ruby?
  end

  def test_a_row_that_this_machine_cannot_do_is_named_and_not_a_failure
    table, errors, status = Open3.capture3({ "PATH" => "/nonexistent" }, RbConfig.ruby, RUN, "--scale", "0.001", "--rounds", "1",
                                           "--peers", "threads", "http_wrk", "spawn")

    assert_predicate status, :success?, errors
    assert_includes table, "not measured: row http_wrk: wrk is not installed (package wrk)\n"
    assert_match(/^spawn: /, table)
    assert_includes table, "calls not counted: strace not installed\n"
  end

  def test_a_row_without_its_server_or_its_gem_is_named
    Dir.mktmpdir do |folder|
      names = { { "PATH" => "/nonexistent" } => /row redis: redis-server is not installed/,
                { "EAGAIN_CACHE" => folder } => /row redis: (redis not installed: make bench-peers|redis-server is not)/ }
      names.each do |env, message|
        table, errors, status = Open3.capture3(env, RbConfig.ruby, RUN, "--scale", "0.001", "--rounds", "1", "--no-strace",
                                               "--peers", "threads", "redis", "spawn")

        assert_predicate status, :success?, errors
        assert_match message, table
      end
    end
  end

  # Its owner is killed, as by the system for want of memory: nobody is left to clean up but the guard.
  def test_a_server_ends_with_its_owner_however_that_ends
    skip Bench.service("redis").missing if Bench.service("redis").missing
    code = 'require ARGV.shift; Bench.service("redis").open { |env| puts env["BENCH_REDIS"]; $stdout.flush; sleep }'
    IO.popen([RbConfig.ruby, "-e", code, File.expand_path("../../bench/harness/registry", __dir__)]) do |owner|
      socket = owner.gets.chomp
      answer = UNIXSocket.open(socket) do |redis|
        redis.puts("PING")
        redis.gets
      end
      Process.kill(:KILL, owner.pid)
      deadline = Process.clock_gettime(Process::CLOCK_MONOTONIC) + 20
      Thread.pass while File.exist?(File.dirname(socket)) && Process.clock_gettime(Process::CLOCK_MONOTONIC) < deadline

      assert_equal "+PONG\r\n", answer
      refute_path_exists File.dirname(socket)
    ensure
      Process.kill(:KILL, owner.pid)
    end
  end

  # What was in memory says nothing of a disk.
  def test_a_read_that_is_not_cold_is_no_result
    row = Bench.row("file_random_cold").new(Bench.peer("threads").new.tap(&:setup), 0.05)
    skip row.missing if row.missing
    row.prepare
    row.call

    assert_equal row.operations, row.result
    row.instance_variable_set(:@before, row.send(:read_bytes))
    row.call

    assert_match(/\Aonly \d+ of \d+ bytes were read from the disk/, assert_raises(RuntimeError) { row.result }.message)
  end

  def test_yjit_is_there_or_refused
    if system(RbConfig.ruby, "--yjit", "-e", "exit RubyVM::YJIT.enabled?", err: File::NULL)
      report("--yjit", "--scale", "0.001", "--rounds", "1", "--no-strace", "--peers", "threads", "spawn") do |table, json|
        assert_equal "yjit", json[:peers][:threads][:jit]
        assert_match(/^JIT: yjit/, table)
      end
    else
      table, errors, status = bench("--yjit", "spawn")

      assert_equal [2, "", 1], [status.exitstatus, table, errors.lines.size]
      assert_match(/this Ruby has no YJIT/, errors)
    end
  end

  # As a program that never ends; it is not asked a second time.
  def test_a_peer_that_hangs_is_named_once
    table, _, status = bench("--scale", "50", "--rounds", "3", "--no-strace", "--timeout", "3", "--peers", "threads", "spawn")

    assert_equal 1, status.exitstatus
    assert_equal ["failed: spawn, threads: round 1: no answer after 3.0 s"], table.lines(chomp: true).grep(/failed/)
  end

  def test_wrong_usage_is_one_line_and_status_2
    [["--bogus"], ["nosuchrow"], ["--peers", "nosuchpeer"], ["--rounds", "0"], ["--json", "/nonexistent/x"],
     ["--html", "/nonexistent/x"]].each do |arguments|
      table, errors, status = bench(*arguments)

      assert_equal 2, status.exitstatus, arguments.inspect
      assert_empty table
      assert_equal 1, errors.lines.size, errors
    end
  end
end
