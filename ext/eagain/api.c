/* for C extensions. */
#include "calls.h"

void ea_init_api(VALUE module) {
    (void)module;
}
