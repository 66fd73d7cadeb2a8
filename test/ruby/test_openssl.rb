# frozen_string_literal: true

require_relative "helper"
require_relative "tls"

# OpenSSL over sockets: server and client are tasks of one thread.
class OpenSSLTest < EagainTest
  # Yields both ends of a TLS connection, after the handshake.
  def tls_pair
    schedule do
      a, b = tcp_pair
      server = OpenSSL::SSL::SSLSocket.new(a, TLS.server_context)
      client = OpenSSL::SSL::SSLSocket.new(b, TLS.client_context)
      client.hostname = "localhost"
      [server, client].each { |ssl| ssl.sync_close = true }
      accepted = task { server.accept }
      client.connect
      await("handshake") { accepted.done? }
      yield client, server
      close_all(client, server)
    end
  end

  def test_handshake_and_lines
    tls_pair do |client, server|
      client.post_connection_check("localhost")
      answer = task { server.puts(server.gets.upcase) }
      client.puts("hello")
      assert_equal "HELLO\n", client.gets
      assert answer.done?
    end
  end

  def test_readpartial_waits
    tls_pair do |client, server|
      reader = task { client.readpartial(100) }
      refute reader.done?
      server.write("x")
      await("reader") { reader.done? }
      assert_equal "x", reader.value
    end
  end

  def test_large_transfer_in_one_direction
    data = Random.bytes(3 << 20)
    tls_pair do |client, server|
      task do
        server.write(data)
        server.close
      end
      assert_bytes data, client.read
    end
  end

  def test_large_transfers_in_both_directions_one_after_the_other
    data = Random.bytes(1 << 20)
    tls_pair do |client, server|
      task { server.write(server.read(data.bytesize)) }
      client.write(data)
      assert_bytes data, client.read(data.bytesize)
    end
  end

  def test_many_small_messages
    tls_pair do |client, server|
      task { 300.times { server.write(server.readpartial(100)) } }
      300.times do |i|
        client.write("message #{i}")
        assert_equal "message #{i}", client.readpartial(100)
      end
    end
  end

  def test_read_nonblock_does_not_wait
    tls_pair do |client, server|
      client.read_nonblock(1, exception: false) # session tickets of TLS 1.3 may be there
      assert_equal :wait_readable, client.read_nonblock(1, exception: false)
      assert_raises(OpenSSL::SSL::SSLErrorWaitReadable) { client.read_nonblock(1) }
      server.write("x")
      client.to_io.wait_readable
      assert_equal "x", client.read_nonblock(1)
    end
  end

  def test_ssl_server
    schedule do
      server = OpenSSL::SSL::SSLServer.new(TCPServer.new("127.0.0.1", 0), TLS.server_context)
      port = server.to_io.local_address.ip_port
      task do
        5.times do
          peer = server.accept
          task do
            peer.puts("hello #{peer.gets}")
            peer.close
          end
        end
        server.close
      end
      answers = Array.new(5) do |i|
        task do
          client = OpenSSL::SSL::SSLSocket.open("127.0.0.1", port, context: TLS.client_context)
          client.hostname = "localhost"
          client.sync_close = true
          client.connect
          client.puts(i)
          answer = client.read
          client.close
          answer
        end
      end
      await("clients") { answers.all?(&:done?) }
      assert_equal Array.new(5) { |i| "hello #{i}\n" }, answers.map(&:value)
    end
  end

  def test_failed_verification_raises
    schedule do
      a, b = tcp_pair
      server = OpenSSL::SSL::SSLSocket.new(a, TLS.server_context)
      context = OpenSSL::SSL::SSLContext.new
      context.verify_mode = OpenSSL::SSL::VERIFY_PEER
      client = OpenSSL::SSL::SSLSocket.new(b, context)
      failed = task { assert_raises(OpenSSL::SSL::SSLError) { server.accept } }
      assert_raises(OpenSSL::SSL::SSLError) { client.connect }
      await("server") { failed.done? }
      close_all(a, b)
    end
  end
end
