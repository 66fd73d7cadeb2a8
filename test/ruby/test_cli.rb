# frozen_string_literal: true

require "json"
require_relative "helper"

# exe/eagain as its users see it: output, errors and status, next to those of ruby.
class CLITest < EagainTest
  EXE = File.join(ROOT, "exe", "eagain")

  # Name => a script that must do under eagain run what it does under ruby, to the byte. Those in
  # STDIN are also given on standard input.
  SCRIPTS = {
    names: <<~'RUBY',
      p __FILE__, $0, $PROGRAM_NAME, ARGV, __dir__, __method__, self
      puts "main" if __FILE__ == $0
    RUBY
    toplevel: <<~'RUBY',
      X = 1
      def helper = 2
      private def other = 3
      using(Module.new { refine(Integer) { def refined = 4 } })
      p Object.const_get(:X), Object.private_method_defined?(:helper), other, 3.refined
      local = 5
      p binding.local_variables, (define_method(:x) {} rescue $!.class)
    RUBY
    return: "puts 1\nreturn\nputs 2\n",
    blocks: "END { puts :end }\nBEGIN { puts :begin }\nat_exit { puts :at_exit }\nputs __LINE__\n",
    magic: "# encoding: utf-8\n# frozen_string_literal: true\np \"a\".frozen?, __ENCODING__\n\"a\" << \"b\"\n",
    data: "x = <<A\n__END__\nA\np x\np DATA.read, DATA.class\n__END__\nhello\nwörld\n",
    data_crlf: "p DATA.read\r\n__END__\r\nhello\r\n",
    no_data: "p defined?(DATA)\nx = <<A\n__END__\nA\n",
    empty: "",
    relative: "require_relative \"part\"\np Part::VALUE, $LOADED_FEATURES.grep(/part/).size\n",
    syntax_error: "puts 1\nif true\n  foo(\n",
    syntax_error_encoding: "puts \"\\xff\"\nputs )\n",
    uncaught: "def deep(n) = n == 0 ? raise(ArgumentError, \"two\\nlines\") : deep(n - 1)\ndeep(3)\n",
    cause: "def a = Integer(\"x\")\nbegin\n  a\nrescue => e\n  raise KeyError, \"outer\"\nend\n",
    name_error: "nil.foo(1)\n",
    did_you_mean: "[].frist\n",
    in_a_block: "[1].each { |x| {a: 1}.each { raise \"deep\" } }\n",
    in_initialize: "class Foo; def initialize; raise \"bad\"; end; end\nFoo.new\n",
    throw: "throw :foo\n",
    load_error: "require \"nonexistent\"\n",
    frozen_error: "E = RuntimeError.new(\"frozen\").freeze\nraise \"x\" rescue raise \"y\"\n",
    message_fails: "class E < StandardError; def message = raise(\"no\"); end\nraise E\n",
    warning: "warn \"w\", uplevel: 0\n$stderr.puts \"e\"\n",
    exit: "at_exit { puts 1 }\nat_exit { p $!.class, $!.status }\nbegin; exit 3; ensure; puts 2; end\n",
    exit_true: "exit true\n",
    exit_false: "exit false\n",
    exit_bang: "at_exit { puts :never }\nexit! 4\n",
    exit_subclass: "class E < SystemExit; end\nraise E.new(9, \"x\")\n",
    abort: "abort \"oops\"\n",
    abort_in_rescue: "begin; raise \"x\"; rescue; abort; end\n",
    frames: "p caller, caller(0)\nbegin; [1].each { raise \"x\" }; rescue => e; puts e.backtrace, e.full_message(highlight: false); end\n",
    at_exit_exits: "at_exit { exit 7 }\nraise \"boom\"\n",
    at_exit_raises: "at_exit { raise \"later\" }\nraise \"first\"\n",
    at_exit_sees: "at_exit { puts $!.backtrace, $!.message }\ndef m = raise(\"boom\")\nm\n",
    term: "begin; Process.kill(:TERM, $$); sleep 5; ensure; puts :ensure; end\n",
    int: "begin; Process.kill(:INT, $$); sleep 5; ensure; puts :ensure; end\n",
    int_later: "Thread.new { sleep 0.1; Process.kill(:INT, $$) }\nsleep\n",
    usr1: "Process.kill(:USR1, $$); sleep 5\n",
    kill: "Process.kill(:KILL, $$); sleep 5\n",
    trap: "trap(:INT) { puts :trapped; exit 5 }\nProcess.kill(:INT, $$)\nsleep 5\n",
    rescue_interrupt: "begin; Process.kill(:INT, $$); sleep 5; rescue Interrupt; puts :bye; end\n",
    thread_fails: "Thread.report_on_exception = false\nThread.new { raise \"in a thread\" }.join\n",
    thread_exits: "Thread.new { exit 6 }\nsleep 5\nputs :never\n",
    stack: "def f = f\nbegin; f; rescue SystemStackError => e; puts e.class; end\n",
    fork: "$stdout.sync = true\nProcess.wait(fork { puts :child; exit 8 })\nexit $?.exitstatus\n",
    stdin: "p $stdin.read\n"
  }.freeze
  STDIN = %i[names toplevel return data data_crlf no_data syntax_error uncaught cause exit abort term at_exit_sees].freeze

  def setup
    only_ours
    @directory = Dir.mktmpdir
    File.write(File.join(@directory, "part.rb"), "module Part; VALUE = __FILE__; end\n")
  end

  def teardown
    FileUtils.remove_entry(@directory) if @directory
  end

  SCRIPTS.each do |name, script|
    define_method("test_run_#{name}") do
      path = write("#{name}.rb", script)
      assert_same_as_ruby(path, "a", "--help")
    end
  end

  STDIN.each do |name|
    define_method("test_run_#{name}_on_standard_input") do
      assert_same_as_ruby("-", "a", "--help", input: write("#{name}.rb", SCRIPTS.fetch(name)))
    end
  end

  def test_run_keeps_the_path_as_given
    write("names.rb", SCRIPTS[:names])
    ["./names.rb", File.join(@directory, "names.rb")].each { |path| assert_same_as_ruby(path) }
  end

  def test_run_ignores_the_load_path
    write("set.rb", "puts :mine\n")
    assert_same_as_ruby("set.rb")
  end

  def test_run_runs_inside_a_loop
    write("script.rb", <<~'RUBY')
      order = []
      Eagain.spawn { sleep 0.01; order << 2; p order }
      order << 1
      p Fiber.current_scheduler.class, Eagain.spawn { 3 }.value
      at_exit { p Fiber.current_scheduler, order }
    RUBY
    out, err, status = eagain("run", "script.rb")
    assert_equal "Eagain::Scheduler\n3\n[1, 2]\nnil\n[1, 2]\n", out, err
    assert_predicate status, :success?
  end

  def test_run_exit_in_a_task_ends_the_script
    write("script.rb", "Eagain.spawn { exit 3 }\nbegin; sleep 60; ensure; puts :ensure; end\n")
    out, err, status = eagain("run", "script.rb")
    assert_equal ["ensure\n", "", 3], [out, err, status.exitstatus]
  end

  def test_run_exit_in_a_task_after_the_end_of_the_script
    write("script.rb", <<~RUBY)
      Eagain.spawn { sleep 0.01; exit 3 }
      Eagain.spawn { begin; sleep 60; ensure; puts :ensure; end }
    RUBY
    out, err, status = eagain("run", "script.rb")
    assert_equal ["ensure\n", "", 3], [out, err, status.exitstatus]
  end

  def test_run_cancels_the_tasks_when_the_script_fails
    write("script.rb", "Eagain.spawn { begin; sleep 60; ensure; puts :ensure; end }\nsleep 0.01\nraise \"boom\"\n")
    out, err, status = eagain("run", "script.rb")
    assert_equal ["ensure\n", 1], [out, status.exitstatus], err
    assert_match(/\Ascript.rb:3:in .*<main>.*: boom \(RuntimeError\)\n\z/, err)
  end

  def test_run_reports_a_failed_task_and_goes_on
    write("script.rb", "Eagain.spawn(name: \"t\") { raise \"boom\" }\nsleep 0.01\nputs :end\n")
    out, err, status = eagain("run", "script.rb")
    assert_equal ["end\n", 0], [out, status.exitstatus]
    assert_match(/\A#<Eagain::Task:0x\h+@t script.rb:1 run> terminated with exception/, err)
  end

  def test_run_sigterm_cancels_the_tasks
    write("script.rb", <<~RUBY)
      Eagain.spawn { begin; sleep; ensure; puts :ensure; end }
      Eagain.spawn { sleep 0.05; Process.kill(:TERM, $$) }
    RUBY
    out, err, status = eagain("run", "script.rb")
    assert_equal ["ensure\n", 15], [out, status.termsig], err
  end

  def test_run_backend
    write("script.rb", "puts Fiber.scheduler.backend\n")
    backends.each { |name| assert_equal "#{name}\n", eagain("run", "--backend", name, "script.rb").first }
    assert_usage_error(/unknown backend: nonsense \(there are #{Eagain::BACKENDS.join(", ")}\)/,
                       "run", "--backend", "nonsense", "script.rb")
  end

  def test_run_stats
    write("script.rb", "at_exit { warn :at_exit }\nsleep 0.001\nexit 3\n")
    _, err, status = eagain("run", "--stats", "script.rb")
    assert_equal 3, status.exitstatus
    assert_match(/\Aat_exit\n(?:\w+ +\d+\n)+\z/, err)
    assert_match(/^switches +\d+$/, err)
  end

  def test_usage_errors
    write("unreadable.rb", "").then { |name| File.chmod(0, File.join(@directory, name)) }
    assert_usage_error(/no command/)
    assert_usage_error(/unknown command: nonsense/, "nonsense")
    assert_usage_error(/--nonsense/, "--nonsense")
    assert_usage_error(/no script/, "run")
    assert_usage_error(/--nonsense/, "run", "--nonsense", "script.rb")
    assert_usage_error(/no such file: missing.rb/, "run", "missing.rb")
    assert_usage_error(/no such file/, "run", "part.rb/x")
    assert_usage_error(/is a directory/, "run", ".")
    assert_usage_error(/permission denied/, "run", "unreadable.rb") unless Process.uid.zero?
    assert_usage_error(/unexpected argument: x/, "doctor", "x")
    assert_usage_error(/--nonsense/, "doctor", "--nonsense")
  end

  def test_help_and_version_everywhere
    [[], ["run"], ["doctor"], ["bench"]].each do |command|
      out, err, status = eagain(*command, "--help")
      assert_equal ["", 0], [err, status.exitstatus], command
      assert_match(/^usage: #{["eagain", *command].join(" ")} /i, out)
      out, err, status = eagain(*command, "--version")
      assert_equal ["eagain #{Eagain::VERSION}\n", "", 0], [out, err, status.exitstatus], command
    end
  end

  def test_a_checkout_that_was_not_built_says_so
    %w[exe lib].each { |folder| FileUtils.cp_r(File.join(ROOT, folder), @directory) }
    FileUtils.rm_rf(Dir[File.join(@directory, "lib/eagain/*")].grep(%r{/[\d.+]+\z|\.so\z}))
    [%w[doctor], %w[run x.rb]].each do |command|
      out, err, status = run_here(RbConfig.ruby, "exe/eagain", *command)
      assert_equal ["", 2], [out, status.exitstatus], err
      assert_match(/\Aeagain: the C extension is not built.*`make`.*\n\z/, err)
    end
  end

  def test_bench_without_a_checkout_says_so_whatever_it_is_asked_for
    %w[exe lib].each { |folder| FileUtils.cp_r(File.join(ROOT, folder), @directory) }
    [%w[bench], %w[bench pipes --json x.json], %w[bench --yjit]].each do |command|
      out, err, status = run_here(RbConfig.ruby, "exe/eagain", *command)
      assert_equal ["", 2], [out, status.exitstatus], err
      assert_match(/\Aeagain: bench needs a checkout of the sources.*\n\z/, err)
    end
    assert_match(/\AUsage: eagain bench/, run_here(RbConfig.ruby, "exe/eagain", "bench", "--help").first)
  end

  def test_works_from_any_directory_through_a_link
    link = File.join(@directory, "link")
    File.symlink(EXE, link)
    out, err, = run_here(RbConfig.ruby, link, "--version")
    assert_equal "eagain #{Eagain::VERSION}\n", out, err
  end

  private

  def write(name, text)
    File.binwrite(File.join(@directory, name), text)
    name
  end

  def eagain(*arguments, **options)
    run_here(RbConfig.ruby, EXE, *arguments, **options)
  end

  # Runs a command in the test's directory. Returns [stdout, stderr, Process::Status].
  def run_here(*command, input: nil)
    out, err = %w[.out .err].map { |name| File.join(@directory, name) }
    input = input ? File.join(@directory, input) : File::NULL
    pid = Process.spawn({ "RUBYOPT" => ENV["RUBYOPT"] }, *command, chdir: @directory, in: input, out: out, err: err,
                                                                   pgroup: true)
    waiter = Process.detach(pid)
    unless waiter.join(PATIENCE)
      Process.kill(:KILL, -pid)
      waiter.join
      flunk("#{command.drop(1).join(" ")} did not end\n#{File.read(err)}")
    end
    [File.read(out), File.read(err), waiter.value]
  end

  def assert_same_as_ruby(*arguments, input: nil)
    out, err, status = run_here(RbConfig.ruby, *arguments, input: input)
    our_out, our_err, our_status = eagain("run", *arguments, input: input)
    assert_equal out, our_out, our_err
    assert_equal err, our_err
    assert_equal [status.exitstatus, status.termsig], [our_status.exitstatus, our_status.termsig]
  end

  def assert_usage_error(pattern, *arguments)
    out, err, status = eagain(*arguments)
    assert_equal ["", 2], [out, status.exitstatus], err
    assert_match(/\Aeagain: .+\n\z/, err)
    assert_match(pattern, err)
  end
end
