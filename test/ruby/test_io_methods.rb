# frozen_string_literal: true

require_relative "helper"
require_relative "opened"
require "eagain/io" unless PEER
require "io/wait"
require_relative "tls"

# require "eagain/io": the try calls as methods, and those of a TLS session.
class IOMethodsTest < EagainTest
  include Opened

  IO_CALLS = %i[tryread tryreadv trypeek trywrite trywritev trysplice].freeze
  SOCKET_CALLS = %i[tryrecv tryrecvfrom tryrecvmsg trysend trysendmsg trysendfile tryaccept tryconnect].freeze

  def setup
    only_ours
  end

  # --- IO and BasicSocket.

  def test_each_is_where_it_belongs
    IO_CALLS.each { |name| assert IO.public_method_defined?(name), name }
    SOCKET_CALLS.each do |name|
      assert BasicSocket.public_method_defined?(name), name
      refute IO.method_defined?(name), name
    end
    (IO_CALLS + SOCKET_CALLS + [:tryopen]).each { |name| assert_respond_to Eagain, name }
    assert_empty Eagain.constants.grep(/Methods|Memory|Guard/)
  end

  def test_on_a_pipe
    r, w = keep(*IO.pipe)
    assert_equal :wait_readable, r.tryread(10)
    assert_equal 5, w.trywrite("hello")
    assert_equal "hello", r.tryread(10)
    assert_equal 3, w.trywritev(%w[a bc])
    buffer = +"old"
    assert_same buffer, r.tryread(10, buffer)
    assert_equal "abc", buffer
    w.close
    assert_nil r.tryread(10)
  end

  def test_on_sockets
    server = keep TCPServer.new("127.0.0.1", 0)
    assert_equal :wait_readable, server.tryaccept
    client = keep Socket.new(:INET, :STREAM)
    client.wait_writable(5) until client.tryconnect(server.local_address) == 0
    accepted = keep server.tryaccept(class: Class.new(TCPSocket))
    assert_kind_of TCPSocket, accepted
    refute_instance_of TCPSocket, accepted
    assert_equal :wait_readable, accepted.tryrecv(10)
    assert_equal 3, client.trysend("one")
    accepted.wait_readable(5)
    assert_equal "one", accepted.tryrecv(10)
    assert_equal 3, client.trywrite("two")
    accepted.wait_readable(5)
    assert_equal "tw", accepted.trypeek(2)
    assert_equal "two", accepted.tryread(10)
    assert_raises(ArgumentError) { server.tryaccept(TCPSocket) }
    assert_raises(ArgumentError) { client.tryconnect }
  end

  def test_tryopen
    Dir.mktmpdir do |dir|
      path = File.join(dir, "file")
      File.write(path, "text")
      [IO, File].each { |klass| assert_equal "text", keep(klass.tryopen(path)).read }
    end
  end

  def test_would_blocks_allocate_nothing
    _, w = keep(*IO.pipe)
    a, = keep(*UNIXSocket.pair)
    server = keep TCPServer.new("127.0.0.1", 0)
    w.trywrite("x" * 65_536) until w.trywrite("x") == :wait_writable
    empty = keep(*IO.pipe)
    x = "x"
    calls = [-> { empty[0].tryread(10) }, -> { a.tryread(10) }, -> { a.tryrecv(10) }, -> { server.tryaccept },
             -> { w.trywrite(x) }]
    calls.each do |call|
      assert_kind_of Symbol, call.call
      assert_equal 0, allocations(&call)
    end
  end

  def test_whatever_is_loaded_first
    ["eagain/io openssl", "openssl eagain/io"].each do |order|
      assert_child "true\ntrue\n", <<~RUBY
        #{order.split.map { |name| "require #{name.inspect}" }.join("\n")}
        p OpenSSL::SSL::SSLSocket.public_method_defined?(:tryread)
        p IO.public_method_defined?(:tryread)
      RUBY
    end
  end

  def test_without_openssl
    Dir.mktmpdir do |dir|
      File.write(File.join(dir, "openssl.rb"), "raise LoadError, 'cannot load such file -- openssl'\n")
      assert_child "nil\ntrue\n", <<~RUBY, "-I#{dir}"
        require "eagain/io"
        p defined?(OpenSSL)
        p IO.public_method_defined?(:tryread)
      RUBY
    end
  end

  def test_nothing_is_there_without_it
    assert_child "[]\n", <<~'RUBY'
      require "socket"
      require "openssl"
      p [IO, File, TCPServer, UNIXSocket, Socket, OpenSSL::SSL::SSLSocket, IO.singleton_class]
        .flat_map { |it| it.instance_methods.grep(/\Atry(?!_convert)/) }
    RUBY
  end

  # --- TLS.

  def test_the_handshake
    client, server = tls_pair
    steps = []
    pending = { client => :tryconnect, server => :tryaccept }
    until pending.empty?
      pending.each do |session, step|
        answer = session.public_send(step)
        steps << answer if answer.is_a?(Symbol)
        next if answer.is_a?(Symbol)

        assert_same session, answer
        pending.delete(session)
        break
      end
      assert_operator steps.size, :<, 1000
    end
    assert_includes steps, :wait_readable
    assert_equal :wait_readable, client.tryread(10)
    assert_equal 5, deliver("hello", client, server)
    assert_equal "hello", server.tryread(10)
  end

  def test_a_handshake_that_has_to_wait_for_room
    client, server = tls_pair
    assert_equal :wait_readable, client.tryconnect
    socket = server.to_io
    filled = 0
    while (count = socket.write_nonblock("x" * 65_536, exception: false)) != :wait_writable
      filled += count
    end
    assert_operator filled, :>, 0
    assert_equal :wait_writable, server.tryaccept
  end

  def test_handshakes_that_fail_as_they_do_in_ruby
    errors = [->(it) { it.connect_nonblock(exception: false) }, ->(it) { it.tryconnect }].map do |step|
      client, server = tls_pair
      server.to_io.write("this is not TLS\r\n" * 10)
      outcome { 100.times { step.call(client).is_a?(Symbol) && client.to_io.wait_readable(1) } }
    end
    assert_kind_of OpenSSL::SSL::SSLError.singleton_class, errors[0][0]
    assert_equal errors[0][0], errors[1][0]
    assert_equal(*errors.map { |_, message| message.gsub(/127\.0\.0\.1:\d+/, "peer") })
  end

  def test_reading_and_writing
    client, server = tls_session
    assert_equal :wait_readable, server.tryread(100)
    assert_equal 11, deliver("hello world", client, server)
    read = server.tryread(5)
    assert_equal "hello", read
    assert_equal Encoding::BINARY, read.encoding
    refute_predicate read, :frozen?
    buffer = +"old content"
    assert_same buffer, server.tryread(100, buffer)
    assert_equal " world", buffer
    assert_equal :wait_readable, server.tryread(100, buffer)
    assert_equal "", server.tryread(0)
    client.close
    server.to_io.wait_readable(1)
    assert_nil server.tryread(1)
    assert_nil server.tryread(1)
  end

  def test_what_was_read_ahead_comes_first
    client, server = tls_session
    deliver("line\nrest", client, server)
    assert_equal "line\n", server.gets
    assert_equal "re", server.tryread(2)
    server.ungetc("x")
    assert_equal "xst", server.tryread(10)
    assert_equal :wait_readable, server.tryread(10)
  end

  def test_several_strings_at_once
    client, server = tls_session
    assert_equal :wait_readable, server.tryreadv([2, 3])
    assert_equal 8, client.trywritev(["hello", :w, 12])
    assert server.to_io.wait_readable(5)
    assert_equal %w[he llo], server.tryreadv([2, 3])
    buffers = [+"old", +"older", +"oldest"]
    assert_same buffers, server.tryreadv([1, 5, 2], buffers)
    assert_equal ["w", "12", ""], buffers
    assert_equal :wait_readable, server.tryreadv([1, 5, 2], buffers)
    assert_equal ["w", "12", ""], buffers
    deliver("line\nrest", client, server)
    assert_equal "line\n", server.gets
    assert_equal "r", server.trypeek(1)
    assert_equal %w[re st], server.tryreadv([2, 9])
    client.close
    server.to_io.wait_readable(1)
    assert_nil server.tryreadv([1], [buffers[0]])
    assert_empty buffers[0]
  end

  def test_buffers_that_cannot_be_filled_lose_nothing
    client, server = tls_session
    deliver("hello", client, server)
    bad = Object.new
    def bad.to_str = raise("no string")
    [[[5], ["".b.freeze], FrozenError], [[2, 3], [+""], ArgumentError], [[2, 3], [+"", bad], RuntimeError],
     [[5], [5], TypeError], [5, nil, TypeError], [[-1], nil, ArgumentError], [[2**40], nil, RangeError]].each do |lengths, buffers, error|
      assert_raises(error) { server.tryreadv(lengths, buffers) }
      assert_raises(error) { Eagain.tryreadv(server, lengths, buffers) }
    end
    assert_raises(ArgumentError) { server.tryreadv }
    assert_raises(TypeError) { client.trywritev("x") }
    assert_raises(ArgumentError) { client.trywritev }
    assert_equal %w[he llo], Eagain.tryreadv(server, [2, 3])
  end

  def test_strings_are_never_shared
    client, server = tls_session
    strings = Array.new(50) do |i|
      assert_equal :wait_readable, server.tryread(16)
      deliver("message #{i}", client, server)
      server.tryread(16)
    end
    assert_equal Array.new(50) { |i| "message #{i}" }, strings
    assert_equal 50, strings.map(&:object_id).uniq.size
  end

  def test_peeking
    client, server = tls_session
    assert_equal :wait_readable, server.trypeek(10)
    deliver("hello\nworld", client, server)
    assert_equal "hel", server.trypeek(3)
    assert_equal "he", server.trypeek(2)
    buffer = +""
    assert_same buffer, server.trypeek(3, buffer)
    assert_equal "hel", buffer
    buffer << "changed"
    assert_equal "hello\n", server.gets
    assert_equal "world", server.trypeek(10)
    server.trypeek(10) << "changed"
    assert_equal "", server.trypeek(0)
    assert_raises(ArgumentError) { server.trypeek(-1) }
    assert_equal "world", server.tryread(10)
    assert_raises(ArgumentError) { server.trypeek(-1) }
    client.close
    server.to_io.wait_readable(1)
    assert_nil server.trypeek(1)
  end

  def test_writing_until_there_is_no_room
    client, server = tls_session
    chunk = "0123456789abcdef" * 1024
    sent = 0
    while (count = client.trywrite(chunk)) != :wait_writable
      sent += count
      assert_operator sent, :<, 1 << 28
    end
    received = 0
    received += server.readpartial(65_536).bytesize while received < sent
    client.to_io.wait_writable(5)
    assert_equal chunk.bytesize, client.trywrite(chunk)
    assert_equal chunk, server.read(chunk.bytesize)
  end

  def test_what_write_has_buffered_goes_first_without_waiting
    client, server = tls_session
    client.sync = false
    client.write("buffered ")
    assert_equal :wait_readable, server.tryread(100)
    assert_equal 6, client.trywrite("direct")
    assert_equal "buffered direct", server.read(15)
    client.write("buffered ")
    assert_equal 6, client.trywritev(%w[dir ect])
    assert_equal "buffered direct", server.read(15)
    # No room: write keeps what it was given, and trywrite does not wait for it.
    client.write("kept")
    chunk = "x" * 16_384
    plain = client.to_io
    nil while plain.write_nonblock(chunk, exception: false) != :wait_writable # nobody reads this any more
    started = now
    assert_equal :wait_writable, client.trywrite("direct")
    assert_equal :wait_writable, client.trywrite("direct")
    assert_equal :wait_writable, client.trywritev(%w[dir ect])
    assert_equal :wait_writable, Eagain.trywritev(client, %w[dir ect])
    assert_operator now - started, :<, 1
  end

  def test_errors_are_those_of_the_nonblocking_methods
    unstarted, = tls_pair
    ended, = tls_session
    ended.sync_close = false
    ended.close
    destroyed, = tls_session
    destroyed.sync_close = true
    destroyed.close
    cut, = tls_session
    cut.to_io.close
    errors = [unstarted, ended, destroyed, cut].map do |session|
      [[:read_nonblock, :tryread, 10], [:write_nonblock, :trywrite, "x"]].map do |theirs, ours, argument|
        expected = outcome { session.public_send(theirs, argument, exception: false) }
        assert_equal expected, outcome { session.public_send(ours, argument) }
        expected
      end
    end
    (errors.flatten(1) - errors[1].first(1)).each { |error| assert_kind_of Class, error[0] }
    session, @peer = tls_session # which a GC would close
    [nil, "x", -1, 1 << 70, 1.5, :x].each do |bad|
      assert_equal outcome { session.read_nonblock(bad, exception: false) }, outcome { session.tryread(bad) }, bad
      assert_equal outcome { session.write_nonblock(bad, exception: false) }, outcome { session.trywrite(bad) }, bad
    end
    frozen = "frozen"
    assert_equal outcome { session.read_nonblock(5, frozen, exception: false) }, outcome { session.tryread(5, frozen) }
  end

  def test_a_read_that_wants_to_write
    session, @peer = tls_session # which a GC would close
    session.define_singleton_method(:sysread_nonblock) { |*, **| :wait_writable }
    assert_equal :wait_writable, session.tryread(10)
    assert_equal :wait_writable, session.trypeek(10)
  end

  def test_a_would_block_makes_no_string
    session, @peer = tls_session # which a GC would close
    session.tryread(16_384)
    created = lambda do
      GC.start
      GC.disable
      before = ObjectSpace.count_objects[:T_STRING]
      100.times { session.tryread(16_384) }
      ObjectSpace.count_objects[:T_STRING] - before
    ensure
      GC.enable
    end
    assert_operator Array.new(3) { created.call }.min, :<, 10
  end

  # openssl makes Hashes for its keywords; docs/decisions/try-calls.md says how many.
  def test_what_a_would_block_allocates
    session, @peer = tls_session # which a GC would close
    buffer = +""
    [-> { session.tryread(16) }, -> { session.tryread(16, buffer) }, -> { Eagain.tryread(session, 16, buffer) }].each do |call|
      assert_equal :wait_readable, call.call
      assert_operator allocations(&call), :<=, 250
    end
  end

  def test_a_read_inside_a_read
    client, server = tls_session
    inner, other = tls_session
    other.tryread(16)
    server.tryread(16)
    nested = nil
    server.define_singleton_method(:read_nonblock) do |length, buffer = nil, exception: true|
      nested = other.tryread(16) if nested.nil?
      super(length, buffer, exception: exception)
    end
    deliver("inner", inner, other)
    deliver("outer", client, server)
    assert_equal "outer", server.tryread(16)
    assert_equal "inner", nested
  end

  private

  # Two sessions over a socket pair, before their handshake: [client, server].
  def tls_pair
    a, b = keep(*tcp_pair)
    [a, b].each { |socket| socket.setsockopt(:TCP, :NODELAY, true) }
    [OpenSSL::SSL::SSLSocket.new(a, TLS.client_context), OpenSSL::SSL::SSLSocket.new(b, TLS.server_context)]
  end

  # The same after the handshake; what comes after it (session tickets) is read already.
  def tls_session
    client, server = tls_pair
    thread = Thread.new { server.accept }
    client.connect
    watch(thread, 10)
    client.to_io.wait_readable(0.2)
    assert_equal :wait_readable, client.read_nonblock(1, exception: false)
    [client, server]
  end

  # Over loopback; returns once it is there.
  def deliver(text, from, to)
    from.trywrite(text).tap { assert to.to_io.wait_readable(5) }
  end

  def outcome
    yield
  rescue StandardError => error
    [error.class, error.message]
  end
end
