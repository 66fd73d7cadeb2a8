/* What the programs of this folder share: each does the work of a row as plain C, one thread, epoll
 * edge-triggered, each operation tried before it is waited for. It is the floor under the Ruby
 * peers: what the kernel takes for the same bytes, without an interpreter.
 *
 * A program is called with the scale (a fraction of the row's iterations), and prints one JSON
 * object with the fields of harness/child.rb. */
#ifndef EAGAIN_BENCH_LIMIT_H
#define EAGAIN_BENCH_LIMIT_H

#include <errno.h>
#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

/* One end of a connection, and what it is about to do there. */
struct limit_end {
    int fd;
    /* Goes on until it would block (true) or has done all (false). */
    bool (*run)(struct limit_end *end);
    size_t size;   /* of a message; at most sizeof limit_buffer */
    size_t at;     /* bytes of the present message that are through */
    bool replying; /* the message is on its way out, not in */
    int64_t left;  /* bytes to go (pairs), messages to go (echo) */
};

static char limit_buffer[64 * 1024];

static void limit_fail(const char *what) {
    perror(what);
    exit(1);
}

/* The number of iterations at the scale of the command line, as Row#scaled counts it. */
static int64_t limit_scaled(int argc, char **argv, int64_t count) {
    double scale = argc == 2 ? strtod(argv[1], NULL) : 0;
    if (!(scale > 0)) {
        fprintf(stderr, "usage: %s SCALE\n", argv[0]);
        exit(2);
    }
    int64_t scaled = llround((double)count * scale);
    return scaled < 1 ? 1 : scaled;
}

/* The result of read(2) or write(2), or -1 for "would block"; anything else ends the program. */
static inline ssize_t limit_try(ssize_t result, const char *what) {
    if (result < 0 && errno != EAGAIN) {
        limit_fail(what);
    }
    return result;
}

static inline bool limit_send(struct limit_end *end) {
    while (end->left > 0) {
        ssize_t sent = limit_try(write(end->fd, limit_buffer, end->size - end->at), "write");
        if (sent < 0) {
            return true;
        }
        end->at = (end->at + (size_t)sent) % end->size;
        end->left -= sent;
    }
    return false;
}

static inline bool limit_receive(struct limit_end *end) {
    while (end->left > 0) {
        ssize_t got = limit_try(read(end->fd, limit_buffer, end->size), "read");
        if (got < 0) {
            return true;
        }
        if (got == 0) {
            fprintf(stderr, "end of file with %lld bytes to go\n", (long long)end->left);
            exit(1);
        }
        end->left -= got;
    }
    return false;
}

static double limit_seconds(struct timeval t) {
    return (double)t.tv_sec + (double)t.tv_usec / 1e6;
}

/* The largest resident set in bytes. Not ru_maxrss, which an exec inherits from its parent. */
static long long limit_peak(void) {
    char line[256];
    long long kib = 0;
    FILE *status = fopen("/proc/self/status", "re");
    while (status != NULL && fgets(line, sizeof line, status) != NULL) {
        if (sscanf(line, "VmHWM: %lld kB", &kib) == 1) {
            break;
        }
    }
    if (status != NULL) {
        fclose(status);
    }
    return kib * 1024;
}

/* What harness/child.rb prints of a Ruby. */
static void limit_report(const struct timespec *from, const struct timespec *to,
                         const struct rusage *before, const struct rusage *after,
                         int64_t operations) {
    printf(
        "{\"wall\":%.6f,\"user\":%.6f,\"system\":%.6f,\"gc\":0,\"rss\":%lld,\"operations\":%lld}\n",
        (double)(to->tv_sec - from->tv_sec) + (double)(to->tv_nsec - from->tv_nsec) / 1e9,
        limit_seconds(after->ru_utime) - limit_seconds(before->ru_utime),
        limit_seconds(after->ru_stime) - limit_seconds(before->ru_stime), limit_peak(),
        (long long)operations);
}

/* Runs all ends until none has anything left, and prints the figures. Closes them. */
static inline int limit_run(struct limit_end *ends, int count, int64_t operations) {
    struct epoll_event events[128];
    struct timespec from, to;
    struct rusage before, after;
    int loop = epoll_create1(EPOLL_CLOEXEC);
    if (loop < 0) {
        limit_fail("epoll_create1");
    }
    getrusage(RUSAGE_SELF, &before);
    clock_gettime(CLOCK_MONOTONIC, &from);
    int busy = 0;
    for (int i = 0; i < count; i++) {
        struct epoll_event wish = {.events = EPOLLIN | EPOLLOUT | EPOLLET, .data.ptr = &ends[i]};
        if (epoll_ctl(loop, EPOLL_CTL_ADD, ends[i].fd, &wish) != 0) {
            limit_fail("epoll_ctl");
        }
        busy += 1;
    }
    /* The first report of a registration is what is ready already: nobody needs a first push. */
    while (busy > 0) {
        int ready = epoll_wait(loop, events, 128, -1);
        if (ready < 0 && errno != EINTR) {
            limit_fail("epoll_wait");
        }
        for (int i = 0; i < ready; i++) {
            struct limit_end *end = events[i].data.ptr;
            if (end->fd >= 0 && !end->run(end)) {
                close(end->fd);
                end->fd = -1;
                busy -= 1;
            }
        }
    }
    clock_gettime(CLOCK_MONOTONIC, &to);
    getrusage(RUSAGE_SELF, &after);
    close(loop);
    limit_report(&from, &to, &before, &after, operations);
    return 0;
}

/* The rows of pairs: the i-th pair has fds[2 * i] to read from and fds[2 * i + 1] to write to, both
 * non-blocking. */
static inline int limit_pairs(const int *fds, int pairs, int64_t messages, size_t size) {
    struct limit_end *ends = calloc((size_t)pairs * 2, sizeof *ends);
    if (ends == NULL) {
        limit_fail("calloc");
    }
    for (int i = 0; i < pairs * 2; i++) {
        ends[i] = (struct limit_end){.fd = fds[i],
                                     .run = i % 2 == 0 ? limit_receive : limit_send,
                                     .size = size,
                                     .left = messages * (int64_t)size};
    }
    int status = limit_run(ends, pairs * 2, messages * pairs);
    free(ends);
    return status;
}

#endif
