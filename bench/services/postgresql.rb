# frozen_string_literal: true

module Bench
  module Services
    # PostgreSQL with an empty database, to which nothing durable is written. It refuses to be root.
    class Postgresql < Service
      PORT = 5432

      class << self
        def missing
          "PostgreSQL is not installed (package postgresql): make bench-peers" unless tool("postgres") && tool("initdb")
        end

        def versions
          { "postgres" => version_of(tool("postgres")) }
        end

        # Debian has the server's programs in a folder for each version.
        def tool(name)
          program(name, *Dir.glob("/usr/lib/postgresql/*/bin").sort_by { |folder| -folder[/\d+/].to_i })
        end
      end

      def env
        { "BENCH_POSTGRESQL" => @folder }
      end

      private

      def user
        return "" unless Process.uid.zero?

        %w[postgres nobody].find do |name|
          Etc.getpwnam(name)
        rescue ArgumentError
          nil
        end
      end

      def prepare
        as = user.empty? ? [] : ["setpriv", "--reuid", user, "--clear-groups"]
        done = system(*as, self.class.tool("initdb"), "-D", data, "-U", "bench", "-A", "trust", "-E", "UTF8", "--locale=C",
                      "--no-sync", out: File::NULL, err: File::NULL, chdir: @folder)
        raise Failed, "initdb failed" unless done
      end

      def command
        [self.class.tool("postgres"), "-D", data, "-k", @folder, "-p", PORT.to_s, "-c", "listen_addresses=", "-c", "fsync=off",
         "-c", "autovacuum=off", "-c", "shared_buffers=32MB", "-c", "max_connections=100"]
      end

      def data
        File.join(@folder, "data")
      end

      # Its socket is there before it takes a client.
      def answers?
        File.read(File.join(data, "postmaster.pid")).lines.last.to_s.strip == "ready"
      rescue Errno::ENOENT
        false
      end
    end
  end
end
