# frozen_string_literal: true

require_relative "helper"

# A descriptor is not its number: numbers are closed and given to something else all the time, and a
# task must never see what was meant for another, nor miss what was meant for it.
class ReuseTest < EagainTest
  ROUNDS = Integer(ENV.fetch("EAGAIN_ROUNDS", 10_000))

  # A pair of sockets whose first end has the given number, where the kernel lets us have it.
  def pair_at(number)
    a, b = UNIXSocket.pair
    return [a, b] if a.fileno == number
    return [b, a] if b.fileno == number

    [a, b]
  end

  def read_or_closed(io)
    io.readpartial(10)
  rescue IOError => e
    e.is_a?(EOFError) ? :eof : :closed
  end

  # Closes (with the block) a socket that a task waits for, and opens another one with its number.
  def close_and_open_with_the_same_number
    reused = 0
    schedule(timeout: 120) do
      ROUNDS.times do |round|
        a, b = UNIXSocket.pair
        first = task { read_or_closed(a) }
        number = a.fileno
        yield a
        c, d = pair_at(number)
        reused += 1 if c.fileno == number
        third = task { read_or_closed(c) }
        d.write(round.to_s)
        await("third, round #{round}") { third.done? }
        assert_equal round.to_s, third.value
        await("first, round #{round}") { first.done? }
        assert_equal :closed, first.value
        close_all(b, c, d)
      end
    end
    assert_operator reused, :>, ROUNDS * 9 / 10, "the kernel did not reuse numbers: the test shows nothing"
  end

  def test_close_and_open_with_the_same_number_while_a_task_waits
    close_and_open_with_the_same_number(&:close)
  end

  def test_close_in_another_thread_and_open_with_the_same_number
    closing = Queue.new
    closed = Queue.new
    closer = Thread.new do
      while (io = closing.pop)
        io.close
        closed << true
      end
    end
    close_and_open_with_the_same_number do |io|
      closing << io
      closed.pop
    end
  ensure
    closing << nil
    closer.join
  end

  def test_numbers_reused_without_a_waiter
    schedule(timeout: 120) do
      ROUNDS.times do |round|
        a, b = UNIXSocket.pair
        reader = task { read_or_closed(a) }
        b.write(round.to_s)
        await("reader, round #{round}") { reader.done? }
        assert_equal round.to_s, reader.value
        b.write("unread: the readiness of the old socket must not be taken for that of the new") if round.even?
        close_all(a, b)
      end
    end
  end

  # What was a file, and needed no wait, is a pipe now; the IO does not own its number, so that no id tells.
  { "read" => "b.readpartial(10)", "written" => "a.write('*' * 100_000)" }.each do |verb, call|
    define_method("test_a_pipe_#{verb}_by_an_io_without_a_number_of_its_own_where_a_file_was") do
      assert_child "ended\n", <<~RUBY, timeout: 20
        require "io/nonblock"
        require "tempfile"
        Fiber.set_scheduler(#{PEER ? "Async::Scheduler" : "Eagain::Scheduler"}.new)
        Fiber.schedule do
          files = Array.new(2) { Tempfile.create("eagain", File.directory?("/dev/shm") ? "/dev/shm" : nil) }
          files.each do |file|
            file.sync = true
            2.times { file.write("0123456789") }
            file.rewind
            3.times { file.readpartial(5) }
            File.unlink(file.path)
          end
          numbers = files.map(&:fileno)
          files.each(&:close)
          pipe = IO.pipe.each { |io| io.nonblock = false }
          pipe.map(&:fileno).sort == numbers.sort or raise "other numbers"
          b, a = pipe.map { |io| IO.for_fd(io.fileno, io == pipe[1] ? "w" : "r", autoclose: false) }
          a.sync = true
          Fiber.schedule { #{call} }
          Fiber.schedule { #{verb == "read" ? "a.write('data')" : "b.read(100_000)"} }
        end
        Fiber.set_scheduler(nil)
        puts "ended"
      RUBY
    end
  end

  def test_sockets_collected_by_the_garbage_collector
    schedule(timeout: 120) do
      (ROUNDS / 100).times do |batch|
        100.times do |i|
          a, b = UNIXSocket.pair
          reader = task { read_or_closed(a) }
          b.write("#{batch}.#{i}")
          await("reader #{batch}.#{i}") { reader.done? }
          assert_equal "#{batch}.#{i}", reader.value
          # Neither is closed: the collector does it, in no order, whenever it likes.
        end
        GC.start
      end
    end
  end

  # Runs the rounds in parallel batches, as a waiter may be woken late by design.
  def in_batches(rounds, size)
    (rounds / size).times do |batch|
      pending = Array.new(size) { |i| yield((batch * size) + i) }
      await("batch #{batch}") { pending.all? { |job, _| job.done? } }
      pending.each do |job, expected, *ios|
        assert_equal expected, job.value
        close_all(ios)
      end
    end
  end

  def test_reopen_while_a_task_waits
    raise_nofile(12_000)
    schedule(timeout: 120) do
      in_batches(ROUNDS, 1000) do |round|
        r, w = IO.pipe
        reader = task { read_or_closed(r) }
        other_r, other_w = IO.pipe
        r.reopen(other_r)
        other_w.write(round.to_s)
        [reader, round.to_s, r, w, other_r, other_w]
      end
    end
  end

  # dup2(2) onto the number, through an IO that the waiting task does not know.
  def test_dup2_while_a_task_waits
    raise_nofile(12_000)
    schedule(timeout: 120) do
      in_batches(ROUNDS, 1000) do |round|
        r, w = IO.pipe
        reader = task { read_or_closed(r) }
        other_r, other_w = IO.pipe
        IO.for_fd(r.fileno, autoclose: false).reopen(other_r)
        other_w.write(round.to_s)
        [reader, round.to_s, r, w, other_r, other_w]
      end
    end
  end

  # All of the above in random order, many tasks at once.
  def test_random_reuse_by_many_tasks
    random = Random.new(seed)
    seeds = Array.new(20) { random.rand(1 << 30) }
    schedule(timeout: 120) do
      jobs = seeds.map { |value| task { play(Random.new(value), ROUNDS / 100) } }
      await("all players") { jobs.all?(&:done?) }
    end
  end

  private

  def play(random, moves)
    moves.times do |move|
      a, b = random.rand(2).zero? ? UNIXSocket.pair : IO.pipe
      text = "#{move}:#{random.rand(1000)}"
      job = task { read_or_closed(a) }
      case random.rand(5)
      when 0
        b.write(text)
        expected = [text]
      when 1
        a.close
        expected = [:closed]
      when 2
        b.close
        expected = [:eof]
      when 3
        sleep 0
        b.write(text)
        sleep 0 if random.rand(2).zero?
        a.close
        expected = [text, :closed]
      else
        Thread.new { b.write(text) }.join
        expected = [text]
      end
      await("move #{move}") { job.done? }
      assert_includes expected, job.value
      random.rand(3).zero? ? (a = b = nil) : close_all(a, b)
      GC.start(full_mark: false) if random.rand(50).zero?
    end
  end
end
