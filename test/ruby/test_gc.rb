# frozen_string_literal: true

require_relative "helper"

# The garbage collector, at its worst moment, during every kind of wait.
class GCTest < EagainTest
  # Parks a task in every kind of wait, calls $collect while they are parked, then lets all go.
  WAITS = <<~'RUBY'
    require "socket"
    require "timeout"
    $done = []
    def job(name) = Fiber.schedule { yield; $done << name }
    Fiber.set_scheduler(SCHEDULER.new)
    Fiber.schedule do
      r, w = IO.pipe
      full_r, full_w = IO.pipe
      nil while full_w.write_nonblock("x" * 4096, exception: false) != :wait_writable
      a, b = UNIXSocket.pair
      server = TCPServer.new("127.0.0.1", 0)
      clients = []
      queue = Queue.new
      sized = SizedQueue.new(1)
      sized << 0
      mutex = Mutex.new
      mutex.lock
      cond_mutex = Mutex.new
      condition = ConditionVariable.new
      gate_r, gate_w = IO.pipe
      pid = spawn("cat", in: gate_r)
      thread_gate = Queue.new
      thread = Thread.new { thread_gate.pop }
      go = false

      job(:pipe) { r.readpartial(10) == "pipe" or raise }
      job(:full) { full_w.write("y" * 10_000) == 10_000 or raise }
      job(:socket) { a.gets == "line\n" or raise }
      job(:wait) { a.wait_writable or raise }
      job(:accept) { server.accept.close }
      job(:queue) { queue.pop == 1 or raise }
      job(:sized) { sized << 1 }
      job(:mutex) { mutex.synchronize { 1 } }
      job(:condition) { cond_mutex.synchronize { condition.wait(cond_mutex) } }
      job(:process) { Process.wait(pid) == pid or raise }
      job(:thread) { thread.value == :value or raise }
      job(:sleep) { sleep 0.001 until go }
      job(:timeout) { begin; Timeout.timeout(0.005) { sleep }; rescue Timeout::Error; end }
      job(:dns) { Addrinfo.getaddrinfo("localhost", 80).size > 0 or raise }
      job(:file) { File.read("/etc/hosts").size > 0 or raise }
      job(:select) { IO.select([server], nil, nil, 0) }
      job(:nested) { Fiber.new { sleep 0.001; Fiber.yield; }.resume }
      $collect.call
      sleep 0.002
      $collect.call
      w.write("pipe"); $collect.call
      full_r.read(65_536); $collect.call
      b.puts("line"); $collect.call
      clients << TCPSocket.new("127.0.0.1", server.local_address.ip_port); $collect.call
      queue << 1; $collect.call
      sized.pop; $collect.call
      mutex.unlock; $collect.call
      cond_mutex.synchronize { condition.signal }; $collect.call
      gate_r.close; gate_w.close; $collect.call
      thread_gate << :value; $collect.call
      go = true
    end
    Fiber.set_scheduler(nil)
    puts $done.sort.join(" ")
  RUBY
  ALL = "accept condition dns file full mutex nested pipe process queue select sized sleep socket thread timeout wait\n"

  def waits(collect)
    prelude = "SCHEDULER = #{PEER ? "Async::Scheduler" : "Eagain::Scheduler"}\n$collect = -> { #{collect} }\n"
    assert_child ALL, prelude + WAITS, timeout: 90
  end

  def test_every_wait_without_collecting
    waits("nil")
  end

  def test_full_collections_while_waiting
    waits("GC.start")
  end

  def test_compaction_while_waiting
    skip "this Ruby cannot compact here" unless compacts?
    waits("GC.compact")
  end

  def test_verified_compaction_while_waiting
    skip "this Ruby cannot compact here" unless compacts?
    grow = RUBY_VERSION >= "3.2" ? "expand_heap: true" : "double_heap: true"
    waits("GC.verify_compaction_references(#{grow}, toward: :empty)")
  end

  # Ruby 3.1's automatic compaction leaves stale entries in the interpreter's own table of call caches (rb_vm_t's
  # global_cc_cache_table, which C calls such as rb_funcall fill), and the next GC aborts when it marks one. Whether it
  # does depends on where objects happen to lie. GC.compact and verified compaction are tested there all the same.
  def test_automatic_compaction
    skip "this Ruby cannot compact here" unless compacts?
    skip "automatic compaction of Ruby 3.1 aborts by itself" if RUBY_VERSION < "3.2"
    waits("GC.auto_compact = true; GC.start")
  end

  def test_stress
    waits("GC.stress = true")
  end

  def test_stress_in_a_loop_of_switches
    script = <<~RUBY
      Fiber.set_scheduler(#{PEER ? "Async::Scheduler" : "Eagain::Scheduler"}.new)
      r, w = IO.pipe
      seen = []
      Fiber.schedule { seen << r.readpartial(3) until r.eof? }
      Fiber.schedule { 20.times { |i| w.write(i.to_s); sleep 0 }; w.close }
      GC.stress = true
      Fiber.scheduler.run
      GC.stress = false
      puts seen.join == (0...20).to_a.join
    RUBY
    out = output_of(script, timeout: 90)
    assert_equal "true\n", out
  end

  def test_a_scheduler_that_nobody_refers_to_is_collected
    only_ours
    out = output_of(<<~'RUBY')
      def make
        Thread.new do
          Fiber.set_scheduler(Eagain::Scheduler.new)
          Fiber.schedule { sleep 0.0001 }
          Fiber.set_scheduler(nil)
        end.join
      end
      50.times { make }
      4.times { GC.start; Array.new(1000) { +"" } }
      puts ObjectSpace.each_object(Eagain::Scheduler).count < 10, Dir.children("/proc/self/fd").size < 30
    RUBY
    assert_equal "true\ntrue\n", out
  end

  def test_abandoned_schedulers_with_parked_fibers
    only_ours
    out = output_of(<<~'RUBY')
      20.times do
        thread = Thread.new do
          Fiber.set_scheduler(Eagain::Scheduler.new)
          r, _w = IO.pipe
          Fiber.schedule { r.read }
          Fiber.schedule { sleep }
          Fiber.scheduler.run
        end
        sleep 0.001
        thread.kill.join
      end
      4.times { GC.start; Array.new(1000) { +"" } }
      puts "alive"
    RUBY
    assert_equal "alive\n", out
  end
end
