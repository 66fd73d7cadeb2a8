/* tryaccept, tryconnect. */
#include "calls.h"

void ea_init_try_accept(VALUE module) {
    (void)module;
}
