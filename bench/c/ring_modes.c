/* What each way to wait for data and to read it costs: CPU nanoseconds of this process for each message,
 * where N pairs echo. See docs/decisions/io_uring.md.
 *
 *   ring_modes MODE KIND PAIRS SIZE MESSAGES [peer]
 *
 *   MODE  epoll     try, epoll, read                     (edge-triggered, registered once)
 *         poll      try, POLL_ADD, read
 *         op        try, RECV/READ by the ring
 *         direct    RECV/READ by the ring at once
 *         first     the same, with IORING_RECVSEND_POLL_FIRST
 *         multi     multishot RECV into a ring of buffers, copied from there
 *         send      as direct, and SEND/WRITE by the ring
 *   KIND  unix, tcp, pipe
 *   peer  the clients are another process, which uses epoll; only the server is measured */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <liburing.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum mode { EPOLL, POLL, OP, DIRECT, FIRST, MULTI, SEND, MODES };
static const char *const mode_names[MODES] = {"epoll", "poll",  "op",  "direct",
                                              "first", "multi", "send"};

struct conn {
    int in, out;
    bool client, sending;
    char *buf;
    size_t have;
    long left;
    char *stash; /* multi: bytes that came, not taken yet */
    size_t stashed;
};

#define ENTRIES 1024
#define BUFFERS 1024
#define BUFFER 4096

static enum mode mode;
static bool is_pipe;
static size_t size;
static int epfd;
static struct io_uring ring;
static struct io_uring_buf_ring *buffers;
static char *buffer_memory;
static long active, calls, enters;

static void die(const char *what) {
    perror(what);
    exit(1);
}

static ssize_t try_read(struct conn *c) {
    calls++;
    if (!is_pipe)
        return recv(c->in, c->buf + c->have, size - c->have, MSG_DONTWAIT);
    struct iovec iov = {c->buf + c->have, size - c->have};
    return preadv2(c->in, &iov, 1, -1, RWF_NOWAIT);
}

static void try_write(struct conn *c) {
    calls++;
    ssize_t r;
    if (!is_pipe) {
        r = send(c->out, c->buf, size, MSG_DONTWAIT);
    } else {
        struct iovec iov = {c->buf, size};
        r = pwritev2(c->out, &iov, 1, -1, RWF_NOWAIT);
    }
    if (r != (ssize_t)size)
        die("short write");
}

static struct io_uring_sqe *sqe_for(struct conn *c) {
    struct io_uring_sqe *sqe = io_uring_get_sqe(&ring);
    if (!sqe) {
        enters++;
        io_uring_submit_and_get_events(&ring);
        sqe = io_uring_get_sqe(&ring);
    }
    io_uring_sqe_set_data(sqe, c);
    return sqe;
}

static void ask_recv(struct conn *c) {
    struct io_uring_sqe *sqe = sqe_for(c);
    if (is_pipe)
        io_uring_prep_read(sqe, c->in, c->buf + c->have, size - c->have, -1);
    else
        io_uring_prep_recv(sqe, c->in, c->buf + c->have, size - c->have, 0);
    if (mode == FIRST)
        sqe->ioprio |= IORING_RECVSEND_POLL_FIRST;
    io_uring_sqe_set_data(sqe, c);
}

static void ask_multi(struct conn *c) {
    struct io_uring_sqe *sqe = sqe_for(c);
    io_uring_prep_recv_multishot(sqe, c->in, NULL, 0, 0);
    sqe->flags |= IOSQE_BUFFER_SELECT;
    sqe->buf_group = 0;
    io_uring_sqe_set_data(sqe, c);
}

static void ask_send(struct conn *c) {
    struct io_uring_sqe *sqe = sqe_for(c);
    if (is_pipe)
        io_uring_prep_write(sqe, c->out, c->buf, size, -1);
    else
        io_uring_prep_send(sqe, c->out, c->buf, size, 0);
    io_uring_sqe_set_data(sqe, c);
    c->sending = true;
}

/* Waits for more, as the mode does. */
static void await(struct conn *c) {
    if (mode == POLL) {
        struct io_uring_sqe *sqe = sqe_for(c);
        io_uring_prep_poll_add(sqe, c->in, POLLIN);
        io_uring_sqe_set_data(sqe, c);
    } else if (mode != EPOLL && mode != MULTI) {
        ask_recv(c);
    }
}

static void reply(struct conn *c) {
    if (mode == SEND)
        ask_send(c);
    else
        try_write(c);
}

