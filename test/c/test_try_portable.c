/* The attempts as a system without preadv2(2), accept4(2) and MSG_DONTWAIT gets them, under the
 * same tests. */
#define EA_TRY_PORTABLE
#define TRY_PORTABLE
#include "core/try.c"
#include "core/try_socket.c"

#include "test_try.c"
