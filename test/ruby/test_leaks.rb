# frozen_string_literal: true

require_relative "helper"

# Each attempt, with what succeeds, would block and fails, thousands of times in a process of its
# own: neither its memory nor its descriptors become more.
class LeaksTest < EagainTest
  # Times that each call is made.
  ROUNDS = Integer(ENV.fetch("EAGAIN_ROUNDS", 20_000))

  # What a pass over all calls may add to the resident set, in KiB.
  ROOM = 4096

  PRELUDE = <<~'RUBY'
    require "eagain/io"
    require "eagain/kgio"
    require "tmpdir"
    $rounds = Integer(ENV.fetch("LEAKS_ROUNDS"))

    def resident
      2.times { GC.start }
      Integer(File.read("/proc/self/status")[/^VmRSS:\s+(\d+)/, 1])
    end

    def descriptors
      GC.start
      Dir.children("/proc/self/fd").size
    end

    $calls = {}

    # A call that comes well, or gives this.
    def good(name, expected = nil, &call)
      raise name if $calls[name]
      $calls[name] = lambda do |count|
        count.times do
          value = call.call
          raise "#{name}: #{value.inspect}" if expected && value != expected
        end
      end
    end

    # One that must raise this.
    def bad(name, error, &call)
      raise name if $calls[name]
      $calls[name] = lambda do |count|
        count.times do
          call.call
        rescue error
          next
        else
          raise "#{name}: nothing was raised"
        end
      end
    end

    # What the calls add after a warm-up: KiB and descriptors, in all; and the calls that added most.
    def measure
      $calls.each_value { |call| call.call([$rounds / 4, 200].max) }
      open = descriptors
      kilobytes = most = nil
      3.times do # a heap may find its size late; what leaks does so each time
        before = first = resident
        most = $calls.map do |name, call|
          call.call($rounds)
          now = resident
          [now - before, name].tap { before = now }
        end
        break if (kilobytes = before - first) <= Integer(ENV.fetch("LEAKS_ROOM"))
      end
      p [kilobytes, descriptors - open, $calls.size, most.max(3)]
    end

    def full(io) = io.tap { nil until Eagain.trywrite(io, "x" * 65_536) == :wait_writable }
    OBJECT = Object.new
    CLOSED = IO.pipe.each(&:close).first
    GONE = UNIXSocket.pair.each(&:close).first
  RUBY

  def assert_leaks_nothing(script)
    only_ours
    skip "no /proc" unless File.exist?("/proc/self/status")

    env = { "LEAKS_ROUNDS" => ROUNDS.to_s, "LEAKS_ROOM" => ROOM.to_s }
    out = output_of("#{PRELUDE}#{script}\nmeasure", env: env, timeout: 120)
    kilobytes, descriptors, calls, most = eval(out) # rubocop:disable Security/Eval
    assert_operator calls, :>, 0
    assert_equal 0, descriptors, "descriptors; memory by call: #{most}"
    assert_operator kilobytes, :<=, ROOM, "KiB; most of all: #{most}"
  end

  def test_streams
    assert_leaks_nothing(<<~'RUBY')
      a, b = UNIXSocket.pair
      r, w = IO.pipe
      ended = IO.pipe.tap { |_, other| other.close }.first
      broken = IO.pipe.tap { |other, _| other.close }.last
      stuck = full(IO.pipe.tap { |reader, _| $reader = reader }.last)
      buffer, other = +"", +""

      good("tryread", "data") { b.syswrite("data"); Eagain.tryread(a, 100) }
      good("tryread, a buffer", "data") { w.syswrite("data"); Eagain.tryread(r, 100, buffer) }
      good("tryread, a long one", :wait_readable) { Eagain.tryread(a, 1 << 20, buffer) }
      good("tryread, nothing", :wait_readable) { Eagain.tryread(r, 10) }
      good("tryread, the end") { Eagain.tryread(ended, 10) and raise }
      bad("tryread, of no IO", TypeError) { Eagain.tryread(OBJECT, 10) }
      bad("tryread, closed", IOError) { Eagain.tryread(CLOSED, 10, buffer) }
      bad("tryread, a length", ArgumentError) { Eagain.tryread(r, -1) }
      bad("tryread, a frozen buffer", FrozenError) { Eagain.tryread(r, 10, "frozen".freeze) }
      bad("tryread, the other way", IOError) { Eagain.tryread(w, 10) }
      good("tryreadv", %w[da ta]) { b.syswrite("data"); Eagain.tryreadv(a, [2, 5]) }
      good("tryreadv, buffers") { b.syswrite("data"); Eagain.tryreadv(a, [2, 5], [buffer, other]) }
      good("tryreadv, nothing", :wait_readable) { Eagain.tryreadv(a, [100, 10_000]) }
      bad("tryreadv, a length", TypeError) { Eagain.tryreadv(a, [1, OBJECT]) }
      bad("tryreadv, closed", IOError) { Eagain.tryreadv(CLOSED, [1, 2]) }
      good("trypeek", "data") { b.syswrite("data"); Eagain.trypeek(a, 10).tap { Eagain.tryread(a, 10) } }
      good("trypeek, nothing", :wait_readable) { Eagain.trypeek(a, 10, buffer) }
      bad("trypeek, closed", IOError) { Eagain.trypeek(GONE, 10) }
      good("trywrite", 4) { Eagain.trywrite(w, "data").tap { Eagain.tryread(r, 10, buffer) } }
      good("trywrite, no string", 2) { Eagain.trywrite(w, 12).tap { Eagain.tryread(r, 10, buffer) } }
      good("trywrite, no room", :wait_writable) { Eagain.trywrite(stuck, "data") }
      bad("trywrite, broken", Errno::EPIPE) { Eagain.trywrite(broken, "data") }
      bad("trywrite, closed", IOError) { Eagain.trywrite(CLOSED, "data") }
      good("trywritev", 4) { Eagain.trywritev(w, %w[da ta]).tap { Eagain.tryread(r, 10, buffer) } }
      good("trywritev, no room", :wait_writable) { Eagain.trywritev(stuck, %w[da ta]) }
      bad("trywritev, broken", Errno::EPIPE) { Eagain.trywritev(broken, %w[da ta]) }
      bad("trywritev, no strings", TypeError) { Eagain.trywritev(w, 1) }
    RUBY
  end

  def test_buffered_streams
    assert_leaks_nothing(<<~'RUBY')
      a, b = UNIXSocket.pair
      s = Eagain::Stream.new(a, buffer_size: 64, limit: 200)
      broken = Eagain::Stream.new(IO.pipe.tap { |other, _| other.close }.last)
      stuck = Eagain::Stream.new(full(UNIXSocket.pair.tap { |reader, _| $other = reader }.last), sync: true, buffer_size: 10)
      ended = Eagain::Stream.new(IO.pipe.tap { |_, other| other.close }.first)
      plain = Eagain::Stream.new(Class.new { def readpartial(_) = "data"; def write(_) = nil }.new)
      buffer, other = +"", +""

      good("new", 16_384) { Eagain::Stream.new(a, timeout: 1).buffer_size }
      bad("new, of no IO", TypeError) { Eagain::Stream.new(OBJECT) }
      bad("new, an option", ArgumentError) { Eagain::Stream.new(a, option: 1) }
      good("gets", "data\n") { b.syswrite("data\n"); s.gets }
      good("gets, in pieces", "da;ta;") { b.syswrite("da;ta;"); s.gets(";") + s.gets(";") }
      good("gets, long ones", 150) { b.syswrite("x" * 149 + "\n"); s.gets(chomp: false).size }
      bad("gets, too long", Eagain::LimitError) { b.syswrite("xx"); begin s.gets(limit: 1) ensure s.readpartial(2) end }
      good("read", "data") { b.syswrite("data"); s.read(4, buffer) }
      good("read, past the buffer", 300) { b.syswrite("x" * 300); s.read(300).size }
      good("read, in parts", 300) { b.syswrite("x" * 100); s.peek(90); b.syswrite("y" * 200); s.read(300, other).size }
      bad("read, no time", Eagain::TimeoutError) { s.read(100, timeout: 0) }
      bad("read, a long one, no time", Eagain::TimeoutError) { s.read(100_000, timeout: 0) }
      bad("read, a length", ArgumentError) { s.read(-1) }
      bad("read, a frozen buffer", FrozenError) { s.read(1, "frozen".freeze) }
      bad("read_exact, the end", EOFError) { ended.read_exact(10) }
      bad("readline, the end", EOFError) { ended.readline }
      good("write", "data") { s.write("da", :ta); s.flush; b.recv(100) }
      good("write, past the buffer", 300) { s.write("x" * 300); b.recv(400).size }
      bad("write, no time", Eagain::TimeoutError) { stuck.unwritten.zero? ? stuck.write("data", timeout: 0) : stuck.flush(timeout: 0) }
      bad("write, broken", Errno::EPIPE) { broken.write("x" * 20_000) }
      bad("write, an option", ArgumentError) { s.write("", option: 1) }
      good("by methods", "data") { plain.write("x").then { plain.flush }; plain.readpartial(4) }
      good("closed") do
        r, w = IO.pipe
        w.syswrite("data")
        Eagain::Stream.open(r) { |stream| stream.peek }
        Eagain::Stream.open(w) { |stream| stream.write("data") } rescue Errno::EPIPE
      end
    RUBY
  end

  def test_messages
    assert_leaks_nothing(<<~'RUBY')
      a, b = UNIXSocket.pair(:SEQPACKET)
      room = UNIXSocket.pair(:SEQPACKET).tap { |pair| $other = pair.last }.first
      nil until Eagain.trysend(room, "x" * 1000) == :wait_writable
      ended = UNIXSocket.pair.tap { |pair| pair.last.close }.first
      pipe, = IO.pipe.tap { |pair| $pipe = pair }
      buffer = +""
      nowhere = Socket.sockaddr_un("/nowhere")
      datagram = Socket.new(:UNIX, :DGRAM)

      good("trysend, tryrecv", "data") { Eagain.trysend(a, "data"); Eagain.tryrecv(b, 10) }
      good("tryrecv, a buffer", "data") { Eagain.trysend(a, "data"); Eagain.tryrecv(b, 10, 0, buffer) }
      good("tryrecv, nothing", :wait_readable) { Eagain.tryrecv(b, 10_000) }
      good("tryrecv, the end") { Eagain.tryrecv(ended, 10) and raise }
      bad("tryrecv, a length", ArgumentError) { Eagain.tryrecv(b, -1) }
      bad("tryrecv, flags", TypeError) { Eagain.tryrecv(b, 1, OBJECT) }
      bad("tryrecv, no socket", TypeError) { Eagain.tryrecv(pipe, 1) }
      good("tryrecvfrom") { Eagain.trysend(a, "data"); Eagain.tryrecvfrom(b, 10)[0] == "data" or raise }
      good("tryrecvfrom, nothing", :wait_readable) { Eagain.tryrecvfrom(b, 10) }
      bad("tryrecvfrom, closed", IOError) { Eagain.tryrecvfrom(GONE, 10) }
      good("trysend, no room", :wait_writable) { Eagain.trysend(room, "x" * 1000) }
      bad("trysend, no string", TypeError) { Eagain.trysend(a, 1) }
      bad("trysend, nowhere", Errno::ENOENT) { Eagain.trysend(datagram, "data", 0, nowhere) }
      bad("trysend, broken", Errno::EPIPE) { Eagain.trysend(ended, "data") }
      good("trysendmsg, tryrecvmsg", "data") { Eagain.trysendmsg(a, "data"); Eagain.tryrecvmsg(b)[0] }
      good("trysendmsg, pieces", "data") { Eagain.trysendmsg(a, %w[da ta]); Eagain.tryrecvmsg(b, 10)[0] }
      good("trysendmsg, descriptors that nobody takes", "data") do
        Eagain.trysendmsg(a, "data", 0, nil, pipe, $stdin)
        Eagain.tryrecvmsg(b)[0]
      end
      good("trysendmsg, descriptors") do
        Eagain.trysendmsg(a, "data", 0, nil, pipe, $stdin)
        Eagain.tryrecvmsg(b, scm_rights: true)[3].unix_rights.each(&:close)
      end
      good("tryrecvmsg, nothing", :wait_readable) { Eagain.tryrecvmsg(b, 10, 0, 100, scm_rights: true) }
      bad("tryrecvmsg, a length", TypeError) { Eagain.tryrecvmsg(b, OBJECT) }
      bad("tryrecvmsg, an option", ArgumentError) { Eagain.tryrecvmsg(b, wrong: 1) }
      good("trysendmsg, no room", :wait_writable) { Eagain.trysendmsg(room, ["x" * 1000, "y"], 0, nil, pipe) }
      bad("trysendmsg, no strings", TypeError) { Eagain.trysendmsg(a, ["x", nil]) }
      bad("trysendmsg, control data", NoMethodError) { Eagain.trysendmsg(a, %w[x y], 0, nil, pipe, OBJECT) }
      bad("trysendmsg, nowhere", Errno::ENOENT) { Eagain.trysendmsg(datagram, "data", 0, nowhere, pipe) }
    RUBY
  end

  def test_connections_and_files
    assert_leaks_nothing(<<~'RUBY')
      folder = Dir.mktmpdir
      at_exit { system("rm", "-r", folder) }
      path, file_path, fifo = %w[socket file fifo].map { |name| File.join(folder, name) }
      File.write(file_path, "data")
      File.mkfifo(fifo)
      server = UNIXServer.new(path)
      idle = TCPServer.new("127.0.0.1", 0)
      address = Addrinfo.unix(path)
      nowhere = Addrinfo.unix("#{path}.none")
      a, b = UNIXSocket.pair
      r, w = IO.pipe
      file = File.open(file_path)
      stuck = full(UNIXSocket.pair.tap { |pair| $other = pair.last }.first)
      buffer = +""

      good("tryconnect, tryaccept") do
        client = Socket.new(:UNIX, :STREAM)
        Eagain.tryconnect(client, address) == 0 or raise
        Eagain.tryaccept(server).close
        client.close
      end
      good("tryaccept, nothing", :wait_readable) { Eagain.tryaccept(server) }
      good("tryaccept, nothing, TCP", :wait_readable) { Eagain.tryaccept(idle, class: Socket) }
      bad("tryaccept, a class", TypeError) { Eagain.tryaccept(server, class: 1) }
      bad("tryaccept, no server", TypeError) { Eagain.tryaccept(OBJECT) }
      bad("tryaccept, not listening", SystemCallError) { Eagain.tryaccept(a) }
      bad("tryaccept, closed", IOError) { Eagain.tryaccept(GONE) }
      failing = Socket.new(:UNIX, :STREAM)
      bad("tryconnect, nowhere", Errno::ENOENT) { Eagain.tryconnect(failing, nowhere) }
      bad("tryconnect, no address", TypeError) { Eagain.tryconnect(failing, 1) }
      bad("tryconnect, closed", IOError) { Eagain.tryconnect(GONE, address) }

      good("trysendfile", 4) { Eagain.trysendfile(a, file, 10, 0).tap { Eagain.tryread(b, 10, buffer) } }
      good("trysendfile, no room", :wait_writable) { Eagain.trysendfile(stuck, file, 10, 0) }
      good("trysendfile, the end") { Eagain.trysendfile(a, file, 10, 100) and raise }
      bad("trysendfile, a count", ArgumentError) { Eagain.trysendfile(a, file, -1) }
      bad("trysendfile, no file", Errno::EINVAL) { Eagain.trysendfile(a, r, 10) }
      good("trysplice", 4) { w.syswrite("data"); Eagain.trysplice(r, a, 10).tap { Eagain.tryread(b, 10, buffer) } }
      good("trysplice, nothing", :wait_readable) { Eagain.trysplice(r, a, 10) }
      bad("trysplice, no pipe", Errno::EINVAL) { Eagain.trysplice(a, b, 10) }
      bad("trysplice, closed", IOError) { Eagain.trysplice(CLOSED, a, 10) }
      good("tryopen") { Eagain.tryopen(file_path, "r+").close }
      good("tryopen, no reader", :wait_writable) { Eagain.tryopen(fifo, "w") }
      bad("tryopen, nothing there", Errno::ENOENT) { Eagain.tryopen("#{file_path}.none") }
      bad("tryopen, a mode", ArgumentError) { Eagain.tryopen(file_path, "wrong") }
      bad("tryopen, no path", TypeError) { Eagain.tryopen(OBJECT) }
      good("addresses") do
        UNIXSocket.pair.each { |socket| Eagain.remote_address(socket) && Eagain.local_address(socket) && socket.close }
      end
    RUBY
  end
end
