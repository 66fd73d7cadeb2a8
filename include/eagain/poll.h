/* Who waits for what.
 *
 * A poller parks waiters on descriptors and deadlines and makes their owners runnable. One thread
 * owns it; other threads reach it through its inbox (ea_poll_post, ea_poll_nudge) alone.
 *
 * A waiter is embedded in whoever sleeps (a thread, a fiber, a test) and is in one of two states:
 *
 *   parked   reason == EA_WAKE_NONE; linked in its descriptor's list and/or with an armed timer
 *   woken    reason says why; unlinked everywhere; its wake function was called once
 *
 * Only ea_waiter_wake() moves it from parked to woken, so that the first reason wins and there is
 * no second wake-up. Nothing allocates per wait except the first time that a number is seen.
 *
 * Readiness backends report readiness, completion backends report results; a waiter sees both as
 * "woken, with revents". Backends are one file each (src/core/poll_*.c), behind ea_poll_backend. */
#ifndef EAGAIN_POLL_H
#define EAGAIN_POLL_H

#include <eagain/event.h>
#include <eagain/fd.h>
#include <eagain/timer.h>
#include <eagain/wake.h>

EA_BEGIN

enum ea_wake_reason {
    EA_WAKE_NONE = 0, /* still parked */
    EA_WAKE_READY,    /* revents is set; it was ready at some moment since it parked */
    EA_WAKE_TIMEOUT,  /* the deadline passed */
    EA_WAKE_CLOSED,   /* the descriptor was closed or its number reused */
    EA_WAKE_CANCEL,   /* somebody called ea_waiter_wake for a reason of their own */
};

struct ea_poll;
struct ea_op;

struct ea_waiter {
    struct ea_link link; /* in ea_fd.waiters while parked on a descriptor */
    struct ea_link
        parked; /* in ea_poll.parked[stage], oldest first, while parked on a descriptor */
    struct ea_poll *poll;
    struct ea_fd *fd; /* NULL when it waits for a deadline only */
    struct ea_op *op; /* what it is parked on besides (op.h), which does without a wait for events;
                            * NULL: nothing */
    struct ea_timer timer; /* armed while it has a deadline */
    int64_t since;         /* when it entered its stage, by the poller's clock */
    uint16_t events;       /* what it waits for */
    uint16_t revents;      /* what happened; with EA_WAKE_READY */
    uint8_t reason;        /* enum ea_wake_reason */
    uint8_t stage;         /* how often it was re-checked, up to EA_CHECK_STAGES - 1 */
    void (*wake)(struct ea_waiter *waiter);  /* makes the owner runnable; must not free the waiter's
                                             * poller, may free the waiter */
    bool (*valid)(struct ea_waiter *waiter); /* NULL, or: does the owner still hold the descriptor
                                              * under this number? Asked at each re-check */
};

/* Sleepers are re-checked, in one poll(2) for many, 8 ms, 64 ms and 512 ms after they parked
 * and then every second: the bound on how late a wake-up can be when a descriptor was replaced behind
 * our back (dup2(2), or close(2) and reuse by somebody else). */
#define EA_CHECK_STAGES 4

/* ea_poll_park flags. */
enum ea_park_flag {
    EA_PARK_DRY = 1, /* the caller has just seen would-block for these events: do not ask again */
    EA_PARK_UNSURE =
        2, /* the number may have been reused since: have the kernel look at it again */
};

#define EA_POLL_EVENTS 256

/* One event of a turn, as a backend stores it. */
struct ea_poll_event {
    int fd;
    uint32_t generation;
    uint32_t events;
    int32_t result; /* of an operation, as the backend has it; and */
    uint32_t flags;
};

struct ea_poll_backend {
    const char *name;
    bool
        simulated; /* numbers mean nothing to the kernel: sleepers are not re-checked with poll(2) */
    int (*init)(struct ea_poll *poll); /* 0 or -errno; sets poll->backend_data */
    void (*term)(struct ea_poll *poll);
    /* A waiter is about to be linked to fd (not linked yet). Make sure that it will be reported.
     * Returns 0; or EA_READABLE... when the descriptor is ready for good (regular files); or -errno. */
    int (*watch)(struct ea_poll *poll, struct ea_fd *fd, unsigned events, unsigned flags);
    /* What was asked for fd may be about a file that has the number no more: take it back. NULL where
     * a new registration replaces the old one. */
    void (*withdraw)(struct ea_poll *poll, struct ea_fd *fd);
    /* The number is about to be forgotten: drop the registration if that is still possible. */
    void (*forget)(struct ea_poll *poll, struct ea_fd *fd);
    /* Let go of files that are held for waits that have ended. NULL where none are. */
    void (*release)(struct ea_poll *poll);
    /* Last call before the kernel may be asked to sleep; the owner's lock is held. */
    void (*prepare)(struct ea_poll *poll, bool will_sleep);
    /* Start a new, empty set: the old one reports what cannot be taken out of it. 0 or -errno (the
     * old set stays). Registrations are renewed by the caller. */
    int (*rebuild)(struct ea_poll *poll);
    /* Ask the kernel; sleep at most timeout ns (0: do not, negative: for ever). Fills poll->events.
     * Touches nothing else of the poller: the owner's lock is not held. Count or -errno. */
    int (*enter)(struct ea_poll *poll, int64_t timeout);
    /* NULL: no operations. */
    const struct ea_op_backend *operations;
};

