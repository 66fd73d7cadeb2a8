# frozen_string_literal: true

require "monitor"
require "socket"
require "tempfile"
require "timeout"
require "tmpdir"

module Eagain
  class Doctor
    NO_HOOK = "this Ruby has no scheduler hook for it"
    THREAD = "call it in a thread: Thread.new { ... }.value"
    # As a release: the answer is known once the other fiber runs; raise in the call.
    ABORT = :abort
    private_constant :NO_HOOK, :THREAD

    # Makes a Call of a block that sets the stage and returns [call, release].
    def self.call(name, requires: nil, why_not: NO_HOOK, advice: THREAD, release: nil, &call)
      Call.new(name: name, requires: requires, why_not: why_not, advice: advice, call: call, release: release)
    end
    private_class_method :call

    # Makes a Call of a socket class or an IO: +open+ returns two ends; the first one is
    # used by the call, the second one by the release.
    def self.between(name, open, release, **options, &call)
      call(name, **options, release: proc { instance_exec(@other, &release) }) do
        @one, @other = keep(*instance_exec(&open))
        instance_exec(@one, &call)
      end
    end
    private_class_method :between

    pipe = proc { IO.pipe }
    reverse_pipe = proc { IO.pipe.reverse }
    write = proc { |io| io.write("x") }
    listening = proc do |server, client|
      @address = server.local_address
      [server, client]
    end
    listener = proc do
      instance_exec(TCPServer.new("127.0.0.1", 0), Socket.new(:INET, :STREAM), &listening)
    end
    raw_listener = proc do
      server = Socket.new(:INET, :STREAM)
      server.bind(Addrinfo.tcp("127.0.0.1", 0))
      server.listen(1)
      instance_exec(server, Socket.new(:INET, :STREAM), &listening)
    end
    unix_listener = proc do
      server = UNIXServer.new(Dir::Tmpname.create("eagain-doctor") {})
      instance_exec(server, Socket.new(:UNIX, :STREAM), &listening)
    end
    unix_connect = proc do |socket|
      socket.connect(@address)
      File.unlink(@address.unix_path)
    end
    connect = proc { |socket| socket.connect(@address) }

    # The calls, in the order of the report.
    CALLS = [
      call("Kernel#sleep") { sleep 0.005 },
      between("IO#read, #gets, #readpartial", pipe, write) { |io| io.readpartial(1) },
      between("IO#write, #puts, #<<", reverse_pipe, proc { |io| io.readpartial(65_536) }) do |io|
        nil while io.write_nonblock("x" * 4096, exception: false) != :wait_writable
        io.write("x")
      end,
      between("IO#wait_readable", pipe, write, requires: "io/wait", &:wait_readable),
      between("IO.select", pipe, write) { |io| IO.select([io]) },
      between("IO.copy_stream", pipe, write) { |io| IO.copy_stream(io, keep(*IO.pipe).last, 1) },
      between("IO#close wakes those who wait for it", pipe, proc { |_| @one.close unless @one.closed? },
              why_not: "this Ruby does not tell the scheduler (fiber_interrupt, Ruby 4.0)",
              advice: "cancel the task that reads, then close") do |io|
        io.readpartial(1)
      rescue IOError
        nil
      end,
      between("TCPServer#accept", listener, connect, &:accept),
      between("Socket#accept", raw_listener, connect, &:accept),
      between("UNIXServer#accept", unix_listener, unix_connect, &:accept),
      call("TCPSocket.new, Socket#connect", release: ABORT) do
        server = keep(Socket.new(:INET, :STREAM))
        server.bind(Addrinfo.tcp("127.0.0.1", 0))
        server.listen(0)
        # The kernel drops a connection when the backlog is full; the next one waits.
        8.times { keep(Socket.new(:INET, :STREAM)).connect_nonblock(server.local_address, exception: false) }
        drainer = Thread.new { sleep 0.1; 9.times { server.accept.first.close } }
        keep(Socket.new(:INET, :STREAM)).connect(server.local_address)
      ensure
        drainer&.kill
      end,
      between("UDPSocket#recvfrom", proc { Array.new(2) { UDPSocket.new.tap { |it| it.bind("127.0.0.1", 0) } } },
              proc { |socket| socket.send("x", 0, *@one.addr.values_at(3, 1)) }) { |socket| socket.recvfrom(1) },
      between("OpenSSL::SSL::SSLSocket#connect", proc { UNIXSocket.pair }, proc { |io| io.close },
              requires: "openssl") do |io|
        OpenSSL::SSL::SSLSocket.new(io).connect
      rescue OpenSSL::SSL::SSLError
        nil
      end,
      call("Addrinfo.getaddrinfo, TCPSocket.new(name)") { Addrinfo.getaddrinfo("localhost", 80, nil, :STREAM) },
      call("File.read, File#write") { File.read(__FILE__) },
      call("File.open of a FIFO",
           release: proc { keep(File.open(@path, File::RDWR | File::NONBLOCK)) }) do
        @path = File.join(Dir.tmpdir, "eagain-doctor-#{Process.pid}")
        File.mkfifo(@path)
        keep(File.open(@path))
      ensure
        File.unlink(@path)
      end,
      call("File#flock", release: proc { @holder.flock(File::LOCK_UN) }) do
        @file = keep(Tempfile.new("eagain-doctor"))
        @holder = keep(File.open(@file.path))
        @holder.flock(File::LOCK_EX)
        @file.flock(File::LOCK_EX)
      end,
      call("Process.wait") { Process.wait(Process.spawn("sleep 0.02")) },
      call("Kernel#system") { system("sleep 0.02") },
      call("Kernel#` (backticks)") { `sleep 0.02` },
      call("IO.popen") { IO.popen("sleep 0.02", &:read) },
      call("Thread#join, #value") { Thread.new { sleep 0.02 }.join },
      call("Thread::Queue#pop", release: proc { @queue << 1 }) { (@queue = Thread::Queue.new).pop },
      call("Thread::SizedQueue#push", release: proc { @queue.pop }) do
        @queue = Thread::SizedQueue.new(1)
        2.times { @queue << 1 }
      end,
      call("Thread::Mutex#lock", release: proc { @held << 1 }) do
        @held = Thread::Queue.new
        @mutex = Thread::Mutex.new
        Thread.new { @mutex.synchronize { @held.pop } }
        Thread.pass until @mutex.locked?
        @mutex.synchronize {}
      end,
      call("Thread::ConditionVariable#wait", release: proc { @condition.signal }) do
        @condition = Thread::ConditionVariable.new
        mutex = Thread::Mutex.new
        mutex.synchronize { @condition.wait(mutex) }
      end,
      call("Monitor#enter", release: proc { @held << 1 }) do
        @held = Thread::Queue.new
        @monitor = Monitor.new
        Thread.new { @monitor.synchronize { @held.pop } }
        Thread.pass until @monitor.mon_locked?
        @monitor.synchronize {}
      end,
      call("Timeout.timeout") do
        Timeout.timeout(0.005) { sleep 1 }
      rescue Timeout::Error
        nil
      end,
      between("any call inside Enumerator#next", pipe, write,
              why_not: "this Ruby runs the Enumerator in a blocking fiber",
              advice: "iterate with each, or read outside of the Enumerator") do |io|
        Enumerator.new { |yielder| yielder << io.readpartial(1) }.next
      end,
      call("Zlib::Deflate.deflate, and C extensions that allow it", requires: "zlib",
           why_not: "computes, and this Ruby has no blocking_operation_wait (Ruby 3.4)") do
        Zlib::Deflate.deflate("x" * 1_000_000)
      end
    ].freeze
  end
end
