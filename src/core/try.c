/* One attempt at an operation (see try.h): ask in a way that cannot block.
 *
 * What cannot block, by kind, in the order in which an unknown descriptor is asked:
 *
 *   a socket            recv(2)/send(2) and kin with MSG_DONTWAIT;
 *   what has RWF_NOWAIT preadv2(2)/pwritev2(2): pipes, eventfds, /dev/null, files when reading;
 *   a file in memory    the plain call. (tmpfs has no RWF_NOWAIT.)
 *   a regular file      the plain call to write. poll(2) calls such a file always ready, and it
 *                       is, as far as poll(2) is concerned; the disk may still take its time;
 *   a terminal          a write on a description of our own: the terminal is opened again with
 *                       O_NONBLOCK. (Readiness is not enough: "writable" is said of a pseudo-
 *                       terminal that has room for one byte, and a longer write would block.)
 *   the rest            poll(2) with a zero timeout, then the plain call; a write to a pipe takes
 *                       at most PIPE_BUF bytes, for which "writable" is a promise.
 *
 * Only the last row has a window: another process that shares the descriptor can take what poll(2)
 * saw before we do. Nothing closes it but RWF_NOWAIT or O_NONBLOCK; it is open on terminals, and
 * on pipes where the kernel has no RWF_NOWAIT for them (before Linux 5.15 or so).
 *
 * What was learnt can be wrong, since a number can be given to another file without a word to us.
 * So a fact decides only which call comes first, and every first call says when it does not apply
 * (ENOTSOCK, EOPNOTSUPP): then the fact is dropped, the next is tried, and nothing was harmed. The
 * one fact that is trusted is EA_FD_NONBLOCKING, and that only where RWF_NOWAIT is not to be had. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "try_internal.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <stdio.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

#ifndef IOV_MAX
#define IOV_MAX 1024
#endif

/* After poll(2) said "writable" a pseudo-terminal's master takes this much. */
#define TTY_MASTER_ROOM 512

struct transfer {
    const struct iovec *iov;
    int iovcnt;
    size_t len; /* the sum of iov, > 0 */
    bool write;
};

static inline ea_result would_block(const struct transfer *t) {
    return t->write ? EA_WAIT_WRITABLE : EA_WAIT_READABLE;
}

/* --- End of file. */

/* What 0 means, of a call that asked for more. offset -1: where the file stands. Linux 5.9 and 5.10 answer
 * RWF_NOWAIT with 0 for what is not in the page cache (preadv2(2), BUGS). */
static ea_result empty_read(struct ea_fd *fd, off_t offset) {
    struct stat st;
    if (fstat(fd->fd, &st) != 0)
        return EA_EOF;
    if (S_ISSOCK(st.st_mode))
        return ea_try_empty_receive(fd);
    if (S_ISREG(st.st_mode) && st.st_size > 0) {
        if (offset < 0)
            offset = lseek(fd->fd, 0, SEEK_CUR);
        if (offset >= 0 && st.st_size > offset)
            return EA_WAIT_READABLE;
    }
    return EA_EOF;
}

/* --- Sockets. */

static ea_result transfer_socket(struct ea_fd *fd, const struct transfer *t) {
    if (t->iovcnt == 1)
        return t->write ? ea_try_send(fd, t->iov->iov_base, t->len, 0)
                        : ea_try_recv(fd, t->iov->iov_base, t->len, 0);
    struct msghdr msg = {.msg_iov = (struct iovec *)t->iov, .msg_iovlen = (size_t)t->iovcnt};
    return t->write ? ea_try_sendmsg(fd, &msg, 0) : ea_try_recvmsg(fd, &msg, 0);
}

/* --- RWF_NOWAIT. */

static void learn_no_nowait(struct ea_fd *fd, bool write) {
    if (fd->known & EA_FD_NOWAIT) {
        /* Files have it for reading alone, so a write proves less than a read: but what had it at
         * all and is no such file is not the one that somebody called non-blocking. */
        if (write)
            fd->known &= ~(uint32_t)EA_FD_NONBLOCKING;
        else
            drop_facts(fd);
    }
    fd->known |= write ? EA_FD_NO_NOWAIT_WRITE : EA_FD_NO_NOWAIT;
}

#ifdef HAVE_NOWAIT
/* Does errno say that RWF_NOWAIT is not to be had? ENOSYS: no such call; EPERM: a sandbox that
 * says it so (an EPERM of the file itself is what the plain call will say again). */
static bool nowait_refused(void) {
    return errno == EOPNOTSUPP || errno == ENOSYS || errno == EPERM;
}
#endif

