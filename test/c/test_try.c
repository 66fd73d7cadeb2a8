/* One attempt never blocks and never lies, whatever the descriptor, its mode and what is believed
 * of it. Every test runs under an alarm. Built a second time by test_try_portable.c, without
 * Linux's calls; there TRY_PORTABLE is defined. */
#include "support.h"

#include <eagain/poll.h>
#include <eagain/try.h>

#include <arpa/inet.h>
#include <linux/net_tstamp.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <pty.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/un.h>
#include <termios.h>

/* What only Linux's calls give. */
#ifdef TRY_PORTABLE
#define ON_LINUX(check)                                                                            \
    do {                                                                                           \
        if (0)                                                                                     \
            check;                                                                                 \
    } while (0)
#else
#define ON_LINUX(check) check
#endif

/* A number of which nothing is known. */
static struct ea_fd entry(int number) {
    return (struct ea_fd){.fd = number, .generation = 1};
}

static struct ea_fd known(int number, uint32_t facts) {
    return (struct ea_fd){.fd = number, .generation = 1, .known = facts};
}

static char buf[1 << 20];

static void drain(int fd) {
    struct ea_fd all = entry(fd);
    while (ea_try_read(&all, buf, sizeof(buf)) > 0) {
    }
}

static int any_file(void) {
    char name[] = "/tmp/eagain-try-XXXXXX";
    int fd = test_ok(mkstemp(name));
    unlink(name);
    return fd;
}

/* Writes until there is no room; the sum. */
static size_t fill(struct ea_fd *fd, size_t piece) {
    size_t sum = 0;
    for (int i = 0; i < 1000000; i++) {
        ea_result r = ea_try_write(fd, buf, piece);
        if (r == EA_WAIT_WRITABLE)
            return sum;
        if (r <= 0)
            fail_msg("write: %s", ea_result_text(r));
        sum += (size_t)r;
    }
    fail_msg("never full");
    return 0;
}

/* --- Sockets. */

static void stream_sockets(void **state) {
    (void)state;
    int pair[2];
    test_ok(socketpair(AF_UNIX, SOCK_STREAM, 0, pair));
    struct ea_fd a = entry(pair[0]), b = entry(pair[1]);
    assert_int_equal(ea_try_read(&a, buf, 10), EA_WAIT_READABLE);
    assert_true(a.known & EA_FD_IS_SOCKET);
    test_ok((int)write(pair[1], "hello", 5));
    assert_int_equal(ea_try_read(&a, buf, 3), 3);
    assert_memory_equal(buf, "hel", 3);
    assert_int_equal(ea_try_read(&a, buf, 10), 2);
    assert_int_equal(ea_try_read(&a, buf, 10), EA_WAIT_READABLE);
    assert_false(test_is_nonblocking(pair[0])); /* never touched */

    assert_true(fill(&b, sizeof(buf)) > 10);
    assert_false(test_is_nonblocking(pair[1]));
    drain(pair[0]);
    assert_int_equal(ea_try_write(&b, "x", 1), 1);

    test_ok(shutdown(pair[1], SHUT_WR));
    assert_int_equal(ea_try_read(&a, buf, 10), 1);
    assert_int_equal(ea_try_read(&a, buf, 10), EA_EOF);
    assert_int_equal(ea_try_recv(&a, buf, 10, 0), EA_EOF);
    close(pair[1]);
    assert_int_equal(ea_try_write(&a, "x", 1), -EPIPE);
    close(pair[0]);
}

static void vectors_on_sockets(void **state) {
    (void)state;
    int pair[2];
    char first[3], second[8];
    test_ok(socketpair(AF_UNIX, SOCK_STREAM, 0, pair));
    struct ea_fd a = entry(pair[0]), b = entry(pair[1]);
    struct iovec out[] = {{"ab", 2}, {NULL, 0}, {"cdef", 4}};
    struct iovec in[] = {{first, sizeof(first)}, {second, sizeof(second)}};
    assert_int_equal(ea_try_readv(&a, in, 2), EA_WAIT_READABLE);
    ssize_t sent = ea_try_writev(&b, out, 3);
    ON_LINUX(assert_int_equal(sent, 6));
    while (sent < 6) /* the portable way may take a byte at a time from a stream that blocks */
        sent += ea_try_write(&b, &"abcdef"[sent], (size_t)(6 - sent));
    assert_int_equal(ea_try_readv(&a, in, 2), 6);
    assert_memory_equal(first, "abc", 3);
    assert_memory_equal(second, "def", 3);
    close(pair[1]);
    assert_int_equal(ea_try_readv(&a, in, 2), EA_EOF);
    assert_int_equal(ea_try_writev(&a, out, 3), -EPIPE);
    close(pair[0]);
}

static void messages(void **state) {
    (void)state;
    static const int types[] = {SOCK_DGRAM, SOCK_SEQPACKET};
    for (size_t i = 0; i < 2; i++) {
        int pair[2];
        test_ok(socketpair(AF_UNIX, types[i], 0, pair));
        struct ea_fd a = entry(pair[0]), b = entry(pair[1]);
        assert_int_equal(ea_try_read(&a, buf, 10), EA_WAIT_READABLE);
        assert_int_equal(ea_try_write(&b, "one", 3), 3);
        assert_int_equal(ea_try_write(&b, "", 0), 0); /* an empty message, as write(2) */
        assert_int_equal(ea_try_writev(&b, &(struct iovec){"three", 5}, 1), 5);
        assert_int_equal(ea_try_read(&a, buf, 0), 0); /* takes none */
        assert_int_equal(ea_try_read(&a, buf, 10), 3);
        assert_int_equal(ea_try_read(&a, buf, 10), 0); /* a count, not the end */
        assert_int_equal(ea_try_read(&a, buf, 2), 2);  /* the rest of a message is lost */
        assert_int_equal(ea_try_read(&a, buf, 10), EA_WAIT_READABLE);
        assert_int_equal(ea_try_write(&b, "", 0), 0);
        assert_int_equal(ea_try_recv(&a, buf, 10, 0), 0);

        struct msghdr msg = {.msg_iov = &(struct iovec){buf, 10}, .msg_iovlen = 1};
        assert_int_equal(ea_try_recvmsg(&a, &msg, 0), EA_WAIT_READABLE);
        assert_int_equal(ea_try_write(&b, "four", 4), 4);
        assert_int_equal(ea_try_recv(&a, buf, 0, MSG_PEEK | MSG_TRUNC), 4);
        assert_int_equal(ea_try_recvmsg(&a, &msg, 0), 4);
        if (types[i] == SOCK_DGRAM)
            assert_int_equal(fill(&b, 100) % 100, 0); /* whole messages */
        else
            fill(&b, 100);
        close(pair[0]);
        close(pair[1]);
    }
}

