# frozen_string_literal: true

module Bench
  # Many streams, each with a task that writes messages and one that reads them, so that they are now
  # full, now empty. A subclass says PAIRS, MESSAGES, MESSAGE and how a #pair (reader, writer) is made.
  #
  # The calls are IO#write (pipes and sockets have sync on, so each is one io_write) and
  # IO#readpartial (past Ruby's buffer, so each is one io_read, which may return less than a
  # message). IO#read would fill the buffer with several messages at once, and measure that buffer
  # instead. Which system calls a peer makes of them (read or recv) is its own business.
  class StreamRow < Row
    group "Streams and sockets"

    def operations
      self.class::PAIRS * scaled(self.class::MESSAGES)
    end

    def call
      @message = self.class::MESSAGE
      @bytes = 0
      self.class::PAIRS.times do
        reader, writer = pair
        spawn { send_all(writer) }
        spawn { receive_all(reader) }
      end
      wait
    end

    def result
      @bytes / @message.bytesize
    end

    private

    def send_all(writer)
      scaled(self.class::MESSAGES).times { writer.write(@message) }
      writer.close
    end

    def receive_all(reader)
      bytes = 0
      loop { bytes += reader.readpartial(@message.bytesize).bytesize }
    rescue EOFError
      reader.close
      @bytes += bytes
    end
  end
end
