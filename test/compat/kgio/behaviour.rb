# frozen_string_literal: true

# Prints what Kgio does: a line "what: answer" for each thing that is asked of it. Run over the gem and over
# eagain/kgio, by test/ruby/test_kgio_gem.rb, it must print the same.
#
# Not asked: whether descriptors that were handed in are in non-blocking mode afterwards (the gem switches,
# we do not), and the wording of messages but for those of Errno and EOFError.
require "kgio"
require "io/nonblock"
require "pathname"
require "timeout"
require "tmpdir"

$stdout.sync = true
DIR = Dir.mktmpdir("kgio")
at_exit { FileUtils.remove_entry_secure(DIR) }

def plain(value)
  case value
  when nil, true, false, Numeric, Symbol, Module, Encoding then value.inspect
  when String then value.bytesize > 200 ? "#{value.bytesize} bytes" : value.inspect.sub(DIR, "DIR")
  when Array then "[#{value.map { |element| plain(element) }.join(", ")}]"
  when Hash then "{#{value.map { |key, element| "#{key.class}=>#{plain(element)}" }.join(", ")}}"
  else "a #{value.class}"
  end
end

def told(error)
  message = ": #{error.message}" if error.is_a?(SystemCallError) || error.is_a?(EOFError)
  "#{error.class}#{message}#{" without a backtrace" if error.backtrace == []}"
end

def ask(what, &block)
  answer = begin
    plain(Timeout.timeout(10, &block))
  rescue Exception => e # rubocop:disable Lint/RescueException
    told(e)
  end
  puts "#{what}: #{answer}"
end

def full(io)
  loop { return if Kgio.trywrite(io, "x" * 65_536) == :wait_writable }
end

# --- Reading and writing, by all doors.

DOORS = {
  "pipe" => -> { Kgio::Pipe.new },
  "pair" => -> { Kgio::UNIXSocket.pair },
  "plain pipe" => -> { IO.pipe.each { |io| io.extend(Kgio::PipeMethods) } },
  "plain pair" => -> { UNIXSocket.pair.each { |io| io.extend(Kgio::SocketMethods) } },
  "tcp" => lambda {
    server = Kgio::TCPServer.new("127.0.0.1", 0)
    client = Kgio::TCPSocket.new("127.0.0.1", server.addr[1])
    accepted = server.kgio_accept
    server.close
    [accepted, client]
  },
}.freeze

