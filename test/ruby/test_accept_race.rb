# frozen_string_literal: true

require_relative "helper"
require "io/nonblock"
require "io/wait"

# A listener in blocking mode that two processes share, as preforked workers may have it from their
# supervisor: poll(2) sees a connection, the other process takes it, and accept(2) waits for the next
# one. strace(1) makes room between the two calls.
class AcceptRaceTest < EagainTest
  # Seconds that poll(2) takes, and after which the other process takes the connection.
  POLL = 1.2
  TAKEN = 0.4

  # The process that comes too late. Says "try" before it asks, "waits" when it found the connection gone
  # and other threads run, and then how that ended.
  LATE = <<~'RUBY'
    require "socket"
    $stdout.sync = true
    number, verb, ending = Integer(ARGV[0]), ARGV[1], ARGV[2]
    if verb == "kgio_tryaccept"
      require "eagain/kgio"
      server = Kgio::TCPServer.for_fd(number)
    else
      server = TCPServer.for_fd(number)
    end
    descriptors = -> { Dir.children("/proc/self/fd").size }
    before = descriptors.call
    tries = lambda do
      puts "try"
      verb == "kgio_tryaccept" ? server.kgio_tryaccept : Eagain.tryaccept(server)
    end
    if ending == "signal" # into the main thread
      main = Thread.current
      Thread.new do
        Thread.pass until main.stop?
        sleep 0.2
        puts "waits"
        Process.kill(:INT, $$)
      end
      begin
        tries.call
        puts "no interrupt"
      rescue Interrupt => error
        puts error.class
      end
    else
      thread = Thread.new(&tries)
      thread.report_on_exception = false
      sleep 0.2
      puts thread.join(0.3) ? "missed" : "waits"
      case ending
      when "raise" then thread.raise(ArgumentError, "no more")
      when "kill" then thread.kill
      when "close" then server.close
      end
      begin
        puts thread.value.class
      rescue StandardError => error
        puts error.class
      end
      before -= 1 if ending == "close"
      before += 1 if ending == "connect"
    end
    puts descriptors.call - before
  RUBY

  def setup
    only_ours
    needs_strace
  end

  # How it is ended, and what the late process says then.
  { "connect" => "TCPSocket", "raise" => "ArgumentError", "kill" => "NilClass", "close" => "IOError",
    "signal" => "Interrupt" }.each do |ending, outcome|
    define_method("test_other_threads_run_while_accept_waits_until_#{ending}") do
      assert_equal ["waits", outcome, "0"], race("tryaccept", ending)
    end
  end

  def test_kgio_too
    assert_equal %w[waits Kgio::Socket 0], race("kgio_tryaccept", "connect")
    assert_equal %w[waits IOError 0], race("kgio_tryaccept", "close")
  end

  private

  # On a machine that is busy, both may be late.
  def race(verb, ending)
    3.times do
      said = race_once(verb, ending)
      return said unless said.first == "missed"
    end
    skip "the race could not be had"
  end

  def race_once(verb, ending)
    server = TCPServer.new("127.0.0.1", 0)
    server.nonblock = false
    client = TCPSocket.new("127.0.0.1", server.local_address.ip_port)
    r, w = IO.pipe
    pid = Process.spawn("strace", "-f", "-qq", "-o", File::NULL, "-e", "trace=poll", "-e",
                        "inject=poll:delay_exit=#{(POLL * 1e6).to_i}", RUBY, "-I#{LIB}", "-reagain", "-e", LATE,
                        server.fileno.to_s, verb, ending, server => server, out: w, pgroup: true)
    w.close
    assert_equal "try", line(r)
    sleep TAKEN
    return ["missed"] unless server.wait_readable(0)

    taken = server.accept
    said = [line(r)]
    return said if said.first == "missed"

    another = TCPSocket.new("127.0.0.1", server.local_address.ip_port) if ending == "connect"
    said.push(line(r), line(r))
  ensure
    Process.kill(:KILL, -pid) if pid
    Process.wait(pid) if pid
    close_all(server, client, taken, another, r)
  end

  def line(reader)
    assert reader.wait_readable(PATIENCE), "nothing was heard: all threads stand still"
    reader.gets&.chomp
  end
end
