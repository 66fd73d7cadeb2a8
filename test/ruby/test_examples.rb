# frozen_string_literal: true

require_relative "helper"
require "open3"
require "timeout"
require "uri"

# The examples do what their first comments say.
class TestExamples < Minitest::Test
  FOLDER = File.join(ROOT, "examples")
  RUBY = [RbConfig.ruby, "-I#{File.join(ROOT, "lib")}"].freeze
  EAGAIN_RUN = [RbConfig.ruby, File.join(ROOT, "exe/eagain"), "run"].freeze

  def example(name)
    File.join(FOLDER, name)
  end

  def teardown
    (@children || []).each do |io|
      Process.kill(:KILL, io.pid)
      io.close
    end
  end

  # An example that goes on until it is told to stop: IO to its stdin and stdout.
  def start(name, *arguments)
    IO.popen([*RUBY, example(name), *arguments.map(&:to_s)], "r+").tap { |io| (@children ||= []) << io }
  end

  def test_fetch_all_with_and_without_eagain
    Dir.mktmpdir do |folder|
      ca_file = File.join(folder, "ca.pem")
      bases = [start("demo_server.rb", 0.05), start("demo_server.rb", 0.05, ca_file)].map { |io| io.gets.chomp }
      urls = Array.new(10) { |i| "#{bases[i % 2]}/#{i}" }
      env = { "SSL_CERT_FILE" => ca_file, "no_proxy" => "127.0.0.1" }
      { EAGAIN_RUN => 10, RUBY => 1 }.each do |command, at_once|
        output, errors, status = Open3.capture3(env, *command, example("fetch_all.rb"), *urls)

        assert_predicate status, :success?, errors
        assert_match(/^requests +10$/, output)
        assert_match(/^errors +0$/, output)
        assert_match(/^at once +#{at_once}$/, output)
      end
    end
  end

  # The demo's https is verified: without its authority every request is an error.
  def test_fetch_all_reports_what_failed
    Dir.mktmpdir do |folder|
      base = start("demo_server.rb", 0, File.join(folder, "ca.pem")).gets.chomp
      output, errors, status = Open3.capture3({ "no_proxy" => "127.0.0.1" }, *EAGAIN_RUN, example("fetch_all.rb"), base)

      assert_equal 1, status.exitstatus
      assert_match(/^errors +1$/, output)
      assert_match(/certificate verify failed/, errors)
    end
  end

  def test_demo_server_keeps_connections_alive_and_refuses_politely
    url = URI(start("demo_server.rb", 0).gets.chomp)
    { "GET /x HTTP/1.1\r\n\r\nGET /y HTTP/1.1\r\nConnection: close\r\n\r\n" => %w[200 200],
      "POST /x HTTP/1.1\r\n\r\n" => %w[405], "nonsense\r\n\r\n" => %w[400],
      "GET /x HTTP/1.1\r\nContent-Length: 3\r\n\r\nabc" => %w[413] }.each do |request, statuses|
      TCPSocket.open(url.host, url.port) do |socket|
        socket.write(request)

        assert_equal statuses, Timeout.timeout(10) { read_all(socket) }.scan(%r{^HTTP/1\.1 (\d+)}).flatten, request
      end
    end
  end

  # What the server had not read yet when it refused makes the kernel send a reset behind the answer.
  def read_all(socket)
    text = +""
    loop { text << socket.readpartial(4096) }
  rescue EOFError, Errno::ECONNRESET
    text
  end

  def test_echo_server_serves_many_and_ends_by_ctrl_c
    server = start("echo_server.rb")
    port = Integer(server.gets[/\d+$/])
    sockets = Array.new(3) { TCPSocket.new("127.0.0.1", port) }
    sockets.each_with_index { |socket, i| socket.puts "hello #{i}" }

    assert_equal ["hello 0\n", "hello 1\n", "hello 2\n"], sockets.map(&:gets)
    Process.kill(:INT, server.pid)
    assert_equal [nil, nil, nil], Timeout.timeout(10) { sockets.map(&:gets) }
    @children.delete(server).close
    assert_equal 130, $?.exitstatus # rubocop:disable Style/SpecialGlobalVars
  ensure
    sockets&.each(&:close)
  end

  def test_hello_server_answers_requests_that_come_together_and_refuses_politely
    url = URI(start("hello_server.rb").gets.chomp)
    { "GET /a HTTP/1.1\r\nHost: x\r\n\r\nGET /b HTTP/1.1\r\nContent-Length: 3\r\n\r\nabcPOST / HTTP/1.1\r\n\r\n" =>
        ["200", "hello a", "200", "hello b", "405", "GET, please"],
      "GET /#{"x" * 9000}" => ["431", "too long"], "nonsense\r\n: \r\nContent-Length: x\r\n\r\n" => ["400", "what?"],
      "GET /half HTTP/1.1\r\n" => [] }.each do |request, expected|
      TCPSocket.open(url.host, url.port) do |socket|
        socket.write(request)
        socket.close_write
        answers = Timeout.timeout(10) { read_all(socket) }

        assert_equal expected, answers.scan(%r{^HTTP/1\.1 (\d+)|^(\w+[ ,?].*)$}).flatten.compact, request
      end
    end
  end

  def test_parallel_commands_run_together_and_tell_their_status
    Dir.mktmpdir do |folder|
      fifo = File.join(folder, "fifo")
      File.mkfifo(fifo)
      # Each needs the other one to end.
      output, errors, status = Open3.capture3(*RUBY, example("parallel_commands.rb"), "-j", "2",
                                              "cat #{fifo}", "echo met > #{fifo}; exit 3")

      assert_equal 1, status.exitstatus, errors
      assert_includes output, "== cat #{fifo} (exit 0)\nmet\n"
      assert_includes output, "(exit 3)"
    end
  end

  def test_pipeline_counts_words
    Dir.mktmpdir do |folder|
      File.write(File.join(folder, "a.md"), "red blue red\n")
      40.times { |i| File.write(File.join(folder, "b#{i}.rb"), "red = 1\n") }
      output, errors, status = Open3.capture3(*RUBY, example("pipeline.rb"), folder)

      assert_predicate status, :success?, errors
      assert_equal "    42  red\n     1  blue\n", output
    end
  end
end
