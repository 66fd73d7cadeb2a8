/* Attempts that only sockets know (see try.h): recv, send, accept, connect.
 *
 * MSG_DONTWAIT makes one call non-blocking whatever the mode of the socket. accept(2) has no such
 * flag. Neither has connect(2), which is for sockets that are non-blocking by themselves.
 *
 * A listener that blocks is asked with poll(2) first. On Linux a connection that poll(2) saw stays
 * until somebody accepts it, a reset one included, so that the call can block only when another
 * thread or process accepts from the same listener between the two, and then until the next
 * connection. No way around it leaves the listener as it is: O_NONBLOCK and SO_RCVTIMEO are shared
 * by all who hold the socket, a socket cannot be opened again through /proc, and a timer signal
 * would be the process's. Servers that share a listener should make it non-blocking, or have a thread
 * for ea_accept_ready() that may wait. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "try_internal.h"

#include <eagain/poll.h>

#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

/* EA_TRY_PORTABLE builds what a system without Linux's calls gets, for the tests. */
#if defined(EA_HAVE_ACCEPT4) && !defined(EA_TRY_PORTABLE)
#define HAVE_ACCEPT4 1
#endif
#ifdef HAVE_DONTWAIT
#define DONTWAIT MSG_DONTWAIT
#else
#define DONTWAIT 0
#endif

/* How often accept tries again after a connection that failed before we got it. */
#define ACCEPT_TRIES 16

/* What 0 means, of a call that asked a socket for more: the end of a stream, an empty datagram of
 * any other kind. Asked each time, since a remembered type could belong to an earlier socket. */
ea_result ea_try_empty_receive(struct ea_fd *fd) {
    int type;
    socklen_t length = sizeof(type);
    if (getsockopt(fd->fd, SOL_SOCKET, SO_TYPE, &type, &length) != 0)
        return EA_EOF;
    if ((fd->known & EA_FD_SOCKET_FACTS) && fd->type != type)
        fd->known &= ~(uint32_t)EA_FD_SOCKET_FACTS;
    return type == SOCK_STREAM ? EA_EOF : 0;
}

/* Before a call on a socket: 1 go on, 0 it would block, or -errno. */
static inline ea_result ready_now(struct ea_fd *fd, short events) {
#ifdef HAVE_DONTWAIT
    (void)fd;
    (void)events;
    return 1;
#else
    if (fd->known & EA_FD_NONBLOCKING)
        return 1;
    int ready = poll_now(fd->fd, events);
    /* A pipe may be unready, too: that is no reason to wait for it here. */
    return ready == 0 && !(fd->known & EA_FD_IS_SOCKET) ? ea_fd_learn_socket(fd) : ready;
#endif
}

/* How much of len may be sent after poll(2) said "writable" to a socket that blocks: all of a
 * datagram, but of a stream only what SO_SNDLOWAT promises at the least. */
static inline size_t send_room(struct ea_fd *fd, size_t len) {
#ifdef HAVE_DONTWAIT
    (void)fd;
    return len;
#else
    if ((fd->known & EA_FD_NONBLOCKING) || len == 0)
        return len;
    fd->known &= ~(uint32_t)EA_FD_SOCKET_FACTS;
    return ea_fd_learn_socket(fd) == 0 && fd->type == SOCK_STREAM ? 1 : len;
#endif
}

/* The two ends of every receive: what r, a result of recv(2) and kin, means. */
static ea_result received(struct ea_fd *fd, ssize_t r, bool may_end) {
    if (EA_LIKELY(r > 0)) {
        learn_socket(fd);
        return r;
    }
    if (r == 0)
        return may_end ? ea_try_empty_receive(fd) : 0;
    if (errno == ENOTSOCK)
        learn_not_socket(fd);
    else if (errno != EBADF)
        learn_socket(fd);
    return outcome(r, EA_WAIT_READABLE);
}

