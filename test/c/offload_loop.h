/* The smallest owner of jobs: an inbox and poll(2). The pool reaches a poller through its inbox
 * alone, so that is all that is set up. */
#ifndef OFFLOAD_LOOP_H
#define OFFLOAD_LOOP_H

#include <eagain/offload.h>

#include <poll.h>
#include <stdlib.h>

/* NULL when out of descriptors or memory. */
static inline struct ea_poll *loop_new(void) {
    struct ea_poll *poll = calloc(1, sizeof *poll);
    if (poll && ea_wake_init(&poll->wake) != 0) {
        free(poll);
        poll = NULL;
    }
    return poll;
}

static inline void loop_free(struct ea_poll *poll) {
    ea_wake_term(&poll->wake);
    free(poll);
}

/* One turn; sleeps at most a minute. False: nothing came. */
static inline bool loop_turn(struct ea_poll *loop) {
    if (ea_wake_prepare(&loop->wake)) {
        struct pollfd pfd = {.fd = loop->wake.read_fd, .events = POLLIN};
        ea_wake_finish(&loop->wake, poll(&pfd, 1, 60 * 1000) == 1);
    }
    return ea_wake_deliver(&loop->wake) > 0;
}

#endif