/* A pair of connected TCP sockets over loopback. */
static void tcp_pair(int pair[2]) {
    struct sockaddr_in addr = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t len = sizeof(addr);
    int listener = test_ok(socket(AF_INET, SOCK_STREAM, 0));
    test_ok(bind(listener, (struct sockaddr *)&addr, len));
    test_ok(listen(listener, 1));
    test_ok(getsockname(listener, (struct sockaddr *)&addr, &len));
    pair[0] = test_ok(socket(AF_INET, SOCK_STREAM, 0));
    test_ok(connect(pair[0], (struct sockaddr *)&addr, len));
    pair[1] = test_ok(accept(listener, NULL, NULL));
    close(listener);
}

static void reset_by_peer(void **state) {
    (void)state;
    int pair[2];
    tcp_pair(pair);
    struct ea_fd a = entry(pair[0]);
    test_ok(
        setsockopt(pair[1], SOL_SOCKET, SO_LINGER, &(struct linger){1, 0}, sizeof(struct linger)));
    close(pair[1]);
    assert_int_equal(ea_try_read(&a, buf, 10), -ECONNRESET);
    assert_int_equal(ea_try_read(&a, buf, 10), EA_EOF);
    assert_int_equal(ea_try_write(&a, "x", 1), -EPIPE);
    close(pair[0]);
}

static void nothing_to_read_from_a_stream(void **state) {
    (void)state;
    int pair[2];
    tcp_pair(pair);
    struct ea_fd a = entry(pair[0]);
    struct msghdr none = {0};
    assert_int_equal(ea_try_read(&a, buf, 0), 0);
    assert_int_equal(ea_try_recv(&a, buf, 0, 0), 0);
    assert_int_equal(ea_try_recvmsg(&a, &none, 0), 0);
    assert_int_equal(ea_try_write(&a, buf, 0), 0);
    assert_int_equal(ea_try_send(&a, buf, 0, 0), 0);
    /* Of nothing there is no sender. */
    struct sockaddr_storage from;
    socklen_t from_len = sizeof(from);
    assert_int_equal(ea_try_recvfrom(&a, buf, 0, 0, (struct sockaddr *)&from, &from_len), 0);
    assert_int_equal(from_len, 0);
    struct msghdr msg = {.msg_name = &from, .msg_namelen = sizeof(from)};
    assert_int_equal(ea_try_recvmsg(&a, &msg, 0), 0);
    assert_int_equal(msg.msg_namelen, 0);
    test_ok(write(pair[1], "x", 1) - 1);
    assert_int_equal(ea_try_recv(&a, buf, 0, 0), 0);
    assert_int_equal(ea_try_recv(&a, buf, 9, 0), 1);
    close(pair[1]);
    assert_int_equal(ea_try_read(&a, buf, 0), 0); /* not the end of file, either */
    assert_int_equal(ea_try_recv(&a, buf, 0, 0), 0);
    close(pair[0]);
}

static void addresses_and_control(void **state) {
    (void)state;
    struct sockaddr_in addr = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    struct sockaddr_in from = {0};
    socklen_t len = sizeof(addr), from_len = sizeof(from);
    int to = test_ok(socket(AF_INET, SOCK_DGRAM, 0)), one = test_ok(socket(AF_INET, SOCK_DGRAM, 0));
    test_ok(bind(to, (struct sockaddr *)&addr, len));
    test_ok(getsockname(to, (struct sockaddr *)&addr, &len));
    struct ea_fd a = entry(to), b = entry(one);
    assert_int_equal(ea_try_recvfrom(&a, buf, 10, 0, (struct sockaddr *)&from, &from_len),
                     EA_WAIT_READABLE);
    assert_int_equal(ea_try_sendto(&b, "hi", 2, 0, (struct sockaddr *)&addr, len), 2);
    assert_int_equal(ea_try_recvfrom(&a, buf, 10, 0, (struct sockaddr *)&from, &from_len), 2);
    assert_int_equal(from.sin_family, AF_INET);
    assert_int_equal(from_len, sizeof(from));

    /* A descriptor travels; the sender's struct is left as it was. */
    int pair[2];
    test_ok(socketpair(AF_UNIX, SOCK_STREAM, 0, pair));
    union {
        struct cmsghdr header;
        char room[CMSG_SPACE(sizeof(int))];
    } control = {.header = {CMSG_LEN(sizeof(int)), SOL_SOCKET, SCM_RIGHTS}};
    memcpy(CMSG_DATA(&control.header), &one, sizeof(int));
    struct msghdr msg = {.msg_iov = &(struct iovec){buf, 1},
                         .msg_iovlen = 1,
                         .msg_control = &control,
                         .msg_controllen = sizeof(control)};
    struct ea_fd c = entry(pair[0]), d = entry(pair[1]);
    assert_int_equal(ea_try_sendmsg(&c, &msg, 0), 1);
    assert_int_equal(ea_try_recvmsg(&d, &msg, MSG_CMSG_CLOEXEC), 1);
    struct cmsghdr *got = CMSG_FIRSTHDR(&msg);
    assert_non_null(got);
    assert_int_equal(got->cmsg_type, SCM_RIGHTS);
    int passed;
    memcpy(&passed, CMSG_DATA(got), sizeof(int));
    test_ok(fcntl(passed, F_GETFD));
    close(passed);
    close(pair[0]);
    close(pair[1]);
    close(to);
    close(one);
}

/* The refusal of an earlier datagram comes back once, from whatever is called next. */
static void udp_refused(void **state) {
    (void)state;
    struct sockaddr_in addr = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t len = sizeof(addr);
    int free_port = test_ok(socket(AF_INET, SOCK_DGRAM, 0));
    test_ok(bind(free_port, (struct sockaddr *)&addr, len));
    test_ok(getsockname(free_port, (struct sockaddr *)&addr, &len));
    close(free_port);
    int one = test_ok(socket(AF_INET, SOCK_DGRAM, 0));
    test_ok(connect(one, (struct sockaddr *)&addr, len));
    struct ea_fd a = entry(one);
    assert_int_equal(ea_try_write(&a, "x", 1), 1);
    assert_int_equal(ea_try_read(&a, buf, 10), -ECONNREFUSED);
    assert_int_equal(ea_try_read(&a, buf, 10), EA_WAIT_READABLE);
    assert_int_equal(ea_try_send(&a, "x", 1, 0), 1);
    assert_int_equal(ea_try_connected(&a), -ECONNREFUSED);
    close(one);
}

/* A message of the error queue without data is no end of file, not even on a stream. */
static void error_queue(void **state) {
    (void)state;
    int pair[2],
        on = SOF_TIMESTAMPING_TX_SOFTWARE | SOF_TIMESTAMPING_SOFTWARE | SOF_TIMESTAMPING_OPT_TSONLY;
    tcp_pair(pair);
    struct ea_fd a = entry(pair[0]);
    char control[512];
    struct msghdr msg = {.msg_iov = &(struct iovec){buf, 10},
                         .msg_iovlen = 1,
                         .msg_control = control,
                         .msg_controllen = sizeof(control)};
    ON_LINUX(assert_int_equal(ea_try_recvmsg(&a, &msg, MSG_ERRQUEUE), EA_WAIT_READABLE));
    if (setsockopt(pair[0], SOL_SOCKET, SO_TIMESTAMPING, &on, sizeof(on)) != 0)
        skip();
    assert_int_equal(ea_try_write(&a, "x", 1), 1);
    struct pollfd pfd = {.fd = pair[0]};
    if (poll(&pfd, 1, 1000) == 1) {
        msg.msg_controllen = sizeof(control);
        ON_LINUX(assert_int_equal(ea_try_recvmsg(&a, &msg, MSG_ERRQUEUE), 0));
    }
    close(pair[0]);
    close(pair[1]);
}