/* One attempt with RWF_NOWAIT. offset -1: where the file stands. -EOPNOTSUPP: not to be had. */
static ea_result transfer_nowait(struct ea_fd *fd, const struct transfer *t, off_t offset) {
#ifdef HAVE_NOWAIT
    ssize_t r;
    RETRY_EINTR(r, t->write ? pwritev2(fd->fd, t->iov, t->iovcnt, offset, RWF_NOWAIT)
                            : preadv2(fd->fd, t->iov, t->iovcnt, offset, RWF_NOWAIT));
    if (EA_LIKELY(r > 0)) {
        learn(fd, EA_FD_NOWAIT);
        return r;
    }
    if (r == 0 && !t->write)
        return empty_read(fd, offset);
    if (r < 0 && nowait_refused()) {
        learn_no_nowait(fd, t->write);
        return -EOPNOTSUPP;
    }
    if (r < 0 && errno != EBADF)
        learn(fd, EA_FD_NOWAIT);
    return outcome(r, would_block(t));
#else
    (void)offset;
    learn_no_nowait(fd, t->write);
    return -EOPNOTSUPP;
#endif
}

/* --- The plain calls. */

static ea_result plain_read(struct ea_fd *fd, const struct transfer *t) {
    for (;;) {
        if (!(fd->known & EA_FD_NONBLOCKING)) {
            int ready = poll_now(fd->fd, POLLIN);
            if (ready <= 0)
                return ready < 0 ? ready : EA_WAIT_READABLE;
        }
        ssize_t r = readv(fd->fd, t->iov, t->iovcnt);
        if (r == 0)
            return empty_read(fd, -1);
        if (r > 0 || errno != EINTR)
            return outcome(r, EA_WAIT_READABLE);
    }
}

/* Writes at most cap bytes. A message that fits goes in one piece. */
static ssize_t write_capped(int fd, const struct transfer *t, size_t cap) {
    if (t->len <= cap)
        return writev(fd, t->iov, t->iovcnt);
    const struct iovec *iov = t->iov;
    while (iov->iov_len == 0)
        iov++;
    return write(fd, iov->iov_base, iov->iov_len < cap ? iov->iov_len : cap);
}

/* A write to a terminal through a description of our own, which may have O_NONBLOCK. False: it
 * cannot be had (the master of a pseudo-terminal, no /proc, no permission). */
