/* What the two files of try.h share, and nobody else needs. */
#ifndef EA_TRY_INTERNAL_H
#define EA_TRY_INTERNAL_H

#include <eagain/try.h>

#include <errno.h>
#include <limits.h>
#include <poll.h>
#include <unistd.h>
#ifdef __linux__
#include <sys/syscall.h>
#endif

/* EA_TRY_PORTABLE builds what a system without Linux's calls gets, for the tests. */
#if defined(EA_HAVE_PREADV2) && defined(RWF_NOWAIT) && !defined(EA_TRY_PORTABLE)
#define HAVE_NOWAIT 1
#endif
#if defined(MSG_DONTWAIT) && !defined(EA_TRY_PORTABLE)
#define HAVE_DONTWAIT 1
#endif

/* The outcome of a call that returned r; wait is what EAGAIN means. */
static inline ea_result outcome(ssize_t r, ea_result wait) {
    if (EA_LIKELY(r >= 0))
        return r;
    if (errno == EAGAIN || errno == EWOULDBLOCK)
        return wait;
    return -errno;
}

/* The call again for as long as signals interrupt it. */
#define RETRY_EINTR(r, call)                                                                       \
    do                                                                                             \
        (r) = (call);                                                                              \
    while (EA_UNLIKELY((r) < 0 && errno == EINTR))

/* --- The calls of the usual case: a count, or -errno.
 *
 * libc's own are cancellation points, for which they prepare in any process that has threads; that
 * takes as many instructions as all of ours, for a call that never sleeps. Sanitizers want to see
 * libc's. */

#if defined(__has_feature)
#define HAS_FEATURE(name) __has_feature(name)
#else
#define HAS_FEATURE(name) 0
#endif
#if defined(__linux__) && defined(__LP64__) && !defined(__SANITIZE_ADDRESS__) &&                   \
    !defined(__SANITIZE_THREAD__) && !HAS_FEATURE(address_sanitizer) &&                            \
    !HAS_FEATURE(thread_sanitizer) && !HAS_FEATURE(memory_sanitizer)
#if defined(__x86_64__)
#define DIRECT_CALLS 1
static inline long direct_call(long number, long a, const void *b, long c, long d, long e, long f) {
    register long r10 __asm__("r10") = d;
    register long r8 __asm__("r8") = e;
    register long r9 __asm__("r9") = f;
    long result;
    __asm__ volatile("syscall"
                     : "=a"(result)
                     : "a"(number), "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8), "r"(r9)
                     : "rcx", "r11", "memory");
    return result;
}
#elif defined(__aarch64__)
#define DIRECT_CALLS 1
static inline long direct_call(long number, long a, const void *b, long c, long d, long e, long f) {
    register long x8 __asm__("x8") = number;
    register long x0 __asm__("x0") = a;
    register const void *x1 __asm__("x1") = b;
    register long x2 __asm__("x2") = c;
    register long x3 __asm__("x3") = d;
    register long x4 __asm__("x4") = e;
    register long x5 __asm__("x5") = f;
    __asm__ volatile("svc 0"
                     : "+r"(x0)
                     : "r"(x8), "r"(x1), "r"(x2), "r"(x3), "r"(x4), "r"(x5)
                     : "memory", "cc");
    return x0;
}
#endif
#endif

#ifdef DIRECT_CALLS
#define CALL(name, direct, libc) ((ssize_t)direct_call direct)
#else
static inline ssize_t or_error(ssize_t r) {
    return EA_LIKELY(r >= 0) ? r : -errno;
}
#define CALL(name, direct, libc) or_error(name libc)
#endif

#ifdef HAVE_DONTWAIT
static inline ssize_t ea_call_recv(int fd, void *buf, size_t len, int flags) {
    return CALL(recv, (SYS_recvfrom, fd, buf, (long)len, flags, 0, 0), (fd, buf, len, flags));
}

static inline ssize_t ea_call_send(int fd, const void *buf, size_t len, int flags) {
    return CALL(send, (SYS_sendto, fd, buf, (long)len, flags, 0, 0), (fd, buf, len, flags));
}
#endif

