/* rows/small_try.rb as plain C. */
#include "calls.h"

static bool once(const int fds[2]) {
    char bytes[11];
    return send(fds[0], "hello world", 11, MSG_DONTWAIT) == 11 &&
           recv(fds[1], bytes, sizeof bytes, MSG_DONTWAIT) == 11;
}

int main(int argc, char **argv) {
    return calls_on_sockets(argc, argv, SOCK_STREAM);
}