static bool write_reopened(int fd, const struct transfer *t, ea_result *result) {
#ifdef __linux__
    char path[32];
    unsigned pty;
    if (ioctl(fd, TIOCGPTN, &pty) == 0)
        return false; /* to open a master again makes a new one */
    snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
    int own = open(path, O_WRONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
    if (own < 0)
        return false;
    ssize_t r;
    RETRY_EINTR(r, writev(own, t->iov, t->iovcnt));
    *result = outcome(r, EA_WAIT_WRITABLE);
    close(own);
    return true;
#else
    (void)fd;
    (void)t;
    (void)result;
    return false;
#endif
}

static size_t tty_room(int fd) {
#ifdef TIOCGPTN
    unsigned pty;
    if (ioctl(fd, TIOCGPTN, &pty) == 0)
        return TTY_MASTER_ROOM;
#endif
    (void)fd;
    return 1;
}

static ea_result write_when_ready(struct ea_fd *fd, const struct transfer *t, size_t cap) {
    for (;;) {
        int ready = poll_now(fd->fd, POLLOUT);
        if (ready <= 0)
            return ready < 0 ? ready : EA_WAIT_WRITABLE;
        ssize_t r = write_capped(fd->fd, t, cap);
        if (r >= 0 || errno != EINTR)
            return outcome(r, EA_WAIT_WRITABLE);
    }
}

/* A write without RWF_NOWAIT. The kind is asked each time: how much may be written depends on it,
 * and a wrong guess would block. *is_socket: nothing was done. */
static ea_result plain_write(struct ea_fd *fd, const struct transfer *t, bool *is_socket) {
    ssize_t r;
    struct stat st;
    ea_result result;

    if (fd->known & EA_FD_NONBLOCKING) {
        RETRY_EINTR(r, writev(fd->fd, t->iov, t->iovcnt));
        return outcome(r, EA_WAIT_WRITABLE);
    }
    if (fstat(fd->fd, &st) != 0)
        return -errno;
    switch (st.st_mode & S_IFMT) {
    case S_IFSOCK:
        *is_socket = true;
        return 0;
    case S_IFREG:
    case S_IFBLK:
    case S_IFDIR: /* which says EBADF */
        learn(fd, EA_FD_ALWAYS_READY);
        RETRY_EINTR(r, writev(fd->fd, t->iov, t->iovcnt));
        return outcome(r, EA_WAIT_WRITABLE);
    case S_IFIFO:
        return write_when_ready(fd, t, PIPE_BUF);
    case S_IFCHR:
        if (!isatty(fd->fd))
            break;
        if (write_reopened(fd->fd, t, &result))
            return result;
        return write_when_ready(fd, t, tty_room(fd->fd));
    default:
        break;
    }
    return write_when_ready(fd, t, SIZE_MAX);
}

/* --- read and write. */

/* Who must wait is not always ready, whatever is remembered, unless it is a file that is not in the
 * page cache: that one can wait for nothing but a thread of the offload pool. */
static ea_result settled(struct ea_fd *fd, ea_result r) {
    struct stat st;
    if (EA_LIKELY(!(fd->known & EA_FD_ALWAYS_READY)) || !ea_is_wait(r))
        return r;
    if (fstat(fd->fd, &st) == 0 && !S_ISREG(st.st_mode) && !S_ISBLK(st.st_mode))
        fd->known &= ~(uint32_t)EA_FD_ALWAYS_READY;
    return r;
}

static ea_result transfer(struct ea_fd *fd, const struct transfer *t) {
    uint32_t no_nowait = t->write ? EA_FD_NO_NOWAIT_WRITE : EA_FD_NO_NOWAIT;
    bool asked = false; /* ENOTSOCK was seen in this very call, and not only remembered */
    bool is_socket = false;
    ea_result r;

    if (t->write && fd->known & EA_FD_REGULAR) {
        RETRY_EINTR(r, writev(fd->fd, t->iov, t->iovcnt));
        return outcome(r, EA_WAIT_WRITABLE);
    }
    if (fd->known & EA_FD_IN_MEMORY) {
        RETRY_EINTR(r, readv(fd->fd, t->iov, t->iovcnt));
        return r == 0 ? EA_EOF : outcome(r, EA_WAIT_READABLE);
    }
again:
    if (!(fd->known & EA_FD_NOT_SOCKET)) {
        r = transfer_socket(fd, t);
        if (EA_LIKELY(r != -ENOTSOCK))
            return r;
        asked = true;
    }
    if (EA_LIKELY(!(fd->known & no_nowait))) {
        r = transfer_nowait(fd, t, -1);
        if (EA_LIKELY(r != -EOPNOTSUPP))
            return r;
        if (!asked) {
            fd->known &= ~(uint32_t)EA_FD_NOT_SOCKET;
            goto again;
        }
        fd->known |= EA_FD_NOT_SOCKET; /* seen above; dropped, if another fact was wrong */
    }
    if (!t->write)
        return plain_read(fd, t);
    r = plain_write(fd, t, &is_socket);
    if (is_socket && !asked) {
        drop_facts(fd);
        goto again;
    }
    return is_socket ? -ENOTSOCK : r;
}

/* Nothing to read: is the descriptor open for it? Never waits, takes no datagram. */
static ea_result read_nothing(const struct ea_fd *fd) {
    struct iovec none = {.iov_base = NULL, .iov_len = 0};
    ssize_t r;
    RETRY_EINTR(r, readv(fd->fd, &none, 1));
    return r < 0 ? outcome(r, 0) : 0;
}

/* --- The usual case of read and write. */

#define NOINLINE __attribute__((noinline))

#ifdef HAVE_NOWAIT
/* Is it one that RWF_NOWAIT serves, as far as we know? no: the fact that says it does not. */
static inline bool serves_nowait(const struct ea_fd *fd, uint32_t no) {
    const uint32_t facts =
        EA_FD_NOT_SOCKET | EA_FD_NOWAIT | EA_FD_ALWAYS_READY | EA_FD_REGULAR | no;
    return (fd->known & facts) == (EA_FD_NOT_SOCKET | EA_FD_NOWAIT);
}

static ea_result usual_read_nowait(struct ea_fd *fd, void *buf, size_t len) {
    struct iovec iov = {.iov_base = buf, .iov_len = len};
    ssize_t r = ea_call_preadv(fd->fd, &iov, 1);
    if (r > 0)
        return r;
    return r == 0 ? empty_read(fd, -1) : usual_error(r, EOPNOTSUPP, EA_WAIT_READABLE);
}

static ea_result usual_write_nowait(struct ea_fd *fd, const void *buf, size_t len) {
    struct iovec iov = {.iov_base = (void *)buf, .iov_len = len};
    ssize_t r = ea_call_pwritev(fd->fd, &iov, 1);
    return EA_LIKELY(r >= 0) ? r : usual_error(r, EOPNOTSUPP, EA_WAIT_WRITABLE);
}
#endif

static inline ea_result usual_read(struct ea_fd *fd, void *buf, size_t len) {
#ifdef HAVE_DONTWAIT
    if (EA_LIKELY(fd->known & EA_FD_IS_SOCKET))
        return usual_recv(fd, buf, len, 0);
#endif
#ifdef HAVE_NOWAIT
    if (EA_LIKELY(serves_nowait(fd, EA_FD_NO_NOWAIT)))
        return usual_read_nowait(fd, buf, len);
#endif
    (void)fd;
    (void)buf;
    (void)len;
    return UNUSUAL;
}

static inline ea_result usual_write(struct ea_fd *fd, const void *buf, size_t len) {
#ifdef HAVE_DONTWAIT
    if (EA_LIKELY(fd->known & EA_FD_IS_SOCKET))
        return usual_send(fd, buf, len, 0);
#endif
#ifdef HAVE_NOWAIT
    if (EA_LIKELY(serves_nowait(fd, EA_FD_NO_NOWAIT_WRITE)))
        return usual_write_nowait(fd, buf, len);
#endif
    (void)fd;
    (void)buf;
    (void)len;
    return UNUSUAL;
}

/* Apart, so that the usual case does not save registers for it. */
NOINLINE static ea_result read_unusual(struct ea_fd *fd, void *buf, size_t len) {
    return ea_try_readv(fd, &(struct iovec){buf, len}, 1);
}

NOINLINE static ea_result write_unusual(struct ea_fd *fd, const void *buf, size_t len) {
    struct iovec iov = {.iov_base = (void *)buf, .iov_len = len};
    if (EA_LIKELY(len > 0))
        return ea_try_writev(fd, &iov, 1);
    /* write(2) of nothing is an empty datagram on sockets that have them. */
    ea_result r = ea_try_send(fd, buf, 0, 0);
    return r == -ENOTSOCK ? ea_try_writev(fd, &iov, 1) : r;
}

ea_result ea_try_readv(struct ea_fd *fd, const struct iovec *iov, int iovcnt) {
    if (EA_UNLIKELY(iovcnt < 0 || iovcnt > IOV_MAX))
        return -EINVAL;
    ea_result total = total_length(iov, (size_t)iovcnt);
    if (EA_UNLIKELY(total <= 0))
        return total < 0 ? total : read_nothing(fd);
    return settled(fd, transfer(fd, &(struct transfer){iov, iovcnt, (size_t)total, false}));
}

ea_result ea_try_read(struct ea_fd *fd, void *buf, size_t len) {
    if (EA_LIKELY(len - 1 < SSIZE_MAX)) { /* 1..SSIZE_MAX */
        ea_result r = usual_read(fd, buf, len);
        if (EA_LIKELY(r != UNUSUAL))
            return r;
    }
    return read_unusual(fd, buf, len);
}

ea_result ea_try_writev(struct ea_fd *fd, const struct iovec *iov, int iovcnt) {
    if (EA_UNLIKELY(iovcnt < 0 || iovcnt > IOV_MAX))
        return -EINVAL;
    ea_result total = total_length(iov, (size_t)iovcnt);
    if (EA_UNLIKELY(total <= 0)) {
        /* As writev(2), which does nothing then: no empty datagram either. */
        struct iovec none = {.iov_base = NULL, .iov_len = 0};
        return total < 0 ? total : outcome(writev(fd->fd, &none, 1), 0);
    }
    return settled(fd, transfer(fd, &(struct transfer){iov, iovcnt, (size_t)total, true}));
}

ea_result ea_try_write(struct ea_fd *fd, const void *buf, size_t len) {
    if (EA_LIKELY(len - 1 < SSIZE_MAX)) { /* 1..SSIZE_MAX */
        ea_result r = usual_write(fd, buf, len);
        if (EA_LIKELY(r != UNUSUAL))
            return r;
    }
    return write_unusual(fd, buf, len);
}

static ea_result transfer_at(struct ea_fd *fd, const struct transfer *t, off_t offset) {
    if (EA_UNLIKELY(t->len > SSIZE_MAX || offset < 0))
        return -EINVAL; /* an offset of -1 has a meaning to preadv2(2) */
    if (t->len > 0 && !(fd->known & EA_FD_IN_MEMORY))
        return transfer_nowait(fd, t, offset);
    ssize_t r;
    RETRY_EINTR(r, t->write ? pwrite(fd->fd, t->iov->iov_base, t->len, offset)
                            : pread(fd->fd, t->iov->iov_base, t->len, offset));
    if (r == 0 && t->len > 0 && !t->write)
        return EA_EOF;
    return outcome(r, would_block(t));
}

ea_result ea_try_pread(struct ea_fd *fd, void *buf, size_t len, off_t offset) {
    struct iovec iov = {.iov_base = buf, .iov_len = len};
    return transfer_at(fd, &(struct transfer){&iov, 1, len, false}, offset);
}

ea_result ea_try_pwrite(struct ea_fd *fd, const void *buf, size_t len, off_t offset) {
    struct iovec iov = {.iov_base = (void *)buf, .iov_len = len};
    return transfer_at(fd, &(struct transfer){&iov, 1, len, true}, offset);
}
