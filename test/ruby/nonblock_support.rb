# frozen_string_literal: true

require_relative "helper"

# Runs a script of cases (nonblock_cases.rb) with Ruby's methods and with ours, once, and makes a test of
# each case: what came of it is the same.
class NonblockComparison < EagainTest
  # What came of all the cases of a script, in a Ruby with these options.
  def self.results(script, *flags)
    @results ||= {}
    @results[flags] ||= begin
      data = IO.popen([RUBY, "-W:no-experimental", *flags, script], "rb", &:read)
      raise "#{script}: #{$?}; its errors are on standard error" unless $?.success?

      Marshal.load(data)
    end
  end

  def self.compare(script, names)
    names.each do |name|
      define_method("test_#{name}") do
        plain = self.class.results(script)
        ours = self.class.results(script, "-I#{LIB}", "-reagain/nonblock")
        NonblockCases::VARIANTS.each do |variant|
          expected, actual = [plain, ours].map { |results| results.fetch([name, variant]) }
          assert expected == actual, "#{variant}\nRuby: #{expected.inspect}\nours: #{actual.inspect}"
        end
      end
    end

    # No case is one only because of a slip in it.
    define_method("test_of_#{File.basename(script, ".rb")}_itself") do
      failed = self.class.results(script).select { |(_, variant), result| variant.empty? && result.inspect.match?(/:raised, "(?:NameError|NoMethodError|RuntimeError)"/) }
      assert_empty failed.keys.map(&:first).grep_v(/control 5|no such thing|inside a rescue|inside an ensure/)
    end
  end
end
