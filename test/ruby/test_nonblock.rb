# frozen_string_literal: true

require_relative "nonblock_support"
require_relative "nonblock_cases"

# require "eagain/nonblock": each case of nonblock_cases.rb gives what Ruby's own methods give. And what
# is promised besides.
class NonblockTest < NonblockComparison
  compare File.join(__dir__, "nonblock_cases.rb"), NonblockCases::CASES.keys.grep_v(/\Assl/)

  # Random arguments, the same for Ruby's methods and ours.
  def test_fuzz
    script = <<~RUBY
      require #{File.join(__dir__, "nonblock_cases.rb").dump}
      require #{File.join(__dir__, "nonblock_fuzz.rb").dump}
      $stdout.binmode.write(Marshal.dump(NonblockFuzz.new(#{seed}).run(3000)))
    RUBY
    plain, ours = [[], ["-I#{LIB}", "-reagain/nonblock"]].map do |flags|
      Marshal.load(IO.popen([RUBY, "-W:no-experimental", *flags, "-e", script], "rb", &:read))
    end
    plain.zip(ours) { |expected, actual| assert expected == actual, "Ruby: #{expected.inspect}\nours: #{actual.inspect}" }
  end

  def ours(script, *flags, **options) = output_of(script, "-rsocket", "-reagain/nonblock", *flags, **options)

  def assert_prints(expected, script, *flags, **options) = assert_equal(expected, ours(script, *flags, **options))

  METHODS = NonblockCases::METHODS.flat_map { |klass, names| names.map { |name| [klass, name] } }

  def test_every_method_is_replaced_and_kept
    script = METHODS.map do |klass, name|
      "p [#{klass}.instance_method(:#{name}).source_location[0].split(?/).last(2).join(?/), " \
        "#{klass}.private_method_defined?(:__ruby_#{name}, false), #{klass}.instance_method(:__ruby_#{name}).original_name]\n"
    end
    expected = METHODS.map { |_, name| "#{["eagain/nonblock.rb", true, name].inspect}\n" }
    assert_prints(expected.join, script.join)
  end

  # By load, say, or from two places: Ruby's own method is still Ruby's.
  def test_loaded_twice
    assert_prints("true\n[\"read_nonblock\", 1, false]\n", <<~'RUBY')
      load $".grep(/eagain\/nonblock.rb/).first
      a, b = UNIXSocket.pair
      b.close
      p [nil, ""].include?(a.recv_nonblock(1))
      kept = IO.instance_method(:__ruby_read_nonblock)
      p [kept.original_name.to_s, kept.arity, kept.source_location[0].include?("eagain")].then { |name, arity, ours| [name, arity.abs - 1, ours] }
    RUBY
  end

  def test_no_warnings
    out, err, status = run_command({}, RUBY, "-w", "-I#{LIB}", "-reagain/nonblock", "-e", <<~RUBY)
      require "eagain/nonblock"
      r, _w = IO.pipe
      p r.read_nonblock(1, exception: false)
    RUBY
    assert status.success?, err
    assert_equal ":wait_readable\n", out
    assert_empty err
  end

  # sendmsg_nonblock has its controls in an Array, as Ruby's.
  def test_a_would_block_without_exception_allocates_nothing
    assert_prints("{}\n", <<~'RUBY')
      r, w = IO.pipe
      nil until w.write_nonblock("x" * 4096, exception: false) == :wait_writable
      quiet, _w = IO.pipe
      a, b = UNIXSocket.pair
      nil until b.write_nonblock("x" * 4096, exception: false) == :wait_writable
      server, udp, udp_socket = TCPServer.new("127.0.0.1", 0), UDPSocket.new, Socket.new(:INET, :DGRAM)
      buffer, x = +"", "x"
      calls = {
        read_pipe: -> { quiet.read_nonblock(5, buffer, exception: false) },
        read_pipe_without: -> { quiet.read_nonblock(5, exception: false) },
        write_pipe: -> { w.write_nonblock(x, exception: false) },
        read_socket: -> { b.read_nonblock(5, buffer, exception: false) },
        read_socket_without: -> { b.read_nonblock(16_384, exception: false) },
        write_socket: -> { b.write_nonblock(x, exception: false) },
        recv: -> { b.recv_nonblock(5, 0, buffer, exception: false) },
        recv_without: -> { b.recv_nonblock(16_384, exception: false) },
        recvmsg: -> { b.recvmsg_nonblock(exception: false) },
        recvfrom: -> { udp_socket.recvfrom_nonblock(5, 0, buffer, exception: false) },
        recvfrom_udp: -> { udp.recvfrom_nonblock(5, exception: false) },
        accept: -> { server.accept_nonblock(exception: false) },
      }
      counts = calls.transform_values do |call|
        count = lambda do |times|
          before = GC.stat(:total_allocated_objects)
          i = 0
          call.call while (i += 1) <= times
          GC.stat(:total_allocated_objects) - before
        end
        count.call(10)
        count.call(1010) - count.call(10)
      end
      p counts.reject { |_, count| count == 0 }
    RUBY
  end

  def test_one_system_call_each
    trace = strace(<<~'RUBY')
      require "eagain/nonblock"
      a, b = UNIXSocket.pair
      c, d = UNIXSocket.pair(:SEQPACKET)
      r, w = IO.pipe
      once = lambda do
        a.read_nonblock(5, exception: false)
        a.read_nonblock(5) rescue 0
        a.recv_nonblock(5, exception: false)
        c.recvmsg_nonblock(exception: false)
        b.write_nonblock("ab")
        a.read_nonblock(5)
        d.sendmsg_nonblock("ab")
        c.recv_nonblock(5)
        r.read_nonblock(5, exception: false)
        r.read_nonblock(5) rescue 0
        w.write_nonblock("ab")
        r.read_nonblock(5)
      end
      3.times { once.call }
      mark
      100.times { once.call }
      mark
    RUBY
    assert_equal 1200, trace.work.values.sum, trace.counts.inspect
    assert_equal 0, trace[:fcntl, :ioctl, :getsockopt, :getsockname, :poll], trace.counts.inspect
  end

  def test_the_mode_of_what_is_shared_stays
    assert_prints("[false, false, false, false]\n[false, false]\n", <<~'RUBY')
      require "io/nonblock"
      require "pty"
      r, w = IO.pipe
      master, slave = PTY.open
      all = [r, w, master, slave].each { |io| io.nonblock = false }
      r.read_nonblock(5, exception: false)
      r.read_nonblock(5) rescue 0
      w.write_nonblock("x")
      nil until w.write_nonblock("x" * 4096, exception: false) == :wait_writable
      master.read_nonblock(5, exception: false)
      slave.write_nonblock("x\n")
      slave.read_nonblock(5) rescue 0
      p all.map(&:nonblock?)
      a, b = UNIXSocket.pair.each { |io| io.nonblock = false }
      a.read_nonblock(5, exception: false)
      a.recv_nonblock(5) rescue 0
      nil until b.write_nonblock("x" * 4096, exception: false) == :wait_writable
      p [a, b].map(&:nonblock?)
    RUBY
  end

  # What the scripts below begin with: a full pipe or socket, and more in Ruby's buffer.
  FULL = <<~'RUBY'
    def full(w)
      w.sync = true
      nil until w.write_nonblock("x" * 4096, exception: false) == :wait_writable
      nil until w.write_nonblock("x", exception: false) == :wait_writable
      w.sync = false
      w.write("buffered")
      w
    end

    # Takes all of that after a while, and then answers.
    def child = full(IO.popen(["sh", "-c", "sleep 0.3; head -c 65544 >&2; echo answer; exec sleep 9"], "r+", err: File::NULL))
  RUBY

  # There is no would-block that says "writable" to who waits for what comes.
  def test_a_read_completes_the_flush
    assert_prints(%("answer\\n"\ntrue\n) * 2, "#{FULL}#{<<~'RUBY'}", "-rio/wait")
      count = 0
      Thread.new { loop { count += 1 and sleep 0.01 } }
      [true, false].each do |exception|
        io = child
        count = 0
        begin
          answer = io.read_nonblock(10, exception: exception)
          raise IO::EAGAINWaitReadable if answer == :wait_readable
        rescue IO::WaitReadable
          io.wait_readable(5) and retry
        end
        p answer, count > 5
        Process.kill(:KILL, io.pid)
      end
    RUBY
  end

  def test_a_write_completes_the_flush
    assert_prints("[3, true, 1]\n" * 3, "#{FULL}#{<<~'RUBY'}")
      [IO.pipe, UNIXSocket.pair, Socket.pair(:UNIX, :STREAM)].each do |r, w|
        full(w)
        reader = Thread.new { sleep 0.1 and r.readpartial(1 << 20) }
        count = w.write_nonblock("end")
        all = reader.value
        all << r.readpartial(1 << 20) until all.end_with?("end")
        p [count, all.end_with?("xbufferedend"), w.write_nonblock("!", exception: false)]
      end
    RUBY
  end

  def test_a_flush_that_fails_as_in_ruby
    script = "#{FULL}#{<<~'RUBY'}"
      io = child
      Thread.new { sleep 0.1 and Process.kill(:KILL, io.pid) }
      p((io.read_nonblock(5) rescue [$!.class, $!.message]))
      [IO.pipe, UNIXSocket.pair].each do |r, w|
        full(w)
        Thread.new { sleep 0.1 and r.close }
        p((w.write_nonblock("x") rescue [$!.class, $!.message]))
      end
      main = Thread.current
      io = child
      Thread.new { sleep 0.1 and main.raise("enough") }
      p((io.read_nonblock(5) rescue [$!.class, $!.message]))
      Process.kill(:KILL, io.pid)
    RUBY
    expected = output_of(script, "-rsocket")
    assert_match(/EPIPE.*enough/m, expected)
    assert_prints(expected, script)
  end

  def test_what_others_did_to_the_methods
    assert_prints("[:before, :wait_readable]\n[:after, [:before, :wait_readable]]\n:wait_readable\n[:sub, :wait_readable]\n", <<~'RUBY', "-r#{patched_before}")
      r, other = IO.pipe # which the GC would close
      p r.read_nonblock(5, exception: false)
      class IO
        alias plain_read_nonblock read_nonblock
      end
      IO.prepend(Module.new { def read_nonblock(*, **) = [:after, super] })
      p r.read_nonblock(5, exception: false)
      pair = UNIXSocket.pair
      p pair[0].read_nonblock(5, exception: false)
      class Mine < UDPSocket
        def recvfrom_nonblock(*, **) = [:sub, super]
      end
      p Mine.new.recvfrom_nonblock(5, exception: false)
    RUBY
  end

  def test_threads_and_interruptions
    assert_prints("[:timeout, :raised, 40, 40]\n", <<~'RUBY')
      require "timeout"
      a, b = UNIXSocket.pair
      r, w = IO.pipe
      reader = lambda do |io|
        io.read_nonblock(5)
      rescue IO::WaitReadable
        io.wait_readable(0.001)
        retry
      end
      seen = []
      begin
        Timeout.timeout(0.05) { reader.call(r) }
      rescue Timeout::Error
        seen << :timeout
      end
      thread = Thread.new { Thread.current.report_on_exception = false; reader.call(a) }
      sleep 0.02
      thread.raise(Interrupt)
      seen << (begin; thread.value; rescue Interrupt; :raised; end)
      readers = Array.new(4) { |i| Thread.new { Array.new(10) { reader.call(i.even? ? a : r) } } }
      20.times { b.write("abcde"); w.write("abcde"); Thread.pass }
      texts = readers.flat_map(&:value)
      p seen + [texts.size, texts.count("abcde")]
    RUBY
  end

  def test_gc_stress
    assert_prints("ok\n", <<~'RUBY')
      r, w = IO.pipe
      a, b = UNIXSocket.pair
      u, v = UDPSocket.new, UDPSocket.new
      u.bind("127.0.0.1", 0)
      v.connect("127.0.0.1", u.local_address.ip_port)
      server = TCPServer.new("127.0.0.1", 0)
      socket_server = Addrinfo.tcp("127.0.0.1", 0).listen
      buffer = +"old"
      GC.stress = true
      client = Socket.new(:INET, :STREAM)
      other = Socket.new(:INET, :STREAM)
      all = [
        w.write_nonblock("ab"), r.read_nonblock(5), b.write_nonblock("cd"), a.read_nonblock(5, buffer).dup,
        b.sendmsg_nonblock("ef"), a.recvmsg_nonblock[0], b.write_nonblock("gh"), a.recv_nonblock(5),
        v.sendmsg_nonblock("ij"), u.recvfrom_nonblock(5)[0],
        client.connect_nonblock(server.local_address, exception: false), server.wait_readable && server.accept_nonblock.class,
        other.connect_nonblock(socket_server.local_address, exception: false),
        socket_server.wait_readable && socket_server.accept_nonblock.map(&:class),
      ]
      GC.stress = false
      expected = [2, "ab", 2, "cd", 2, "ef", 2, "gh", 2, "ij", :wait_writable, TCPSocket, :wait_writable, [Socket, Addrinfo]]
      puts all == expected ? "ok" : all.inspect
    RUBY
  end

  def test_ractors
    assert_prints("[:wait_readable, \"ab\", \"read would block\"]\n", <<~'RUBY')
      ractor = Ractor.new do
        r, w = IO.pipe
        first = r.read_nonblock(5, exception: false)
        w.write_nonblock("ab")
        [first, r.read_nonblock(5), (r.read_nonblock(5) rescue $!.message[/read.*/])]
      end
      p ractor.respond_to?(:value) ? ractor.value : ractor.take
    RUBY
  end

  # --- Unchanged users.

  def test_net_http
    assert_prints("[\"200\", 300000, true]\n", <<~'RUBY')
      require "net/http"
      body = Random.bytes(150_000).unpack1("H*")
      server = TCPServer.new("127.0.0.1", 0)
      Thread.new do
        client = server.accept
        nil until client.gets == "\r\n"
        client.write("HTTP/1.1 200 OK\r\nContent-Length: #{body.bytesize}\r\nConnection: close\r\n\r\n")
        body.scan(/.{1,7001}/) { |part| client.write(part) }
        client.close
      end
      response = Net::HTTP.get_response("127.0.0.1", "/", server.local_address.ip_port)
      p [response.code, response.body.bytesize, response.body == body]
    RUBY
  end

  def test_resolv
    assert_prints("\"192.0.2.7\"\n", <<~'RUBY')
      require "resolv"
      server = UDPSocket.new.tap { |socket| socket.bind("127.0.0.1", 0) }
      Thread.new do
        loop do
          question, from = server.recvfrom(512)
          query = Resolv::DNS::Message.decode(question)
          name, type = query.question.first
          answer = Resolv::DNS::Message.new(query.id)
          answer.qr = 1
          answer.add_question(name, type)
          address = Resolv::DNS::Resource::IN::A
          answer.add_answer(name, 60, address.new("192.0.2.7")) if type == address
          server.send(answer.encode, 0, "127.0.0.1", from[1])
        end
      end
      Resolv::DNS.open(nameserver_port: [["127.0.0.1", server.local_address.ip_port]]) do |dns|
        dns.timeouts = 5
        p dns.getaddress("example.test").to_s
      end
    RUBY
  end

  # Socket.tcp (connect_nonblock), its servers' loops (accept_nonblock, recvmsg_nonblock).
  def test_loops_of_the_socket_library
    assert_prints("\"ECHO\"\n\"PONG\"\n", <<~'RUBY')
      sockets = Socket.tcp_server_sockets("127.0.0.1", 0)
      Thread.new { Socket.accept_loop(sockets) { |socket, _| socket.write(socket.gets.upcase); socket.close } }
      Socket.tcp("127.0.0.1", sockets[0].local_address.ip_port, connect_timeout: 5) { |s| s.write("echo\n"); p s.read.chomp }
      sockets = Socket.udp_server_sockets("127.0.0.1", 0)
      Thread.new { Socket.udp_server_loop_on(sockets) { |message, source| source.reply(message.upcase) } }
      socket = UDPSocket.new
      socket.connect("127.0.0.1", sockets[0].local_address.ip_port)
      socket.send("pong", 0)
      p socket.wait_readable(5) && socket.recv(9)
    RUBY
  end

  # As servers are written: IO.select, and exceptions for what is not ready after all.
  def test_a_reactor
    assert_prints("[20, 20, true]\n", <<~'RUBY')
      server = TCPServer.new("127.0.0.1", 0)
      clients = Array.new(20) { |i| Thread.new { TCPSocket.open("127.0.0.1", server.local_address.ip_port) { |s| s.write("#{i}\n" * 2000); s.close_write; s.read } } }
      buffers = {}
      closed = 0
      until closed == 20
        readable, writable = IO.select([server, *buffers.keys], buffers.select { |_, b| b[:out] != "" }.keys)
        readable.each do |io|
          if io == server
            20.times { buffers[server.accept_nonblock] = { out: +"", ended: false } }
          else
            loop { buffers[io][:out] << io.read_nonblock(777) }
          end
        rescue IO::WaitReadable
        rescue EOFError
          buffers[io][:ended] = true
        end
        writable.each do |io|
          out = buffers[io][:out]
          out.slice!(0, io.write_nonblock(out)) until out.empty?
        rescue IO::WaitWritable
        end
        buffers.select { |_, b| b[:ended] && b[:out] == "" }.each_key do |io|
          buffers.delete(io)
          io.close
          closed += 1
        end
      end
      texts = clients.map(&:value)
      p [closed, texts.size, texts.each_with_index.all? { |text, i| text == "#{i}\n" * 2000 }]
    RUBY
  end

  private

  def patched_before
    path = File.join(Dir.mktmpdir, "patched.rb")
    File.write(path, <<~RUBY)
      IO.prepend(Module.new { def read_nonblock(*, **) = [:before, super] })
      $LOAD_PATH.unshift(#{LIB.dump})
    RUBY
    path
  end
end
