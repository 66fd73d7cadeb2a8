/* tryrecv, tryrecvfrom, trysend. */
#include "calls.h"

void ea_init_try_socket(VALUE module) {
    (void)module;
}