/* A message is complete? Then answers. False: it was the last. */
static bool got(struct conn *c, size_t bytes) {
    c->have += bytes;
    if (c->have < size)
        return true;
    c->have = 0;
    if (--c->left == 0 && c->client) {
        active--;
        return false;
    }
    reply(c);
    if (c->left == 0) {
        active--;
        return false;
    }
    return true;
}

/* Reads what there is, and waits. */
static void go(struct conn *c) {
    if (mode <= OP) {
        for (;;) {
            ssize_t r = try_read(c);
            if (r < 0) {
                if (errno != EAGAIN)
                    die("read");
                await(c);
                return;
            }
            if (!got(c, (size_t)r))
                return;
        }
    }
    if (mode == MULTI) {
        while (c->stashed > 0 && c->left > 0) {
            size_t n = c->stashed < size - c->have ? c->stashed : size - c->have;
            memcpy(c->buf + c->have, c->stash, n);
            c->stashed -= n;
            memmove(c->stash, c->stash + n, c->stashed);
            if (!got(c, n))
                return;
        }
        return;
    }
    await(c);
}

static void arrived(struct conn *c, const struct io_uring_cqe *cqe) {
    if (mode == MULTI) {
        if (cqe->res < 0 && cqe->res != -ENOBUFS) {
            errno = -cqe->res;
            die("multi");
        }
        if (cqe->flags & IORING_CQE_F_BUFFER) {
            unsigned id = cqe->flags >> IORING_CQE_BUFFER_SHIFT;
            char *at = buffer_memory + (size_t)id * BUFFER;
            size_t n = (size_t)cqe->res;
            size_t take = n < size - c->have ? n : size - c->have;
            /* The usual case: into the reader's buffer, once. */
            if (c->stashed == 0) {
                memcpy(c->buf + c->have, at, take);
                memcpy(c->stash, at + take, n - take);
                c->stashed = n - take;
            } else {
                memcpy(c->stash + c->stashed, at, n);
                c->stashed += n;
                take = 0;
            }
            io_uring_buf_ring_add(buffers, at, BUFFER, (unsigned short)id,
                                  io_uring_buf_ring_mask(BUFFERS), 0);
            io_uring_buf_ring_advance(buffers, 1);
            if (!(cqe->flags & IORING_CQE_F_MORE) && c->left > 0)
                ask_multi(c);
            if (got(c, take))
                go(c);
        } else if (c->left > 0) {
            ask_multi(c);
        }
        return;
    }
    if (mode == POLL) {
        go(c);
        return;
    }
    if (cqe->res <= 0) {
        errno = -cqe->res;
        die("op");
    }
    if (c->sending) {
        c->sending = false;
        if (cqe->res != (int)size)
            die("short send");
        if (c->left > 0)
            ask_recv(c);
        return;
    }
    if (got(c, (size_t)cqe->res) && !c->sending)
        go(c);
}

static void run_epoll(void) {
    struct epoll_event events[256];
    while (active > 0) {
        enters++;
        int n = epoll_wait(epfd, events, 256, -1);
        for (int i = 0; i < n; i++) {
            struct conn *c = events[i].data.ptr;
            if (c->left > 0)
                go(c);
        }
    }
}

static void run_ring(void) {
    while (active > 0) {
        enters++;
        io_uring_submit_and_wait(&ring, 1);
        struct io_uring_cqe *cqe;
        unsigned head, seen = 0;
        io_uring_for_each_cqe(&ring, head, cqe) {
            seen++;
            struct io_uring_cqe copy = *cqe;
            arrived(io_uring_cqe_get_data(cqe), &copy);
        }
        io_uring_cq_advance(&ring, seen);
    }
}

