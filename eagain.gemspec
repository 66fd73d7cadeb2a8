# frozen_string_literal: true

require_relative "lib/eagain/version"

Gem::Specification.new do |spec|
  spec.name = "eagain"
  spec.version = Eagain::VERSION
  spec.authors = ["eagain authors"]
  spec.license = "MIT"
  spec.summary = 'Non-blocking I/O where "not ready yet" costs nothing'
  spec.description = <<~TEXT
    A fiber scheduler on a small C core: plain Net::HTTP, TCPSocket, OpenSSL, Queue, Mutex, sleep,
    DNS and subprocesses become concurrent, unchanged. It tries every operation before it waits,
    registers a descriptor once, and switches straight to the next runnable fiber.
  TEXT

  spec.required_ruby_version = ">= 3.1"
  spec.metadata["rubygems_mfa_required"] = "true"

  # The extension is compiled from the same tree as in a checkout. By pattern, not by version
  # control, which an unpacked source archive does not have.
  spec.files = Dir.chdir(__dir__) do
    Dir[
      "lib/**/*.rb", "ext/eagain/*.{c,h,rb}", "src/core/*.{c,h}", "include/**/*.h", "exe/*",
      "README.md", "LICENSE", "CHANGELOG.md", "docs/**/*.md", "examples/*.{rb,c}",
      "{lib,ext}/.document",
    ].sort
  end
  spec.bindir = "exe"
  spec.executables = ["eagain"]
  spec.require_paths = ["lib"]
  spec.extensions = ["ext/eagain/extconf.rb"]
  spec.extra_rdoc_files = ["README.md", "CHANGELOG.md", "LICENSE"]
end
