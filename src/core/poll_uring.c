/* The io_uring(7) backend, on liburing.
 *
 * A wait is a one-shot IORING_OP_POLL_ADD. It is not asked for when the waiter parks, but put into
 * poll->pending: before the kernel is entered anyway, each descriptor there is compared with who waits on
 * it by then, and only the difference is submitted. So a wait has no system call of its own, and one that
 * began and ended within a turn, or ended and began anew, is never heard of.
 *
 * A request holds its file, not its number: while it is in flight, close(2) does not end a connection,
 * and what has the number next is not what is being watched. Therefore nothing is in flight that nobody
 * waits for, but until the next turn; see docs/decisions/io_uring.md.
 *
 * A request is known by (generation, direction, number), its user data, and `ea_fd.armed` holds the
 * directions in flight:
 *
 *   not armed   wanted: POLL_ADD                                                      -> armed
 *   armed       completed: the event clears the bit, then wakes                       -> not armed
 *               not wanted any more: cancelled, and the generation advances, so that
 *               the answer, whatever it is, belongs to nobody                         -> not armed
 *
 * Each direction is a request of its own, for a mask cannot be changed without a race against its
 * completion.
 *
 * IORING_OP_ASYNC_CANCEL and not POLL_REMOVE: the latter fails with EALREADY while the kernel looks at a
 * wake-up, which may turn out to be none, and the request would stay. */
#include "poll_internal.h"

#ifdef EA_HAVE_LIBURING

#include <errno.h>
#include <liburing.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

/* How many requests one io_uring_enter(2) can take; more take more. */
#define ENTRIES 1024
#define ENTRIES_MIN 32

struct ea_uring_limits ea_uring_limits = {.entries = ENTRIES};

struct uring {
    struct io_uring ring;
    unsigned
        forks;    /* when the ring was made: a child's copy of it shares memory with the parent's */
    bool enabled; /* false: made disabled, so that it will be the thread's that enters first */
    bool foreign; /* another thread has entered since: see renew() */
    bool renew;   /* the ring must be replaced: foreign, or it would not take a cancellation */
    bool hurry;   /* there is work left: do not sleep in this turn */
    bool wake_armed; /* the poll of the wake descriptor is in flight */
    uint64_t enters; /* calls of io_uring_enter(2) */
};

/* What the kernel must be able to do: wait with a timeout (5.11), lose no completion (5.5), multishot
 * polls (5.13, which has no flag of its own). */
#define FEATURES (IORING_FEAT_EXT_ARG | IORING_FEAT_NODROP | IORING_FEAT_RSRC_TAGS)

/* From best to plainest. A ring that is made disabled belongs to whom enables it. */
static const unsigned setups[] = {
    IORING_SETUP_SINGLE_ISSUER | IORING_SETUP_DEFER_TASKRUN | IORING_SETUP_TASKRUN_FLAG |
        IORING_SETUP_SUBMIT_ALL | IORING_SETUP_R_DISABLED,                           /* 6.1 */
    IORING_SETUP_COOP_TASKRUN | IORING_SETUP_TASKRUN_FLAG | IORING_SETUP_SUBMIT_ALL, /* 5.19 */
    0,
};
#define SETUPS ((int)(sizeof setups / sizeof *setups))

/* User data. No generation is 0, and no direction is 3, which leaves liburing's own value alone. */
#define IGNORE_DATA UINT64_C(0)
#define WAKE_DATA UINT64_C(1)
#define NUMBER_BITS 30
#define NUMBER_MAX ((1 << NUMBER_BITS) - 1)

static const unsigned directions[] = {EA_READABLE, EA_PRIORITY, EA_WRITABLE};
#define DIRECTIONS ((int)(sizeof directions / sizeof *directions))
/* In ea_fd.armed: what is in flight is to be asked for anew. No event, hence never wanted. */
#define ARMED_DOUBTFUL 0x80

