# frozen_string_literal: true

require_relative "helper"
require_relative "opened"
require "io/nonblock"

require "eagain/kgio" unless PEER

# What the tests of eagain/kgio share.
module KgioSupport
  # Where an exception's own way out is to be without a backtrace.
  def assert_silent(klass, message)
    error = assert_raises(klass) { yield }
    assert_equal [], error.backtrace
    assert_equal message, error.message
  end

  include Opened

  def setup
    only_ours
  end

  def pipe = keep(*Kgio::Pipe.new)
  def pair = keep(*Kgio::UNIXSocket.pair)
  def server = keep(Kgio::TCPServer.new("127.0.0.1", 0))

  # Pipes and sockets, ours and Ruby's.
  def each_kind
    yield pipe, :kgio_tryread, :kgio_trywrite, :kgio_trywritev
    yield pair, :kgio_tryread, :kgio_trywrite, :kgio_trywritev
    yield keep(*IO.pipe), nil
    yield keep(*UNIXSocket.pair), nil
  end

  def fill(io)
    nil until Kgio.trywrite(io, "x" * 65_536) == :wait_writable
  end
end
