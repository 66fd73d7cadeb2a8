# frozen_string_literal: true

require "etc"
require "openssl"
require "rbconfig"
require_relative "registry"

module Bench
  # What the figures depend on besides the code.
  module Machine
    module_function

    # Hash: processor, processors, memory (bytes, nil if unknown), kernel, load (1 minute).
    def describe
      system = Etc.uname
      {
        processor: read("/proc/cpuinfo")[/^model name\s*:\s*(.+)/, 1] || system[:machine],
        processors: Etc.nprocessors,
        memory: read("/proc/meminfo")[/^MemTotal:\s+(\d+)/, 1]&.then { |kib| Integer(kib) * 1024 },
        kernel: "#{system[:sysname]} #{system[:release]} #{system[:machine]}",
        load: read("/proc/loadavg").split.first&.to_f
      }
    end

    # Hash: description, version, platform, compiler, OpenSSL's version, options (RUBYOPT).
    def ruby
      {
        description: RUBY_DESCRIPTION, version: RUBY_VERSION, platform: RUBY_PLATFORM,
        compiler: RbConfig::CONFIG["CC_VERSION_MESSAGE"].to_s.lines.first.to_s.strip,
        openssl: OpenSSL::OPENSSL_LIBRARY_VERSION, options: ENV["RUBYOPT"].to_s
      }
    end

    # String: the commit that is measured, "-dirty" if the sources differ from it; nil without git.
    def revision
      text = IO.popen(["git", "-C", ROOT, "describe", "--always", "--dirty"], err: File::NULL, &:read).strip
      text.empty? ? nil : text
    rescue Errno::ENOENT
      nil
    end

    def read(path)
      File.read(path)
    rescue SystemCallError
      ""
    end
    private_class_method :read
  end
end
