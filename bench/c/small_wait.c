/* rows/small_wait.rb as plain C. */
#include "calls.h"

static bool once(const int fds[2]) {
    char bytes[11];
    return send(fds[0], "hello world", 11, 0) == 11 && recv(fds[1], bytes, sizeof bytes, 0) == 11;
}

int main(int argc, char **argv) {
    return calls_on_sockets(argc, argv, SOCK_STREAM);
}