_Static_assert(POLLIN == EA_READABLE && POLLPRI == EA_PRIORITY && POLLOUT == EA_WRITABLE &&
                   POLLERR == EA_ERROR && POLLHUP == EA_HANGUP,
               "events are passed to the kernel as they are");

static uint64_t request_data(const struct ea_fd *fd, int direction) {
    return (uint64_t)fd->generation << 32 | (uint64_t)direction << NUMBER_BITS | (uint32_t)fd->fd;
}

/* --- The ring. */

/* How often this process is a forked child. relaxed: fork(2) orders it, and nobody else writes. */
static _Atomic unsigned forks;

static void count_fork(void) {
    atomic_fetch_add_explicit(&forks, 1, memory_order_relaxed);
}

static void watch_forks(void) {
    pthread_atfork(NULL, NULL, count_fork); /* without memory for it: as if nobody forked */
}

/* False in a child: even to queue something would be to write into the parent's ring. */
static bool ours(const struct uring *u) {
    return u->forks == atomic_load_explicit(&forks, memory_order_relaxed);
}

/* 0 or -errno. first: where in setups to begin. */
static int open_ring(struct io_uring *ring, int first) {
    unsigned entries = ea_uring_limits.entries;
    for (int i = first; i < SETUPS;) {
        struct io_uring_params params = {.flags = setups[i]};
        int rc = setups[i] & ea_uring_limits.refused
                     ? -EINVAL
                     : io_uring_queue_init_params(entries, ring, &params);
        if (rc == 0) {
            if ((params.features & FEATURES) == FEATURES)
                return 0;
            io_uring_queue_exit(ring);
            return -ENOSYS;
        }
        if (rc == -EINVAL)
            i++;
        else if (rc == -ENOMEM && entries > ENTRIES_MIN) /* RLIMIT_MEMLOCK, before 5.12 */
            entries /= 2;
        else
            return rc;
    }
    return -EINVAL;
}

static void opened(struct uring *u) {
    u->forks = atomic_load_explicit(&forks, memory_order_relaxed);
    u->enabled = !(u->ring.flags & IORING_SETUP_R_DISABLED);
    u->wake_armed = u->renew = false;
}

static int uring_init(struct ea_poll *poll) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, watch_forks);
    struct uring *u = calloc(1, sizeof *u);
    if (!u)
        return -ENOMEM;
    int rc = open_ring(&u->ring, 0);
    if (rc < 0) {
        free(u);
        return rc;
    }
    opened(u);
    poll->backend_data = u;
    return 0;
}

/* The ring becomes this thread's. */
static void enable(struct uring *u) {
    u->enabled = io_uring_register(u->ring.ring_fd, IORING_REGISTER_ENABLE_RINGS, NULL, 0) == 0;
}

/* A new ring; what was in flight in the old one goes with it. One that several threads enter (Ruby's, when
 * they are not bound to native threads) is one of the plainest kind, whose completions need no particular
 * thread to ask for them. */
static void renew(struct ea_poll *poll, struct uring *u) {
    struct io_uring ring;
    u->hurry = true;
    if (open_ring(&ring, u->foreign ? SETUPS - 1 : 0) < 0)
        return; /* try again in the next turn */
    io_uring_queue_exit(&u->ring);
    u->ring = ring;
    opened(u);
    ea_poll_rewatch(poll);
}

/* Sees to it that this thread may submit. */
static void own(struct ea_poll *poll, struct uring *u) {
    if (EA_UNLIKELY(u->renew || !ours(u)))
        renew(poll, u);
    if (EA_UNLIKELY(!u->enabled))
        enable(u);
}

static unsigned ring_flags(const struct uring *u) {
    return IO_URING_READ_ONCE(*u->ring.sq.kflags);
}

/* Is any request complete, and not yet collected? */
static bool answers_pending(const struct uring *u) {
    return io_uring_cq_ready(&u->ring) > 0 ||
           ring_flags(u) & (IORING_SQ_TASKRUN | IORING_SQ_CQ_OVERFLOW);
}

