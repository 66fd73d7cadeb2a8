# frozen_string_literal: true

require_relative "helper"

# Interface versions that no Ruby here has are built on purpose, and their hooks are called as those
# Rubies would call them.
class ForcedVersionsTest < EagainTest
  [1, 2, 4, 5].each do |version|
    define_method("test_version_#{version}") do
      only_ours
      skip "the sources are not here" unless File.exist?(File.join(ROOT, "ext/eagain/extconf.rb"))

      Dir.mktmpdir do |dir|
        lib = build(version, dir)
        out, err, status = run_command({ "EAGAIN_TEST_PEER" => nil, "RUBYOPT" => nil }, RUBY,
                                       "-W:no-experimental", "-I#{lib}", "-I#{__dir__}",
                                       File.join(__dir__, "test_hooks.rb"), timeout: 120)
        assert status.success?, "#{out}\n#{err}"
        assert_match(/ 0 failures, 0 errors/, out)
        built, = run_command({}, RUBY, "-W:no-experimental", "-I#{lib}", "-reagain", "-e",
                             "print Eagain::Scheduler::INTERFACE_VERSION")
        assert_equal version.to_s, built
      end
    end
  end

  private

  # Builds the extension for a version; returns a lib directory with it and the Ruby files.
  def build(version, dir)
    objects = File.join(dir, "objects")
    lib = File.join(dir, "lib")
    FileUtils.mkdir_p(objects)
    FileUtils.cp_r(File.join(ROOT, "lib"), lib)
    FileUtils.rm_f(Dir[File.join(lib, "eagain/*/eagain.so")])
    _, err, status = run_command({ "CFLAGS" => "-O0" }, "sh", "-c", <<~SH, timeout: 300)
      cd #{objects} && #{RUBY} #{File.join(ROOT, "ext/eagain/extconf.rb")} --with-scheduler-version=#{version} >log 2>&1 &&
        make -j2 >>log 2>&1 || { cat log >&2; exit 1; }
    SH
    assert status.success?, err
    FileUtils.cp(File.join(objects, "eagain.so"), File.join(lib, "eagain"))
    lib
  end
end
