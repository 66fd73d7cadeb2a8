# frozen_string_literal: true

require_relative "stock"

module Bench
  module Peers
    # Ruby's own methods on JRuby, for the row in which its exceptions are cheap.
    class Jruby < CallPeer
      title "Ruby's own methods on JRuby"
      calls Stock.calls.slice(:would_block_raised)

      class << self
        def command(row, scale)
          ["jruby", File.join(ROOT, "bench/harness/child.rb"), "jruby", row, scale.to_s]
        end

        def unavailable
          "not installed" unless RUBY_ENGINE == "jruby" || version
        end

        def versions
          { "jruby" => version.to_s }
        end

        private

        def version
          IO.popen(%w[jruby --version], err: File::NULL, &:read)[/jruby ([\d.]+)/, 1]
        rescue Errno::ENOENT
          nil
        end
      end
    end
  end
end
