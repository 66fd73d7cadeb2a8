# frozen_string_literal: true

require_relative "helper"

# TCP, UNIX and UDP sockets: a task that waits on one lets the others run.
class SocketsTest < EagainTest
  def test_tcp_server_and_client_in_one_thread
    schedule do
      server = TCPServer.new("127.0.0.1", 0)
      port = server.local_address.ip_port
      task do
        peer = server.accept
        peer.write(peer.gets.upcase)
        peer.close
        server.close
      end
      client = TCPSocket.new("127.0.0.1", port)
      client.puts("hello")
      assert_equal "HELLO\n", client.gets
      assert_nil client.gets
      client.close
    end
  end

  def test_tcp_accept_loop_serves_many_clients
    served = 0
    schedule do
      server = TCPServer.new("127.0.0.1", 0)
      port = server.local_address.ip_port
      task do
        50.times do
          peer = server.accept
          task do
            served += 1
            IO.copy_stream(peer, peer)
            peer.close
          end
        end
        server.close
      end
      50.times do |i|
        task do
          client = TCPSocket.new("127.0.0.1", port)
          message = "#{i}:" + ("x" * 20_000)
          client.write(message)
          client.close_write
          assert_equal message, client.read
          client.close
        end
      end
    end
    assert_equal 50, served
  end

  def test_tcp_large_transfer_both_ways_at_once
    data = Random.bytes(4 << 20)
    schedule do
      a, b = tcp_pair
      readers = [a, b].map { |io| task { io.read } }
      [a, b].each do |io|
        task do
          io.write(data)
          io.close_write
        end
      end
      await("both directions") { readers.all?(&:done?) }
      readers.each { |job| assert_bytes data, job.value }
      close_all(a, b)
    end
  end

  def test_refused_connection_raises
    server = TCPServer.new("127.0.0.1", 0)
    port = server.local_address.ip_port
    server.close
    schedule { assert_raises(Errno::ECONNREFUSED) { TCPSocket.new("127.0.0.1", port) } }
  end

  def test_reset_by_peer_raises
    schedule do
      client, peer = tcp_pair
      reader = task { assert_raises(Errno::ECONNRESET) { client.readpartial(10) } }
      peer.setsockopt(Socket::SOL_SOCKET, Socket::SO_LINGER, [1, 0].pack("ii"))
      peer.close
      await("reset") { reader.done? }
      client.close
    end
  end

  def test_broken_pipe_raises
    schedule do
      a, b = UNIXSocket.pair
      b.close
      assert_raises(Errno::EPIPE) { a.write("x") }
      a.close
    end
  end

  def test_socket_tcp_and_connect_timeout_option
    schedule do
      server = Socket.tcp_server_sockets("127.0.0.1", 0).first
      port = server.local_address.ip_port
      task do
        peer, = server.accept
        peer.write("hi")
        peer.close
      end
      Socket.tcp("127.0.0.1", port, connect_timeout: 5) { |client| assert_equal "hi", client.read }
      server.close
    end
  end

  def test_connect_on_a_socket_object
    schedule do
      server = TCPServer.new("127.0.0.1", 0)
      client = Socket.new(:INET, :STREAM)
      accepted = task { server.accept }
      assert_equal 0, client.connect(server.local_address)
      client.write("x")
      await("accept") { accepted.done? }
      assert_equal "x", accepted.value.readpartial(10)
      close_all(client, accepted.value, server)
    end
  end

  def test_sockets_in_blocking_mode
    skip "io/nonblock is missing" unless require_nonblock
    schedule do
      a, b = UNIXSocket.pair
      [a, b].each { |io| io.nonblock = false }
      reader = task { a.readpartial(10) }
      b.write("hello")
      await("reader") { reader.done? }
      assert_equal "hello", reader.value
      close_all(a, b)
    end
  end

  def test_unix_server_and_client
    Dir.mktmpdir do |dir|
      path = File.join(dir, "s")
      schedule do
        server = UNIXServer.new(path)
        task do
          peer = server.accept
          peer.puts(peer.gets.reverse)
          peer.close
        end
        client = UNIXSocket.new(path)
        client.puts("abc")
        assert_equal "\ncba\n", client.read
        close_all(client, server)
      end
    end
  end

  def test_unix_pair_ping_pong
    schedule do
      a, b = UNIXSocket.pair
      task { 1000.times { b.write(b.readpartial(16)) } }
      1000.times do |i|
        a.write(i.to_s)
        assert_equal i.to_s, a.readpartial(16)
      end
      close_all(a, b)
    end
  end

  def test_unix_recv_and_send
    schedule do
      a, b = UNIXSocket.pair(:STREAM)
      reader = task { a.recv(10) }
      b.send("hello", 0)
      await("recv") { reader.done? }
      assert_equal "hello", reader.value
      close_all(a, b)
    end
  end

  def test_file_descriptor_passed_over_a_unix_socket
    schedule do
      a, b = UNIXSocket.pair
      r, w = IO.pipe
      received = task { a.recv_io }
      b.send_io(r)
      await("recv_io") { received.done? }
      w.write("through")
      w.close
      assert_equal "through", received.value.read
      close_all(a, b, r, received.value)
    end
  end

  def test_udp_request_and_answer
    schedule do
      server = UDPSocket.new
      server.bind("127.0.0.1", 0)
      port = server.local_address.ip_port
      task do
        message, sender = server.recvfrom(100)
        server.send(message.upcase, 0, sender[3], sender[1])
      end
      client = UDPSocket.new
      client.connect("127.0.0.1", port)
      client.send("hello", 0)
      assert_equal "HELLO", client.recvfrom(100).first
      close_all(client, server)
    end
  end

  def test_udp_recvmsg_and_sendmsg
    schedule do
      server = UDPSocket.new
      server.bind("127.0.0.1", 0)
      received = task { server.recvmsg }
      client = UDPSocket.new
      client.connect("127.0.0.1", server.local_address.ip_port)
      client.sendmsg("msg")
      await("recvmsg") { received.done? }
      assert_equal "msg", received.value.first
      close_all(client, server)
    end
  end

  def test_udp_empty_datagram_is_not_end_of_file
    schedule do
      server = UDPSocket.new
      server.bind("127.0.0.1", 0)
      received = task { [server.recvfrom(10).first, server.recvfrom(10).first] }
      client = UDPSocket.new
      client.connect("127.0.0.1", server.local_address.ip_port)
      client.send("", 0)
      client.send("x", 0)
      await("datagrams") { received.done? }
      assert_equal ["", "x"], received.value
      close_all(client, server)
    end
  end

  def test_reader_and_writer_wait_on_the_same_socket
    schedule do
      a, b = UNIXSocket.pair
      reader = task { a.readpartial(10) }
      writer = task { a.write("y" * 1_000_000) }
      sleep 0.01
      refute reader.done?
      refute writer.done?
      b.write("x")
      assert_equal 1_000_000, b.read(1_000_000).bytesize
      await("both") { reader.done? && writer.done? }
      assert_equal "x", reader.value
      assert_equal 1_000_000, writer.value
      close_all(a, b)
    end
  end

  def test_two_readers_wait_on_the_same_socket
    schedule do
      a, b = UNIXSocket.pair
      readers = Array.new(2) { task { a.readpartial(1) } }
      b.write("12")
      await("both readers") { readers.all?(&:done?) }
      assert_equal %w[1 2], readers.map(&:value).sort
      close_all(a, b)
    end
  end

  def test_half_close
    schedule do
      a, b = tcp_pair
      server = task do
        question = b.read
        b.write(question * 2)
        b.close
      end
      a.write("ab")
      a.close_write
      assert_equal "abab", a.read
      await("server") { server.done? }
      a.close
    end
  end

  private

  def require_nonblock
    require "io/nonblock"
    true
  rescue LoadError
    false
  end
end
