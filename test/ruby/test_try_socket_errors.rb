# frozen_string_literal: true

require_relative "helper"
require_relative "like_ruby"

# What tryrecv, tryrecvfrom and trysend raise when the socket is not as it should be: what Ruby's methods do.
class TrySocketErrorsTest < EagainTest
  include LikeRuby

  def test_frozen_sockets_as_ruby_has_them
    a, b = UNIXSocket.pair
    b.write("x" * 10)
    a.freeze
    error = assert_raises(FrozenError) { a.recv_nonblock(1) }
    [-> { Eagain.tryrecv(a, 1) }, -> { Eagain.trysend(a, "x") }, -> { Eagain.recv(a, 1) },
     -> { Eagain.tryrecvmsg(a, 1) }, -> { Eagain.trysendmsg(a, "x") }, -> { Eagain.tryread(a, 1) }].each do |call|
      assert_equal error.message, assert_raises(FrozenError, &call).message
    end
  end

  def test_no_sockets
    [$stdin, nil, 1, "x", Object.new, UNIXSocket].each do |object|
      assert_raises(TypeError) { Eagain.tryrecv(object, 1) }
      assert_raises(TypeError) { Eagain.tryrecvfrom(object, 1) }
      assert_raises(TypeError) { Eagain.trysend(object, "x") }
    end
    with_a_pipe_behind_a_socket do |b|
      assert_fails_like_ruby(-> { b.recv_nonblock(1) }, -> { Eagain.tryrecv(b, 1) }, "ENOTSOCK")
      assert_fails_like_ruby(-> { b.send("x", 0) }, -> { Eagain.trysend(b, "x") }, "ENOTSOCK")
    end
  end

  def test_closed_and_uninitialized
    each_pair do |a, b, kind|
      close_all(a, b)
      assert_fails_like_ruby(-> { b.recv_nonblock(1) }, -> { Eagain.tryrecv(b, 1) }, kind)
      assert_fails_like_ruby(-> { b.recvfrom(1) }, -> { Eagain.tryrecvfrom(b, 1) }, kind)
      assert_fails_like_ruby(-> { b.send("x", 0) }, -> { Eagain.trysend(b, "x") }, kind)
    end
    socket = Socket.allocate
    assert_fails_like_ruby(-> { socket.recv_nonblock(1) }, -> { Eagain.tryrecv(socket, 1) })
    assert_fails_like_ruby(-> { socket.send("x", 0) }, -> { Eagain.trysend(socket, "x") })
  end

  def test_closed_for_one_direction
    each_pair(:stream) do |a, b, _|
      a.close_write
      assert_nil Eagain.tryrecv(b, 1)
      assert_fails_like_ruby(-> { a.send("x", 0) }, -> { Eagain.trysend(a, "x") }, "EPIPE")
      assert_equal 1, Eagain.trysend(b, "x")
      a.close
      assert_fails_like_ruby(-> { b.send("x", 0) }, -> { Eagain.trysend(b, "x") }, "EPIPE")
    end
  end

  def test_read_ahead_by_ruby
    each_pair(:stream) do |a, b, _|
      a.write("line\nmore")
      assert_equal "line\n", b.gets
      assert_fails_like_ruby(-> { b.recv(1) }, -> { Eagain.tryrecv(b, 1) })
      assert_fails_like_ruby(-> { b.recv_nonblock(1) }, -> { Eagain.tryrecvfrom(b, 1) })
      assert_equal "more", b.read_nonblock(10)
      assert_equal :wait_readable, Eagain.tryrecv(b, 1)
    end
  end

  def test_refused
    taken = UDPSocket.new
    taken.bind("127.0.0.1", 0)
    port = taken.addr[1]
    taken.close
    # The answer to the first message is there when the next call is made.
    after_refusal = lambda do |&call|
      a = UDPSocket.new
      a.connect("127.0.0.1", port)
      a.send("x", 0)
      IO.select(nil, nil, nil, 0.01)
      call.call(a)
    ensure
      a.close
    end
    assert_equal [Errno::ECONNREFUSED, "Connection refused - recvfrom(2)"],
                 assert_fails_like_ruby(-> { after_refusal.call { |a| a.recv_nonblock(1) } },
                                        -> { after_refusal.call { |a| Eagain.tryrecv(a, 1) } })
    assert_fails_like_ruby(-> { after_refusal.call { |a| a.send("y", 0) } },
                           -> { after_refusal.call { |a| Eagain.trysend(a, "y") } })
  end

  def test_a_closed_peer_of_a_datagram_socket
    calls = [->(socket) { socket.send("x", 0) }, ->(socket) { Eagain.trysend(socket, "x") }]
    theirs, ours = calls.map { |call| sending_to_a_closed_peer(&call) }
    assert_equal [Errno::ECONNREFUSED, "Connection refused - send(2)"], ours[0]
    assert_equal theirs, ours
  end

  def test_not_connected
    a = Socket.new(:INET, :STREAM)
    assert_fails_like_ruby(-> { a.recv_nonblock(1) }, -> { Eagain.tryrecv(a, 1) })
    assert_fails_like_ruby(-> { a.send("x", 0) }, -> { Eagain.trysend(a, "x") })
    a.close
    b = UDPSocket.new
    assert_fails_like_ruby(-> { b.send("x", 0) }, -> { Eagain.trysend(b, "x") })
    b.close
  end

  def test_too_long
    each_pair(:udp, :dgram) do |a, _, kind|
      message = "x" * 10_000_000
      assert_fails_like_ruby(-> { a.send(message, 0) }, -> { Eagain.trysend(a, message) }, kind)
    end
  end

  def test_reset
    results = [->(s) { s.recv_nonblock(1) }, ->(s) { Eagain.tryrecv(s, 1) }].map do |call|
      a, b = tcp_pair
      a.setsockopt(Socket::Option.linger(true, 0))
      a.close
      result = arrived(b) { outcome { call.call(b) } }
      [result, outcome { Eagain.trysend(b, "x") }].tap { b.close }
    end
    assert_equal [Errno::ECONNRESET, "Connection reset by peer - recvfrom(2)"], results[1][0]
    assert_equal [Errno::EPIPE, "Broken pipe - send(2)"], results[1][1]
    assert_equal results[0], results[1]
  end

  def test_full
    each_pair(:stream, :seqpacket, :dgram, :tcp) do |a, b, kind|
      chunk = "x" * 10_000
      sent = 0
      while (count = Eagain.trysend(a, chunk)) != :wait_writable
        assert_kind_of Integer, count
        sent += count
        flunk("never full") if sent > 100_000_000
      end
      received = 0
      while received < sent
        received += arrived(b) { Eagain.tryrecv(b, 20_000) }.bytesize
      end
      assert_equal sent, received, kind
    end
  end
end