static void sockets_only(void **state) {
    (void)state;
    int pair[2];
    test_ok(pipe(pair));
    struct msghdr msg = {.msg_iov = &(struct iovec){buf, 1}, .msg_iovlen = 1};
    struct sockaddr_in addr = {.sin_family = AF_INET};
    for (int round = 0; round < 2; round++) {
        struct ea_fd in = known(pair[0], round ? EA_FD_NOT_SOCKET : 0);
        struct ea_fd out = known(pair[1], round ? EA_FD_NOT_SOCKET : 0);
        assert_int_equal(ea_try_recv(&in, buf, 1, 0), -ENOTSOCK);
        assert_int_equal(ea_try_recvfrom(&in, buf, 1, 0, NULL, NULL), -ENOTSOCK);
        assert_int_equal(ea_try_recvmsg(&in, &msg, 0), -ENOTSOCK);
        assert_int_equal(ea_try_send(&out, buf, 1, 0), -ENOTSOCK);
        assert_int_equal(ea_try_sendto(&out, buf, 1, 0, NULL, 0), -ENOTSOCK);
        assert_int_equal(ea_try_sendmsg(&out, &msg, 0), -ENOTSOCK);
        assert_int_equal(ea_try_accept(&in, NULL, NULL), -ENOTSOCK);
        assert_int_equal(ea_try_connected(&out), -ENOTSOCK);
        assert_int_equal(ea_try_connect(&in, (struct sockaddr *)&addr, sizeof(addr)), -ENOTSOCK);
        assert_true(in.known & EA_FD_NOT_SOCKET);
    }
    close(pair[0]);
    close(pair[1]);
}

/* --- Pipes and other files. */

static void pipes(void **state) {
    (void)state;
    for (int nonblocking = 0; nonblocking < 2; nonblocking++) {
        int pair[2];
        test_ok(pipe(pair));
        if (nonblocking) {
            test_set_nonblocking(pair[0]);
            test_set_nonblocking(pair[1]);
        }
        struct ea_fd in = known(pair[0], nonblocking ? EA_FD_NONBLOCKING : 0);
        struct ea_fd out = known(pair[1], nonblocking ? EA_FD_NONBLOCKING : 0);
        assert_int_equal(ea_try_read(&in, buf, 10), EA_WAIT_READABLE);
        assert_true(in.known & EA_FD_NOT_SOCKET);
        ON_LINUX(assert_true(in.known & EA_FD_NOWAIT));
        assert_int_equal(ea_try_write(&out, "hello", 5), 5);
        assert_int_equal(ea_try_read(&in, buf, 10), 5);
        assert_int_equal(ea_try_write(&out, buf, 0), 0);
        assert_int_equal(ea_try_read(&in, buf, 0), 0);
        assert_int_equal(test_is_nonblocking(pair[0]), nonblocking);

        /* All pieces: a write of more than there is room for is cut. */
        for (size_t piece = 1000; piece <= sizeof(buf); piece *= 10) {
            size_t sum = fill(&out, piece);
            assert_true(sum > 32768 && sum <= 65536);
            drain(pair[0]);
        }
        struct iovec both[] = {{NULL, 0}, {buf, 60000}, {buf, 60000}};
        ea_result r = ea_try_writev(&out, both, 3);
        assert_true(r >= PIPE_BUF && r <= 65536);
        assert_int_equal(ea_try_readv(&in, both, 3), r);
        close(pair[1]);
        assert_int_equal(ea_try_read(&in, buf, 10), EA_EOF);
        assert_int_equal(ea_try_readv(&in, both, 3), EA_EOF);
        close(pair[0]);

        test_ok(pipe(pair));
        out = entry(pair[1]);
        close(pair[0]);
        assert_int_equal(ea_try_write(&out, "x", 1), -EPIPE);
        assert_int_equal(ea_try_writev(&out, both, 3), -EPIPE);
        close(pair[1]);
    }
}

/* A write of at most PIPE_BUF bytes is all or nothing (POSIX), also in pieces. */
static void pipe_writes_are_atomic(void **state) {
    (void)state;
    int pair[2];
    test_ok(pipe(pair));
    struct ea_fd out = entry(pair[1]);
    struct iovec halves[] = {{buf, PIPE_BUF / 2}, {buf, PIPE_BUF / 2}};
    ea_result r;
    while ((r = ea_try_writev(&out, halves, 2)) != EA_WAIT_WRITABLE)
        assert_int_equal(r, PIPE_BUF);
    close(pair[0]);
    close(pair[1]);
}

static void eventfds(void **state) {
    (void)state;
    uint64_t value = 3;
    struct ea_fd e = entry(test_ok(eventfd(0, 0)));
    assert_int_equal(ea_try_read(&e, &value, sizeof(value)), EA_WAIT_READABLE);
    assert_int_equal(ea_try_write(&e, &value, sizeof(value)), sizeof(value));
    value = 0;
    assert_int_equal(ea_try_read(&e, &value, sizeof(value)), sizeof(value));
    assert_int_equal(value, 3);
    value = UINT64_MAX - 1;
    assert_int_equal(ea_try_write(&e, &value, sizeof(value)), sizeof(value));
    value = 1;
    assert_int_equal(ea_try_write(&e, &value, sizeof(value)), EA_WAIT_WRITABLE);
    assert_int_equal(ea_try_read(&e, &value, 4), -EINVAL);
    close(e.fd);
}

static void regular_files(void **state) {
    (void)state;
    struct ea_fd f = entry(any_file());
    memset(buf, 'x', 100000);
    assert_int_equal(ea_try_read(&f, buf, 10), EA_EOF);
    assert_int_equal(ea_try_write(&f, buf, 100000), 100000); /* not cut */
    assert_int_equal(ea_try_writev(&f, (struct iovec[]){{"ab", 2}, {"cd", 2}}, 2), 4);
    assert_int_equal(ea_try_read(&f, buf, 10), EA_EOF);
    test_ok((int)lseek(f.fd, 99998, SEEK_SET));
    assert_int_equal(ea_try_read(&f, buf, 4), 4);
    assert_memory_equal(buf, "xxab", 4);
    assert_int_equal(ea_try_read(&f, buf, 10), 2);
    assert_int_equal(ea_try_read(&f, buf, 0), 0);
    assert_int_equal(ea_try_read(&f, buf, 10), EA_EOF);
    close(f.fd);
}

