# frozen_string_literal: true

require_relative "helper"

# The exceptions that a would-block becomes, after require "eagain/nonblock". In children: what they
# change is for good.
class WouldBlockTest < EagainTest
  COUNT = Integer(ENV.fetch("EAGAIN_TEST_WOULD_BLOCKS", "200000"))

  # Here, `caught` is what the block raises, and each of these raises a would-block.
  PRELUDE = <<~'RUBY'
    require "socket"
    A, B = UNIXSocket.pair
    FULL, NOBODY = UNIXSocket.pair
    nil until FULL.write_nonblock("x" * 65_536, exception: false) == :wait_writable
    SERVER, IDLE = Array.new(2) { TCPServer.new("127.0.0.1", 0) }
    def caught
      yield
      nil
    rescue Exception => e
      e
    end
    def readable = caught { A.read_nonblock(5) }
    def writable = caught { FULL.write_nonblock("x") }
    def connecting = caught { Socket.new(:INET, :STREAM).connect_nonblock(SERVER.local_address) }
    ALL = {
      read: -> { A.read_nonblock(5) }, write: -> { FULL.write_nonblock("x") }, recv: -> { A.recv_nonblock(5) },
      recvmsg: -> { A.recvmsg_nonblock }, sendmsg: -> { FULL.sendmsg_nonblock("x") },
      recvfrom: -> { UDPSocket.new.recvfrom_nonblock(5) }, accept: -> { IDLE.accept_nonblock },
      connect: -> { Socket.new(:INET, :STREAM).connect_nonblock(SERVER.local_address) }
    }
  RUBY

  # What a script prints that runs with our methods.
  def ours(script, *flags, **options) = output_of(PRELUDE + script, "-reagain/nonblock", *flags, **options)

  # The same by Ruby itself.
  def plain(script)
    out, err, status = run_command({}, RUBY, "-W:no-experimental", "-e", PRELUDE + script)
    assert status.success?, err
    out
  end

  # The script prints the same either way, and something.
  def assert_same_as_ruby(script)
    expected = plain(script)
    refute_empty expected
    assert_equal expected, ours(script)
  end

  def assert_prints(expected, script, *flags, **options) = assert_equal(expected, ours(script, *flags, **options))

  # Expressions about e, a would-block exception. All are evaluated in one child, each for a new e.
  EXPRESSIONS = {
    "class" => "e.class",
    "ancestors" => "e.class.ancestors",
    "message" => "[e.message, e.message.encoding, e.message.frozen?, e.message.equal?(e.message)]",
    "to_s" => "[e.to_s, e.to_s.equal?(e.message)]",
    "errno" => "e.errno",
    "inspect" => "e.inspect",
    "backtrace's class" => "e.backtrace.class",
    "mutable backtrace" => "[e.backtrace.frozen?, e.backtrace.equal?(e.backtrace)]",
    "cause" => "e.cause",
    "frozen" => "e.frozen?",
    "full message" => "[e.set_backtrace(['f:1', 'f:2']), e.full_message(highlight: false), e.full_message(highlight: true, order: :bottom)]",
    "detailed message" => "e.respond_to?(:detailed_message) && [e.detailed_message, e.detailed_message(highlight: true)]",
    "instance variables" => "e.instance_variables",
    "dup" => "[e.dup.class, e.dup.message, e.dup.errno, e.dup.equal?(e), e.dup.frozen?, e.clone(freeze: true).message]",
    "equality" => "[e == e, e == e.dup, e.dup == e, e == e.class.new, e == 5, e.eql?(e.dup), e.dup.tap(&:message) == e]",
    "hash" => "e.hash == e.dup.hash",
    "exception" => "[e.exception.equal?(e), e.exception('other').message, e.exception('other').class, e.exception('other').errno, e.exception(e).equal?(e)]",
    "exception with a frozen message" => "e.exception('other'.freeze).message.frozen?",
    "marshal" => "[Marshal.load(Marshal.dump(e)).then { |f| [f.class, f.message, f.errno, f.backtrace.class, f.cause, f.message.frozen?] }]",
    "marshal after asking" => "e.message && e.backtrace && [Marshal.load(Marshal.dump(e)).then { |f| [f.class, f.message, f.errno] }]",
    "a message appended to" => "[e.message << '!', e.message, e.inspect, e.dup.message]",
    "a backtrace appended to" => "e.backtrace.unshift('f:1').first == e.backtrace.first",
    "frozen by hand" => "e.freeze && [e.message, e.backtrace.class, e.inspect, e.cause]",
    "raised again" => "(raise e rescue [$!.equal?(e), e.backtrace.class, e.cause])",
    "raised again with a message" => "(raise e, 'other' rescue [$!.class, $!.message, $!.cause.equal?(e), $!.errno])",
    "raised again with a backtrace" => "(raise e, 'other', ['f:1'] rescue [$!.backtrace, $!.message])",
    "wrapped" => "(begin; begin; raise e; rescue; raise 'other'; end; rescue; [$!.cause.equal?(e), $!.full_message(highlight: false).include?(e.message)]; end)",
    "a new one" => "e.class.new.then { |f| [f.message, f.errno, f.backtrace, f.backtrace_locations] }",
    "a new one with a message" => "e.class.new('text').then { |f| [f.message, f.errno, f.backtrace] }",
    "a subclass" => "Class.new(e.class).new('text').then { |f| [f.message, f.errno, f.backtrace, (raise f rescue f.backtrace.size > 0)] }",
    "matches" => "[SystemCallError, Errno::EAGAIN, Errno::EWOULDBLOCK, Errno::EINPROGRESS, IO::WaitReadable, IO::WaitWritable, " \
                 "IO::EAGAINWaitReadable, IO::EAGAINWaitWritable, IO::EWOULDBLOCKWaitReadable, IO::EINPROGRESSWaitWritable, " \
                 "IO::EINPROGRESSWaitReadable, Errno::EPIPE, StandardError].map { |c| c === e }",
    "pattern" => "(case e; in SystemCallError then :matched; end)",
    "respond_to" => "[e.respond_to?(:to_s), e.respond_to?(:backtrace)]",
    "singleton class" => "e.singleton_methods",
    "ruby's names for its class" => "[e.class.name, e.class.to_s, e.class.superclass]",
  }.freeze

  EXPRESSIONS.each_key do |name|
    define_method("test_as_rubys_own_#{name}") do
      expected, actual = self.class.evaluated { |script| [plain(script), ours(script)] }.map { |all| all.fetch(name) }
      assert_equal expected, actual
    end
  end

  # [name => what came of it in Ruby, the same with our methods]
  def self.evaluated
    @evaluated ||= begin
      lines = EXPRESSIONS.map do |name, expression|
        "p [#{name.dump}, %i[readable writable connecting].map { |kind| e = send(kind); ((#{expression})).inspect }]\n"
      end
      yield(lines.join).map { |out| out.each_line.to_h { |line| line.match(/\A\["(.*?)", (.*)\]$/).captures } }
    end
  end

  def test_every_call_has_its_message
    assert_same_as_ruby("ALL.each { |name, call| e = caught(&call); p [name, e.class, e.message, e.errno] }")
  end

  def test_a_fresh_one_each_time
    assert_prints("true\ntrue\ntrue\ntrue\ntrue\n", <<~'RUBY')
      a, b = readable, readable
      p !a.equal?(b), !a.message.equal?(b.message), !a.backtrace.equal?(b.backtrace)
      a.message << "!"
      a.backtrace << "f:1"
      p b.message !~ /!/, b.backtrace.empty? && readable.message !~ /!/
    RUBY
  end

  def test_many_create_no_class_and_flush_no_cache
    script = <<~RUBY
      call = ALL.fetch(:read)
      rescues = lambda do |count|
        count.times do
          call.call
        rescue Errno::EAGAIN
        end
      end
      rescues.(10)
      ALL.each_value { |one| caught(&one) } # each class and each call site has been seen
      classes = -> { GC.start; ObjectSpace.count_objects.values_at(:T_CLASS, :T_ICLASS, :T_MODULE).map(&:to_i) }
      before = [classes.call, RubyVM.stat.reject { |name, _| name == :constant_cache_misses }]
      rescues.(#{COUNT})
      ALL.each_value { |one| caught(&one) }
      after = [classes.call, RubyVM.stat.reject { |name, _| name == :constant_cache_misses }]
      p before == after ? :same : [before, after]
    RUBY
    assert_prints(":same\n", script, timeout: PATIENCE + (COUNT / 5000))
  end

  # An exception, and nothing else, until somebody asks it something.
  def test_one_object_each
    assert_prints("1.0\n", <<~'RUBY')
      def count(call, times)
        before = GC.stat(:total_allocated_objects)
        i = 0
        while i < times
          begin
            A.read_nonblock(5)
          rescue IO::WaitReadable
          end
          i += 1
        end
        GC.stat(:total_allocated_objects) - before
      end
      call = nil
      count(call, 10)
      p (count(call, 10_010) - count(call, 10)) / 10_000.0
    RUBY
  end

  def test_rescued_by_every_name
    names = %w[Errno::EAGAIN Errno::EWOULDBLOCK IO::WaitReadable IO::EAGAINWaitReadable IO::EWOULDBLOCKWaitReadable
               SystemCallError StandardError]
    script = names.map { |name| "begin; A.read_nonblock(5); rescue #{name}; puts #{name.dump}; end\n" }.join
    assert_prints(names.map { |name| "#{name}\n" }.join, script)
  end

  def test_a_cause
    assert_same_as_ruby(<<~'RUBY')
      def message(e) = e && [e.message, message(e.cause)]
      begin
        raise "first"
      rescue
        ALL.each_value { |call| p message(caught(&call)) }
        begin
          A.read_nonblock(5)
        rescue IO::WaitReadable
          p message(caught { FULL.write_nonblock("x") })
        end
        p message(caught { begin; A.read_nonblock(5); ensure; p $!.class; end })
      end
      p message(readable), $!
      begin
        raise "second"
      rescue => second
        p message(caught { raise caught { A.read_nonblock(5) }, cause: nil })
        p caught { raise second, cause: readable }.class
      end
      Thread.new { p message(readable) }.join
    RUBY
  end

  # Ends of every kind on the way from the call to the rescue.
  def test_what_is_in_between_is_left_in_order
    assert_same_as_ruby(<<~'RUBY')
      mutex = Mutex.new
      p caught { mutex.synchronize { A.read_nonblock(5) } }.class, mutex.locked?
      p caught { [1].each { |x| { x => 1 }.each { |k, v| [3, 2].sort_by { |y| A.read_nonblock(5) } } } }.class
      seen = []
      p caught { begin; begin; A.read_nonblock(5); ensure; seen << 1; end; ensure; seen << 2; end }.class, seen
      p [1, 2].map { |x| A.read_nonblock(x) rescue x }
      p catch(:done) { begin; A.read_nonblock(5); rescue IO::WaitReadable; throw :done, 7; end }
      def returns = [1].each { begin; A.read_nonblock(5); rescue IO::WaitReadable; return 8; end }
      p returns
      tries = 0
      begin
        tries += 1
        A.read_nonblock(5)
      rescue IO::WaitReadable
        retry if tries < 3
      end
      p tries
      p Fiber.new { caught { A.read_nonblock(5) }.class }.resume
      p caught { Fiber.new { A.read_nonblock(5) }.resume }.class
      p Enumerator.new { |y| y << caught { A.read_nonblock(5) }.class }.next
      p caught { Enumerator.new { |y| A.read_nonblock(5) }.next }.class
      p caught { A.method(:read_nonblock).to_proc.call(5) }.class, caught { A.then(&:recv_nonblock) }.class
      p caught { A.instance_exec { read_nonblock(5) } }.class, caught { eval("A.read_nonblock(5)") }.class
      p caught { define_singleton_method(:m) { A.read_nonblock(5) }; m }.class
      p caught { Thread.new { Thread.current.report_on_exception = false; A.read_nonblock(5) }.value }.class
      p caught { require "timeout"; Timeout.timeout(5) { A.read_nonblock(5) } }.class
      p caught { ObjectSpace.each_object(Class).first(1).each { A.read_nonblock(5) } }.class
      p $!
      at_exit { p $!.class }
      A.read_nonblock(5) rescue 0
    RUBY
  end

  def test_uncaught
    out, err, status = child("#{PRELUDE}\nputs 1\nA.read_nonblock(5)", "-reagain/nonblock")
    assert_equal "1\n", out
    assert_equal 1, status.exitstatus
    assert_match(/\A-e: .*Resource temporarily unavailable - read would block \(IO::EAGAINWaitReadable\)\n\z/, err)
  end

  def test_uncaught_in_a_thread
    _, err, status = child("#{PRELUDE}\nThread.new { A.read_nonblock(5) }.join rescue 0", "-reagain/nonblock")
    assert status.success?
    assert_match(/terminated with exception.*Resource temporarily unavailable - read would block/m, err)
  end

  # The places are the same, but for the frames of the methods themselves.
  def test_backtraces
    script = <<~'RUBY'
      Eagain::Nonblock.backtraces = true if defined?(Eagain)
      def place(call) = call.call
      ALL.each do |name, call|
        e = caught { place(call) }
        own = ->(path) { path.include?("socket.rb") || path.include?("nonblock.rb") || path.start_with?("<internal:") }
        p e.backtrace.reject(&own), e.backtrace_locations.reject { |l| own.(l.path) }.map(&:lineno)
        p e.backtrace == e.backtrace_locations.map(&:to_s), e.message, e.class
      end
      p caught { begin; raise "first"; rescue; readable.then { |e| raise e }; end }.cause.message
    RUBY
    assert_same_as_ruby(script)
  end

  def test_backtraces_can_be_switched
    assert_prints("false\ntrue\nfalse\n[[true, false], [false, true], [true, false]]\n", <<~'RUBY')
      seen = [false, true, nil].map do |on|
        Eagain::Nonblock.backtraces = on unless on == false
        p Eagain::Nonblock.backtraces
        [readable.backtrace.empty?, !readable.backtrace_locations.nil?]
      end
      p seen
    RUBY
  end

  def test_with_backtraces_it_is_traced_and_initialized
    assert_prints("[IO::EAGAINWaitReadable]\n[\"read would block\"]\n", <<~'RUBY')
      Eagain::Nonblock.backtraces = true
      seen = []
      TracePoint.new(:raise) { |t| seen << t.raised_exception.class }.enable { readable }
      p seen
      IO::EAGAINWaitReadable.class_eval { def initialize(*arguments) = (super; @arguments = arguments) }
      p readable.instance_variable_get(:@arguments)
    RUBY
  end

  def test_debug
    _, err, = child("#{PRELUDE}\n$DEBUG = true\nreadable", "-reagain/nonblock")
    assert_match(/Exception [`']IO::EAGAINWaitReadable' at .* - Resource temporarily unavailable - read would block/, err)
  end

  def test_gc_stress_and_compaction
    assert_prints("8\n", <<~'RUBY')
      GC.auto_compact = true if GC.respond_to?(:auto_compact=) && (GC.auto_compact || true) rescue 0
      GC.stress = true
      kept = ALL.map { |_, call| caught(&call) }
      again = ALL.map { |_, call| e = caught(&call); [e.message, e.backtrace, e.errno, e.inspect, e.dup.message]; e }
      GC.stress = false
      GC.compact rescue 0
      puts kept.zip(again).count { |a, b| a.message == b.message && a.class == b.class && a.backtrace == [] && a.message =~ /block\z/ }
    RUBY
  end

  def test_threads_at_once
    assert_prints("[[\"Resource temporarily unavailable - read would block\", 4000]]\n", <<~'RUBY')
      threads = Array.new(4) { Thread.new { Array.new(1000) { |i| Thread.pass if i % 7 == 0; readable.message } } }
      p threads.flat_map(&:value).tally.to_a
    RUBY
  end

  def test_ractors
    assert_prints("[\"Resource temporarily unavailable - read would block\", [], true]\ntrue\ntrue\n", <<~'RUBY')
      def take(ractor) = ractor.respond_to?(:value) ? ractor.value : ractor.take
      found = take(Ractor.new do
        a, _b = UNIXSocket.pair
        begin
          a.read_nonblock(5)
        rescue IO::WaitReadable => e
          [e.message, e.backtrace, Eagain::Nonblock.backtraces == false]
        end
      end)
      p found
      p take(Ractor.new { a, _b = UNIXSocket.pair; 1000.times { a.read_nonblock(5) rescue 0 }; true })
      e = Ractor.make_shareable(readable)
      p e.frozen? && e.message == readable.message && e.backtrace == []
    RUBY
  end

  # A Ruby or a program with another idea of an exception: then by the constructor, as ever.
  def test_the_constructor_is_used_where_it_does_more
    out, err, status = run_command({}, RUBY, "-W:no-experimental", "-I#{LIB}", "-e", <<~RUBY + PRELUDE + <<~'RUBY')
      class SystemCallError
        prepend(Module.new { def initialize(*) = (super; @note = "noted") })
      end
      require "eagain/nonblock"
    RUBY
      e = readable
      p e.instance_variable_get(:@note), e.message, e.backtrace, e.errno, e.class, writable.message
      p caught { begin; raise "first"; rescue; A.read_nonblock(5); end }.cause.message
    RUBY
    assert status.success?, err
    assert_equal <<~TEXT, out
      "noted"
      "Resource temporarily unavailable - read would block"
      []
      11
      IO::EAGAINWaitReadable
      "Resource temporarily unavailable - write would block"
      "first"
    TEXT
  end

  # Instances of one class with more or fewer variables, set in another order: before ours are made, and after.
  def test_variables_that_others_add
    first = "require 'socket'\n" + <<~'RUBY'
      other = IO::EAGAINWaitReadable.allocate
      other.instance_variable_set(:@first, 1)
    RUBY
    then_more = <<~'RUBY'
      all = lambda do
        ALL.values.map do |call|
          e = caught(&call)
          copy = Marshal.load(Marshal.dump(e))
          [e.class, e.message, e.errno, e.backtrace.to_a.size.clamp(0, 0), e.cause, e.instance_variables, copy == e, copy.message, copy.errno]
        end
      end
      p all.call
      e = readable
      Array.new(12) { |i| e.instance_variable_set("@v#{i}", i.to_s) }
      w = writable
      w.instance_variable_set(:@w, "w")
      GC.start
      p all.call, e.message, e.instance_variables, e.instance_variable_get(:@v11), e.errno, w.message, w.instance_variable_get(:@w)
      p 2000.times.map { readable }.map { |x| [x.message, x.errno, x.instance_variables] }.uniq
    RUBY
    ["", first].each do |before|
      out, err, status = run_command({}, RUBY, "-W:no-experimental", "-e", before + PRELUDE + then_more)
      assert status.success?, err
      ours, err, status = run_command({}, RUBY, "-W:no-experimental", "-I#{LIB}", "-e", "#{before}require 'eagain/nonblock'\n#{PRELUDE}#{then_more}")
      assert status.success?, err
      assert_equal out, ours
    end
  end
end
