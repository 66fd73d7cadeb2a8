# frozen_string_literal: true

module Eagain
  module Nonblock
    # SSLSocket#read_nonblock and #write_nonblock are openssl's still: they call the two private methods
    # that are replaced here, with a keyword that then makes no Hash. All four let openssl's own do the
    # work without exceptions. accept_nonblock and connect_nonblock are written in C, for they take
    # whatever keywords they are given.
    keep ::OpenSSL::SSL::SSLSocket, :sysread_nonblock, :syswrite_nonblock, :accept_nonblock, :connect_nonblock

    class ::OpenSSL::SSL::SSLSocket # :nodoc:
      private

      def sysread_nonblock(length, buffer = nil, exception: true)
        answer = Calls.ssl_read(self, length, buffer)
        exception == false ? answer : Calls.ssl_raise(answer, $!)
      end

      def syswrite_nonblock(string, exception: true)
        answer = Calls.ssl_write(self, string)
        exception == false ? answer : Calls.ssl_raise(answer, $!)
      end
    end

    Calls.introduce_ssl(::OpenSSL::SSL::SSLSocket, ::OpenSSL::SSL::SSLErrorWaitReadable,
                        ::OpenSSL::SSL::SSLErrorWaitWritable)
  end
end
