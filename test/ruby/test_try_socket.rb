# frozen_string_literal: true

require_relative "helper"
require_relative "like_ruby"

# tryrecv, tryrecvfrom and trysend: each answer and each error beside that of Ruby's own method.
class TrySocketTest < EagainTest
  include LikeRuby

  def test_there_and_back
    each_pair do |a, b, kind|
      assert_equal :wait_readable, Eagain.tryrecv(b, 100), kind
      assert_equal 5, Eagain.trysend(a, "hello"), kind
      data = arrived(b) { Eagain.tryrecv(b, 100) }
      assert_equal "hello", data, kind
      assert_equal Encoding::BINARY, data.encoding
      assert_equal :wait_readable, Eagain.tryrecv(b, 100), kind
    end
  end

  def test_methods_of_a_socket
    UNIXSocket.pair do |a, b|
      assert_raises(NameError) { Eagain::SocketMethods }
      methods = Eagain.const_get(:SocketMethods)
      [a, b].each { |socket| socket.extend(methods) }
      assert_equal :wait_readable, b.tryrecv(10)
      assert_equal 2, a.trysend("ab")
      assert_equal ["ab", ["AF_UNIX", ""]], b.tryrecvfrom(10)
      assert_equal 2, a.trysend("cd", 0, nil)
      assert_equal "c", b.tryrecv(1, Socket::MSG_PEEK)
      assert_equal "cd", b.tryrecv(10, 0, +"")
      assert_raises(ArgumentError) { b.tryrecv }
      assert_raises(ArgumentError) { b.tryrecv(1, 2, 3, 4) }
      assert_raises(ArgumentError) { a.trysend }
    end
  end

  def test_end_of_file_of_a_stream
    each_pair(:stream, :tcp, :socket) do |a, b, kind|
      a.write("x")
      a.close
      assert_equal "x", arrived(b) { Eagain.tryrecv(b, 100) }, kind
      assert_nil arrived(b) { Eagain.tryrecv(b, 100) }, kind
      assert_nil Eagain.tryrecvfrom(b, 100), kind
      buffer = +"before"
      assert_nil Eagain.tryrecv(b, 100, 0, buffer), kind
      assert_equal "", buffer, kind
      buffer << "again"
      assert_nil Eagain.tryrecvfrom(b, 100, 0, buffer), kind
      assert_equal "", buffer, kind
      assert_equal "", Eagain.tryrecv(b, 0), kind
    end
  end

  def test_an_empty_datagram_is_an_empty_string
    each_pair(:dgram, :seqpacket, :udp, :socket_dgram) do |a, b, kind|
      assert_equal 0, Eagain.trysend(a, ""), kind
      assert_equal "", arrived(b) { Eagain.tryrecv(b, 100) }, kind
      a.send("", 0)
      assert_equal "", arrived(b) { Eagain.tryrecvfrom(b, 100) }.first, kind
      assert_equal :wait_readable, Eagain.tryrecv(b, 100), kind
    end
  end

  def test_a_closed_peer_of_a_seqpacket_socket
    each_pair(:seqpacket) do |a, b, _|
      a.close
      assert_equal "", Eagain.tryrecv(b, 100)
      assert_fails_like_ruby(-> { b.send("x", 0) }, -> { Eagain.trysend(b, "x") })
    end
  end

  def test_a_datagram_is_cut_off_and_a_stream_is_not
    each_pair do |a, b, kind|
      a.send("hello", 0)
      assert_equal "he", arrived(b) { Eagain.tryrecv(b, 2) }, kind
      rest = %i[stream tcp socket].include?(kind) ? "llo" : :wait_readable
      assert_equal rest, Eagain.tryrecv(b, 10), kind
    end
  end

  def test_sizes
    each_pair(:stream, :tcp) do |a, b, kind|
      [1, 23, 24, 4095, 4096, 4097, 65_536, 100_000].each do |size|
        data = Random.bytes(size)
        a.write(data)
        got = +""
        got << arrived(b) { Eagain.tryrecv(b, size - got.bytesize) } while got.bytesize < size
        assert_bytes data, got
        a.write(data)
        buffer = +""
        got = +""
        got << arrived(b) { Eagain.tryrecv(b, size - got.bytesize, 0, buffer) } while got.bytesize < size
        assert_bytes data, got
      end
      assert_equal :wait_readable, Eagain.tryrecv(b, 1), kind
    end
  end

  def test_more_than_the_scratch_memory_holds
    each_pair(:stream) do |a, b, _|
      a.write("hello")
      assert_equal "hello", Eagain.tryrecv(b, 100 << 20)
      assert_equal :wait_readable, Eagain.tryrecv(b, 100 << 20)
      a.write("again")
      assert_equal "again", Eagain.tryrecv(b, 2**31 - 1)
      a.write("small")
      assert_equal "small", Eagain.tryrecv(b, 10)
    end
  end

  def test_what_was_received_is_kept_apart_from_the_next
    each_pair(:dgram) do |a, b, _|
      messages = Array.new(3) { |i| (i.to_s * 5000) }
      messages.each { |message| a.send(message, 0) }
      assert_equal(messages, Array.new(3) { Eagain.tryrecv(b, 10_000) })
    end
  end

  def test_threads_have_their_own_memory
    threads = Array.new(4) do |i|
      Thread.new do
        UNIXSocket.pair do |a, b|
          300.times do |n|
            message = "#{i}:#{n}" * 500
            a.write(message)
            assert_bytes message, Eagain.tryrecv(b, 100_000)
            Thread.pass
          end
        end
      end
    end
    threads.each { |thread| watch(thread, PATIENCE) }
  end

  # --- Buffers.

  def test_buffers
    each_pair do |a, b, kind|
      ["", "short", "x" * 100, "é", "x".b].each do |content|
        [1, 4, 100].each do |maxlen|
          buffers = Array.new(2) { content.dup }
          calls = [->(buffer) { b.recv_nonblock(maxlen, 0, buffer) },
            ->(buffer) { Eagain.tryrecv(b, maxlen, 0, buffer) }]
          calls.zip(buffers) do |call, buffer|
            a.send("hello", 0)
            assert_same buffer, arrived(b) { call.call(buffer) }
            Eagain.tryrecv(b, 100) # the rest, of a stream
          end
          assert_equal buffers[0], buffers[1], kind
          assert_equal buffers[0].encoding, buffers[1].encoding, kind
          assert_equal buffers[0].valid_encoding?, buffers[1].valid_encoding?, kind
        end
      end
    end
  end

  def test_a_buffer_stays_as_it_was_when_there_is_nothing
    each_pair do |_, b, kind|
      buffer = +"before"
      assert_equal :wait_readable, Eagain.tryrecv(b, 100, 0, buffer)
      assert_equal :wait_readable, Eagain.tryrecvfrom(b, 100, 0, buffer)
      assert_equal "before", buffer, kind
    end
  end

  def test_a_shared_buffer_is_not_written_through
    each_pair(:stream) do |a, b, _|
      original = "x" * 100
      copy = original[0..]
      a.write("hello")
      assert_equal "hello", Eagain.tryrecv(b, 50, 0, copy)
      assert_equal "x" * 100, original
    end
  end

  def test_bad_buffers
    each_pair(:stream) do |_, b, _|
      odd = Object.new
      def odd.to_str = 5
      ["frozen", ("frozen" * 100).freeze, :symbol, 1, Object.new, [], odd].each do |buffer|
        [1, 100].each do |maxlen|
          assert_fails_like_ruby(-> { b.recv_nonblock(maxlen, 0, buffer) }, -> { Eagain.tryrecv(b, maxlen, 0, buffer) })
          assert_raises(TypeError, FrozenError) { Eagain.tryrecvfrom(b, maxlen, 0, buffer) }
        end
      end
    end
  end

  def test_a_buffer_that_is_locked
    each_pair(:stream) do |a, b, _|
      r, w = IO.pipe
      buffer = +""
      thread = Thread.new { r.sysread(10, buffer) }
      sleep 0.001 until thread.stop?
      a.write("x")
      error = assert_raises(RuntimeError) { Eagain.tryrecv(b, 10, 0, buffer) }
      assert_match(/temporarily locked/, error.message)
      w.write("done")
      assert_equal "done", watch(thread, PATIENCE)
      close_all(r, w)
    end
  end

  # --- Arguments.

  LENGTHS = [-1, -2**31, 2**31, 2**63, 2**64, -2**70, nil, "1", :a, Object.new, [], 1.5, 3.99, Float::NAN,
             Float::INFINITY].freeze

  def test_lengths
    each_pair(:stream) do |a, b, _|
      LENGTHS.each do |length|
        a.write("hello")
        assert_like_ruby(-> { b.recv_nonblock(length, Socket::MSG_PEEK) },
          -> { Eagain.tryrecv(b, length, Socket::MSG_PEEK) },
                         length.inspect)
        Eagain.tryrecv(b, 100)
      end
      # Ruby lets the kernel write past the buffer then.
      assert_raises(ArgumentError) { Eagain.tryrecv(b, -1, 0, +"abc") }
      assert_raises(ArgumentError) { Eagain.tryrecvfrom(b, -1) }
    end
  end

  def test_a_length_of_zero
    each_pair(:dgram, :seqpacket, :udp) do |a, b, kind|
      2.times { a.send("hello", 0) }
      assert_equal "", arrived(b) { Eagain.tryrecv(b, 0) }, kind
      assert_equal "", arrived(b) { Eagain.tryrecvfrom(b, 0) }.first, kind
      assert_equal :wait_readable, Eagain.tryrecv(b, 0), kind
    end
    each_pair(:stream, :tcp) do |a, b, kind|
      assert_equal "", Eagain.tryrecv(b, 0), kind
      a.write("hello")
      assert_equal "", arrived(b) { Eagain.tryrecv(b, 0) }, kind
      assert_equal "hello", Eagain.tryrecv(b, 10), kind
    end
  end

  FLAGS = ["0", :a, Object.new, [], 2**31, 2**64, -2**70, 0.0, 2.5].freeze

  def test_flags
    each_pair(:stream) do |a, b, _|
      (FLAGS + [Socket::MSG_OOB]).each do |flags|
        a.write("hellohello")
        assert_like_ruby(-> { b.recv_nonblock(5, flags) }, -> { Eagain.tryrecv(b, 5, flags) }, flags.inspect)
        assert_like_ruby(-> { a.send("x", flags) }, -> { Eagain.trysend(a, "x", flags) }, flags.inspect)
      end
      assert_equal 1, Eagain.trysend(a, "x", nil)
      assert_kind_of String, Eagain.tryrecv(b, 100, nil)
    end
  end

  def test_a_message_that_is_longer_than_the_buffer_says_so_no_further
    each_pair do |a, b, kind|
      a.send("hello world", 0)
      got = arrived(b) { Eagain.tryrecv(b, 5, Socket::MSG_TRUNC) }
      assert_equal 5, got.bytesize, kind # Ruby crashes
      assert_includes ["hello", "\0" * 5], got, kind # TCP throws the bytes away
      Eagain.tryrecv(b, 100)
      a.send("hello world", 0)
      buffer = +"buffer"
      got = arrived(b) { Eagain.tryrecv(b, 5, Socket::MSG_TRUNC, buffer) }
      assert_same buffer, got
      assert_includes ["hello", "\0" * 5], got, kind
    end
  end

  def test_what_is_sent
    odd = Object.new
    def odd.to_str = "from to_str"
    each_pair(:dgram) do |a, b, _|
      ["", "ascii", "é", "é".encode("UTF-16LE"), "\xff", "x" * 1000, odd].each do |message|
        assert_like_ruby(-> { [a.send(message, 0), b.recv(2000)] }, -> { [Eagain.trysend(a, message), b.recv(2000)] })
      end
      [nil, 1, :symbol, Object.new, [], ["x"]].each do |message|
        assert_fails_like_ruby(-> { a.send(message, 0) }, -> { Eagain.trysend(a, message) })
      end
    end
  end

  def test_destinations
    Dir.mktmpdir do |dir|
      server = Addrinfo.unix("#{dir}/server", :DGRAM).bind
      client = Socket.new(:UNIX, :DGRAM)
      odd = Object.new
      odd.define_singleton_method(:to_str) { Socket.sockaddr_un("#{dir}/server") }
      [server.local_address, server.local_address.to_sockaddr, odd].each do |dest|
        assert_equal 2, Eagain.trysend(client, "hi", 0, dest)
        assert_equal "hi", Eagain.tryrecv(server, 10)
      end
      no_destinations(dir).each do |dest|
        assert_fails_like_ruby(-> { client.send("hi", 0, dest) },
                               -> { Eagain.trysend(client, "hi", 0, dest) }, dest.class)
      end
      assert_fails_like_ruby(-> { client.send("hi", 0) }, -> { Eagain.trysend(client, "hi") })
      close_all(server, client)
    end
  end

  def test_a_conversion_cannot_pull_the_strings_away
    each_pair(:stream) do |a, b, _|
      string = +"x" * 1000
      dest = Object.new
      dest.define_singleton_method(:to_str) { string.replace("short") && "" }
      outcome { Eagain.trysend(a, string, 0, dest) }
      closer = Object.new
      closer.define_singleton_method(:to_int) { a.close || 0 }
      assert_raises(IOError) { Eagain.trysend(a, "x", closer) }
      buffer = Object.new
      buffer.define_singleton_method(:to_str) { b.close || +"" }
      assert_raises(IOError) { Eagain.tryrecv(b, 10, 0, buffer) }
    end
  end

  # --- Senders.

  def test_senders_of_ip_sockets
    [["127.0.0.1", Socket::AF_INET], ["::1", Socket::AF_INET6]].each do |host, family|
      a = UDPSocket.new(family)
      b = UDPSocket.new(family)
      begin
        b.bind(host, 0)
      rescue SystemCallError => error
        skip "#{host}: #{error.class}"
      end
      port = b.addr[1]
      [true, false].each do |quiet|
        b.do_not_reverse_lookup = quiet
        2.times { a.send("hi", 0, host, port) }
        theirs = arrived(b) { b.recvfrom_nonblock(10) }
        ours = arrived(b) { Eagain.tryrecvfrom(b, 10) }
        assert_equal theirs, ours
        assert_equal(theirs.flatten.grep(String).map(&:encoding), ours.flatten.grep(String).map(&:encoding))
      end
      close_all(a, b)
    end
  end

  def test_senders_of_connected_sockets
    each_pair do |a, b, kind|
      a.send("ab", 0)
      theirs = arrived(b) { b.recvfrom(1) }
      a.send("cb", 0) unless %i[stream tcp socket].include?(kind)
      ours = arrived(b) { Eagain.tryrecvfrom(b, 1) }
      assert_equal [describe(theirs[1])], [describe(ours[1])], kind
    end
  end

  def test_senders_of_unix_sockets
    Dir.mktmpdir do |dir|
      [UNIXSocket, Socket].each do |klass|
        server = klass.for_fd(Addrinfo.unix("#{dir}/#{klass}", :DGRAM).bind.tap { |s| s.autoclose = false }.fileno)
        ["#{dir}/client of #{klass}", "\0abstract of #{klass}", nil].each do |path|
          client = Socket.new(:UNIX, :DGRAM)
          client.bind(Addrinfo.unix(path)) if path
          2.times { client.send("hi", 0, server.local_address) }
          theirs = server.recvfrom(10)
          ours = Eagain.tryrecvfrom(server, 10)
          assert_equal theirs[0], ours[0]
          assert_equal describe(theirs[1]), describe(ours[1])
          client.close
        end
        server.close
      end
    end
  end

  # --- What it costs.

  def test_a_would_block_allocates_nothing
    each_pair do |a, b, kind|
      buffer = +""
      assert_equal 0, allocations { 10.times { Eagain.tryrecv(b, 11) } }, kind
      assert_equal 0, allocations { 10.times { Eagain.tryrecv(b, 1_000_000) } }, kind
      assert_equal 0, allocations { 10.times { Eagain.tryrecv(b, 20_000_000) } }, kind
      assert_equal 0, allocations { 10.times { Eagain.tryrecv(b, 1000, 0, buffer) } }, kind
      assert_equal 0, allocations { 10.times { Eagain.tryrecvfrom(b, 1000) } }, kind
      next if kind == :udp

      nil until Eagain.trysend(a, "x" * 1000) == :wait_writable
      message = "x" * 1000
      assert_equal :wait_writable, Eagain.trysend(a, message), kind
      assert_equal 0, allocations { 10.times { Eagain.trysend(a, message) } }, kind
    end
  end

  def test_a_message_is_one_object
    each_pair(:dgram) do |a, b, _|
      2.times { a.send("hello", 0) }
      assert_equal(1, allocations { flunk unless Eagain.tryrecv(b, 100) == "hello" })
    end
  end

  def test_system_calls
    t = strace(<<~RUBY)
      require "socket"
      GC.disable
      a, b = UNIXSocket.pair(:DGRAM)
      u = UDPSocket.new
      u.bind("127.0.0.1", 0)
      address = u.local_address
      Eagain.trysend(a, "warm"); Eagain.tryrecv(b, 10)
      mark
      10.times do
        Eagain.trysend(a, "hello")
        Eagain.tryrecv(b, 10)
        Eagain.tryrecvfrom(b, 10)
        Eagain.trysend(a, "again")
        Eagain.tryrecvfrom(b, 10)
        Eagain.trysend(u, "to itself", 0, address)
        Eagain.tryrecvfrom(u, 10)
        Eagain.tryrecv(u, 1_000_000)
      end
      mark
    RUBY
    assert_equal({ "sendto" => 30, "recvfrom" => 50 }, t.work, t.to_s)
  end

  def test_under_gc_stress_and_compaction
    assert_survives_gc_stress(<<~RUBY, 'u = UDPSocket.new; u.bind("127.0.0.1", 0)')
      raise unless Eagain.trysend(a, message) == message.bytesize
      raise unless Eagain.tryrecv(b, 30_000) == message
      raise unless Eagain.trysend(a, message) == message.bytesize
      raise unless Eagain.tryrecv(b, 30_000, 0, String.new("x")) == message
      raise unless Eagain.trysend(u, "itself", 0, u.local_address) == 6
      raise unless Eagain.tryrecvfrom(u, 10)[0] == "itself"
      raise unless Eagain.tryrecvfrom(u, 10) == :wait_readable
      begin
        Eagain.trysend(u, "x", 0, "bad")
        raise "no error"
      rescue SystemCallError
      end
    RUBY
  end

  # Random types and sizes: the same error as Ruby's, or none.
  def test_fuzz
    random = Random.new(seed)
    values = LENGTHS + FLAGS + ["string", "frozen", +"", +"buffer", true, false, { a: 1 }, 1..2, 10, 1000,
                                Socket::MSG_PEEK]
    each_pair(:stream, :dgram, :udp) do |a, b, kind|
      300.times do
        length, flags, buffer = Array.new(3) { values.sample(random: random) }
        flags = 0 if flags.nil? # which is: not given
        buffer = buffer.dup if buffer.is_a?(String) && random.rand(2) == 1
        next if buffer.is_a?(String) && Integer === length && length.negative? # Ruby writes past the buffer
        next if kind == :stream && length == 0.0 # one who wants nothing has it; Ruby waits for something

        arguments = [length, flags, buffer].first(random.rand(1..3))
        theirs = outcome { b.recv_nonblock(*arguments, exception: false) }
        assert_equal [theirs], [outcome { Eagain.tryrecv(b, *arguments) }], "#{kind}: #{arguments.inspect}"
      end
      300.times do
        message, flags, dest = Array.new(3) { values.sample(random: random) }
        flags = 0 if flags.nil?
        arguments = [message, flags, dest].first(random.rand(2..3))
        theirs = outcome { BasicSocket.instance_method(:send).bind_call(a, *arguments) }
        drain(b)
        assert_equal theirs, outcome { Eagain.trysend(a, *arguments) }, "#{kind}: #{arguments.inspect}"
        drain(b)
      end
    end
  end
end
