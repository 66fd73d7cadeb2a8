# frozen_string_literal: true

require_relative "eagain_try"
require_relative "stock"

module Bench
  module Peers
    # What Ruby's own calls cost after <tt>require "eagain/nonblock"</tt>.
    class EagainNonblock < EagainTry
      title "Ruby's methods after -reagain/nonblock"
      calls(Stock.calls.reject { |row, _| %i[small_wait print].include?(row) })

      def self.features
        ["eagain/nonblock"]
      end
    end
  end
end
