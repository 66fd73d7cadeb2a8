# frozen_string_literal: true

require_relative "helper"
require_relative "tls"
require "net/http"

# Net::HTTP, unmodified, against a small server that runs in tasks of the same thread or in threads.
class HTTPTest < EagainTest
  BODY = Random.new(1).bytes(300_000)

  # Serves HTTP/1.1 with keep-alive on an accepted connection until the client is gone.
  def serve(io)
    while (request = io.gets)
      length = 0
      while (header = io.gets.chomp) != ""
        length = Integer(header[/\d+/]) if header.match?(/\Acontent-length:/i)
      end
      body = length.positive? ? io.read(length) : nil
      answer = answer_to(request, body)
      io.write("HTTP/1.1 200 OK\r\nContent-Length: #{answer.bytesize}\r\n\r\n", answer)
    end
  rescue SystemCallError, EOFError
    nil # the client has gone
  ensure
    io.close
  end

  def answer_to(request, body)
    case request[/\A\w+ (\S+)/, 1]
    when "/big" then BODY
    when "/echo" then body
    when %r{\A/slow/(.*)}
      sleep Float(Regexp.last_match(1))
      "slow"
    else request.split[1]
    end
  end

  # A server in tasks of the current scheduler.
  def server_in_tasks(tls: nil)
    server = TCPServer.new("127.0.0.1", 0)
    task do
      loop do
        peer = server.accept
        task { serve(tls ? tls_accept(peer, tls) : peer) }
      end
    rescue IOError
      nil # closed: the test is over
    end
    server
  end

  def tls_accept(socket, context)
    ssl = OpenSSL::SSL::SSLSocket.new(socket, context)
    ssl.sync_close = true
    ssl.accept
  end

  def client(port, tls: false)
    http = Net::HTTP.new("127.0.0.1", port)
    if tls
      http.use_ssl = true
      http.verify_mode = OpenSSL::SSL::VERIFY_PEER
      http.cert_store = TLS.store
      http.verify_hostname = false if http.respond_to?(:verify_hostname=)
    end
    http
  end

  def exercise(port, tls:)
    client(port, tls: tls).start do |http|
      assert_equal "/a", http.get("/a").body
      assert_bytes BODY, http.get("/big").body
      assert_bytes BODY, http.post("/echo", BODY).body
      assert_equal "slow", http.get("/slow/0.01").body
    end
  end

  def test_plain_client_and_server_in_one_thread
    schedule do
      server = server_in_tasks
      exercise(server.local_address.ip_port, tls: false)
      server.close
    end
  end

  def test_tls_client_and_server_in_one_thread
    schedule do
      server = server_in_tasks(tls: TLS.server_context)
      exercise(server.local_address.ip_port, tls: true)
      server.close
    end
  end

  def test_client_against_a_server_in_threads
    server = TCPServer.new("127.0.0.1", 0)
    accepting = Thread.new do
      loop { Thread.new(server.accept) { |peer| serve(peer) } }
    rescue IOError
      nil
    end
    schedule do
      clients = Array.new(10) { |i| task { client(server.local_address.ip_port).get("/#{i}").body } }
      await("clients") { clients.all?(&:done?) }
      assert_equal Array.new(10) { |i| "/#{i}" }, clients.map(&:value)
    end
  ensure
    server.close
    accepting.join
  end

  def test_many_requests_overlap
    at_once = peak = 0
    schedule do
      server = TCPServer.new("127.0.0.1", 0)
      task do
        100.times do
          peer = server.accept
          task do
            nil until peer.gets == "\r\n"
            at_once += 1
            peak = [peak, at_once].max
            await("all requests to be there") { peak == 100 }
            peer.write("HTTP/1.0 200 OK\r\n\r\nok")
            peer.close
          end
        end
        server.close
      end
      port = server.local_address.ip_port
      clients = Array.new(100) { task { client(port).get("/").body } }
      await("clients") { clients.all?(&:done?) }
      assert_equal ["ok"] * 100, clients.map(&:value)
    end
    assert_equal 100, peak
  end

  def test_many_tls_requests
    schedule do
      server = server_in_tasks(tls: TLS.server_context)
      port = server.local_address.ip_port
      clients = Array.new(10) { |i| task { client(port, tls: true).get("/#{i}").body } }
      await("clients") { clients.all?(&:done?) }
      assert_equal Array.new(10) { |i| "/#{i}" }, clients.map(&:value)
      server.close
    end
  end

  def test_read_timeout
    schedule do
      server = TCPServer.new("127.0.0.1", 0)
      http = client(server.local_address.ip_port)
      http.read_timeout = 0.02
      http.max_retries = 0
      assert_raises(Net::ReadTimeout) { http.get("/") }
      server.close
    end
  end

  def test_get_of_a_uri_with_a_name
    schedule do
      server = server_in_tasks
      port = server.local_address.ip_port
      assert_equal "/path?q=1", Net::HTTP.get(URI("http://localhost:#{port}/path?q=1"))
      server.close
    end
  end

  def test_refused_connection
    server = TCPServer.new("127.0.0.1", 0)
    port = server.local_address.ip_port
    server.close
    schedule { assert_raises(Errno::ECONNREFUSED) { client(port).get("/") } }
  end
end
