# frozen_string_literal: true

require_relative "eagain_try"
require_relative "kgio"

module Bench
  module Peers
    # kgio's interface, from this checkout.
    class EagainKgio < EagainTry
      title "kgio's methods from eagain/kgio"
      calls Kgio.calls

      def self.features
        ["eagain/kgio"]
      end

      def unix_pair(type = :STREAM)
        ::Kgio::UNIXSocket.pair(type)
      end

      def pipe
        ::Kgio::Pipe.new
      end
    end
  end
end