static void positions(void **state) {
    (void)state;
    struct ea_fd f = entry(any_file());
    test_ok((int)write(f.fd, "0123456789", 10));
    ea_result r = ea_try_pread(&f, buf, 4, 3);
#ifdef TRY_PORTABLE
    assert_int_equal(r, -EOPNOTSUPP);
#else
    /* A file system that cannot say so is allowed to say that. */
    assert_true(r == 4 || r == -EOPNOTSUPP);
    if (r == 4) {
        assert_memory_equal(buf, "3456", 4);
        assert_int_equal(ea_try_pread(&f, buf, 4, 10), EA_EOF);
        assert_int_equal(ea_try_pread(&f, buf, 4, 1000), EA_EOF);
    }
#endif
    r = ea_try_pwrite(&f, "ab", 2, 3);
    assert_true(r == 2 || r == -EOPNOTSUPP || r == EA_WAIT_WRITABLE);
    assert_int_equal(ea_try_pread(&f, buf, 0, 0), 0);
    assert_int_equal(ea_try_pwrite(&f, buf, 0, 0), 0);
    assert_int_equal(ea_try_pread(&f, buf, 1, -1), -EINVAL);
    assert_int_equal(ea_try_pwrite(&f, buf, 1, -1), -EINVAL);
    assert_int_equal(ea_try_pread(&f, buf, (size_t)SSIZE_MAX + 1, 0), -EINVAL);
    assert_int_equal(lseek(f.fd, 0, SEEK_CUR), 10); /* not moved */
    close(f.fd);

    int pair[2];
    test_ok(pipe(pair));
    struct ea_fd in = entry(pair[0]);
    ON_LINUX(assert_int_equal(ea_try_pread(&in, buf, 1, 0), -ESPIPE));
    close(pair[0]);
    close(pair[1]);
}

/* What the user of the table says is in memory needs no RWF_NOWAIT, which tmpfs has not. */
static void files_in_memory(void **state) {
    (void)state;
    struct ea_fd f = entry(any_file());
    f.known = EA_FD_NOT_SOCKET | EA_FD_NO_NOWAIT | EA_FD_NO_NOWAIT_WRITE | EA_FD_REGULAR |
              EA_FD_IN_MEMORY;
    assert_int_equal(ea_try_write(&f, "0123456789", 10), 10);
    assert_int_equal(ea_try_pread(&f, buf, 4, 3), 4);
    assert_memory_equal(buf, "3456", 4);
    assert_int_equal(ea_try_pread(&f, buf, 4, 10), EA_EOF);
    assert_int_equal(ea_try_pwrite(&f, "ab", 2, 0), 2);
    assert_int_equal(ea_try_read(&f, buf, 1), EA_EOF);
    assert_int_equal(lseek(f.fd, 0, SEEK_SET), 0);
    assert_int_equal(ea_try_read(&f, buf, 4), 4);
    assert_memory_equal(buf, "ab23", 4);
    assert_int_equal(ea_try_pread(&f, buf, 1, -1), -EINVAL);
    close(f.fd);
}

static void devices(void **state) {
    (void)state;
    struct ea_fd null = entry(test_ok(open("/dev/null", O_RDWR)));
    assert_int_equal(ea_try_read(&null, buf, 10), EA_EOF);
    assert_int_equal(ea_try_write(&null, buf, 100000), 100000);
    assert_int_equal(ea_try_writev(&null, (struct iovec[]){{buf, 10}, {buf, 20}}, 2), 30);
    close(null.fd);
    struct ea_fd full = entry(test_ok(open("/dev/full", O_WRONLY)));
    for (int i = 0; i < 2; i++)
        assert_int_equal(ea_try_write(&full, buf, 100000), -ENOSPC);
    assert_int_equal(ea_try_read(&full, buf, 10), -EBADF); /* not open for that */
    close(full.fd);
    struct ea_fd dir = entry(test_ok(open("/", O_RDONLY | O_DIRECTORY)));
    assert_int_equal(ea_try_read(&dir, buf, 10), -EISDIR);
    assert_int_equal(ea_try_write(&dir, buf, 10), -EBADF);
    close(dir.fd);
    struct ea_fd proc = entry(test_ok(open("/proc/self/status", O_RDONLY)));
    assert_true(ea_try_read(&proc, buf, 4096) > 0);
    close(proc.fd);
}

/* A file whose writes are forbidden says so, and is not taken for one without RWF_NOWAIT. */
static void sealed_files(void **state) {
    (void)state;
    struct ea_fd f = entry(test_ok(memfd_create("sealed", MFD_ALLOW_SEALING)));
    assert_int_equal(ea_try_write(&f, "abc", 3), 3);
    test_ok(fcntl(f.fd, F_ADD_SEALS, F_SEAL_WRITE));
    assert_int_equal(ea_try_write(&f, "abc", 3), -EPERM);
    test_ok((int)lseek(f.fd, 0, SEEK_SET));
    assert_int_equal(ea_try_read(&f, buf, 10), 3);
    close(f.fd);
}

/* Both ends, cooked and raw, in pieces of all sizes: a terminal that nobody reads fills up and
 * then says so. */
static void terminals(void **state) {
    (void)state;
    for (int raw = 0; raw < 2; raw++) {
        for (size_t piece = 1; piece <= 65536; piece *= 16) {
            int master, slave;
            struct termios modes;
            if (openpty(&master, &slave, NULL, NULL, NULL) != 0)
                skip();
            test_ok(tcgetattr(slave, &modes));
            if (raw)
                cfmakeraw(&modes);
            else
                modes.c_lflag &= ~(tcflag_t)ECHO;
            test_ok(tcsetattr(slave, TCSANOW, &modes));
            struct ea_fd m = entry(master), s = entry(slave);
            assert_int_equal(ea_try_read(&m, buf, 10), EA_WAIT_READABLE);
            assert_int_equal(ea_try_read(&s, buf, 10), EA_WAIT_READABLE);
            assert_int_equal(ea_try_write(&m, "hi\n", 3), 3);
            ea_result r = EA_WAIT_READABLE;
            for (int i = 0; i < 100 && r == EA_WAIT_READABLE; i++) {
                poll(&(struct pollfd){.fd = slave, .events = POLLIN}, 1, 10);
                r = ea_try_read(&s, buf, 10);
            }
            assert_int_equal(r, 3);
            /* In cooked mode a newline takes two places. */
            for (size_t i = 0; i < piece; i++)
                buf[i] = i % 3 ? 'a' : '\n';
            size_t sum = fill(&s, piece);
            assert_true(sum > 2000);
            assert_false(test_is_nonblocking(slave));
            drain(master);
            if (raw)
                assert_true(fill(&m, piece) > 2000);
            close(master);
            r = ea_try_write(&s, "x", 1);
            assert_int_equal(r, -EIO);
            close(slave);
        }
    }
}

/* --- Errors. */

