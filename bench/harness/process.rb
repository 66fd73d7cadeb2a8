# frozen_string_literal: true

require "json"
require "rbconfig"
require "tempfile"
require "timeout"
require_relative "registry"

module Bench
  # Starts child.rb, with or without strace around it, and never leaves one behind.
  class ChildProcess
    # A child that did not answer; the message is for the report.
    class Failed < StandardError; end

    # One that was killed, as its time was over.
    class NoAnswer < Failed; end

    CHILD = File.expand_path("child.rb", __dir__)

    # +peer_name+:: whose environment the child gets
    # +limit+:: seconds after which it is killed
    # +env+:: Hash of further environment variables
    # +options+:: Array of what Ruby is started with
    def initialize(peer_name, limit:, env: {}, options: [])
      @peer = Bench.peer(peer_name)
      @limit = limit
      @env = @peer.env.merge(env)
      @ruby = [RbConfig.ruby, *options, CHILD, peer_name]
    end

    # Hash with Symbol keys, as Child#probe and Child#measure say. Blocks until the child has ended.
    # Raises Failed.
    def probe
      answer([*@ruby, "--probe"])
    end

    # As #probe.
    def measure(row_name, scale, size = nil)
      answer(command(row_name, scale, *size))
    end

    # Hash of system call name to Integer: all that the process and its threads made, start-up
    # included. Needs strace in the PATH.
    def system_calls(row_name, scale)
      Tempfile.create("eagain-bench") do |table|
        sample = answer(["strace", "-f", "-c", "-o", table.path, *command(row_name, scale)])
        [sample, parse(table.read)]
      end
    end

    # Whether strace is there.
    def self.strace?
      ENV.fetch("PATH", "").split(":").any? { |folder| File.executable?(File.join(folder, "strace")) }
    end

    private

    def command(row_name, scale, *size)
      @peer.command(row_name, scale) || [*@ruby, row_name, scale.to_s, *size.map(&:to_s)]
    end

    def answer(command)
      text, errors, status = capture(command)
      unless status.success?
        reason = errors.lines.map(&:strip).reject(&:empty?).first || "no message"
        raise Failed, "#{how_it_ended(status)}: #{reason}"
      end

      JSON.parse(text, symbolize_names: true)
    rescue JSON::ParserError
      raise Failed, "unreadable answer #{text[0, 80].inspect}"
    end

    def how_it_ended(status)
      return "killed by SIG#{Signal.signame(status.termsig)}" if status.signaled?

      "exit #{status.exitstatus}"
    end

    # A process group of its own, so that a strace takes its child along when it is killed.
    def capture(command)
      Tempfile.create("eagain-bench") do |errors|
        reader, writer = IO.pipe
        pid = Process.spawn(@env, *command, in: File::NULL, out: writer, err: errors.path, pgroup: true)
        writer.close
        status = nil
        text = Timeout.timeout(@limit) { reader.read.tap { status = Process.wait2(pid).last } }
        [text, File.read(errors.path), status]
      rescue Timeout::Error
        raise NoAnswer, "no answer after #{@limit} s"
      ensure
        reap(pid) if pid && status.nil?
        reader&.close
      end
    end

    def reap(pid)
      Process.kill(:KILL, -pid)
      Process.wait(pid)
    rescue Errno::ESRCH, Errno::ECHILD
      nil
    end

    # The table of strace -c: % time, seconds, usecs/call, calls, [errors,] name.
    def parse(text)
      text.lines.filter_map do |line|
        fields = line.split
        next unless fields.size.between?(5, 6) && fields[0].match?(/\A[\d.]+\z/) && fields.last != "total"

        [fields.last, Integer(fields[3])]
      end.to_h
    end
  end
end
