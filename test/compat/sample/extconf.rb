# frozen_string_literal: true

require "mkmf"
require "eagain"

$INCFLAGS << " -I#{Eagain.include_dir.shellescape}"
$CFLAGS << " -Wall -Wextra -Wno-unused-parameter -Werror"
create_makefile("sample")
