# frozen_string_literal: true

require_relative "helper"

return unless ENV["EAGAIN_KGIO_GEM"]

# eagain/kgio beside the kgio gem that it stands in for: the same constants, methods and answers. Part of
# script/kgio-tests, which builds the gem and says where it is (EAGAIN_KGIO_GEM).
class KgioGemTest < EagainTest
  GEM = ENV["EAGAIN_KGIO_GEM"]
  SHIM = File.join(ROOT, "test/compat/kgio")

  # What a script prints over the gem, and over ours.
  def both(*arguments, env: {})
    [["-I#{GEM}/lib"], ["-I#{SHIM}", "-I#{LIB}"]].map do |flags|
      out, err, status = run_command(env, RUBY, "-W0", *flags, *arguments, timeout: 120)
      assert status.success?, "#{flags}: #{status}\n#{out.lines.last(5).join}\n#{err}"
      out
    end
  end

  def test_constants_and_methods
    script = <<~'RUBY'
      require "kgio"
      modules = [Kgio]
      Kgio.constants.sort.each do |name|
        value = Kgio.const_get(name)
        value.is_a?(Module) ? modules << value : puts("#{name} = #{value.inspect}")
      end
      modules.each do |mod|
        parents = mod.ancestors - [mod]
        puts "#{mod.class} #{mod}: #{parents.grep(/Kgio/)}, #{parents.grep(Class).first}, #{mod.constants(false).sort}"
        %i[instance_methods private_instance_methods].each do |list|
          mod.send(list, false).sort.each { |name| puts "  #{list} #{name} #{mod.instance_method(name).arity}" }
        end
        mod.singleton_methods(false).sort.each { |name| puts "  .#{name} #{mod.method(name).arity}" }
      end
    RUBY
    theirs, ours = both("-e", script)
    assert_operator theirs.lines.size, :>, 60
    assert_equal theirs, ours
  end

  # Where we mean to differ: the question, and what we answer.
  DIFFERENT = {
    # The gem's writev forgets that there is something to push.
    "autopush of what is accepted: " => "[true, nil, :wait_readable, \"x\"]",
  }.freeze

  def test_behaviour
    theirs, ours = both(File.join(ROOT, "test/compat/kgio/behaviour.rb"), env: { "SEED_STRESS" => seed.to_s })
    assert_operator theirs.lines.size, :>, 700
    theirs = theirs.lines.map do |line|
      what = line[/\A.*?: /]
      DIFFERENT[what] ? "#{what}#{DIFFERENT[what]}\n" : line
    end
    differences = theirs.zip(ours.lines).reject { |their, our| their == our }
    assert_empty differences, differences.first(20).map { |their, our| "gem:  #{their}ours: #{our}" }.join
    assert_equal theirs.size, ours.lines.size
  end
end
