# frozen_string_literal: true

require_relative "helper"

# An IO is closed, shut down or reopened while a task waits on it.
class CloseTest < EagainTest
  def closes_with_ioerror(io, closer = nil, &wait)
    waiter = task { assert_raises(IOError, &wait) }
    sleep 0.002
    refute waiter.done?
    closer ? closer.call : io.close
    await("the waiter to learn of the close") { waiter.done? }
    assert_match(/clos/, waiter.value.message)
  end

  def test_reader_of_a_pipe
    schedule do
      r, w = IO.pipe
      closes_with_ioerror(r) { r.readpartial(1) }
      w.close
    end
  end

  def test_gets_read_and_wait
    schedule do
      calls = [:gets.to_proc, :read.to_proc, :wait_readable.to_proc, ->(io) { io.wait_readable(100) }, :eof?.to_proc]
      ios = calls.map { UNIXSocket.pair }
      waiters = calls.zip(ios).map { |call, (io, _)| task { assert_raises(IOError) { call.call(io) } } }
      sleep 0.002
      ios.each { |io, _| io.close }
      await("the waiters") { waiters.all?(&:done?) }
      close_all(ios.map(&:last))
    end
  end

  def test_writer_of_a_full_pipe
    schedule do
      r, w = IO.pipe
      w.sync = true
      closes_with_ioerror(w) { w.write("x" * 1_000_000) }
      r.close
    end
  end

  def test_accept
    schedule do
      server = TCPServer.new("127.0.0.1", 0)
      closes_with_ioerror(server) { server.accept }
    end
  end

  def test_datagram_receive
    schedule do
      socket = UDPSocket.new
      socket.bind("127.0.0.1", 0)
      closes_with_ioerror(socket) { socket.recvfrom(10) }
    end
  end

  def test_closed_by_another_thread
    schedule do
      a, b = UNIXSocket.pair
      closes_with_ioerror(a, -> { Thread.new { a.close }.join }) { a.readpartial(1) }
      b.close
    end
  end

  def test_closed_by_a_thread_while_everything_sleeps
    a, b = UNIXSocket.pair
    closer = nil
    schedule do
      closer = Thread.new do
        sleep 0.01
        a.close
      end
      assert_raises(IOError) { a.readpartial(1) }
    end
    closer.join
    b.close
  end

  def test_all_waiters_of_one_io_learn_of_the_close
    schedule do
      a, b = UNIXSocket.pair
      waiters = Array.new(10) { task { assert_raises(IOError) { a.readpartial(1) } } }
      sleep 0.002
      a.close
      await("the waiters") { waiters.all?(&:done?) }
      b.close
    end
  end

  def test_close_of_the_other_end_is_end_of_file
    schedule do
      r, w = IO.pipe
      reader = task { r.read }
      w.close
      await("end of file") { reader.done? }
      assert_equal "", reader.value
      r.close
    end
  end

  def test_close_of_the_reading_end_breaks_the_writer
    schedule do
      r, w = IO.pipe
      writer = task { assert_raises(Errno::EPIPE) { w.write("x" * 1_000_000) } }
      r.close
      await("broken pipe") { writer.done? }
      w.close
    end
  end

  def test_shutdown_wakes_the_reader
    schedule do
      a, b = UNIXSocket.pair
      reader = task { a.read }
      a.shutdown(:RD)
      await("shutdown") { reader.done? }
      assert_equal "", reader.value
      close_all(a, b)
    end
  end

  def test_closing_one_of_two_duplicates_leaves_the_other
    schedule do
      a, b = UNIXSocket.pair
      copy = a.dup
      reader = task { copy.readpartial(1) }
      a.close
      sleep 0.002
      refute reader.done?
      b.write("x")
      await("reader") { reader.done? }
      assert_equal "x", reader.value
      close_all(copy, b)
    end
  end

  def test_duplicates_wait_independently
    schedule do
      a, b = UNIXSocket.pair
      copy = a.dup
      readers = [a, copy].map { |io| task { io.readpartial(1) } }
      b.write("12")
      await("readers") { readers.all?(&:done?) }
      assert_equal %w[1 2], readers.map(&:value).sort
      close_all(a, copy, b)
    end
  end

  def test_reopen_while_a_task_waits
    schedule do
      r, w = IO.pipe
      other_r, other_w = IO.pipe
      reader = task { r.readpartial(10) }
      sleep 0.002
      r.reopen(other_r)
      other_w.write("new")
      await("reader of the new pipe") { reader.done? }
      assert_equal "new", reader.value
      close_all(r, w, other_r, other_w)
    end
  end

  def test_reopen_between_waits
    schedule do
      r, w = IO.pipe
      w.write("old")
      assert_equal "old", r.readpartial(10)
      assert_nil r.wait_readable(0.001)
      50.times do |i|
        other_r, other_w = IO.pipe
        r.reopen(other_r)
        other_r.close
        reader = task { r.readpartial(10) }
        other_w.write(i.to_s)
        await("round #{i}") { reader.done? }
        assert_equal i.to_s, reader.value
        w.close
        w = other_w
      end
      close_all(r, w)
    end
  end

  def test_wait_on_a_closed_io_raises_at_once
    schedule do
      r, w = IO.pipe
      r.close
      [-> { r.read }, -> { r.wait_readable }, -> { r.gets }].each { |call| assert_raises(IOError, &call) }
      w.close
    end
  end

  def test_descriptor_closed_behind_the_back_of_its_io
    schedule do
      r, w = IO.pipe
      IO.for_fd(r.fileno).close
      assert_raises(Errno::EBADF) { r.readpartial(1) }
      r.autoclose = false
      w.close
    end
  end
end
