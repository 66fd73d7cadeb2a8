# frozen_string_literal: true

module Bench
  module Peers
    # The kgio gem, with its own classes.
    class Kgio < CallPeer
      # What the calls are made on, as they make it.
      module Ends
        def unix_pair(type = :STREAM)
          ::Kgio::UNIXSocket.pair(type)
        end

        def pipe
          ::Kgio::Pipe.new
        end
      end
      include Ends

      title "kgio"
      gems "kgio" => "2.11.4"
      calls(
        would_block_socket: "a.kgio_tryread(11, buffer)",
        would_block_pipe: "a.kgio_tryread(11, buffer)",
        seqpacket: "a.kgio_trywrite(message); b.kgio_tryread(11, buffer)",
        small_try: "a.kgio_trywrite(message); b.kgio_tryread(11, buffer)",
        small_wait: "a.kgio_write(message); b.kgio_read(11, buffer)",
        print: "::Kgio.trywrite(out, 'x')"
      )

      def self.unavailable
        require "kgio"
        nil
      end
    end
  end
end