static void make_pair(const char *kind, int listener, struct conn *a, struct conn *b) {
    int x[2], y[2];
    if (is_pipe) {
        if (pipe(x) || pipe(y))
            die("pipe");
        a->in = x[0], b->out = x[1];
        b->in = y[0], a->out = y[1];
        return;
    }
    if (strcmp(kind, "unix") == 0) {
        if (socketpair(AF_UNIX, SOCK_STREAM, 0, x))
            die("socketpair");
    } else {
        struct sockaddr_in addr;
        socklen_t length = sizeof addr;
        getsockname(listener, (struct sockaddr *)&addr, &length);
        x[0] = socket(AF_INET, SOCK_STREAM, 0);
        if (connect(x[0], (struct sockaddr *)&addr, length))
            die("connect");
        x[1] = accept(listener, NULL, NULL);
        int one = 1;
        setsockopt(x[0], IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
        setsockopt(x[1], IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    }
    a->in = a->out = x[0];
    b->in = b->out = x[1];
}

static void set_up(struct conn *conns, int step, int pairs) {
    if (mode == EPOLL) {
        epfd = epoll_create1(0);
    } else {
        struct io_uring_params p = {.flags = IORING_SETUP_SINGLE_ISSUER |
                                             IORING_SETUP_DEFER_TASKRUN | IORING_SETUP_SUBMIT_ALL};
        int rc = io_uring_queue_init_params(ENTRIES, &ring, &p);
        if (rc < 0) {
            errno = -rc;
            die("ring");
        }
    }
    if (mode == MULTI) {
        size_t bytes = BUFFERS * sizeof(struct io_uring_buf);
        buffers = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_ANONYMOUS | MAP_PRIVATE, -1, 0);
        struct io_uring_buf_reg reg = {
            .ring_addr = (unsigned long)buffers, .ring_entries = BUFFERS, .bgid = 0};
        if (io_uring_register_buf_ring(&ring, &reg, 0))
            die("buf ring");
        io_uring_buf_ring_init(buffers);
        buffer_memory = malloc((size_t)BUFFERS * BUFFER);
        for (int i = 0; i < BUFFERS; i++)
            io_uring_buf_ring_add(buffers, buffer_memory + (size_t)i * BUFFER, BUFFER,
                                  (unsigned short)i, io_uring_buf_ring_mask(BUFFERS), i);
        io_uring_buf_ring_advance(buffers, BUFFERS);
    }
    for (int i = 0; i < 2 * pairs; i += step) {
        struct conn *c = &conns[i];
        if (mode == EPOLL) {
            struct epoll_event e = {.events = EPOLLIN | EPOLLET, .data.ptr = c};
            epoll_ctl(epfd, EPOLL_CTL_ADD, c->in, &e);
        } else if (mode == MULTI) {
            ask_multi(c);
        }
    }
}

int main(int argc, char **argv) {
    if (argc < 6)
        return 2;
    for (mode = 0; mode < MODES && strcmp(mode_names[mode], argv[1]) != 0; mode++)
        ;
    if (mode == MODES)
        return 2;
    is_pipe = strcmp(argv[2], "pipe") == 0;
    int pairs = atoi(argv[3]);
    size = (size_t)atol(argv[4]);
    long messages = atol(argv[5]) / 2 / pairs;
    bool peer = argc > 6;
    struct rlimit limit;
    getrlimit(RLIMIT_NOFILE, &limit);
    limit.rlim_cur = limit.rlim_max;
    setrlimit(RLIMIT_NOFILE, &limit);
    int listener = socket(AF_INET, SOCK_STREAM, 0);
    struct sockaddr_in any = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    if (bind(listener, (struct sockaddr *)&any, sizeof any) || listen(listener, 1024))
        die("listen");
    struct conn *conns = calloc(2 * (size_t)pairs, sizeof *conns);
    for (int i = 0; i < pairs; i++) {
        make_pair(argv[2], listener, &conns[2 * i], &conns[2 * i + 1]);
        for (int j = 0; j < 2; j++) {
            struct conn *c = &conns[2 * i + j];
            c->client = j == 0;
            c->buf = malloc(size);
            c->stash = malloc(size + 65536);
            memset(c->buf, 'x', size);
            c->left = messages;
        }
    }
    pid_t child = 0;
    struct conn *mine = conns;
    int step = 1;
    if (peer) {
        child = fork();
        step = 2;
        if (child == 0)
            mode = EPOLL;
        else
            mine = conns + 1;
    }
    active = peer ? pairs : 2 * pairs;
    set_up(mine, step, pairs);
    struct timespec t0, t1;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t0);
    for (int i = 0; i < 2 * pairs; i += step) {
        struct conn *c = &mine[i];
        if (c->client) {
            if (mode == SEND) {
                ask_send(c);
            } else {
                try_write(c);
                go(c);
            }
        } else {
            go(c);
        }
    }
    if (mode == EPOLL)
        run_epoll();
    else
        run_ring();
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t1);
    if (peer && child == 0)
        _exit(0);
    if (peer)
        waitpid(child, NULL, 0);
    double n = (double)messages * pairs * (peer ? 1 : 2);
    printf("%.0f %.2f\n",
           ((double)(t1.tv_sec - t0.tv_sec) * 1e9 + (double)(t1.tv_nsec - t0.tv_nsec)) / n,
           (double)(calls + enters) / n);
    return 0;
}
