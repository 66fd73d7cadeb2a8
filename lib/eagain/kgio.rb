# frozen_string_literal: true

# A drop-in for the kgio gem (2.11.4): everything that <tt>require "kgio"</tt> would define, over eagain's
# core. Afterwards <tt>require "kgio"</tt> does nothing, so that programs that ask for kgio by name, Unicorn
# for one, get this: <tt>ruby -reagain/kgio</tt>. It must come before the gem, which it cannot replace once
# that is loaded: LoadError.
#
# docs/how-to/kgio.md says where it differs.

require "socket"
require_relative "../eagain"

raise LoadError, "eagain/kgio: the kgio gem is loaded already" if defined?(::Kgio::PipeMethods)

Eagain.send(:define_kgio)

# What the gem would load, under the names by which it is asked for.
$LOADED_FEATURES.push("kgio.rb", "kgio_ext.so")
