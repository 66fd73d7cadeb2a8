/* The poller: parks waiters on descriptors and deadlines, and wakes each of them once.
 *
 * A turn has three steps (prepare, enter, dispatch); only the second asks the kernel, and it
 * touches nothing but poll->events, poll->woken and poll->turns, so that a lock (Ruby's GVL) can
 * be let go around it.
 *
 * Registrations can go stale, since numbers are reused without a word to us: an event that carries
 * an old generation is dropped and counted (the backend rebuilds its set when there are many), and
 * sleepers that have been parked for longer than a period are asked about with poll(2), all in one
 * call, so that a registration that vanished costs a late wake-up and never a lost one. */
#include "poll_internal.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>

/* How long a sleeper stays in each stage before it is re-checked, and to a multiple of what the
 * check is put off, so that many sleepers share one wake-up. */
static const struct {
    int64_t delay;
    int64_t grain;
} checks[EA_CHECK_STAGES] = {
    {8000000, 4000000}, {64000000, 8000000}, {512000000, 8000000}, {1000000000, 8000000}};
/* How much later than that a re-check may be when the backend has events to report. */
#define CHECK_PUT_OFF ((int64_t)100000000)
/* How many descriptors one poll(2) of the re-check takes. */
#define CHECK_BATCH 512
/* How many events of forgotten registrations we put up with before the set is built anew. A
 * descriptor that was closed here lives on in the kernel's set while another process holds it open,
 * and there is no way to take it out. */
#define STALE_MAX 64

static const struct ea_poll_backend *const backends[] = {
#ifdef __linux__
    &ea_poll_epoll,
#endif
#ifdef EA_HAVE_LIBURING
    &ea_poll_uring,
#endif
    &ea_poll_poll,
    NULL,
};

const struct ea_poll_backend *const *ea_poll_backends(void) {
    return backends;
}

const struct ea_poll_backend *ea_poll_backend_find(const char *name) {
    for (const struct ea_poll_backend *const *b = backends; *b; b++)
        if (strcmp((*b)->name, name) == 0)
            return *b;
    return NULL;
}

static int start_backend(struct ea_poll *poll, const struct ea_poll_backend *backend) {
    poll->backend = backend;
    poll->backend_data = NULL;
    return backend->init(poll);
}

/* The backend that the caller or EAGAIN_BACKEND names, else the first that starts. */
static int choose_backend(struct ea_poll *poll, const struct ea_poll_backend *backend) {
    if (backend)
        return start_backend(poll, backend);
    const char *name = getenv("EAGAIN_BACKEND");
    if (name && *name) {
        backend = ea_poll_backend_find(name);
        return backend ? start_backend(poll, backend) : -EINVAL;
    }
    int error = -ENOSYS;
    for (const struct ea_poll_backend *const *b = backends; *b; b++) {
        error = start_backend(poll, *b);
        if (error == 0)
            return 0;
    }
    return error;
}

int ea_poll_init(struct ea_poll *poll, const struct ea_poll_backend *backend) {
    memset(poll, 0, offsetof(struct ea_poll, events));
    ea_fd_table_init(&poll->fds);
    for (int i = 0; i < EA_CHECK_STAGES; i++)
        ea_link_init(&poll->parked[i]);
    ea_link_init(&poll->pending);
    poll->now = ea_now();
    ea_timers_init(&poll->timers, poll->now);
    int error = ea_wake_init(&poll->wake);
    if (error)
        return error;
    error = choose_backend(poll, backend);
    if (error) {
        poll->backend = NULL;
        ea_wake_term(&poll->wake);
    }
    return error;
}

static void waiter_timeout(struct ea_timer *timer) {
    ea_waiter_wake(EA_CONTAINER(timer, struct ea_waiter, timer), EA_WAKE_TIMEOUT, 0);
}

