# frozen_string_literal: true

# The gem's extension: the binding (this folder) and the C core (src/core), in one shared object, so
# that nothing else has to be installed. Works in a checkout and in an unpacked gem, which has the
# same tree.
#
#   --with-scheduler-version=N   build for that RUBY_FIBER_SCHEDULER_VERSION instead of this Ruby's
#   --enable-werror              warnings are errors
#   --disable-io-uring           no io_uring backend, even where liburing is
#   CFLAGS, in the environment   replaces the optimisation and debug flags
require "mkmf"

root = File.expand_path("../..", __dir__)
core = "#{root}/src/core"

abort "eagain needs Ruby 3.1 or later; this is Ruby #{RUBY_VERSION}" if (RUBY_VERSION.split(".").map(&:to_i) <=> [3, 1]) < 0
abort "eagain needs CRuby; this is #{RUBY_ENGINE}" unless RUBY_ENGINE == "ruby"
abort "eagain: #{core} is missing; is this an incomplete checkout or gem?" if Dir["#{core}/*.c"].empty?

$CFLAGS = [$CFLAGS, ENV["CFLAGS"]].compact.join(" ")
$CFLAGS << " -std=gnu17 -fvisibility=hidden -fno-semantic-interposition"
$CFLAGS << " -O2" unless $CFLAGS.match?(/-O\w/)
# Not in $warnflags, which some builds of Ruby leave out. Ruby's own headers define inline functions
# that do not use all of their parameters.
$CFLAGS << " -Wall -Wextra -Wno-unused-parameter"
werror = enable_config("werror", false)
$CPPFLAGS << " -D_GNU_SOURCE"
$INCFLAGS << " -I$(srcdir)/../../include -I$(srcdir)/../../src -I$(srcdir)"

unless have_header("ruby/fiber/scheduler.h") && have_func("rb_fiber_scheduler_current", "ruby/fiber/scheduler.h")
  abort "eagain: this Ruby has no headers for fiber schedulers (ruby/fiber/scheduler.h); " \
        "on Debian and Ubuntu they are in ruby-dev"
end
abort "eagain needs POSIX threads" unless have_header("pthread.h")
have_library("pthread")

have_header("ruby/io/buffer.h")

# What this Ruby can do. Never compare versions: a feature is there or it is not.
{
  "ruby.h" => %w[rb_ext_ractor_safe rb_process_status_wait],
  "ruby/io.h" => %w[rb_io_buffered_read_p rb_io_descriptor rb_io_timeout],
  "ruby/fiber/scheduler.h" => %w[rb_fiber_scheduler_blocking_operation_extract],
  "ruby/thread.h" => %w[rb_thread_lock_native_thread],
}.each do |header, functions|
  functions.each { |function| have_func(function, header) } if have_header(header)
end
have_func("rb_thread_io_blocking_region") # exported, without a header; so is the next
have_func("rb_gvar_get")
have_struct_member("rb_io_t", "fd", "ruby/io.h") # hidden one day
have_struct_member("struct RObject", "as.heap.numiv", "ruby.h") # before objects had shapes
# What this system can do. cmake/Features.cmake asks the same questions under the same names.
{
  "accept4" => "sys/socket.h",
  "epoll_pwait2" => "sys/epoll.h",
  "eventfd" => "sys/eventfd.h",
  "pipe2" => "unistd.h",
  "ppoll" => "poll.h",
  "preadv2" => "sys/uio.h",
  "sendfile" => "sys/sendfile.h",
  "splice" => "fcntl.h",
}.each do |function, header|
  $defs << "-DEA_HAVE_#{function.upcase}" if have_func(function, header)
end

# The io_uring backend; 2.3 is the first liburing that has what it needs.
if enable_config("io-uring", true) && have_library("uring", "io_uring_submit_and_get_events", "liburing.h")
  $defs << "-DEA_HAVE_LIBURING"
end

# Does this Ruby keep the stack of a fiber that was transferred to, and has ended, until it is collected? (stacks.c)
def stacks_kept?
  return true if CROSS_COMPILING || !File.readable?("/proc/self/statm")

  pages = -> { File.read("/proc/self/statm").to_i }
  collects = !GC.disable
  before = pages.call
  100.times { Fiber.new {}.transfer }
  pages.call - before > 100 * 8
ensure
  GC.enable if collects
end
$defs << "-DEA_STACKS_ARE_KEPT" if checking_for("stacks of fibers that are kept") { stacks_kept? }

if (version = with_config("scheduler-version"))
  abort "--with-scheduler-version=#{version}: not a number" unless version.match?(/\A\d+\z/)
  $defs << "-DEA_RB_SCHEDULER_VERSION=#{version}"
end

# Nothing but the entry point leaves the extension, so that it cannot clash with a libeagain.so of
# another version in the same process.
File.write("exports.map", "{ global: Init_eagain; local: *; };\n")
$DLDFLAGS << " -Wl,--version-script=exports.map" if try_ldflags("-Wl,--version-script=exports.map")
$distcleanfiles << "exports.map"

# Objects of the core get a prefix: a file of the binding may have the name of the one it binds.
binding_sources = Dir["#{__dir__}/*.c"].sort
core_sources = Dir["#{core}/*.c"].sort
object = ->(path, prefix = "") { "#{prefix}#{File.basename(path, ".c")}.#{$OBJEXT}" }
$srcs = binding_sources
$objs = binding_sources.map { |path| object[path] } + core_sources.map { |path| object[path, "core_"] }

# Last, so that no feature check fails for a warning. A later Ruby deprecates what an earlier one has
# no other name for: that stays a warning.
$CFLAGS << " -Werror -Wno-error=deprecated-declarations" if werror
create_makefile("eagain/eagain")

# Header dependencies, by the compiler's own word.
dependencies = try_cflags("-MMD -MP") ? "-MMD -MP" : ""
File.open("Makefile", "a") do |makefile|
  makefile.puts "", "CFLAGS += #{dependencies}", "-include $(OBJS:.#{$OBJEXT}=.d)", ""
  core_sources.each do |path|
    source = "$(srcdir)/../../src/core/#{File.basename(path)}"
    makefile.puts "#{object[path, "core_"]}: #{source}",
                  "\t$(ECHO) compiling #{source}",
                  "\t$(Q) $(CC) $(INCFLAGS) $(CPPFLAGS) $(CFLAGS) $(COUTFLAG)$@ -c $(CSRCFLAG)#{source}", ""
  end
end
