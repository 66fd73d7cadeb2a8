# frozen_string_literal: true

module Bench
  # For a TcpRow: CLIENTS tasks that each ask the server EACH times, at scale 1, and count the right answers. The
  # row says how a client asks: #ask(port), which calls #count once.
  module Clients
    def operations
      clients * scaled(self.class::EACH)
    end

    def call
      @answers = 0
      port = listen(connections)
      clients.times { spawn { ask(port) } }
      wait
    end

    def result
      @answers
    end

    # Integer: how many there are, at any scale.
    def clients
      self.class::CLIENTS
    end

    private

    # Integer: how many the server accepts.
    def connections
      clients
    end

    # Asks by the block, so often, which returns whether the answer was right.
    def count
      right = 0
      scaled(self.class::EACH).times { right += 1 if yield }
      @answers += right
    end
  end
end
