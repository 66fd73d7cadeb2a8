/* What the C tests share: cmocka, descriptors, deadlines against hanging. */
#ifndef EA_TEST_SUPPORT_H
#define EA_TEST_SUPPORT_H

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

/* What CTest takes for "skipped". */
#define TEST_SKIPPED 77

static inline void test_hung(int signal) {
    static const char text[] = "a call that must not block did\n";
    (void)signal;
    if (write(STDERR_FILENO, text, sizeof(text) - 1) < 0) {
        /* Nothing to be done about it. */
    }
    _exit(1);
}

/* The whole process fails when what follows takes longer. 0: off. */
static inline void test_limit(unsigned seconds) {
    signal(SIGALRM, test_hung);
    alarm(seconds);
}

/* valgrind enforces no limit of descriptors on calls that make one. */
static inline bool test_under_valgrind(void) {
    const char *preload = getenv("LD_PRELOAD");
    return preload && strstr(preload, "vgpreload");
}

/* The call, which must succeed. */
static inline int test_ok(int result) {
    if (result < 0)
        fail_msg("%s", strerror(errno));
    return result;
}

static inline void test_set_nonblocking(int fd) {
    test_ok(fcntl(fd, F_SETFL, test_ok(fcntl(fd, F_GETFL)) | O_NONBLOCK));
}

static inline bool test_is_nonblocking(int fd) {
    return (test_ok(fcntl(fd, F_GETFL)) & O_NONBLOCK) != 0;
}

/* Makes fd the one descriptor of what `from` is, and closes `from`. */
static inline void test_replace(int from, int fd) {
    test_ok(dup2(from, fd));
    close(from);
}

/* Raises the limit of descriptors to what is needed. False: the hard limit forbids. */
static inline bool test_want_descriptors(rlim_t count) {
    struct rlimit limit;
    test_ok(getrlimit(RLIMIT_NOFILE, &limit));
    if (limit.rlim_cur >= count)
        return true;
    limit.rlim_cur = count;
    if (limit.rlim_max < count)
        limit.rlim_max = count; /* root may */
    return setrlimit(RLIMIT_NOFILE, &limit) == 0;
}

#endif
