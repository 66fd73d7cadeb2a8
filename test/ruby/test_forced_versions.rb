# frozen_string_literal: true

require_relative "helper"
require "fileutils"

# Interface versions that no Ruby here has are built on purpose, and their hooks are called as those
# Rubies would call them.
class ForcedVersionsTest < EagainTest
  VERSIONS = [1, 2, 4, 5].freeze

  def test_hooks_of_other_versions
    only_ours
    skip "the sources are not here" unless File.exist?(File.join(ROOT, "ext/eagain/extconf.rb"))

    Dir.mktmpdir do |dir|
      (VERSIONS - [Eagain::Scheduler::INTERFACE_VERSION]).each do |version|
        lib = build(version, dir)
        assert_equal version.to_s, ruby_with(lib, "-reagain", "-e", "print Eagain::Scheduler::INTERFACE_VERSION")
        out = ruby_with(lib, "-I#{__dir__}", File.join(__dir__, "test_hooks.rb"))
        assert_match(/^[1-9]\d+ runs, \d+ assertions, 0 failures, 0 errors/, out, "version #{version}")
      end
    end
  end

  private

  def ruby_with(lib, *arguments)
    env = { "EAGAIN_TEST_PEER" => nil, "RUBYOPT" => nil }
    out, err, status = run_command(env, RUBY, "-W:no-experimental", "-I#{lib}", *arguments, timeout: 120)
    assert status.success?, "#{out}\n#{err}"
    out
  end

  # Builds the extension for a version; returns a lib directory with it and the Ruby files. The
  # questions of extconf.rb are asked once, and what does not depend on the version compiled once.
  def build(version, dir)
    objects = File.join(dir, "objects")
    makefile = File.join(objects, "Makefile")
    if File.exist?(makefile)
      definition = /-DEA_RB_SCHEDULER_VERSION=\d+/
      assert_match definition, File.read(makefile)
      File.write(makefile, File.read(makefile).gsub(definition, "-DEA_RB_SCHEDULER_VERSION=#{version}"))
      FileUtils.rm(Dir[File.join(objects, "*.o")].reject { |path| File.basename(path).start_with?("core_") })
    else
      FileUtils.mkdir_p(objects)
      compile(objects, RUBY, File.join(ROOT, "ext/eagain/extconf.rb"), "--with-scheduler-version=#{version}")
    end
    compile(objects, "make", "-j2")

    lib = File.join(dir, "lib-#{version}")
    FileUtils.mkdir_p(File.join(lib, "eagain"))
    FileUtils.cp(Dir[File.join(ROOT, "lib/*.rb")], lib)
    FileUtils.cp_r(Dir[File.join(ROOT, "lib/eagain/*")].reject { |path| path.match?(%r{/[\d.+]+\z|\.so\z}) }, File.join(lib, "eagain"))
    FileUtils.cp(File.join(objects, "eagain.so"), File.join(lib, "eagain"))
    lib
  end

  def compile(dir, *command)
    script = "cd \"$1\" && shift && exec \"$@\" 2>&1"
    out, _, status = run_command({ "CFLAGS" => "-O0" }, "sh", "-c", script, "sh", dir, *command, timeout: 300)
    assert status.success?, out
  end
end
