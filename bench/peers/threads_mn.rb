# frozen_string_literal: true

module Bench
  module Peers
    # Ruby's own M:N threads.
    class ThreadsMn < ThreadPeer
      title "Thread.new with RUBY_MN_THREADS=1"
      env "RUBY_MN_THREADS" => "1"
      cannot(busy: "no answer: it comes to a stand (Ruby 3.4.11)")

      # RUBY_DESCRIPTION says so when the variable took effect; Rubies before 3.3 ignore it.
      def self.unavailable
        "not on this Ruby" unless RUBY_DESCRIPTION.include?("+MN")
      end
    end
  end
end