/* Takes note of a call of io_uring_enter(2), and passes its result on. */
static int entered(struct uring *u, int rc) {
    u->enters++;
    if (EA_UNLIKELY(rc == -EEXIST)) /* SINGLE_ISSUER, and we are not the one */
        u->foreign = u->renew = true;
    return rc;
}

/* Gives the kernel what is queued, and has it post what is complete. Does not wait. */
static int submit(struct uring *u) {
    return entered(u, io_uring_submit_and_get_events(&u->ring));
}

/* NULL: the kernel takes no more for now. */
static struct io_uring_sqe *next_sqe(struct uring *u) {
    struct io_uring_sqe *sqe = io_uring_get_sqe(&u->ring);
    if (EA_UNLIKELY(!sqe)) {
        submit(u);
        sqe = io_uring_get_sqe(&u->ring);
    }
    return sqe;
}

/* --- Requests. */

/* What is in flight for fd, if anything is, is nobody's from now on. */
static void uring_withdraw(struct ea_poll *poll, struct ea_fd *fd) {
    struct uring *u = poll->backend_data;
    ea_fd_sync(poll, fd);
    if (!fd->armed)
        return;
    for (int i = 0; i < DIRECTIONS && EA_LIKELY(ours(u)); i++) {
        if (!(fd->armed & directions[i]))
            continue;
        struct io_uring_sqe *sqe = next_sqe(u);
        if (EA_UNLIKELY(!sqe)) {
            u->renew = true;
            break;
        }
        io_uring_prep_cancel64(sqe, request_data(fd, i), 0);
        if (u->ring.features & IORING_FEAT_CQE_SKIP)
            sqe->flags |= IOSQE_CQE_SKIP_SUCCESS;
        io_uring_sqe_set_data64(sqe, IGNORE_DATA);
    }
    fd->armed = 0;
    fd->generation = ea_generation_after(fd->generation);
}

/* Brings what is in flight for fd in line with who waits. False: the kernel takes no more for now. */
static bool settle(struct ea_poll *poll, struct uring *u, struct ea_fd *fd) {
    ea_fd_sync(poll, fd);
    uint32_t wanted = ea_fd_wanted(fd);
    if (fd->armed & ~wanted)
        uring_withdraw(poll, fd);
    for (int i = 0; i < DIRECTIONS; i++) {
        if (!(wanted & ~fd->armed & directions[i]))
            continue;
        struct io_uring_sqe *sqe = next_sqe(u);
        if (EA_UNLIKELY(!sqe))
            return false;
        io_uring_prep_poll_add(sqe, fd->fd, directions[i]);
        io_uring_sqe_set_data64(sqe, request_data(fd, i));
        fd->armed |= (uint8_t)directions[i];
    }
    return true;
}

static void settle_all(struct ea_poll *poll, struct uring *u) {
    while (!ea_link_alone(&poll->pending)) {
        struct ea_fd *fd = EA_CONTAINER(poll->pending.next, struct ea_fd, pending);
        if (EA_UNLIKELY(!settle(poll, u, fd))) {
            u->hurry = true;
            return;
        }
        ea_link_remove(&fd->pending);
    }
}

/* Has what was withdrawn let go of its file, now. The kernel carries out a few cancellations in each
 * call. */
static void finish(struct uring *u) {
    int calls = 0;
    if (!u->enabled || !ours(u))
        return;
    do
        if (submit(u) < 0)
            return;
    while (ring_flags(u) & IORING_SQ_TASKRUN && ++calls < ENTRIES);
}

static void uring_release(struct ea_poll *poll) {
    if (!ours(poll->backend_data))
        return;
    settle_all(poll, poll->backend_data);
    finish(poll->backend_data);
}

/* Nobody is asked who waits: sleepers may be gone with the memory that they were in. Before 5.19 this does
 * nothing. */
static void withdraw_all(struct uring *u) {
    struct io_uring_sqe *sqe = next_sqe(u);
    if (!sqe)
        return;
    io_uring_prep_cancel64(sqe, 0, IORING_ASYNC_CANCEL_ANY | IORING_ASYNC_CANCEL_ALL);
    io_uring_sqe_set_data64(sqe, IGNORE_DATA);
    finish(u);
}

