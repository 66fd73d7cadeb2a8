# frozen_string_literal: true

# For tests that open many IOs: what a test keeps is closed after it.
module Opened
  def before_setup
    super
    @open = []
  end

  def after_teardown
    close_all(@open)
    super
  end

  # Returns what it is given: one IO, or all of several.
  def keep(*ios)
    @open.concat(ios.flatten)
    ios.size == 1 ? ios[0] : ios
  end

  def pipe = keep(*IO.pipe)
  def pair(type = :STREAM) = keep(*UNIXSocket.pair(type))

  # Writes until there is no room for one byte more.
  def fill(io)
    nil while io.write_nonblock("x" * 65_536, exception: false).is_a?(Integer)
    nil while io.write_nonblock("x", exception: false).is_a?(Integer)
  end

  # All that is there to be read.
  def drain(io)
    bytes = +"".b
    while (part = io.read_nonblock(1 << 20, exception: false)).is_a?(String)
      bytes << part
    end
    bytes
  end
end
