/* rows/would_block_raised.rb as plain C. */
#define CALLS_AT_ONCE 1
#include "calls.h"

static bool once(const int fds[2]) {
    char byte[11];
    return recv(fds[0], byte, sizeof byte, MSG_DONTWAIT) < 0 && errno == EAGAIN;
}

int main(int argc, char **argv) {
    return calls_on_sockets(argc, argv, SOCK_STREAM);
}
