# frozen_string_literal: true

# For tests that hold a call of ours beside Ruby's own, on every kind of socket.
module LikeRuby
  # What a block gives: its value, or what it raises.
  def outcome
    yield
  rescue StandardError, NoMemoryError => error
    [error.class, error.message[/.*/]] # without the excerpt of source that some errors come with
  end

  # Both blocks give the same, or raise the same.
  def assert_like_ruby(theirs, ours, note = nil)
    expected = outcome(&theirs)
    actual = outcome(&ours)
    expected.nil? ? assert_nil(actual, note) : assert_equal(expected, actual, note)
    actual
  end

  # As assert_like_ruby, of two calls that must both fail.
  def assert_fails_like_ruby(theirs, ours, note = nil)
    result = assert_like_ruby(theirs, ours, note)
    assert_kind_of Class, Array(result).first, "#{note}: #{result.inspect} is no error"
    result
  end

  def udp_pair
    a = UDPSocket.new
    b = UDPSocket.new
    [a, b].each { |socket| socket.bind("127.0.0.1", 0) }
    a.connect(*b.addr.values_at(3, 1))
    b.connect(*a.addr.values_at(3, 1))
    [a, b]
  end

  # Yields a new pair of each kind.
  def each_pair(*kinds)
    pairs = {
      stream: -> { UNIXSocket.pair },
      dgram: -> { UNIXSocket.pair(:DGRAM) },
      seqpacket: -> { UNIXSocket.pair(:SEQPACKET) },
      tcp: -> { tcp_pair },
      udp: -> { udp_pair },
      socket: -> { Socket.pair(:UNIX, :STREAM) },
      socket_dgram: -> { Socket.pair(:UNIX, :DGRAM) },
    }
    (kinds.empty? ? pairs.keys : kinds).each do |kind|
      a, b = pairs.fetch(kind).call
      yield a, b, kind
    ensure
      close_all(a, b)
    end
  end

  # What two attempts by the block to send give when the peer of a datagram socket is closed.
  def sending_to_a_closed_peer
    a, b = UNIXSocket.pair(:DGRAM)
    b.close
    Array.new(2) { outcome { yield a } }
  ensure
    close_all(a)
  end

  # Yields a UNIXSocket with a pipe behind its number.
  def with_a_pipe_behind_a_socket
    a, b = UNIXSocket.pair
    r, w = IO.pipe
    IO.for_fd(b.fileno, "r", autoclose: false).reopen(r)
    yield b
  ensure
    close_all(a, b, r, w)
  end

  # Destinations that a UNIX socket cannot send to; folder is an empty one.
  def no_destinations(folder)
    [Socket.sockaddr_un("#{folder}/none"), Socket.sockaddr_in(1, "127.0.0.1"), Addrinfo.tcp("127.0.0.1", 1),
     "", "x", "\0" * 3, "x" * 5000, 1, :symbol, [], Object.new, Addrinfo.allocate]
  end

  # Runs a script three times under GC.stress, and compacted: with a datagram pair a, b, and a message that grows.
  def assert_survives_gc_stress(script, before = "")
    assert_child "ok\n", <<~RUBY
      require "socket"
      GC.auto_compact = true if GC.respond_to?(:auto_compact=)
      a, b = UNIXSocket.pair(:DGRAM)
      #{before}
      GC.stress = true
      3.times do |i|
        message = "hello" * (10 + 2000 * i)
        #{script}
      end
      GC.stress = false
      puts "ok"
    RUBY
  end

  # Objects that the block allocates; it has run once before.
  def allocations
    yield
    GC.disable
    before = GC.stat(:total_allocated_objects)
    yield
    between = GC.stat(:total_allocated_objects)
    nothing = GC.stat(:total_allocated_objects) - between
    between - before - nothing
  ensure
    GC.enable
  end

  # Receives once it has arrived.
  def arrived(socket)
    assert socket.wait_readable(5), "nothing arrived"
    yield
  end

  # What an Addrinfo says; anything else as it is.
  def describe(sender)
    return sender unless sender.is_a?(Addrinfo)

    %i[inspect to_sockaddr afamily pfamily socktype protocol canonname].map { |name| sender.public_send(name) }
  end

  # Throws away what has arrived.
  def drain(socket)
    nil while outcome { socket.recv_nonblock(10_000, exception: false) }.is_a?(String)
  end

  # A received message, with everything that can be compared. Numbers of descriptors are whatever was free.
  def picture(message)
    return message unless message.is_a?(Array) && message[1].is_a?(Addrinfo)

    data, sender, flags, *controls = message
    [data, data.encoding, describe(sender), flags, *controls.map { |control| control_picture(control) }]
  end

  def control_picture(control)
    rights = control.cmsg_is?(:SOCKET, :RIGHTS)
    [control.class, control.family, control.level, control.type, rights ? control.data.bytesize : control.data,
     control.data.encoding, rights && control.unix_rights&.map { |io| [io.class, io.close_on_exec?, io.autoclose?] },
     rights && control.unix_rights.frozen?]
  end

  # Sends with the block, twice, and compares what the two receive.
  def assert_receives_like_ruby(socket, *arguments, note: nil, **options)
    yield
    theirs = arrived(socket) { outcome { socket.recvmsg_nonblock(*arguments, **options) } }
    drain(socket)
    yield
    ours = arrived(socket) { outcome { Eagain.tryrecvmsg(socket, *arguments, **options) } }
    drain(socket)
    assert_equal picture(theirs), picture(ours), note
    controls = [theirs, ours].flatten.grep(Socket::AncillaryData)
    close_all(controls.filter_map { |control| control.cmsg_is?(:SOCKET, :RIGHTS) && control.unix_rights })
    ours
  end

  def open_descriptors
    GC.start
    Dir.children("/proc/self/fd").size
  end

  def rights(*ios) = Socket::AncillaryData.unix_rights(*ios)
end