DOORS.each do |name, open|
  on = lambda do |what, &block|
    ask("#{name}, #{what}") do
      r, w = open.call
      block.call(r, w)
    ensure
      [r, w].each { |io| io.close unless io.closed? }
    end
  end
  reads = %i[kgio_tryread kgio_read kgio_read!]
  reads += %i[kgio_trypeek kgio_peek] if name.include?("pair") || name == "tcp"
  reads.each do |read|
    on.call("#{read} of what is there") do |r, w|
      w.syswrite("hé") && r.kgio_wait_readable && [r.send(read, 10), r.send(read, 0)]
    end
    on.call("#{read} encoding") { |r, w| w.syswrite("hé") && r.kgio_wait_readable && r.send(read, 10).encoding }
    on.call("#{read} into a buffer") do |r, w|
      w.syswrite("hé") && r.kgio_wait_readable && (b = +"ééé") && [r.send(read, 10, b).equal?(b), b, b.encoding]
    end
    on.call("#{read} into a long buffer") do |r, w|
      w.syswrite("hé") && r.kgio_wait_readable && (b = +"x" * 100) && [r.send(read, 2, b), b]
    end
    on.call("#{read} into a nil buffer") { |r, w| w.syswrite("hé") && r.kgio_wait_readable && r.send(read, 10, nil) }
    on.call("#{read} of a fraction") { |r, w| w.syswrite("hello") && r.kgio_wait_readable && r.send(read, 2.9) }
    on.call("#{read} of 0") { |r, _| [r.send(read, 0), r.send(read, 0, +"x")] }
    on.call("#{read} at the end") { |r, w| w.close || (r.kgio_wait_readable && r.send(read, 10)) }
    on.call("#{read} at the end, buffer") do |r, w|
      w.close || (b = +"x") && r.kgio_wait_readable && [(r.send(read, 10, b) rescue $!.class), b]
    end
    on.call("#{read} after close") { |r, _| r.close || r.send(read, 10) }
    on.call("#{read} of 0 after close") { |r, _| r.close || r.send(read, 0) }
    [-1, "x", nil, 1 << 64, Object.new, :a, []].each do |length|
      on.call("#{read} of #{plain(length)}") { |r, _| r.send(read, length) }
    end
    ["frozen".freeze, 5, false, [], Object.new, :a].each do |buffer|
      on.call("#{read} into #{plain(buffer)}") { |r, w| w.syswrite("x") && r.send(read, 5, buffer) }
    end
    on.call("#{read} without arguments") { |r, _| r.send(read) }
    on.call("#{read} with three") { |r, _| r.send(read, 1, +"", 3) }
    on.call("#{read} passes over what Ruby read") do |r, w|
      w.syswrite("a\nb\n") && r.gets && w.syswrite("c") && r.kgio_wait_readable && [r.send(read, 10), r.gets]
    end
  end
  on.call("tryread of nothing") { |r, _| b = +"é"; [r.kgio_tryread(5), r.kgio_tryread(5, b), b, b.encoding] }
  on.call("kgio_read waits its own way") do |r, w|
    r.define_singleton_method(:kgio_wait_readable) { |*args| w.syswrite("waited #{args.size}") }
    sleep 0.01
    [r.kgio_read(100), r.kgio_tryread(100)]
  end

  on.call("trywrite") { |r, w| [w.kgio_trywrite("abc"), r.kgio_read(5)] }
  [5, nil, :sym, [1, 2], "", true].each do |object|
    on.call("trywrite of #{plain(object)}") do |r, w|
      [w.kgio_trywrite(object), w.kgio_write(object), w.syswrite("|"), sleep(0.01) && r.kgio_read(100)]
    end
    on.call("trywritev of #{plain(object)}") do |r, w|
      [w.kgio_trywritev(object), w.kgio_writev(object), w.syswrite("|"), sleep(0.01) && r.kgio_read(100)]
    end
  end
  on.call("trywrite to a full one") do |_, w|
    full(w)
    [w.kgio_trywrite("x" * 70_000), w.kgio_trywritev(["x" * 70_000]), w.kgio_trywritev([]), w.kgio_trywrite("")]
  end
  on.call("what trywrite leaves") do |r, w|
    data = Random.new(1).bytes(8 << 20).force_encoding("UTF-8")
    rest = w.kgio_trywrite(data)
    reader = Thread.new { r.nonblock = false; r.read(data.bytesize - rest.bytesize) }
    [rest.class, rest.encoding, rest.frozen?, reader.value + rest.b == data.b]
  end
  on.call("what trywritev leaves") do |r, w|
    data = Array.new(4000) { |i| i.to_s * 600 }
    before = data.dup
    rest = w.kgio_trywritev(data)
    reader = Thread.new { r.nonblock = false; r.read(data.join.bytesize - rest.join.bytesize) }
    [rest.class, rest.frozen?, reader.value + rest.join == data.join, data == before, rest.last.equal?(data.last)]
  end
  on.call("writev of many") do |r, w|
    data = Array.new(5000) { |i| i.odd? ? i : i.to_s * 100 }
    reader = Thread.new { r.nonblock = false; r.read(data.join.bytesize) }
    [w.kgio_writev(data), reader.value == data.join]
  end
  %i[kgio_trywrite kgio_write].each do |write|
    on.call("#{write} after close") { |_, w| w.close || w.send(write, "x") }
    on.call("#{write} to nobody") { |r, w| r.close || 3.times { w.send(write, "x") && sleep(0.01) } }
    on.call("#{write} to nobody") { |r, w| r.close || 3.times { w.send(write, "x") || sleep(0.01) } }
  end
  %i[kgio_trywritev kgio_writev].each do |write|
    on.call("#{write} after close") { |_, w| w.close || w.send(write, ["x"]) }
    on.call("#{write} to nobody") { |r, w| r.close || 3.times { w.send(write, ["x", "y"]) || sleep(0.01) } }
  end
  on.call("kgio_write waits its own way") do |r, w|
    w.define_singleton_method(:kgio_wait_writable) { |*args| raise "waited #{args.size}" }
    (w.kgio_write("x" * (8 << 20)) rescue $!.message)
  end
  if name.include?("pipe")
    on.call("the wrong direction") do |r, w|
      [(w.kgio_tryread(1) rescue $!.message), (r.kgio_trywrite("x") rescue $!.message)]
    end
  end
