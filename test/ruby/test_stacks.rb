# frozen_string_literal: true

require_relative "helper"

# What a task that waits takes of its C stack, which the kernel gives out in pages.
class StacksTest < EagainTest
  TASKS = 256

  # Prints how many pages are resident of the stacks of tasks that wait as the block says. Stacks are what the
  # process has most of among mappings of one size.
  SCRIPT = <<~RUBY
    require "socket"
    Process.setrlimit(:NOFILE, [Process.getrlimit(:NOFILE)[1], 2048].min)
    Fiber.set_scheduler(Eagain::Scheduler.new)
    wait = %<wait>s
    pairs = Array.new(%<tasks>d) { UNIXSocket.pair }
    pairs.each { |_, theirs| Fiber.schedule { wait.call(theirs) } }
    Fiber.schedule do
      sleep 0.03 # past the first re-check of those that wait
      areas = File.foreach("/proc/self/maps").filter_map do |line|
        $1.hex...$2.hex if line =~ /\\A(\\h+)-(\\h+) rw-p 0+ 00:00 0 *\\n/
      end
      size = areas.map(&:size).tally.max_by(&:last).first
      page = 4096
      pages = File.open("/proc/self/pagemap", "rb") do |file|
        areas.select { |area| area.size == size }.sum do |area|
          file.pread(size / page * 8, area.begin / page * 8).unpack("Q*").count { |entry| entry[63] == 1 }
        end
      end
      puts pages
      pairs.each { |mine, _| mine.close }
    end
    Fiber.set_scheduler(nil)
  RUBY

  def pages(wait)
    Integer(output_of(format(SCRIPT, tasks: TASKS, wait: wait))).fdiv(TASKS)
  end

  # A wait in the middle of IO#read, below the frames of Ruby's read and of its hook, fits into the pages
  # that the shortest wait touches.
  def test_a_task_that_waits_in_a_read_touches_no_more_pages_than_one_that_only_waits
    only_ours
    skip "no /proc/self/pagemap" unless File.readable?("/proc/self/pagemap")
    least = pages("->(io) { io.wait_readable }")
    assert_in_delta least, pages("->(io) { io.read(1) }"), 0.5
    assert_in_delta least, pages("->(io) { io.readpartial(1) rescue EOFError }"), 0.5
    # Nor do the short ways, which read into memory that all tasks share.
    assert_in_delta least, pages("->(io) { Eagain.read(io, 4096) }"), 0.5
    assert_in_delta least, pages("require('eagain/fast') && ->(io) { io.readpartial(4096) rescue EOFError }"), 0.5
  end
end
