# frozen_string_literal: true

require "etc"
require "fileutils"
require "rbconfig"
require "tmpdir"

module Bench
  # A server that the clients of a row talk to: one for all peers and rounds of it, in a temporary folder of its
  # own, on a UNIX socket there. It ends with this program, however that ends (guard.rb).
  #
  # A service is one file in bench/services, named after the class in it.
  class Service
    # A server that did not start; the message is for the report.
    class Failed < StandardError; end

    GUARD = File.expand_path("guard.rb", __dir__)
    PATIENCE = 30

    class << self
      # nil, or what this machine lacks for it (String).
      def missing
        raise NotImplementedError, "#{self}.missing"
      end

      # Hash of what runs to its version, for the report.
      def versions
        raise NotImplementedError, "#{self}.versions"
      end

      # Starts it for the block, which gets the environment variables (Hash) that tell clients where it is.
      # Raises Failed.
      def open
        service = new
        service.start
        yield service.env
      ensure
        service&.stop
      end

      # The path (String) of a program in the PATH or in the folders; nil of none.
      def program(name, *folders)
        places = ENV.fetch("PATH", "").split(":") + folders
        places.map { |folder| File.join(folder, name) }.find { |file| File.file?(file) && File.executable?(file) }
      end

      # String: the first version number that the program prints of itself.
      def version_of(program)
        IO.popen([program, "--version"], err: File::NULL, &:read)[/\d+(\.\d+)+/].to_s
      end
    end

    # Blocks until it answers.
    def start
      @folder = Dir.mktmpdir("eagain-bench")
      File.chown(Etc.getpwnam(user).uid, nil, @folder) unless user.empty?
      prepare
      reader, @hold = IO.pipe
      @guard = Process.spawn(RbConfig.ruby, GUARD, @folder, user, *command, in: reader, pgroup: true)
      reader.close
      wait_until_it_answers
    end

    # Blocks until it has ended and its folder is gone. Can be called at any time.
    def stop
      @hold&.close
      Process.wait(@guard) if @guard
      FileUtils.rm_rf(@folder) if @folder
    end

    # Hash of environment variables.
    def env
      raise NotImplementedError, "#{self.class}#env"
    end

    private

    # The user (String) that it runs as; empty for the present one.
    def user
      ""
    end

    # What comes before it is started, in @folder.
    def prepare; end

    # Array of String.
    def command
      raise NotImplementedError, "#{self.class}#command"
    end

    # Whether a client can come.
    def answers?
      raise NotImplementedError, "#{self.class}#answers?"
    end

    def wait_until_it_answers
      deadline = now + PATIENCE
      until answers?
        ended = Process.wait(@guard, Process::WNOHANG)
        @guard = nil if ended
        raise Failed, "#{self.class.name[/\w+\z/]} did not start" if ended || now > deadline

        sleep(0.02)
      end
    end

    def now
      Process.clock_gettime(Process::CLOCK_MONOTONIC)
    end
  end

  # Holds the services; each is found by the name of its file.
  module Services
  end
end