static ea_result sent(struct ea_fd *fd, ssize_t r) {
    if (r < 0 && errno == ENOTSOCK)
        learn_not_socket(fd);
    else if (r >= 0 || errno != EBADF)
        learn_socket(fd);
    return outcome(r, EA_WAIT_WRITABLE);
}

/* --- recv and send. */

/* A stream has no empty message to wait for: to want nothing is to have it. */
static ea_result received_nothing(struct ea_fd *fd, ea_result r) {
    return r == EA_WAIT_READABLE && ea_try_empty_receive(fd) == EA_EOF ? 0 : r;
}

/* Nothing was asked of the socket, since ready_now() gave ready, <= 0. */
static ea_result not_received(struct ea_fd *fd, ea_result ready, size_t len) {
    if (ready < 0)
        return ready;
    return len > 0 ? EA_WAIT_READABLE : received_nothing(fd, EA_WAIT_READABLE);
}

ea_result ea_try_recvfrom(struct ea_fd *fd, void *buf, size_t len, int flags, struct sockaddr *addr,
                          socklen_t *addrlen) {
    if (EA_UNLIKELY(len > SSIZE_MAX))
        return -EINVAL;
    ea_result ready = ready_now(fd, POLLIN);
    if (ready <= 0) {
        if (len == 0 && addrlen)
            *addrlen = 0;
        return not_received(fd, ready, len);
    }
    ssize_t r;
    RETRY_EINTR(r, recvfrom(fd->fd, buf, len, flags | DONTWAIT, addr, addrlen));
    ea_result result = received(fd, r, len > 0);
    if (EA_LIKELY(len > 0))
        return result;
    if (r < 0 && addrlen)
        *addrlen = 0;
    return received_nothing(fd, result);
}

#ifdef HAVE_DONTWAIT
/* Is it known to be a socket, so that the usual call will do? */
static inline bool is_usual(const struct ea_fd *fd, size_t len) {
    return EA_LIKELY(fd->known & EA_FD_IS_SOCKET) && EA_LIKELY(len - 1 < SSIZE_MAX);
}
#endif

ea_result ea_try_recv(struct ea_fd *fd, void *buf, size_t len, int flags) {
#ifdef HAVE_DONTWAIT
    if (is_usual(fd, len)) {
        ea_result r = usual_recv(fd, buf, len, flags);
        if (EA_LIKELY(r != UNUSUAL))
            return r;
    }
#endif
    return ea_try_recvfrom(fd, buf, len, flags, NULL, NULL);
}

/* Nothing came, from nobody. */
static void clear(struct msghdr *msg) {
    msg->msg_namelen = 0;
    msg->msg_controllen = 0;
    msg->msg_flags = 0;
}

ea_result ea_try_recvmsg(struct ea_fd *fd, struct msghdr *msg, int flags) {
    ea_result total = total_length(msg->msg_iov, msg->msg_iovlen);
    if (EA_UNLIKELY(total < 0))
        return total;
    ea_result ready = ready_now(fd, POLLIN);
    if (ready <= 0) {
        if (total == 0)
            clear(msg);
        return not_received(fd, ready, (size_t)total);
    }
    ssize_t r;
    RETRY_EINTR(r, recvmsg(fd->fd, msg, flags | DONTWAIT));
    bool may_end = total > 0;
#ifdef MSG_ERRQUEUE
    /* The error queue has messages without data, on streams too. */
    if (flags & MSG_ERRQUEUE)
        return received(fd, r, false);
#endif
    ea_result result = received(fd, r, may_end);
    if (EA_LIKELY(may_end))
        return result;
    if (r < 0)
        clear(msg);
    return received_nothing(fd, result);
}

ea_result ea_try_sendto(struct ea_fd *fd, const void *buf, size_t len, int flags,
                        const struct sockaddr *addr, socklen_t addrlen) {
    if (EA_UNLIKELY(len > SSIZE_MAX))
        return -EINVAL;
    ea_result ready = ready_now(fd, POLLOUT);
    if (ready <= 0)
        return ready < 0 ? ready : EA_WAIT_WRITABLE;
    ssize_t r;
    RETRY_EINTR(r, sendto(fd->fd, buf, send_room(fd, len), flags | DONTWAIT, addr, addrlen));
    return sent(fd, r);
}