end

ask("socket methods of a pipe") { r, = IO.pipe; r.extend(Kgio::SocketMethods).kgio_tryread(5) }
ask("socket methods of a pipe, write") { _, w = IO.pipe; w.extend(Kgio::SocketMethods).kgio_trywrite("x") }
ask("socket methods of a pipe, writev") { _, w = IO.pipe; w.extend(Kgio::SocketMethods).kgio_trywritev(["x"]) }
ask("pipe methods of a socket") { a, = UNIXSocket.pair; a.extend(Kgio::PipeMethods).kgio_tryread(5) }
ask("popen") { Kgio::Pipe.popen("echo hi") { |io| [io.class, io.kgio_read(10), io.kgio_read(10)] } }
ask("popen, both ways") { Kgio::Pipe.popen("cat", "r+") { |io| io.kgio_trywrite("hi") } }

# --- Of the module.

ask("Kgio.tryread") do
  r, w = IO.pipe
  w.syswrite("abc")
  [Kgio.tryread(r, 2), Kgio.tryread(r, 2, +"xx"), Kgio.tryread(r, 1)]
end
ask("Kgio.tryread to_io") do
  r, w = IO.pipe
  w.syswrite("abc")
  o = Object.new
  o.define_singleton_method(:to_io) { r }
  Kgio.tryread(o, 5)
end
[5, "x", nil, Object.new].each { |io| ask("Kgio.tryread of #{plain(io)}") { Kgio.tryread(io, 5) } }
[5, "x", nil, Object.new].each { |io| ask("Kgio.trywrite to #{plain(io)}") { Kgio.trywrite(io, "x") } }
[5, "x", nil, Object.new].each { |io| ask("Kgio.trywritev to #{plain(io)}") { Kgio.trywritev(io, ["x"]) } }
ask("Kgio.trypeek of a pipe") { Kgio.trypeek(IO.pipe[0], 5) }
ask("Kgio.tryread of a file") do
  File.open(__FILE__) { |f| [Kgio.tryread(f, 20), f.pos, f.seek(0, IO::SEEK_END), Kgio.tryread(f, 5)] }
end
ask("no arguments") { Kgio.tryread }
ask("one argument") { Kgio.tryread($stdin) }
ask("datagrams") do
  a, b = UNIXSocket.pair(:DGRAM)
  a.send("hello", 0)
  [Kgio.tryread(b, 2), Kgio.tryread(b, 2), Kgio.trywrite(a, ""), Kgio.tryread(b, 2),
   Kgio.trywritev(a, %w[a b c]), Kgio.tryread(b, 9)]
end
ask("a datagram that is too long") { Kgio.trywrite(UNIXSocket.pair(:DGRAM)[0], "x" * 10_000_000) }

# --- Servers.

SERVER = Kgio::TCPServer.new("127.0.0.1", 0)
PORT = SERVER.addr[1]
def client(klass = TCPSocket) = klass.new("127.0.0.1", PORT)
def accept(*args)
  peer = client
  yield SERVER.kgio_tryaccept(*args)
ensure
  while (more = SERVER.kgio_tryaccept)
    more.close
  end
  peer.close
end

ask("tryaccept of nothing") { SERVER.kgio_tryaccept }
ask("what is accepted") do
  accept do |s|
    [s, s.nonblock?, s.close_on_exec?, s.sync, s.binmode?, s.kgio_addr, s.kgio_addr.encoding,
     s.do_not_reverse_lookup, s.external_encoding, s.kgio_autopush?]
  end
end
[nil, IO, File, TCPSocket, UNIXSocket, Kgio::Pipe, Kgio::UNIXSocket, String, 5, Kgio::SocketMethods].each do |klass|
  ask("tryaccept as #{plain(klass)}") { accept(klass) { |s| [s, s.instance_variable_get(:@kgio_addr)] } }