/* Who waits for a deadline alone is in the timers and nowhere else. */
static void cancel_deadlines(struct ea_link *slot) {
    struct ea_link batch;
    ea_link_splice(&batch, slot);
    while (!ea_link_alone(&batch)) {
        struct ea_timer *timer = EA_CONTAINER(batch.next, struct ea_timer, link);
        ea_link_move(slot, &timer->link);
        if (timer->fire == waiter_timeout)
            ea_waiter_wake(EA_CONTAINER(timer, struct ea_waiter, timer), EA_WAKE_CANCEL, 0);
    }
}

void ea_poll_term(struct ea_poll *poll) {
    for (int i = 0; i < EA_CHECK_STAGES; i++)
        while (!ea_link_alone(&poll->parked[i]))
            ea_waiter_wake(EA_CONTAINER(poll->parked[i].next, struct ea_waiter, parked),
                           EA_WAKE_CANCEL, 0);
    for (int level = 0; level < EA_TIMER_LEVELS; level++)
        for (int slot = 0; slot < EA_TIMER_SLOTS; slot++)
            cancel_deadlines(&poll->timers.slots[level][slot]);
    poll->backend->term(poll);
    poll->backend = NULL;
    ea_wake_term(&poll->wake);
    ea_fd_table_term(&poll->fds);
}

/* Wakes, as closed, each waiter on a descriptor for which gone says so. Whatever is parked or woken
 * meanwhile is none of its business. */
static void wake_gone(struct ea_poll *poll, bool (*gone)(struct ea_poll *, struct ea_waiter *)) {
    for (int i = 0; i < EA_CHECK_STAGES; i++) {
        struct ea_link batch;
        ea_link_splice(&batch, &poll->parked[i]);
        while (!ea_link_alone(&batch)) {
            struct ea_waiter *waiter = EA_CONTAINER(batch.next, struct ea_waiter, parked);
            ea_link_move(&poll->parked[i], &waiter->parked);
            if (gone(poll, waiter))
                ea_waiter_wake(waiter, EA_WAKE_CLOSED, 0);
        }
    }
}

static bool cannot_watch(struct ea_poll *poll, struct ea_waiter *waiter) {
    return poll->backend->watch(poll, waiter->fd, waiter->events, 0) != 0;
}

void ea_poll_rewatch(struct ea_poll *poll) {
    poll->epoch++;
    poll->stale = 0;
    wake_gone(poll, cannot_watch);
}

int ea_poll_after_fork(struct ea_poll *poll) {
    poll->backend->term(poll);
    ea_wake_term(&poll->wake);
    poll->woken = false;
    int error = ea_wake_init(&poll->wake);
    if (error)
        return error;
    error = poll->backend->init(poll);
    if (error)
        return error;
    ea_poll_rewatch(poll);
    return 0;
}

void ea_waiter_init(struct ea_waiter *waiter, struct ea_poll *poll,
                    void (*wake)(struct ea_waiter *)) {
    ea_link_init(&waiter->link);
    ea_link_init(&waiter->parked);
    ea_timer_init(&waiter->timer, waiter_timeout);
    waiter->poll = poll;
    waiter->fd = NULL;
    waiter->op = NULL;
    waiter->since = 0;
    waiter->events = waiter->revents = 0;
    waiter->stage = 0;
    waiter->valid = NULL;
    waiter->reason = EA_WAKE_CANCEL;
    waiter->wake = wake;
}

void ea_waiter_link(struct ea_poll *poll, struct ea_waiter *waiter, struct ea_fd *fd,
                    unsigned events, int64_t deadline) {
    waiter->revents = 0;
    waiter->fd = fd;
    if (fd) {
        waiter->events = (uint16_t)events;
        waiter->since = poll->now;
        waiter->stage = 0;
        ea_link_insert_before(&fd->waiters, &waiter->link);
        ea_link_insert_before(&poll->parked[0], &waiter->parked);
        poll->waiting++;
    }
    waiter->reason = EA_WAKE_NONE;
    if (deadline != EA_TIME_NEVER)
        ea_timer_arm(&poll->timers, &waiter->timer, deadline);
}

