/* The ring of the io_uring backend: how it is made, whose it is, and how it is entered. */
#include "poll_internal.h"

#ifdef EA_HAVE_LIBURING

#include "uring.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>

/* How many requests one io_uring_enter(2) can take; more take more. */
#define ENTRIES 1024
#define ENTRIES_MIN 32

struct ea_uring_limits ea_uring_limits = {.entries = ENTRIES};

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

/* How often this process is a forked child. relaxed: fork(2) orders it, and nobody else writes. */
static _Atomic unsigned forks;

static void count_fork(void) {
    atomic_fetch_add_explicit(&forks, 1, memory_order_relaxed);
}

static void watch_forks(void) {
    pthread_atfork(NULL, NULL, count_fork); /* without memory for it: as if nobody forked */
}

bool ea_uring_ours(const struct uring *u) {
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

int ea_uring_open(struct uring *u) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, watch_forks);
    int rc = open_ring(&u->ring, 0);
    if (rc == 0)
        opened(u);
    return rc;
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
    if (u->ops.lending > 0 && !u->foreign && ea_uring_ours(u))
        return; /* the old ring goes on writing for some time */
    if (open_ring(&ring, u->foreign ? SETUPS - 1 : 0) < 0)
        return; /* try again in the next turn */
    if (ea_uring_ours(u))
        ea_uring_ops_keep(poll, u);
    io_uring_queue_exit(&u->ring);
    u->ring = ring;
    opened(u);
    ea_uring_ops_renewed(poll, u);
    ea_poll_rewatch(poll);
}

void ea_uring_own(struct ea_poll *poll, struct uring *u) {
    if (EA_UNLIKELY(u->renew || !ea_uring_ours(u)))
        renew(poll, u);
    if (EA_UNLIKELY(!u->enabled))
        enable(u);
}

int ea_uring_entered(struct uring *u, int rc) {
    u->enters++;
    if (EA_UNLIKELY(rc == -EEXIST)) /* SINGLE_ISSUER, and we are not the one */
        u->foreign = u->renew = true;
    return rc;
}

int ea_uring_submit(struct uring *u) {
    return ea_uring_entered(u, io_uring_submit_and_get_events(&u->ring));
}

struct io_uring_sqe *ea_uring_sqe(struct uring *u) {
    struct io_uring_sqe *sqe = io_uring_get_sqe(&u->ring);
    if (EA_UNLIKELY(!sqe)) {
        ea_uring_submit(u);
        sqe = io_uring_get_sqe(&u->ring);
    }
    return sqe;
}

bool ea_uring_cancel(struct uring *u, uint64_t data) {
    struct io_uring_sqe *sqe = ea_uring_sqe(u);
    if (EA_UNLIKELY(!sqe))
        return false;
    io_uring_prep_cancel64(sqe, data, 0);
    if (u->ring.features & IORING_FEAT_CQE_SKIP)
        sqe->flags |= IOSQE_CQE_SKIP_SUCCESS;
    io_uring_sqe_set_data64(sqe, IGNORE_DATA);
    return true;
}

#endif
