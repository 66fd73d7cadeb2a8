# frozen_string_literal: true

require "json"
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

  # What RDoc knows after `gem install`: name of the class => { method => has it a comment? }, "." before those
  # of the class itself.
  def rdoc(directory)
    out, err, status = run_command({}, RUBY, "-rrdoc", "-rrdoc/rdoc", "-rjson", "-e", <<~'RUBY', "#{ROOT}/lib", "#{ROOT}/ext", directory)
      directory = ARGV.pop
      RDoc::RDoc.new.document(["--ri", "--visibility=private", "--quiet", "--output", directory, *ARGV])
      takes_options = RDoc::Store.instance_method(:initialize).parameters.include?(%i[key path])
      store = takes_options ? RDoc::Store.new(RDoc::Options.new, path: directory) : RDoc::Store.new(directory)
      store.load_all
      known = store.all_classes_and_modules.to_h do |mod|
        methods = mod.method_list.to_h do |method|
          ["#{"." if method.singleton}#{method.name}", !method.comment.empty?]
        end
        [mod.full_name, methods]
      end
      puts JSON.generate(known)
    RUBY
    skip "RDoc is not installed" if err.include?("cannot load such file -- rdoc")
    assert_predicate status, :success?, err
    JSON.parse(out)
  end

  # Name of the class => what users call there.
  def public_calls
    script = <<~'RUBY'
      own = ->(klass, names) { names.select { |name| klass.instance_method(name).owner.name.to_s.start_with?("Eagain") } }
      after = %w[IO BasicSocket OpenSSL::SSL::SSLSocket].to_h { |name| [name, Object.const_get(name)] }
      after.transform_values! { |klass| klass.instance_methods.grep(/\Atry/) & own.(klass, klass.instance_methods.grep(/\Atry/)) }
      after["BasicSocket"] -= after["IO"]
      after["IO"] << ".tryopen"
      calls = { "Eagain" => Eagain.singleton_methods(false).map { |name| ".#{name}" } - %w[.loader],
                "Eagain::Task" => Eagain::Task.public_instance_methods(false) -
                                  %i[start group group= cancel! failure result deliver] +
                                  %i[.current .report_on_exception=],
                "Eagain::TimeoutError" => %i[written], "Eagain::Cancelled" => %i[task],
                "Eagain::Stream" => Eagain::Stream.public_instance_methods(false) + %i[.new .open],
                "Eagain::LimitError" => %i[limit],
                "Eagain::Scheduler" => %i[.new run close closed? push yield raise backend stats],
                "Eagain::Nonblock" => %i[.backtraces .backtraces=] }
      puts JSON.generate(calls.merge(after))
    RUBY
    JSON.parse(output_of(script, "-rjson", "-reagain/io"))
  end

  def test_ri_knows_every_call_and_nothing_else
    Dir.mktmpdir do |directory|
      known = rdoc("#{directory}/ri")
      known["OpenSSL::SSL::SSLSocket"].merge!(known.delete("Eagain::SSLMethods"))
      attributes = %w[task name report_on_exception group]
      public_calls.each do |klass, calls|
        methods = known.fetch(klass)
        refute_empty calls, klass
        assert_empty calls - methods.keys - attributes, klass
        assert_empty methods.keys - calls, klass
        assert_empty methods.reject { |_, documented| documented }.keys, klass
      end
      assert_empty known.keys.grep(/\AEagain/) - public_calls.keys
    end
  end

  def test_ri_of_the_module_has_no_run_of_blank_lines
    Dir.mktmpdir do |directory|
      rdoc("#{directory}/ri")
      out, err, = run_command({}, RUBY, "-rrdoc", "-rrdoc/ri/driver", "-e", <<~'RUBY', "#{directory}/ri")
        RDoc::RI::Driver.run(["--no-pager", "--no-standard-docs", "--format=rdoc", "-d", ARGV[0], "Eagain"])
      RUBY
      assert_match(/^BACKENDS:*\n +The names/, out, err)
      refute_match(/\n{4}/, out)
    end
  end

  def test_the_tutorial_has_ten_programs
    assert_equal 10, self.class.examples(File.join(ROOT, "docs/tutorial/README.md")).size
  end
end
