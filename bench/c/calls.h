/* For the rows of single calls: the loop, its clock, and the report. A program defines `once`, which makes
 * the system calls of one operation and returns whether they did what they should. */
#ifndef EAGAIN_BENCH_CALLS_H
#define EAGAIN_BENCH_CALLS_H

#include <fcntl.h>
#include <sys/uio.h>

#include "limit.h"

static bool once(const int fds[2]);

/* So many in one turn of the loop, as CallRow#at_once. */
#ifndef CALLS_AT_ONCE
#define CALLS_AT_ONCE 10
#endif

/* Operations at full scale: those that the scale divides, times those of each. */
#ifndef CALLS_SCALED
#define CALLS_SCALED 1000000
#endif
#ifndef CALLS_TIMES
#define CALLS_TIMES 1
#endif

static inline bool calls_at_once(const int fds[2]) {
    bool right = true;
#pragma GCC unroll 10
    for (int i = 0; i < CALLS_AT_ONCE; i++)
        right &= once(fds);
    return right;
}

/* Runs a tenth of the operations to warm up, then all, and prints the figures. */
static int calls_run(int argc, char **argv, const int fds[2]) {
    int64_t count = limit_scaled(argc, argv, CALLS_SCALED) * CALLS_TIMES;
    int64_t turns = (count + CALLS_AT_ONCE - 1) / CALLS_AT_ONCE;
    struct timespec from, to;
    struct rusage before, after;
    bool right = true;
    for (int64_t i = 0; i < turns / 10; i++)
        right &= calls_at_once(fds);
    getrusage(RUSAGE_SELF, &before);
    clock_gettime(CLOCK_MONOTONIC, &from);
    for (int64_t i = 0; i < turns; i++)
        right &= calls_at_once(fds);
    clock_gettime(CLOCK_MONOTONIC, &to);
    getrusage(RUSAGE_SELF, &after);
    if (!right) {
        fprintf(stderr, "a call did not do what it should\n");
        return 1;
    }
    limit_report(&from, &to, &before, &after, turns * CALLS_AT_ONCE);
    return 0;
}

static inline int calls_on_sockets(int argc, char **argv, int type) {
    int fds[2];
    if (socketpair(AF_UNIX, type | SOCK_CLOEXEC, 0, fds) != 0)
        limit_fail("socketpair");
    return calls_run(argc, argv, fds);
}

#endif
