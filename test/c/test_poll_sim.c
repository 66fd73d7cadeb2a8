/* A simulated backend, as a user of the poller may bring one: it knows no kernel, and reports what the
 * test says. It completes like io_uring does, one shot for each wait, so that it also shows that the
 * interface suits backends that report completions rather than readiness. */
#include "support.h"

#include <eagain/poll.h>

#define SIM_FDS 8

struct sim {
    unsigned armed[SIM_FDS]; /* what was asked for and has not completed */
    unsigned ready[SIM_FDS]; /* what the world has to offer */
    int watches;             /* how often the poller asked */
    int forgets;
};

static int sim_init(struct ea_poll *poll) {
    poll->backend_data = calloc(1, sizeof(struct sim));
    return poll->backend_data ? 0 : -ENOMEM;
}

static void sim_term(struct ea_poll *poll) {
    free(poll->backend_data);
}

static int sim_watch(struct ea_poll *poll, struct ea_fd *fd, unsigned events, unsigned flags) {
    (void)flags;
    struct sim *sim = poll->backend_data;
    if (fd->fd >= SIM_FDS)
        return -EBADF;
    sim->watches++;
    sim->armed[fd->fd] |= events;
    fd->registered = events;
    return 0;
}

static void sim_forget(struct ea_poll *poll, struct ea_fd *fd) {
    struct sim *sim = poll->backend_data;
    sim->forgets++;
    sim->armed[fd->fd] = 0;
}

static void sim_prepare(struct ea_poll *poll, bool will_sleep) {
    (void)poll;
    (void)will_sleep;
}

static int sim_rebuild(struct ea_poll *poll) {
    (void)poll;
    return 0;
}

static int sim_enter(struct ea_poll *poll, int64_t timeout) {
    struct sim *sim = poll->backend_data;
    int count = 0;
    (void)timeout; /* nothing ever happens while a simulation sleeps */
    for (int number = 0; number < SIM_FDS; number++) {
        unsigned hit = sim->armed[number] & sim->ready[number];
        const struct ea_fd *fd = ea_fd_find(&poll->fds, number);
        if (!hit || !fd)
            continue;
        sim->armed[number] = 0;
        poll->events[count++] =
            (struct ea_poll_event){.fd = number, .generation = fd->generation, .events = hit};
    }
    return count;
}

static const struct ea_poll_backend sim_backend = {
    .name = "sim",
    .simulated = true,
    .init = sim_init,
    .term = sim_term,
    .watch = sim_watch,
    .forget = sim_forget,
    .prepare = sim_prepare,
    .rebuild = sim_rebuild,
    .enter = sim_enter,
};

struct sleeper {
    struct ea_waiter waiter;
    int wakes;
};

static void woken(struct ea_waiter *waiter) {
    EA_CONTAINER(waiter, struct sleeper, waiter)->wakes++;
}

static void park(struct ea_poll *poll, struct sleeper *sleeper, int fd, unsigned events) {
    ea_waiter_init(&sleeper->waiter, poll, woken);
    sleeper->wakes = 0;
    assert_int_equal(ea_poll_park(poll, &sleeper->waiter, fd, events, EA_TIME_NEVER, 0), 0);
}

static void one_shot_for_each_wait(void **state) {
    (void)state;
    struct ea_poll poll;
    struct sleeper reader, writer;
    assert_int_equal(ea_poll_init(&poll, &sim_backend), 0);
    struct sim *sim = poll.backend_data;

    park(&poll, &reader, 3, EA_READABLE);
    park(&poll, &writer, 3, EA_WRITABLE);
    assert_int_equal(ea_poll_turn(&poll, 0), 0);
    sim->ready[3] = EA_WRITABLE;
    assert_int_equal(ea_poll_turn(&poll, 0), 1);
    assert_int_equal(writer.wakes, 1);
    assert_int_equal(writer.waiter.revents, EA_WRITABLE);
    assert_true(ea_waiter_parked(&reader.waiter));
    assert_int_equal(ea_waiter_wake(&reader.waiter, EA_WAKE_CANCEL, 0), true);
    assert_int_equal(reader.wakes, 1);

    sim->ready[3] = EA_READABLE;
    for (int i = 0; i < 10; i++) {
        park(&poll, &reader, 3, EA_READABLE);
        assert_int_equal(ea_poll_turn(&poll, 0), 1);
        assert_int_equal(reader.waiter.reason, EA_WAKE_READY);
    }
    assert_int_equal(sim->watches, 12);
    ea_poll_term(&poll);
}

static void errors_and_closing(void **state) {
    (void)state;
    struct ea_poll poll;
    struct sleeper sleeper;
    assert_int_equal(ea_poll_init(&poll, &sim_backend), 0);
    struct sim *sim = poll.backend_data;

    ea_waiter_init(&sleeper.waiter, &poll, woken);
    assert_int_equal(ea_poll_park(&poll, &sleeper.waiter, SIM_FDS, EA_READABLE, EA_TIME_NEVER, 0),
                     -EBADF);
    park(&poll, &sleeper, 1, EA_READABLE);
    ea_poll_forget(&poll, 1);
    assert_int_equal(sleeper.waiter.reason, EA_WAKE_CLOSED);
    assert_int_equal(sim->forgets, 1);
    sim->ready[1] = EA_READABLE; /* too late: nobody asks any more */
    assert_int_equal(ea_poll_turn(&poll, 0), 0);
    ea_poll_term(&poll);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_shot_for_each_wait),
        cmocka_unit_test(errors_and_closing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