ea_result ea_try_send(struct ea_fd *fd, const void *buf, size_t len, int flags) {
#ifdef HAVE_DONTWAIT
    if (is_usual(fd, len)) {
        ea_result r = usual_send(fd, buf, len, flags);
        if (EA_LIKELY(r != UNUSUAL))
            return r;
    }
#endif
    return ea_try_sendto(fd, buf, len, flags, NULL, 0);
}

ea_result ea_try_sendmsg(struct ea_fd *fd, const struct msghdr *msg, int flags) {
    ea_result total = total_length(msg->msg_iov, msg->msg_iovlen);
    if (EA_UNLIKELY(total < 0))
        return total;
    ea_result ready = ready_now(fd, POLLOUT);
    if (ready <= 0)
        return ready < 0 ? ready : EA_WAIT_WRITABLE;
    struct msghdr part = *msg;
    struct iovec first;
    size_t room = send_room(fd, (size_t)total);
    if (room < (size_t)total) {
        const struct iovec *iov = msg->msg_iov;
        while (iov->iov_len == 0)
            iov++;
        first = (struct iovec){.iov_base = iov->iov_base, .iov_len = room};
        part.msg_iov = &first;
        part.msg_iovlen = 1;
    }
    ssize_t r;
    RETRY_EINTR(r, sendmsg(fd->fd, &part, flags | DONTWAIT));
    return sent(fd, r);
}

/* --- accept. */

/* Is errno one that accept(2) passes on from the new connection? "Treat them like EAGAIN by
 * retrying", says the man page; as errors of the listener itself they come back each time. */
static bool connection_failed(void) {
    switch (errno) {
    case ECONNABORTED:
    case ENETDOWN:
    case EPROTO:
    case ENOPROTOOPT:
    case EHOSTDOWN:
#ifdef ENONET
    case ENONET:
#endif
    case EHOSTUNREACH:
    case EOPNOTSUPP:
    case ENETUNREACH:
        return true;
    default:
        return false;
    }
}

static int accept_as(int fd, struct sockaddr *addr, socklen_t *addrlen, int flags) {
#ifdef HAVE_ACCEPT4
    return accept4(fd, addr, addrlen, flags);
#else
    int new = accept(fd, addr, addrlen);
    if (new < 0)
        return -1;
    if (fcntl(new, F_SETFD, flags & SOCK_CLOEXEC ? FD_CLOEXEC : 0) == 0 &&
        fcntl(new, F_SETFL, flags & SOCK_NONBLOCK ? O_NONBLOCK : 0) == 0)
        return new;
    int error = errno;
    close(new);
    errno = error;
    return -1;
#endif
}

/* poll(2) says "nothing" of a pipe, too, and of a socket that does not listen. Asked once per
 * descriptor: EA_WAIT_READABLE if it listens, 0 if accept(2) will say what is wrong (it fails at
 * once, in either mode), or -errno. */
static ea_result unready(struct ea_fd *fd) {
    if (fd->known & EA_FD_IS_SOCKET)
        return EA_WAIT_READABLE;
    int listening;
    socklen_t length = sizeof(listening);
    if (getsockopt(fd->fd, SOL_SOCKET, SO_ACCEPTCONN, &listening, &length) != 0) {
        if (errno == ENOTSOCK)
            learn_not_socket(fd);
        return -errno;
    }
    if (!listening)
        return 0;
    learn_socket(fd);
    return EA_WAIT_READABLE;
}

/* What accept(2) gave, and what it told of the descriptor. */
static ea_result accepted(struct ea_fd *fd, int new) {
    if (EA_LIKELY(new >= 0)) {
        learn_socket(fd);
        return new;
    }
    if (errno == ENOTSOCK)
        learn_not_socket(fd);
    return outcome(-1, EA_WAIT_READABLE);
}

