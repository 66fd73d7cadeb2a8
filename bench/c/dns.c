/* rows/dns.rb as plain C: one name after the other. */
#define CALLS_SCALED 50
#define CALLS_TIMES 100

#include <netdb.h>

#include "calls.h"

static bool once(const int fds[2]) {
    (void)fds;
    struct addrinfo *found, hints = {.ai_socktype = SOCK_STREAM};
    if (getaddrinfo("localhost", "80", &hints, &found) != 0)
        return false;
    bool right = found != NULL;
    freeaddrinfo(found);
    return right;
}

int main(int argc, char **argv) {
    return calls_run(argc, argv, (int[]){-1, -1});
}
