# frozen_string_literal: true

require_relative "helper"
require_relative "opened"
require "io/nonblock"
require "pty"

# Eagain.trysendfile, trysplice and tryopen.
class TryFileTest < EagainTest
  include Opened

  def setup
    only_ours
    @folder = Dir.mktmpdir
  end

  def teardown
    FileUtils.remove_entry(@folder) if @folder
  end

  def pair(blocking: false) = keep(*UNIXSocket.pair).each { |socket| socket.nonblock = false if blocking }

  def blocking_tcp_pair = keep(*tcp_pair).each { |socket| socket.nonblock = false }

  def path(name = "file") = File.join(@folder, name)

  # A file of so many bytes, no two near ones alike.
  def file(size, mode = "r+b")
    @bytes = Random.new(size).bytes(size)
    File.binwrite(path, @bytes)
    keep(File.open(path, mode))
  end

  # Whatever must not wait runs here: a call that does is a failure, and not a test that hangs.
  def promptly(&block)
    thread = Thread.new { Thread.current.report_on_exception = false; block.call } # rubocop:disable Style/Semicolon
    watch(thread, 10)
  end

  # --- sendfile

  def test_sendfile_from_where_the_file_stands
    a, b = pair
    f = file(10_000)
    assert_equal 4_000, Eagain.trysendfile(a, f, 4_000)
    assert_equal 4_000, f.pos
    assert_equal 6_000, Eagain.trysendfile(a, f, 100_000)
    assert_nil Eagain.trysendfile(a, f, 1)
    assert_bytes @bytes, drain(b)
  end

  def test_sendfile_from_an_offset_leaves_the_position
    a, b = pair
    f = file(10_000)
    f.seek(7)
    assert_equal 100, Eagain.trysendfile(a, f, 100, 5_000)
    assert_equal 7, f.pos
    assert_nil Eagain.trysendfile(a, f, 100, 10_000)
    assert_nil Eagain.trysendfile(a, f, 100, 1 << 40)
    assert_bytes @bytes.byteslice(5_000, 100), drain(b)
  end

  def test_sendfile_of_nothing
    a, = pair
    f = file(10)
    assert_equal 0, Eagain.trysendfile(a, f, 0)
    assert_equal 0, Eagain.trysendfile(a, f, 0, 100)
  end

  def test_sendfile_gives_out_first_what_was_read_ahead
    a, b = pair
    f = file(0)
    f.write("one\ntwo\nthree\n")
    f.rewind
    assert_equal "one\n", f.gets
    assert_equal 2, Eagain.trysendfile(a, f, 2)
    assert_equal "o\n", f.gets
    sent = 0
    sent += Eagain.trysendfile(a, f, 100) while sent < 6
    assert_equal "twthree\n", drain(b)
    assert_nil Eagain.trysendfile(a, f, 100)
  end

  def test_sendfile_flushes_both
    a, b = pair
    f = file(0)
    f.write("of the file")
    a.sync = false
    a.write("before ")
    assert_equal 11, Eagain.trysendfile(a, f, 100, 0)
    assert_equal "before of the file", drain(b)
  end

  { "non-blocking" => false, "blocking" => true }.each do |name, blocking|
    define_method("test_sendfile_to_a_full_#{name}_socket") do
      a, b = pair(blocking: blocking)
      f = file(3_000_000)
      sent = 0
      promptly do
        while (count = Eagain.trysendfile(a, f, 3_000_000)).is_a?(Integer)
          sent += count
        end
        assert_equal :wait_writable, count
      end
      assert_equal sent, f.pos
      assert_equal blocking, !a.nonblock?
      assert_bytes @bytes.byteslice(0, sent), drain(b)
      promptly { assert_kind_of Integer, Eagain.trysendfile(a, f, 100) }
    end
  end

  def test_sendfile_to_a_blocking_tcp_socket
    a, b = blocking_tcp_pair
    f = file(8_000_000)
    offset = 0
    promptly do
      while (count = Eagain.trysendfile(a, f, 8_000_000, offset)).is_a?(Integer)
        offset += count
      end
      assert_equal :wait_writable, count
    end
    assert_equal 0, f.pos
    received = +"".b
    received << b.readpartial(1 << 20) while received.bytesize < offset
    assert_bytes @bytes.byteslice(0, offset), received
  end

  # The number and the kind of object stay, and what was learnt of them is wrong.
  def test_sendfile_after_reopen_onto_a_blocking_socket
    a, = pair
    c, = pair(blocking: true)
    f = file(4_000_000)
    assert_kind_of Integer, Eagain.trysendfile(a, f, 100_000, 0)
    a.reopen(c)
    promptly { nil while Eagain.trysendfile(a, f, 1_000_000, 0).is_a?(Integer) }
    assert_equal :wait_writable, promptly { Eagain.trysendfile(a, f, 1_000_000, 0) }
  end

  def test_sendfile_after_the_mode_was_changed
    [10, 1_000_000].each do |count|
      a, = pair
      f = file(4_000_000)
      assert_kind_of Integer, Eagain.trysendfile(a, f, count, 0)
      a.nonblock = false
      promptly { nil while Eagain.trysendfile(a, f, count, 0).is_a?(Integer) }
      assert_equal :wait_writable, promptly { Eagain.trysendfile(a, f, count, 0) }
    end
  end

  def test_sendfile_to_a_listener_is_no_would_block
    server = keep(TCPServer.new("127.0.0.1", 0))
    2.times { [1, 1_000_000].each { |n| assert_raises(Errno::EPIPE, Errno::ENOTCONN) { Eagain.trysendfile(server, file(10), n) } } }
  end

  # Another IO under the same number, and of another mode, is looked at anew.
  def test_the_mode_is_that_of_the_io_that_has_the_number
    f = file(100_000)
    3.times do
      [false, true].each do |blocking|
        a, b = UNIXSocket.pair
        a.nonblock = !blocking
        promptly { nil while Eagain.trysendfile(a, f, 100_000, 0).is_a?(Integer) }
        close_all(a, b)
      end
    end
  end

  def test_sendfile_errors
    a, b = pair
    r, w = pipe
    f = file(10)
    write_only = keep(File.open(path, "a"))
    assert_raises(TypeError) { Eagain.trysendfile(w, f, 1) }
    assert_raises(TypeError) { Eagain.trysendfile(nil, f, 1) }
    assert_raises(TypeError) { Eagain.trysendfile(a, 1, 1) }
    assert_raises(TypeError) { Eagain.trysendfile(a, f, nil) }
    assert_raises(TypeError) { Eagain.trysendfile(a, f, 1, "1") }
    assert_raises(RangeError) { Eagain.trysendfile(a, f, 2**70) }
    assert_equal "negative length -1 given", assert_raises(ArgumentError) { Eagain.trysendfile(a, f, -1) }.message
    assert_raises(Errno::EINVAL) { Eagain.trysendfile(a, f, 1, -1) }
    assert_raises(Errno::EINVAL) { Eagain.trysendfile(a, r, 1) }
    assert_equal "not opened for reading", assert_raises(IOError) { Eagain.trysendfile(a, write_only, 1) }.message
    b.close
    assert_raises(Errno::EPIPE) { Eagain.trysendfile(a, f, 1) }
    a.close_write
    f.close
    assert_equal "closed stream", assert_raises(IOError) { Eagain.trysendfile(a, f, 1) }.message
    a.close
    assert_equal "closed stream", assert_raises(IOError) { Eagain.trysendfile(a, f, 1) }.message
    assert_raises(ArgumentError) { Eagain.trysendfile(a, f) }
  end

  def test_sendfile_errors_are_the_same_of_a_blocking_socket
    a, b = pair(blocking: true)
    f = file(10)
    r, = pipe
    assert_raises(Errno::EINVAL) { Eagain.trysendfile(a, f, 1, -1) }
    assert_raises(Errno::EINVAL) { Eagain.trysendfile(a, r, 1) }
    assert_raises(Errno::EINVAL) { Eagain.trysendfile(a, r, 1, 0) }
    b.close
    assert_raises(Errno::EPIPE) { Eagain.trysendfile(a, f, 1) }
    unconnected = keep(Socket.new(:INET, :STREAM))
    assert_raises(Errno::EPIPE, Errno::ENOTCONN) { Eagain.trysendfile(unconnected, f, 1) }
  end

  # A conversion that closes what the call is about.
  def test_a_to_io_that_closes_the_other
    a, = pair
    f = file(10)
    closing = Object.new
    closing.define_singleton_method(:to_io) { a.close && nil || f }
    assert_equal "closed stream", assert_raises(IOError) { Eagain.trysendfile(a, closing, 1) }.message
    r, w = pipe
    closing.define_singleton_method(:to_io) { r.close && nil || w }
    assert_equal "closed stream", assert_raises(IOError) { Eagain.trysplice(r, closing, 1) }.message
  end

  def test_sendfile_costs_one_call_and_no_object_when_it_would_block
    a, = pair
    f = file(3_000_000)
    nil while Eagain.trysendfile(a, f, 3_000_000, 0).is_a?(Integer)
    assert_operator allocations(1000) { Eagain.trysendfile(a, f, 10, 0) }, :<, 10
    trace = strace(<<~RUBY)
      require "socket"
      a, _b = UNIXSocket.pair
      f = File.open(RbConfig.ruby)
      nil while Eagain.trysendfile(a, f, 3_000_000, 0).is_a?(Integer)
      mark
      100.times { |i| Eagain.trysendfile(a, f, i.even? ? 10 : 3_000_000, 0) }
      mark
    RUBY
    assert_equal({ "poll" => 100 }, trace.work)
  end

  def test_sendfile_calls
    trace = strace(<<~RUBY)
      require "socket"
      ends = UNIXSocket.pair
      f = File.open(RbConfig.ruby)
      Eagain.trysendfile(ends[0], f, 10, 0)
      mark
      10.times { Eagain.trysendfile(ends[0], f, 10, 0) }
      Eagain.trysendfile(ends[0], f, 100_000, 0)
      mark
    RUBY
    assert_equal({ "pread64" => 10, "sendto" => 10, "openat" => 1, "read" => 1, "close" => 1, "sendfile" => 1 }, trace.work)
  end

  # --- splice

  def test_splice_between_pipes
    r, w = pipe
    r2, w2 = pipe
    assert_equal :wait_readable, Eagain.trysplice(r, w2, 10)
    w << "abcdef"
    assert_equal 4, Eagain.trysplice(r, w2, 4)
    assert_equal 2, Eagain.trysplice(r, w2, 4)
    assert_equal "abcdef", drain(r2)
    w.close
    assert_nil Eagain.trysplice(r, w2, 4)
    assert_equal 0, Eagain.trysplice(r, w2, 0)
  end

  def test_splice_into_a_full_pipe
    r, w = pipe
    _, full = pipe
    w << "abc"
    nil while full.write_nonblock("x" * 4096, exception: false).is_a?(Integer)
    [r, w, full].each { |io| io.nonblock = false } # the flag is no help
    promptly { assert_equal :wait_writable, Eagain.trysplice(r, full, 3) }
    assert_equal "abc", drain(r)
    promptly { assert_equal :wait_readable, Eagain.trysplice(r, full, 3) }
  end

  def test_splice_from_a_file_and_to_a_file
    f = file(300_000)
    r, w = pipe
    out = keep(File.open(path("out"), "wb"))
    moved = 0
    until moved == 300_000
      count = Eagain.trysplice(f, w, 300_000)
      assert(count.is_a?(Integer) || count == :wait_writable, count.inspect)
      moved += Eagain.trysplice(r, out, 300_000)
    end
    assert_equal :wait_readable, Eagain.trysplice(r, out, 1)
    assert_nil Eagain.trysplice(f, w, 1)
    assert_bytes @bytes, File.binread(path("out"))
  end

  [["non-blocking", false], ["blocking", true]].each do |name, blocking|
    define_method("test_splice_from_and_to_a_#{name}_socket") do
      [-> { pair(blocking: blocking) }, -> { blocking ? blocking_tcp_pair : keep(*tcp_pair) }].each do |sockets|
        a, b = sockets.call
        r, w = pipe
        promptly { assert_equal :wait_readable, Eagain.trysplice(a, w, 10) }
        b.write("from afar")
        await("arrival") { promptly { Eagain.trysplice(a, w, 100) } == 9 }
        promptly { assert_equal 9, Eagain.trysplice(r, a, 100) }
        assert_equal "from afar", b.read(9)

        promptly do
          loop do
            w.write_nonblock("x" * 60_000, exception: false)
            break if Eagain.trysplice(r, a, 100_000) == :wait_writable
          end
          assert_equal :wait_writable, Eagain.trysplice(r, a, 100_000)
        end
        assert_equal blocking, !a.nonblock?
        b.close
        a.close
      end
    end
  end

  def test_splice_to_a_terminal_that_takes_no_more
    PTY.open do |_master, slave|
      r, w = pipe
      slave.nonblock = false
      promptly do
        loop do
          w.write_nonblock("x" * 1000, exception: false)
          break if Eagain.trysplice(r, slave, 1000) == :wait_writable
        end
      rescue Errno::EINVAL
        skip "this kernel does not splice to terminals"
      end
    end
  end

  def test_splice_gives_out_first_what_was_read_ahead
    r, w = pipe
    r2, w2 = pipe
    w << "one\ntwo\n"
    assert_equal "one\n", r.gets
    w << "three\n"
    assert_equal 4, Eagain.trysplice(r, w2, 100)
    assert_equal 6, Eagain.trysplice(r, w2, 100)
    assert_equal "two\nthree\n", drain(r2)
  end

  def test_splice_errors
    a, b = pair
    r, w = pipe
    f = file(10)
    assert_raises(Errno::EINVAL) { Eagain.trysplice(a, b, 1) }
    assert_raises(Errno::EINVAL) { Eagain.trysplice(f, a, 1) }
    w << "x"
    assert_raises(Errno::EINVAL) { Eagain.trysplice(r, w, 1) }
    append = keep(File.open(path, "a"))
    assert_raises(Errno::EINVAL) { Eagain.trysplice(r, append, 1) }
    assert_raises(ArgumentError) { Eagain.trysplice(r, a, -1) }
    assert_raises(TypeError) { Eagain.trysplice(r, a, nil) }
    assert_raises(TypeError) { Eagain.trysplice(r, 1, 1) }
    assert_equal "not opened for reading", assert_raises(IOError) { Eagain.trysplice(w, a, 1) }.message
    assert_equal "not opened for writing", assert_raises(IOError) { Eagain.trysplice(a, r, 1) }.message
    b.close
    assert_raises(Errno::EPIPE) { Eagain.trysplice(r, a, 1) }
    r.close
    assert_equal "closed stream", assert_raises(IOError) { Eagain.trysplice(r, a, 1) }.message
  end

  def test_splice_costs_one_call_when_it_would_block
    trace = strace(<<~RUBY)
      r, w = IO.pipe
      r2, w2 = IO.pipe
      w << "x"
      Eagain.trysplice(r, w2, 1)
      w << "xxxxx"
      mark
      105.times { Eagain.trysplice(r, w2, 1) }
      mark
    RUBY
    work = trace.work
    assert_equal({ "splice" => 5, "poll" => 105 }, work.slice("splice", "poll"))
    assert_equal 115, work.values.sum # and fstat(2), by whatever name
  end

  # Both ends: the number stays, the mode or even the kind changes.
  def test_splice_after_the_ends_have_changed
    a, = pair
    c, = pair(blocking: true)
    r, w = pipe
    assert_equal :wait_readable, Eagain.trysplice(a, w, 10)
    a.nonblock = false
    assert_equal :wait_readable, promptly { Eagain.trysplice(a, w, 10) }
    a.reopen(c)
    assert_equal :wait_readable, promptly { Eagain.trysplice(a, w, 10) }
    _, w2 = pipe
    w << "x"
    assert_equal 1, Eagain.trysplice(r, w2, 10)
    d, = pair(blocking: true)
    assert_equal :wait_writable, promptly { splice_until_full(r, w, w2.reopen(d)) }
  end

  def splice_until_full(from, feed, to)
    loop do
      feed.write_nonblock("x" * 60_000, exception: false)
      answer = Eagain.trysplice(from, to, 1_000_000)
      return answer if answer.is_a?(Symbol)
    end
  end

  # --- open

  def test_open_as_file_open_does
    File.write(path, "bytes", perm: 0o640)
    [[], ["r"], ["rb"], ["r+"], ["rb:UTF-8"], ["r:UTF-16LE:UTF-8"], [File::RDONLY], [File::RDWR | File::APPEND], ["a+"], [nil]]
      .each do |mode|
      ours, theirs = keep(Eagain.tryopen(path, *mode), File.open(path, *mode.compact))
      assert_instance_of File, ours
      %i[external_encoding internal_encoding binmode? pos path].each do |name|
        actual = ours.public_send(name)
        assert theirs.public_send(name) == actual, "#{mode}: #{name} #{actual.inspect}"
      end
      assert_predicate ours, :close_on_exec?
      next unless mode.first.to_s.match?(/\+/)

      ours.write("!")
      ours.flush
    end
    assert_includes File.read(path), "!"
  end

  def test_open_makes_files
    umask = File.umask
    file = keep(Eagain.tryopen(path("new"), "w", 0o600))
    file.write("x")
    file.close
    assert_equal [0o600, "x"], [File.stat(path("new")).mode & 0o777, File.read(path("new"))]
    keep(Eagain.tryopen(path("newer"), File::CREAT | File::WRONLY))
    assert_equal 0o666 & ~umask, File.stat(path("newer")).mode & 0o777
    keep(Eagain.tryopen(path("new"), "w"))
    assert_equal 0, File.size(path("new"))
  end

  def test_open_takes_what_has_to_path
    File.write(path, "x")
    object = Struct.new(:to_path).new(path)
    assert_equal "x", keep(Eagain.tryopen(object)).read
    assert_raises(TypeError) { Eagain.tryopen(1) }
  end

  def test_open_errors_are_those_of_file_open
    File.write(path, "")
    locked = path("locked")
    File.write(locked, "", perm: 0)
    socket = path("socket")
    keep(UNIXServer.new(socket))
    [[path("none")], [path("none/below")], [@folder, "w"], [File.join(path, "below")], [path, "q"], [path, "rw"], ["a\0b"], [""],
     [path, File::CREAT | File::EXCL | File::WRONLY], ["x" * 5000], [socket, "w"], [socket],
     [path, Object.new], [path, "r", "0666"], [path, 2**70], [locked, "wx"]].each do |arguments|
      expected = outcome { File.open(*arguments) }
      actual = outcome { Eagain.tryopen(*arguments) }
      assert_equal expected, actual, arguments.inspect
    end
    assert_raises(ArgumentError) { Eagain.tryopen }
  end

  def outcome
    keep(yield)
    :opened
  rescue StandardError => e
    [e.class, e.message]
  end

  def test_open_a_fifo_for_reading_does_not_wait
    File.mkfifo(path)
    reader = promptly { Eagain.tryopen(path) }
    keep(reader)
    assert_equal path, reader.path
    assert_nil reader.read_nonblock(1, exception: false)
    writer = keep(promptly { Eagain.tryopen(path, "w") })
    writer.sync = true
    writer.write("x")
    assert_equal "x", reader.read_nonblock(2, exception: false)
    assert_equal :wait_readable, reader.read_nonblock(2, exception: false)
    assert_predicate reader, :nonblock?
  end

  def test_open_a_fifo_without_a_reader_for_writing
    File.mkfifo(path)
    assert_equal :wait_writable, promptly { Eagain.tryopen(path, "w") }
    assert_equal :wait_writable, promptly { Eagain.tryopen(path, File::WRONLY) }
    fifo = path.freeze
    mode = "w"
    Eagain.tryopen(fifo, mode)
    assert_operator allocations(1000) { Eagain.tryopen(fifo, mode) }, :<, 10
  end

  # What holds a lease has to give it up before another may open the file.
  def test_open_a_file_with_a_lease
    File.write(path, "x")
    holder = keep(File.open(path, "r+"))
    trap(:IO, "IGNORE")
    begin
      holder.fcntl(1024, 1) # F_SETLEASE, F_WRLCK
    rescue SystemCallError => e
      skip "no leases here: #{e.class}"
    end
    assert_equal :wait_readable, promptly { Eagain.tryopen(path) }
    assert_equal :wait_writable, promptly { Eagain.tryopen(path, "r+") }
    holder.fcntl(1024, 2)
    assert_equal "x", keep(Eagain.tryopen(path)).read
  ensure
    trap(:IO, "DEFAULT")
  end

  def test_open_when_descriptors_have_run_out
    File.write(path, "x")
    out = output_of(<<~RUBY)
      Process.setrlimit(:NOFILE, 30)
      kept = []
      begin
        100.times { kept << Eagain.tryopen(#{path.dump}) }
      rescue Errno::EMFILE => e
        puts e.class
      end
      kept.each(&:close).clear
      # Those that nobody has any more are collected, and closed, to make room.
      5.times { Thread.new { 10.times { Eagain.tryopen(#{path.dump}) } }.join }
      puts Eagain.tryopen(#{path.dump}).read
    RUBY
    assert_equal "Errno::EMFILE\nx\n", out
  end

  def test_a_mode_that_is_refused_after_the_open_leaks_no_descriptor
    File.write(path, "x")
    assert_child("0 refused\n", <<~RUBY)
      def File.for_fd(*) = raise("refused")
      before = Dir.children("/proc/self/fd").size
      messages = Array.new(10) { Eagain.tryopen(#{path.dump}) rescue $!.message }
      puts "\#{Dir.children("/proc/self/fd").size - before} \#{messages.uniq.join}"
    RUBY
  end

  # --- Everything at once.

  def test_random_arguments
    random = Random.new(seed)
    a, b = pair
    r, w = pipe
    f = file(1000)
    values = [a, b, r, w, f, nil, 0, 1, -1, 10, 2**62, 2**70, 1.5, "x", :x, [], {}, Object.new, path, "r", true]
    500.times do
      arguments = Array.new(random.rand(1..4)) { values.sample(random: random) }
      name = %i[trysendfile trysplice tryopen].sample(random: random)
      next if name == :tryopen && !arguments[0].equal?(values[18])

      begin
        result = promptly { Eagain.public_send(name, *arguments) }
        keep(result) if result.is_a?(IO)
      rescue StandardError => e
        assert_kind_of StandardError, e
      end
      [b, a, r].each { |io| drain(io) if random.rand(10).zero? }
    end
    drain(b)
    assert_equal 5, Eagain.trysendfile(a, f, 5, 0)
  end

  MODES = ["r", "w", "a", "r+", "w+", "a+", "rb", "wb", "rt", "r:UTF-8", "r:UTF-16LE:UTF-8", "wx", "rx", "z", "", "r\0",
           "rbt", nil, 0, File::WRONLY | File::CREAT, File::RDWR | File::APPEND, File::CREAT | File::EXCL, File::WRONLY | File::TRUNC,
           2**40, 1.5, :r, [], true].freeze
  PERMS = [0o600, 0o444, 0, 0o4755, nil, -1, 2**40, 2.5, "0", :x, []].freeze
  NAMES = ["file", "new", "folder", "nowhere/file", "link", "loop", "na\0me", "", "x" * 300].freeze

  # The same of the same folder, of File.open and of us: what is open, what is in it, and the error.
  def test_tryopen_of_random_arguments
    random = Random.new(seed)
    convertible = Struct.new(:name) { def to_path = name }
    400.times do
      mode, perm = [MODES, PERMS].map { |list| list.sample(random: random) }
      name = NAMES.sample(random: random)
      kind = random.rand(12)
      arguments = [mode, perm].first(random.rand(3))
      expected, actual = [File.method(:open), Eagain.method(:tryopen)].map do |open|
        in_a_new_folder do |folder|
          full = name.empty? ? "" : "#{folder}/#{name}"
          given = { 0 => nil, 1 => [], 2 => :file, 3 => full.encode("UTF-16LE"), 4 => convertible.new(full) }.fetch(kind, full)
          what_came_of(folder) { open.call(given, *arguments) }
        end
      end
      assert expected == actual, "#{name.inspect[0, 20]} as #{kind}, #{arguments.inspect}\nFile.open: #{expected}\ntryopen: #{actual}"
    end
  end

  def in_a_new_folder
    Dir.mktmpdir do |folder|
      File.write(File.join(folder, "file"), "content")
      Dir.mkdir(File.join(folder, "folder"))
      File.symlink("file", File.join(folder, "link"))
      File.symlink("loop", File.join(folder, "loop"))
      yield folder
    end
  end

  def what_came_of(folder)
    opened = yield
    encodings = [opened.external_encoding, opened.internal_encoding, opened.binmode?, opened.close_on_exec?]
    used = [-> { opened.read }, -> { opened.write("more") }, -> { opened.pos }].map { |use| result_in(folder, &use) }
    opened.close
    [opened.class, opened.path.delete_prefix(folder), encodings, used] + Dir.children(folder).sort.map do |name|
      [name, File.lstat(File.join(folder, name)).mode, result_in(folder) { File.binread(File.join(folder, name)) }]
    end
  rescue StandardError => e
    [e.class, e.message.gsub(folder, "")]
  end

  def result_in(folder)
    yield
  rescue StandardError => e
    [e.class, e.message.gsub(folder, "")]
  end

  def test_gc_stress
    File.binwrite(path, "x" * 100)
    assert_child("100 100 x\n", <<~RUBY, timeout: 120)
      require "socket"
      a, b = UNIXSocket.pair
      r, w = IO.pipe
      GC.stress = true
      file = Eagain.tryopen(#{path.dump}, "r:UTF-8")
      sent = Eagain.trysendfile(a, file, 100)
      moved = Eagain.trysplice(b, w, 200)
      GC.stress = false
      puts "\#{sent} \#{moved} \#{r.read(1)}"
    RUBY
  end
  # File.for_fd reads the mark: it waited, and when it failed the number was closed twice.
  def test_tryopen_refuses_a_byte_order_mark
    file = File.open(File::NULL)
    error = assert_raises(ArgumentError) { Eagain.tryopen(__dir__, "rb:BOM|UTF-8") }
    assert_match(/byte order mark/, error.message)
    GC.start
    assert_predicate file.stat, :chardev?
  ensure
    file.close
  end

end
