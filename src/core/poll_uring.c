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

#include "uring.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/stat.h>

static const unsigned directions[] = {EA_READABLE, EA_PRIORITY, EA_WRITABLE};
#define DIRECTIONS ((int)(sizeof directions / sizeof *directions))
/* In ea_fd.armed: what is in flight is to be asked for anew. No event, hence never wanted. */
#define ARMED_DOUBTFUL 0x80

_Static_assert(POLLIN == EA_READABLE && POLLPRI == EA_PRIORITY && POLLOUT == EA_WRITABLE &&
                   POLLERR == EA_ERROR && POLLHUP == EA_HANGUP,
               "events are passed to the kernel as they are");

static uint64_t request_data(const struct ea_fd *fd, int direction) {
    return ea_uring_data(fd->generation, direction, (uint32_t)fd->fd);
}

static int uring_init(struct ea_poll *poll) {
    struct uring *u = calloc(1, sizeof *u);
    if (!u)
        return -ENOMEM;
    int rc = ea_uring_open(u);
    if (rc < 0) {
        free(u);
        return rc;
    }
    ea_uring_ops_init(u);
    poll->backend_data = u;
    return 0;
}

/* --- Requests. */

/* What is in flight for fd, if anything is, is nobody's from now on. */
static void uring_withdraw(struct ea_poll *poll, struct ea_fd *fd) {
    struct uring *u = poll->backend_data;
    ea_fd_sync(poll, fd);
    if (!fd->armed)
        return;
    for (int i = 0; i < DIRECTIONS && EA_LIKELY(ea_uring_ours(u)); i++) {
        if (!(fd->armed & directions[i]))
            continue;
        if (EA_UNLIKELY(!ea_uring_cancel(u, request_data(fd, i)))) {
            u->renew = true;
            break;
        }
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
        struct io_uring_sqe *sqe = ea_uring_sqe(u);
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

/* How many calls that takes at most: as many requests as a number of descriptors is likely. */
#define FINISH_CALLS 1024

/* Has what was withdrawn let go of its file, now. The kernel carries out a few cancellations in each
 * call. */
static void finish(struct uring *u) {
    int calls = 0;
    if (!u->enabled || !ea_uring_ours(u))
        return;
    do
        if (ea_uring_submit(u) < 0)
            return;
    while (ea_uring_flags(u) & IORING_SQ_TASKRUN && ++calls < FINISH_CALLS);
}

static void uring_release(struct ea_poll *poll) {
    if (!ea_uring_ours(poll->backend_data))
        return;
    settle_all(poll, poll->backend_data);
    finish(poll->backend_data);
}

/* Nobody is asked who waits: sleepers may be gone with the memory that they were in. Before 5.19 this does
 * nothing. */
static void withdraw_all(struct uring *u) {
    struct io_uring_sqe *sqe = ea_uring_sqe(u);
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
    ea_uring_ops_term(poll, u);
    /* To close the ring is not enough: the kernel lets go of the files some time after. */
    if (u->enabled && ea_uring_ours(u))
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
    if (fd->armed && !ea_link_alone(&fd->pending) && ea_uring_answers(poll->backend_data))
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
    ea_uring_own(poll, u);
    settle_all(poll, u);
    ea_uring_ops_settle(u);
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
    struct io_uring_sqe *sqe = ea_uring_sqe(u);
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
        (last->events | event->events) & EA_EVENT_AGAIN) /* or an operation */
        return false;
    last->events |= event->events;
    return true;
}

bool ea_uring_answer(struct ea_poll *poll, struct uring *u, const struct io_uring_cqe *cqe,
                     struct ea_poll_event *event) {
    uint64_t data = cqe->user_data;
    if (data == WAKE_DATA) {
        /* An eventfd gives an edge for each write; a pipe must be read. */
        poll->woken = poll->wake.read_fd != poll->wake.write_fd;
        u->wake_armed = cqe->flags & IORING_CQE_F_MORE;
        return false;
    }
    if (data == IGNORE_DATA)
        return false;
    int direction = ea_uring_direction(data);
    *event = (struct ea_poll_event){
        .fd = (int)((uint32_t)data & NUMBER_MAX),
        .generation = (uint32_t)(data >> 32),
    };
    if (direction == OPERATION_DIRECTION) {
        event->events = EA_EVENT_OPERATION;
        event->result = cqe->res;
        event->flags = cqe->flags;
    } else {
        event->events = completed(cqe->res, directions[direction]);
    }
    return true;
}

static int collect(struct ea_poll *poll, struct uring *u) {
    struct io_uring_cqe *cqe;
    unsigned head, seen = 0;
    int stored = (int)ea_uring_ops_kept(u, poll->events, EA_POLL_EVENTS);
    io_uring_for_each_cqe(&u->ring, head, cqe) {
        struct ea_poll_event event;
        if (ea_uring_answer(poll, u, cqe, &event) &&
            (stored == 0 || !merge(&poll->events[stored - 1], &event))) {
            if (stored == EA_POLL_EVENTS)
                break;
            poll->events[stored++] = event;
        }
        seen++;
    }
    io_uring_cq_advance(&u->ring, seen);
    return stored;
}

static int ask(struct uring *u, int64_t timeout) {
    struct io_uring *ring = &u->ring;
    if (timeout == 0 || u->hurry || io_uring_cq_ready(ring) > 0 || u->ops.kept_count > 0) {
        /* Without a call when there is nothing to say and nothing to hear. */
        bool hear = ea_uring_flags(u) & (IORING_SQ_TASKRUN | IORING_SQ_CQ_OVERFLOW);
        return hear || io_uring_sq_ready(ring) > 0 ? ea_uring_submit(u) : 0;
    }
    struct io_uring_cqe *cqe;
    struct __kernel_timespec span = {.tv_sec = timeout / 1000000000,
                                     .tv_nsec = timeout % 1000000000};
    if (timeout < 0) /* never; without a timeout liburing would go on waiting after a signal */
        span = (struct __kernel_timespec){.tv_sec = INT32_MAX};
    return ea_uring_entered(u, io_uring_submit_and_wait_timeout(ring, &cqe, 1, &span, NULL));
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
    .operations = &ea_uring_operations,
};

#endif
