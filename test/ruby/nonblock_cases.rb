# frozen_string_literal: true

# The cases of test_nonblock.rb. Run as a script, in a Ruby with -reagain/nonblock or without, this prints
# what came of each: { [name, variant] => result }, marshalled.
#
# A case is a line: what it needs, its name, and a block that gets that and, as keywords, the variant.
# Every case is run once with each.

require "socket"
require "io/nonblock"
require "pty"
require "tmpdir"
require "timeout"

Warning[:experimental] = false

module NonblockCases
  VARIANTS = [{}, { exception: true }, { exception: false }, { exception: nil }, { exception: 1 },
              { exception: false, unknown: 1 }].freeze
  CASES = {} # name => [what it needs, block]

  # What a case may need: a block gets [what the block is given] and, at the end, all of it is closed.
  NEEDS = {
    nothing: -> { [] },
    pipe: -> { IO.pipe },
    unix: -> { UNIXSocket.pair },
    tcp: -> { server = TCPServer.new("127.0.0.1", 0)
              a = TCPSocket.new("127.0.0.1", server.local_address.ip_port)
              [a, server.accept, server] },
    seqpacket: -> { UNIXSocket.pair(:SEQPACKET) },
    datagram: -> { UNIXSocket.pair(:DGRAM) },
    socket: -> { Socket.pair(:UNIX, :STREAM) },
    udp: -> { a, b = UDPSocket.new, UDPSocket.new
              a.bind("127.0.0.1", 0)
              b.connect("127.0.0.1", a.local_address.ip_port)
              [a, b] },
    udp_socket: -> { a = Addrinfo.udp("127.0.0.1", 0).bind
                     [a, a.local_address.connect] },
    file: -> { file = File.open(File.join(Dir.mktmpdir, "file"), "w+")
               file.write("0123456789")
               file.rewind
               [file] },
    terminal: -> { PTY.open.first(2) },
    tcp_server: -> { server = TCPServer.new("127.0.0.1", 0)
                     [server, server.local_address] },
    unix_server: -> { server = UNIXServer.new(File.join(Dir.mktmpdir, "s"))
                      [server, server.local_address] },
    socket_server: -> { server = Addrinfo.tcp("127.0.0.1", 0).listen
                        [server, server.local_address] },
  } # nonblock_ssl_cases.rb has more

  class ToStr # what is no String, but can become one
    def initialize(string) = @string = string
    def to_str = @string
    def to_s = "to_str"
  end

  class << self
    def on(need, name, &block)
      Array(need).each do |one|
        raise "twice: #{one}: #{name}" if CASES.key?("#{one}: #{name}")

        CASES["#{one}: #{name}"] = [one, block]
      end
    end

    # What came of the block, with exceptions as values.
    def try
      yield
    rescue Exception => e # rubocop:disable Lint/RescueException
      e
    end

    # What came of a call with a buffer, and of the buffer.
    def into(text)
      buffer = +text
      result = try { yield buffer }
      [result, buffer, result.equal?(buffer)]
    end

    # Full to the last byte.
    def full(io)
      [65_536, 4096, 512, 1].each do |size|
        nil until io.write_nonblock("x" * size, exception: false) == :wait_writable
      end
      io
    end

    # The socket of what accept_nonblock gives, or nothing.
    def accepted(result) = (result.is_a?(Array) ? result : [result]).grep(IO)

    # Waits until there is something to read.
    def ready(io) = io.wait_readable(5) || raise("not readable: #{io.inspect}")

    # For a comparison between two processes: nothing in it depends on when or where it was made.
    def plain(value)
      case value
      when String then [:string, value.class.name, value.b, value.encoding.name, value.frozen?]
      when Array then value.map { |v| plain(v) }
      when Exception
        [:raised, value.class.name, numbers(value.message[/\A.*/]), value.frozen?, value.message.frozen?,
         value.respond_to?(:errno) && value.errno, value.cause.class.name, value.class.ancestors.map(&:to_s)]
      when Addrinfo then [:addrinfo, numbers(value.inspect), value.afamily, value.socktype, value.protocol]
      when IO then [:io, value.class.name, value.sync, value.external_encoding.to_s, value.close_on_exec?]
      when Socket::AncillaryData then [:control, value.level, value.type, value.unix_rights&.map { |io| plain(io) }]
      when 32_768..65_535 then :port
      when nil, true, false, Integer, Symbol then value
      else raise "cannot compare #{value.inspect}"
      end
    end

    def numbers(string) = string.b.gsub(/(?<=[:.]|, )\d{4,5}\b/, "PORT").gsub(%r{/tmp/[^/]+/}, "/tmp/").gsub(/fd \d+/, "fd N").gsub(%r{/dev/pts/\d+}, "/dev/pts/N")

    def run(name, variant)
      need, block = CASES.fetch(name)
      given = NEEDS.fetch(need).call
      result = Timeout.timeout(10) { try { block.call(*given, **variant) } }
      plain(result)
    rescue Timeout::Error
      raise "#{name} #{variant} did not end"
    ensure
      given&.each { |io| try { io.close } if io.respond_to?(:close) }
    end

    def print_results(names)
      results = names.product(VARIANTS).to_h { |name, variant| [[name, variant], run(name, variant)] }
      $stdout.binmode.write(Marshal.dump(results))
    end
  end

  # --- read_nonblock

  streams = %i[pipe unix tcp socket terminal]
  readable = [*streams, :seqpacket, :datagram, :udp, :udp_socket]

  on(readable, "nothing") { |r, _, **x| r.read_nonblock(5, **x) }
  on(readable, "data") { |r, w, **x| w.syswrite("ab\n") && ready(r) && r.read_nonblock(5, **x) }
  on(readable, "some of the data") { |r, w, **x| w.syswrite("abcdef\n") && ready(r) && r.read_nonblock(3, **x) }
  on(readable, "a long read") { |r, w, **x| w.syswrite("ab\n") && ready(r) && r.read_nonblock(100_000, **x) }
  on(readable, "nothing, a long read") { |r, _, **x| r.read_nonblock(100_000, **x) }
  on(readable, "nothing, with a buffer") { |r, _, **x| into("old") { |b| r.read_nonblock(5, b, **x) } }
  on(readable, "nothing, with a long buffer") { |r, _, **x| into("0123456789") { |b| r.read_nonblock(5, b, **x) } }
  on(readable, "data, with a buffer") { |r, w, **x| w.syswrite("é\n") && ready(r) && into("old") { |b| r.read_nonblock(5, b, **x) } }
  on(readable, "data, with a long buffer") { |r, w, **x| w.syswrite("ab\n") && ready(r) && into("0123456789") { |b| r.read_nonblock(5, b, **x) } }
  on(readable, "data, with a shared buffer") do |r, w, **x|
    whole = "0123456789" * 10
    buffer = whole.dup
    w.syswrite("ab\n") && ready(r) && [try { r.read_nonblock(5, buffer, **x) }, buffer, whole]
  end
  on(readable, "what becomes a buffer") { |r, w, **x| w.syswrite("ab\n") && ready(r) && into("old") { |b| r.read_nonblock(5, ToStr.new(b), **x) } }
  on(readable, "a frozen buffer") { |r, w, **x| w.syswrite("ab\n") && ready(r) && r.read_nonblock(5, "old", **x) }
  on(readable, "a frozen buffer, nothing") { |r, _, **x| r.read_nonblock(5, "old", **x) }
  on(readable, "no buffer at all") { |r, _, **x| r.read_nonblock(5, 5, **x) }
  on(readable, "length 0") { |r, _, **x| r.read_nonblock(0, **x) }
  on(readable, "length 0 with a buffer") { |r, _, **x| into("old") { |b| r.read_nonblock(0, b, **x) } }
  on(readable, "length -1") { |r, _, **x| r.read_nonblock(-1, **x) }
  on(readable, "length nil") { |r, _, **x| r.read_nonblock(nil, **x) }
  on(readable, "length '5'") { |r, _, **x| r.read_nonblock("5", **x) }
  on(readable, "length 2.9") { |r, w, **x| w.syswrite("abc\n") && ready(r) && r.read_nonblock(2.9, **x) }
  on(readable, "length 2**70") { |r, _, **x| r.read_nonblock(2**70, **x) }
  on(readable, "no length") { |r, _, **x| r.read_nonblock(**x) }
  on(readable, "three arguments") { |r, _, **x| r.read_nonblock(1, +"", 3, **x) }
  on(readable, "a Hash for keywords") { |r, _, **x| r.read_nonblock(1, x) }
  on(readable, "closed") { |r, _, **x| r.close || r.read_nonblock(5, **x) }
  on(streams - [:terminal] + [:seqpacket], "end of file") { |r, w, **x| w.close || r.read_nonblock(5, **x) }
  on(streams - [:terminal], "end of file after data") { |r, w, **x| w.syswrite("ab\n") && (w.close || [r.read_nonblock(5, **x), try { r.read_nonblock(5, **x) }]) }
  on(streams - [:terminal] + [:seqpacket], "end of file, with a buffer") { |r, w, **x| w.close || into("old") { |b| r.read_nonblock(5, b, **x) } }
  on(streams, "read ahead") { |r, w, **x| w.syswrite("ab\ncd\n") && [r.gets, try { r.read_nonblock(2, **x) }, try { r.read_nonblock(9, **x) }, try { r.read_nonblock(9, **x) }] }
  on(streams, "read ahead, with a buffer") { |r, w, **x| w.syswrite("ab\ncd\n") && [r.gets, into("old") { |b| r.read_nonblock(9, b, **x) }] }
  on(streams, "a byte pushed back") { |r, _, **x| r.ungetbyte("é") || [try { r.read_nonblock(9, **x) }, try { r.read_nonblock(9, **x) }] }
  on(streams, "a character pushed back") { |r, _, **x| r.ungetc("é") || [try { r.read_nonblock(9, **x) }] }
  on(streams, "a character converted") do |r, w, **x|
    r.set_encoding("ISO-8859-1:UTF-8")
    w.syswrite("\xE9\xE8\n".b) && [r.getc, try { r.read_nonblock(9, **x) }]
  end
  on(streams, "encodings") { |r, w, **x| r.set_encoding("UTF-8") && w.syswrite("é\n") && ready(r) && r.read_nonblock(9, **x) }
  on(streams, "encodings, with a buffer") { |r, w, **x| r.set_encoding("UTF-8") && w.syswrite("é\n") && ready(r) && into("".encode("UTF-16LE")) { |b| r.read_nonblock(9, b, **x) } }
  on(:pipe, "read from the wrong end") { |_, w, **x| w.read_nonblock(5, **x) }
  on(%i[unix tcp], "read after close_read") { |r, _, **x| r.close_read || r.read_nonblock(5, **x) }
  on(:tcp, "reset") do |r, w, **x|
    w.setsockopt(Socket::Option.linger(true, 0))
    w.close || (ready(r) && [try { r.read_nonblock(5, **x) }, try { r.read_nonblock(5, **x) }])
  end
  on(:terminal, "hung up") { |r, w, **x| w.close || r.read_nonblock(5, **x) }
  on(%i[datagram udp udp_socket], "an empty datagram") { |r, w, **x| w.send("", 0) && ready(r) && r.read_nonblock(5, **x) }
  on(%i[datagram udp udp_socket], "a datagram cut short") { |r, w, **x| w.send("abcdef", 0) && ready(r) && [r.read_nonblock(2, **x), try { r.read_nonblock(9, **x) }] }
  on(:file, "read") { |f, **x| [f.read_nonblock(4, **x), f.read_nonblock(100, **x), try { f.read_nonblock(1, **x) }] }
  on(:file, "read at the end with a buffer") { |f, **x| f.seek(0, :END) && into("old") { |b| f.read_nonblock(4, b, **x) } }
  on(:file, "read after a write") { |f, **x| f.write("ab") && [try { f.read_nonblock(4, **x) }, f.pos] }
  on(:nothing, "a directory is read") { |**x| File.open("/") { |f| f.read_nonblock(5, **x) } }
  on(:nothing, "read before anything is open") { |**x| IO.allocate.read_nonblock(5, **x) }
  on(:nothing, "a socket read before it is open") { |**x| UNIXSocket.allocate.read_nonblock(5, **x) }
  on(:nothing, "a command is read and written") do |**x|
    IO.popen("cat", "r+") { |io| [try { io.read_nonblock(5, **x) }, io.write_nonblock("ab", **x), ready(io) && io.read_nonblock(5, **x)] }
  end
  on(:unix, "inside a rescue") do |r, _, **x|
    raise "first"
  rescue RuntimeError
    try { r.read_nonblock(5, **x) }
  end
  on(:unix, "inside an ensure") do |r, _, **x|
    seen = nil
    try do
      raise "first"
    ensure
      seen = try { r.read_nonblock(5, **x) }
    end
    seen
  end
  on(:unix, "from another method, by super and by bind") do |r, _, **x|
    r.define_singleton_method(:read_nonblock) { |*args, **opts| super(*args, **opts) }
    [try { r.read_nonblock(5, **x) }, try { IO.instance_method(:read_nonblock).bind_call(r, 5, **x) },
     try { r.method(:read_nonblock).unbind.bind_call(r, 5, **x) }, try { r.public_send(:read_nonblock, 5, **x) }]
  end

  # --- write_nonblock

  writable = readable
  on(writable, "written") { |r, w, **x| [w.write_nonblock("ab\n", **x), ready(r) && r.readpartial(9)] }
  on(streams - [:terminal] + [:seqpacket], "full") { |_, w, **x| full(w).write_nonblock("ab\n", **x) }
  on(writable, "written what becomes a String") { |r, w, **x| [w.write_nonblock(:sym, **x), w.write_nonblock(12, **x)] }
  on(writable, "written nil") { |_, w, **x| w.write_nonblock(nil, **x) }
  on(%i[pipe unix tcp socket], "written nothing") { |_, w, **x| w.write_nonblock("", **x) }
  on(writable, "written in UTF-16") { |r, w, **x| [w.write_nonblock("é".encode("UTF-16LE"), **x), ready(r) && r] }
  on(writable, "write with no argument") { |_, w, **x| w.write_nonblock(**x) }
  on(writable, "write with two arguments") { |_, w, **x| w.write_nonblock("a", "b", **x) }
  on(writable, "write when closed") { |_, w, **x| w.close || w.write_nonblock("a", **x) }
  on(writable - %i[udp udp_socket terminal], "write with nobody there") { |r, w, **x| r.close || w.write_nonblock("a", **x) }
  on(:pipe, "write to the wrong end") { |r, _, **x| r.write_nonblock("a", **x) }
  on(%i[unix tcp], "write after close_write") { |_, w, **x| w.close_write || w.write_nonblock("a", **x) }
  on(%i[pipe unix tcp], "write after buffered ones") { |r, w, **x| w.sync = false; w.write("ab"); [w.write_nonblock("cd", **x), ready(r) && r.readpartial(9)] }
  on(:file, "write") { |f, **x| [f.write_nonblock("ab", **x), f.pos, f.read] }
  on(:file, "write after a read") { |f, **x| [f.getc, f.write_nonblock("XY", **x), f.pos, f.rewind, f.read] }
  on(:nothing, "write before anything is open") { |**x| IO.allocate.write_nonblock("a", **x) }
  on(:nothing, "write where there is no room") { |**x| File.open("/dev/full", "w") { |f| f.write_nonblock("a", **x) } }
  on(:nothing, "write to /dev/null") { |**x| File.open("/dev/null", "w") { |f| f.write_nonblock("abc", **x) } }

  # --- recv_nonblock, recvfrom_nonblock

  sockets = %i[unix tcp socket seqpacket datagram udp udp_socket]
  stream_sockets = %i[unix tcp socket seqpacket]
  {
    recv_nonblock: sockets,
    recvfrom_nonblock: %i[socket udp udp_socket],
  }.each do |verb, kinds|
    on(kinds, "#{verb}: nothing") { |r, _, **x| r.public_send(verb, 5, **x) }
    on(kinds, "#{verb}: data") { |r, w, **x| w.send("abc", 0) && ready(r) && r.public_send(verb, 5, **x) }
    on(kinds, "#{verb}: some") { |r, w, **x| w.send("abc", 0) && ready(r) && [r.public_send(verb, 2, **x), try { r.public_send(verb, 5, **x) }] }
    on(kinds, "#{verb}: peek") { |r, w, **x| w.send("abc", 0) && ready(r) && [r.public_send(verb, 5, Socket::MSG_PEEK, **x), r.public_send(verb, 5, 0, **x)] }
    on(kinds, "#{verb}: with a buffer") { |r, w, **x| w.send("é", 0) && ready(r) && into("old text") { |b| r.public_send(verb, 5, 0, b, **x) } }
    on(kinds, "#{verb}: nothing, with a buffer") { |r, _, **x| into("old text") { |b| r.public_send(verb, 5, 0, b, **x) } }
    on(kinds, "#{verb}: what becomes a buffer") { |r, w, **x| w.send("a", 0) && ready(r) && into("old text") { |b| r.public_send(verb, 5, 0, ToStr.new(b), **x) } }
    on(kinds, "#{verb}: a frozen buffer") { |r, w, **x| w.send("a", 0) && ready(r) && r.public_send(verb, 5, 0, "old", **x) }
    on(kinds, "#{verb}: no buffer at all") { |r, _, **x| r.public_send(verb, 5, 0, 5, **x) }
    on(kinds, "#{verb}: flags nil") { |r, _, **x| r.public_send(verb, 5, nil, **x) }
    on(kinds, "#{verb}: flags '0'") { |r, _, **x| r.public_send(verb, 5, "0", **x) }
    on(kinds, "#{verb}: length nil") { |r, _, **x| r.public_send(verb, nil, **x) }
    on(kinds, "#{verb}: length -1") { |r, _, **x| r.public_send(verb, -1, **x) }
    on(kinds, "#{verb}: length 2**70") { |r, _, **x| r.public_send(verb, 2**70, **x) }
    on(kinds, "#{verb}: no length") { |r, _, **x| r.public_send(verb, **x) }
    on(kinds, "#{verb}: four arguments") { |r, _, **x| r.public_send(verb, 1, 0, +"", 4, **x) }
    on(kinds, "#{verb}: closed") { |r, _, **x| r.close || r.public_send(verb, 5, **x) }
    on(kinds & stream_sockets, "#{verb}: end of file") { |r, w, **x| w.close || [r.public_send(verb, 5, **x), r.public_send(verb, 5, **x)] }
    on(kinds & stream_sockets - [:seqpacket], "#{verb}: end of file, with a buffer") { |r, w, **x| w.close || into("old") { |b| r.public_send(verb, 5, 0, b, **x) } }
    on(kinds & %i[unix tcp socket], "#{verb}: read ahead") { |r, w, **x| w.send("ab\ncd", 0) && [r.gets, try { r.public_send(verb, 5, **x) }] }
    on(kinds - stream_sockets, "#{verb}: an empty datagram") { |r, w, **x| w.send("", 0) && ready(r) && r.public_send(verb, 5, **x) }
    on(kinds & %i[tcp], "#{verb}: reset") do |r, w, **x|
      w.setsockopt(Socket::Option.linger(true, 0))
      w.close || (ready(r) && r.public_send(verb, 5, **x))
    end
    on(kinds, "#{verb}: length 0") { |r, w, **x| w.send("ab", 0) && ready(r) && r.public_send(verb, 0, **x) }
  end

  # --- recvmsg_nonblock, sendmsg_nonblock

  on(sockets, "recvmsg: nothing") { |r, _, **x| r.recvmsg_nonblock(**x) }
  on(sockets, "recvmsg: data") { |r, w, **x| w.send("abc", 0) && ready(r) && r.recvmsg_nonblock(**x) }
  on(sockets, "recvmsg: some") { |r, w, **x| w.send("abc", 0) && ready(r) && [r.recvmsg_nonblock(2, **x), try { r.recvmsg_nonblock(9, **x) }] }
  on(sockets, "recvmsg: peek") { |r, w, **x| w.send("abc", 0) && ready(r) && [r.recvmsg_nonblock(2, Socket::MSG_PEEK, **x), r.recvmsg_nonblock(9, 0, 100, **x)] }
  on(sockets, "recvmsg: long") { |r, w, **x| w.send("x" * 9000, 0) && ready(r) && r.recvmsg_nonblock(**x) }
  on(sockets, "recvmsg: flags nil") { |r, _, **x| r.recvmsg_nonblock(1, nil, **x) }
  on(sockets, "recvmsg: length 'a'") { |r, _, **x| r.recvmsg_nonblock("a", **x) }
  on(sockets, "recvmsg: length -1") { |r, _, **x| r.recvmsg_nonblock(-1, **x) }
  on(sockets, "recvmsg: four arguments") { |r, _, **x| r.recvmsg_nonblock(1, 0, 1, 1, **x) }
  on(sockets, "recvmsg: closed") { |r, _, **x| r.close || r.recvmsg_nonblock(**x) }
  on(stream_sockets, "recvmsg: end of file") { |r, w, **x| w.close || r.recvmsg_nonblock(**x) }
  on(%i[unix tcp], "recvmsg: read ahead") { |r, w, **x| w.send("ab\ncd", 0) && [r.gets, try { r.recvmsg_nonblock(**x) }] }
  on(%i[unix seqpacket datagram], "recvmsg: descriptors") do |r, w, **x|
    w.sendmsg("a", 0, nil, Socket::AncillaryData.unix_rights($stdin, r))
    r.recvmsg_nonblock(scm_rights: true, **x)
  end
  on(%i[unix seqpacket datagram], "recvmsg: descriptors that are not wanted") do |r, w, **x|
    w.sendmsg("a", 0, nil, Socket::AncillaryData.unix_rights($stdin))
    r.recvmsg_nonblock(**x)
  end
  on(sockets, "sendmsg: sent") { |r, w, **x| [w.sendmsg_nonblock("abc", **x), ready(r) && r.recv(9)] }
  on(sockets, "sendmsg: flags") { |r, w, **x| [w.sendmsg_nonblock("abc", Socket::MSG_DONTROUTE, nil, **x), ready(r) && r.recv(9)] }
  on(stream_sockets, "sendmsg: full") { |_, w, **x| full(w).sendmsg_nonblock("abc", **x) }
  on(sockets, "sendmsg: flags nil") { |_, w, **x| w.sendmsg_nonblock("abc", nil, **x) }
  on(sockets, "sendmsg: no message") { |_, w, **x| w.sendmsg_nonblock(**x) }
  on(sockets, "sendmsg: message nil") { |_, w, **x| w.sendmsg_nonblock(nil, **x) }
  on(sockets, "sendmsg: message []") { |_, w, **x| w.sendmsg_nonblock(["a"], **x) }
  on(sockets, "sendmsg: destination 5") { |_, w, **x| w.sendmsg_nonblock("a", 0, 5, **x) }
  on(sockets, "sendmsg: control 5") { |_, w, **x| w.sendmsg_nonblock("a", 0, nil, 5, **x) }
  on(sockets, "sendmsg: closed") { |_, w, **x| w.close || w.sendmsg_nonblock("a", **x) }
  on(stream_sockets + [:datagram], "sendmsg: nobody there") { |r, w, **x| r.close || w.sendmsg_nonblock("a", **x) }
  on(%i[udp udp_socket], "sendmsg: to an address") { |r, w, **x| [w.sendmsg_nonblock("ab", 0, r.local_address, **x), w.sendmsg_nonblock("cd", 0, r.getsockname, **x), ready(r) && r.recv(9)] }
  on(:nothing, "sendmsg: no destination") { |**x| UDPSocket.open { |s| s.sendmsg_nonblock("a", **x) } }
  on(%i[unix seqpacket datagram], "sendmsg: descriptors") do |r, w, **x|
    w.sendmsg_nonblock("a", 0, nil, Socket::AncillaryData.unix_rights($stdin), **x)
    r.recvmsg(scm_rights: true)
  end

  # --- accept_nonblock

  servers = %i[tcp_server unix_server socket_server]
  on(servers, "accept: nobody") { |s, _, **x| s.accept_nonblock(**x) }
  on(servers, "accept: somebody") { |s, a, **x| a.connect { ready(s) && [s.accept_nonblock(**x), try { s.accept_nonblock(**x) }] } }
  on(servers, "accept: somebody's modes") do |s, a, **x|
    a.connect { ready(s) && accepted(s.accept_nonblock(**x)).map { |io| [io.nonblock?, io.close_on_exec?, io.do_not_reverse_lookup] } }
  end
  on(servers, "accept: somebody's bytes") do |s, a, **x|
    a.connect { |c| ready(s) && accepted(s.accept_nonblock(**x)).map { |io| [c.write("é"), ready(io) && io.readpartial(9), io.write("é"), c.readpartial(9)] } }
  end
  on(servers, "accept: an argument") { |s, _, **x| s.accept_nonblock(5, **x) }
  on(servers, "accept: closed") { |s, _, **x| s.close || s.accept_nonblock(**x) }
  on(:nothing, "accept: not listening") { |**x| Socket.open(:INET, :STREAM) { |s| s.accept_nonblock(**x) } }
  on(:udp_socket, "accept: no such thing") { |s, _, **x| s.accept_nonblock(**x) }

  # --- connect_nonblock

  on(%i[tcp_server socket_server], "connect") do |_, a, **x|
    Socket.open(a.afamily, :STREAM) { |s| [try { s.connect_nonblock(a, **x) }, s.wait_writable(5) && try { s.connect_nonblock(a, **x) }, try { s.connect_nonblock(a, **x) }] }
  end
  on(servers, "connect, the address a String") { |_, a, **x| Socket.open(a.afamily, :STREAM) { |s| s.connect_nonblock(a.to_sockaddr, **x) } }
  on(:unix_server, "connect") { |_, a, **x| Socket.open(a.afamily, :STREAM) { |s| [s.connect_nonblock(a, **x), try { s.connect_nonblock(a, **x) }] } }
  on(:unix_server, "connect: refused") { |s, a, **x| s.close || Socket.open(:UNIX, :STREAM) { |c| c.connect_nonblock(a, **x) } }
  on(:tcp_server, "connect: refused") do |s, a, **x|
    s.close || Socket.open(:INET, :STREAM) { |c| [try { c.connect_nonblock(a, **x) }, c.wait_writable(5) && try { c.connect_nonblock(a, **x) }] }
  end
  on(:nothing, "connect: no such path") { |**x| Socket.open(:UNIX, :STREAM) { |c| c.connect_nonblock(Addrinfo.unix("/nowhere"), **x) } }
  on(:nothing, "connect: no address") { |**x| Socket.open(:UNIX, :STREAM) { |c| c.connect_nonblock(5, **x) } }
  on(:nothing, "connect: no argument") { |**x| Socket.open(:UNIX, :STREAM) { |c| c.connect_nonblock(**x) } }
  on(:nothing, "connect: of another family") { |**x| Socket.open(:UNIX, :STREAM) { |c| c.connect_nonblock(Addrinfo.tcp("127.0.0.1", 80), **x) } }
  on(:tcp_server, "connect: closed") { |_, a, **x| Socket.open(:INET, :STREAM).tap(&:close).connect_nonblock(a, **x) }
  on(:nothing, "connect: a datagram socket") { |**x| Socket.open(:INET, :DGRAM) { |s| [s.connect_nonblock(Addrinfo.udp("127.0.0.1", 9), **x), s.connect_nonblock(Addrinfo.udp("127.0.0.1", 10), **x)] } }

  # --- What the methods are.

  METHODS = {
    IO => %i[read_nonblock write_nonblock],
    BasicSocket => %i[read_nonblock write_nonblock recv_nonblock recvmsg_nonblock sendmsg_nonblock],
    Socket => %i[recvfrom_nonblock accept_nonblock connect_nonblock],
    UDPSocket => %i[recvfrom_nonblock], TCPServer => %i[accept_nonblock], UNIXServer => %i[accept_nonblock]
  }.freeze
  METHODS.each do |klass, names|
    names.each do |name|
      on(:nothing, "#{klass}##{name}") do
        method = klass.instance_method(name)
        [method.owner.to_s, method.arity, method.parameters.map { |_, parameter| parameter }, method.parameters.map(&:first),
         klass.public_method_defined?(name, false), method.original_name]
      end
    end
  end
end

NonblockCases.print_results(NonblockCases::CASES.keys) if $PROGRAM_NAME == __FILE__
