# frozen_string_literal: true

require_relative "helper"
require "eagain/fast"
require "io/nonblock"
require "socket"
require "tmpdir"

# Not among the test_*.rb, which are to be about Ruby's own methods; script/test fast runs it.
#
# require "eagain/fast": IO's methods by the short way, which nobody must be able to tell from Ruby's own but by its price.
class FastTest < EagainTest
  NAMES = %i[readpartial read gets readline sysread write syswrite].freeze

  # What came out: the result, or the exception's class and message.
  def outcome
    [:returned, yield]
  rescue Timeout::Error
    :waits
  rescue SystemCallError, IOError, ArgumentError, TypeError, EOFError, FrozenError, EncodingError => e
    [e.class, e.message.gsub(/fd \d+/, "fd N").gsub(/\d{4,5}/, "PORT")]
  end

  # The same steps in a task, once with the methods as they are now, once with Ruby's own: the block gets what calls the one or
  # the other, and returns what it saw.
  def assert_same(what = nil)
    fast, own = ["", "__ruby_"].map do |prefix|
      seen = nil
      in_task { seen = yield ->(io, name, *args, **options) { io.__send__("#{prefix}#{name}", *args, **options) } }
      seen
    end
    assert_equal own, fast, what
    own
  end

  def in_task(&block)
    Thread.new { Eagain.run(&block) }.tap { |thread| thread.report_on_exception = false }.value
  end

  KINDS = {
    pipe: -> { IO.pipe }, unix: -> { UNIXSocket.pair },
    seqpacket: -> { UNIXSocket.pair(:SEQPACKET) },
    tcp: lambda {
      server = TCPServer.new("127.0.0.1", 0)
      client = TCPSocket.new("127.0.0.1", server.local_address.ip_port)
      [server.accept, client].tap { server.close }
    },
    text: -> { IO.pipe("UTF-16LE:UTF-8") },
    blocking: -> { IO.pipe.each { |io| io.nonblock = false } },
    buffered: -> { IO.pipe.tap { |_, w| w.sync = false } },
    writes_text: -> { IO.pipe.tap { |_, w| w.set_encoding("ISO-8859-1") } },
    newlines: -> { IO.pipe.tap { |_, w| w.set_encoding("UTF-8", crlf_newline: true) } }
  }.freeze

  READS = [
    [:readpartial, 3], [:readpartial, 100], [:readpartial, 0], [:readpartial, -1], [:readpartial, nil], [:readpartial, "5"],
    [:readpartial, 5.7], [:readpartial], [:readpartial, 3, 4, 5], [:readpartial, 5000], [:readpartial, 100_000],
    [:sysread, 3], [:sysread, 0], [:sysread, -1], [:sysread, 5000],
    [:read, 3], [:read, 5], [:read, 0], [:read, -1], [:read, nil], [:read], [:read, 100_000],
    [:gets], [:gets, "l"], [:gets, nil], [:gets, ""], [:gets, 2], [:gets, "l", 2], [:readline], [:readline, "x"], [:gets, 3, 4, 5]
  ].freeze

  def test_reads_answer_as_rubys_own
    KINDS.each_key do |kind|
      READS.each do |name, *args|
        [false, true].each do |read_ahead|
          assert_same([kind, name, args, read_ahead]) do |call|
            r, w = KINDS[kind].call
            w.write("hello\n")
            w.write("world\n")
            w.close
            first = outcome { r.gets } if read_ahead
            [first, *Array.new(4) { outcome { call.(r, name, *args)&.then { |s| [s, s.encoding, s.frozen?] } } }, r.closed?]
          ensure
            close_all(r, w)
          end
        end
      end
    end
  end

  def test_datagrams_are_read_as_by_ruby
    assert_same do |call|
      a, b = UNIXSocket.pair(:DGRAM)
      [[:readpartial, 5], [:readpartial, 100], [:sysread, 3], [:read, 3], [:gets]].map do |name, *args|
        b.syswrite("datagram\n")
        outcome { call.(a, name, *args) }
      end     ensure
      close_all(a, b)
    end
  end

  def test_reads_into_a_buffer_answer_as_rubys_own
    buffers = { new: -> { +"" }, full: -> { +"something longer than what comes" }, frozen: -> { "x".freeze }, # rubocop:disable Style/RedundantFreeze
                shared: -> { ("y" * 100)[3..] }, none: -> {}, number: -> { 5 } }
    %i[pipe unix text].product(%i[readpartial sysread read], buffers.keys, [3, 5000]).each do |kind, name, buffer, length|
      assert_same([kind, name, buffer, length]) do |call|
        r, w = KINDS[kind].call
        w.write("hello world")
        w.close
        into = buffers[buffer].call
        Array.new(3) { outcome { call.(r, name, length, into).then { |s| [s, s.equal?(into), into, (into || s)&.encoding] } } } << into
      ensure
        close_all(r, w)
      end
    end
  end

  class Shown
    def to_s = "shown"
  end

  WRITES = [[""], ["x"], ["x" * 10_000], ["a", "b"], ["", ""], ["a", "", "bc"], %w[a] * 20, [:symbol], [nil], [12], ["a", 5], [],
            ["\xE4\xF6".b], ["äö"], ["äö", "x"], ["äö".encode("UTF-16LE")], ["a\nb\n"], ["a\n", "b\n"]].freeze

  def test_writes_answer_as_rubys_own
    KINDS.each_key do |kind|
      [*WRITES.map { |args| [:write, *args] }, *WRITES.map { |args| [:syswrite, *args] }, [:write, Shown.new], [:syswrite, Shown.new]].each do |name, *args|
        assert_same([kind, name, args]) do |call|
          r, w = KINDS[kind].call
          seen = Array.new(2) { outcome { call.(w, name, *args) } }
          w.close
          seen << outcome { r.binmode.__send__(:__ruby_read) }
        ensure
          close_all(r, w)
        end
      end
    end
  end

  def test_what_is_printed_is_what_ruby_prints
    in_task do
      %i[pipe unix buffered].each do |kind|
        r, w = KINDS[kind].call
        w << "a" << :b << 3
        w.print("c", "d", 5)
        w.puts("e", ["f", ["g"]], "h\n", nil)
        w.printf("%03d", 7)
        w.putc("i")
        w.write
        w.close
        assert_equal "ab3cd5e\nf\ng\nh\n\n007i", r.read
      ensure
        close_all(r, w)
      end
    end
  end

  def test_errors_are_rubys_own
    states = {
      closed: ->(io, _) { io.close }, other_closed: ->(_, other) { other.close },
      both: ->(io, other) { [other, io].each(&:close) }, frozen: ->(io, _) { io.freeze },
      shut: ->(io, _) { io.respond_to?(:shutdown) && io.shutdown(:RDWR) },
      close_read: ->(io, _) { io.respond_to?(:shutdown) && io.close_read },
      close_write: ->(io, _) { io.respond_to?(:shutdown) && io.close_write },
      pushed_back: ->(io, _) { io.ungetbyte(?z) rescue nil }, pushed_char: ->(io, _) { io.ungetc("ü") rescue nil }
    }
    calls = NAMES.map { |name| %i[gets readline].include?(name) ? [name] : [name, %i[write syswrite].include?(name) ? "x" : 3] }
    %i[pipe unix tcp text].product([0, 1], states.keys, calls).each do |kind, side, state, (name, *args)|
      next if side == 1 && state == :frozen && kind == :text

      assert_same([kind, side, state, name]) do |call|
        ends = KINDS[kind].call
        ends.each { |io| io.__send__(:__ruby_write, "data\n") rescue nil }
        io, other = side.zero? ? ends : ends.reverse
        states[state].call(io, other)
        Array.new(2) { outcome { Timeout.timeout(0.002) { call.(io, name, *args) } } }
      ensure
        ends.each { |one| one.close unless one.closed? || one.frozen? }
      end
    end
  end

  def test_a_reset_connection_is_told_of_as_by_ruby
    assert_same do |call|
      %i[readpartial read gets sysread write syswrite].map do |name|
        a, b = KINDS[:tcp].call
        b.setsockopt(Socket::SOL_SOCKET, Socket::SO_LINGER, [1, 0].pack("ii"))
        a.write("x")
        b.close
        args = { gets: [], write: ["x"], syswrite: ["x"] }.fetch(name, [3])
        Array.new(2) { outcome { call.(a, name, *args) } }
      ensure
        close_all(a, b)
      end
    end
  end

  def test_files_and_devices
    Dir.mktmpdir do |dir|
      assert_same do |call|
        full = File.open("/dev/full", "w").tap { |io| io.sync = true }
        file = File.open("#{dir}/file", "w+").tap { |io| io.sync = true }
        seen = [outcome { call.(full, :write, "x") }, outcome { call.(full, :write, "x", "y") }, outcome { call.(full, :syswrite, "x") }]
        seen << call.(file, :write, "one\n") << call.(file, :write, "two\n", "three\n") << call.(file, :syswrite, "four\n")
        file.rewind
        seen << call.(file, :gets) << call.(file, :readpartial, 2) << call.(file, :read, 100) << outcome { call.(file, :readpartial, 5) }
        file.rewind
        seen << call.(file, :gets) << call.(file, :write, "X") << file.pos
        seen << outcome { call.(File.open(dir), :readpartial, 5) } << outcome { call.(File.open(dir), :sysread, 5) }
        seen << File.read("#{dir}/file")
      ensure
        close_all(full, file)
      end
    end
  end

  def test_the_other_half_of_a_popen
    in_task do
      IO.popen(["cat"], "r+") do |io|
        io.sync = true
        io.write("abc\n")
        assert_equal "abc\n", io.gets
        io.puts("de")
        assert_equal "de\n", io.readpartial(100)
        io.close_write
        assert_nil io.gets
      end
    end
  end

  # --- Waiting.

  def test_everything_waits_for_what_is_missing
    %i[pipe unix tcp blocking].each do |kind|
      got = nil
      in_task do
        r, w = KINDS[kind].call
        reader = Eagain.spawn { [r.readpartial(10), r.gets, r.read(6), r.sysread(3), r.readline, r.read(100)] }
        ["ab", "cd", "ef\n", "123", "456", "xyz", "li", "ne\n", "the ", "end"].each do |part|
          nil until Eagain.spawn { r.wait_readable(0) }.value.nil? # it has what there was
          w.write(part)
        end
        w.close
        got = reader.value
      ensure
        close_all(r, w)
      end
      assert_equal ["ab", "cdef\n", "123456", "xyz", "line\n", "the end"], got, kind
    end
  end

  def test_a_write_without_room_is_completed
    data = Random.new(1).bytes(300_000)
    %i[pipe unix tcp blocking].each do |kind|
      [[data], [data[0, 5], data[5..]], [data[0, 100_000], "", data[100_000..]]].each do |strings|
        in_task do
          r, w = KINDS[kind].call
          writer = Eagain.spawn { w.write(*strings).tap { w.close } }
          assert_bytes data, r.read
          assert_equal data.bytesize, writer.value
        ensure
          close_all(r, w)
        end
      end
    end
  end

  def test_a_string_that_changes_in_a_wait_is_written_as_it_was
    in_task do
      r, w = IO.pipe
      nil while w.write_nonblock("x" * 4096, exception: false).is_a?(Integer)
      texts = [+"one", +"two"]
      writers = [Eagain.spawn { w.write(texts[0]) }, Eagain.spawn { w.write(texts[0], texts[1]) }, Eagain.spawn { w.syswrite(texts[1]) }]
      sleep(0) until writers.all? { |task| task.status == "sleep" }
      texts.each { |text| text.replace("changed") }
      reader = Eagain.spawn { r.read }
      assert_equal [3, 6, 3], writers.map(&:value)
      w.close
      assert_equal %w[one one two two], reader.value.delete("x").scan(/.../).sort
    ensure
      close_all(r, w)
    end
  end

  # A write of one task that waits for room keeps its turn.
  def test_nobody_writes_into_anothers_write
    in_task do
      %i[pipe unix].each do |kind|
        r, w = KINDS[kind].call
        long = ("a" * 299_999) << "b"
        writers = [Eagain.spawn { w.write(long) }, *Array.new(5) { |i| Eagain.spawn { i.even? ? w.write("c") : w.write("c", "c") } }]
        reader = Eagain.spawn { r.read }
        writers.each(&:value)
        w.close
        assert_bytes long + "c" * 7, reader.value
      ensure
        close_all(r, w)
      end
    end
  end

  # What there was no room for was left to Ruby's own, before which others may have a turn when this task has gone on for long.
  def test_nobody_writes_between_what_had_room_and_the_rest
    long = "a" * 300_000
    128.times do |before|
      got = +""
      in_task do
        r, w = UNIXSocket.pair
        reader = nil
        other = Eagain.spawn do
          got << r.readpartial(500_000)
          reader = Eagain.spawn do
            while (part = r.readpartial(500_000) rescue nil)
              got << part
            end
          end
          w.write("b")
        end
        before.times { w.write(".") }
        began = Process.clock_gettime(Process::CLOCK_MONOTONIC)
        nil while Process.clock_gettime(Process::CLOCK_MONOTONIC) - began < 0.006
        w.write(long)
        other.value
        w.close
        reader.value
      ensure
        close_all(r, w)
      end
      assert_match(/\A\.*b?\.*a+b?\z/, got, "after #{before} writes")
    end
  end

  def test_a_close_wakes_the_reader
    NAMES.first(5).each do |name|
      in_task do
        r, w = UNIXSocket.pair
        reader = Eagain.spawn { outcome { r.__send__(name, *(name.to_s.end_with?("s", "line") ? [] : [5])) } }
        sleep(0) until reader.status == "sleep"
        r.close
        assert_equal [IOError, "stream closed in another thread"], reader.value, name
      ensure
        close_all(r, w)
      end
    end
  end

  def test_io_timeout_ends_a_wait
    skip "IO#timeout came with Ruby 3.2" unless IO.method_defined?(:timeout=)

    in_task do
      r, w = IO.pipe
      r.timeout = 0.001
      [[:readpartial, 5], [:read, 5], [:gets], [:sysread, 5]].each do |call|
        error = assert_raises(IO::TimeoutError) { r.__send__(*call) }
        assert_equal "Blocking operation timed out!", error.message
      end
      w.write("late")
      assert_equal "late", r.readpartial(10)
    ensure
      close_all(r, w)
    end
  end

  def test_an_exception_ends_a_wait_and_loses_nothing
    in_task do
      r, w = UNIXSocket.pair
      [[:readpartial, 5], [:read, 5], [:gets], [:sysread, 5]].each do |call|
        assert_raises(Timeout::Error) { Timeout.timeout(0.001) { r.__send__(*call) } }
        w.write("line\n")
        assert_equal "line\n", r.gets
      end
    ensure
      close_all(r, w)
    end
  end

  # gets(0) waited for a byte, and so did what has no right arguments.
  def test_a_line_that_needs_no_reading_waits_for_nothing
    [[0], ["x", 0], [nil, 0], [1, 2, 3], [Object.new], ["x".encode("UTF-16LE")], ["x", "y"], [:x]].each do |args|
      %i[gets readline].each do |name|
        seen = assert_same([name, args]) do |call|
          r, w = IO.pipe
          outcome { Timeout.timeout(0.05) { call.(r, name, *args) } }
        ensure
          close_all(r, w)
        end
        refute_equal :waits, seen, args
      end
    end
  end

  # An empty datagram is an end, and so is what a terminal says once; the next read gives what comes then.
  def test_gets_asks_for_the_end_once
    assert_same do |call|
      a, b = UNIXSocket.pair(:DGRAM)
      3.times { b.send("", 0) && b.send("next\n", 0) }
      $_ = "before"
      Timeout.timeout(1) do
        Array.new(3) { [outcome { call.(a, :gets) }, $_, outcome { call.(a, :readline) }, a.lineno] } <<
          outcome { b.send("", 0) && call.(a, :readline, chomp: true) } << $_
      end
    ensure
      close_all(a, b)
    end
  end

  def test_gets_sets_the_last_line
    in_task do
      r, w = UNIXSocket.pair
      w.write("one\ntwo\n")
      w.close
      r.gets
      assert_equal "one\n", $_
      r.readline
      assert_equal ["two\n", 2], [$_, r.lineno]
      r.gets
      assert_nil $_
    ensure
      close_all(r, w)
    end
  end

  # --- Others.

  def test_outside_of_a_task_it_is_rubys_own
    r, w = IO.pipe
    got = Queue.new
    reader = Thread.new { [[:readpartial, 10], [:sysread, 5], [:gets], [:read, 3]].each { |call| got << r.__send__(*call) } }
    ["a", "fg", "b\n", "cde"].each do |part|
      w.write(part)
      assert_equal part, got.pop
    end
    reader.join
  ensure
    close_all(r, w)
  end

  # What Ruby's own method does without a hook, as to write into its buffer, did no longer work.
  def test_a_fiber_of_a_closed_scheduler_has_rubys_own
    assert_same do |call|
      Thread.new do
        r, w = IO.pipe
        w.sync = false
        scheduler = Eagain::Scheduler.new
        Fiber.set_scheduler(scheduler)
        fiber = Fiber.new(blocking: false) { outcome { call.(w, :write, "kept") } }
        scheduler.close
        fiber.resume
      ensure
        close_all(w, r)
      end.value
    end.then { |seen| assert_equal [:returned, 4], seen }
  end

  def test_a_subclass_and_a_prepended_module_are_asked_first
    calls = []
    loud = Module.new { define_method(:write) { |*args| calls << args && super(*args) } }
    in_task do
      r, w = IO.pipe
      w.singleton_class.prepend(loud)
      w << "x"
      w.puts("y")
      w.close
      assert_equal "xy\n", r.read
    ensure
      close_all(r, w)
    end
    assert_equal [["x"], ["y", "\n"]], calls
  end

  def test_what_the_program_defined_anew_stays
    out, = run_command({}, RUBY, "-W0", "-I#{LIB}", "-e", <<~'RUBY')
      require "eagain"
      class IO
        alias plain_write write
        def write(*strings) = plain_write(*strings.map { |string| string.to_s.upcase })
        def readpartial(*) = "mine"
      end
      require "eagain/fast"
      Eagain.run do
        $stdout.sync = true
        puts "x"
        r, w = IO.pipe
        w << "y"
        w.close
        print r.gets, IO.pipe[0].readpartial(5), IO.instance_method(:gets).arity
      end
    RUBY
    assert_equal "X\nYMINE-1", out
  end

  def test_ruby_does_not_warn
    out, err, status = run_command({}, RUBY, "-w", "-I#{LIB}", "-reagain/fast", "-e", 'Eagain.run { puts "x" }')
    assert_equal ["x\n", "", true], [out, err, status.success?]
  end


  def test_under_gc_stress
    out = output_of(<<~'RUBY', timeout: 60)
      require "eagain/fast"
      require "socket"
      Eagain.run do
        a, b = UNIXSocket.pair
        GC.stress = true
        GC.auto_compact = true if GC.respond_to?(:auto_compact=) && GC.respond_to?(:compact)
        reader = Eagain.spawn { [a.readpartial(10), a.gets, a.read(6), a.read(9000), a.readline, a.read(10)] }
        text = +"ab"
        [[text], ["c", "d\n"], ["123"], ["456"], ["x" * 5000, "y" * 4000], ["end", "\n"]].each do |strings|
          b.write(*strings)
          text << "changed"
          sleep 0.001
        end
        b.close
        GC.stress = false
        p(*reader.value.map { |s| s && [s.size, s[0], s[-1]] })
      end
    RUBY
    assert_equal ['[2, "a", "b"]', '[3, "c", "\\n"]', '[6, "1", "6"]', '[9000, "x", "y"]', '[4, "e", "\\n"]', "nil"], out.lines.map(&:chomp)
  end

  # --- What it costs.

  def test_one_system_call_each
    { "IO.pipe" => %w[preadv2 pwritev2], "UNIXSocket.pair" => %w[recvfrom sendto] }.each do |make, (reading, writing)|
      trace = strace(<<~RUBY)
        require "socket"
        require "eagain/fast"
        Eagain.run do
          r, w = #{make}
          2.times { w.write("x"); r.readpartial(10) }
          mark
          100.times { w.write("x\n"); r.readpartial(10) }
          100.times { w << "x\n"; r.gets }
          100.times { w.syswrite("x"); r.read(1) }
          mark
        end
      RUBY
      assert_equal({ reading => 300, writing => 300 }, trace.work.except("getpid"), trace.to_s)
    end
  end

  def test_a_print_costs_one_call_on_a_device
    trace = strace(<<~RUBY)
      require "eagain/fast"
      null = File.open("/dev/null", "w")
      null.sync = true
      Eagain.run do
        2.times { null.print "." }
        mark
        200.times { null.print "." }
        mark
      end
    RUBY
    assert_equal 200, trace.work.except("getpid").values.sum, trace.to_s
  end

  def test_one_object_for_a_read_and_none_for_a_write
    in_task do
      [IO.pipe, UNIXSocket.pair].each do |r, w|
        text = "x" * 100
        2.times { w.write(text) && r.readpartial(100) }
        used = allocations { 100.times { w.write(text) && r.readpartial(100) } }
        assert_operator used, :<=, 102 # the counter's own, too
        used = allocations { 100.times { w.write(text) && r.read(100) } }
        assert_operator used, :<=, 102
      ensure
        close_all(r, w)
      end
    end
  end

  def allocations
    GC.disable
    before = GC.stat(:total_allocated_objects)
    yield
    GC.stat(:total_allocated_objects) - before
  ensure
    GC.enable
  end
end
