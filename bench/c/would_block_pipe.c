/* rows/would_block_pipe.rb as plain C. */
#include "calls.h"

static bool once(const int fds[2]) {
    char bytes[11];
    struct iovec iov = {.iov_base = bytes, .iov_len = sizeof bytes};
    return preadv2(fds[0], &iov, 1, -1, RWF_NOWAIT) < 0 && errno == EAGAIN;
}

int main(int argc, char **argv) {
    int fds[2];
    if (pipe2(fds, O_CLOEXEC) != 0)
        limit_fail("pipe2");
    return calls_run(argc, argv, fds);
}
