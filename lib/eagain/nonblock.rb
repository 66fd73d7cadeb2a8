# frozen_string_literal: true

require "socket"
require_relative "../eagain"
require_relative "kept"

# <tt>require "eagain/nonblock"</tt> makes +read_nonblock+ and its kin faster: see Nonblock.
module Eagain
  # <tt>require "eagain/nonblock"</tt>, or <tt>ruby -reagain/nonblock script.rb</tt>, replaces
  # +read_nonblock+, +write_nonblock+, +accept_nonblock+, +connect_nonblock+, +recv_nonblock+,
  # +recvfrom_nonblock+, +recvmsg_nonblock+ and +sendmsg_nonblock+ of IO, the sockets and
  # OpenSSL::SSL::SSLSocket (whether openssl is loaded before or after) by ones that do the same faster.
  #
  # Arguments, results, exceptions and messages are those of the Ruby that runs this, but:
  #
  # * A would-block exception (IO::EAGAINWaitReadable, IO::EAGAINWaitWritable,
  #   IO::EINPROGRESSWaitWritable, OpenSSL::SSL::SSLErrorWaitReadable and
  #   OpenSSL::SSL::SSLErrorWaitWritable) has an empty backtrace: #backtrace is an empty Array and
  #   #backtrace_locations is +nil+. One that nobody rescues is reported with its message, as ever. It
  #   is made without +initialize+, and raised without an event for TracePoint. Its message is made when it
  #   is asked for: the classes have a +to_s+ and a +backtrace+ of their own. Eagain::Nonblock.backtraces=
  #   brings all of that back, at Ruby's price.
  # * O_NONBLOCK is not switched on. It belongs to all processes that share a pipe, a terminal or an
  #   inherited descriptor, and the others may not expect it. Sockets are asked with MSG_DONTWAIT, the
  #   others with RWF_NOWAIT, or poll(2) first. Ruby's own methods leave the flag switched on: code that
  #   relies on that has to say so (<tt>io.nonblock = true</tt>, of io/nonblock).
  #
  # The methods are replaced where they are, so what was prepended to a class stays in front, and
  # +super+ arrives here. Ruby's own remain, private, as <tt>__ruby_read_nonblock</tt> and so on.
  module Nonblock
    def self.keep(klass, *names) = Kept.keep(klass, *names) # :nodoc:
    private_class_method :keep

    # The methods of the extension that do the work, private: one of the object itself is found faster than a constant.
    def self.lend(klass, *names) # :nodoc:
      names.each do |name|
        klass.define_method(:"__eagain_#{name}", Calls.instance_method(name))
        klass.__send__(:private, :"__eagain_#{name}")
      end
    end
    private_class_method :lend

    # In each of the following, false is a would-block that is to be raised, and nil the end of file,
    # which is handed through. $! becomes the exception's cause.

    keep ::IO, :read_nonblock, :write_nonblock
    lend ::IO, :read, :write

    class ::IO # :nodoc:
      def read_nonblock(len, buf = nil, exception: true)
        (answer = __eagain_read(len, buf, exception)) || Calls.read_would_block(answer, $!)
      end

      def write_nonblock(buf, exception: true)
        (answer = __eagain_write(buf, exception)) || Calls.write_would_block(answer, $!)
      end
    end

    keep ::BasicSocket, :recv_nonblock, :recvmsg_nonblock, :sendmsg_nonblock, :read_nonblock, :write_nonblock
    lend ::BasicSocket, :socket_read, :socket_write, :recv, :recvmsg, :sendmsg

    class ::BasicSocket # :nodoc:
      def read_nonblock(len, str = nil, exception: true)
        (answer = __eagain_socket_read(len, str, exception)) || Calls.read_would_block(answer, $!)
      end

      def write_nonblock(buf, exception: true)
        (answer = __eagain_socket_write(buf, exception)) || Calls.write_would_block(answer, $!)
      end

      def recv_nonblock(len, flag = 0, str = nil, exception: true)
        (answer = __eagain_recv(len, flag, str, exception)) || Calls.recvfrom_would_block(answer, $!)
      end

      def recvmsg_nonblock(dlen = nil, flags = 0, clen = nil, scm_rights: false, exception: true)
        (answer = __eagain_recvmsg(dlen, flags, clen, scm_rights, exception)) ||
          Calls.recvmsg_would_block(answer, $!)
      end

      def sendmsg_nonblock(mesg, flags = 0, dest_sockaddr = nil, *controls, exception: true)
        (answer = __eagain_sendmsg(mesg, flags, dest_sockaddr, controls, exception)) ||
          Calls.sendmsg_would_block(answer, $!)
      end
    end

    keep ::Socket, :recvfrom_nonblock, :accept_nonblock, :connect_nonblock
    lend ::Socket, :recvfrom, :socket_accept, :connect

    class ::Socket # :nodoc:
      def recvfrom_nonblock(len, flag = 0, str = nil, exception: true)
        (answer = __eagain_recvfrom(len, flag, str, exception)) || Calls.recvfrom_would_block(answer, $!)
      end

      def accept_nonblock(exception: true)
        (answer = __eagain_socket_accept(::Socket, exception)) || Calls.accept_would_block(answer, $!)
      end

      def connect_nonblock(addr, exception: true)
        (answer = __eagain_connect(addr, exception)) || Calls.connect_would_block(answer, $!)
      end
    end

    keep ::UDPSocket, :recvfrom_nonblock
    lend ::UDPSocket, :recvfrom

    class ::UDPSocket # :nodoc:
      def recvfrom_nonblock(len, flag = 0, outbuf = nil, exception: true)
        (answer = __eagain_recvfrom(len, flag, outbuf, exception)) || Calls.recvfrom_would_block(answer, $!)
      end
    end

    keep ::TCPServer, :accept_nonblock
    lend ::TCPServer, :accept

    class ::TCPServer # :nodoc:
      def accept_nonblock(exception: true)
        (answer = __eagain_accept(::TCPSocket, exception)) || Calls.accept_would_block(answer, $!)
      end
    end

    keep ::UNIXServer, :accept_nonblock
    lend ::UNIXServer, :accept

    class ::UNIXServer # :nodoc:
      def accept_nonblock(exception: true)
        (answer = __eagain_accept(::UNIXSocket, exception)) || Calls.accept_would_block(answer, $!)
      end
    end

    # openssl may be loaded later, or never: nobody has to wait for it because of us, and Kernel#require
    # is not ours. But its SSLSocket includes OpenSSL::Buffering, which includes Enumerable, and whoever
    # is included is told. (Should a future openssl do otherwise, it keeps its own methods.)
    module Included # :nodoc:
      private

      def included(base)
        super
        Nonblock.__send__(:included_in, base)
      end
    end
    private_constant :Included

    class << self
      private

      # :stopdoc:

      def included_in(base)
        case ::Module.instance_method(:name).bind_call(base) # a class may have a name method of its own
        when "OpenSSL::Buffering" then base.extend(Included)
        when "OpenSSL::SSL::SSLSocket"
          Included.remove_method(:included)
          require_relative "nonblock/ssl"
        end
      end

      def ssl_loaded?
        !Object.autoload?(:OpenSSL) && Object.const_defined?(:OpenSSL) && defined?(::OpenSSL::SSL::SSLSocket)
      end
    end

    if ssl_loaded?
      require_relative "nonblock/ssl"
    else
      ::Enumerable.extend(Included)
    end

    def self.received_at_the_end # :nodoc:
      one, other = UNIXSocket.pair
      other.close
      one.__send__(:__ruby_recv_nonblock, 1)
    ensure
      one&.close
    end
    private_class_method :received_at_the_end

    Calls.start(received_at_the_end)
  end
end
