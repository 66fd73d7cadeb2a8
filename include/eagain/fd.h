/* What is known of a descriptor, so that the kernel is not asked twice.
 *
 * A descriptor is not its number: numbers are reused the moment they are
 * closed. Each ea_fd therefore carries a generation, which ea_fd_forget()
 * advances; whoever remembered (number, generation) can tell that it speaks of
 * something that is gone.
 *
 * A table belongs to one thread at a time (the thread that runs the poller, or
 * whoever holds the lock that the owner chose). Entries are never moved, so a
 * pointer stays valid until the table is terminated. */
#ifndef EAGAIN_FD_H
#define EAGAIN_FD_H

#include <eagain/base.h>
#include <eagain/result.h>

EA_BEGIN

/* Facts, in ea_fd.known. A fact that is not known is learnt at first need. */
enum ea_fd_fact {
    EA_FD_IS_SOCKET = 1 << 0,       /* recv/send with MSG_DONTWAIT work on it */
    EA_FD_NOT_SOCKET = 1 << 1,      /* they do not: ENOTSOCK was seen */
    EA_FD_NOWAIT = 1 << 2,          /* preadv2/pwritev2(RWF_NOWAIT) work on it */
    EA_FD_NO_NOWAIT = 1 << 3,       /* preadv2 does not: EOPNOTSUPP was seen */
    EA_FD_NONBLOCKING = 1 << 4,     /* O_NONBLOCK was set by us, on a descriptor that we made */
    EA_FD_ALWAYS_READY = 1 << 5,    /* a regular file or the like: polling is pointless (EPERM) */
    EA_FD_SOCKET_FACTS = 1 << 6,    /* family, type and protocol below are valid */
    EA_FD_NO_NOWAIT_WRITE = 1 << 7, /* pwritev2 does not; preadv2 may, as on regular files */
    EA_FD_STREAM = 1 << 10,         /* a stream socket or a pipe */
    EA_FD_REGULAR =
        1 << 8, /* a regular file, on the word of the user of the table, who forgets when
                             * the number changes hands: plain write(2), no question asked */
    EA_FD_IN_MEMORY = 1 << 9, /* such a file, and its file system is memory (tmpfs): so are read(2),
                               * pread(2) and pwrite(2) */
};

struct ea_fd {
    int fd;              /* the number; constant for the life of the entry */
    uint32_t generation; /* advanced by every ea_fd_forget(), and by the poller when
                          * it registers anew what may have changed hands; never 0 */
    uint32_t known;      /* enum ea_fd_fact */
    int family;          /* AF_*, valid with EA_FD_SOCKET_FACTS */
    int type;            /* SOCK_*, valid with EA_FD_SOCKET_FACTS */
    int protocol;        /* IPPROTO_*, valid with EA_FD_SOCKET_FACTS */

    uint64_t owner; /* an id that the user of the table gave to whatever holds the
                     * number now (0: none). A different id in the same number means
                     * that the number was reused: forget, then adopt. */

    void *writer; /* whom the user of the table lets write alone, in pieces; NULL: anybody */

    /* The rest belongs to the poller (poll.h). */
    struct ea_link waiters; /* of ea_waiter.link: who is parked on this descriptor */
    struct ea_link pending; /* in the poller's list of deferred work on registrations */
    uint32_t registered;    /* the events that the backend was asked for, 0: none; the fields
                             * below mean something only when it is not 0 */
    uint32_t maybe_ready;   /* events reported since the last would-block that we saw: the
                             * descriptor may or may not be ready still */
    uint32_t epoch;         /* ea_poll.epoch when registered was set; another one voids it */
    uint8_t level;          /* the registration is level-triggered */
    uint8_t armed;          /* events for which a request is in flight that ends with its answer */
    int8_t dry;             /* how many reads in a row found nothing at first; see op.h */
};

static inline uint32_t ea_generation_after(uint32_t generation) {
    return generation == UINT32_MAX ? 1 : generation + 1;
}

/* A sparse array of ea_fd by number: two levels, pages made on demand. */
struct ea_fd_table {
    struct ea_fd ***pages; /* [number / per page][number % per page], either may be NULL */
    size_t page_count;
    size_t entry_count; /* how many ea_fd exist */
};

EA_API void ea_fd_table_init(struct ea_fd_table *table);

/* Frees every entry. Nobody may be waiting on one. */
EA_API void ea_fd_table_term(struct ea_fd_table *table);

/* The entry of a number, made if need be. NULL with errno EBADF (fd < 0) or ENOMEM. */
EA_API struct ea_fd *ea_fd_get(struct ea_fd_table *table, int fd);

/* The entry of a number if there is one, else NULL. Never allocates. */
EA_API struct ea_fd *ea_fd_find(const struct ea_fd_table *table, int fd);

/* Forgets everything: facts, owner, readiness. Advances the generation. The
 * caller has dealt with the registration and the waiters (ea_poll_forget does). */
EA_API void ea_fd_forget(struct ea_fd *fd);

/* Learns family, type and protocol with at most three getsockopt(2) calls, once.
 * Returns 0, or -ENOTSOCK, or -errno as getsockopt(2). */
EA_API ea_result ea_fd_learn_socket(struct ea_fd *fd);

EA_END

#endif