struct ea_poll {
    const struct ea_poll_backend *backend;
    void *backend_data;
    struct ea_fd_table fds;
    struct ea_timers timers;
    struct ea_wake wake;
    struct ea_link parked[EA_CHECK_STAGES]; /* of ea_waiter.parked: every waiter on a descriptor */
    struct ea_link pending; /* of ea_fd.pending: registrations that need work before we sleep */
    size_t waiting;         /* how many waiters are parked on descriptors */
    int64_t now;            /* the clock, as of the last turn */
    uint32_t epoch;         /* advanced when the backend's set was built anew */
    uint32_t stale;         /* events of forgotten registrations since the set was last rebuilt */
    bool woken;             /* enter saw the wake descriptor */
    bool holding;           /* files may be held for waits that ended otherwise than by an event */
    bool no_operations;     /* set by whose turns are taken by changing threads; see op.h */
    /* Counters for tests and for doctor/--stats. */
    uint64_t turns;                              /* calls of enter */
    uint64_t wakeups;                            /* waiters woken */
    uint64_t checks;                             /* re-checks of sleepers */
    struct ea_poll_event events[EA_POLL_EVENTS]; /* last: all before it starts as zero */
};

/* The backends of this build and platform, best first, NULL-terminated. */
EA_API const struct ea_poll_backend *const *ea_poll_backends(void);

/* By name, or NULL. */
EA_API const struct ea_poll_backend *ea_poll_backend_find(const char *name);

/* Starts a poller. backend NULL: what EAGAIN_BACKEND names, else the first that starts.
 * 0, -EINVAL (EAGAIN_BACKEND names none), -ENOMEM, -EMFILE, or -errno of the backend. */
EA_API int ea_poll_init(struct ea_poll *poll, const struct ea_poll_backend *backend);

/* Ends it. Waiters that are still parked are woken with EA_WAKE_CANCEL first. */
EA_API void ea_poll_term(struct ea_poll *poll);

/* In the child after fork(2): new kernel objects, nothing registered; the parent's are closed and
 * not touched otherwise. Parked waiters stay parked and are registered anew. 0 or -errno. */
EA_API int ea_poll_after_fork(struct ea_poll *poll);

EA_API void ea_waiter_init(struct ea_waiter *waiter, struct ea_poll *poll,
                           void (*wake)(struct ea_waiter *));

/* Parks waiter until fd is ready for events, or the deadline (ns, EA_TIME_NEVER for none).
 * fd -1: the deadline alone. Returns
 *   0        parked; wake will be called once, from a later call on the poller;
 *   > 0      not parked: ready now for these events, for good (a regular file);
 *   -EBADF   fd is not open; -EMFILE/-ENOMEM/-ENOSPC as epoll_ctl(2). Not parked.
 * Costs no system call on a descriptor that the poller knows, but for the cases that
 * docs/decisions/readiness.md lists. */
EA_API int ea_poll_park(struct ea_poll *poll, struct ea_waiter *waiter, int fd, unsigned events,
                        int64_t deadline, unsigned flags);

/* Wakes a parked waiter now. Returns false, and does nothing, when it was woken already. O(1). */
EA_API bool ea_waiter_wake(struct ea_waiter *waiter, enum ea_wake_reason reason, unsigned revents);

static inline bool ea_waiter_parked(const struct ea_waiter *waiter) {
    return waiter->reason == EA_WAKE_NONE;
}

EA_API void ea_poll_release_now(struct ea_poll *poll);

/* For whoever waited, was woken for another reason than EA_WAKE_READY, and goes on to do something other
 * than wait: a close(2) without a word to ea_poll_forget() takes effect at once from here on, rather than
 * with the next turn. At most one system call, mostly none. */
static inline void ea_poll_release(struct ea_poll *poll) {
    if (EA_UNLIKELY(poll->holding))
        ea_poll_release_now(poll);
}

/* Whoever reads or writes outside of a wait says what it learnt: would-block (events are dry). */
EA_API void ea_poll_saw_dry(struct ea_poll *poll, struct ea_fd *fd, unsigned events);

/* Asks every waiter's valid() and wakes those that are not, with EA_WAKE_CLOSED. No system call;
 * O(waiters). */
EA_API void ea_poll_validate(struct ea_poll *poll);

/* The number was closed or given to something else: its waiters are woken with EA_WAKE_CLOSED and
 * all that was known of it is forgotten. Harmless for a number never seen. */
EA_API void ea_poll_forget(struct ea_poll *poll, int fd);

/* How long the next turn may sleep, in ns: 0 when there is work already, at most limit
 * (negative: no limit); -1 for ever. */
EA_API int64_t ea_poll_timeout(struct ea_poll *poll, int64_t limit);

/* One turn in three steps, so that a lock can be let go around the second.
 *   int64_t timeout = ea_poll_prepare(poll, limit);      with the lock
 *   int n = ea_poll_enter(poll, timeout);                without
 *   size_t woken = ea_poll_dispatch(poll, n);            with the lock
 * enter returns what to pass on (a count, or -EINTR and the like, which dispatch accepts). */
EA_API int64_t ea_poll_prepare(struct ea_poll *poll, int64_t limit);
EA_API int ea_poll_enter(struct ea_poll *poll, int64_t timeout);
EA_API size_t ea_poll_dispatch(struct ea_poll *poll, int entered);

/* The three together. Sleeps at most limit ns (negative: no limit). Returns how many were woken. */
EA_API size_t ea_poll_turn(struct ea_poll *poll, int64_t limit);

/* Runs message->deliver in the owner's thread, in its next turn. From any thread or signal handler. */
static inline void ea_poll_post(struct ea_poll *poll, struct ea_message *message) {
    ea_wake_post(&poll->wake, message);
}

/* Makes the owner return from its sleep. From any thread or signal handler. */
static inline void ea_poll_nudge(struct ea_poll *poll) {
    ea_wake_nudge(&poll->wake);
}

EA_END

#endif
