# frozen_string_literal: true

require_relative "helper"
require "open3"

# Subprocesses. Each child waits for something that another task does, so that a call that blocked
# the thread would never return.
class ProcessTest < EagainTest
  # Yields the read end of a pipe that a task closes a little later.
  def gate
    schedule do
      r, w = IO.pipe
      task do
        sleep 0.005
        w.close
      end
      yield r
      r.close
    end
  end

  def test_system
    gate { |r| assert_equal true, system("cat; exit 0", in: r) }
    gate { |r| assert_equal false, system("cat; exit 3", in: r) }
    schedule do
      assert_nil system("/no/such/program")
      assert_raises(Errno::ENOENT) { system("/no/such/program", exception: true) }
      system("exit 4")
      assert_equal 4, $?.exitstatus
    end
  end

  def test_backticks
    schedule do
      assert_equal "out\n", `echo out`
      assert_equal 0, $?.exitstatus
      ticks = 0
      job = task { `sleep 0.05; echo late` }
      until job.done?
        sleep 0.001
        ticks += 1
      end
      assert_equal "late\n", job.value
      assert_operator ticks, :>, 2
    end
  end

  def test_process_wait
    gate do |r|
      pid = spawn("cat; exit 5", in: r)
      assert_equal pid, Process.wait(pid)
      assert_equal 5, $?.exitstatus
      assert_equal pid, $?.pid
    end
  end

  def test_process_wait2_and_waitpid2
    gate do |r|
      pid = spawn("cat; exit 6", in: r)
      waited, status = Process.wait2(pid)
      assert_equal [pid, 6], [waited, status.exitstatus]
    end
  end

  # In a fresh process, where "any child" is ours.
  def test_waitpid_of_any_child
    assert_child "7 2 1\nErrno::ECHILD\n", <<~RUBY
      Fiber.set_scheduler(#{PEER ? "Async::Scheduler" : "Eagain::Scheduler"}.new)
      statuses = []
      Fiber.schedule do
        r, w = IO.pipe
        Fiber.schedule { sleep 0.005; w.close }
        pid = spawn("cat; exit 7", in: r)
        waited, status = Process.waitpid2(-1)
        statuses << status.exitstatus if waited == pid

        # Of two, the first to end is reported, and the other is still there to be waited for.
        gate_r, gate_w = IO.pipe
        slow = spawn("cat; exit 1", in: gate_r)
        quick = spawn("exit 2")
        waited, status = Process.wait2
        statuses << status.exitstatus if waited == quick
        gate_w.close
        statuses << Process.wait2(slow).last.exitstatus
        puts statuses.join(" ")
        begin
          Process.wait(-1)
        rescue SystemCallError => e
          puts e.class
        end
      end
    RUBY
  end

  def test_wait_with_nohang
    gate do |r|
      pid = spawn("cat", in: r)
      assert_nil Process.wait(pid, Process::WNOHANG)
      assert_equal pid, Process.wait(pid)
    end
  end

  def test_wait_for_a_child_killed_by_a_signal
    schedule do
      pid = spawn("sleep 30")
      waiter = task { Process.wait2(pid).last }
      Process.kill(:TERM, pid)
      await("wait") { waiter.done? }
      assert_equal Signal.list["TERM"], waiter.value.termsig
    end
  end

  def test_wait_for_a_process_that_is_not_a_child
    schedule { assert_raises(Errno::ECHILD) { Process.wait(1) } }
  end

  def test_wait_for_a_child_that_has_ended_already
    schedule do
      pid = spawn("exit 2")
      sleep 0.05
      assert_equal 2, Process.wait2(pid).last.exitstatus
    end
  end

  def test_many_children_at_once
    schedule do
      jobs = Array.new(20) { |i| task { Process.wait2(spawn("exit #{i}")).last.exitstatus } }
      await("children") { jobs.all?(&:done?) }
      assert_equal (0...20).to_a, jobs.map(&:value)
    end
  end

  def test_detach
    gate do |r|
      waiter = Process.detach(spawn("cat; exit 8", in: r))
      assert_equal 8, waiter.value.exitstatus
    end
  end

  def test_status_wait
    gate do |r|
      pid = spawn("cat; exit 9", in: r)
      status = Process::Status.wait(pid)
      assert_equal [pid, 9], [status.pid, status.exitstatus]
    end
  end

  def test_popen
    schedule do
      IO.popen("cat", "r+") do |io|
        io.puts("through cat")
        io.close_write
        assert_equal "through cat\n", io.read
      end
      assert_equal 0, $?.exitstatus
      assert_equal "argv\n", IO.popen(%w[echo argv], &:read)
    end
  end

  def test_popen_in_parallel
    schedule do
      data = "x" * 200_000
      jobs = Array.new(4) do
        task do
          IO.popen("cat", "r+") do |io|
            writer = task do
              io.write(data)
              io.close_write
            end
            result = io.read
            await("writer") { writer.done? }
            result.bytesize
          end
        end
      end
      await("cats") { jobs.all?(&:done?) }
      assert_equal [200_000] * 4, jobs.map(&:value)
    end
  end

  def test_open3_capture3
    schedule do
      jobs = Array.new(5) do |i|
        task { Open3.capture3("cat; echo error#{i} >&2; exit #{i}", stdin_data: "in#{i}") }
      end
      await("captures") { jobs.all?(&:done?) }
      jobs.each_with_index do |job, i|
        out, err, status = job.value
        assert_equal ["in#{i}", "error#{i}\n", i], [out, err, status.exitstatus]
      end
    end
  end

  def test_open3_popen3
    schedule do
      Open3.popen3("cat; echo err >&2") do |stdin, stdout, stderr, waiter|
        stdin.puts("in")
        stdin.close
        assert_equal "in\n", stdout.read
        assert_equal "err\n", stderr.read
        assert waiter.value.success?
      end
    end
  end

  def test_open3_pipeline
    schedule do
      out, statuses = Open3.pipeline_r("echo abc", "tr a-c A-C")
      assert_equal "ABC\n", out.read
      out.close
      assert(statuses.all? { |thread| thread.value.success? })
    end
  end

  def test_spawn_with_redirections
    Tempfile.create("out") do |file|
      schedule do
        Process.wait(spawn("echo to-file; echo err >&2", out: file.path, err: File::NULL))
        assert_equal "to-file\n", File.read(file.path)
      end
    end
  end

  # The thread that waits for it goes with the fiber that asked. (In a process that has no other child.)
  def test_waiting_for_any_child_can_be_given_up
    only_ours
    assert_child "3 given up\nreaped\n", <<~'RUBY'
      require "timeout"
      child = spawn("sleep 0.4")
      given_up = 3.times.count do
        Eagain.run do
          Timeout.timeout(0.02) { Process.wait(-1) }
          false
        rescue Timeout::Error
          true
        end
      end
      puts "#{given_up} given up"
      GC.start
      puts "reaped" if Process.wait == child
      Eagain.run { sleep 0 }
    RUBY
  end

  def test_no_descriptors_are_left
    schedule do
      3.times { system("true") }
      before = Dir.children("/proc/self/fd").size
      20.times { Process.wait(spawn("true")) }
      20.times { `true` }
      assert_operator Dir.children("/proc/self/fd").size, :<=, before
    end
  end
end
