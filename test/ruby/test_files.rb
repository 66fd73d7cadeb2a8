# frozen_string_literal: true

require_relative "helper"

# Regular files, which never "wait": reads and writes, positioned and not.
class FilesTest < EagainTest
  def in_dir
    Dir.mktmpdir { |dir| schedule { yield dir } }
  end

  def test_read_and_write_whole_files
    data = Random.bytes(500_000)
    in_dir do |dir|
      path = File.join(dir, "f")
      assert_equal data.bytesize, File.binwrite(path, data)
      assert_bytes data, File.binread(path)
      assert_equal data.byteslice(1000, 10), File.binread(path, 10, 1000)
      assert_equal "", File.read(File::NULL)
    end
  end

  def test_lines_seek_and_append
    in_dir do |dir|
      path = File.join(dir, "f")
      File.open(path, "w") { |f| 1000.times { |i| f.puts("line #{i}") } }
      assert_equal 1000, File.foreach(path).count
      File.open(path, "a") { |f| f << "end" }
      File.open(path, "r+") do |f|
        f.seek(-3, IO::SEEK_END)
        assert_equal "end", f.read
        assert f.eof?
        assert_nil f.read(1)
        f.rewind
        assert_equal "line 0\n", f.gets
        f.seek(0)
        f.write("LINE")
        f.rewind
        assert_equal "LINE 0\n", f.readline
      end
    end
  end

  def test_pread
    in_dir do |dir|
      File.write(File.join(dir, "f"), "hello world")
      File.open(File.join(dir, "f")) do |f|
        assert_equal "world", f.pread(5, 6)
        assert_equal "hello world", f.pread(100, 0)
        assert_equal 0, f.pos
        assert_raises(EOFError) { f.pread(1, 100) }
      end
    end
  end

  # In a process of its own: Ruby 3.3 and 3.4 call the hook without the GVL, which can hang the VM.
  def test_pwrite
    assert_child "hello world\n", <<~RUBY, timeout: 20
      require "tempfile"
      path = Tempfile.new("pwrite").path
      20.times do
        thread = Thread.new do
          Fiber.set_scheduler(#{PEER ? "Async::Scheduler" : "Eagain::Scheduler"}.new)
          Fiber.schedule do
            File.open(path, "w+") do |f|
              100.times { f.pwrite("world", 6) == 5 && f.pwrite("hello ", 0) == 6 or raise }
              f.pos == 0 or raise
            end
          end
          Fiber.set_scheduler(nil)
        end
        thread.join(5)
        sleep 0.005
      end
      puts File.read(path)
    RUBY
  end

  def test_pread_of_a_large_file_by_many_tasks
    data = Random.bytes(1 << 20)
    in_dir do |dir|
      path = File.join(dir, "f")
      File.binwrite(path, data)
      File.open(path, "rb") do |f|
        jobs = Array.new(64) { |i| task { f.pread(16_384, i * 16_384) } }
        await("reads") { jobs.all?(&:done?) }
        assert_bytes data, jobs.map(&:value).join
      end
    end
  end

  def test_copy_stream_between_files
    data = Random.bytes(300_000)
    in_dir do |dir|
      File.binwrite(File.join(dir, "a"), data)
      assert_equal data.bytesize, IO.copy_stream(File.join(dir, "a"), File.join(dir, "b"))
      assert_bytes data, File.binread(File.join(dir, "b"))
    end
  end

  def test_files_are_always_ready
    in_dir do |dir|
      File.open(File.join(dir, "f"), "w+") do |f|
        assert f.wait_readable(1)
        assert f.wait_writable(1)
        assert f.wait_readable
        assert_equal [[f], [f], []], IO.select([f], [f], nil, 1)
      end
    end
  end

  def test_special_files
    schedule do
      assert_equal 16, File.open("/dev/urandom", "rb") { |f| f.read(16) }.bytesize
      assert_equal "\0" * 8, File.open("/dev/zero", "rb") { |f| f.readpartial(8) }
      File.open(File::NULL, "w") { |f| f.puts("gone") }
      refute_empty File.read("/proc/self/status")
      assert_raises(Errno::EISDIR) { File.read("/") }
      assert_raises(Errno::ENOENT) { File.read("/no/such/file") }
    end
  end

  def test_read_of_a_file_opened_for_writing_raises
    in_dir do |dir|
      File.open(File.join(dir, "f"), "w") { |f| assert_raises(IOError) { f.read } }
    end
  end

  def test_full_device_raises
    skip "/dev/full is missing" unless File.exist?("/dev/full")
    schedule do
      File.open("/dev/full", "w") do |f|
        f.sync = true
        assert_raises(Errno::ENOSPC) { f.write("x") }
      end
    end
  end

  def test_fifo
    in_dir do |dir|
      path = File.join(dir, "fifo")
      File.mkfifo(path)
      reader = File.open(path, File::RDONLY | File::NONBLOCK)
      writer = File.open(path, "w")
      job = task { reader.read }
      writer.write("through the fifo")
      writer.close
      await("reader") { job.done? }
      assert_equal "through the fifo", job.value
      reader.close
    end
  end

  def self.interface = PEER ? 2 : Eagain::Scheduler::INTERFACE_VERSION

  # Before 3.3 they go another way; from version 4 on IO::Buffer#pread takes (from, offset, length).
  if RUBY_VERSION >= "3.3" && interface < 4
    def test_buffer_pread_and_pwrite
      in_dir do |dir|
        File.open(File.join(dir, "f"), "w+") do |f|
          buffer = IO::Buffer.new(8)
          buffer.set_string("abcdefgh")
          assert_equal 8, buffer.pwrite(f, 0, 8)
          copy = IO::Buffer.new(8)
          assert_equal 4, copy.pread(f, 4, 4)
          assert_equal "efgh", copy.get_string(0, 4)
        end
      end
    end
  end
end