static void closed_descriptors(void **state) {
    (void)state;
    static const uint32_t facts[] = {0,
                                     EA_FD_IS_SOCKET,
                                     EA_FD_NOT_SOCKET,
                                     EA_FD_NOT_SOCKET | EA_FD_NOWAIT,
                                     EA_FD_NOT_SOCKET | EA_FD_NO_NOWAIT | EA_FD_NO_NOWAIT_WRITE,
                                     EA_FD_NONBLOCKING,
                                     EA_FD_ALWAYS_READY};
    int number = test_ok(dup(0));
    close(number);
    struct iovec two[] = {{buf, 1}, {buf, 1}};
    struct msghdr msg = {.msg_iov = two, .msg_iovlen = 2};
    for (size_t i = 0; i < sizeof(facts) / sizeof(*facts); i++) {
        struct ea_fd f = known(number, facts[i]);
        assert_int_equal(ea_try_read(&f, buf, 1), -EBADF);
        assert_int_equal(ea_try_read(&f, buf, 0), -EBADF);
        assert_int_equal(ea_try_readv(&f, two, 2), -EBADF);
        assert_int_equal(ea_try_write(&f, buf, 1), -EBADF);
        assert_int_equal(ea_try_write(&f, buf, 0), -EBADF);
        assert_int_equal(ea_try_writev(&f, two, 2), -EBADF);
        assert_int_equal(ea_try_recv(&f, buf, 1, 0), -EBADF);
        assert_int_equal(ea_try_recvmsg(&f, &msg, 0), -EBADF);
        assert_int_equal(ea_try_send(&f, buf, 1, 0), -EBADF);
        assert_int_equal(ea_try_sendmsg(&f, &msg, 0), -EBADF);
        assert_int_equal(ea_try_accept(&f, NULL, NULL), -EBADF);
        assert_int_equal(ea_try_connect(&f, NULL, 0), -EBADF);
        assert_int_equal(ea_try_connected(&f), -EBADF);
        ON_LINUX(assert_int_equal(ea_try_pread(&f, buf, 1, 0), -EBADF));
        ON_LINUX(assert_int_equal(ea_try_pwrite(&f, buf, 1, 0), -EBADF));
        assert_int_equal(ea_try_poll(number, EA_READABLE), -EBADF);
    }
}

