/* tryopen, trysendfile, trysplice. */
#include "calls.h"

void ea_init_try_file(VALUE module) {
    (void)module;
}