ea_result ea_try_accept_as(struct ea_fd *fd, struct sockaddr *addr, socklen_t *addrlen, int flags) {
    if (EA_UNLIKELY(flags & ~(SOCK_CLOEXEC | SOCK_NONBLOCK)))
        return -EINVAL;
    socklen_t room = addrlen ? *addrlen : 0;
    int tries = 0;
    for (;;) {
        if (!(fd->known & EA_FD_NONBLOCKING)) {
            int ready = poll_now(fd->fd, POLLIN);
            if (ready < 0)
                return ready;
            if (ready == 0) {
                ea_result r = unready(fd);
                if (r != 0)
                    return r;
            }
        }
        if (addrlen)
            *addrlen = room;
        int new = accept_as(fd->fd, addr, addrlen, flags);
        if (new < 0 && (errno == EINTR || (connection_failed() && ++tries < ACCEPT_TRIES)))
            continue;
        return accepted(fd, new);
    }
}

ea_result ea_accept_ready(struct ea_fd *fd, struct sockaddr *addr, socklen_t *addrlen, int flags) {
    if (EA_UNLIKELY(flags & ~(SOCK_CLOEXEC | SOCK_NONBLOCK)))
        return -EINVAL;
    int new = accept_as(fd->fd, addr, addrlen, flags);
    return new < 0 && connection_failed() ? EA_WAIT_READABLE : accepted(fd, new);
}

ea_result ea_try_accept(struct ea_fd *fd, struct sockaddr *addr, socklen_t *addrlen) {
    return ea_try_accept_as(fd, addr, addrlen, SOCK_CLOEXEC | SOCK_NONBLOCK);
}

/* --- connect. */

ea_result ea_try_connect(struct ea_fd *fd, const struct sockaddr *addr, socklen_t addrlen) {
    bool interrupted = false;
    while (connect(fd->fd, addr, addrlen) != 0) {
        switch (errno) {
        case EINTR: /* the attempt goes on by itself; asking again tells how far it is */
            interrupted = true;
            continue;
        case EINPROGRESS:
        case EALREADY:
            return EA_WAIT_WRITABLE;
        case EISCONN:
            return interrupted ? 0 : -EISCONN;
        case EAGAIN: /* the backlog of a UNIX socket is full, and no event will tell of room */
            return -EBUSY;
        case ENOTSOCK:
            learn_not_socket(fd);
            return -ENOTSOCK;
        default:
            return -errno;
        }
    }
    learn_socket(fd);
    return 0;
}

ea_result ea_try_connected(struct ea_fd *fd) {
    int ready = poll_now(fd->fd, POLLOUT);
    if (ready <= 0)
        return ready < 0 ? ready : EA_WAIT_WRITABLE;
    int error;
    socklen_t length = sizeof(error);
    if (getsockopt(fd->fd, SOL_SOCKET, SO_ERROR, &error, &length) != 0)
        return -errno;
    if (error)
        return -error;
    if (!(ready & (POLLHUP | POLLERR)))
        return 0;
    /* Over, without an error: somebody else took the error, or there was no attempt. */
    struct sockaddr_storage peer;
    length = sizeof(peer);
    return getpeername(fd->fd, (struct sockaddr *)&peer, &length) == 0 ? 0 : -errno;
}

/* --- poll. */

ea_result ea_try_poll(int fd, unsigned events) {
    short asked =
        (short)((events & EA_READABLE ? POLLIN : 0) | (events & EA_PRIORITY ? POLLPRI : 0) |
                (events & EA_WRITABLE ? POLLOUT : 0));
    int ready = poll_now(fd, asked);
    if (ready <= 0)
        return ready;
    return (ready & POLLIN ? EA_READABLE : 0) | (ready & POLLPRI ? EA_PRIORITY : 0) |
           (ready & POLLOUT ? EA_WRITABLE : 0) | (ready & POLLERR ? EA_ERROR : 0) |
           (ready & POLLHUP ? EA_HANGUP | EA_READABLE : 0);
}
