/* The epoll(7) backend.
 *
 * A registration is edge-triggered and is made once, for the directions that were ever waited for.
 * `maybe_ready` says whether anything was reported since the descriptor was last known to be dry:
 *
 *   wait, dry or nothing reported   park; the next edge (or one already queued) will be reported
 *   wait, maybe ready               somebody who does not tell us what a read said (IO#wait,
 *                                   read_nonblock): an edge may have gone by. Turn the registration
 *                                   level-triggered, once; from then on waits cost nothing again
 *   level-triggered, reported,      mute it before we sleep, by turning it edge-triggered again:
 *   and nobody waits                the kernel would wake us for ever otherwise
 *   wait for another direction      EPOLL_CTL_MOD with both, which also looks at what is ready now
 *   wait, EA_PARK_UNSURE            EPOLL_CTL_MOD, which fails if the registration is gone
 *
 * EPOLL_CTL_ADD and _MOD report what is ready at that moment, so that there is no gap between
 * registering and waiting.
 *
 * An event carries (number, generation): one of a forgotten registration is recognised. */
#include "poll_internal.h"

#ifdef __linux__

#include <errno.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <unistd.h>

struct epoll_set {
    int fd;
    bool no_pwait2; /* epoll_pwait2(2) gave ENOSYS (before Linux 5.11) */
    struct epoll_event events[EA_POLL_EVENTS];
};

/* What the wake descriptor's event carries; no generation is 0. */
#define WAKE_DATA UINT64_C(0)

_Static_assert((int)EPOLLIN == (int)EA_READABLE && (int)EPOLLPRI == (int)EA_PRIORITY &&
                   (int)EPOLLOUT == (int)EA_WRITABLE && (int)EPOLLERR == (int)EA_ERROR &&
                   (int)EPOLLHUP == (int)EA_HANGUP,
               "events are passed to the kernel as they are");

static uint64_t event_data(const struct ea_fd *fd) {
    return (uint64_t)fd->generation << 32 | (uint32_t)fd->fd;
}

/* A new set with the wake descriptor in it, edge-triggered: it is written to, never read. */
static int new_set(struct ea_poll *poll) {
    int fd = epoll_create1(EPOLL_CLOEXEC);
    if (fd < 0)
        return -errno;
    struct epoll_event event = {.events = EPOLLIN | EPOLLET, .data.u64 = WAKE_DATA};
    if (epoll_ctl(fd, EPOLL_CTL_ADD, poll->wake.read_fd, &event) < 0) {
        int error = errno;
        close(fd);
        return -error;
    }
    return fd;
}

static int epoll_init(struct ea_poll *poll) {
    struct epoll_set *set = calloc(1, sizeof *set);
    if (!set)
        return -ENOMEM;
    set->fd = new_set(poll);
    if (set->fd < 0) {
        int error = set->fd;
        free(set);
        return error;
    }
    poll->backend_data = set;
    return 0;
}

static void epoll_term(struct ea_poll *poll) {
    struct epoll_set *set = poll->backend_data;
    if (!set)
        return;
    close(set->fd);
    free(set);
    poll->backend_data = NULL;
}

static int epoll_rebuild(struct ea_poll *poll) {
    struct epoll_set *set = poll->backend_data;
    int fd = new_set(poll);
    if (fd < 0)
        return fd;
    close(set->fd);
    set->fd = fd;
    return 0;
}

/* Registers fd for events, whether or not the kernel still has the registration that we remember:
 * it is gone when the number was closed, and there when we forgot it too early. */
static int control(struct ea_poll *poll, struct ea_fd *fd, uint32_t events, bool level) {
    const struct epoll_set *set = poll->backend_data;
    struct epoll_event event = {.events = events | (level ? 0 : (uint32_t)EPOLLET),
                                .data.u64 = event_data(fd)};
    int op = fd->registered ? EPOLL_CTL_MOD : EPOLL_CTL_ADD;
    int rc = epoll_ctl(set->fd, op, fd->fd, &event);
    if (rc < 0 && (errno == ENOENT || errno == EEXIST)) {
        op = op == EPOLL_CTL_MOD ? EPOLL_CTL_ADD : EPOLL_CTL_MOD;
        rc = epoll_ctl(set->fd, op, fd->fd, &event);
    }
    if (rc < 0) {
        fd->registered = 0;
        return -errno;
    }
    fd->registered = events;
    fd->maybe_ready = 0; /* what is ready now will be reported */
    fd->level = level;
    return 0;
}

