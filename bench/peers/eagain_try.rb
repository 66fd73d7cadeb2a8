# frozen_string_literal: true

require_relative "eagain_epoll"

module Bench
  module Peers
    # The try calls of this checkout, and their blocking twins.
    class EagainTry < CallPeer
      title "eagain's own calls (eagain/io)"
      calls(
        would_block_socket: "a.tryread(11, buffer)",
        would_block_pipe: "a.tryread(11, buffer)",
        seqpacket: "a.trysendmsg(message); b.tryrecv(11, 0, buffer)",
        small_try: "a.trywrite(message); b.tryread(11, buffer)",
        small_wait: "Eagain.write(a, message); Eagain.read(b, 11, buffer)",
        print: "out.trywrite('x')"
      )

      class << self
        def ours?
          true
        end

        # The files of this checkout that it needs besides the extension.
        def features
          ["eagain/io"]
        end

        def unavailable
          EagainEpoll.load
          features.each { |feature| require feature }
          nil
        rescue LoadError => e
          "not built: run make (#{e.message})"
        end

        def versions
          EagainEpoll.versions
        end
      end
    end
  end
end