static void uring_term(struct ea_poll *poll) {
    struct uring *u = poll->backend_data;
    if (!u)
        return;
    /* To close the ring is not enough: the kernel lets go of the files some time after. */
    if (u->enabled && ours(u))
        withdraw_all(u);
    io_uring_queue_exit(&u->ring);
    free(u);
    poll->backend_data = NULL;
}

/* Is the number open, and does it make sense to wait? A socket that has just said "would block" is asked
 * no more questions. */
static int look_at(struct ea_fd *fd, unsigned flags) {
    fd->known &= ~(uint32_t)EA_FD_ALWAYS_READY;
    if (flags & EA_PARK_DRY && !(flags & EA_PARK_UNSURE) && fd->known & EA_FD_IS_SOCKET)
        return 0;
    struct stat st;
    if (fstat(fd->fd, &st) < 0)
        return -errno;
    if (S_ISREG(st.st_mode) || S_ISDIR(st.st_mode))
        fd->known |= EA_FD_ALWAYS_READY;
    return 0;
}

static int uring_watch(struct ea_poll *poll, struct ea_fd *fd, unsigned events, unsigned flags) {
    ea_fd_sync(poll, fd);
    if (EA_UNLIKELY(!fd->registered || flags & EA_PARK_UNSURE)) {
        if (fd->fd > NUMBER_MAX)
            return -EMFILE;
        int rc = look_at(fd, flags);
        if (rc < 0)
            return rc;
        if (fd->armed) /* perhaps for another file: ask anew for all who wait */
            fd->armed |= ARMED_DOUBTFUL;
    }
    if (EA_UNLIKELY(fd->known & EA_FD_ALWAYS_READY))
        return (int)events;
    fd->registered |= events;
    /* A wait ended and another one begins: an answer that is on its way is to the earlier one, and what
     * it tells of may have been read since. */
    if (fd->armed && !ea_link_alone(&fd->pending) && answers_pending(poll->backend_data))
        fd->armed |= ARMED_DOUBTFUL;
    if ((fd->armed & (events | ARMED_DOUBTFUL)) != events)
        ea_poll_defer(poll, fd);
    return 0;
}

static void uring_forget(struct ea_poll *poll, struct ea_fd *fd) {
    ea_fd_sync(poll, fd);
    if (!fd->armed)
        return;
    uring_withdraw(poll, fd);
    finish(poll->backend_data);
}

/* --- Turns. */

static void uring_prepare(struct ea_poll *poll, bool will_sleep) {
    (void)will_sleep;
    struct uring *u = poll->backend_data;
    u->hurry = false;
    own(poll, u);
    settle_all(poll, u);
    poll->holding = false;
}

/* Completions of requests that are forgotten are recognised one by one; no set needs to be rebuilt. */
static int uring_rebuild(struct ea_poll *poll) {
    (void)poll;
    return -ENOSYS;
}

/* The wake descriptor has a multishot poll: it is ours, so that nothing is held too long. The kernel ends
 * that poll when the completion queue overflows. */
static void arm_wake(const struct ea_poll *poll, struct uring *u) {
    struct io_uring_sqe *sqe = next_sqe(u);
    if (EA_UNLIKELY(!sqe)) {
        u->hurry = true;
        return;
    }
    io_uring_prep_poll_multishot(sqe, poll->wake.read_fd, POLLIN);
    io_uring_sqe_set_data64(sqe, WAKE_DATA);
    u->wake_armed = true;
}

/* What the poller is told of a request that ended with res. */
static uint32_t completed(int res, uint32_t direction) {
    if (res >= 0) {
        uint32_t events = (uint32_t)res | direction;
        return events & EA_HANGUP ? events | EA_READABLE : events;
    }
    switch (res) {
    case -EBADF:
        return EA_EVENT_INVALID;
    case -ECANCELED: /* by us; or the thread that submitted it has ended */
    case -ENOMEM:
    case -EAGAIN:
        return EA_EVENT_AGAIN | direction;
    default:
        return EA_ERROR | direction;
    }
}

