# frozen_string_literal: true

module Eagain
  # Ruby's own methods, where the gem is asked to replace them.
  module Kept # :nodoc:
    # Keeps Ruby's own method under another name, for it is about to be redefined. Ruby does not warn of
    # that, since it is not lost.
    def self.keep(klass, *names)
      names.each do |name|
        next if klass.private_method_defined?(:"__ruby_#{name}", false) # loaded twice

        own = own(klass, name)
        klass.define_method(:"__ruby_#{name}", own)
        klass.__send__(:private, :"__ruby_#{name}")
      end
    end

    # What was prepended is not Ruby's own.
    def self.own(klass, name)
      own = klass.instance_method(name)
      own = own.super_method until own.owner == klass
      own
    end

    # Has the program put another in the place of Ruby's?
    def self.replaced?(klass, name)
      file, = own(klass, name).source_location
      !(file.nil? || file.start_with?("<internal:"))
    end
  end
  private_constant :Kept
end
