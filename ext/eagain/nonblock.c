/* would-block exceptions. */
#include "calls.h"

void ea_init_nonblock(VALUE module) {
    (void)module;
}
