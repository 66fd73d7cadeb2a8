/* rows/churn.rb as plain C: one connection after the other, so that nothing has to be waited for. */
enum { CLIENTS = 1, MESSAGES = 1, REQUEST = 1, RESPONSE = 1 };
#define CALLS_SCALED 200
#define CALLS_TIMES 50

#include "calls.h"
#include "echo.h"

static struct sockaddr_in address;

static bool once(const int fds[2]) {
    int client, server;
    char byte = 'x';
    echo_pair(fds[0], &address, &client, &server);
    bool right =
        write(client, &byte, 1) == 1 && read(server, &byte, 1) == 1 && write(server, &byte, 1) == 1;
    close(server);
    right = right && read(client, &byte, 1) == 1 && read(client, &byte, 1) == 0;
    close(client);
    return right;
}

int main(int argc, char **argv) {
    int listener = echo_listen(&address);
    return calls_run(argc, argv, (int[]){listener, listener});
}