int ea_poll_park(struct ea_poll *poll, struct ea_waiter *waiter, int fd, unsigned events,
                 int64_t deadline, unsigned flags) {
    waiter->op = NULL;
    if (fd >= 0) {
        struct ea_fd *entry = ea_fd_get(&poll->fds, fd);
        if (EA_UNLIKELY(!entry))
            return -errno;
        events &= EA_EVENTS_ASKED;
        int rc = poll->backend->watch(poll, entry, events, flags);
        if (EA_UNLIKELY(rc != 0))
            return rc;
        ea_waiter_link(poll, waiter, entry, events, deadline);
    } else {
        if (fd != -1)
            return -EBADF;
        ea_waiter_link(poll, waiter, NULL, 0, deadline);
    }
    return 0;
}

bool ea_waiter_wake(struct ea_waiter *waiter, enum ea_wake_reason reason, unsigned revents) {
    if (waiter->reason != EA_WAKE_NONE)
        return false;
    struct ea_poll *poll = waiter->poll;
    waiter->reason = (uint8_t)reason;
    waiter->revents = (uint16_t)revents;
    if (waiter->fd) {
        ea_link_remove(&waiter->link);
        ea_link_remove(&waiter->parked);
        poll->waiting--;
        if (EA_UNLIKELY(waiter->fd->armed & waiter->events)) { /* nobody may want that any more */
            ea_poll_defer(poll, waiter->fd);
            poll->holding = true;
        }
        waiter->fd = NULL;
    }
    ea_timer_cancel(&poll->timers, &waiter->timer);
    poll->wakeups++;
    waiter->wake(waiter);
    return true;
}

void ea_poll_release_now(struct ea_poll *poll) {
    poll->holding = false;
    if (poll->backend->release)
        poll->backend->release(poll);
}

void ea_poll_saw_dry(struct ea_poll *poll, struct ea_fd *fd, unsigned events) {
    (void)poll;
    fd->maybe_ready &= ~events;
}

/* Wakes every waiter of fd, and only those that are there now: a wake function may park again. */
static void wake_all(struct ea_fd *fd, enum ea_wake_reason reason) {
    struct ea_link batch;
    ea_link_splice(&batch, &fd->waiters);
    while (!ea_link_alone(&batch))
        ea_waiter_wake(EA_CONTAINER(batch.next, struct ea_waiter, link), reason, 0);
}

void ea_poll_forget(struct ea_poll *poll, int number) {
    struct ea_fd *fd = ea_fd_find(&poll->fds, number);
    if (!fd)
        return;
    if (fd->registered)
        poll->backend->forget(poll, fd);
    ea_op_forget(poll, fd);
    fd->registered = 0;
    ea_link_remove(&fd->pending);
    ea_fd_forget(fd);
    wake_all(fd, EA_WAKE_CLOSED);
}

/* Wakes who waits for what was reported. Errors and hang-ups concern everybody. */
static void report(struct ea_poll *poll, struct ea_fd *fd, uint32_t events) {
    uint32_t generation = fd->generation;
    uint32_t wanted = 0;
    struct ea_link batch;

    fd->armed &= (uint8_t)~events;
    fd->maybe_ready |= events;
    if (events & (EA_ERROR | EA_HANGUP))
        fd->maybe_ready |= EA_READABLE | EA_WRITABLE;
    ea_link_splice(&batch, &fd->waiters);
    while (!ea_link_alone(&batch)) {
        struct ea_waiter *waiter = EA_CONTAINER(batch.next, struct ea_waiter, link);
        if (EA_UNLIKELY(fd->generation != generation)) { /* a wake function forgot the descriptor */
            ea_waiter_wake(waiter, EA_WAKE_CLOSED, 0);
            continue;
        }
        uint32_t hit = events & waiter->events;
        if (events & (EA_ERROR | EA_HANGUP))
            hit = waiter->events | (events & (EA_ERROR | EA_HANGUP));
        if (hit) {
            wanted |= hit;
            ea_waiter_wake(waiter, EA_WAKE_READY, hit);
        } else {
            ea_link_move(&fd->waiters, &waiter->link);
        }
    }
    /* A level-triggered registration would report this again at once: have the backend mute it
     * before we sleep, unless somebody waits by then. */
    if (fd->level && (events & ~wanted))
        ea_poll_defer(poll, fd);
}

