# frozen_string_literal: true

module Bench
  # A way to run things at the same time. A peer is one file in bench/peers, named after the class
  # in it (peers/threads_mn.rb holds Bench::Peers::ThreadsMn). A subclass states its +title+, the
  # +gems+ and the +env+ that it needs, and defines #spawn and #wait.
  class Peer
    class << self
      # One line for the list of peers. With an argument, sets it.
      def title(text = @title)
        @title = text
      end

      # Hash of gem name to version requirement, as bench/peers-install installs them. Sets it when
      # given. Evaluated on the running Ruby, so that a pin may depend on RUBY_VERSION.
      def gems(requirements = @gems || {})
        @gems = requirements
      end

      # The Ruby that the gems need, as a version requirement. Sets it when given.
      def ruby(requirement = @ruby || ">= 0")
        @ruby = requirement
      end

      # Whether the running Ruby is one.
      def ruby?
        Gem::Requirement.new(ruby).satisfied_by?(Gem::Version.new(RUBY_VERSION))
      end

      # Hash of row name (Symbol) to the reason (String) why it cannot do that, as was seen with the version in
      # +gems+ (bench/run --try-all looks again). Sets it when given.
      def cannot(reasons = @cannot || {})
        @cannot = reasons
      end

      # Hash of the environment variables that the process of this peer is started with.
      def env(variables = @env || {})
        @env = variables
      end

      # What it is (Symbol): :scheduler (a Fiber::Scheduler under unchanged Ruby), :patched (one under which Ruby's
      # methods are others), :threads, :loop (no tasks),
      # :calls (single calls), :own (tasks that make calls of their library's own), :floor. Sets it when given. A
      # subclass has its superclass's.
      def kind(word = nil)
        @kind = word if word
        @kind || (superclass.kind if superclass.respond_to?(:kind))
      end

      # Integer, or nil: more tasks than that it is not asked for, as it would take from others what the machine
      # has. Sets it when given. A subclass has its superclass's.
      def most(tasks = nil)
        @most = tasks if tasks
        @most || (superclass.most if superclass.respond_to?(:most))
      end

      # True for what this project builds; the others are what the table's ratio refers to.
      def ours?
        false
      end

      # True for what is no way to run Ruby, and only shows how fast the machine is.
      def floor?
        kind == :floor
      end

      # Array of the names of the rows that it can run: all that spawn something.
      def rows
        Bench.row_names.reject { |name| Bench.row(name) < CallRow }
      end

      # nil, as the row's Ruby is run; or the command (Array of String) that runs it instead, and
      # prints what Child#measure returns as JSON.
      def command(_row, _scale)
        nil
      end

      # nil, or the reason (String) why this peer cannot run here. Asked in a fresh process that
      # has the peer's gems and environment.
      def unavailable
        nil
      end

      # Hash of what runs to its version, for the report. Asked where #unavailable was.
      def versions
        gems.keys.to_h { |name| [name, Gem.loaded_specs[name]&.version.to_s] }
      end
    end

    # Called before the clock starts.
    def setup; end

    # The measured part.
    def call(row)
      row.call
    end

    # As Row#result.
    def result(row)
      row.result
    end

    # Starts the block next to the others.
    def spawn
      raise NotImplementedError, "#{self.class}#spawn"
    end

    # Blocks until everything that was spawned, also from inside, has ended.
    def wait
      raise NotImplementedError, "#{self.class}#wait"
    end

    # Called after the clock has stopped.
    def teardown; end
  end

  # A peer that runs each block in a Thread.
  class ThreadPeer < Peer
    kind :threads
    # A process id each: 32,768 are all that many a machine has.
    most 10_000

    def setup
      @threads = []
    end

    def spawn(&block)
      @threads << Thread.new(&block)
    end

    # A thread that spawns has put its child in the list before it ends itself, so an empty list
    # means that all have ended.
    def wait
      while (thread = @threads.shift)
        thread.join
      end
    end
  end

  # A peer that runs each block in a fiber of a Fiber::Scheduler; defines #scheduler.
  class SchedulerPeer < Peer
    kind :scheduler

    # A new Fiber::Scheduler that has a public #run.
    def scheduler
      raise NotImplementedError, "#{self.class}#scheduler"
    end

    def setup
      @scheduler = scheduler
      Fiber.set_scheduler(@scheduler)
    end

    def spawn(&block)
      Fiber.schedule(&block)
    end

    def wait
      @scheduler.run
    end

    def teardown
      Fiber.set_scheduler(nil)
    end
  end

  # Holds the peers; each is found by the name of its file.
  module Peers
  end
end