end
both = Kgio::SOCK_CLOEXEC | Kgio::SOCK_NONBLOCK
[0, nil, false, Kgio::SOCK_NONBLOCK, Kgio::SOCK_CLOEXEC, both, -1, 1, "x", 1 << 40, 1 << 70].each do |flags|
  ask("tryaccept with #{plain(flags)}") { accept(nil, flags) { |s| [s, s.nonblock?, s.close_on_exec?] } }
end
ask("tryaccept with three") { SERVER.kgio_tryaccept(nil, 0, 0) }
ask("kgio_accept") { c = client; s = SERVER.kgio_accept; c.close; [s, s.kgio_addr, s.kgio_read(5)] }
ask("no #initialize") { accept(Class.new(Kgio::Socket) { def initialize(*) = raise }) { |s| s.kgio_addr } }
ask("closed server") { s = Kgio::TCPServer.new("127.0.0.1", 0); s.close; s.kgio_tryaccept }
ask("closed server, waiting") { s = Kgio::TCPServer.new("127.0.0.1", 0); s.close; s.kgio_accept }
ask("closed while waiting") do
  s = Kgio::TCPServer.new("127.0.0.1", 0)
  t = Thread.new { s.kgio_accept rescue $!.class }
  sleep 0.05
  s.close
  t.value
end
ask("settings") { [Kgio.accept_class, Kgio.accept_cloexec?, Kgio.accept_nonblock?, Kgio.autopush?] }
[nil, 1, "x"].each do |value|
  ask("accept_cloexec = #{plain(value)}") { Kgio.accept_cloexec = value }
  ask("accept_nonblock = #{plain(value)}") { Kgio.accept_nonblock = value }
end
[String, UNIXSocket, Kgio::Pipe, Kgio::TCPSocket, nil].each do |klass|
  ask("accept_class = #{plain(klass)}") { Kgio.accept_class = klass }
  ask("accept_class after that") { Kgio.accept_class }
end
ask("other settings") do
  Kgio.accept_nonblock = true
  Kgio.accept_cloexec = false
  Kgio.accept_class = Kgio::TCPSocket
  accept { |s| [s, s.nonblock?, s.close_on_exec?, Kgio.accept_nonblock?, Kgio.accept_cloexec?] }
ensure
  Kgio.accept_nonblock = false
  Kgio.accept_cloexec = true
  Kgio.accept_class = nil
end
ask("without descriptors") do
  a = client
  limit = Process.getrlimit(:NOFILE)
  Process.setrlimit(:NOFILE, 3, limit[1])
  begin
    SERVER.kgio_tryaccept
  ensure
    Process.setrlimit(:NOFILE, *limit)
    SERVER.kgio_tryaccept&.close
    a.close
  end
end

# --- Addresses, autopush.

ask("kgio_addr") { s = client(Kgio::TCPSocket); [s.kgio_addr, s.kgio_addr!, s.kgio_addr, s.kgio_addr = 5, s.kgio_addr] }
ask("kgio_addr! unconnected") { Kgio::Socket.new(:INET, :STREAM).kgio_addr! }
ask("kgio_addr! closed") { s = Kgio::Socket.new(:INET, :STREAM); s.close; s.kgio_addr! }
ask("kgio_addr! of a pair") { Kgio::UNIXSocket.pair[0].kgio_addr! }
ask("kgio_addr! of a pipe") { IO.pipe[0].extend(Kgio::SocketMethods).kgio_addr! }
ask("autopush") do
  s = client(Kgio::TCPSocket)
  [s.kgio_autopush?, s.kgio_autopush = 5, s.kgio_autopush?, s.kgio_autopush = nil, s.kgio_autopush?]
end
ask("Kgio.autopush") { [Kgio.autopush = nil, Kgio.autopush?, Kgio.autopush = 1, Kgio.autopush?] }
ask("autopush corks") do
  s = client(Kgio::TCPSocket)
  s.kgio_autopush = true
  s.kgio_write("x")
  [s.kgio_tryread(1), s.getsockopt(:TCP, Socket::TCP_CORK).int]
