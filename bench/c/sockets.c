/* rows/sockets.rb as plain C. */
#include "limit.h"

enum { PAIRS = 48, MESSAGES = 10000, SIZE = 16 * 1024 };

int main(int argc, char **argv) {
    int fds[PAIRS * 2];
    int64_t messages = limit_scaled(argc, argv, MESSAGES);
    for (int i = 0; i < PAIRS; i++) {
        if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, &fds[2 * i]) != 0) {
            limit_fail("socketpair");
        }
    }
    return limit_pairs(fds, PAIRS, messages, SIZE);
}
