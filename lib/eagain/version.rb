# frozen_string_literal: true

module Eagain
  # The gem's version (String); the same as EA_VERSION of <eagain/version.h>.
  VERSION = "0.1.0"
end