static void lengths(void **state) {
    (void)state;
    int pair[2];
    test_ok(pipe(pair));
    struct ea_fd in = entry(pair[0]), out = entry(pair[1]);
    size_t huge = (size_t)SSIZE_MAX + 1;
    assert_int_equal(ea_try_read(&in, buf, huge), -EINVAL);
    assert_int_equal(ea_try_read(&in, buf, SIZE_MAX), -EINVAL);
    assert_int_equal(ea_try_write(&out, buf, huge), -EINVAL);
    assert_int_equal(ea_try_recv(&in, buf, huge, 0), -EINVAL);
    assert_int_equal(ea_try_send(&out, buf, huge, 0), -EINVAL);
    struct iovec sum[] = {{buf, SSIZE_MAX}, {buf, 1}};
    assert_int_equal(ea_try_readv(&in, sum, 2), -EINVAL);
    assert_int_equal(ea_try_writev(&out, sum, 2), -EINVAL);
    struct msghdr msg = {.msg_iov = sum, .msg_iovlen = 2};
    assert_int_equal(ea_try_recvmsg(&in, &msg, 0), -EINVAL);
    assert_int_equal(ea_try_sendmsg(&out, &msg, 0), -EINVAL);

    static struct iovec many[IOV_MAX + 1];
    for (size_t i = 0; i < IOV_MAX + 1; i++)
        many[i] = (struct iovec){buf, 1};
    assert_int_equal(ea_try_readv(&in, many, -1), -EINVAL);
    assert_int_equal(ea_try_writev(&out, many, -1), -EINVAL);
    assert_int_equal(ea_try_readv(&in, many, IOV_MAX + 1), -EINVAL);
    assert_int_equal(ea_try_writev(&out, many, IOV_MAX + 1), -EINVAL);
    assert_int_equal(ea_try_readv(&in, many, 0), 0);
    assert_int_equal(ea_try_writev(&out, many, 0), 0);
    assert_int_equal(ea_try_writev(&out, many, IOV_MAX), IOV_MAX);
    assert_int_equal(ea_try_readv(&in, many, IOV_MAX), IOV_MAX);
    /* As much as may be asked for: what there is comes. (valgrind books each byte of the room.) */
    assert_int_equal(ea_try_write(&out, "x", 1), 1);
    size_t size = (size_t)1 << (test_under_valgrind() ? 20 : 32);
    void *room = mmap(NULL, size, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (room != MAP_FAILED) {
        assert_int_equal(ea_try_read(&in, room, size), 1);
        munmap(room, size);
    }
    close(pair[0]);
    close(pair[1]);
}

/* --- What is remembered and wrong. */

enum kind { STREAM, DATAGRAM, PIPE, TTY, FILE_, NULL_, EVENT, KINDS };

/* Puts something of the kind, blocking and unreadable and full, at number. *other: the far end. */
static bool place(enum kind kind, int number, bool write, int *other) {
    int pair[2] = {-1, -1};
    struct ea_fd full;
    switch (kind) {
    case STREAM:
        test_ok(socketpair(AF_UNIX, SOCK_STREAM, 0, pair));
        break;
    case DATAGRAM:
        test_ok(socketpair(AF_UNIX, SOCK_DGRAM, 0, pair));
        break;
    case PIPE:
        test_ok(pipe(pair));
        if (write) {
            int swap = pair[0];
            pair[0] = pair[1];
            pair[1] = swap;
        }
        break;
    case TTY:
        if (openpty(&pair[1], &pair[0], NULL, NULL, NULL) != 0)
            return false;
        break;
    case EVENT:
        pair[0] = test_ok(eventfd(0, 0));
        break;
    case FILE_:
        pair[0] = any_file();
        break;
    case NULL_:
        pair[0] = test_ok(open("/dev/null", O_RDWR));
        break;
    default:
        return false;
    }
    test_replace(pair[0], number);
    *other = pair[1];
    full = entry(number);
    if (write && kind != FILE_ && kind != NULL_) {
        if (kind == EVENT) {
            uint64_t most = UINT64_MAX - 1;
            test_ok((int)ea_try_write(&full, &most, sizeof(most)));
        } else {
            fill(&full, kind == TTY ? 100 : 4096);
            if (kind == TTY) /* the kernel moves what was written on, and has room again */
                do
                    poll(NULL, 0, 2);
                while (fill(&full, 100) > 0);
        }
    }
    return true;
}

/* Every fact, on every kind of thing, in both directions: an empty or full descriptor asks to wait
 * at once, a file or /dev/null does what it does; then there is data or room, and it is found. */
static void wrong_facts(void **state) {
    (void)state;
    static const uint32_t facts[] = {
        EA_FD_IS_SOCKET,
        EA_FD_IS_SOCKET | EA_FD_SOCKET_FACTS,
        EA_FD_IS_SOCKET | EA_FD_NONBLOCKING | EA_FD_SOCKET_FACTS,
        EA_FD_NOT_SOCKET,
        EA_FD_NOT_SOCKET | EA_FD_NOWAIT,
        EA_FD_NOT_SOCKET | EA_FD_NOWAIT | EA_FD_NONBLOCKING,
        EA_FD_NOT_SOCKET | EA_FD_NOWAIT | EA_FD_NO_NOWAIT_WRITE,
        EA_FD_NOT_SOCKET | EA_FD_NO_NOWAIT,
        EA_FD_NOT_SOCKET | EA_FD_NO_NOWAIT | EA_FD_NO_NOWAIT_WRITE,
        EA_FD_NOT_SOCKET | EA_FD_NO_NOWAIT | EA_FD_NO_NOWAIT_WRITE | EA_FD_ALWAYS_READY,
        EA_FD_NO_NOWAIT | EA_FD_NO_NOWAIT_WRITE | EA_FD_ALWAYS_READY,
    };
    uint64_t one = 1;
    int number = test_ok(dup(0));
    for (int kind = 0; kind < KINDS; kind++) {
        for (size_t i = 0; i < sizeof(facts) / sizeof(*facts); i++) {
#ifdef TRY_PORTABLE
            /* Without the calls that can refuse, this fact has to be right. */
            if (facts[i] & EA_FD_NONBLOCKING)
                continue;
#endif
            int other;
            struct ea_fd f = known(number, facts[i]);
            f.family = AF_INET;
            f.type = kind == STREAM ? SOCK_DGRAM : SOCK_STREAM;
            bool endless = kind == FILE_ || kind == NULL_;
            for (int round = 0; round < 2; round++) { /* then with what was learnt */
                if (!place(kind, number, false, &other))
                    break;
                size_t len = kind == EVENT ? 8 : 20000;
                assert_int_equal(ea_try_read(&f, buf, len), endless ? EA_EOF : EA_WAIT_READABLE);
                if (!endless)
                    assert_false(f.known & EA_FD_ALWAYS_READY);
                if (!endless) {
                    test_ok((int)write(kind == EVENT ? number : other,
                                       kind == TTY ? "1234567\n" : (char *)&one, 8));
                    if (kind == TTY)
                        poll(&(struct pollfd){.fd = number, .events = POLLIN}, 1, 1000);
                    assert_int_equal(ea_try_read(&f, buf, len), 8);
                    assert_int_equal(ea_try_read(&f, buf, len), EA_WAIT_READABLE);
                }
                if (kind == DATAGRAM) {
                    test_ok((int)send(other, "", 0, 0));
                    assert_int_equal(ea_try_read(&f, buf, len), 0);
                }
                if (other >= 0)
                    close(other);
                if (kind == STREAM || kind == PIPE)
                    assert_int_equal(ea_try_read(&f, buf, len), EA_EOF);
            }
            f = known(number, facts[i]);
            for (int round = 0; round < 2; round++) {
                if (!place(kind, number, true, &other))
                    break;
                size_t len = kind == EVENT ? 8 : kind == DATAGRAM ? 2000 : sizeof(buf);
                const void *data = kind == EVENT ? (void *)&one : buf;
                if (!endless) {
                    assert_int_equal(ea_try_write(&f, data, len), EA_WAIT_WRITABLE);
                    drain(kind == EVENT ? number : other);
                }
                ea_result r = EA_WAIT_WRITABLE;
                for (int tries = 0; tries < 100 && r == EA_WAIT_WRITABLE; tries++) {
                    if (tries > 0) /* the room of a terminal comes with a delay */
                        poll(NULL, 0, 10);
                    r = ea_try_write(&f, data, len);
                }
                if (endless || kind == EVENT || kind == DATAGRAM)
                    assert_int_equal(r, len);
                else if (r <= 0 || (size_t)r >= len)
                    fail_msg("kind %d, facts %#x: %zd", kind, facts[i], r);
                if (other >= 0)
                    close(other);
            }
        }
    }
    close(number);
}

/* A regular file that is written first is still read with RWF_NOWAIT, and the other way about. */
static void facts_are_kept(void **state) {
    (void)state;
    struct ea_fd f = entry(any_file());
    assert_int_equal(ea_try_write(&f, "abc", 3), 3);
    uint32_t after_write = f.known;
    assert_true(after_write & EA_FD_NOT_SOCKET);
    test_ok((int)lseek(f.fd, 0, SEEK_SET));
    assert_int_equal(ea_try_read(&f, buf, 2), 2);
    uint32_t settled = f.known;
    assert_int_equal(settled & after_write, after_write);
    for (int i = 0; i < 5; i++) {
        assert_int_equal(ea_try_write(&f, "abc", 3), 3);
        test_ok((int)lseek(f.fd, 0, SEEK_SET));
        assert_int_equal(ea_try_read(&f, buf, 2), 2);
        assert_int_equal(f.known, settled);
    }
    close(f.fd);
}

/* --- accept and connect. */

static int listener(struct sockaddr_in *addr, bool nonblocking) {
    *addr = (struct sockaddr_in){.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t len = sizeof(*addr);
    int fd = test_ok(socket(AF_INET, SOCK_STREAM | (nonblocking ? SOCK_NONBLOCK : 0), 0));
    test_ok(bind(fd, (struct sockaddr *)addr, len));
    test_ok(listen(fd, 16));
    test_ok(getsockname(fd, (struct sockaddr *)addr, &len));
    return fd;
}

static void accepts(void **state) {
    (void)state;
    for (int nonblocking = 0; nonblocking < 2; nonblocking++) {
        struct sockaddr_in addr, peer;
        socklen_t len = sizeof(peer);
        struct ea_fd l = known(listener(&addr, nonblocking), nonblocking ? EA_FD_NONBLOCKING : 0);
        for (int i = 0; i < 2; i++)
            assert_int_equal(ea_try_accept(&l, (struct sockaddr *)&peer, &len), EA_WAIT_READABLE);
        int client = test_ok(socket(AF_INET, SOCK_STREAM, 0));
        test_ok(connect(client, (struct sockaddr *)&addr, sizeof(addr)));
        int server = (int)ea_try_accept(&l, (struct sockaddr *)&peer, &len);
        assert_true(server >= 0);
        assert_int_equal(len, sizeof(peer));
        assert_int_equal(peer.sin_family, AF_INET);
        assert_true(test_is_nonblocking(server));
        assert_true(fcntl(server, F_GETFD) & FD_CLOEXEC);
        assert_int_equal(test_is_nonblocking(l.fd), nonblocking);
        assert_int_equal(ea_try_accept(&l, NULL, NULL), EA_WAIT_READABLE);
        close(server);
        close(client);
        close(l.fd);
    }
    int plain = test_ok(socket(AF_INET, SOCK_STREAM, 0));
    struct ea_fd p = entry(plain);
    assert_int_equal(ea_try_accept(&p, NULL, NULL), -EINVAL); /* does not listen */
    close(plain);
    struct ea_fd d = entry(test_ok(socket(AF_INET, SOCK_DGRAM, 0)));
    assert_int_equal(ea_try_accept(&d, NULL, NULL), -EOPNOTSUPP);
    d.known = EA_FD_NONBLOCKING; /* and "operation not supported" is not retried for ever */
    assert_int_equal(ea_try_accept(&d, NULL, NULL), -EOPNOTSUPP);
    close(d.fd);
}

static void accept_as_asked(void **state) {
    (void)state;
    struct sockaddr_in addr;
    struct ea_fd l = known(listener(&addr, 1), EA_FD_NONBLOCKING);
    const int flags[] = {0, SOCK_CLOEXEC, SOCK_NONBLOCK, SOCK_CLOEXEC | SOCK_NONBLOCK};
    for (size_t i = 0; i < sizeof(flags) / sizeof(*flags); i++) {
        int client = test_ok(socket(AF_INET, SOCK_STREAM, 0));
        test_ok(connect(client, (struct sockaddr *)&addr, sizeof(addr)));
        int server = test_ok((int)ea_try_accept_as(&l, NULL, NULL, flags[i]));
        assert_int_equal(test_is_nonblocking(server), !!(flags[i] & SOCK_NONBLOCK));
        assert_int_equal(!!(fcntl(server, F_GETFD) & FD_CLOEXEC), !!(flags[i] & SOCK_CLOEXEC));
        close(server);
        close(client);
    }
    assert_int_equal(ea_try_accept_as(&l, NULL, NULL, 1), -EINVAL);
    close(l.fd);
}

static void on_alarm(int number) {
    (void)number;
}

/* The call that may wait: it accepts, says "none" of a listener that is non-blocking, and is
 * interrupted where the listener blocks. The timer goes on, for a signal that came too early. */
static void accept_what_is_ready(void **state) {
    (void)state;
    struct sockaddr_in addr;
    struct ea_fd l = entry(listener(&addr, 1));
    assert_int_equal(ea_accept_ready(&l, NULL, NULL, 0), EA_WAIT_READABLE);
    assert_int_equal(ea_accept_ready(&l, NULL, NULL, 1), -EINVAL);
    close(l.fd);
    l = entry(listener(&addr, 0));
    int client = test_ok(socket(AF_INET, SOCK_STREAM, 0));
    test_ok(connect(client, (struct sockaddr *)&addr, sizeof(addr)));
    int server = test_ok((int)ea_accept_ready(&l, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK));
    assert_true(test_is_nonblocking(server));
    struct sigaction action = {.sa_handler = on_alarm}, before;
    test_ok(sigaction(SIGALRM, &action, &before));
    const struct itimerval soon = {{0, 10000}, {0, 10000}}, never = {{0, 0}, {0, 0}};
    test_ok(setitimer(ITIMER_REAL, &soon, NULL));
    assert_int_equal(ea_accept_ready(&l, NULL, NULL, 0), -EINTR);
    test_ok(setitimer(ITIMER_REAL, &never, NULL));
    test_ok(sigaction(SIGALRM, &before, NULL));
    close(server);
    close(client);
    close(l.fd);
    int plain = test_ok(open("/dev/null", O_RDONLY));
    struct ea_fd p = entry(plain);
    assert_int_equal(ea_accept_ready(&p, NULL, NULL, 0), -ENOTSOCK);
    close(plain);
}

static void accept_without_descriptors(void **state) {
    (void)state;
    if (test_under_valgrind())
        skip();
    struct sockaddr_in addr;
    struct ea_fd l = entry(listener(&addr, false));
    int client = test_ok(socket(AF_INET, SOCK_STREAM, 0));
    test_ok(connect(client, (struct sockaddr *)&addr, sizeof(addr)));
    struct rlimit old, none;
    test_ok(getrlimit(RLIMIT_NOFILE, &old));
    none = old;
    none.rlim_cur = (rlim_t)client + 1;
    test_ok(setrlimit(RLIMIT_NOFILE, &none));
    int spare[64], used = 0;
    while (used < 64 && (spare[used] = dup(0)) >= 0)
        used++;
    ea_result r = ea_try_accept(&l, NULL, NULL);
    test_ok(setrlimit(RLIMIT_NOFILE, &old));
    assert_int_equal(r, -EMFILE);
    while (used > 0)
        close(spare[--used]);
    r = ea_try_accept(&l, NULL, NULL); /* the connection was not lost */
    assert_true(r >= 0);
    close((int)r);
    close(client);
    close(l.fd);
}

/* A connection that was reset before we took it is taken, or skipped, but never waited for. */
static void accept_after_reset(void **state) {
    (void)state;
    struct sockaddr_in addr;
    struct ea_fd l = entry(listener(&addr, false));
    int client = test_ok(socket(AF_INET, SOCK_STREAM, 0));
    test_ok(connect(client, (struct sockaddr *)&addr, sizeof(addr)));
    test_ok(
        setsockopt(client, SOL_SOCKET, SO_LINGER, &(struct linger){1, 0}, sizeof(struct linger)));
    close(client);
    ea_result r = ea_try_accept(&l, NULL, NULL);
    assert_true(r >= 0 || r == EA_WAIT_READABLE);
    if (r >= 0) {
        struct ea_fd s = entry((int)r);
        assert_int_equal(ea_try_read(&s, buf, 10), -ECONNRESET);
        close(s.fd);
    }
    close(l.fd);
}

static ea_result connect_ended(struct ea_fd *fd) {
    ea_result r = EA_WAIT_WRITABLE;
    for (int i = 0; i < 200 && r == EA_WAIT_WRITABLE; i++) {
        poll(&(struct pollfd){.fd = fd->fd, .events = POLLOUT}, 1, 10);
        r = ea_try_connected(fd);
    }
    return r;
}

static void connects(void **state) {
    (void)state;
    struct sockaddr_in addr;
    int server = listener(&addr, false);
    struct ea_fd c =
        known(test_ok(socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0)), EA_FD_NONBLOCKING);
    assert_int_equal(ea_try_connected(&c), -ENOTCONN);
    ea_result r = ea_try_connect(&c, (struct sockaddr *)&addr, sizeof(addr));
    assert_true(r == 0 || r == EA_WAIT_WRITABLE);
    assert_int_equal(connect_ended(&c), 0);
    assert_int_equal(ea_try_connected(&c), 0);
    /* Asked again, connect(2) tells once that the attempt succeeded, and then that it is over. */
    r = ea_try_connect(&c, (struct sockaddr *)&addr, sizeof(addr));
    assert_true(r == 0 || r == -EISCONN);
    assert_int_equal(ea_try_connect(&c, (struct sockaddr *)&addr, sizeof(addr)), -EISCONN);
    close(c.fd);
    close(server);

    c = known(test_ok(socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0)), EA_FD_NONBLOCKING);
    r = ea_try_connect(&c, (struct sockaddr *)&addr, sizeof(addr));
    if (r == EA_WAIT_WRITABLE) {
        assert_int_equal(connect_ended(&c), -ECONNREFUSED);
        assert_int_equal(ea_try_connected(&c), -ENOTCONN); /* told once */
    } else {
        assert_int_equal(r, -ECONNREFUSED);
    }
    close(c.fd);
}