end
ask("no autopush without a write") do
  s = client(Kgio::TCPSocket)
  s.kgio_autopush = true
  [s.kgio_tryread(1), s.getsockopt(:TCP, Socket::TCP_CORK).int]
end
ask("autopush of what is accepted") do
  server = Kgio::TCPServer.new("127.0.0.1", 0)
  server.setsockopt(:TCP, Socket::TCP_CORK, 1)
  c = TCPSocket.new("127.0.0.1", server.addr[1])
  s = server.kgio_accept
  [s.kgio_autopush?, s.kgio_trywritev(["x"]), s.kgio_tryread(1), c.wait_readable(0.15) && c.readpartial(5)]
end
ask("autopush of UNIX sockets") do
  s = Kgio::UNIXSocket.pair[0]
  s.kgio_autopush = true
  s.kgio_write("x")
  (s.kgio_tryread(1) rescue $!.class)
end

# --- Connecting.

UNIX = "#{DIR}/server"
UNIX_SERVER = Kgio::UNIXServer.new(UNIX)
IN = Socket.pack_sockaddr_in(PORT, "127.0.0.1")
UN = Socket.pack_sockaddr_un(UNIX)

%i[new start].each do |how|
  ask("TCPSocket.#{how}") do
    s = Kgio::TCPSocket.send(how, "127.0.0.1", PORT)
    [s, s.nonblock?, s.close_on_exec?, s.sync, s.binmode?, s.kgio_addr]
  end
  ["localhost", "", "999.9.9.9", "127.1", "0", nil, 5, :x].each do |host|
    ask("TCPSocket.#{how} to #{plain(host)}") { Kgio::TCPSocket.send(how, host, PORT) }
  end
  ["80", -1, 80.5, nil, 1 << 80].each do |port|
    ask("TCPSocket.#{how} to port #{plain(port)}") { Kgio::TCPSocket.send(how, "127.0.0.1", port) }
  end
  ask("TCPSocket.#{how}, refused") { Kgio::TCPSocket.send(how, "127.0.0.1", 1) }
  ask("TCPSocket.#{how}, refused, write") do
    s = Kgio::TCPSocket.send(how, "127.0.0.1", 1)
    sleep 0.05
    s.kgio_trywrite("x")
  end
  ask("TCPSocket.#{how}, refused, read") do
    s = Kgio::TCPSocket.send(how, "127.0.0.1", 1)
    sleep 0.05
    s.kgio_tryread(1)
  end
  ask("UNIXSocket.#{how}") do
    s = Kgio::UNIXSocket.send(how, UNIX)
    a = UNIX_SERVER.kgio_tryaccept
    [s, s.nonblock?, s.close_on_exec?, s.path, a, a.kgio_addr.equal?(Kgio::LOCALHOST), a.nonblock?]
  end
  ["/nonexistent", "", "x" * 108, "x" * 1000, nil, 5, Pathname.new(UNIX)].each do |path|
    ask("UNIXSocket.#{how} to #{plain(path)}") { Kgio::UNIXSocket.send(how, path) }
  end
end
ADDRESSES = [
  IN, UN, IN + "x" * 500, IN[0, 4], IN[0, 2], "", "x", "\xff\xff" + "x" * 14, "x" * 500, nil, 5,
  Addrinfo.tcp("127.0.0.1", PORT)
].freeze
%i[new connect start].each do |how|
  ADDRESSES.each_with_index do |address, i|
    ask("Socket.#{how} to address #{i}") { s = Kgio::Socket.send(how, address); [s, s.nonblock?, s.close_on_exec?] }
  end
end
ask("Socket.new without arguments") { Kgio::Socket.new }
ask("Socket.new of two") { Kgio::Socket.new(:INET, :STREAM) }
ask("Socket.new of three") { Kgio::Socket.new(Socket::AF_UNIX, Socket::SOCK_DGRAM, 0) }
ask("Socket.new of four") { Kgio::Socket.new(1, 2, 3, 4) }
ask("a full backlog") do
  server = Kgio::UNIXServer.new("#{DIR}/full")
  server.listen(0)
  all = []
  10.times { all << Kgio::UNIXSocket.new("#{DIR}/full") }
