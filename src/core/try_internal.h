/* What the two files of try.h share, and nobody else needs. */
#ifndef EA_TRY_INTERNAL_H
#define EA_TRY_INTERNAL_H

#include <eagain/try.h>

#include <errno.h>
#include <limits.h>
#include <poll.h>

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

#endif
