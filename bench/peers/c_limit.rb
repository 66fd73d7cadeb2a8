# frozen_string_literal: true

require "fileutils"

module Bench
  module Peers
    # The floor: the row as a C program, bench/c/NAME.c, with one thread and epoll. It shows how much
    # of a peer's time is the kernel's; no ratio refers to it.
    class CLimit < Peer
      # By Ruby's version too: another Ruby may come with another C library, in a chroot.
      FOLDER = File.join(ROOT, "build", "bench-#{RUBY_VERSION}")

      title "plain C, one thread, epoll"
      kind :floor

      class << self
        def rows
          Bench.row_names.select { |row| File.file?(source(row)) }
        end

        def command(row, scale)
          [File.join(FOLDER, row), scale.to_s]
        end

        def unavailable
          FileUtils.mkdir_p(FOLDER)
          failed = rows.reject { |row| build(row) }
          "not built: cc failed for #{failed.join(", ")}" if failed.any?
        end

        private

        # Every time: a second is nothing here, and a stale program would go unnoticed.
        def build(row)
          system("cc", "-std=gnu17", "-D_GNU_SOURCE", "-O2", "-Wall", "-Wextra", "-o", File.join(FOLDER, row),
                 source(row), "-lm")
        end

        def source(row)
          File.join(ROOT, "bench", "c", "#{row}.c")
        end
      end
    end
  end
end
