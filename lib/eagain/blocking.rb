# frozen_string_literal: true

# The blocking twins of the try calls. Each tries first, and waits only after a would-block: a fiber of
# a scheduler lets the others run meanwhile, a thread the other threads. What is there at once costs one
# system call, as the try call does.
#
# All take +timeout:+, in seconds (Integer, Float, Rational), for the whole call:
#
# nil::      none, but what IO#timeout says, for each wait, as with Ruby's own methods
# 0::        one attempt, and TimeoutError if it would block
# negative:: ArgumentError, as of Kernel#sleep; TypeError for what is no number
#
# and raise TimeoutError when it is over; IOError when the IO is closed meanwhile; and what the try call
# raises. A thread in a wait can be killed and raised in, and signals are handled.
module Eagain
  # Between two attempts where there is nothing to wait for, in seconds.
  PAUSE = 0.005
  private_constant :PAUSE

  class << self
    # Reads into several strings, of at most +maxlens+ bytes each, by one system call. As tryreadv
    # otherwise; waits for the first byte.
    def readv(io, maxlens, buffers = nil, timeout: nil)
      attempt(io, timeout) { tryreadv(io, maxlens, buffers) }
    end

    # As read, but leaves what it returns to be read again.
    def peek(io, maxlen, buffer = nil, timeout: nil)
      attempt(io, timeout) { trypeek(io, maxlen, buffer) }
    end

    # As recv, and tells who has sent it: <tt>[string, sender]</tt>, the sender as of tryrecvfrom.
    def recvfrom(socket, maxlen, flags = 0, buffer = nil, timeout: nil)
      attempt(socket, timeout) { tryrecvfrom(socket, maxlen, flags, buffer) }
    end

    # Connects a socket to +address+ (a packed address or an Addrinfo), or raises why not, as Socket#connect:
    # Errno::ECONNREFUSED and so on. Returns 0. After a TimeoutError the attempt goes on by itself: close
    # the socket. As tryconnect otherwise.
    def connect(socket, address, timeout: nil)
      limit = timeout && deadline(timeout)
      begin
        account
        while Symbol === (answer = tryconnect(socket, address))
          await(socket, answer, limit, 0)
        end
      rescue Errno::EAGAIN
        raise unless socket.to_io.local_address.unix?

        pause(limit) # the peer's queue is full, and nothing tells of room in it
        retry
      end
      answer
    end

    # Receives a message with what comes along with it: <tt>[string, sender, flags, *controls]</tt>, as of
    # tryrecvmsg; nil at the end of a stream.
    def recvmsg(socket, maxlen = nil, flags = 0, maxcontrol = nil, scm_rights: false, timeout: nil)
      attempt(socket, timeout) do
        if scm_rights
          tryrecvmsg(socket, maxlen, flags, maxcontrol, scm_rights: true)
        else
          tryrecvmsg(socket, maxlen, flags, maxcontrol)
        end
      end
    end

    # Sends a message (a String, or an Array of them), with IOs or other ancillary data. Returns the count
    # of bytes, which may be less than all of them on a stream. As trysendmsg otherwise.
    def sendmsg(socket, message, flags = 0, dest = nil, *controls, timeout: nil)
      attempt(socket, timeout) { trysendmsg(socket, message, flags, dest, *controls) }
    end

    # Sends +count+ bytes of the file +from+ to the socket +to+, all of them, but for the end of the file.
    # Returns how many were sent. As trysendfile otherwise: from +offset+, or from where the file stands.
    #
    # TimeoutError#written says how many bytes were sent before the time was over.
    def sendfile(to, from, count, offset = nil, timeout: nil)
      limit = timeout && deadline(timeout)
      sent = 0
      while true
        account
        answer = trysendfile(to, from, count, offset)
        next await(to, answer, limit, sent) if Symbol === answer
        return sent unless answer

        sent += answer
        count = count.to_int - answer
        return sent unless count.positive?

        offset += answer if offset
      end
    end

    # Moves what is there, at most +count+ bytes, from one IO to another, one of which is a pipe, or waits
    # for something to move, and for room. Returns how many were moved; nil at the end of +from+. As
    # trysplice otherwise.
    def splice(from, to, count, timeout: nil)
      limit = timeout && deadline(timeout)
      account
      while Symbol === (answer = trysplice(from, to, count))
        await(answer.equal?(:wait_readable) ? from : to, answer, limit, 0)
      end
      answer
    end

    private

    # :stopdoc:

    # read, write, recv and sendto are methods of the extension, which make the first attempts. It is these
    # that go on, where there is no IO or there is more to it; limit is the deadline, or nil.

    def read_again(io, maxlen, buffer, answer, limit)
      again(io, limit, answer) { tryread(io, maxlen, buffer) }
    end

    def recv_again(socket, maxlen, flags, buffer, answer, limit)
      again(socket, limit, answer) { tryrecv(socket, maxlen, flags, buffer) }
    end

    def sendto_again(socket, string, flags, dest, answer, limit)
      again(socket, limit, answer) { trysend(socket, string, flags, dest) }
    end

    # Yields until the answer is not a would-block.
    def attempt(io, timeout)
      limit = timeout && deadline(timeout)
      account
      answer = yield
      Symbol === answer ? again(io, limit, answer) { yield } : answer
    end

    # The answer was a would-block: waits and yields until there is another one.
    def again(io, limit, answer)
      waits = 0
      while Symbol === answer
        (waits += 1) > 1 && on_disk?(io) ? fetch_page(io) : await(io, answer, limit, 0)
        answer = yield
      end
      answer
    end

    # Sleeps for a moment, but not beyond the deadline.
    def pause(limit)
      left = limit ? (limit - Process.clock_gettime(Process::CLOCK_MONOTONIC, :nanosecond)) / 1e9 : PAUSE
      expire(0) unless left.positive?
      sleep(left < PAUSE ? left : PAUSE)
    end

    # A file always counts as ready, while what is to be read may have to come from the disk yet.
    def on_disk?(io)
      status = io.to_io.stat
      status.file? || status.blockdev?
    end

    # Ruby's pread waits for the disk without the lock, or in another thread while other fibers run.
    def fetch_page(io)
      file = io.to_io
      file.pread(1, file.pos)
    rescue EOFError
      nil # it was cut off meanwhile: so the next attempt will find
    end

    # An attempt to write the string had that answer: goes on until all of it is written.
    def write_rest(io, string, limit, answer)
      rest = string.dup # others may change theirs meanwhile
      written = 0
      while true
        if Symbol === answer
          await(io, answer, limit, written)
        else
          written += answer
          return written if answer >= rest.bytesize

          rest = rest.byteslice(answer..)
          account
        end
        answer = trywrite(io, rest)
      end
    end

    # answer: that of the first attempt, if there was one.
    def write_all(io, strings, limit, answer)
      strings.map!(&:to_s)
      copied = (answer || accounts?) && strings.map!(&:dup) # others may change theirs when they run
      written = 0
      account unless answer
      while true
        answer ||= trywritev(io, strings)
        if Symbol === answer
          copied ||= strings.map!(&:dup)
          await(io, answer, limit, written)
        else
          written += answer
          return written unless drop(strings, answer)

          copied ||= strings.map!(&:dup)
          account
        end
        answer = nil
      end
    end

    # Takes that many bytes from the front. Is anything left?
    def drop(strings, count)
      while (first = strings.first) && first.bytesize <= count
        count -= first.bytesize
        strings.shift
      end
      return false unless first

      strings[0] = first.byteslice(count..) if count.positive?
      true
    end
  end
end
