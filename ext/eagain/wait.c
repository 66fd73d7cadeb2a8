/* Waiting for one IO. */
#include "calls.h"

void ea_init_wait(VALUE module) {
    (void)module;
}
