/* What the files of the io_uring backend share: poll_uring.c (waits and turns), uring_ring.c (the ring),
 * uring_op.c (operations). */
#ifndef EA_URING_H
#define EA_URING_H

#include "poll_internal.h"

#include <liburing.h>

struct uring_slot;

/* Operations in flight, and the memory for what is received; uring_op.c. */
struct uring_ops {
    struct ea_link queue; /* of ea_op.queued */
    struct uring_slot *slots;
    uint32_t slot_count;
    uint32_t slot_free;             /* the first free one; see struct uring_slot */
    uint32_t lending;               /* how many are in flight that use memory of their owners' */
    struct io_uring_buf_ring *ring; /* NULL: none yet */
    char *memory;                   /* of the buffers */
    uint32_t buffers;               /* how many there are */
    bool failed;                    /* there is no such ring to be had */
    bool renewed;                   /* the ring is another than the first: no operations any more */
    /* Events that were collected while somebody waited for the end of an operation. */
    struct ea_poll_event *kept;
    size_t kept_count, kept_room;
};

struct uring {
    struct io_uring ring;
    unsigned
        forks;    /* when the ring was made: a child's copy of it shares memory with the parent's */
    bool enabled; /* false: made disabled, so that it will be the thread's that enters first */
    bool foreign; /* another thread has entered since: see ea_uring_own() */
    bool renew;   /* the ring must be replaced: foreign, or it would not take a cancellation */
    bool hurry;   /* there is work left: do not sleep in this turn */
    bool wake_armed; /* the poll of the wake descriptor is in flight */
    uint64_t enters; /* calls of io_uring_enter(2) */
    struct uring_ops ops;
};

/* User data: (generation, direction, number). No generation is 0. The direction of operations is none, and
 * their number that of their slot, which leaves liburing's own value alone: there are not that many. */
#define IGNORE_DATA UINT64_C(0)
#define WAKE_DATA UINT64_C(1)
#define NUMBER_BITS 30
#define NUMBER_MAX ((1 << NUMBER_BITS) - 1)
#define OPERATION_DIRECTION 3

static inline uint64_t ea_uring_data(uint32_t generation, int direction, uint32_t number) {
    return (uint64_t)generation << 32 | (uint64_t)direction << NUMBER_BITS | number;
}

static inline int ea_uring_direction(uint64_t data) {
    return (int)((uint32_t)data >> NUMBER_BITS);
}

static inline unsigned ea_uring_flags(const struct uring *u) {
    return IO_URING_READ_ONCE(*u->ring.sq.kflags);
}

/* Is any request complete, and not yet collected? */
static inline bool ea_uring_answers(const struct uring *u) {
    return io_uring_cq_ready(&u->ring) > 0 || u->ops.kept_count > 0 ||
           ea_uring_flags(u) & (IORING_SQ_TASKRUN | IORING_SQ_CQ_OVERFLOW);
}

/* --- uring_ring.c */

/* 0 or -errno. */
int ea_uring_open(struct uring *u);
/* False in a child: even to queue something would be to write into the parent's ring. */
bool ea_uring_ours(const struct uring *u);
/* Sees to it that this thread may submit. */
void ea_uring_own(struct ea_poll *poll, struct uring *u);
/* Takes note of a call of io_uring_enter(2), and passes its result on. */
int ea_uring_entered(struct uring *u, int rc);
/* Gives the kernel what is queued, and has it post what is complete. Does not wait. */
int ea_uring_submit(struct uring *u);
/* NULL: the kernel takes no more for now. */
struct io_uring_sqe *ea_uring_sqe(struct uring *u);
/* Queues the cancellation of a request. False: the kernel takes no more for now. */
bool ea_uring_cancel(struct uring *u, uint64_t data);

/* --- poll_uring.c */

/* Takes the answer: the event that it makes (true), or none. */
bool ea_uring_answer(struct ea_poll *poll, struct uring *u, const struct io_uring_cqe *cqe,
                     struct ea_poll_event *event);

/* --- uring_op.c */

extern const struct ea_op_backend ea_uring_operations;

void ea_uring_ops_init(struct uring *u);
/* Submits what is queued. */
void ea_uring_ops_settle(struct uring *u);
/* Ends all; nobody is parked any more. */
void ea_uring_ops_term(struct ea_poll *poll, struct uring *u);
/* The ring is a new one: what was in flight has ended somehow. */
void ea_uring_ops_renewed(struct ea_poll *poll, struct uring *u);
/* Collects what is complete, for ea_uring_ops_kept(). */
void ea_uring_ops_keep(struct ea_poll *poll, struct uring *u);
/* Hands over at most so many of the events that were kept, oldest first; how many. */
size_t ea_uring_ops_kept(struct uring *u, struct ea_poll_event *events, size_t count);

#endif
