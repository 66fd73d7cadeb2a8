/* rows/pipes.rb as plain C. */
#include <fcntl.h>

#include "limit.h"

enum { PAIRS = 48, MESSAGES = 10000, SIZE = 1024 };

int main(int argc, char **argv) {
    int fds[PAIRS * 2];
    int64_t messages = limit_scaled(argc, argv, MESSAGES);
    for (int i = 0; i < PAIRS; i++) {
        if (pipe2(&fds[2 * i], O_NONBLOCK | O_CLOEXEC) != 0) {
            limit_fail("pipe2");
        }
    }
    return limit_pairs(fds, PAIRS, messages, SIZE);
}
