/* The poll(2) backend, for platforms that have nothing better.
 *
 * The set is built anew from the sleepers before each turn, so that it is level-triggered and never
 * stale. O(sleepers) per turn. */
#include "poll_internal.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <time.h>

struct poll_set {
    struct pollfd *fds;    /* [0] is the wake descriptor */
    uint32_t *generations; /* of fds[i] when the set was built */
    size_t count;
    size_t capacity;
    size_t next;  /* where the next turn begins to look, so that all get their turn */
    bool partial; /* memory was short: some sleepers are not in the set, so do not sleep long */
};

_Static_assert(POLLIN == EA_READABLE && POLLPRI == EA_PRIORITY && POLLOUT == EA_WRITABLE &&
                   POLLERR == EA_ERROR && POLLHUP == EA_HANGUP,
               "events are passed to the kernel as they are");

static bool reserve(struct poll_set *set, size_t capacity) {
    if (capacity <= set->capacity)
        return true;
    size_t grown = set->capacity ? set->capacity * 2 : 64;
    if (grown < capacity)
        grown = capacity;
    struct pollfd *fds = realloc(set->fds, grown * sizeof *fds);
    if (fds)
        set->fds = fds;
    uint32_t *generations = realloc(set->generations, grown * sizeof *generations);
    if (generations)
        set->generations = generations;
    if (!fds || !generations)
        return false;
    set->capacity = grown;
    return true;
}

static void poll_term(struct ea_poll *poll) {
    struct poll_set *set = poll->backend_data;
    if (!set)
        return;
    free(set->fds);
    free(set->generations);
    free(set);
    poll->backend_data = NULL;
}

static int poll_init(struct ea_poll *poll) {
    poll->backend_data = calloc(1, sizeof(struct poll_set));
    if (!poll->backend_data)
        return -ENOMEM;
    if (!reserve(poll->backend_data, 64)) {
        poll_term(poll);
        return -ENOMEM;
    }
    return 0;
}

static int poll_rebuild(struct ea_poll *poll) {
    (void)poll;
    return 0;
}

/* The first wait on a number, and an unsure one, finds out whether it is open, and whether poll(2) makes sense on it. */
static int poll_watch(struct ea_poll *poll, struct ea_fd *fd, unsigned events, unsigned flags) {
    ea_fd_sync(poll, fd);
    if (!fd->registered || flags & EA_PARK_UNSURE) {
        fd->known &= ~(uint32_t)EA_FD_ALWAYS_READY;
        struct stat st;
        if (fstat(fd->fd, &st) < 0)
            return -errno;
        if (S_ISREG(st.st_mode) || S_ISDIR(st.st_mode))
            fd->known |= EA_FD_ALWAYS_READY;
    }
    fd->registered |= events;
    fd->maybe_ready = 0;
    fd->level = 0;
    return fd->known & EA_FD_ALWAYS_READY ? (int)events : 0;
}

static void poll_forget(struct ea_poll *poll, struct ea_fd *fd) {
    (void)poll;
    (void)fd;
}

/* One entry for each descriptor, made for the first of its waiters: poll(2) refuses more entries
 * than the process may have descriptors. */
static void add(struct poll_set *set, const struct ea_waiter *waiter) {
    if (waiter->fd->waiters.next != &waiter->link)
        return;
    if (!reserve(set, set->count + 1)) {
        set->partial = true;
        return;
    }
    set->generations[set->count] = waiter->fd->generation;
    set->fds[set->count++] =
        (struct pollfd){.fd = waiter->fd->fd, .events = (short)ea_fd_wanted(waiter->fd)};
}

static void poll_prepare(struct ea_poll *poll, bool will_sleep) {
    (void)will_sleep;
    struct poll_set *set = poll->backend_data;
    set->fds[0] = (struct pollfd){.fd = poll->wake.read_fd, .events = POLLIN};
    set->count = 1;
    set->partial = false;
    for (int i = 0; i < EA_CHECK_STAGES; i++)
        for (struct ea_link *l = poll->parked[i].next; l != &poll->parked[i]; l = l->next)
            add(set, EA_CONTAINER(l, struct ea_waiter, parked));
}

static int wait_fds(struct pollfd *fds, size_t count, int64_t timeout) {
#ifdef EA_HAVE_PPOLL
    struct timespec span = {.tv_sec = (time_t)(timeout / 1000000000),
                            .tv_nsec = (long)(timeout % 1000000000)};
    return ppoll(fds, (nfds_t)count, timeout < 0 ? NULL : &span, NULL);
#else
    int64_t ms = timeout <= 0 ? timeout : timeout / 1000000 + (timeout % 1000000 != 0);
    if (ms > INT32_MAX)
        ms = INT32_MAX;
    return poll(fds, (nfds_t)count, (int)ms);
#endif
}

/* What cannot be waited for is asked for every millisecond: the set is incomplete for want of memory,
 * or larger than poll(2) takes (RLIMIT_NOFILE was lowered). */
static int wait_events(struct poll_set *set, int64_t timeout) {
    int64_t brief = timeout < 0 || timeout > 1000000 ? 1000000 : timeout;
    int rc = wait_fds(set->fds, set->count, set->partial ? brief : timeout);
    if (rc >= 0 || errno != EINVAL || set->count < 2)
        return rc;
    rc = ea_poll_now(set->fds, (nfds_t)set->count);
    return rc != 0 ? rc : wait_fds(set->fds, 1, brief);
}

static int poll_enter(struct ea_poll *poll, int64_t timeout) {
    struct poll_set *set = poll->backend_data;
    int ready = wait_events(set, timeout);
    if (ready < 0)
        return -errno;
    if (set->fds[0].revents) {
        poll->woken = true;
        ready--;
    }
    int stored = 0;
    size_t others = set->count - 1;
    for (size_t i = 0; i < others && ready > 0 && stored < EA_POLL_EVENTS; i++) {
        size_t at = 1 + (set->next + i) % others;
        uint32_t events = (uint32_t)(uint16_t)set->fds[at].revents;
        if (!events)
            continue;
        ready--;
        if (events & POLLHUP)
            events |= EA_READABLE;
        if (events & POLLNVAL)
            events = EA_EVENT_INVALID;
        poll->events[stored++] = (struct ea_poll_event){
            .fd = set->fds[at].fd, .generation = set->generations[at], .events = events};
        if (stored == EA_POLL_EVENTS)
            set->next = at;
    }
    return stored;
}

const struct ea_poll_backend ea_poll_poll = {
    .name = "poll",
    .init = poll_init,
    .term = poll_term,
    .watch = poll_watch,
    .forget = poll_forget,
    .prepare = poll_prepare,
    .rebuild = poll_rebuild,
    .enter = poll_enter,
};
