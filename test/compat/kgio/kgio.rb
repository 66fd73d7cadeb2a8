# frozen_string_literal: true

# Stands in for the kgio gem: with this folder on the load path, `require "kgio"` is ours.
require "eagain/kgio"