static int epoll_watch(struct ea_poll *poll, struct ea_fd *fd, unsigned events, unsigned flags) {
    ea_fd_sync(poll, fd);
    if (EA_UNLIKELY(flags & EA_PARK_UNSURE))
        fd->known &= ~(uint32_t)EA_FD_ALWAYS_READY;
    if (EA_UNLIKELY(fd->known & EA_FD_ALWAYS_READY))
        return (int)events;
    if (EA_LIKELY((fd->registered & events) == events && !(flags & EA_PARK_UNSURE))) {
        if (fd->level)
            return 0;
        if (flags & EA_PARK_DRY)
            fd->maybe_ready &= ~events;
        if (!(fd->maybe_ready & events))
            return 0;
        return control(poll, fd, ea_fd_wanted(fd) | events, true);
    }
    int rc = control(poll, fd, fd->registered | events, false);
    if (rc == -EPERM) { /* epoll_ctl(2): the file does not support polling */
        fd->known |= EA_FD_ALWAYS_READY;
        return (int)events;
    }
    return rc;
}

/* A closed descriptor leaves the set by itself. One that is held open elsewhere does not; while it
 * is level-triggered it would be reported for ever, so try to take it out. */
static void epoll_forget(struct ea_poll *poll, struct ea_fd *fd) {
    const struct epoll_set *set = poll->backend_data;
    ea_fd_sync(poll, fd);
    if (fd->registered && fd->level)
        epoll_ctl(set->fd, EPOLL_CTL_DEL, fd->fd, NULL);
}

static void epoll_prepare(struct ea_poll *poll, bool will_sleep) {
    if (!will_sleep)
        return;
    while (!ea_link_alone(&poll->pending)) {
        struct ea_fd *fd = EA_CONTAINER(poll->pending.next, struct ea_fd, pending);
        ea_link_remove(&fd->pending);
        ea_fd_sync(poll, fd);
        if (!fd->registered || !fd->level)
            continue;
        if ((fd->registered & ~ea_fd_wanted(fd)) == 0)
            continue;
        if (control(poll, fd, fd->registered, false) != 0)
            ea_poll_forget(poll, fd->fd);
    }
}

static int wait_events(struct epoll_set *set, int64_t timeout) {
#ifdef EA_HAVE_EPOLL_PWAIT2
    if (!set->no_pwait2 && timeout > 0) {
        struct timespec span = {.tv_sec = (time_t)(timeout / 1000000000),
                                .tv_nsec = (long)(timeout % 1000000000)};
        int count = epoll_pwait2(set->fd, set->events, EA_POLL_EVENTS, &span, NULL);
        if (count >= 0 || errno != ENOSYS)
            return count;
        set->no_pwait2 = true;
    }
#endif
    int64_t ms = timeout <= 0 ? timeout : timeout / 1000000 + (timeout % 1000000 != 0);
    if (ms > INT32_MAX)
        ms = INT32_MAX;
    return epoll_wait(set->fd, set->events, EA_POLL_EVENTS, (int)ms);
}

static int epoll_enter(struct ea_poll *poll, int64_t timeout) {
    struct epoll_set *set = poll->backend_data;
    int count = wait_events(set, timeout);
    if (count < 0)
        return -errno;
    int stored = 0;
    for (int i = 0; i < count; i++) {
        uint64_t data = set->events[i].data.u64;
        if (data == WAKE_DATA) { /* an eventfd gives an edge for each write; a pipe must be read */
            poll->woken = poll->wake.read_fd != poll->wake.write_fd;
            continue;
        }
        uint32_t events = set->events[i].events;
        if (events & EPOLLHUP)
            events |= EA_READABLE;
        poll->events[stored++] = (struct ea_poll_event){
            .fd = (int)(uint32_t)data, .generation = (uint32_t)(data >> 32), .events = events};
    }
    return stored;
}

const struct ea_poll_backend ea_poll_epoll = {
    .name = "epoll",
    .init = epoll_init,
    .term = epoll_term,
    .watch = epoll_watch,
    .forget = epoll_forget,
    .prepare = epoll_prepare,
    .rebuild = epoll_rebuild,
    .enter = epoll_enter,
};

#endif
