/* What a socket is and where it leads. */
#include "calls.h"

void ea_init_memory(VALUE module) {
    (void)module;
}
