# frozen_string_literal: true

require_relative "helper"

# What the documentation shows must run, and print what it says.
class DocsTest < EagainTest
  DOCUMENTS = Dir[File.join(ROOT, "{README.md,docs/**/*.md}")].sort
  # A Ruby program, followed by what it prints.
  EXAMPLE = /^```ruby\n((?:(?!^```).)*)^```\n+```text\n(.*?)^```$/m

  def self.text(path) = File.read(path, encoding: Encoding::UTF_8) # in any locale

  def self.examples(path) = text(path).scan(EXAMPLE)

  DOCUMENTS.each do |path|
    name = path.delete_prefix("#{ROOT}/")
    examples(path).each_with_index do |(program, output), index|
      define_method("test_example_#{index + 1}_of_#{name}") do
        only_ours
        Dir.mktmpdir do |directory|
          script = File.join(directory, "try.rb")
          File.write(script, program)
          out, err, status = run_command({}, RUBY, "-W:no-experimental", "-I#{ROOT}/lib", script)
          assert_equal output, out, err
          assert_predicate status, :success?, err
          assert_empty err
        end
      end
    end

    define_method("test_links_of_#{name}") do
      links = self.class.text(path).scan(/\]\(([^)#\s]+)(?:#[^)]*)?\)/).flatten.grep_v(/\A[a-z]+:/)
      broken = links.reject { |link| File.exist?(File.expand_path(link, File.dirname(path))) }
      assert_empty broken
    end

    define_method("test_ruby_of_#{name}_compiles") do
      self.class.text(path).scan(/^```ruby\n(.*?)^```$/m).flatten.each do |program|
        RubyVM::InstructionSequence.compile(program)
      rescue SyntaxError => e
        flunk("#{e.message}\n#{program}")
      end
    end
  end

  def test_the_gem_contains_what_its_documents_link_to
    files = Dir.chdir(ROOT) { Gem::Specification.load("eagain.gemspec").files }
    documents = files.grep(/\.md\z/)
    assert_operator documents.size, :>, 10
    documents.each do |document|
      links = self.class.text(File.join(ROOT, document)).scan(/\]\(([^)#\s]+)(?:#[^)]*)?\)/).flatten.grep_v(/\A[a-z]+:/)
      paths = links.map { |link| File.expand_path(link, File.dirname("/#{document}")).delete_prefix("/") }
      assert_empty paths - files, document
    end
  end

  def test_the_tutorial_has_ten_programs
    assert_equal 10, self.class.examples(File.join(ROOT, "docs/tutorial/README.md")).size
  end
end
