/* rows/seqpacket.rb as plain C. */
#include "calls.h"

static bool once(const int fds[2]) {
    char bytes[11];
    struct iovec iov = {.iov_base = "hello world", .iov_len = 11};
    struct msghdr message = {.msg_iov = &iov, .msg_iovlen = 1};
    return sendmsg(fds[0], &message, MSG_DONTWAIT) == 11 &&
           recv(fds[1], bytes, sizeof bytes, MSG_DONTWAIT) == 11;
}

int main(int argc, char **argv) {
    return calls_on_sockets(argc, argv, SOCK_SEQPACKET);
}