end
WAITER = Class.new(Kgio::TCPSocket) { def kgio_wait_writable(*args) = (@waited = [args.size, nonblock?]) }
ask("connecting waits its own way") { WAITER.new("127.0.0.1", PORT).instance_variable_get(:@waited) }
ask("start does not wait") { WAITER.start("127.0.0.1", PORT).instance_variable_get(:@waited) }
ask("unconnected read") { Kgio::Socket.new(:INET, :STREAM).kgio_tryread(5) }
ask("unconnected peek") { Kgio::Socket.new(:INET, :STREAM).kgio_trypeek(5) }
ask("unconnected write") { Kgio::Socket.new(:INET, :STREAM).kgio_trywrite("x") }
ask("unconnected writev") { Kgio::Socket.new(:INET, :STREAM).kgio_trywritev(["x"]) }
%i[kgio_tryread kgio_read! kgio_trypeek].each do |read|
  ask("#{read} after a reset") do
    server = Kgio::TCPServer.new("127.0.0.1", 0)
    c = Kgio::TCPSocket.new("127.0.0.1", server.addr[1])
    s = server.kgio_accept
    s.setsockopt(:SOCKET, :LINGER, [1, 0].pack("ii"))
    s.close
    c.kgio_wait_readable
    c.send(read, 5)
  end
end
ask("fastopen") { s = Kgio::Socket.new(:INET, :STREAM); s.kgio_fastopen("x", IN) }
ask("fastopen, blocking") do
  server = Kgio::TCPServer.new("127.0.0.1", 0)
  s = Kgio::Socket.new(:INET, :STREAM)
  s.nonblock = false
  [s.kgio_fastopen(5, server.getsockname), server.kgio_accept.kgio_read(5)]
end
[nil, 5, "x", ""].each do |address|
  ask("fastopen to #{plain(address)}") { Kgio::Socket.new(:INET, :STREAM).kgio_fastopen("x", address) }
end

# --- syssend.

ask("syssend") do
  a, b = Kgio::UNIXSocket.pair
  [a.kgio_syssend("hi", 0), a.kgio_syssend(5, Socket::MSG_DONTWAIT), b.kgio_read(9)]
end
["x", nil, :PEEK, 1 << 40].each do |flags|
  ask("syssend with #{plain(flags)}") { Kgio::UNIXSocket.pair[0].kgio_syssend("x", flags) }
end
ask("syssend, full") do
  a, b = Kgio::UNIXSocket.pair
  full(a)
  [a.kgio_syssend("hi", 0), a.kgio_syssend("hi", Socket::MSG_DONTWAIT), b.class]
end
ask("syssend, rest") do
  a, b = Kgio::UNIXSocket.pair
  [a.kgio_syssend("x" * (8 << 20), Socket::MSG_DONTWAIT).class, b.class]
end
ask("syssend to nobody") { a, b = Kgio::UNIXSocket.pair; b.close; a.kgio_syssend("x", 0) }
ask("syssend of a pipe") { IO.pipe[1].extend(Kgio::SocketMethods).kgio_syssend("x", 0) }

# --- Waiting.

[0, 0.01, 1/100r, nil].each do |timeout|
  ask("wait #{plain(timeout)}") do
    r, w = Kgio::Pipe.new
    [w.kgio_wait_writable(timeout).equal?(w), timeout && r.kgio_wait_readable(timeout)]
  end
end
[-1, "x", false, Object.new, Float::NAN, Float::INFINITY].each do |timeout|
  ask("wait #{plain(timeout)}") { _, w = Kgio::Pipe.new; w.kgio_wait_writable(timeout) }
end
ask("wait, two arguments") { Kgio::Pipe.new[1].kgio_wait_writable(0, 1) }
ask("wait for the wrong direction") { r, w = Kgio::Pipe.new; [r.kgio_wait_writable(0.01), w.kgio_wait_readable(0.01)] }
ask("wait, closed") { _, w = Kgio::Pipe.new; w.close; w.kgio_wait_writable }
ask("wait, read ahead") { r, w = Kgio::Pipe.new; w.syswrite("a\nb\n"); r.gets; r.kgio_wait_readable(0.01) }
ask("wait, closed meanwhile") do
  r, = Kgio::Pipe.new
  t = Thread.new { r.kgio_read(5) rescue [$!.class, $!.message] }
  sleep 0.05
  r.close
  t.value
