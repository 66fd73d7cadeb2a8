/* rows/echo.rb as plain C: the clients and the server in one process. */
#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/ioctl.h>

#include "limit.h"

enum { CLIENTS = 30, MESSAGES = 4000, SIZE = 512 };

/* Both sides say and hear the same bytes; only who begins differs. A client has written its message
 * when it turns to reading; a server has read it when it turns to writing. */
static bool talk(struct limit_end *end) {
    while (end->left > 0) {
        size_t rest = end->size - end->at;
        ssize_t done = limit_try(end->replying ? write(end->fd, limit_buffer, rest)
                                               : read(end->fd, limit_buffer, rest),
                                 "talk");
        if (done < 0) {
            return true;
        }
        if (done == 0) {
            fprintf(stderr, "end of file with %lld messages to go\n", (long long)end->left);
            exit(1);
        }
        end->at += (size_t)done;
        if (end->at == end->size) {
            end->at = 0;
            end->replying = !end->replying;
            /* Each side makes two passes over a message. */
            end->left -= 1;
        }
    }
    return false;
}

int main(int argc, char **argv) {
    struct limit_end ends[CLIENTS * 2];
    int64_t messages = limit_scaled(argc, argv, MESSAGES);
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t length = sizeof address;
    int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (listener < 0 || bind(listener, (struct sockaddr *)&address, length) != 0 ||
        listen(listener, CLIENTS) != 0 ||
        getsockname(listener, (struct sockaddr *)&address, &length) != 0) {
        limit_fail("listen");
    }
    for (int i = 0; i < CLIENTS; i++) {
        int client = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
        if (client < 0 || connect(client, (struct sockaddr *)&address, length) != 0) {
            limit_fail("connect");
        }
        int server = accept4(listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
        int on = 1;
        if (server < 0 || ioctl(client, FIONBIO, &on) != 0) {
            limit_fail("accept4");
        }
        ends[2 * i] = (struct limit_end){
            .fd = client, .run = talk, .size = SIZE, .replying = true, .left = messages * 2};
        ends[2 * i + 1] =
            (struct limit_end){.fd = server, .run = talk, .size = SIZE, .left = messages * 2};
    }
    close(listener);
    return limit_run(ends, CLIENTS * 2, messages * CLIENTS);
}
