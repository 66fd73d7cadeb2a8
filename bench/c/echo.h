/* A TCP server and its clients in one process, as plain C. A program defines CLIENTS, MESSAGES (round
 * trips of each at full scale), REQUEST and RESPONSE (bytes). */
#ifndef EAGAIN_BENCH_ECHO_H
#define EAGAIN_BENCH_ECHO_H

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/ioctl.h>

#include "limit.h"

/* Both sides hear what the other says; only who begins differs. A client has written its request when
 * it turns to reading; a server has read it when it turns to writing. Both are through with a message
 * when its bytes are. */
static bool echo_talk(struct limit_end *end, size_t out, size_t in) {
    while (end->left > 0) {
        size_t size = end->replying ? out : in;
        ssize_t done = limit_try(end->replying ? write(end->fd, limit_buffer, size - end->at)
                                               : read(end->fd, limit_buffer, size - end->at),
                                 "talk");
        if (done < 0) {
            return true;
        }
        if (done == 0) {
            fprintf(stderr, "end of file with %lld messages to go\n", (long long)end->left);
            exit(1);
        }
        end->at += (size_t)done;
        if (end->at == size) {
            end->at = 0;
            end->replying = !end->replying;
            /* Each side makes two passes, there and back. */
            end->left -= 1;
        }
    }
    return false;
}

static bool echo_ask(struct limit_end *end) {
    return echo_talk(end, REQUEST, RESPONSE);
}

static bool echo_answer(struct limit_end *end) {
    return echo_talk(end, RESPONSE, REQUEST);
}

/* Listens on the loopback interface. Returns the descriptor, and its address. */
static int echo_listen(struct sockaddr_in *address) {
    socklen_t length = sizeof *address;
    int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    *address =
        (struct sockaddr_in){.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    if (listener < 0 || bind(listener, (struct sockaddr *)address, length) != 0 ||
        listen(listener, SOMAXCONN) != 0 ||
        getsockname(listener, (struct sockaddr *)address, &length) != 0) {
        limit_fail("listen");
    }
    return listener;
}

/* Connects and accepts; both ends are non-blocking. */
static inline void echo_pair(int listener, const struct sockaddr_in *address, int *client,
                             int *server) {
    int on = 1;
    *client = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (*client < 0 || connect(*client, (const struct sockaddr *)address, sizeof *address) != 0) {
        limit_fail("connect");
    }
    *server = accept4(listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
    if (*server < 0 || ioctl(*client, FIONBIO, &on) != 0) {
        limit_fail("accept4");
    }
}

static inline int echo_run(int argc, char **argv) {
    static struct limit_end ends[CLIENTS * 2];
    int64_t messages = limit_scaled(argc, argv, MESSAGES);
    struct sockaddr_in address;
    int listener = echo_listen(&address);
    for (int i = 0; i < CLIENTS; i++) {
        int client, server;
        echo_pair(listener, &address, &client, &server);
        ends[2 * i] = (struct limit_end){
            .fd = client, .run = echo_ask, .replying = true, .left = messages * 2};
        ends[2 * i + 1] =
            (struct limit_end){.fd = server, .run = echo_answer, .left = messages * 2};
    }
    close(listener);
    return limit_run(ends, CLIENTS * 2, messages * CLIENTS);
}

#endif
