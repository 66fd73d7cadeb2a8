# frozen_string_literal: true

module Bench
  # What one process may have open.
  module Descriptors
    module_function

    # nil, or that there cannot be so many (String). Tries it: not every root may.
    def missing(count)
      soft, hard = Process.getrlimit(:NOFILE)
      return if hard >= count

      Process.setrlimit(:NOFILE, soft, count)
      Process.setrlimit(:NOFILE, soft, hard)
      nil
    rescue Errno::EPERM
      "needs #{count} descriptors, and the limit is #{hard} (ulimit -Hn)"
    end

    # Numeric: how many this process may have, or may get.
    def most(wanted)
      missing(wanted) ? Process.getrlimit(:NOFILE).last : wanted
    end

    def raise_limit(count)
      soft, hard = Process.getrlimit(:NOFILE)
      Process.setrlimit(:NOFILE, [soft, count].max, [hard, count].max) if soft < count
    end
  end

  # What one process may have of maps of memory: the stack of each fiber and thread is one, and its guard page
  # another.
  module Stacks
    # Those that Ruby has besides.
    OTHERS = 2_500

    module_function

    # nil, or that there cannot be so many (String).
    def missing(count)
      "#{count} tasks need #{2 * count + OTHERS} maps of memory, and the limit is #{limit} (sysctl vm.max_map_count)" if count > most
    end

    # Numeric: how many tasks there can be.
    def most
      (limit - OTHERS) / 2
    end

    def limit
      Integer(File.read("/proc/sys/vm/max_map_count"))
    rescue SystemCallError
      Float::INFINITY
    end
  end
end
