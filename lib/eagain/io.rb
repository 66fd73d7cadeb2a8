# frozen_string_literal: true

require "socket"
require "io/nonblock"
require_relative "../eagain"

# <tt>require "eagain/io"</tt>: the try calls as methods of the objects that they are about:
#
#   IO                       tryread, tryreadv, trypeek, trywrite, trywritev, trysplice; IO.tryopen, File.tryopen
#   BasicSocket              tryrecv, tryrecvfrom, tryrecvmsg, trysend, trysendmsg, trysendfile, tryaccept, tryconnect
#   OpenSSL::SSL::SSLSocket  tryread, tryreadv, trypeek, trywrite, trywritev; tryaccept, tryconnect: the handshake
#
# and sockets remember where they lead: remote_address and local_address of a connected socket cost a
# system call once, and none on a socket from tryaccept (see Eagain.remote_address).
#
# For that, reopen, close, close_read and close_write of IO and BasicSocket, connect and connect_nonblock
# of Socket are prepended to: they tell the memory that a descriptor is about to become another one. So are
# IO#nonblock=, IO#nonblock, IO#fcntl and IO#ioctl, which may change the mode that is known of a listener
# (see Eagain.tryaccept). What C code closes or exchanges with close(2) or dup2(2), behind the back of an
# open IO, is not seen: its remote_address stays that of the earlier socket.
#
# It loads "socket" and, where it is installed, "openssl": whoever loads it later finds the methods there.
module Eagain
  ::IO.prepend(Memory::IOGuard)
  [::IO, ::BasicSocket].each { |klass| klass.prepend(Memory::HalfGuard) }
  ::Socket.prepend(Memory::SocketGuard)
  Memory.trust # the guards are up
  ::BasicSocket.prepend(Memory::Addresses)

  ::IO.include(IOMethods)
  ::BasicSocket.include(SocketMethods)

  # IO.tryopen and File.tryopen.
  module OpenMethods # :nodoc:
    # call-seq:
    #   File.tryopen(path, mode = "r", perm = 0666) -> file, :wait_readable or :wait_writable
    #
    # See Eagain.tryopen.
    def tryopen(...)
      Eagain.tryopen(...)
    end
  end
  private_constant :OpenMethods
  ::IO.extend(OpenMethods)

  # The try calls of a TLS session: its own non-blocking methods without exceptions, and without the
  # waiting that is left in them. Methods of OpenSSL::SSL::SSLSocket after <tt>require "eagain/io"</tt>.
  module SSLMethods
    # A string that a read made and left empty, and the length that it was made for.
    Spare = Struct.new(:string, :length)
    # The longest that is kept, in bytes.
    SPARE_LENGTH = 65_536
    # The most plain text that comes at once (RFC 8446, 5.1).
    RECORD = 16_384
    private_constant :Spare, :SPARE_LENGTH, :RECORD

    # call-seq:
    #   ssl.tryread(maxlen, buffer = nil) -> string, nil, :wait_readable or :wait_writable
    #
    # At most +maxlen+ bytes of plain text; nil at the end. :wait_writable says that the session has to
    # write before it can go on. Errors as read_nonblock. Never waits.
    def tryread(maxlen, buffer = nil)
      return read_nonblock(maxlen, buffer, exception: false) if buffer || !Integer.===(maxlen) || maxlen <= 0

      string = spare(maxlen)
      result = read_nonblock(maxlen, string, exception: false)
      return result if result.equal?(string)

      keep_spare(string, maxlen)
      result
    end

    ##
    # :method: tryreadv
    # call-seq:
    #   ssl.tryreadv(maxlens, buffers = nil) -> array, nil, :wait_readable or :wait_writable
    #
    # As tryread, into several strings: see Eagain.tryreadv.
    define_method(:tryreadv, IOMethods.instance_method(:tryreadv))

    # call-seq:
    #   ssl.trypeek(maxlen, buffer = nil) -> string, nil, :wait_readable or :wait_writable
    #
    # As tryread, but what it returns is there to be read again, by all methods but sysread (which
    # passes over what was read ahead, as it does after gets).
    def trypeek(maxlen, buffer = nil)
      if @rbuffer.empty? && maxlen != 0
        ahead = tryread(Integer === maxlen && maxlen.between?(1, RECORD) ? RECORD : maxlen)
        return ahead unless String === ahead

        @rbuffer << ahead
      end
      peeked = @rbuffer[0, maxlen] or raise ArgumentError, "negative length #{maxlen} given"
      buffer ? buffer.replace(peeked) : String.new(peeked)
    end

    # call-seq:
    #   ssl.trywrite(string) -> count, :wait_writable or :wait_readable
    #
    # How many bytes of plain text went out. What write has buffered goes first; as long as that waits,
    # nothing of the string is written. After a would-block, try again with the same string (or one that
    # begins with it): TLS has begun a record. Errors as write_nonblock. Never waits.
    def trywrite(string)
      if defined?(@wbuffer) && @wbuffer
        until @wbuffer.empty?
          count = syswrite_nonblock(@wbuffer, exception: false)
          return count unless Integer === count

          @wbuffer[0, count] = ""
        end
      end
      syswrite_nonblock(string, exception: false)
    end

    ##
    # :method: trywritev
    # call-seq:
    #   ssl.trywritev(strings) -> count, :wait_writable or :wait_readable
    #
    # As trywrite of all the strings together, which are joined: a TLS record is made of one piece.
    define_method(:trywritev, IOMethods.instance_method(:trywritev))

    # call-seq:
    #   ssl.tryaccept -> ssl, :wait_readable or :wait_writable
    #
    # As far as the server's side of the handshake can go now. Errors as accept_nonblock.
    def tryaccept
      accept_nonblock(exception: false)
    end

    # call-seq:
    #   ssl.tryconnect -> ssl, :wait_readable or :wait_writable
    #
    # As far as the client's side of the handshake can go now. Errors as connect_nonblock.
    def tryconnect
      connect_nonblock(exception: false)
    end

    private

    # :stopdoc:

    # read_nonblock makes a string before it knows whether there is anything to put into it. One that
    # was not needed is kept for the thread's next read of that length, by whatever session. It is
    # taken out meanwhile: callbacks of the session may read, too.
    def spare(length)
      spare = Thread.current.thread_variable_get(:eagain_spare)
      return String.new unless spare && spare.length == length && (string = spare.string)

      spare.string = nil
      string
    end

    def keep_spare(string, length)
      return if length > SPARE_LENGTH

      spare = Thread.current.thread_variable_get(:eagain_spare)
      Thread.current.thread_variable_set(:eagain_spare, spare = Spare.new) unless spare
      spare.string = string
      spare.length = length
    end
  end
  private_constant :SSLMethods

  begin
    require "openssl"
    ::OpenSSL::SSL::SSLSocket.include(SSLMethods)
  rescue LoadError # no TLS here
    nil
  end
end