/* A UNIX listener whose backlog is full: no event will tell, so it is not "wait". */
static void connect_to_a_full_backlog(void **state) {
    (void)state;
    struct sockaddr_un addr = {.sun_family = AF_UNIX};
    snprintf(addr.sun_path + 1, sizeof(addr.sun_path) - 1, "eagain-try-%d", (int)getpid());
    int server = test_ok(socket(AF_UNIX, SOCK_STREAM, 0)), clients[16], count = 0;
    test_ok(bind(server, (struct sockaddr *)&addr, sizeof(addr)));
    test_ok(listen(server, 1));
    ea_result r = 0;
    while (r == 0 && count < 16) {
        clients[count] = test_ok(socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0));
        struct ea_fd c = known(clients[count++], EA_FD_NONBLOCKING);
        r = ea_try_connect(&c, (struct sockaddr *)&addr, sizeof(addr));
    }
    assert_int_equal(r, -EBUSY);
    while (count > 0)
        close(clients[--count]);
    close(server);
}

/* --- poll. */

static void polls(void **state) {
    (void)state;
    int pair[2];
    test_ok(socketpair(AF_UNIX, SOCK_STREAM, 0, pair));
    assert_int_equal(ea_try_poll(pair[0], EA_READABLE), 0);
    assert_int_equal(ea_try_poll(pair[0], EA_READABLE | EA_WRITABLE), EA_WRITABLE);
    assert_int_equal(ea_try_poll(pair[0], 0), 0);
    test_ok((int)write(pair[1], "x", 1));
    assert_int_equal(ea_try_poll(pair[0], EA_READABLE | EA_WRITABLE), EA_READABLE | EA_WRITABLE);
    assert_int_equal(ea_try_poll(pair[0], EA_WRITABLE), EA_WRITABLE);
    close(pair[1]);
    ea_result r = ea_try_poll(pair[0], EA_WRITABLE);
    assert_int_equal(r & (EA_HANGUP | EA_READABLE), EA_HANGUP | EA_READABLE);
    close(pair[0]);
    assert_int_equal(ea_try_poll(-1, EA_READABLE), 0); /* poll(2): ignored */

    test_ok(pipe(pair));
    close(pair[0]);
    assert_true(ea_try_poll(pair[1], EA_WRITABLE) & EA_ERROR);
    close(pair[1]);
    int file = any_file();
    assert_int_equal(ea_try_poll(file, EA_READABLE | EA_WRITABLE), EA_READABLE | EA_WRITABLE);
    close(file);

    tcp_pair(pair);
    test_ok((int)send(pair[1], "!", 1, MSG_OOB));
    poll(&(struct pollfd){.fd = pair[0], .events = POLLPRI}, 1, 1000);
    assert_int_equal(ea_try_poll(pair[0], EA_PRIORITY), EA_PRIORITY);
    close(pair[0]);
    close(pair[1]);
}