int ea_poll_now(struct pollfd *fds, nfds_t count) {
    int rc;
    do
        rc = poll(fds, count, 0);
    while (rc < 0 && errno == EINTR);
    if (EA_UNLIKELY(rc < 0 && errno == EINVAL && count > 1)) {
        nfds_t half = count / 2;
        int first = ea_poll_now(fds, half);
        int rest = ea_poll_now(fds + half, count - half);
        rc = first < 0 || rest < 0 ? -1 : first + rest;
    }
    return rc;
}

static bool invalid(struct ea_poll *poll, struct ea_waiter *waiter) {
    (void)poll;
    return waiter->valid && !waiter->valid(waiter);
}

void ea_poll_validate(struct ea_poll *poll) {
    wake_gone(poll, invalid);
}

/* Asks anew for what is waited for. */
static void watch_again(struct ea_poll *poll, struct ea_fd *fd) {
    uint32_t wanted = ea_fd_wanted(fd);
    if (wanted && poll->backend->watch(poll, fd, wanted, 0) != 0)
        report(poll, fd, wanted | EA_ERROR);
}

static void wake_operating(struct ea_fd *fd) {
    struct ea_link batch;
    ea_link_splice(&batch, &fd->waiters);
    while (!ea_link_alone(&batch)) {
        struct ea_waiter *waiter = EA_CONTAINER(batch.next, struct ea_waiter, link);
        if (waiter->op)
            ea_waiter_wake(waiter, EA_WAKE_READY, waiter->events);
        else
            ea_link_move(&fd->waiters, &waiter->link);
    }
}

/* What poll(2) says of a sleeper's descriptor that the backend did not: the event may be on its
 * way, or the registration is of something that is gone. */
static void recheck(struct ea_poll *poll, struct ea_fd *fd, short revents) {
    if (revents & POLLNVAL) {
        ea_poll_forget(poll, fd->fd);
        return;
    }
    /* An operation may be about what had the number before: it is worth another try. */
    wake_operating(fd);
    /* Register anew; the new registration reports what is ready. */
    if (poll->backend->withdraw)
        poll->backend->withdraw(poll, fd);
    fd->registered = 0;
    fd->generation = ea_generation_after(fd->generation);
    watch_again(poll, fd);
}

/* One batch of a stage's sleepers that are due, oldest first. Returns how many. */
static int check_batch(struct ea_poll *poll, int stage) {
    /* Not on the stack: it may be the small one of whichever sleeper asks, and would touch two pages more. */
    static _Thread_local struct pollfd fds[CHECK_BATCH];
    static _Thread_local uint32_t generations[CHECK_BATCH];
    struct ea_link *list = &poll->parked[stage];
    int next = stage + 1 < EA_CHECK_STAGES ? stage + 1 : stage;
    nfds_t count = 0;
    int taken = 0;

    while (count < CHECK_BATCH && !ea_link_alone(list)) {
        struct ea_waiter *waiter = EA_CONTAINER(list->next, struct ea_waiter, parked);
        if (waiter->since + checks[stage].delay > poll->now)
            break;
        taken++;
        if (invalid(poll, waiter)) {
            ea_waiter_wake(waiter, EA_WAKE_CLOSED, 0);
            continue;
        }
        waiter->since = poll->now;
        waiter->stage = (uint8_t)next;
        ea_link_move(&poll->parked[next], &waiter->parked);
        fds[count] = (struct pollfd){.fd = waiter->fd->fd, .events = (short)waiter->events};
        generations[count++] = waiter->fd->generation;
    }
    if (count == 0 || ea_poll_now(fds, count) <= 0)
        return taken;
    for (nfds_t i = 0; i < count; i++) {
        if (!fds[i].revents)
            continue;
        struct ea_fd *fd = ea_fd_find(&poll->fds, fds[i].fd);
        if (fd->generation == generations[i])
            recheck(poll, fd, fds[i].revents);
    }
    return taken;
}

