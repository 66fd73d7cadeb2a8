# frozen_string_literal: true

require_relative "helper"

# Eagain::Stream and the garbage collector, at its worst moment.
class StreamGCTest < EagainTest
  # Lines, bytes, writes and waits, all of it checked; $collect is called in between and while tasks wait.
  WORK = <<~'RUBY'
    require "socket"
    Fiber.set_scheduler(Eagain::Scheduler.new)
    Fiber.schedule do
      a, b = UNIXSocket.pair
      near = Eagain::Stream.new(a, buffer_size: 64, timeout: 50.5, external_encoding: "UTF-8")
      far = Eagain::Stream.new(b, buffer_size: 100)
      lines = Array.new(5) { |i| "#{"line #{i} " * (i * 5)}\n" }
      done = []
      Fiber.schedule { done << lines.map { near.gets } }
      Fiber.schedule { done << near.readline("--end--", chomp: true) }
      $collect.call
      lines.each { |line| far << line.dup; far.flush; $collect.call }
      far.write("one", 2, :three, "--e"); far.flush; $collect.call
      far.print("nd--"); far.flush
      sleep 0.001 until done.size == 2
      done == [lines, "one2three"] or raise done.inspect
      buffer = +""
      Fiber.schedule { done << near.read_exact(500, buffer) << near.read(700) << near.peek(3) << near.read }
      $collect.call
      far.write("x" * 450); far.flush; $collect.call
      far.write("y" * 1000, "z" * 50); far.close_write; $collect.call
      sleep 0.001 until done.size == 6
      done[2..] == ["x" * 450 + "y" * 50, "y" * 700, "yyy", "y" * 250 + "z" * 50] or raise done.inspect
      Fiber.schedule { done << near.write("w" * 500_000.clamp(0, $large)) ; near.close }
      $collect.call
      got = +""
      far.each_line(10) { |part| got << part; $collect.call if got.size % 100_000 < 10 }
      got.size == $large or raise got.size.to_s
      begin
        r, _w = IO.pipe
        Eagain::Stream.new(r).gets(timeout: 0.001)
      rescue Eagain::TimeoutError
        puts "done"
      end
    end
    Fiber.set_scheduler(nil)
  RUBY

  def work(collect, large: 300_000)
    only_ours
    assert_child "done\n", "$collect = -> { #{collect} }; $large = #{large}\n#{WORK}", timeout: 90
  end

  def test_full_collections
    work("GC.start")
  end

  def test_compaction
    skip "this Ruby cannot compact here" unless compacts?
    work("GC.compact")
  end

  def test_verified_compaction
    skip "this Ruby cannot compact here" unless compacts?
    grow = RUBY_VERSION >= "3.2" ? "expand_heap: true" : "double_heap: true"
    work("GC.verify_compaction_references(#{grow}, toward: :empty)")
  end

  def test_stress
    work("GC.stress = true", large: 3000)
  end

  # What a stream refers to, as an old object refers to young ones.
  def test_write_barriers
    only_ours
    assert_child "ok\n", <<~'RUBY'
      require "socket"
      a, b = UNIXSocket.pair
      streams = Array.new(100) { Eagain::Stream.new(a) }
      4.times { GC.start }
      streams.each_with_index { |s, i| s.timeout = Rational(i + 1, 7); s.send(:initialize, UNIXSocket.pair[i % 2]) }
      GC.start(full_mark: false)
      Array.new(10_000) { +"garbage" * 10 }
      GC.start(full_mark: false)
      raise unless streams.each_with_index.all? { |s, i| s.timeout == Rational(i + 1, 7) && s.io.is_a?(UNIXSocket) && !s.closed? }
      puts "ok"
    RUBY
  end

  # A stream that nobody refers to takes its buffers and its IO along, whatever it holds.
  def test_streams_are_collected
    only_ours
    out = output_of(<<~'RUBY')
      require "socket"
      def resident = Integer(File.read("/proc/self/status")[/^VmRSS:\s+(\d+)/, 1])
      def make
        200.times do
          a, b = UNIXSocket.pair
          s = Eagain::Stream.new(a, buffer_size: 100_000)
          b.write("x" * 50_000)
          s.peek
          s.write("y" * 90_000)
        end
        GC.start
      end
      3.times { make }
      before = resident
      10.times { make }
      p resident - before < 20_000, Dir.children("/proc/self/fd").size < 500
    RUBY
    assert_equal "true\ntrue\n", out
  end

  # A thread that is raised in while it tells the others that it is their turn must tell them all the same: they would sleep for ever.
  def test_a_turn_is_passed_on_by_who_is_raised_in
    seed = Random.new_seed % 1_000_000
    out, err, status = child(<<~RUBY, timeout: 60)
      require "socket"
      require "timeout"
      random = Random.new(#{seed})
      100.times do
        a, b = UNIXSocket.pair
        from = Eagain::Stream.new(a, buffer_size: [10, 1000].sample(random: random))
        to = Eagain::Stream.new(b)
        writer = Thread.new { 150.times { |i| from.write("line \#{i} ", "x" * random.rand(5000), "\n") }.tap { from.close } }
        readers = Array.new(4) do
          Thread.new do
            loop { break unless Timeout.timeout(0.0003) { to.gets } }
          rescue Timeout::Error
            retry
          end
        end
        [writer, *readers].each(&:join)
        to.close
      end
      print "all ended"
    RUBY
    assert_equal ["all ended", true], [out, status.success?], "seed #{seed}\n#{err}"
  end
end