#ifdef HAVE_NOWAIT
/* Where the file stands: an offset of -1, in both its halves. */
static inline ssize_t ea_call_preadv(int fd, const struct iovec *iov, int iovcnt) {
    return CALL(preadv2, (SYS_preadv2, fd, iov, iovcnt, -1, -1, RWF_NOWAIT),
                (fd, iov, iovcnt, -1, RWF_NOWAIT));
}

static inline ssize_t ea_call_pwritev(int fd, const struct iovec *iov, int iovcnt) {
    return CALL(pwritev2, (SYS_pwritev2, fd, iov, iovcnt, -1, -1, RWF_NOWAIT),
                (fd, iov, iovcnt, -1, RWF_NOWAIT));
}
#endif

/* --- Facts. */

static inline void learn(struct ea_fd *fd, uint32_t fact) {
    if (EA_UNLIKELY(!(fd->known & fact)))
        fd->known |= fact;
}

/* A remembered fact turned out wrong: the number holds another file, so nothing that we know of
 * it can be trusted, least of all that it does not block. */
static inline void drop_facts(struct ea_fd *fd) {
    fd->known = 0;
}

static inline void learn_socket(struct ea_fd *fd) {
    if (EA_UNLIKELY(fd->known & (EA_FD_NOT_SOCKET | EA_FD_ALWAYS_READY)))
        drop_facts(fd);
    learn(fd, EA_FD_IS_SOCKET);
}

static inline void learn_not_socket(struct ea_fd *fd) {
    if (fd->known & (EA_FD_IS_SOCKET | EA_FD_SOCKET_FACTS))
        drop_facts(fd);
    fd->known |= EA_FD_NOT_SOCKET;
}

/* --- Questions. */

/* What poll(2) says without waiting: revents (0: nothing), or -errno. */
static inline int poll_now(int fd, short events) {
    struct pollfd pfd = {.fd = fd, .events = events};
    int rc;
    RETRY_EINTR(rc, poll(&pfd, 1, 0));
    if (rc < 0)
        return -errno;
    return pfd.revents & POLLNVAL ? -EBADF : pfd.revents;
}

/* The sum of the lengths, or -EINVAL. */
static inline ea_result total_length(const struct iovec *iov, size_t iovcnt) {
    size_t total = 0;
    for (size_t i = 0; i < iovcnt; i++) {
        if (iov[i].iov_len > (size_t)SSIZE_MAX - total)
            return -EINVAL;
        total += iov[i].iov_len;
    }
    return (ea_result)total;
}

/* What 0 means, of a call that asked a socket for more: EA_EOF of a stream, 0 (an empty datagram)
 * of any other kind. */
ea_result ea_try_empty_receive(struct ea_fd *fd);

/* --- The usual case: what the descriptor is was learnt before, and is right. One call, and nothing to
 * learn from its answer. What else the answer may mean is for the long way, which asks again, if nothing
 * was done: UNUSUAL. */

#define UNUSUAL ((ea_result)-0x10004)

#if defined(HAVE_DONTWAIT) || defined(HAVE_NOWAIT)
/* What -error means. refused: the error that says that the fact is wrong. */
static inline ea_result usual_error(ssize_t error, int refused, ea_result wait) {
    if (EA_LIKELY(error == -EAGAIN))
        return wait;
    if (error == -EINTR || error == -refused || error == -EPERM || error == -ENOSYS)
        return UNUSUAL;
    return error;
}
#endif

#ifdef HAVE_DONTWAIT
/* On a socket. len: 1..SSIZE_MAX. */
static inline ea_result usual_recv(struct ea_fd *fd, void *buf, size_t len, int flags) {
    ssize_t r = ea_call_recv(fd->fd, buf, len, flags | MSG_DONTWAIT);
    if (r > 0)
        return r;
    return r == 0 ? ea_try_empty_receive(fd) : usual_error(r, ENOTSOCK, EA_WAIT_READABLE);
}

static inline ea_result usual_send(struct ea_fd *fd, const void *buf, size_t len, int flags) {
    ssize_t r = ea_call_send(fd->fd, buf, len, flags | MSG_DONTWAIT);
    return EA_LIKELY(r >= 0) ? r : usual_error(r, ENOTSOCK, EA_WAIT_WRITABLE);
}
#endif

#endif
