# frozen_string_literal: true

require "json"
require_relative "helper"
require "eagain/doctor" unless PEER

# eagain doctor must tell the truth about this Ruby.
class DoctorTest < EagainTest
  EXE = File.join(ROOT, "exe", "eagain")

  def setup
    only_ours
  end

  def report
    @@report ||= JSON.parse(run_doctor("--json").first, symbolize_names: true)
  end

  def call(name)
    report[:calls].find { |call| call[:name].include?(name) } or flunk("no call #{name}")
  end

  def run_doctor(*arguments)
    out, err, status = run_command({}, RbConfig.ruby, EXE, "doctor", *arguments)
    assert_empty err
    assert_equal 0, status.exitstatus
    [out, status]
  end

  def test_machine_and_versions
    assert_equal Eagain::VERSION, report[:eagain][:version]
    assert_equal Eagain::Scheduler::INTERFACE_VERSION, report[:eagain][:interface]
    assert_equal RUBY_VERSION, report[:ruby][:version]
    assert_equal `uname -r`.chomp, report[:kernel][:release]
    assert_equal Fiber.respond_to?(:[]), report[:ruby][:fiber_storage]
  end

  def test_all_backends_work
    linux = RUBY_PLATFORM.include?("linux") ? ["io_uring"] : []
    assert_equal Eagain::BACKENDS | linux, report[:backends].map { |backend| backend[:name] }
    assert_equal backends, report[:backends].select { |backend| backend[:works] }.map { |backend| backend[:name] }
    assert_includes Eagain::BACKENDS, report[:eagain][:backend]
  end

  # As under Docker: a filter lets no io_uring_setup(2) through (BPF: load the call's number; if it is that, answer
  # with this error; else allow).
  def test_io_uring_that_is_forbidden_is_explained
    skip "no io_uring to forbid" unless backends.include?("io_uring")
    prctl = { "x86_64" => 157, "aarch64" => 167 }[RbConfig::CONFIG["host_cpu"]] or skip "the number of prctl(2) is not known here"
    { Errno::EPERM => /forbidden/, Errno::ENOSYS => /Linux 5\.13/ }.each do |error, reason|
      script = <<~RUBY
        filter = [[0x20, 0, 0, 0], [0x15, 0, 1, 425], [6, 0, 0, #{0x50000 + error::Errno}], [6, 0, 0, 0x7fff0000]]
        filter = filter.map { |instruction| instruction.pack("SCCL") }.join
        $VERBOSE = nil
        syscall(#{prctl}, 38, 1, 0, 0, 0)
        program = [filter.size / 8, filter].pack("Sx6P")
        syscall(#{prctl}, 22, 2, [program].pack("P").unpack1("J"))
        exec(*ARGV)
      RUBY
      out, err, status = run_command({ "EAGAIN_BACKEND" => nil }, RbConfig.ruby, "-e", script, RbConfig.ruby, EXE, "doctor", "--json")
      assert_equal 0, status.exitstatus, err
      told = JSON.parse(out, symbolize_names: true)
      assert_equal "epoll", told[:eagain][:backend]
      uring = told[:backends].find { |backend| backend[:name] == "io_uring" }
      assert_equal false, uring[:works]
      assert_match reason, uring[:why_not]
    end
  end

  def test_a_backend_that_cannot_be_made_is_explained
    assert_kind_of String, Eagain::Doctor::Probe.backend_error("nonsense")
  end

  def test_what_every_ruby_does_without_blocking
    ["Kernel#sleep", "IO#read", "IO#write", "accept", "connect", "recvfrom", "Queue#pop", "Mutex#lock", "Thread#join",
     "Process.wait", "system", "IO.popen", "getaddrinfo", "SSLSocket"].each do |name|
      assert_equal true, call(name)[:nonblocking], call(name).inspect
      refute_empty call(name)[:hooks] unless name == "system"
    end
  end

  # open(2) of a FIFO has no hook of its own; Ruby 3.4 has one for all that only blocks.
  def test_what_only_blocking_operation_wait_reaches
    fifo = call("FIFO")
    if Eagain::Scheduler.method_defined?(:blocking_operation_wait)
      assert_equal [true, ["blocking_operation_wait"]], fifo.values_at(:nonblocking, :hooks)
    else
      assert_equal false, fifo[:nonblocking]
      assert_match(/no scheduler hook/, fifo[:why_not])
      assert_match(/thread/, fifo[:advice])
    end
  end

  def test_nothing_is_unknown
    unknown = report[:calls].select { |call| call[:nonblocking].nil? && call[:why_not] !~ /not installed/ }
    assert_empty unknown
  end

  # What a program sees here, next to what the doctor said.
  def test_the_enumerator
    reader, writer = IO.pipe
    ran = false
    Eagain.run do
      task = Eagain.spawn { Enumerator.new { |y| y << reader.readpartial(1) }.next }
      Thread.new { sleep 0.1 and writer.write("x") }
      Eagain.spawn { ran = task.alive? }
    end
    assert_equal ran, call("Enumerator")[:nonblocking]
  ensure
    close_all(reader, writer)
  end

  def test_hooks
    hooks = report[:hooks].to_h { |hook| [hook[:name].to_sym, hook] }
    assert_equal Eagain::Doctor::HOOKS, hooks.keys
    hooks.each { |name, hook| assert_equal Eagain::Scheduler.method_defined?(name), hook[:defined], name }
    %i[kernel_sleep io_wait block process_wait address_resolve].each { |name| assert hooks[name][:reached], name }
  end

  def test_limits
    assert_equal Process.getrlimit(:NOFILE).first, report[:limits][:descriptors]
  end

  def test_text
    out, = run_doctor
    assert_match(/^eagain +#{Regexp.escape(Eagain::VERSION)}/, out)
    assert_match(/^  works  #{Eagain::BACKENDS.first}$/, out)
    assert_match(/^  yes  Kernel#sleep +\(kernel_sleep/, out)
    assert_match(/^  (?:NO |yes)  File\.open of a FIFO +\S/, out)
  end

  def test_leaves_no_files_behind
    files = -> { Dir.children(Dir.tmpdir).grep(/eagain-doctor/) }
    before = files.call
    run_doctor
    assert_equal before, files.call
  end
end
