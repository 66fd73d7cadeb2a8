# frozen_string_literal: true

require_relative "helper"

# fork in a task: the child starts clean and never disturbs the parent.
class ForkTest < EagainTest
  # Runs a script whose first line sets a scheduler.
  def assert_script(expected, script)
    name = PEER ? "Async::Scheduler" : "Eagain::Scheduler"
    assert_child expected, "$stdout.sync = true\nFiber.set_scheduler(#{name}.new)\n#{script}"
  end

  def test_child_uses_io_and_exits_while_the_parent_goes_on
    assert_script "child: hello\nparent: 7\n", <<~'RUBY'
      Fiber.schedule do
        r, w = IO.pipe
        pid = fork do
          w.close
          puts "child: #{r.read}"
          exit! 7
        end
        r.close
        sleep 0.01
        w.write("hello")
        w.close
        _, status = Process.wait2(pid)
        puts "parent: #{status.exitstatus}"
      end
    RUBY
  end

  def test_child_does_not_wake_or_steal_from_the_parent
    assert_script "parent read x\nparent slept\n", <<~'RUBY'
      r, w = IO.pipe
      Fiber.schedule { puts "parent read #{r.readpartial(1)}" }
      Fiber.schedule do
        pid = fork { w.close; r.close; exit!(0) }
        Process.wait(pid)
        w.write("x")
        sleep 0.01
        puts "parent slept"
      end
    RUBY
  end

  def test_child_starts_its_own_scheduler
    only_ours
    assert_script "child: 1 2 3\nparent: 0\n", <<~'RUBY'
      Fiber.schedule do
        pid = fork do
          Thread.new do
            seen = []
            Fiber.set_scheduler(Eagain::Scheduler.new)
            [3, 1, 2].each { |n| Fiber.schedule { sleep n * 0.01; seen << n } }
            Fiber.set_scheduler(nil)
            puts "child: #{seen.join(" ")}"
          end.join
          exit!(0)
        end
        _, status = Process.wait2(pid)
        puts "parent: #{status.exitstatus}"
      end
    RUBY
  end

  def test_child_runs_a_server_of_its_own
    only_ours
    assert_script "answer: HELLO\n", <<~'RUBY'
      require "socket"
      Fiber.schedule do
        server = TCPServer.new("127.0.0.1", 0)
        pid = fork do
          Thread.new do
            Fiber.set_scheduler(Eagain::Scheduler.new)
            Fiber.schedule do
              peer = server.accept
              peer.write(peer.gets.upcase)
              peer.close
            end
            Fiber.set_scheduler(nil)
          end.join
          exit!(0)
        end
        client = TCPSocket.new("127.0.0.1", server.local_address.ip_port)
        client.puts("hello")
        puts "answer: #{client.read}"
        Process.wait(pid)
      end
    RUBY
  end

  def test_fork_outside_of_a_fiber
    only_ours
    assert_child "child\nparent\n", <<~'RUBY'
      $stdout.sync = true
      scheduler = Eagain::Scheduler.new
      Fiber.set_scheduler(scheduler)
      Fiber.schedule { sleep 0.05; puts "parent" }
      pid = fork do
        puts "child"
        exit!(0)
      end
      Process.wait(pid)
    RUBY
  end

  def test_child_that_ends_normally_does_not_run_the_tasks_of_the_parent
    only_ours
    out, err, status = child(<<~'RUBY')
      $stdout.sync = true
      Fiber.set_scheduler(Eagain::Scheduler.new)
      Fiber.schedule { sleep 0.02; puts "task of #{Process.pid == $parent ? "parent" : "child"}" }
      $parent = $$
      Fiber.schedule { pid = fork { puts "child" }; Process.wait(pid); puts "waited #{$?.exitstatus}" }
    RUBY
    assert status.success?, err
    assert_equal ["child", "task of parent", "waited 0"], out.lines(chomp: true).sort
  end

  def test_descriptors_are_not_inherited_by_commands
    only_ours
    script = <<~'RUBY'
      Fiber.set_scheduler(Eagain::Scheduler.new)
      Fiber.schedule do
        sleep 0.001
        puts `ls -l /proc/self/fd`.scan(/eventpoll|eventfd|pidfd|io_uring|timerfd/).inspect
      end
    RUBY
    assert_child "[]\n", script
  end

  def test_forks_in_a_row
    assert_script "0 1 2 3 4 5 6 7 8 9\n", <<~'RUBY'
      jobs = Array.new(10) do |i|
        status = nil
        Fiber.schedule { status = Process.wait2(fork { exit!(i) }).last.exitstatus; $seen = ($seen || []) << status }
      end
      Fiber.scheduler.run
      puts $seen.sort.join(" ")
    RUBY
  end
end
