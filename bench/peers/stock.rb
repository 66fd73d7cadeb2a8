# frozen_string_literal: true

module Bench
  module Peers
    # Ruby's own methods.
    class Stock < CallPeer
      title "Ruby's own methods"
      calls(
        would_block_socket: "a.read_nonblock(11, buffer, exception: false)",
        would_block_pipe: "a.read_nonblock(11, buffer, exception: false)",
        would_block_raised: "begin; a.read_nonblock(11, buffer); rescue IO::WaitReadable; :raised; end",
        seqpacket: "a.sendmsg_nonblock(message, 0, exception: false); b.recv_nonblock(11, 0, buffer)",
        small_try: "a.write_nonblock(message, exception: false); b.read_nonblock(11, buffer, exception: false)",
        small_wait: "a.write(message); b.readpartial(11, buffer)",
        print: "out.print('x')"
      )
    end
  end
end
