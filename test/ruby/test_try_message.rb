# frozen_string_literal: true

require_relative "helper"
require_relative "like_ruby"

# tryrecvmsg and trysendmsg: each answer and each error beside that of Ruby's own method.
class TryMessageTest < EagainTest
  include LikeRuby

  def test_there_and_back
    each_pair do |a, b, kind|
      assert_equal :wait_readable, Eagain.tryrecvmsg(b), kind
      assert_equal 5, Eagain.trysendmsg(a, "hello"), kind
      assert_equal "hello", arrived(b) { Eagain.tryrecv(b, 100) }, kind
      assert_receives_like_ruby(b, note: kind) { assert_equal 5, Eagain.trysendmsg(a, "hello") }
      assert_receives_like_ruby(b, note: kind) { assert_equal 5, a.sendmsg("hello") }
      assert_receives_like_ruby(b, 3, note: kind) { a.sendmsg("hello") }
      assert_receives_like_ruby(b, 100, 0, 0, note: kind) { a.sendmsg("hello") }
      assert_receives_like_ruby(b, nil, Socket::MSG_PEEK, note: kind) { a.sendmsg("hello") }
      assert_equal :wait_readable, Eagain.tryrecvmsg(b, 10, 0, 10), kind
    end
  end

  def test_methods_of_a_socket
    UNIXSocket.pair do |a, b|
      [a, b].each { |socket| socket.extend(Eagain.const_get(:SocketMethods)) }
      assert_equal :wait_readable, b.tryrecvmsg
      assert_equal 2, a.trysendmsg("ab")
      assert_equal "ab", b.tryrecvmsg[0]
      assert_equal 2, a.trysendmsg(%w[c d], 0, nil, $stdin)
      *, control = b.tryrecvmsg(10, 0, 100, scm_rights: true)
      assert_equal [IO], control.unix_rights.map(&:class)
      control.unix_rights.each(&:close)
      assert_raises(ArgumentError) { a.trysendmsg }
      assert_raises(ArgumentError) { b.tryrecvmsg(1, 2, 3, 4) }
    end
  end

  def test_arguments_of_the_module_functions
    UNIXSocket.pair do |a, b|
      assert_raises(ArgumentError) { Eagain.tryrecvmsg }
      assert_raises(ArgumentError) { Eagain.tryrecvmsg(b, 1, 2, 3, 4) }
      assert_raises(ArgumentError) { Eagain.trysendmsg(a) }
      assert_fails_like_ruby(-> { b.recvmsg_nonblock(wrong: 1) }, -> { Eagain.tryrecvmsg(b, wrong: 1) })
      assert_equal :wait_readable, Eagain.tryrecvmsg(b, **{})
      assert_equal :wait_readable, Eagain.tryrecvmsg(b, scm_rights: nil)
    end
  end

  def test_end_of_file_of_a_stream
    each_pair(:stream, :tcp, :socket) do |a, b, kind|
      a.write("x")
      a.close
      assert_equal "x", arrived(b) { Eagain.tryrecvmsg(b)[0] }, kind
      assert_nil arrived(b) { Eagain.tryrecvmsg(b) }, kind
      assert_nil Eagain.tryrecvmsg(b, 10, 0, 10, scm_rights: true), kind
      assert_equal "", Eagain.tryrecvmsg(b, 0)[0], kind
    end
  end

  def test_an_empty_datagram_is_an_empty_string
    each_pair(:dgram, :udp, :socket_dgram) do |a, b, kind|
      assert_receives_like_ruby(b, note: kind) { assert_equal 0, Eagain.trysendmsg(a, "") }
    end
    each_pair(:seqpacket) do |a, b, _|
      Eagain.trysendmsg(a, "")
      assert_equal "", Eagain.tryrecvmsg(b)[0]
    end
  end

  # --- Without a length.

  def test_long_datagrams_are_received_whole
    each_pair(:dgram, :seqpacket, :udp) do |a, b, kind|
      [4095, 4096, 4097, 60_000, 200_000].each do |size|
        next if kind == :udp && size > 65_000

        a.setsockopt(:SOCKET, :SNDBUF, 400_000)
        data = Random.bytes(size)
        a.sendmsg(data)
        got, _, flags = arrived(b) { Eagain.tryrecvmsg(b) }
        assert_bytes data, got
        assert_equal 0, flags & Socket::MSG_TRUNC
      end
    end
  end

  def test_of_a_stream_everything_that_is_there
    each_pair(:stream) do |a, b, _|
      a.setsockopt(:SOCKET, :SNDBUF, 400_000)
      message = assert_receives_like_ruby(b) { 4.times { |i| a.write((i.to_s * 25_000)) } }
      assert_equal 100_000, message[0].bytesize
    end
  end

  def test_more_than_is_kept
    client, server = tcp_pair
    client.setsockopt(:SOCKET, :SNDBUF, 4_000_000)
    server.setsockopt(:SOCKET, :RCVBUF, 4_000_000)
    data = Random.bytes(5_000_000)
    writer = Thread.new { client.write(data) && client.close }
    got = +""
    longest = 0
    until (message = arrived(server) { sleep(0.01) && Eagain.tryrecvmsg(server) }).nil?
      longest = [longest, message[0].bytesize].max
      got << message[0]
    end
    watch(writer, PATIENCE)
    assert_bytes data, got
    assert_operator longest, :>, 1 << 20
    close_all(server, client)
  end

  def test_it_is_one_call_whatever_the_size
    t = strace(<<~RUBY)
      require "socket"
      GC.disable
      a, b = UNIXSocket.pair(:DGRAM)
      a.setsockopt(:SOCKET, :SNDBUF, 400_000)
      Eagain.trysendmsg(a, "warm"); Eagain.tryrecvmsg(b)
      message = "x" * 150_000
      mark
      10.times { a.sendmsg(message) && Eagain.tryrecvmsg(b)[0].bytesize == 150_000 or raise }
      Eagain.tryrecvmsg(b)
      mark
    RUBY
    assert_equal 11, t[:recvmsg], t.to_s
  end

  def test_lengths
    each_pair(:stream) do |a, b, _|
      [-1, -2**31, 2**64, -2**70, "1", :a, Object.new, [], 1.5, Float::NAN].each do |length|
        assert_like_ruby(-> { picture(a.write("hello") && b.recvmsg_nonblock(length)) },
                         -> { drain(b) || picture(a.write("hello") && Eagain.tryrecvmsg(b, length)) }, length.inspect)
        drain(b)
        assert_like_ruby(-> { picture(a.write("hello") && b.recvmsg_nonblock(10, 0, length)) },
                         -> { drain(b) || picture(a.write("hello") && Eagain.tryrecvmsg(b, 10, 0, length)) },
                           length.inspect)
        drain(b)
      end
      a.write("hello")
      assert_equal "hello", Eagain.tryrecvmsg(b, 100 << 20, 0, 100 << 20)[0]
      assert_raises(NoMemoryError) { Eagain.tryrecvmsg(b, 2**60) }
      assert_equal :wait_readable, Eagain.tryrecvmsg(b, 10)
    end
  end

  def test_flags
    each_pair(:stream) do |a, b, _|
      ["0", :a, Object.new, [], 2**31, 2**64, 0.0, 2.5, Socket::MSG_OOB].each do |flags|
        a.write("hellohello")
        assert_like_ruby(-> { picture(b.recvmsg_nonblock(5, flags)) },
          -> { picture(Eagain.tryrecvmsg(b, 5, flags)) }, flags.inspect)
        assert_like_ruby(-> { a.sendmsg("x", flags) }, -> { Eagain.trysendmsg(a, "x", flags) }, flags.inspect)
        drain(b)
      end
      assert_equal 1, Eagain.trysendmsg(a, "x", nil)
      assert_equal "x", Eagain.tryrecvmsg(b, nil, nil, nil)[0]
    end
  end

  def test_a_message_that_was_cut_off_says_so
    each_pair do |a, b, kind|
      a.sendmsg("hello world")
      data, _, flags = arrived(b) { Eagain.tryrecvmsg(b, 5, Socket::MSG_TRUNC) }
      assert_equal 5, data.bytesize, kind
      assert_includes ["hello", "\0" * 5], data, kind # TCP throws the bytes away
      stream = %i[stream tcp socket].include?(kind)
      assert_equal stream ? 0 : Socket::MSG_TRUNC, flags & Socket::MSG_TRUNC, kind
    end
  end

  # --- Sending.

  def test_many_pieces_are_one_message
    odd = Object.new
    def odd.to_str = "odd"
    each_pair do |a, b, kind|
      { %w[a bc] => "abc", [] => "", ["", "x", ""] => "x", ["é", "\xff".b] => "é\xff".b, ["a", odd, "b"] => "aoddb",
        Array.new(1024, "1") => "1" * 1024, Array.new(1025, "2") => "2" * 1025, Array.new(5000, "34") => "34" * 5000,
        [odd] * 2000 => "odd" * 2000 }.each do |pieces, whole|
        stream = %i[stream tcp socket].include?(kind)
        next if whole.empty? && stream

        assert_equal whole.bytesize, Eagain.trysendmsg(a, pieces), kind
        assert_bytes whole, arrived(b) { Eagain.tryrecvmsg(b)[0] }
      end
      [[1], ["a", nil], [%w[a]], [:a]].each { |pieces| assert_raises(TypeError) { Eagain.trysendmsg(a, pieces) } }
    end
  end

  def test_what_is_sent
    odd = Object.new
    def odd.to_str = "from to_str"
    each_pair(:dgram) do |a, b, _|
      ["", "é", "é".encode("UTF-16LE"), "\xff", "x" * 1000, odd].each do |message|
        assert_like_ruby(-> { [a.sendmsg(message, 0), b.recv(2000)] },
          -> { [Eagain.trysendmsg(a, message), b.recv(2000)] })
      end
      [nil, 1, :symbol, Object.new].each do |message|
        assert_fails_like_ruby(-> { a.sendmsg(message) }, -> { Eagain.trysendmsg(a, message) })
      end
    end
  end

  def test_destinations
    Dir.mktmpdir do |dir|
      server = Addrinfo.unix("#{dir}/server", :DGRAM).bind
      client = Socket.new(:UNIX, :DGRAM)
      client.bind(Addrinfo.unix("#{dir}/client"))
      assert_receives_like_ruby(server) { Eagain.trysendmsg(client, "hi", 0, server.local_address) }
      assert_receives_like_ruby(server) { Eagain.trysendmsg(client, %w[h i], 0, server.local_address.to_sockaddr,
        $stdin) }
      no_destinations(dir).each do |dest|
        assert_fails_like_ruby(-> { client.sendmsg("hi", 0, dest) },
                               -> { Eagain.trysendmsg(client, "hi", 0, dest) }, dest.class)
      end
      close_all(server, client)
    end
  end

  def test_a_conversion_cannot_pull_things_away
    each_pair(:stream) do |a, b, _|
      string = +"x" * 1000
      pieces = ["a", "b", string]
      meddle = Object.new
      meddle.define_singleton_method(:to_str) { string.replace("y") && pieces.replace(["a", nil, 3]) && "" }
      assert_raises(TypeError) { Eagain.trysendmsg(a, pieces, 0, meddle) }
      controls = Object.new
      controls.define_singleton_method(:to_ary) { a.close || [1, 2, "x"] }
      assert_raises(IOError) { Eagain.trysendmsg(a, "x", 0, nil, controls) }
      length = Object.new
      length.define_singleton_method(:to_int) { b.close || 1 }
      assert_raises(IOError) { Eagain.tryrecvmsg(b, length) }
    end
    each_pair(:stream) do |a, _, _|
      r, w = IO.pipe
      closer = Object.new
      closer.define_singleton_method(:to_io) { r.close || w }
      assert_raises(IOError) { Eagain.trysendmsg(a, "x", 0, nil, r, closer) }
      w.close
    end
  end

  # --- Errors.

  def test_no_sockets
    [$stdin, nil, 1, "x", Object.new, UNIXSocket].each do |object|
      assert_raises(TypeError) { Eagain.tryrecvmsg(object) }
      assert_raises(TypeError) { Eagain.trysendmsg(object, "x") }
      assert_raises(TypeError) { Eagain.trysendmsg(object, "x", 0, nil, $stdin) }
    end
    with_a_pipe_behind_a_socket do |b|
      assert_raises(Errno::ENOTSOCK) { Eagain.tryrecvmsg(b) }
      assert_raises(Errno::ENOTSOCK) { Eagain.trysendmsg(b, "x") }
    end
  end

  def test_closed_and_uninitialized
    each_pair do |a, b, kind|
      close_all(a, b)
      assert_fails_like_ruby(-> { b.recvmsg_nonblock }, -> { Eagain.tryrecvmsg(b) }, kind)
      assert_fails_like_ruby(-> { b.sendmsg("x") }, -> { Eagain.trysendmsg(b, "x") }, kind)
      assert_fails_like_ruby(-> { b.sendmsg("x") }, -> { Eagain.trysendmsg(b, %w[x], 0, nil, $stdin) }, kind)
    end
    socket = Socket.allocate
    assert_fails_like_ruby(-> { socket.recvmsg_nonblock }, -> { Eagain.tryrecvmsg(socket) })
    assert_fails_like_ruby(-> { socket.sendmsg("x") }, -> { Eagain.trysendmsg(socket, "x") })
  end

  def test_read_ahead_by_ruby
    each_pair(:stream) do |a, b, _|
      a.write("line\nmore")
      assert_equal "line\n", b.gets
      assert_fails_like_ruby(-> { b.recvmsg_nonblock }, -> { Eagain.tryrecvmsg(b) })
    end
  end

  def test_not_connected
    stream = Socket.new(:INET, :STREAM)
    assert_fails_like_ruby(-> { stream.recvmsg_nonblock }, -> { Eagain.tryrecvmsg(stream) })
    assert_fails_like_ruby(-> { stream.sendmsg("x") }, -> { Eagain.trysendmsg(stream, "x") })
    datagram = UDPSocket.new
    assert_fails_like_ruby(-> { datagram.sendmsg("x") }, -> { Eagain.trysendmsg(datagram, "x") })
    assert_fails_like_ruby(-> { datagram.sendmsg("x") }, -> { Eagain.trysendmsg(datagram, %w[x]) })
    close_all(stream, datagram)
  end

  def test_too_long_and_broken
    each_pair(:udp, :dgram) do |a, _, kind|
      message = "x" * 10_000_000
      assert_fails_like_ruby(-> { a.sendmsg(message) }, -> { Eagain.trysendmsg(a, message) }, kind)
      assert_fails_like_ruby(-> { a.sendmsg(message) }, -> { Eagain.trysendmsg(a, [message, message]) }, kind)
    end
    each_pair(:stream, :seqpacket) do |a, b, kind|
      b.close
      assert_equal Errno::EPIPE, assert_fails_like_ruby(-> { a.sendmsg("x") },
                                                        -> { Eagain.trysendmsg(a, "x") }, kind)[0]
      assert_fails_like_ruby(-> { a.sendmsg("x") }, -> { Eagain.trysendmsg(a, %w[x y]) }, kind)
    end
    calls = [->(socket) { socket.sendmsg("x") }, ->(socket) { Eagain.trysendmsg(socket, "x") }]
    theirs, ours = calls.map { |call| sending_to_a_closed_peer(&call) }
    assert_equal [Errno::ECONNREFUSED, "Connection refused - sendmsg(2)"], ours[0]
    assert_equal theirs, ours
  end

  def test_reset
    results = [->(s) { s.recvmsg_nonblock }, ->(s) { Eagain.tryrecvmsg(s) }].map do |call|
      a, b = tcp_pair
      a.setsockopt(Socket::Option.linger(true, 0))
      a.close
      arrived(b) { outcome { call.call(b) } }.tap { b.close }
    end
    assert_equal [Errno::ECONNRESET, "Connection reset by peer - recvmsg(2)"], results[1]
    assert_equal results[0], results[1]
  end

  # --- What it costs.

  def test_a_would_block_allocates_nothing
    each_pair do |a, b, kind|
      assert_equal 0, allocations { 10.times { Eagain.tryrecvmsg(b) } }, kind
      assert_equal 0, allocations { 10.times { Eagain.tryrecvmsg(b, 100_000, 0, 100_000) } }, kind
      next if kind == :udp

      message = "x" * 1000
      pieces = Array.new(100, "x" * 10)
      nil until Eagain.trysend(a, message) == :wait_writable
      assert_equal :wait_writable, Eagain.trysendmsg(a, message), kind
      assert_equal 0, allocations { 10.times { Eagain.trysendmsg(a, message) } }, kind
      assert_equal 0, allocations { 10.times { Eagain.trysendmsg(a, pieces) } }, kind
      assert_equal 0, allocations { 10.times { Eagain.trysendmsg(a, message, 0, nil, $stdin) } }, kind
    end
  end

  def test_what_a_message_allocates
    each_pair(:seqpacket) do |a, b, _|
      assert_equal(1, allocations { flunk unless Eagain.trysendmsg(a, "11 bytes...") == 11 && Eagain.tryrecv(b,
        11).bytesize == 11 })
      # The Array, the bytes, the sender and its address.
      assert_equal(4, allocations { flunk unless Eagain.trysendmsg(a,
        "11 bytes...") == 11 && Eagain.tryrecvmsg(b).size == 3 })
    end
  end

  # EAGAIN_ROUNDS: of how many messages, 2,000 unless told.
  def test_seqpacket_messages_are_one_call_each
    rounds = Integer(ENV.fetch("EAGAIN_ROUNDS", 2000))
    t = strace(<<~RUBY)
      require "socket"
      GC.disable if #{rounds} <= 2000
      a, b = UNIXSocket.pair(:SEQPACKET)
      warm = proc { Eagain.trysendmsg(a, "warm"); Eagain.tryrecv(b, 11) }
      warm.call
      mark
      #{rounds}.times { Eagain.trysendmsg(a, "11 bytes..."); Eagain.tryrecv(b, 11) }
      mark
    RUBY
    assert_equal({ "sendto" => rounds, "recvfrom" => rounds }, t.work, t.to_s)
  end

  def test_messages_with_everything_are_one_call_each
    t = strace(<<~RUBY)
      require "eagain/io"
      GC.disable
      a, b = UNIXSocket.pair(:SEQPACKET)
      credentials = [:SOCKET, :CREDENTIALS, [Process.pid, Process.uid, Process.gid].pack("i3")]
      b.setsockopt(:SOCKET, :PASSCRED, true)
      exchange = proc { Eagain.trysendmsg(a, %w[a b], 0, nil, credentials); Eagain.tryrecvmsg(b) }
      exchange.call
      mark
      100.times(&exchange)
      mark
    RUBY
    assert_equal({ "sendmsg" => 100, "recvmsg" => 100 }, t.work, t.to_s)
  end

  def test_under_gc_stress_and_compaction
    assert_survives_gc_stress(<<~RUBY, 'number = [0].pack("i")')
      raise unless Eagain.trysendmsg(a, message) == message.bytesize
      raise unless Eagain.tryrecvmsg(b)[0] == message
      raise unless Eagain.trysendmsg(a, [message, "tail"], 0, nil, $stdin, ["SOCKET", "RIGHTS", number.dup],
        b) == message.bytesize + 4
      data, sender, flags, *controls = Eagain.tryrecvmsg(b, scm_rights: true)
      raise unless data == message + "tail"
      raise unless controls.sum { |control| control.unix_rights.size } == 3
      raise unless Eagain.tryrecvmsg(b, scm_rights: true) == :wait_readable
    RUBY
  end

  def test_in_ractors
    script = <<~RUBY
      require "socket"
      ractors = Array.new(2) do |i|
        Ractor.new(i) do |number|
          a, b = UNIXSocket.pair(:SEQPACKET)
          200.times do |n|
            message = "\#{number}:\#{n}" * 300
            Eagain.trysendmsg(a, message, 0, nil, [:SOCKET, :RIGHTS, [0].pack("i")], a)
            data, _, _, control = Eagain.tryrecvmsg(b, scm_rights: n.even?)
            raise unless data == message && control.data.bytesize == 8
            control.unix_rights&.each(&:close)
            Eagain.trysend(a, message)
            raise unless Eagain.tryrecvfrom(b, 10_000) == [message, ["AF_UNIX", ""]]
            raise unless Eagain.tryrecv(b, 10_000) == :wait_readable
          end
          :ok
        end
      end
      puts ractors.map { |ractor| ractor.respond_to?(:value) ? ractor.value : ractor.take }.join(" ")
    RUBY
    assert_child "ok ok\n", script
  end

  # Random types and sizes: the same error as Ruby's, or none.
  def test_fuzz
    random = Random.new(seed)
    number = [0].pack("i")
    values = [-1, -2**31, 2**31, 2**64, nil, "1", :SOCKET, Object.new, [], 1.5, Float::NAN, true, { a: 1 }, 0, 1, 10,
              5000, "x" * 5000,
              [1, 2], [:SOCKET, :RIGHTS, number], ["SOCKET", 1, number], [:IP, :TTL, number], [1, 1, "odd"], [:SOCKET,
               :NONE, ""],
              rights($stdin), Socket.sockaddr_un("/nowhere"), Addrinfo.udp("127.0.0.1", 9)]
    before = open_descriptors
    each_pair(:stream, :dgram, :udp) do |a, b, kind|
      300.times do
        arguments = Array.new(random.rand(0..3)) { values.sample(random: random) }
        arguments[1] = 0 if arguments.size > 1 && arguments[1].nil? # which is: not given
        arguments[0] = 1 if arguments[0] == 0 # one who wants nothing of a stream has it
        arguments = arguments.map { |value| value == 2**31 ? 10 : value } # two gigabytes are no error
        options = { scm_rights: random.rand(2) == 1 }
        a.sendmsg("hello", 0, nil, *(kind == :udp ? [] : [rights($stdin)]))
        theirs = outcome { picture(b.recvmsg_nonblock(*arguments, exception: false, **options)) }
        drain(b)
        a.sendmsg("hello", 0, nil, *(kind == :udp ? [] : [rights($stdin)]))
        ours = outcome { picture(Eagain.tryrecvmsg(b, *arguments, **options)) }
        drain(b)
        assert_equal theirs, ours, "#{kind}: #{arguments.inspect} #{options}"
      end
      300.times do
        arguments = Array.new(random.rand(1..6)) { values.sample(random: random) }
        arguments[0] = "message" if random.rand(2) == 1 || arguments[0].is_a?(Array)
        arguments[1] = 0 if arguments.size > 1 && random.rand(2) == 1
        arguments[2] = nil if arguments.size > 2 && random.rand(2) == 1
        theirs = outcome { BasicSocket.instance_method(:sendmsg).bind_call(a, *arguments) }
        drain(b)
        assert_equal theirs, outcome { Eagain.trysendmsg(a, *arguments) }, "#{kind}: #{arguments.inspect}"
        drain(b)
      end
    end
    assert_equal before, open_descriptors
  end
end
