# frozen_string_literal: true

require "timeout"

# ::timeout limits the time of a block.
module Eagain
  # Ends the block of Eagain.timeout. Not a StandardError, so that <tt>rescue => e</tt> inside the
  # block cannot swallow the timeout.
  class Expired < Exception # :nodoc:
    # The call of Eagain.timeout whose time is over.
    attr_reader :token

    def initialize(token)
      super("execution expired")
      @token = token
    end
  end
  private_constant :Expired

  # Runs the block, and interrupts it where it waits when its time is over.
  #
  #   Eagain.timeout(0.5) { socket.read }   # Timeout::Error: execution expired
  #
  # seconds:: an Integer, Float or Rational. nil and 0 mean no limit, as with Timeout.timeout.
  # klass:: the class to raise inside the block. If it is not given, nothing in the block but
  #         an +ensure+ or a <tt>rescue Exception</tt> notices, and
  #         Timeout::Error is raised here.
  # message:: what the exception says.
  #
  # Returns the value of the block, which gets +seconds+.
  #
  # In an event loop this costs a timer and no thread. The block is interrupted at its waits
  # only: one that computes is not. Elsewhere this is Timeout.timeout.
  #
  # Errors: TypeError for +seconds+ that are no number, ArgumentError for negative ones, both as of
  # Kernel#sleep; ArgumentError for no block; Timeout::Error or +klass+ when the time is over.
  def self.timeout(seconds, klass = nil, message = nil, &block)
    raise ArgumentError, "Eagain.timeout must be called with a block" unless block
    return yield(seconds) if seconds.nil? || seconds == 0

    deadline(seconds) # raises, if there is none

    scheduler = Fiber.current_scheduler
    return Timeout.timeout(seconds, klass, message, &block) unless scheduler.respond_to?(:timeout_after)

    message ||= "execution expired"
    return scheduler.timeout_after(seconds, klass, message, &block) if klass

    token = Object.new
    begin
      scheduler.timeout_after(seconds, Expired, token, &block)
    rescue Expired => expired
      raise unless expired.token.equal?(token)

      raise Timeout::Error, message, expired.backtrace, cause: nil
    end
  end
end
