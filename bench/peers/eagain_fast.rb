# frozen_string_literal: true

require_relative "eagain_epoll"

module Bench
  module Peers
    # The same, and nothing else is changed, after <tt>require "eagain/fast"</tt>.
    class EagainFast < EagainEpoll
      title "Eagain::Scheduler on epoll, with -reagain/fast"
      kind :patched

      def self.load
        super
        require "eagain/fast"
      end
    end
  end
end
