# frozen_string_literal: true

require_relative "helper"

# As many tasks and connections as people have.
class ScaleTest < EagainTest
  # Every fiber's stack takes two mappings. Raises the system's limit for the time of the block.
  def with_mappings(count)
    path = "/proc/sys/vm/max_map_count"
    only_one_of("eagain-max-map-count") do
      before = Integer(File.read(path))
      next yield if before >= count

      begin
        File.write(path, count)
      rescue SystemCallError => e
        skip "needs #{count} mappings, vm.max_map_count is #{before} (#{e.class})"
      end
      begin
        yield
      ensure
        File.write(path, before)
      end
    end
  end

  # The limit is the machine's, and another run of the tests may be at it, also in another root directory: an abstract socket is
  # seen from all of them, and goes with the process that has it.
  def only_one_of(name)
    lock = nil
    await("the other run's end") do
      lock = UNIXServer.new("\0#{name}")
    rescue Errno::EADDRINUSE
      false
    end
    yield
  ensure
    lock&.close
  end

  def test_a_hundred_thousand_sleeping_tasks
    only_ours
    free = File.read("/proc/meminfo")[/MemAvailable:\s*(\d+)/, 1].to_i / 1024
    skip "needs about 2.5 GB of memory, #{free} MB are free" if free < 2500
    with_mappings(300_000) do
      out = output_of(<<~'RUBY', timeout: 120)
        count = 100_000
        done = 0
        scheduler = Eagain::Scheduler.new
        Fiber.set_scheduler(scheduler)
        asleep = true
        count.times { Fiber.schedule { sleep 0.5 while asleep; done += 1 } }
        peak = scheduler.stats[:fibers]
        asleep = false
        scheduler.run
        p peak, done, scheduler.stats[:parked], scheduler.stats[:timers]
        exit!(0) if $stdout.flush
      RUBY
      peak, done, parked, timers = out.split.map(&:to_i)
      assert_equal [100_000, 100_000, 0, 0], [peak, done, parked, timers]
    end
  end

  def test_ten_thousand_tcp_connections_at_once
    raise_nofile(10_200)
    out = output_of(<<~RUBY, timeout: 120)
      require "socket"
      count = 10_000
      scheduler = #{PEER ? "Async::Scheduler" : "Eagain::Scheduler"}
      server = TCPServer.new("127.0.0.1", 0)
      server.listen(4096)
      port = server.local_address.ip_port

      # Each side is a process, so that each needs only half of the descriptors.
      clients = fork do
        server.close
        Fiber.set_scheduler(scheduler.new)
        right = 0
        count.times do |i|
          Fiber.schedule do
            client = TCPSocket.new("127.0.0.1", port)
            client.write([i].pack("N"))
            right += 1 if client.read(4).unpack1("N") == i * 2
            client.close
          end
        end
        Fiber.set_scheduler(nil)
        exit!(right == count ? 0 : 1)
      end

      open_at_once = 0
      Fiber.set_scheduler(scheduler.new)
      Fiber.schedule do
        everyone = Queue.new
        count.times do
          client = server.accept
          open_at_once += 1
          Fiber.schedule do
            number = client.read(4).unpack1("N")
            everyone.pop
            client.write([number * 2].pack("N"))
            client.close
          end
        end
        count.times { everyone << :here }
      end
      Fiber.set_scheduler(nil)
      Process.wait(clients)
      puts open_at_once, $?.exitstatus
    RUBY
    assert_equal "10000\n0\n", out
  end

  def test_many_tasks_come_and_go_without_leaking
    only_ours
    out = output_of(<<~'RUBY', timeout: 60)
      scheduler = Eagain::Scheduler.new
      Fiber.set_scheduler(scheduler)
      Fiber.schedule do
        100_000.times do |i|
          Fiber.schedule { sleep 0 if i.odd? }
          sleep 0.0001 if i % 1000 == 0
        end
      end
      scheduler.run
      GC.start
      puts [scheduler.stats[:fibers], scheduler.stats[:parked], scheduler.stats[:ready], ObjectSpace.each_object(Fiber).count < 5000].join(" ")
    RUBY
    assert_equal "0 0 0 true\n", out
  end

  # Where Ruby gives the stack of an ended fiber back at once, nobody has to collect it; elsewhere few are kept.
  # The Fiber, and its block with what that refers to: nothing of ours.
  def test_a_task_that_gives_way_allocates_what_a_fiber_does
    only_ours
    assert_child "0\n", <<~'RUBY'
      GC.disable
      Fiber.set_scheduler(Eagain::Scheduler.new)
      count = lambda do |&work|
        before = GC.stat(:total_allocated_objects)
        100.times(&work)
        GC.stat(:total_allocated_objects) - before
      end
      Fiber.schedule do
        plain = -> { count.call { Fiber.new { nil }.resume } }
        ours = -> { count.call { Fiber.schedule { sleep(0) } }.tap { sleep(0) } }
        2.times { plain.call; ours.call }
        p ours.call - plain.call
      end
    RUBY
  end

  def test_no_collection_where_the_program_has_disabled_it
    only_ours
    assert_child "0\n", <<~'RUBY'
      GC.disable
      Fiber.set_scheduler(Eagain::Scheduler.new)
      before = GC.count
      1000.times { Fiber.schedule { sleep 0 } }
      Fiber.scheduler.run
      2000.times { Fiber.schedule { sleep 0 } }
      Fiber.scheduler.run
      p GC.count - before
    RUBY
  end

  def test_stacks_of_ended_tasks_are_used_again
    only_ours
    skip "no /proc" unless File.readable?("/proc/self/maps")
    maps, collections, kept = output_of(<<~'RUBY').split.map(&:to_i)
      GC.disable
      stacks = -> { File.foreach("/proc/self/maps").count }
      pages = -> { File.read("/proc/self/statm").to_i }
      before = pages.call
      100.times { Fiber.new {}.transfer }
      kept = pages.call - before > 800
      GC.enable if kept
      Fiber.set_scheduler(Eagain::Scheduler.new)
      before = stacks.call
      collections = GC.count
      Fiber.schedule do
        1000.times do
          20.times { Fiber.schedule { sleep 0 } }
          sleep 0
        end
      end
      Fiber.scheduler.run
      puts stacks.call - before, GC.count - collections, kept ? 1 : 0
    RUBY
    assert_operator maps, :<, 2000
    assert_equal 0, collections if kept.zero?
  end
end
