/* Operations: calls that the kernel carries out while their caller sleeps.
 *
 * Where the backend offers them (io_uring, Linux 6.1 and later), an operation rides on the next turn of the
 * poller: it has no system call of its own, neither to begin nor to end. Where it does not, the caller tries
 * and waits, or has a thread do it (offload.h); ea_op_start() says which.
 *
 * An operation is embedded in whoever sleeps, beside the waiter, and is in one of four states:
 *
 *   idle      it may be moved, changed, freed
 *   queued    the kernel has not heard of it yet
 *   in flight the kernel may use op->buf, and holds the file
 *   over      result is set
 *
 * It is over when `done` is called, in a turn, or when ea_op_end() returns, whichever is first. Until then
 * the memory of the operation and of its buffer must stay.
 *
 * The kernel carries out an operation on a socket or a pipe in ea_poll_enter() and nowhere else. So what was
 * read is known to the very turn in which it was read, and an operation that ended without bytes has taken
 * none.
 *
 * All functions are for the thread that takes the poller's turns, and that must be the same one for as long
 * as an operation is in flight: who cannot promise that sets ea_poll.no_operations. */
#ifndef EAGAIN_OP_H
#define EAGAIN_OP_H

#include <eagain/poll.h>

#include <sys/types.h>

EA_BEGIN

enum ea_op_kind {
    EA_OP_RECEIVE, /* recv(2) of a stream socket, read(2) of a pipe: at most len bytes, into memory of the
                    * poller's; see ea_op_park() and ea_op_take() */
    EA_OP_READ,    /* pread(2) of a file; offset -1: where it stands */
    EA_OP_WRITE,   /* pwrite(2); the same */
    EA_OP_FSYNC,   /* fsync(2); flags 1: fdatasync(2) */
    EA_OP_OPENAT2, /* openat2(2): fd is the directory, buf the path, how of struct open_how * */
    EA_OP_WAITID, /* waitid(2) without the answer: fd is the id, flags the options, offset the idtype_t */
    EA_OP_KINDS
};

enum ea_op_state { EA_OP_IDLE, EA_OP_QUEUED, EA_OP_FLIGHT, EA_OP_OVER };

struct ea_op {
    struct ea_link queued; /* in the backend's queue, while queued */
    void (*done)(
        struct ea_op *op);    /* it is over; may free it. NULL: whoever is parked on it is woken */
    struct ea_waiter *waiter; /* who is parked on it; NULL: nobody */
    void *buf;                /* the caller's memory */
    const void *how;          /* EA_OP_OPENAT2 */
    size_t len;               /* of buf; at most INT32_MAX count */
    int64_t offset;
    ea_result
        result; /* a count, EA_EOF, a new descriptor, 0; or -errno. -ECANCELED: nothing was done;
                       * of EA_OP_RECEIVE also EA_WAIT_READABLE: nothing was done, try */
    int fd;
    uint32_t flags;
    uint32_t slot;   /* the backend's */
    uint16_t buffer; /* of what was received; EA_OP_NO_BUFFER: none */
    uint8_t kind;    /* enum ea_op_kind */
    uint8_t state;   /* enum ea_op_state */
};

#define EA_OP_NO_BUFFER UINT16_MAX

/* How much one EA_OP_RECEIVE brings at most. */
#define EA_OP_RECEIVE_MAX 2048

/* An idle operation. Set what else its kind asks for. */
EA_API void ea_op_init(struct ea_op *op, enum ea_op_kind kind, int fd);

/* Does the poller offer this kind, here and now? No system call but the first time. */
EA_API bool ea_op_offered(struct ea_poll *poll, enum ea_op_kind kind);

/* Queues it. 0; -ENOSYS: not offered; -ENOMEM. */
EA_API int ea_op_start(struct ea_poll *poll, struct ea_op *op);

/* Ends it, if it is not over: cancelled, and waited for until the kernel has let go of it. `done` is not called.
 * An operation on a socket, a pipe or a child ends at once (one system call); one on a file that is under way
 * when the disk has answered. */
EA_API void ea_op_end(struct ea_poll *poll, struct ea_op *op);

/* Parks waiter, as ea_poll_park() does, until the operation is over: on the number, for EA_OP_RECEIVE, which then
 * is a stream socket or a pipe, as its entry says (EA_FD_IS_SOCKET, else a pipe); on nothing but the deadline
 * for other kinds. EA_WAKE_READY: the operation is over, or it is worth another try. Whatever the reason, the
 * owner calls ea_op_end() before anything else, and looks at the result.
 *
 * Returns as ea_op_start(); -EMFILE. */
EA_API int ea_op_park(struct ea_poll *poll, struct ea_waiter *waiter, struct ea_op *op,
                      int64_t deadline);

/* The bytes that an EA_OP_RECEIVE brought, op->result of them: good until the next turn, or ea_op_end() of
 * another operation. NULL: none. To be called once for each operation whose result is a count. */
EA_API const void *ea_op_take(struct ea_poll *poll, struct ea_op *op);

/* Forgets all operations on behalf of owners that are gone, without touching their memory. Only EA_OP_RECEIVE
 * and EA_OP_WAITID may be in flight. What was received for them is lost. */
EA_API void ea_op_abandon_all(struct ea_poll *poll);

/* --- When to hand a read to the kernel without a try: when the last ones found nothing. Learnt in fd->dry; who
 * reads says what the first try of each read found. */

enum {
    EA_DRY_ENOUGH = 2, /* so many in a row */
    EA_DRY_AGAIN = 34, /* then so many less two without a try, before one is tried again */
    EA_DRY_OTHERWISE =
        -100, /* what is better tried, or cannot be received from: so many more tries that
                              * found nothing */
};

/* Is the next read one for EA_OP_RECEIVE? Counts it, if so. */
static inline bool ea_fd_expects_dry(struct ea_fd *fd) {
    if (EA_LIKELY(fd->dry < EA_DRY_ENOUGH))
        return false;
    if (++fd->dry > EA_DRY_AGAIN) {
        fd->dry = EA_DRY_ENOUGH - 1;
        return false;
    }
    return true;
}

static inline void ea_fd_tried(struct ea_fd *fd, bool dry) {
    if (!dry)
        fd->dry = fd->dry < 0 ? fd->dry : 0;
    else if (fd->dry < EA_DRY_ENOUGH)
        fd->dry++;
}

/* May it be received from (EA_OP_RECEIVE)? A stream socket, or a pipe. Asks the kernel, once when it may. */
EA_API bool ea_op_receives(struct ea_fd *fd);

EA_END

#endif