/* --- Signals. */

static volatile sig_atomic_t ticks;

static void tick(int signal) {
    (void)signal;
    ticks++;
}

/* No result is -EINTR, under a timer that interrupts all the time. */
static void interrupted(void **state) {
    (void)state;
    struct sigaction action = {.sa_handler = tick}, old; /* without SA_RESTART */
    struct itimerval often = {.it_interval.tv_usec = 200, .it_value.tv_usec = 200}, never = {0};
    int pair[2], master, slave;
    struct sockaddr_in addr;
    test_ok(pipe(pair));
    test_ok(openpty(&master, &slave, NULL, NULL, NULL));
    struct ea_fd in = entry(pair[0]), out = entry(pair[1]), tty = entry(slave);
    struct ea_fd l = entry(listener(&addr, false));
    test_ok(sigaction(SIGUSR1, &action, &old));
    test_ok(sigaction(SIGVTALRM, &action, NULL));
    test_ok(setitimer(ITIMER_VIRTUAL, &often, NULL));
    ticks = 0;
    for (int i = 0; ticks < 200 && i < 10000000; i++) {
        ea_result r = ea_try_write(&out, buf, 50000);
        assert_true(r > 0 || r == EA_WAIT_WRITABLE);
        r = ea_try_read(&in, buf, 60000);
        assert_true(r > 0);
        assert_int_equal(ea_try_read(&in, buf, 10), EA_WAIT_READABLE);
        assert_int_equal(ea_try_read(&tty, buf, 10), EA_WAIT_READABLE);
        assert_int_equal(ea_try_poll(pair[0], EA_READABLE), 0);
        assert_int_equal(ea_try_accept(&l, NULL, NULL), EA_WAIT_READABLE);
    }
    test_ok(setitimer(ITIMER_VIRTUAL, &never, NULL));
    signal(SIGVTALRM, SIG_DFL);
    assert_true(ticks >= 200);
    close(pair[0]);
    close(pair[1]);
    close(master);
    close(slave);
    close(l.fd);
}

static volatile sig_atomic_t pipe_signals;

static void count_pipe_signal(int signal) {
    (void)signal;
    pipe_signals++;
}

/* SIGPIPE comes as from write(2). */
static void broken_pipes_signal(void **state) {
    (void)state;
    int pair[2];
    signal(SIGPIPE, count_pipe_signal);
    pipe_signals = 0;
    test_ok(pipe(pair));
    struct ea_fd out = entry(pair[1]);
    close(pair[0]);
    assert_int_equal(ea_try_write(&out, "x", 1), -EPIPE);
    assert_int_equal(pipe_signals, 1);
    close(pair[1]);
    test_ok(socketpair(AF_UNIX, SOCK_STREAM, 0, pair));
    out = entry(pair[1]);
    close(pair[0]);
    assert_int_equal(ea_try_write(&out, "x", 1), -EPIPE);
    assert_int_equal(pipe_signals, 2);
    assert_int_equal(ea_try_send(&out, "x", 1, MSG_NOSIGNAL), -EPIPE);
    assert_int_equal(pipe_signals, 2);
    close(pair[1]);
    signal(SIGPIPE, SIG_IGN);
}

static int guard(void **state) {
    (void)state;
    test_limit(120);
    return 0;
}

static int unguard(void **state) {
    (void)state;
    alarm(0);
    return 0;
}

#define GUARDED(f) cmocka_unit_test_setup_teardown(f, guard, unguard)

int main(void) {
    const struct CMUnitTest tests[] = {
        GUARDED(stream_sockets),
        GUARDED(vectors_on_sockets),
        GUARDED(messages),
        GUARDED(reset_by_peer),
        GUARDED(nothing_to_read_from_a_stream),
        GUARDED(addresses_and_control),
        GUARDED(udp_refused),
        GUARDED(error_queue),
        GUARDED(sockets_only),
        GUARDED(pipes),
        GUARDED(pipe_writes_are_atomic),
        GUARDED(eventfds),
        GUARDED(regular_files),
        GUARDED(positions),
        GUARDED(files_in_memory),
        GUARDED(devices),
        GUARDED(sealed_files),
        GUARDED(terminals),
        GUARDED(closed_descriptors),
        GUARDED(lengths),
        GUARDED(wrong_facts),
        GUARDED(facts_are_kept),
        GUARDED(accepts),
        GUARDED(accept_as_asked),
        GUARDED(accept_what_is_ready),
        GUARDED(accept_without_descriptors),
        GUARDED(accept_after_reset),
        GUARDED(connects),
        GUARDED(connect_to_a_full_backlog),
        GUARDED(polls),
        GUARDED(interrupted),
        GUARDED(broken_pipes_signal),
    };
    signal(SIGPIPE, SIG_IGN);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