end
ask("waiters of any object") { Object.new.extend(Kgio::DefaultWaiters).kgio_wait_readable(0.01) }
ask("waiters of what has an IO") do
  _, w = IO.pipe
  o = Object.new.extend(Kgio::DefaultWaiters)
  o.define_singleton_method(:to_io) { w }
  o.kgio_wait_writable.equal?(o)
end

# --- poll.

R, W = IO.pipe
ask("poll") { h = { R => :wait_readable, W => :wait_writable }; a = Kgio.poll(h); [a.equal?(h), a] }
ask("poll of nothing") { [Kgio.poll({}, 0), Kgio.poll({ R => 1 }, 0), Kgio.poll({ R => Kgio::POLLIN }, 10)] }
[:foo, "x", nil, 4.5, 1 << 70, -1, 1 << 20, 0].each do |events|
  ask("poll for #{plain(events)}") { Kgio.poll({ W => events }, 0) }
end
["x", 1.5, 1 << 40, 1 << 70, false, -1, -5].each do |timeout|
  ask("poll, timeout #{plain(timeout)}") { Kgio.poll({ W => 4 }, timeout) }
end
[nil, [], 5, "x"].each { |set| ask("poll of #{plain(set)}") { Kgio.poll(set, 0) } }
[5, "x", nil, Object.new].each { |io| ask("poll for #{plain(io)}") { Kgio.poll({ io => 4 }, 0) } }
ask("poll without arguments") { Kgio.poll }
ask("poll of closed") { _, w = IO.pipe; w.close; Kgio.poll({ w => 4 }, 0) }
ask("poll of frozen") { [Kgio.poll({ R => 1 }.freeze, 0), Kgio.poll({ W => 4 }.freeze, 0)] }
ask("poll, hangup") { r, w = IO.pipe; w.close; Kgio.poll({ r => 1 }, 0) }
ask("poll, error") { r, w = IO.pipe; r.close; Kgio.poll({ w => 4 }, 0) }
ask("poll, half closed") { a, b = UNIXSocket.pair; b.close_write; Kgio.poll({ a => Kgio::POLLRDHUP }, 0) }
ask("poll, invalid") { _, w = IO.pipe; w.autoclose = false; IO.for_fd(w.fileno).close; Kgio.poll({ w => 4 }, 0) }
ask("poll, to_io") { o = Object.new; o.define_singleton_method(:to_io) { W }; Kgio.poll({ o => 4 }, 0) }
ask("poll keeps what it leaves") { h = { R => 1 }; [Kgio.poll(h, 0), h.size] }
ask("poll waits") do
  r, w = IO.pipe
  t = Thread.new { sleep 0.03; w.syswrite("x") }
  a = Kgio.poll({ r => 1 }, 5000)
  t.join
  a
end
ask("poll through a signal") do
  trap(:USR2) {}
  t = Thread.new { sleep 0.02; Process.kill(:USR2, $$) }
  a = Kgio.poll({ R => 1 }, 60)
  t.join
  a
end

# --- tryopen.

FILE = Kgio::File
ask("tryopen") do
  f = FILE.tryopen(__FILE__)
  [f, f.path == __FILE__, f.to_path == __FILE__, f.close_on_exec?, f.binmode?, f.sync, f.external_encoding,
   f.nonblock?, f.kgio_tryread(10), f.kgio_wait_readable.equal?(f)]
end
File.symlink("loop", "#{DIR}/loop")
["/nonexistent", "/etc/passwd/x", "#{DIR}/loop", "x" * 5000, "a\0b", 5, nil].each do |path|
  ask("tryopen of #{plain(path)[0, 20]}") { FILE.tryopen(path) }
