# frozen_string_literal: true

require_relative "eagain_try"
require_relative "kgio"

module Bench
  module Peers
    # kgio's interface, from this checkout.
    class EagainKgio < EagainTry
      include Kgio::Ends

      title "kgio's methods from eagain/kgio"
      calls Kgio.calls

      def self.features
        ["eagain/kgio"]
      end
    end
  end
end
