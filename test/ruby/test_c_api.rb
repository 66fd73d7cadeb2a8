# frozen_string_literal: true

require_relative "helper"
require_relative "opened"
require_relative "tiny_scheduler"
require "fileutils"

# <eagain/ruby.h>, as test/compat/sample uses it: a C extension that is compiled here, against the checkout, or,
# with EAGAIN_TEST_GEM_HOME, against the gem that is installed there (script/test-gem).
class CApiTest < EagainTest
  extend Everywhere
  include Opened

  SAMPLE = File.join(ROOT, "test/compat/sample")
  GEM_HOME = ENV["EAGAIN_TEST_GEM_HOME"]
  GEM_ENV = { "GEM_HOME" => GEM_HOME, "GEM_PATH" => GEM_HOME, "RUBYLIB" => nil, "RUBYOPT" => nil }.freeze

  class << self
    # Compiles an extension; returns the folder that holds it.
    def compile(sources, folder = Dir.mktmpdir)
      at_exit_remove(folder)
      flags = GEM_HOME ? [] : ["-I#{LIB}"]
      build!(folder, Support::RUBY, *flags, File.join(sources, "extconf.rb"))
      build!(folder, ENV.fetch("MAKE", "make"))
      folder
    end

    # The sample, compiled and loaded once.
    def sample
      @sample ||= compile(SAMPLE).tap { |folder| require File.join(folder, "sample") }
    end

    private

    def at_exit_remove(folder)
      pid = Process.pid
      Minitest.after_run { FileUtils.remove_entry(folder, true) if Process.pid == pid }
    end

    def build!(folder, *command)
      output = IO.popen(GEM_HOME ? GEM_ENV : {}, command, chdir: folder, err: %i[child out], &:read)
      raise "#{command.join(" ")}:\n#{output}" unless $?.success? # rubocop:disable Style/SpecialGlobalVars
    end
  end

  def setup
    only_ours
    @folder = self.class.sample
  end

  # A Ruby that finds eagain as the sample does.
  def fresh_ruby(script, *flags)
    flags = ["-I#{LIB}", *flags] unless GEM_HOME
    run_command(GEM_HOME ? GEM_ENV : {}, RUBY, "-W:no-experimental", *flags, "-I#{@folder}", "-e", script)
  end

  def test_the_header_is_where_include_dir_says
    assert_path_exists File.join(Eagain.include_dir, "eagain/ruby.h")
  end

  if GEM_HOME
    def test_it_is_the_gem_that_is_tested
      assert Eagain.include_dir.start_with?(GEM_HOME), Eagain.include_dir
      assert($LOADED_FEATURES.grep(%r{/eagain\.(?:rb|so)\z}).all? { |path| path.start_with?(GEM_HOME) })
    end
  end

  # --- Try.

  def test_try_read_and_write
    r, w = pipe
    assert_equal :wait_readable, Sample.try_read(r, 10)
    assert_equal 3, Sample.try_write(w, "abc")
    assert_equal "ab", Sample.try_read(r, 2)
    w << "d\ne"
    assert_equal "cd\n", r.gets
    assert_equal "e", Sample.try_read(r, 10) # Ruby has read ahead
    w.sync = false
    w.write("first ")
    Sample.try_write(w, "second")
    assert_equal "first second", Sample.try_read(r, 100)
    fill(w)
    assert_equal :wait_writable, Sample.try_write(w, "x")
    r.close
    assert_raises(Errno::EPIPE) { Sample.try_write(w, "x") }
    assert_nil Sample.try_read(pipe.tap { |_, writer| writer.close }[0], 1)
  end

  def test_try_readv_and_writev
    r, w = pipe
    assert_equal :wait_readable, Sample.try_readv(r, 1, 1)
    assert_equal 6, Sample.try_writev(w, "abc", "def")
    assert_equal %w[ab cdef], Sample.try_readv(r, 2, 10)
    w << "1\n2345"
    r.gets
    assert_equal %w[2 34], Sample.try_readv(r, 1, 2)
    assert_equal ["5", ""], Sample.try_readv(r, 10, 10)
  end

  def test_try_recv_and_send
    a, b = pair
    assert_equal :wait_readable, Sample.try_recv(a, 10, 0)
    assert_equal 3, Sample.try_send(b, "abc")
    assert_equal "ab", Sample.try_recv(a, 2, Socket::MSG_PEEK)
    assert_equal "abc", Sample.try_recv(a, 10, 0)
    fill(b)
    assert_equal :wait_writable, Sample.try_send(b, "x")
    b.close
    nil while Sample.try_recv(a, 65_536, 0) # nil at the end
    assert_nil Sample.try_recv(a, 1, 0)
  end

  def test_try_recvfrom_and_sendto
    a, b = keep(UDPSocket.new, UDPSocket.new).each { |socket| socket.bind("127.0.0.1", 0) }
    address = ->(socket) { Addrinfo.udp("127.0.0.1", socket.local_address.ip_port).to_sockaddr }
    assert_equal :wait_readable, Sample.try_recvfrom(a, 10)
    assert_equal 3, Sample.try_send(b, "abc", address[a])
    assert_equal ["abc", address[b]], Sample.try_recvfrom(a, 10)
    Sample.try_send(b, "", address[a])
    assert_equal "", Sample.try_recv(a, 10, 0)
  end

  def test_messages_pass_descriptors
    a, b = pair(:SEQPACKET)
    r, w = pipe
    assert_equal :wait_readable, Sample.try_recvmsg(a)
    assert_equal 4, Sample.try_sendmsg(b, "here", w)
    message, number = Sample.try_recvmsg(a)
    passed = keep(IO.for_fd(number, "w"))
    passed.syswrite("through")
    assert_equal %w[here through], [message, r.readpartial(10)]
  end

  def test_accept
    server = keep(TCPServer.new("127.0.0.1", 0))
    assert_equal :wait_readable, Sample.try_accept(server, TCPSocket)
    client = keep(TCPSocket.new("127.0.0.1", server.local_address.ip_port))
    socket, address = Sample.try_accept(server, TCPSocket)
    keep(socket)
    assert_instance_of TCPSocket, socket
    assert_equal client.local_address.to_sockaddr, address
    assert_predicate socket, :close_on_exec?
    client << "x"
    assert_equal "x", Sample.read(socket, 10)
  end

  def test_misuse_is_raised
    r, w = pipe
    a, b = pair
    b << "one\ntwo\n"
    a.gets
    assert_equal "recv for buffered IO", assert_raises(IOError) { Sample.try_recv(a, 1, 0) }.message
    assert_equal "recvmsg for buffered IO", assert_raises(IOError) { Sample.try_recvmsg(a) }.message
    assert_equal "not opened for reading", assert_raises(IOError) { Sample.try_read(w, 1) }.message
    assert_equal "not opened for writing", assert_raises(IOError) { Sample.try_write(r, "x") }.message
    assert_raises(TypeError) { Sample.try_recv(r, 1, 0) }
    assert_raises(TypeError) { Sample.try_accept(r, TCPSocket) }
    assert_raises(TypeError) { Sample.try_read(1, 1) }
    assert_raises(TypeError) { Sample.read(nil, 1) }
    assert_raises(TypeError) { Sample.wait(1, IO::READABLE) }
    [0, 8, 100].each { |events| assert_raises(ArgumentError) { Sample.wait(r, events) } }
    assert_raises(ArgumentError) { Sample.fail(0, nil) }
    r.close
    assert_equal "closed stream", assert_raises(IOError) { Sample.try_read(r, 1) }.message
    assert_equal "closed stream", assert_raises(IOError) { Sample.wait(r, IO::READABLE) }.message
    directory = keep(File.open(@folder))
    assert_equal "Is a directory - #{@folder}", assert_raises(Errno::EISDIR) { Sample.try_read(directory, 1) }.message
    assert_equal "Is a directory - #{@folder}", assert_raises(Errno::EISDIR) { Sample.read(directory, 1) }.message
  end

  # What is not in memory is no would-block: nothing would ever announce it.
  def test_a_file_that_has_to_come_from_the_disk
    path = File.join(Dir.mktmpdir("eagain", Dir.exist?("/var/tmp") ? "/var/tmp" : nil), "file")
    File.binwrite(path, "x" * 2000)
    file = keep(File.open(path))
    file.fsync
    evict = -> { file.rewind && file.advise(:dontneed) }
    evict.call
    assert_equal "xx", Sample.try_read(file, 2)
    evict.call
    assert_includes [%w[xx xxx], ["xx", ""]], Sample.try_readv(file, 2, 3)
    evict.call
    assert_equal ["", "xxx"], Sample.try_readv(file, 0, 3)
    evict.call
    assert_equal "xx", Sample.read(file, 2)
  ensure
    FileUtils.remove_entry(File.dirname(path)) if path
  end

  def test_as_many_parts_as_readv_takes
    r, w = pipe
    w << "12line\n" << "x" * 1200
    [false, true].each do |ahead| # of the descriptor; of what Ruby has read ahead
      assert_equal "line\n", r.gets if ahead
      assert_equal 2, Sample.try_parts(r, 2, false)
      [1025, 2000, -1].each { |count| assert_raises(Errno::EINVAL) { Sample.try_parts(r, count, false) } }
      assert_raises(Errno::EINVAL) { Sample.try_parts(w, 1025, true) }
    end
    assert_equal 1024, Sample.try_parts(r, 1024, false)
  end

  def test_a_socket_of_no_such_class_or_number
    [-1, -2, -(1 << 31)].each { |number| assert_raises(Errno::EBADF) { Sample.socket_new(TCPSocket, number) } }
    [IO, File, Object, BasicObject, nil, 1, "TCPSocket", Comparable, TCPSocket.singleton_class].each do |klass|
      r, = keep(*UNIXSocket.pair)
      copy = r.dup
      copy.autoclose = false
      number = copy.fileno
      assert_raises(TypeError, klass.inspect) { Sample.socket_new(klass, number) }
      assert_raises(Errno::EBADF) { IO.for_fd(number) } # closed
    end
  end

  # --- Wait, and both.

  everywhere :waits do
    r, w = pipe
    assert_equal 0, Sample.wait(r, IO::READABLE, 0)
    assert_equal 0, Sample.wait(r, IO::READABLE, 0.002)
    assert_equal IO::WRITABLE, Sample.wait(w, IO::WRITABLE)
    soon { w << "x" }
    assert_equal IO::READABLE, Sample.wait(r, IO::READABLE)
    assert_raises(ArgumentError) { Sample.wait(r, IO::READABLE, -1) }
    assert_raises(TypeError) { Sample.wait(r, IO::READABLE, "1") }
  end

  everywhere :read_waits do
    r, w = pipe
    soon { w << "late" }
    assert_equal "late", Sample.read(r, 10)
    soon { w.close }
    assert_nil Sample.read(r, 10, 5)
  end

  everywhere :write_waits_and_writes_all do
    r, w = pipe
    string = "abc" * 200_000
    read = +""
    beside { read << Sample.read(r, 65_536) until read.bytesize == string.bytesize }
    assert_equal string.bytesize, Sample.write(w, string)
    await("reader") { read.bytesize == string.bytesize }
    assert_bytes string, read
    assert_equal 0, Sample.write(w, "")
  end

  everywhere :timeouts do
    r, w = pipe
    start = now
    error = assert_raises(Eagain::TimeoutError) { Sample.read(r, 1, 0.02) }
    assert_operator now - start, :>=, 0.02
    assert_equal 0, error.written
    assert_raises(Eagain::TimeoutError) { Sample.read(r, 1, 0) }
    error = assert_raises(Eagain::TimeoutError) { Sample.write(w, "x" * 1_000_000, 0.02) }
    assert_equal r.read_nonblock(1_000_000).bytesize, error.written
    a, b = pair
    b << "some"
    assert_raises(Eagain::TimeoutError) { Sample.receive_all(a, 0.02) }
    assert_raises(ArgumentError) { Sample.read(r, 1, -1) }
  end

  everywhere :a_loop_of_attempts_and_waits do
    a, b = pair
    beside do
      3.times do |i|
        sleep 0.002
        b << i.to_s
      end
      b.close
    end
    assert_equal "012", Sample.receive_all(a, 10)
  end

  if IO.method_defined?(:timeout) # since Ruby 3.2
    everywhere :io_timeout do
      r, = pipe
      r.timeout = 0.02
      assert_raises(IO::TimeoutError) { Sample.read(r, 1) }
      assert_equal 0, Sample.wait(r, IO::READABLE)
    end
  end

  everywhere :a_close_in_mid_wait, Everywhere::NOTICES_A_CLOSE do
    r, = pipe
    soon { r.close }
    assert_match(/closed/, assert_raises(IOError) { Sample.read(r, 1) }.message)
  end

  def test_a_foreign_scheduler_is_asked
    scheduler = TinyScheduler.new
    r, w = pipe
    schedule(scheduler: scheduler) do
      task { sleep 0.001; w << "x" } # rubocop:disable Style/Semicolon
      assert_equal "x", Sample.read(r, 1)
    end
    assert_operator scheduler.waits, :>=, 1
  end

  def test_thread_raise_and_kill
    r, = pipe
    %i[raise kill].each do |how|
      thread = Thread.new { Thread.current.report_on_exception = false; Sample.read(r, 1) } # rubocop:disable Style/Semicolon
      await("sleep") { thread.status == "sleep" }
      how == :raise ? thread.raise(ArgumentError) : thread.kill
      how == :raise ? assert_raises(ArgumentError) { thread.value } : assert_nil(thread.value)
    end
  end

  def test_in_a_ractor
    out, err, status = fresh_ruby(<<~'RUBY')
      require "sample"
      ractor = Ractor.new do
        r, w = IO.pipe
        Thread.new { sleep 0.01; Sample.write(w, "late") }
        Sample.read(r, 10)
      end
      puts(ractor.respond_to?(:value) ? ractor.value : ractor.take)
    RUBY
    assert_equal "late\n", out, err
    assert_predicate status, :success?
  end

  # --- Raise.

  def test_would_block_exceptions_are_those_of_ruby
    r, w = pipe
    assert_would_block(-> { r.read_nonblock(1) }, -> { Sample.read_nonblock(r, 1) })
    assert_would_block(-> { r.read_nonblock(1) }, -> { Sample.fail(Sample::WAIT_READABLE, "read would block") })
    fill(w)
    assert_would_block(-> { w.write_nonblock("x") }, -> { Sample.fail(Sample::WAIT_WRITABLE, "write would block") })
    error = assert_raises(IO::EAGAINWaitReadable) { Sample.fail(Sample::WAIT_READABLE, nil) }
    assert_equal Errno::EAGAIN.new.message, error.message
    w.close
    r.read
    assert_raises(EOFError) { Sample.read_nonblock(r, 1) }
  end

  def test_would_block_exceptions_have_a_backtrace_where_one_is_asked_for
    raised = -> { assert_raises(IO::EAGAINWaitReadable) { Sample.fail(Sample::WAIT_READABLE, "read") } }
    assert_empty raised.call.backtrace
    Eagain::Nonblock.backtraces = true
    assert_includes raised.call.backtrace.join, __method__.to_s
  ensure
    Eagain::Nonblock.backtraces = false
  end

  def assert_would_block(theirs, ours)
    expected = assert_raises(IO::WaitReadable, IO::WaitWritable, &theirs)
    actual = assert_raises(expected.class, &ours)
    assert_equal [expected.class, expected.message, expected.errno], [actual.class, actual.message, actual.errno]
    refute_same actual, assert_raises(expected.class, &ours)
    assert_equal actual.message, Marshal.load(Marshal.dump(actual)).message # rubocop:disable Security/MarshalLoad
    assert_empty actual.singleton_class.included_modules - actual.class.included_modules
  end

  # --- Finding the gem.

  def test_the_gem_is_required_by_the_extension
    out, err, = fresh_ruby('require "sample"; puts Eagain::VERSION')
    assert_equal "#{Eagain::VERSION}\n", out, err
    out, = fresh_ruby('require "eagain"; p Eagain.constants.include?(:C_API), (Eagain::C_API rescue $!.class)')
    assert_equal "false\nNameError\n", out
  end

  def test_a_missing_gem_is_a_load_error
    out, err, = run_command({ "GEM_HOME" => @folder, "GEM_PATH" => @folder, "RUBYOPT" => nil, "RUBYLIB" => nil }, RUBY,
                            "-I#{@folder}", "-e", 'begin; require "sample"; rescue LoadError => e; puts e.message; end')
    assert_equal "cannot load such file -- eagain\n", out, err
  end

  def test_an_eagain_without_the_interface_is_a_load_error
    out, err, = fresh_ruby(<<~'RUBY')
      require "eagain"
      Eagain.send(:remove_const, :C_API)
      begin
        require "sample"
      rescue LoadError => e
        puts e.message
      end
      Eagain::C_API = 1
      begin
        require "sample"
      rescue LoadError => e
        puts e.message
      end
    RUBY
    assert_equal "this eagain has no interface for C extensions: it is too old\nEagain::C_API is not eagain's\n", out, err
  end

  def test_another_version_of_the_interface_is_a_load_error
    Dir.mktmpdir do |sources|
      FileUtils.cp(Dir[File.join(SAMPLE, "*")], sources)
      FileUtils.cp_r(Eagain.include_dir, File.join(sources, "include"))
      header = File.join(sources, "include/eagain/ruby.h")
      File.write(header, File.read(header).sub(/(#define EA_RB_API_VERSION) \d+/, '\1 4711'))
      extconf = File.join(sources, "extconf.rb")
      File.write(extconf, File.read(extconf).sub("Eagain.include_dir", File.join(sources, "include").dump))
      @folder = self.class.compile(sources)
      out, err, = fresh_ruby('begin; require "sample"; rescue LoadError => e; puts e.message; end')
      assert_match(/compiled for another eagain .*\(C interface 4711\.\d+, and 1\.\d+\)/, out, err)
    end
  end

  def test_nothing_is_linked
    symbols, _, status = run_command({}, "nm", "-u", File.join(@folder, "sample.so"))
    skip "no nm" unless status.success?
    assert_empty symbols.lines.grep(/ ea_/)
  end

  def test_the_header_is_c_plus_plus_too
    compiler = RbConfig::CONFIG["CXX"].to_s.split
    skip "no C++ compiler" unless compiler.any? && system(*compiler, "--version", out: File::NULL, err: File::NULL)

    source = File.join(@folder, "plus.cpp")
    File.write(source, <<~CPP)
      #include <eagain/ruby.h>
      VALUE attempt(VALUE io);
      VALUE attempt(VALUE io) {
          char byte;
          ea_result r = ea_rb_try_read(io, &byte, 1);
          if (ea_is_wait(r))
              ea_rb_readwrite_fail(r, "read");
          return ea_rb_wait(io, EA_READABLE | EA_WRITABLE, Qnil) ? ea_rb_answer(io, r) : Qnil;
      }
    CPP
    includes = RbConfig::CONFIG.values_at("rubyhdrdir", "rubyarchhdrdir").map { |dir| "-isystem#{dir}" }
    out, err, status = run_command({}, *compiler, "-std=c++17", "-Wall", "-Wextra", "-Werror", "-fsyntax-only",
                                   "-I#{Eagain.include_dir}", *includes, source)
    assert_predicate status, :success?, out + err
  end

  # The example of the how-to guide is one that works.
  def test_the_guide
    skip "the guide is not here" unless File.exist?(guide = File.join(ROOT, "docs/how-to/c-extensions.md"))

    text = File.read(guide, encoding: Encoding::UTF_8)
    Dir.mktmpdir do |sources|
      File.write(File.join(sources, "extconf.rb"), text[/^```ruby\n(# extconf\.rb\n.*?)^```/m, 1])
      File.write(File.join(sources, "lines.c"), text[/^```c\n(.*?)^```/m, 1])
      @folder = self.class.compile(sources)
    end
    out, err, = fresh_ruby(<<~'RUBY')
      require "lines"
      r, w = IO.pipe
      w << "one\ntwo"
      w.close
      p Lines.count(r, 1)
      r, w = IO.pipe
      begin
        Lines.count(r, 0.01)
      rescue Eagain::TimeoutError => e
        puts e.class
      end
    RUBY
    assert_equal "1\nEagain::TimeoutError\n", out, err
  end

  unless GEM_HOME
    def test_a_try_costs_one_call
      trace = strace(<<~RUBY)
        require "socket"
        require #{File.join(@folder, "sample").dump}
        a, b = UNIXSocket.pair
        r, w = IO.pipe
        calls = proc do
          Sample.try_recv(a, 1, 0)
          Sample.try_send(b, "x")
          Sample.try_recv(a, 1, 0)
          Sample.try_read(r, 1)
          Sample.write(w, "x")
          Sample.read(r, 1)
        end
        calls.call
        GC.disable
        mark
        100.times(&calls)
        mark
      RUBY
      assert_equal 600, trace.work.values.sum, trace.to_s
    end
  end

  def test_gc_stress
    out, err, = fresh_ruby(<<~'RUBY')
      require "sample"
      require "socket"
      a, b = UNIXSocket.pair
      GC.stress = true
      Sample.write(a, "abc")
      Sample.read(b, 2)
      Sample.try_recv(b, 2, 0)
      begin
        Sample.read_nonblock(b, 1)
      rescue IO::EAGAINWaitReadable
        Sample.read(b, 1, 0) rescue Eagain::TimeoutError
      end
      GC.stress = false
      puts "ok"
    RUBY
    assert_equal "ok\n", out, err
  end
end
