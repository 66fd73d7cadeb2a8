# The commands of the project. `make` itself must be there; the rest is found, installed or named by
# script/setup.
#
#   make                build/libeagain.{a,so}, build/eagain.pc, and the extension for $(RUBY)
#   make demo           the main job: 1,000 URLs through unmodified Net::HTTP
#   make test           everything that can be tested with this machine's Ruby
#   make test-chroots   the Ruby tests under other Rubies, in Debian chroots
#   make bench          measures; bench-peers installs what it compares with
#   make install        the C library, below $(DESTDIR)$(PREFIX); uninstall removes what this checkout installed last
#   make gem            pkg/eagain-VERSION.gem
#   make format lint clean
#
# Parts of `make test`: test-c test-sanitizers test-valgrind test-ruby test-io-uring test-fast test-asan-ruby
# test-install test-gem test-kgio test-unicorn.
# With TESTS="test/ruby/test_x.rb ..." the Ruby ones of these run these files alone; ARGS go to Minitest.

RUBY ?= ruby
PREFIX ?= /usr/local
DESTDIR ?=
BUILD := build
JOBS ?= $(shell nproc 2>/dev/null || echo 2)
CMAKE_FLAGS ?=
export JOBS

.DEFAULT_GOAL := all
.PHONY: all setup-build lib ext demo test test-c test-sanitizers test-asan test-tsan test-valgrind \
        test-ruby test-io-uring test-fast test-asan-ruby test-install test-gem test-kgio test-unicorn \
        test-chroots bench bench-peers install uninstall gem format lint clean

all: lib ext

setup-build:
	@script/setup --check build

lib: setup-build
	@script/build-c --libraries $(BUILD) $(CMAKE_FLAGS) -DCMAKE_INSTALL_PREFIX=$(PREFIX)

ext: setup-build
	@$(RUBY) script/build-ext

demo:
	@script/setup build demo
	@echo "building libeagain and the extension"
	@$(MAKE) --no-print-directory all
	@RUBY="$(RUBY)" examples/demo

test:
	@script/setup build test kgio unicorn
	@RUBY="$(RUBY)" script/test

test-sanitizers: test-asan test-tsan
test-c test-asan test-tsan test-valgrind test-ruby test-io-uring test-fast test-asan-ruby test-install test-gem test-kgio test-unicorn: setup-build
	@RUBY="$(RUBY)" script/test $(@:test-%=%)

test-chroots:
	@script/setup chroot
	@script/test chroots

bench: all
	@RUBY="$(RUBY)" bench/run $(ARGS)

bench-peers:
	@script/setup build bench
	@RUBY="$(RUBY)" bench/peers-install

install: lib
	@DESTDIR="$(DESTDIR)" cmake --install $(BUILD) --prefix "$(PREFIX)"
	@[ -n "$(DESTDIR)" ] || [ "$$(id -u)" != 0 ] || ! command -v ldconfig >/dev/null || ldconfig

uninstall:
	@sed 's|^|$(DESTDIR)|' $(BUILD)/install_manifest.txt | xargs -rd '\n' rm -fv

gem: setup-build
	@mkdir -p pkg
	@$(RUBY) -S gem build --output pkg/eagain-$(shell $(RUBY) -Ilib -reagain/version -e 'print Eagain::VERSION').gem eagain.gemspec

format:
	@script/setup lint
	@script/lint --format

lint:
	@script/setup build lint
	@RUBY="$(RUBY)" script/lint

clean:
	rm -rf build pkg
	rm -rf lib/eagain/[0-9]* lib/eagain/*.so
