# frozen_string_literal: true

module Bench
  module Peers
    # Plain threads: what a Ruby program does without any of this.
    class Threads < ThreadPeer
      title "Thread.new"
    end
  end
end