static void check_sleepers(struct ea_poll *poll) {
    for (int i = 0; i < EA_CHECK_STAGES; i++) {
        int taken = 0;
        do {
            taken = check_batch(poll, i);
            poll->checks += (uint64_t)taken;
        } while (taken >= CHECK_BATCH);
    }
}

/* When the next sleeper is to be re-checked. */
static int64_t next_check(const struct ea_poll *poll) {
    int64_t next = EA_TIME_NEVER;
    for (int i = 0; i < EA_CHECK_STAGES && !poll->backend->simulated; i++) {
        if (ea_link_alone(&poll->parked[i]))
            continue;
        const struct ea_waiter *oldest =
            EA_CONTAINER(poll->parked[i].next, struct ea_waiter, parked);
        int64_t due = oldest->since + checks[i].delay;
        due = (due + checks[i].grain - 1) / checks[i].grain * checks[i].grain;
        if (due < next)
            next = due;
    }
    return next;
}

int64_t ea_poll_timeout(struct ea_poll *poll, int64_t limit) {
    if (limit == 0)
        return 0;
    int64_t next = ea_timers_next(&poll->timers);
    int64_t check = next_check(poll);
    if (check < next)
        next = check;
    if (next == EA_TIME_NEVER)
        return limit < 0 ? -1 : limit;
    int64_t now = ea_now();
    int64_t left = next > now ? next - now : 0;
    return limit >= 0 && limit < left ? limit : left;
}

int64_t ea_poll_prepare(struct ea_poll *poll, int64_t limit) {
    int64_t timeout = ea_poll_timeout(poll, limit);
    if (timeout != 0 && !ea_wake_prepare(&poll->wake))
        timeout = 0;
    if (EA_UNLIKELY(poll->stale >= STALE_MAX)) {
        poll->stale = 0;
        if (poll->backend->rebuild(poll) == 0)
            ea_poll_rewatch(poll);
    }
    poll->backend->prepare(poll, timeout != 0);
    return timeout;
}

int ea_poll_enter(struct ea_poll *poll, int64_t timeout) {
    poll->turns++;
    return poll->backend->enter(poll, timeout);
}

size_t ea_poll_dispatch(struct ea_poll *poll, int entered) {
    uint64_t before = poll->wakeups;
    poll->now = ea_now();
    ea_wake_finish(&poll->wake, poll->woken);
    poll->woken = false;
    for (int i = 0; i < entered; i++) {
        const struct ea_poll_event *event = &poll->events[i];
        if (event->events == EA_EVENT_OPERATION) {
            ea_op_completed(poll, event);
            continue;
        }
        struct ea_fd *fd = ea_fd_find(&poll->fds, event->fd);
        if (EA_UNLIKELY(!fd || fd->generation != event->generation)) {
            poll->stale++;
        } else if (EA_UNLIKELY(event->events == EA_EVENT_INVALID)) {
            ea_poll_forget(poll, event->fd);
        } else if (EA_UNLIKELY(event->events & EA_EVENT_AGAIN)) {
            fd->armed &= (uint8_t)~event->events;
            watch_again(poll, fd);
        } else {
            report(poll, fd, event->events);
        }
    }
    ea_wake_deliver(&poll->wake);
    ea_timers_expire(&poll->timers, poll->now);
    /* While events come in, there is better to do; but not for ever. */
    if (EA_UNLIKELY(poll->now - (entered > 0 ? CHECK_PUT_OFF : 0) >= next_check(poll)))
        check_sleepers(poll);
    return (size_t)(poll->wakeups - before);
}

size_t ea_poll_turn(struct ea_poll *poll, int64_t limit) {
    int64_t timeout = ea_poll_prepare(poll, limit);
    return ea_poll_dispatch(poll, ea_poll_enter(poll, timeout));
}
