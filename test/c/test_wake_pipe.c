/* The tests of test_wake.c over the portable pipe, whatever the library was built with: this
 * program brings its own ea_wake_* along. */
#define EA_WAKE_PIPE 1
#include "../../src/core/wake.c" // NOLINT(bugprone-suspicious-include)

#include "test_wake.c" // NOLINT(bugprone-suspicious-include)
