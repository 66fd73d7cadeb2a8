/* One attempt at an operation. Never blocks, whatever the descriptor's mode, and never changes it:
 * O_NONBLOCK lives on the open file description, which other processes may share.
 *
 * Sockets use MSG_DONTWAIT. Everything else uses preadv2/pwritev2(2) with RWF_NOWAIT where the
 * kernel and the file have it, else poll(2) with a zero timeout and then the plain call.
 *
 * All return an ea_result: a count, EA_EOF, EA_WAIT_READABLE, EA_WAIT_WRITABLE, or -errno as the
 * man page of the call says. EINTR is retried and never returned. A length of 0 gives 0, not
 * EA_EOF. Lengths above SSIZE_MAX are -EINVAL.
 *
 * `fd` remembers what was learnt (facts, see fd.h). Thread-safe for distinct descriptors. One
 * system call when the kind of the descriptor is known or guessed right, two or three the first
 * time otherwise. */
#ifndef EAGAIN_TRY_H
#define EAGAIN_TRY_H

#include <eagain/fd.h>
#include <eagain/result.h>
#include <sys/socket.h>
#include <sys/uio.h>

EA_BEGIN

/* read(2), readv(2). EA_EOF at end of file (stream sockets, pipes, files; a datagram of 0 bytes
 * is a count of 0). */
EA_API ea_result ea_try_read(struct ea_fd *fd, void *buf, size_t len);
EA_API ea_result ea_try_readv(struct ea_fd *fd, const struct iovec *iov, int iovcnt);

/* write(2), writev(2). May write less than asked. EPIPE comes back as -EPIPE; SIGPIPE is raised
 * as by write(2). */
EA_API ea_result ea_try_write(struct ea_fd *fd, const void *buf, size_t len);
EA_API ea_result ea_try_writev(struct ea_fd *fd, const struct iovec *iov, int iovcnt);

/* pread(2), pwrite(2) of what can be done at once: for files, what is in the page cache.
 * EA_WAIT_READABLE/WRITABLE then means "hand it to the offload pool". Files whose file system
 * cannot say so give -EOPNOTSUPP: the caller must assume that the call blocks. */
EA_API ea_result ea_try_pread(struct ea_fd *fd, void *buf, size_t len, off_t offset);
EA_API ea_result ea_try_pwrite(struct ea_fd *fd, const void *buf, size_t len, off_t offset);

/* recv(2), recvfrom(2), recvmsg(2), send(2), sendto(2), sendmsg(2). -ENOTSOCK for anything else. */
EA_API ea_result ea_try_recv(struct ea_fd *fd, void *buf, size_t len, int flags);
EA_API ea_result ea_try_recvfrom(struct ea_fd *fd, void *buf, size_t len, int flags,
                                 struct sockaddr *addr, socklen_t *addrlen);
EA_API ea_result ea_try_recvmsg(struct ea_fd *fd, struct msghdr *msg, int flags);
EA_API ea_result ea_try_send(struct ea_fd *fd, const void *buf, size_t len, int flags);
EA_API ea_result ea_try_sendto(struct ea_fd *fd, const void *buf, size_t len, int flags,
                               const struct sockaddr *addr, socklen_t addrlen);
EA_API ea_result ea_try_sendmsg(struct ea_fd *fd, const struct msghdr *msg, int flags);

/* accept4(2) with SOCK_CLOEXEC | SOCK_NONBLOCK (the new descriptor is ours). The listener's mode is
 * not changed: when it is not known to be non-blocking (EA_FD_NONBLOCKING), poll(2) is asked first.
 * Such a listener is the one case in which a call here can block: when another thread or process
 * accepts the connection between the two calls, until the next connection. ECONNABORTED and the
 * other errors that accept(2) passes on from the new connection mean "try again" and are retried
 * here, a few times. The new number, or -EMFILE and the like. */
EA_API ea_result ea_try_accept(struct ea_fd *fd, struct sockaddr *addr, socklen_t *addrlen);

/* The same with flags of the caller's choice: of SOCK_CLOEXEC and SOCK_NONBLOCK; -EINVAL for others. */
EA_API ea_result ea_try_accept_as(struct ea_fd *fd, struct sockaddr *addr, socklen_t *addrlen,
                                  int flags);

/* The second half of that alone, for who has asked poll(2) and can bear to wait where the connection
 * may be gone again: accept4(2), once, which blocks as the listener does. EA_WAIT_READABLE when there
 * is none, or it failed: ask poll(2) again. -EINTR when a signal came, unlike all else here. */
EA_API ea_result ea_accept_ready(struct ea_fd *fd, struct sockaddr *addr, socklen_t *addrlen,
                                 int flags);

/* connect(2) on a socket with O_NONBLOCK (ours: EA_FD_NONBLOCKING, or the caller's word). 0 when
 * connected; EA_WAIT_WRITABLE while in progress: wait, then ea_try_connected(). -EBUSY when the
 * backlog of a UNIX socket is full (EAGAIN of connect(2)): no event tells of room, so pause and
 * try again. */
EA_API ea_result ea_try_connect(struct ea_fd *fd, const struct sockaddr *addr, socklen_t addrlen);

/* The outcome of a connection attempt: 0, EA_WAIT_WRITABLE, or -errno from SO_ERROR; -ENOTCONN when
 * there was no attempt or its error was taken by somebody else. */
EA_API ea_result ea_try_connected(struct ea_fd *fd);

/* What poll(2) says now, without waiting: a mask of EA_READABLE... or -errno; -EBADF when fd is not
 * open. One system call. */
EA_API ea_result ea_try_poll(int fd, unsigned events);

EA_END

#endif
