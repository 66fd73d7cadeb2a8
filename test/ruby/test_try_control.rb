# frozen_string_literal: true

require_relative "helper"
require_relative "like_ruby"

# Ancillary data, and the descriptors that are passed with it: neither lost nor left.
class TryControlTest < EagainTest
  include LikeRuby

  def test_controls_in_every_form
    number = [$stdin.fileno].pack("i")
    odd = Struct.new(:level, :type, :data)
    inside = Struct.new(:to_ary)
    each_pair(:stream, :dgram, :socket) do |a, b, kind|
      [rights($stdin), Socket::AncillaryData.int(:UNIX, :SOCKET, :RIGHTS, 0), [:SOCKET, :RIGHTS, number],
       ["SOL_SOCKET", "SCM_RIGHTS", number], [Socket::SOL_SOCKET, Socket::SCM_RIGHTS, number],
       odd.new(:SOCKET, "RIGHTS", number),
       odd.new(1, 1, number), inside.new([:SOCKET, :RIGHTS, number]), rights($stdin, a, b)].each do |control|
        [false, true].each do |scm_rights|
          before = open_descriptors
          options = { scm_rights: scm_rights, note: [kind, control] }
          assert_receives_like_ruby(b, **options) { a.sendmsg("x", 0, nil, control) }
          assert_receives_like_ruby(b, **options) { Eagain.trysendmsg(a, "x", 0, nil, control) }
          assert_equal before, open_descriptors, kind
        end
      end
    end
  end

  def test_bad_controls
    each_pair(:stream, :udp) do |a, _, kind|
      [nil, 1, "x", :a, Object.new, [], [1], [1, 2, 3], [:SOCKET, :RIGHTS, nil], [:NONE, :RIGHTS, ""],
       [:SOCKET, :NONE, ""], [:SOCKET, :RIGHTS, "xx"], [:SOCKET, :RIGHTS, [-1].pack("i")],
       [:SOCKET, :RIGHTS, [99_999].pack("i")], [nil, nil, ""], [2**40, 1, ""], [1, 2**40, ""], [1, 1, "x" * 100_000],
       [:IP, :TTL, ""], [1, :a, ""], [1.0, 1.0, 1]].each do |control|
        assert_like_ruby(-> { a.sendmsg("x", 0, nil, control) }, -> { Eagain.trysendmsg(a, "x", 0, nil, control) },
                         [kind, control].inspect)
        drain(a)
      end
      assert_like_ruby(-> { a.sendmsg("x", 0, nil, rights($stdin), nil) },
                       -> { Eagain.trysendmsg(a, "x", 0, nil, $stdin, nil) })
    end
  end

  def test_ios_are_passed_together
    Tempfile.create("passed") do |file|
      each_pair(:stream, :dgram, :seqpacket) do |a, b, kind|
        holder = Struct.new(:to_io).new(file)
        server = TCPServer.new("127.0.0.1", 0)
        before = open_descriptors
        assert_equal 1, Eagain.trysendmsg(a, "x", 0, nil, file, $stdin, holder, server)
        data, sender, _, control, *rest = Eagain.tryrecvmsg(b, scm_rights: true)
        assert_equal ["x", "", []], [data, sender.to_sockaddr, rest], kind
        assert_equal [IO, IO, IO, Socket], control.unix_rights.map(&:class)
        assert control.unix_rights.all?(&:close_on_exec?)
        assert control.unix_rights.all?(&:autoclose?)
        assert File.identical?(file, control.unix_rights[0])
        assert File.identical?(file, control.unix_rights[2])
        control.unix_rights[0].syswrite("written")
        file.rewind
        assert_match(/written/, file.read)
        assert_equal server.local_address.to_sockaddr, control.unix_rights[3].local_address.to_sockaddr
        assert_equal 4, control.unix_rights.map(&:fileno).uniq.size
        control.unix_rights.each(&:close)
        assert_equal before, open_descriptors
        server.close
        assert_fails_like_ruby(-> { rights(server) }, -> { Eagain.trysendmsg(a, "x", 0, nil, $stdin, server) })
      end
    end
  end

  def test_ios_with_other_controls
    each_pair(:dgram) do |a, b, _|
      b.setsockopt(:SOCKET, :PASSCRED, true)
      credentials = [:SOCKET, :CREDENTIALS, [Process.pid, Process.uid, Process.gid].pack("i3")]
      assert_receives_like_ruby(b, scm_rights: true) do
        Eagain.trysendmsg(a, %w[a b], 0, nil, $stdin, credentials, $stdout)
      end
      assert_receives_like_ruby(b, 1) { Eagain.trysendmsg(a, %w[a b], 0, nil, credentials, $stdout) }
    end
  end

  def test_as_many_ios_as_linux_allows
    each_pair(:stream) do |a, b, _|
      raise_nofile(600)
      before = open_descriptors
      assert_equal 1, Eagain.trysendmsg(a, "x", 0, nil, *([$stdin] * 253))
      *, control = Eagain.tryrecvmsg(b, scm_rights: true)
      assert_equal 253, control.unix_rights.size
      control.unix_rights.each(&:close)
      Eagain.trysendmsg(a, "x", 0, nil, *([$stdin] * 253))
      assert_equal 253 * 4, Eagain.tryrecvmsg(b)[3].data.bytesize
      assert_fails_like_ruby(-> { a.sendmsg("x", 0, nil, rights(*([$stdin] * 254))) },
                             -> { Eagain.trysendmsg(a, "x", 0, nil, *([$stdin] * 254)) })
      assert_equal before, open_descriptors
    end
  end

  def test_ip_controls
    receiver = UDPSocket.new
    receiver.bind("127.0.0.1", 0)
    %i[RECVTTL RECVTOS PKTINFO].each { |name| receiver.setsockopt(:IP, name, true) }
    sender = UDPSocket.new
    sender.connect("127.0.0.1", receiver.addr[1])
    assert_receives_like_ruby(receiver) { sender.send("x", 0) }
    message = assert_receives_like_ruby(receiver) do
      Eagain.trysendmsg(sender, "x", 0, nil, [:IP, :TTL, [77].pack("i")])
    end
    assert_equal 77, message.drop(3).find { |control| control.cmsg_is?(:IP, :TTL) }.int
    [Socket::AncillaryData.ip_pktinfo(Addrinfo.ip("127.0.0.1"), 0), [:IP, :TOS, [8].pack("i")],
     ["IPPROTO_IP", "IP_TTL", [9].pack("i")]].each do |control|
      assert_receives_like_ruby(receiver) { Eagain.trysendmsg(sender, "x", 0, nil, control) }
    end
    assert_receives_like_ruby(receiver, 10, 0, 20) { sender.send("x", 0) }
    receiver.setsockopt(:SOCKET, :TIMESTAMP, true)
    sender.send("x", 0)
    stamp = Eagain.tryrecvmsg(receiver).drop(3).find { |control| control.cmsg_is?(:SOCKET, :TIMESTAMP) }
    assert_in_delta Time.now.to_f, stamp.timestamp.to_f, 5
    close_all(sender, receiver)
  end

  def test_error_queue
    a = UDPSocket.new
    a.setsockopt(:IP, :RECVERR, true)
    taken = UDPSocket.new.tap { |socket| socket.bind("127.0.0.1", 0) }
    port = taken.addr[1]
    taken.close
    a.connect("127.0.0.1", port)
    Eagain.trysend(a, "refused")
    IO.select(nil, nil, nil, 0.01)
    data, sender, flags, control = Eagain.tryrecvmsg(a, nil, Socket::MSG_ERRQUEUE)
    assert_equal ["refused", port], [data, sender.ip_port]
    assert_equal Socket::MSG_ERRQUEUE, flags & Socket::MSG_ERRQUEUE
    assert control.cmsg_is?(:IP, :RECVERR)
    assert_equal Errno::ECONNREFUSED::Errno, control.data.unpack1("L")
    assert_equal :wait_readable, Eagain.tryrecvmsg(a, nil, Socket::MSG_ERRQUEUE)
    a.close
  end

  # --- Descriptors are neither lost nor left.

  def test_controls_that_do_not_fit
    each_pair(:stream) do |a, b, _|
      before = open_descriptors
      [0, 1, 8, 16, 17, 20, 24, 27, 28, 32, 100].each do |room|
        [false, true].each do |scm_rights|
          [10, nil].each do |maxlen|
            assert_receives_like_ruby(b, maxlen, 0, room, scm_rights: scm_rights, note: room) do
              Eagain.trysendmsg(a, "x", 0, nil, *[$stdin] * 4)
            end
          end
        end
      end
      assert_equal before, open_descriptors
    end
  end

  def test_at_the_limit_of_descriptors
    script = <<~RUBY
      require "socket"
      a, b = UNIXSocket.pair
      3.times { Eagain.trysendmsg(a, "x", 0, nil, *[$stdin] * 5) }
      free = (3..100).find { |n| !File.exist?("/proc/self/fd/\#{n}") }
      keep = []
      Process.setrlimit(:NOFILE, 40)
      keep << IO.pipe until IO.for_fd(0, autoclose: false) && Dir.children("/proc/self/fd").size >= 37
      begin
        loop { keep << File.open("/dev/null") }
      rescue Errno::EMFILE
      end
      3.times { keep.pop.close }
      show = proc do |message|
        rights = message[3] && message[3].unix_rights
        truncated = message[2] & Socket::MSG_CTRUNC != 0
        [message[0], truncated, rights && rights.size, message[3] && message[3].data.bytesize]
      end
      message = Eagain.tryrecvmsg(b, scm_rights: true)
      p show[message]
      message[3].unix_rights.each(&:close)
      message = Eagain.tryrecvmsg(b)
      p show[message]
      message = b.recvmsg_nonblock(scm_rights: true)
      p show[message]
    RUBY
    assert_child "[\"x\", true, 3, 12]\n[\"x\", true, nil, 12]\n[\"x\", true, 3, 12]\n", script
  end

  def test_nothing_leaks_when_something_raises
    script = <<~RUBY
      require "socket"
      a, b = UNIXSocket.pair
      count = proc { GC.start; Dir.children("/proc/self/fd").size }
      message = proc { Eagain.trysendmsg(a, "x", 0, nil, $stdin, a, $stdout) }
      message.call
      Eagain.tryrecvmsg(b, scm_rights: true)
      $fail = nil
      [Addrinfo, Socket::AncillaryData].each do |klass|
        klass.prepend(Module.new do
          define_method(:initialize) { |*args| $fail == klass ? raise("on purpose") : super(*args) }
        end)
      end
      before = count.call
      [Addrinfo, Socket::AncillaryData].each do |klass|
        [true, false].each do |scm_rights|
          message.call
          $fail = klass
          begin
            Eagain.tryrecvmsg(b, scm_rights: scm_rights)
            raise ScriptError
          rescue RuntimeError => e
            raise unless e.message == "on purpose"
          end
          $fail = nil
          raise "\#{klass} \#{scm_rights}: \#{count.call - before}" unless count.call == before
        end
      end
      puts "ok"
    RUBY
    assert_child "ok\n", script
  end
end
