/* tryrecvmsg, trysendmsg. */
#include "calls.h"

void ea_init_try_message(VALUE module) {
    (void)module;
}
