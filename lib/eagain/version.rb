# frozen_string_literal: true

# <tt>require "eagain/version"</tt> gives VERSION alone.
module Eagain
  # The gem's version (String); the same as EA_VERSION of <eagain/version.h>.
  VERSION = "0.1.0"
end
