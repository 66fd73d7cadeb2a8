# frozen_string_literal: true

require_relative "helper"
require_relative "nonblock_cases"

# require "eagain/nonblock": each case of nonblock_cases.rb gives what Ruby's own methods give.
class NonblockTest < EagainTest
  SCRIPT = File.join(__dir__, "nonblock_cases.rb")

  def self.results(*flags)
    @results ||= {}
    @results[flags] ||= begin
      out = IO.popen([RUBY, "-W:no-experimental", *flags, SCRIPT], "rb", &:read)
      Marshal.load(out)
    end
  end

  def plain = self.class.results
  def ours = self.class.results("-I#{LIB}", "-reagain/nonblock")

  # No case is one only because of a slip.
  def test_the_cases_themselves
    slips = plain.select { |(_, variant), result| variant.empty? && result.inspect.match?(/"NameError"/) && !result.inspect.include?("NoMethodError") }
    assert_empty slips.keys
    strange = plain.select { |(name, variant), result| variant.empty? && result.inspect.include?("NoMethodError") }
    assert_empty strange.keys.map(&:first).grep_v(/control 5|no such thing/)
  end

  def difference(name, variant)
    [variant, "Ruby: #{plain.fetch([name, variant]).inspect}", "ours: #{ours.fetch([name, variant]).inspect}"].join("\n")
  end

  NonblockCases::CASES.each_key do |name|
    define_method("test_#{name}") do
      NonblockCases::VARIANTS.each do |variant|
        assert plain.fetch([name, variant]) == ours.fetch([name, variant]), -> { difference(name, variant) }
      end
    end
  end
end
