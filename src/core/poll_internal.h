/* What the poller and its backends share, and nobody else needs. */
#ifndef EA_POLL_INTERNAL_H
#define EA_POLL_INTERNAL_H

#include <eagain/op.h>
#include <eagain/poll.h>
#include <poll.h>

/* What one wait may ask for. */
#define EA_EVENTS_ASKED (EA_READABLE | EA_PRIORITY | EA_WRITABLE)

/* The events that somebody waits for on fd now. */
static inline uint32_t ea_fd_wanted(const struct ea_fd *fd) {
    uint32_t wanted = 0;
    for (const struct ea_link *l = fd->waiters.next; l != &fd->waiters; l = l->next) {
        const struct ea_waiter *waiter = EA_CONTAINER(l, struct ea_waiter, link);
        wanted |= waiter->op ? 0 : waiter->events;
    }
    return wanted;
}

/* What poll_event.events holds for a number that turned out not to be open (POLLNVAL). */
#define EA_EVENT_INVALID UINT32_MAX
/* The bit that says: what was asked for ended without an answer, ask again. */
#define EA_EVENT_AGAIN (UINT32_C(1) << 31)
/* An operation is over: the rest is for the backend's `completed`. */
#define EA_EVENT_OPERATION (UINT32_MAX - 1)

/* The operations of a backend; op.c sees to the rest. */
struct ea_op_backend {
    bool (*offers)(struct ea_poll *poll, enum ea_op_kind kind);
    /* Queues an idle operation of a kind that is offered. 0 or -ENOMEM. */
    int (*start)(struct ea_poll *poll, struct ea_op *op);
    /* Ends one that is in flight. When it returns, it is over. */
    void (*end)(struct ea_poll *poll, struct ea_op *op);
    /* The operation of an event that enter stored, which is over now; NULL: nobody's. */
    struct ea_op *(*completed)(struct ea_poll *poll, const struct ea_poll_event *event);
    /* The memory of op->buffer, which the backend may use again from the next turn on. */
    const void *(*take)(struct ea_poll *poll, struct ea_op *op);
    /* Ends all that are in flight, whose owners are gone. */
    void (*abandon)(struct ea_poll *poll);
};

/* Links waiter to its descriptor (NULL: none) and arms its deadline: it is parked. */
void ea_waiter_link(struct ea_poll *poll, struct ea_waiter *waiter, struct ea_fd *fd,
                    unsigned events, int64_t deadline);

/* Ends the operations that are parked on fd. */
void ea_op_forget(struct ea_poll *poll, const struct ea_fd *fd);
/* It is over: its `done` is called, or who is parked on it is woken. op->result is what the kernel said. */
void ea_op_over(struct ea_poll *poll, struct ea_op *op);
/* An event of an operation. */
void ea_op_completed(struct ea_poll *poll, const struct ea_poll_event *event);

/* poll(2) that does not wait, for any count (poll(2) itself takes at most RLIMIT_NOFILE). As many as
 * are ready, or -1. */
int ea_poll_now(struct pollfd *fds, nfds_t count);

/* Moves every link of from to the empty head to. */
static inline void ea_link_splice(struct ea_link *to, struct ea_link *from) {
    if (ea_link_alone(from)) {
        ea_link_init(to);
        return;
    }
    *to = *from;
    to->next->prev = to;
    to->prev->next = to;
    ea_link_init(from);
}

/* Takes link out of whatever list it is in and puts it at the end of another. */
static inline void ea_link_move(struct ea_link *to, struct ea_link *link) {
    link->prev->next = link->next;
    link->next->prev = link->prev;
    ea_link_insert_before(to, link);
}

/* A registration of an earlier set is none. Call before looking at fd->registered. */
static inline void ea_fd_sync(const struct ea_poll *poll, struct ea_fd *fd) {
    if (fd->epoch == poll->epoch)
        return;
    fd->epoch = poll->epoch;
    fd->registered = 0;
    fd->armed = 0;
}

/* Has the backend look at fd's registration before the kernel is entered next. */
static inline void ea_poll_defer(struct ea_poll *poll, struct ea_fd *fd) {
    if (ea_link_alone(&fd->pending))
        ea_link_insert_before(&poll->pending, &fd->pending);
}

/* A new set of registrations begins: those of the old one are void (see ea_fd.epoch), and what is
 * waited for is asked for anew. A descriptor that cannot be registered any more wakes its waiters. */
void ea_poll_rewatch(struct ea_poll *poll);

/* Backends of this build; each is one file. */
extern const struct ea_poll_backend ea_poll_epoll;
extern const struct ea_poll_backend ea_poll_poll;

#ifdef EA_HAVE_LIBURING
extern const struct ea_poll_backend ea_poll_uring;

/* What rings that are made from now on have to do with; for tests. */
struct ea_uring_limits {
    unsigned entries; /* of the submission queue; the completion queue has twice as many */
    unsigned refused; /* IORING_SETUP_* flags that this kernel is said not to know */
};
extern struct ea_uring_limits ea_uring_limits;

/* Calls of io_uring_enter(2) so far, and the IORING_SETUP_* flags. The backend must be io_uring. */
uint64_t ea_uring_enters(const struct ea_poll *poll);
unsigned ea_uring_setup(const struct ea_poll *poll);
#endif

#endif
