# frozen_string_literal: true

require_relative "kgio_support"

# eagain/kgio by itself: what it promises beyond answering as the gem does (test_kgio_gem.rb) and passing the
# gem's own tests (script/kgio-tests). The rest is in test_kgio_sockets.rb.
class KgioTest < EagainTest
  include KgioSupport

  # Module: name => arity. "." before a singleton method.
  METHODS = {
    "Kgio" => {
      ".accept_class" => 0, ".accept_class=" => 1, ".accept_cloexec?" => 0, ".accept_cloexec=" => 1,
      ".accept_nonblock?" => 0, ".accept_nonblock=" => 1, ".autopush?" => 0, ".autopush=" => 1, ".poll" => -1,
      ".trypeek" => -1, ".tryread" => -1, ".trywrite" => 2, ".trywritev" => 2
    },
    "Kgio::DefaultWaiters" => { "kgio_wait_readable" => -1, "kgio_wait_writable" => -1 },
    "Kgio::PipeMethods" => {
      "kgio_read" => -1, "kgio_read!" => -1, "kgio_tryread" => -1, "kgio_write" => 1, "kgio_trywrite" => 1,
      "kgio_writev" => 1, "kgio_trywritev" => 1
    },
    "Kgio::SocketMethods" => {
      "kgio_read" => -1, "kgio_read!" => -1, "kgio_tryread" => -1, "kgio_peek" => -1, "kgio_trypeek" => -1,
      "kgio_write" => 1, "kgio_trywrite" => 1, "kgio_writev" => 1, "kgio_trywritev" => 1, "kgio_syssend" => 2,
      "kgio_addr" => 0, "kgio_addr!" => 0, "kgio_addr=" => 1, "kgio_autopush?" => 0, "kgio_autopush=" => 1
    },
    "Kgio::File" => { ".tryopen" => -1 },
    "Kgio::Pipe" => { ".new" => -1 },
    "Kgio::Socket" => { ".new" => -1, ".connect" => 1, ".start" => 1, "kgio_fastopen" => 2 },
    "Kgio::TCPSocket" => { ".new" => 2, ".start" => 2 },
    "Kgio::UNIXSocket" => { ".new" => 1, ".start" => 1 },
    "Kgio::TCPServer" => { "kgio_accept" => -1, "kgio_tryaccept" => -1 },
    "Kgio::UNIXServer" => { "kgio_accept" => -1, "kgio_tryaccept" => -1 },
  }.freeze

  PARENTS = {
    "Kgio::PipeMethods" => %w[Kgio::DefaultWaiters], "Kgio::SocketMethods" => %w[Kgio::DefaultWaiters],
    "Kgio::File" => %w[Kgio::PipeMethods File], "Kgio::Pipe" => %w[Kgio::PipeMethods IO],
    "Kgio::Socket" => %w[Kgio::SocketMethods Socket], "Kgio::TCPSocket" => %w[Kgio::SocketMethods TCPSocket],
    "Kgio::UNIXSocket" => %w[Kgio::SocketMethods UNIXSocket], "Kgio::TCPServer" => %w[TCPServer],
    "Kgio::UNIXServer" => %w[UNIXServer]
  }.freeze

  CONSTANTS = {
    LOCALHOST: "127.0.0.1", WaitReadable: :wait_readable, WaitWritable: :wait_writable,
    SOCK_CLOEXEC: 524_288, SOCK_NONBLOCK: 2048, MSG_FASTOPEN: 0x20000000, TCP_FASTOPEN: 23,
    POLLIN: 1, POLLPRI: 2, POLLOUT: 4, POLLERR: 8, POLLHUP: 16, POLLNVAL: 32, POLLRDHUP: 8192
  }.freeze

  # --- The interface.

  def test_constants
    assert_equal CONSTANTS, Kgio.constants.to_h { |name| [name, Kgio.const_get(name)] }
                                .reject { |_, value| value.is_a?(Module) }
  end

  def test_methods
    METHODS.each do |name, methods|
      mod = Object.const_get(name)
      found = mod.singleton_methods(false).to_h { |method| [".#{method}", mod.method(method).arity] }
      found.update(mod.instance_methods(false).to_h { |method| [method.to_s, mod.instance_method(method).arity] })
      assert_equal methods.sort, found.sort, name
      assert_empty mod.private_instance_methods(false), name
    end
    modules = Kgio.constants.map { |name| Kgio.const_get(name) }.grep(Module)
    assert_equal METHODS.keys.sort, ["Kgio", *modules.map(&:name)].sort
  end

  def test_parents
    PARENTS.each do |name, parents|
      ancestors = Object.const_get(name).ancestors.map(&:to_s)
      assert_equal parents, parents & ancestors, name
    end
  end

  def test_it_is_there_only_when_asked_for
    assert_child "nil\n\"constant\"\n", 'p defined?(Kgio); require "eagain/kgio"; p defined?(Kgio)'
  end

  def test_the_gem_is_not_loaded_afterwards
    assert_child "[false, false]\n", 'require "eagain/kgio"; p [require("kgio"), require("kgio_ext")]'
  end

  def test_the_gem_cannot_be_replaced
    assert_child "eagain/kgio: the kgio gem is loaded already\n", <<~'RUBY'
      module Kgio
        module PipeMethods; end
      end
      begin
        require "eagain/kgio"
      rescue LoadError => e
        puts e.message
      end
    RUBY
  end

  # --- What it costs.

  def test_a_would_block_allocates_nothing
    _, w = pipe
    a, b = pair
    s = server
    fill(w)
    fill(a)
    r2, = pipe
    buffer = +""
    strings = ["x"].freeze
    calls = {
      tryread: -> { r2.kgio_tryread(100) }, long: -> { r2.kgio_tryread(1 << 20) },
      buffer: -> { r2.kgio_tryread(4096, buffer) }, recv: -> { a.kgio_tryread(16_384) },
      peek: -> { a.kgio_trypeek(100) }, module: -> { Kgio.tryread(r2, 100) },
      write: -> { w.kgio_trywrite("x") }, send: -> { a.kgio_trywrite("x") },
      writev: -> { w.kgio_trywritev(strings) }, sendv: -> { a.kgio_trywritev(strings) },
      syssend: -> { a.kgio_syssend("x", Socket::MSG_DONTWAIT) }, accept: -> { s.kgio_tryaccept },
    }
    assert_equal %i[wait_readable wait_writable], calls.map { |_, call| call.call }.compact.uniq.sort
    used = calls.transform_values do |call|
      GC.disable
      2.times { call.call }
      before = GC.stat(:total_allocated_objects)
      100.times { call.call }
      GC.stat(:total_allocated_objects) - before
    ensure
      GC.enable
    end
    # Reading the counter may itself make an object or two.
    assert used.values.all? { |count| count < 5 }, used
    refute_nil b
  end

  def test_one_system_call_each
    trace = strace(<<~'RUBY')
      require "eagain/kgio"
      r, w = Kgio::Pipe.new
      a, b = Kgio::UNIXSocket.pair
      server = Kgio::TCPServer.new("127.0.0.1", 0)
      [r, a, b].each { |io| io.kgio_tryread(5) }
      mark
      100.times { r.kgio_tryread(16_384) }
      100.times { a.kgio_tryread(16_384) }
      100.times { w.kgio_trywrite("x") }
      100.times { a.kgio_trywrite("x") }
      100.times { a.kgio_trywritev(%w[x y]) }
      100.times { b.kgio_trypeek(10) }
      100.times { server.kgio_tryaccept }
      mark
    RUBY
    work = trace.work
    assert_equal 100, trace[:preadv2], work
    assert_equal 200, trace[:recvfrom], work
    assert_equal 100, trace[:pwritev2], work
    assert_equal 100, trace[:sendto], work
    assert_equal 100, trace[:sendmsg], work
    assert_equal 100, trace[:poll], work # a listener might block
    assert_operator work.values.sum, :<=, 702, work
  end

  def test_the_mode_of_others_descriptors_stays
    [IO.pipe, UNIXSocket.pair].each do |r, w|
      keep(r, w).each { |io| io.nonblock = false }
      assert_equal :wait_readable, Kgio.tryread(r, 5)
      assert_nil Kgio.trywrite(w, "abc")
      assert_nil Kgio.trywritev(w, ["d"])
      fill(w)
      assert_equal "abcd", Kgio.tryread(r, 4)
      refute r.nonblock?
      refute w.nonblock?
    end
    s = server
    s.nonblock = false
    assert_nil s.kgio_tryaccept
    c = keep(TCPSocket.new("127.0.0.1", s.addr[1]))
    a = keep(s.kgio_tryaccept)
    c.write("x")
    assert_equal "x", a.kgio_read(5)
    assert_equal :wait_readable, a.kgio_tryread(5)
    fill(a)
    refute s.nonblock?
    refute a.nonblock?
    assert a.close_on_exec?
  end

  # --- Reading and writing.

  def test_reading
    each_kind do |(r, w), tryread|
      read = tryread ? r.method(tryread) : ->(*args) { Kgio.tryread(r, *args) }
      assert_equal :wait_readable, read.call(5)
      w.syswrite("héllo")
      string = read.call(3)
      assert_equal ["hé".b, Encoding::BINARY], [string, string.encoding]
      buffer = +"ü" * 50
      assert_same buffer, read.call(5, buffer)
      assert_equal ["llo", Encoding::UTF_8], [buffer, buffer.encoding]
      assert_equal :wait_readable, read.call(5, buffer)
      assert_equal "", buffer
      data = Random.bytes(60_000)
      w.syswrite(data)
      assert_bytes data, read.call(1 << 20)
      assert_equal "", read.call(0)
      w.close
      assert_nil read.call(5)
      r.close
      assert_raises(IOError) { read.call(5) }
    end
  end

  def test_bad_arguments_are_those_of_read_nonblock
    r, = pipe
    b = UNIXSocket.pair.each { |io| keep(io) }[0]
    [-1, "x", nil, Object.new, 1 << 64].each do |length|
      expected = assert_raises(StandardError) { r.read_nonblock(length) }
      [r.method(:kgio_tryread), r.method(:kgio_read), ->(n) { Kgio.trypeek(b, n) }].each do |call|
        error = assert_raises(expected.class) { call.call(length) }
        assert_equal expected.message, error.message
      end
    end
    ["frozen".freeze, 5, false].each do |buffer|
      expected = assert_raises(StandardError) { r.read_nonblock(5, buffer) }
      error = assert_raises(expected.class) { r.kgio_tryread(5, buffer) }
      assert_equal expected.message, error.message
    end
    assert_raises(NoMemoryError) { r.kgio_tryread(1 << 62) }
  end

  def test_a_shared_buffer_is_not_written_through
    r, w = pipe
    big = "x" * 5000
    copy = big.dup
    w.syswrite("ab")
    assert_equal "ab", r.kgio_tryread(5000, copy)
    assert_equal "x" * 5000, big
  end

  def test_what_a_conversion_does_to_the_io
    r, w = pipe
    w.syswrite("abc")
    length = Object.new
    length.define_singleton_method(:to_int) { r.close || 5 }
    assert_raises(IOError) { r.kgio_tryread(length) }
    _, w2 = pipe
    string = Object.new
    string.define_singleton_method(:to_s) { w2.close || "x" }
    assert_raises(IOError) { w2.kgio_trywrite(string) }
    _, w3 = pipe
    list = ["a"]
    item = Object.new
    item.define_singleton_method(:to_s) { list.clear && "b" }
    list << item << "c"
    assert_nil w3.kgio_trywritev(list)
    r4, w4 = keep(*IO.pipe)
    w4.syswrite("x" * 100)
    buffer = +"x" * 100
    io = Object.new
    io.define_singleton_method(:to_io) { buffer.replace("") && GC.start || r4 }
    assert_equal "x" * 50, Kgio.tryread(io, 50, buffer)
  end

  def test_writing_leaves_a_rest
    each_kind do |(r, w), _, trywrite|
      write = trywrite ? w.method(trywrite) : ->(data) { Kgio.trywrite(w, data) }
      data = Random.bytes(4 << 20)
      sent = data.dup
      rest = write.call(sent)
      assert_kind_of String, rest
      assert_equal :wait_writable, write.call("x")
      reader = Thread.new { r.read(data.bytesize) }
      until rest.nil?
        w.wait_writable
        answer = write.call(rest)
        rest = answer unless answer == :wait_writable
      end
      assert_bytes data, watch(reader, PATIENCE)
      assert_bytes data, sent
    end
  end

  def test_writing_many_leaves_a_rest
    [pipe, pair].each do |r, w|
      data = Array.new(6000) { |i| (i % 10).to_s * (i % 3 == 2 ? 0 : 700) }
      reader = nil
      rest = w.kgio_trywritev(data)
      assert_kind_of Array, rest
      assert_same data.last, rest.last
      left = rest.join.bytesize
      reader = Thread.new { r.read(data.join.bytesize) }
      assert_nil w.kgio_writev(rest)
      assert_bytes data.join, watch(reader, PATIENCE)
      assert_operator left, :<, data.join.bytesize
    end
  end

  def test_what_is_written_is_what_was_given_when_the_wait_ends
    [[:kgio_write, ->(s) { s }], [:kgio_writev, ->(s) { [s] }]].each do |write, wrap|
      r, w = pipe
      data = "a" * 300_000
      original = data.dup
      w.define_singleton_method(:kgio_wait_writable) do
        data.replace("b" * 300_000)
        super()
      end
      reader = Thread.new { r.read(300_000) }
      assert_nil w.send(write, wrap.call(data))
      assert_bytes original, watch(reader, PATIENCE)
    end
  end

  def test_files
    Tempfile.create("kgio") do |temp|
      file = keep(Kgio::File.tryopen(temp.path, IO::RDWR))
      assert_nil file.kgio_trywritev(["ab", 1, "c" * 100_000])
      file.rewind
      assert_equal "ab1", file.kgio_read(3)
      assert_bytes "c" * 100_000, file.kgio_tryread(200_000)
      assert_nil file.kgio_read(5)
      assert_silent(EOFError, "end of file reached") { file.kgio_read!(5) }
    end
  end

  # --- Errors.

  def test_errors_of_the_peer_have_no_backtrace
    r, w = pipe
    r.close
    assert_silent(Errno::EPIPE, "Broken pipe - write") { w.kgio_trywrite("x") }
    assert_silent(Errno::EPIPE, "Broken pipe - write") { w.kgio_write("x") }
    assert_silent(Errno::EPIPE, "Broken pipe - writev") { w.kgio_writev(["x"]) }
    a, b = pair
    b.close
    assert_silent(Errno::EPIPE, "Broken pipe - send") { a.kgio_trywrite("x") }
    assert_silent(Errno::EPIPE, "Broken pipe - send") { a.kgio_syssend("x", 0) }
    assert_silent(EOFError, "end of file reached") { a.kgio_read!(5) }
    { kgio_tryread: "recv", kgio_read!: "recv", kgio_peek: "recv(MSG_PEEK)" }.each do |call, name|
      s = server
      c = keep(Kgio::TCPSocket.new("127.0.0.1", s.addr[1]))
      peer = s.kgio_accept
      peer.setsockopt(:SOCKET, :LINGER, [1, 0].pack("ii"))
      peer.close
      c.kgio_wait_readable
      assert_silent(Errno::ECONNRESET, "Connection reset by peer - #{name}") { c.__send__(call, 5) }
    end
  end

  def test_other_errors_have_one
    r, w = pipe
    error = assert_raises(Errno::EBADF) { w.kgio_tryread(5) }
    assert_equal "Bad file descriptor - read", error.message
    refute_empty error.backtrace
    error = assert_raises(Errno::ENOTSOCK) { Kgio.trypeek(r, 5) }
    refute_empty error.backtrace
    assert_raises(Errno::ENOTCONN) { keep(Kgio::Socket.new(:INET, :STREAM)).kgio_tryread(5) }
  end

  # What a number was before decides how it is asked first, and must not decide what is answered.
  def test_the_wrong_direction_whatever_the_number_was
    Dir.mktmpdir do |dir|
      File.mkfifo("#{dir}/fifo")
      fifos = Array.new(4) { File.open("#{dir}/fifo", File::RDWR) } # no RWF_NOWAIT
      fifos.each { |fifo| [Kgio.tryread(fifo, 1), Kgio.trywrite(fifo, "x"), Kgio.tryread(fifo, 1)] }
      numbers = fifos.map(&:fileno)
      close_all(fifos)
      (r, w), (r2, w2) = pipe, pipe
      assert_equal numbers.sort, [r, w, r2, w2].map(&:fileno).sort
      fill(w)
      fill(w2)
      assert_raises(Errno::EBADF) { w.kgio_tryread(5) }
      assert_raises(Errno::EBADF) { r2.kgio_trywrite("x") }
      assert_raises(Errno::EBADF) { r.kgio_trywritev(["x"]) }
    end
    Kgio::Pipe.popen("cat", "r+") { |io| assert_raises(Errno::EBADF) { io.kgio_trywrite("x") } }
  end

  # --- Memory, nonsense, Ractors.

  def test_under_gc_stress
    script = <<~'RUBY'
      require "eagain/kgio"
      s = Kgio::TCPServer.new("127.0.0.1", 0)
      r, w = Kgio::Pipe.new
      a, b = Kgio::UNIXSocket.pair
      compact = GC.respond_to?(:compact)
      GC.stress = true
      3.times do |i|
        GC.compact if compact
        raise "1" unless w.kgio_trywritev(["a", i, :b]).nil? && r.kgio_tryread(10) == "a#{i}b"
        raise "2" unless a.kgio_trywrite("x" * 300).nil? && b.kgio_trypeek(500, +"y").size == 300
        raise "3" unless b.kgio_read(20_000).size == 300 && b.kgio_tryread(20_000) == :wait_readable
        rest = a.kgio_trywritev(["z" * 100_000] * 20)
        raise "4" unless Array === rest && String === rest[0]
        nil until b.kgio_tryread(1 << 20) == :wait_readable
        raise "5" unless String === (left = a.kgio_trywrite("z" * 2_000_000)) && left.size < 2_000_000
        nil until b.kgio_tryread(1 << 20) == :wait_readable
        c = Kgio::TCPSocket.new("127.0.0.1", s.addr[1])
        d = s.kgio_accept(Kgio::TCPSocket)
        raise "6" unless d.kgio_addr == "127.0.0.1" && d.kgio_addr! == "127.0.0.1"
        d.kgio_autopush = true
        d.kgio_write(12)
        raise "7" unless d.kgio_tryread(5) == :wait_readable && c.kgio_read(5) == "12"
        raise "8" unless Kgio.poll({ r => 1, w => :wait_writable }) == { w => 4 }
        raise "9" unless Kgio::File.tryopen("/nonexistent") == :ENOENT && Kgio::File.tryopen("/etc/passwd").read(3)
        raise "10" unless r.kgio_wait_readable(0).nil? && w.kgio_wait_writable.equal?(w)
        c.close
        begin
          d.kgio_wait_readable
          d.kgio_read!(5)
        rescue EOFError
          d.close
        end
      end
      GC.stress = false
      GC.verify_compaction_references(toward: :empty, double_heap: false) rescue nil
      raise "11" unless Kgio.accept_class == Kgio::Socket && Kgio::LOCALHOST == "127.0.0.1"
      puts "fine"
    RUBY
    assert_child "fine\n", script, timeout: PATIENCE * 3
  end

  VALUES = [
    0, 1, 5, 100, -1, 3.7, nil, true, false, :wait_readable, "x", "hé" * 9, "f".freeze, [], ["a", 5], {}, 1 << 31,
    1 << 65, Object.new, 1..2, String, Kgio::Socket, "/nonexistent/file", "127.0.0.1", File.open(File::NULL), "a\0b"
  ].freeze
  # Not those that may wait for ever, or set something for the process.
  CALLS = METHODS.flat_map do |name, methods|
    owner = Object.const_get(name)
    methods.keys.grep(/\A\.(?!poll|new|.*=)/).map { |method| [owner, method[1..]] } +
      methods.keys.grep(/try|addr|autopush|syssend|fastopen/).grep_v(/\A\./).map { |method| [nil, method] }
  end.uniq.freeze

  def test_any_arguments
    random = Random.new(seed)
    errors = 0
    3000.times do
      target, name = CALLS.sample(random: random)
      args = Array.new(random.rand(4)) { VALUES.sample(random: random) }
      args.map! { |arg| arg.is_a?(String) && !arg.frozen? ? arg.dup : arg }
      args.shift if args[0].is_a?(Integer) && args[0] >= 1 << 31 && name.match?(/read|peek/)
      args[0] = "/nonexistent/file" if name == "tryopen" && args[0].is_a?(String) # not one that can be made
      target ||= [pipe[1], pair[0], server, keep(Kgio::Socket.new(:INET, :STREAM))].find { |io| io.respond_to?(name) }
      begin
        result = target.__send__(name, *args)
        keep(result) if result.is_a?(IO)
      rescue ArgumentError, TypeError, RangeError, FrozenError, IOError, SystemCallError => e
        errors += 1
        refute_empty e.message, "#{name} #{args}"
      end
      close_all(@open)
      @open.clear
    end
    assert_operator errors, :>, 1000
  end

  def test_ractors
    assert_child "\"abc\"\n", <<~'RUBY'
      require "eagain/kgio"
      ractor = Ractor.new do
        r, w = IO.pipe
        Kgio.trywrite(w, "abc")
        Kgio.tryread(r, 10)
      end
      p(ractor.respond_to?(:value) ? ractor.value : ractor.take)
    RUBY
  end
end