/* The requests of one descriptor, made together, are answered together: one event, so that who waits for
 * either of two directions hears of both. */
static bool merge(struct ea_poll_event *last, const struct ea_poll_event *event) {
    if (last->fd != event->fd || last->generation != event->generation ||
        (last->events | event->events) & EA_EVENT_AGAIN)
        return false;
    last->events |= event->events;
    return true;
}

static int collect(struct ea_poll *poll, struct uring *u) {
    struct io_uring_cqe *cqe;
    unsigned head, seen = 0;
    int stored = 0;
    io_uring_for_each_cqe(&u->ring, head, cqe) {
        uint64_t data = cqe->user_data;
        if (data == WAKE_DATA) {
            /* An eventfd gives an edge for each write; a pipe must be read. */
            poll->woken = poll->wake.read_fd != poll->wake.write_fd;
            u->wake_armed = cqe->flags & IORING_CQE_F_MORE;
        } else if (data != IGNORE_DATA) {
            uint32_t low = (uint32_t)data;
            struct ea_poll_event event = {
                .fd = (int)(low & NUMBER_MAX),
                .generation = (uint32_t)(data >> 32),
                .events = completed(cqe->res, directions[low >> NUMBER_BITS]),
            };
            if (stored == 0 || !merge(&poll->events[stored - 1], &event)) {
                if (stored == EA_POLL_EVENTS)
                    break;
                poll->events[stored++] = event;
            }
        }
        seen++;
    }
    io_uring_cq_advance(&u->ring, seen);
    return stored;
}

static int ask(struct uring *u, int64_t timeout) {
    struct io_uring *ring = &u->ring;
    if (timeout == 0 || u->hurry || io_uring_cq_ready(ring) > 0) {
        /* Without a call when there is nothing to say and nothing to hear. */
        bool hear = ring_flags(u) & (IORING_SQ_TASKRUN | IORING_SQ_CQ_OVERFLOW);
        return hear || io_uring_sq_ready(ring) > 0 ? submit(u) : 0;
    }
    struct io_uring_cqe *cqe;
    struct __kernel_timespec span = {.tv_sec = timeout / 1000000000,
                                     .tv_nsec = timeout % 1000000000};
    if (timeout < 0) /* never; without a timeout liburing would go on waiting after a signal */
        span = (struct __kernel_timespec){.tv_sec = INT32_MAX};
    return entered(u, io_uring_submit_and_wait_timeout(ring, &cqe, 1, &span, NULL));
}

/* The kernel is short of something: ask again, but do not spin. */
static void doze(void) {
    (void)poll(NULL, 0, 1);
}

static int uring_enter(struct ea_poll *poll, int64_t timeout) {
    struct uring *u = poll->backend_data;
    if (EA_UNLIKELY(!u->wake_armed))
        arm_wake(poll, u);
    int rc = ask(u, timeout);
    int stored = collect(poll, u);
    if (EA_LIKELY(rc >= 0 || rc == -ETIME || stored > 0))
        return stored;
    if (rc != -EINTR && timeout != 0)
        doze();
    return rc;
}

uint64_t ea_uring_enters(const struct ea_poll *poll) {
    const struct uring *u = poll->backend_data;
    return u->enters;
}

unsigned ea_uring_setup(const struct ea_poll *poll) {
    const struct uring *u = poll->backend_data;
    return u->ring.flags;
}

const struct ea_poll_backend ea_poll_uring = {
    .name = "io_uring",
    .init = uring_init,
    .term = uring_term,
    .watch = uring_watch,
    .withdraw = uring_withdraw,
    .forget = uring_forget,
    .release = uring_release,
    .prepare = uring_prepare,
    .rebuild = uring_rebuild,
    .enter = uring_enter,
};

#endif