end
ask("tryopen of a Pathname") { FILE.tryopen(Pathname.new(__FILE__)) }
ask("tryopen of a directory") { [FILE.tryopen(DIR), FILE.tryopen(DIR, IO::RDWR)] }
ask("tryopen of what exists") { FILE.tryopen(__FILE__, IO::CREAT | IO::EXCL | IO::RDWR) }
["r", 0.5, nil, :x, 1 << 70].each { |mode| ask("tryopen, mode #{plain(mode)}") { FILE.tryopen(__FILE__, mode) } }
[nil, 0600, "x", 1.5].each_with_index do |perm, i|
  ask("tryopen, perm #{plain(perm)}") { FILE.tryopen("#{DIR}/perm#{i}", IO::CREAT | IO::RDWR, perm).stat.mode.to_s(8) }
end
ask("tryopen, no perm") { FILE.tryopen("#{DIR}/perm", IO::CREAT | IO::RDWR).stat.mode.to_s(8) }
ask("tryopen to write") do
  f = FILE.tryopen("#{DIR}/w", IO::CREAT | IO::WRONLY)
  [f.write("abc"), f.close, File.read("#{DIR}/w")]
end
ask("tryopen to append") do
  f = FILE.tryopen("#{DIR}/w", IO::APPEND | IO::RDWR)
  [f.read, f.kgio_trywrite("abc"), f.close, File.read("#{DIR}/w")]
end
ask("tryopen, not for writing") do
  f = FILE.tryopen("#{DIR}/w")
  [(f.write("x") rescue $!.class), (f.kgio_trywrite("x") rescue $!.message)]
end
ask("tryopen, not for reading") do
  f = FILE.tryopen("#{DIR}/w", IO::WRONLY)
  [(f.read rescue $!.class), (f.kgio_tryread(1) rescue $!.message)]
end
ask("tryopen of a subclass") { Class.new(FILE) { def initialize(*) = raise }.tryopen(__FILE__).class.superclass }
File.mkfifo("#{DIR}/fifo")
ask("tryopen of a FIFO that nobody reads") { FILE.tryopen("#{DIR}/fifo", IO::WRONLY | IO::NONBLOCK) }
ask("tryopen waits for a FIFO") do
  t = Thread.new { FILE.tryopen("#{DIR}/fifo") }
  sleep 0.02
  w = File.open("#{DIR}/fifo", "w")
  [t.value, t.value.kgio_tryread(5), w.syswrite("x"), t.value.kgio_tryread(5)]
end
ask("tryopen without descriptors") do
  limit = Process.getrlimit(:NOFILE)
  Process.setrlimit(:NOFILE, 3, limit[1])
  begin
    FILE.tryopen("/etc/passwd")
  ensure
    Process.setrlimit(:NOFILE, *limit)
  end
end
ask("File.open") { Kgio::File.open(__FILE__) { |f| [f, f.kgio_tryread(10)] } }
ask("tryopen without arguments") { FILE.tryopen }
ask("tryopen with four") { FILE.tryopen(1, 2, 3, 4) }
ask("Pipe.new with a block") { Kgio::Pipe.new { |r, w| [r, w, r.nonblock?, w.nonblock?, w.sync] } }

# --- Any arguments.

random = Random.new(Integer(ENV.fetch("SEED_STRESS", "1")))
VALUES = [
  0, 1, 5, 100, -1, 3.7, nil, true, false, :wait_readable, "", "x", "hé" * 9, "f".freeze, [], ["a", 5], {}, 1 << 31,
  1 << 65, Object.new, 1..2, String
].freeze
CALLS = %i[
  kgio_tryread kgio_trypeek kgio_trywrite kgio_trywritev kgio_syssend kgio_wait_writable
  kgio_addr kgio_addr= kgio_autopush? kgio_autopush=
].freeze
400.times do |i|
  name = CALLS[random.rand(CALLS.size)]
  args = Array.new(random.rand(4)) { VALUES[random.rand(VALUES.size)] }
  args.map! { |arg| arg.is_a?(String) && !arg.frozen? ? arg.dup : arg }
  next if args.size > 0 && args[0].is_a?(Integer) && args[0] >= 1 << 31 && name.to_s.include?("read")
  ask("any #{i}, #{name} #{plain(args)}") do
    a, b = Kgio::UNIXSocket.pair
    b.kgio_trywrite("there")
    [a.send(name, *args), b.kgio_tryread(50)]
  end
end
