/* What every poll backend must do. Run as `test_poll BACKEND`; 77: this platform lacks it.
 *
 * EAGAIN_SEED sets the seed of the random test, which is printed. No test asserts a time but as a
 * bound that no slow machine reaches; spinning is told by counting turns. */
#include "support.h"

#include <eagain/poll.h>
#include <eagain/try.h>

#include <pthread.h>
#include <sys/eventfd.h>

#define MS INT64_C(1000000)
#define FOREVER (20000 * MS) /* by then something that should have happened is lost */

static const struct ea_poll_backend *backend;
static struct ea_poll poll_;
#define P (&poll_)

/* --- Sleepers. */

struct sleeper {
    struct ea_waiter waiter;
    int wakes;                             /* how often wake was called */
    int reason, revents;                   /* as of the last wake */
    void (*then)(struct sleeper *sleeper); /* what else wake does */
    struct sleeper *other;                 /* for `then` */
    int fd;
};

static void woken(struct ea_waiter *waiter) {
    struct sleeper *s = EA_CONTAINER(waiter, struct sleeper, waiter);
    s->wakes++;
    s->reason = waiter->reason;
    s->revents = waiter->revents;
    assert_false(ea_waiter_parked(waiter));
    if (s->then)
        s->then(s);
}

static struct sleeper *init(struct sleeper *s) {
    *s = (struct sleeper){.fd = -1};
    ea_waiter_init(&s->waiter, P, woken);
    return s;
}

/* Parks s, which must succeed. */
static void park(struct sleeper *s, int fd, unsigned events, int64_t deadline, unsigned flags) {
    s->fd = fd;
    assert_int_equal(ea_poll_park(P, &s->waiter, fd, events, deadline, flags), 0);
    assert_true(ea_waiter_parked(&s->waiter));
}

static void park_dry(struct sleeper *s, int fd, unsigned events) {
    park(s, fd, events, EA_TIME_NEVER, EA_PARK_DRY);
}

static void park_plain(struct sleeper *s, int fd, unsigned events) {
    park(s, fd, events, EA_TIME_NEVER, 0);
}

/* Turns until s was woken; false: it was not. */
static bool await(struct sleeper *s) {
    int64_t end = ea_now() + FOREVER;
    while (ea_waiter_parked(&s->waiter) && ea_now() < end)
        ea_poll_turn(P, 100 * MS);
    return !ea_waiter_parked(&s->waiter);
}

static void await_ready(struct sleeper *s, unsigned events) {
    int wakes = s->wakes;
    assert_true(await(s));
    assert_int_equal(s->wakes, wakes + 1);
    assert_int_equal(s->reason, EA_WAKE_READY);
    assert_int_equal(s->revents & events, events);
}

/* Turns for a span, sleeping as long as it may; how many turns that took. */
static uint64_t idle_turns(int64_t span) {
    uint64_t before = P->turns;
    int64_t end = ea_now() + span, now;
    while ((now = ea_now()) < end)
        ea_poll_turn(P, end - now);
    return P->turns - before;
}

static int in_turn(void **state) {
    (void)state;
    test_limit(120);
    return -ea_poll_init(P, backend);
}

static int out_turn(void **state) {
    (void)state;
    /* The sleepers of a test that failed are gone, and must not be touched. */
    if (P->waiting == 0 && P->timers.armed == 0)
        ea_poll_term(P);
    alarm(0);
    return 0;
}

static void put(int fd) {
    assert_int_equal(write(fd, "x", 1), 1);
}

static void take(int fd) {
    char c[64];
    assert_true(read(fd, c, sizeof(c)) > 0);
}

static void pair_of(int pair[2]) {
    test_ok(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, pair));
}

static void close_pair(int pair[2]) {
    ea_poll_forget(P, pair[0]);
    ea_poll_forget(P, pair[1]);
    close(pair[0]);
    close(pair[1]);
}

/* --- Starting. */

static void names(void **state) {
    (void)state;
    const struct ea_poll_backend *const *all = ea_poll_backends();
    assert_non_null(all[0]);
    for (int i = 0; all[i]; i++)
        assert_ptr_equal(ea_poll_backend_find(all[i]->name), all[i]);
    assert_null(ea_poll_backend_find("none such"));

    static struct ea_poll poll;
    setenv("EAGAIN_BACKEND", backend->name, 1);
    assert_int_equal(ea_poll_init(&poll, NULL), 0);
    assert_ptr_equal(poll.backend, backend);
    ea_poll_term(&poll);
    setenv("EAGAIN_BACKEND", "none such", 1);
    assert_int_equal(ea_poll_init(&poll, NULL), -EINVAL);
    assert_int_equal(ea_poll_init(&poll, backend), 0); /* the caller's word counts more */
    ea_poll_term(&poll);
    unsetenv("EAGAIN_BACKEND");
    assert_int_equal(ea_poll_init(&poll, NULL), 0);
    assert_ptr_equal(poll.backend, all[0]);
    ea_poll_term(&poll);
}

/* A start without descriptors fails cleanly, wherever it fails. */
static void out_of_descriptors(void **state) {
    (void)state;
    static struct ea_poll poll;
    struct rlimit old, few;
    int lowest = test_ok(dup(0)), failures = 0, starts = 0;
    close(lowest);
    test_ok(getrlimit(RLIMIT_NOFILE, &old));
    for (int spare = 0; spare < 6; spare++) {
        few = old;
        few.rlim_cur = (rlim_t)(lowest + spare);
        test_ok(setrlimit(RLIMIT_NOFILE, &few));
        int error = ea_poll_init(&poll, backend);
        if (error == 0)
            ea_poll_term(&poll);
        test_ok(setrlimit(RLIMIT_NOFILE, &old));
        assert_true(error == 0 || error == -EMFILE);
        error ? failures++ : starts++;
        int now = test_ok(dup(0));
        assert_int_equal(now, lowest); /* nothing leaked */
        close(now);
    }
    assert_true(failures > 0 && starts > 0);
}

static void term_wakes_sleepers(void **state) {
    (void)state;
    struct sleeper a, b, c;
    int pair[2];
    pair_of(pair);
    park_plain(init(&a), pair[0], EA_READABLE);
    park(init(&b), pair[0], EA_READABLE, ea_now() + 1000 * 1000 * MS, 0);
    park(init(&c), -1, 0, ea_now() + 1000 * 1000 * MS, 0);
    ea_poll_term(P);
    assert_int_equal(a.wakes, 1);
    assert_int_equal(a.reason, EA_WAKE_CANCEL);
    assert_int_equal(b.wakes, 1);
    assert_int_equal(b.reason, EA_WAKE_CANCEL);
    int deadline_only = c.wakes;
    int reason = c.reason;
    test_ok(ea_poll_init(P, backend)); /* for the teardown */
    close(pair[0]);
    close(pair[1]);
    assert_int_equal(deadline_only, 1);
    assert_int_equal(reason, EA_WAKE_CANCEL);
}

/* --- Waking. */

static void wakes_when_ready(void **state) {
    (void)state;
    struct sleeper s;
    int pair[2];
    test_ok(pipe(pair));
    park_plain(init(&s), pair[0], EA_READABLE);
    assert_int_equal(P->waiting, 1);
    assert_int_equal(ea_poll_turn(P, 0), 0);
    assert_int_equal(s.wakes, 0);
    put(pair[1]);
    await_ready(&s, EA_READABLE);
    assert_int_equal(P->waiting, 0);
    for (int i = 0; i < 3; i++)
        ea_poll_turn(P, 0);
    assert_int_equal(s.wakes, 1);
    take(pair[0]);
    park_plain(init(&s), pair[1], EA_WRITABLE);
    await_ready(&s, EA_WRITABLE);
    assert_int_equal(s.revents & EA_READABLE, 0);
    close_pair(pair);
}

static void deadlines(void **state) {
    (void)state;
    struct sleeper a, b, past;
    int pair[2];
    pair_of(pair);
    int64_t now = ea_now();
    park(init(&a), -1, 0, now + 20 * MS, 0);
    park(init(&b), pair[0], EA_READABLE, now + 30 * MS, 0);
    park(init(&past), -1, 0, now - 1000 * MS, 0);
    assert_int_equal(past.wakes, 0); /* from a later call, not from this one */
    ea_poll_turn(P, 0);
    assert_int_equal(past.reason, EA_WAKE_TIMEOUT);
    assert_true(await(&a));
    assert_true(ea_now() >= now + 20 * MS);
    assert_int_equal(a.reason, EA_WAKE_TIMEOUT);
    assert_true(await(&b));
    assert_true(ea_now() >= now + 30 * MS);
    assert_int_equal(b.reason, EA_WAKE_TIMEOUT);
    assert_int_equal(b.wakes, 1);
    assert_int_equal(P->waiting, 0);
    put(pair[1]); /* for nobody */
    ea_poll_turn(P, 0);
    assert_int_equal(b.wakes, 1);
    close_pair(pair);
}

static void timeouts_of_turns(void **state) {
    (void)state;
    struct sleeper s;
    assert_int_equal(ea_poll_timeout(P, 0), 0);
    assert_int_equal(ea_poll_timeout(P, -1), -1);
    assert_int_equal(ea_poll_timeout(P, 5), 5);
    park(init(&s), -1, 0, ea_now() + 1000000 * MS, 0);
    int64_t t = ea_poll_timeout(P, -1);
    assert_true(t > 900000 * MS && t <= 1000001 * MS);
    assert_int_equal(ea_poll_timeout(P, 7), 7);
    assert_true(ea_waiter_wake(&s.waiter, EA_WAKE_CANCEL, 0));
    park(init(&s), -1, 0, ea_now() - MS, 0);
    assert_int_equal(ea_poll_timeout(P, -1), 0);
    ea_poll_turn(P, -1);
    assert_int_equal(s.wakes, 1);
}

/* Whatever comes second finds nobody. */
static void first_reason_wins(void **state) {
    (void)state;
    struct sleeper s;
    int pair[2];
    pair_of(pair);
    park(init(&s), pair[0], EA_READABLE, ea_now() + 5 * MS, 0);
    assert_true(ea_waiter_wake(&s.waiter, EA_WAKE_CANCEL, 0));
    assert_false(ea_waiter_wake(&s.waiter, EA_WAKE_CLOSED, 0));
    put(pair[1]);
    idle_turns(20 * MS);
    ea_poll_forget(P, pair[0]);
    assert_int_equal(s.wakes, 1);
    assert_int_equal(s.reason, EA_WAKE_CANCEL);

    /* Ready and overdue in the same turn: one of them. */
    park(init(&s), pair[0], EA_READABLE, ea_now() - 1, 0);
    ea_poll_turn(P, 0);
    ea_poll_turn(P, 0);
    assert_int_equal(s.wakes, 1);
    assert_true(s.reason == EA_WAKE_READY || s.reason == EA_WAKE_TIMEOUT);
    assert_false(ea_timer_armed(&s.waiter.timer));
    assert_true(ea_link_alone(&s.waiter.link));
    close_pair(pair);
}

static void hang_ups_and_errors(void **state) {
    (void)state;
    struct sleeper r, w;
    int pair[2];
    test_ok(pipe(pair));
    park_plain(init(&r), pair[0], EA_READABLE);
    close(pair[1]);
    await_ready(&r, EA_READABLE);
    assert_true(r.revents & EA_HANGUP);
    ea_poll_forget(P, pair[0]);
    close(pair[0]);

    test_ok(pipe2(pair, O_NONBLOCK));
    char page[4096] = {0};
    while (write(pair[1], page, sizeof(page)) > 0) {
    }
    ea_poll_forget(P, pair[1]);
    park_dry(init(&w), pair[1], EA_WRITABLE);
    ea_poll_turn(P, 0);
    assert_int_equal(w.wakes, 0);
    close(pair[0]);
    await_ready(&w, EA_ERROR);
    ea_poll_forget(P, pair[1]);
    close(pair[1]);

    /* The peer's end concerns both directions. */
    pair_of(pair);
    park_plain(init(&r), pair[0], EA_READABLE);
    close(pair[1]);
    await_ready(&r, EA_READABLE | EA_HANGUP);
    ea_poll_forget(P, pair[0]);
    close(pair[0]);
}

static void both_directions(void **state) {
    (void)state;
    struct sleeper r, w, both;
    int pair[2];
    char page[4096] = {0};
    pair_of(pair);
    while (write(pair[0], page, sizeof(page)) > 0) {
    }
    for (int round = 0; round < 20; round++) {
        park_dry(init(&r), pair[0], EA_READABLE);
        park_dry(init(&w), pair[0], EA_WRITABLE);
        ea_poll_turn(P, 0);
        assert_int_equal(r.wakes + w.wakes, 0);
        put(pair[1]);
        await_ready(&r, EA_READABLE);
        assert_int_equal(w.wakes, 0);
        take(pair[0]);
        while (read(pair[1], page, sizeof(page)) > 0) {
        }
        await_ready(&w, EA_WRITABLE);
        park_plain(init(&both), pair[0], EA_READABLE | EA_WRITABLE);
        await_ready(&both, EA_WRITABLE);
        assert_int_equal(both.revents, EA_WRITABLE);
        put(pair[1]);
        park_plain(init(&both), pair[0], EA_READABLE | EA_WRITABLE);
        await_ready(&both, EA_READABLE | EA_WRITABLE);
        take(pair[0]);
        while (write(pair[0], page, sizeof(page)) > 0) {
        }
    }
    close_pair(pair);
}

static void several_waiters(void **state) {
    (void)state;
    struct sleeper s[5];
    int pair[2];
    pair_of(pair);
    for (int i = 0; i < 5; i++)
        park_plain(init(&s[i]), pair[0], EA_READABLE);
    assert_true(ea_waiter_wake(&s[2].waiter, EA_WAKE_CANCEL, 0));
    put(pair[1]);
    for (int i = 0; i < 5; i++)
        assert_true(await(&s[i]));
    for (int i = 0; i < 5; i++) {
        assert_int_equal(s[i].wakes, 1);
        assert_int_equal(s[i].reason, i == 2 ? EA_WAKE_CANCEL : EA_WAKE_READY);
    }
    close_pair(pair);
}

/* --- Levels and edges. */

/* Who does not read what there is, is woken again, as often as it asks. */
static void left_unread(void **state) {
    (void)state;
    struct sleeper s;
    int pair[2];
    pair_of(pair);
    put(pair[1]);
    init(&s);
    for (int i = 0; i < 300; i++) {
        park_plain(&s, pair[0], EA_READABLE);
        ea_poll_turn(P, 0); /* now, and not only when the sleepers are re-checked */
        assert_int_equal(s.wakes, i + 1 + i / 50);
        assert_int_equal(s.reason, EA_WAKE_READY);
        if (i % 50 == 49) { /* in between, it does read, and waits for real */
            take(pair[0]);
            park(&s, pair[0], EA_READABLE, ea_now() + 3 * MS, 0);
            assert_true(await(&s));
            assert_int_equal(s.reason, EA_WAKE_TIMEOUT);
            put(pair[1]);
        }
    }
    close_pair(pair);
}

/* poll(2) refuses a set that is larger than RLIMIT_NOFILE: the re-checks (and the poll backend) must
 * go on, and not spin. */
static void more_sleepers_than_the_descriptor_limit(void **state) {
    (void)state;
    enum { PAIRS = 40 };
    static struct sleeper s[PAIRS];
    int pair[PAIRS][2], other[2];
    struct rlimit old, few;
    pair_of(other);
    for (int i = 0; i < PAIRS; i++) {
        pair_of(pair[i]);
        init(&s[i]);
        park_plain(&s[i], pair[i][0], EA_READABLE);
    }
    int exchanged = 30; /* which only a re-check finds out about */
    test_ok(dup2(other[0], pair[exchanged][0]));
    test_ok(getrlimit(RLIMIT_NOFILE, &old));
    few = old;
    few.rlim_cur = 7;
    test_ok(setrlimit(RLIMIT_NOFILE, &few));
    uint64_t turns = idle_turns(300 * MS);
    for (int i = 0; i < PAIRS; i += 13) {
        put(pair[i][1]);
        await_ready(&s[i], EA_READABLE);
    }
    put(other[1]);
    await_ready(&s[exchanged], EA_READABLE);
    test_ok(setrlimit(RLIMIT_NOFILE, &old));
    assert_in_range(turns, 1, 1000);
    for (int i = 0; i < PAIRS; i++) {
        if (ea_waiter_parked(&s[i].waiter))
            ea_waiter_wake(&s[i].waiter, EA_WAKE_CANCEL, 0);
        close_pair(pair[i]);
    }
    close_pair(other);
}

static void read_until_dry(void **state) {
    (void)state;
    struct sleeper s;
    int pair[2];
    pair_of(pair);
    init(&s);
    for (int i = 0; i < 300; i++) {
        bool early = i % 3 == 0;
        park_dry(&s, pair[0], EA_READABLE);
        if (early)
            put(pair[1]);
        ea_poll_turn(P, 0);
        if (!early) {
            assert_true(ea_waiter_parked(&s.waiter));
            put(pair[1]);
        }
        assert_true(await(&s));
        assert_int_equal(s.reason, EA_WAKE_READY);
        take(pair[0]);
    }
    close_pair(pair);
}

/* What arrives while nobody waits is not lost, whether or not a turn saw it. */
static void ready_for_nobody(void **state) {
    (void)state;
    struct sleeper s;
    int pair[2];
    pair_of(pair);
    init(&s);
    for (int i = 0; i < 60; i++) {
        unsigned flags = i % 4 < 2 ? EA_PARK_DRY : 0;
        park(&s, pair[0], EA_READABLE, EA_TIME_NEVER, flags);
        put(pair[1]);
        await_ready(&s, EA_READABLE);
        take(pair[0]);
        if (i % 3 == 0)
            ea_poll_saw_dry(P, ea_fd_find(&P->fds, pair[0]), EA_READABLE);
        put(pair[1]);
        if (i % 2)
            ea_poll_turn(P, 0);
        park_plain(&s, pair[0], EA_READABLE);
        await_ready(&s, EA_READABLE);
        take(pair[0]);
    }
    close_pair(pair);
}

/* The words of would-block, given by saw_dry, are as good as EA_PARK_DRY: the wait is a wait. */
static void saw_dry(void **state) {
    (void)state;
    struct sleeper s;
    int pair[2];
    pair_of(pair);
    init(&s);
    for (int i = 0; i < 20; i++) {
        park_plain(&s, pair[0], EA_READABLE);
        ea_poll_turn(P, 0);
        assert_true(ea_waiter_parked(&s.waiter));
        put(pair[1]);
        await_ready(&s, EA_READABLE);
        take(pair[0]);
        ea_poll_saw_dry(P, ea_fd_find(&P->fds, pair[0]), EA_READABLE);
    }
    close_pair(pair);
}

/* A few turns for a span of 150 ms: the re-checks of the sleepers, and no spinning. */
#define CALM 40

static void calm_when_nothing_happens(void **state) {
    (void)state;
    struct sleeper s;
    int pair[2];
    pair_of(pair);
    park_plain(init(&s), pair[0], EA_READABLE);
    assert_true(idle_turns(150 * MS) <= CALM);
    assert_int_equal(s.wakes, 0);
    close_pair(pair);
    assert_int_equal(s.reason, EA_WAKE_CLOSED);
    assert_true(idle_turns(50 * MS) <= CALM);
}

/* Ready, registered, and nobody wants it. */
static void calm_when_unwanted(void **state) {
    (void)state;
    for (int level = 0; level < 2; level++) {
        struct sleeper s, other;
        int pair[2], quiet[2];
        pair_of(pair);
        pair_of(quiet);
        init(&s);
        put(pair[1]);
        for (int i = 0; i <= level * 5; i++) {
            park_plain(&s, pair[0], EA_READABLE);
            await_ready(&s, EA_READABLE);
        }
        put(pair[1]);
        park_plain(init(&other), quiet[0], EA_READABLE);
        assert_true(idle_turns(150 * MS) <= CALM);
        put(pair[1]); /* still nobody */
        assert_true(idle_turns(150 * MS) <= CALM);
        assert_int_equal(other.wakes, 0);

        /* Another direction of the same descriptor. */
        char page[4096] = {0};
        while (write(pair[0], page, sizeof(page)) > 0) {
        }
        struct sleeper w;
        park_dry(init(&w), pair[0], EA_WRITABLE);
        assert_true(idle_turns(150 * MS) <= CALM);
        assert_int_equal(w.wakes, 0);

        /* And it is there when somebody does. */
        park_plain(&s, pair[0], EA_READABLE);
        await_ready(&s, EA_READABLE);
        while (read(pair[1], page, sizeof(page)) > 0) {
        }
        await_ready(&w, EA_WRITABLE);
        close_pair(pair);
        close_pair(quiet);
    }
}

/* A socket that can always be written to, and a reader that waits for nothing. */
static void calm_reader_of_a_writable_socket(void **state) {
    (void)state;
    struct sleeper r, w;
    int pair[2];
    pair_of(pair);
    init(&r);
    init(&w);
    for (int i = 0; i < 5; i++) {
        park_plain(&w, pair[0], EA_WRITABLE);
        await_ready(&w, EA_WRITABLE);
    }
    park_plain(&r, pair[0], EA_READABLE);
    assert_true(idle_turns(150 * MS) <= CALM);
    assert_int_equal(r.wakes, 0);
    put(pair[1]);
    await_ready(&r, EA_READABLE);
    park_plain(&w, pair[0], EA_WRITABLE);
    await_ready(&w, EA_WRITABLE);
    close_pair(pair);
}

/* --- Odd descriptors. */

static void always_ready(void **state) {
    (void)state;
    struct sleeper s;
    char name[] = "/tmp/eagain-poll-XXXXXX";
    int file = test_ok(mkstemp(name));
    unlink(name);
    init(&s);
    for (int i = 0; i < 2; i++) {
        assert_true(ea_poll_park(P, &s.waiter, file, EA_READABLE, EA_TIME_NEVER, 0) & EA_READABLE);
        assert_false(ea_waiter_parked(&s.waiter));
        assert_true(ea_poll_park(P, &s.waiter, file, EA_WRITABLE, ea_now() + 5, 0) & EA_WRITABLE);
    }
    assert_int_equal(P->waiting, 0);
    assert_int_equal(s.wakes, 0);
    assert_false(ea_timer_armed(&s.waiter.timer));

    /* A device that has no poll of its own is ready, one way or the other. */
    int null = test_ok(open("/dev/null", O_RDWR));
    int rc = ea_poll_park(P, &s.waiter, null, EA_READABLE, EA_TIME_NEVER, 0);
    if (rc == 0)
        await_ready(&s, EA_READABLE);
    else
        assert_int_equal(rc, EA_READABLE);
    ea_poll_forget(P, file);
    ea_poll_forget(P, null);
    close(null);

    /* The number is given to a pipe: nothing of this sticks. */
    int pair[2];
    test_ok(pipe(pair));
    test_ok(dup2(pair[0], file));
    park_plain(&s, file, EA_READABLE);
    ea_poll_turn(P, 0);
    assert_true(ea_waiter_parked(&s.waiter));
    put(pair[1]);
    await_ready(&s, EA_READABLE);
    ea_poll_forget(P, file);
    close(file);
    close_pair(pair);
}

static void not_open(void **state) {
    (void)state;
    struct sleeper s;
    int number = test_ok(dup(0));
    close(number);
    init(&s);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(ea_poll_park(P, &s.waiter, number, EA_READABLE, ea_now() + 1, 0), -EBADF);
        assert_int_equal(ea_poll_park(P, &s.waiter, -2, EA_READABLE, EA_TIME_NEVER, 0), -EBADF);
        assert_false(ea_waiter_parked(&s.waiter));
        assert_false(ea_timer_armed(&s.waiter.timer));
    }
    assert_int_equal(P->waiting, 0);
    ea_poll_forget(P, number);
    ea_poll_forget(P, -1);
    ea_poll_forget(P, INT32_MAX);

    int pair[2];
    pair_of(pair);
    park_plain(&s, pair[0], EA_READABLE);
    put(pair[1]);
    await_ready(&s, EA_READABLE);
    close(pair[0]);
    assert_int_equal(
        ea_poll_park(P, &s.waiter, pair[0], EA_READABLE, EA_TIME_NEVER, EA_PARK_UNSURE), -EBADF);
    ea_poll_forget(P, pair[0]);
    close(pair[1]);
}

/* --- Numbers that change hands. */

static void closed_in_mid_wait(void **state) {
    (void)state;
    struct sleeper s, t;
    int pair[2], again[2];
    pair_of(pair);
    park(init(&s), pair[0], EA_READABLE, ea_now() + 1000 * 1000 * MS, 0);
    park_plain(init(&t), pair[0], EA_WRITABLE | EA_READABLE);
    uint32_t generation = ea_fd_find(&P->fds, pair[0])->generation;
    close(pair[0]);
    ea_poll_forget(P, pair[0]);
    assert_int_equal(s.wakes, 1);
    assert_int_equal(s.reason, EA_WAKE_CLOSED);
    assert_false(ea_timer_armed(&s.waiter.timer));
    assert_int_equal(t.reason, EA_WAKE_CLOSED);
    assert_true(ea_fd_find(&P->fds, pair[0])->generation != generation);
    close(pair[1]);

    pair_of(again); /* the same numbers */
    assert_int_equal(again[0], pair[0]);
    park_plain(&s, again[0], EA_READABLE);
    ea_poll_turn(P, 0);
    assert_true(ea_waiter_parked(&s.waiter));
    put(again[1]);
    await_ready(&s, EA_READABLE);
    close_pair(again);
}

/* Closed without a word: the sleeper hears of it at the latest from the re-check. */
static void closed_behind_our_back(void **state) {
    (void)state;
    struct sleeper s;
    int pair[2];
    pair_of(pair);
    park_plain(init(&s), pair[0], EA_READABLE);
    ea_poll_turn(P, 0);
    close(pair[0]);
    assert_true(await(&s));
    assert_int_equal(s.wakes, 1);
    assert_int_equal(s.reason, EA_WAKE_CLOSED);
    close(pair[1]);
}

/* The number is closed and reused without a word, while known to the poller: the new sleeper wakes
 * when its own descriptor is ready, however the old one is held. */
static void reused_without_a_word(void **state) {
    (void)state;
    for (int held = 0; held < 2; held++) {
        struct sleeper s;
        int old[2], new[2], copy = -1;
        pair_of(old);
        park_plain(init(&s), old[0], EA_READABLE);
        put(old[1]);
        await_ready(&s, EA_READABLE);
        take(old[0]);
        pair_of(new);
        if (held)
            copy = test_ok(dup(old[0]));
        test_ok(dup2(new[0], old[0]));
        close(new[0]);
        park_dry(&s, old[0], EA_READABLE);
        put(new[1]);
        await_ready(&s, EA_READABLE);
        take(old[0]);
        ea_poll_forget(P, old[0]);
        close(old[0]);
        close(old[1]);
        close(new[1]);
        if (held)
            close(copy);
    }
}

/* The same for a sleeper that is there when it happens. */
static void replaced_under_a_sleeper(void **state) {
    (void)state;
    for (int held = 0; held < 2; held++) {
        struct sleeper s;
        int old[2], new[2], copy = -1;
        pair_of(old);
        pair_of(new);
        park_plain(init(&s), old[0], EA_READABLE);
        ea_poll_turn(P, 0);
        if (held)
            copy = test_ok(dup(old[0]));
        test_ok(dup2(new[0], old[0]));
        put(new[1]);
        await_ready(&s, EA_READABLE);
        ea_poll_forget(P, old[0]);
        close(old[0]);
        close(old[1]);
        close(new[0]);
        close(new[1]);
        if (held)
            close(copy);
    }
}

/* A caller that is not sure has the kernel look, and waits for no re-check. */
static void unsure(void **state) {
    (void)state;
    struct sleeper s;
    int old[2], new[2];
    pair_of(old);
    park_plain(init(&s), old[0], EA_READABLE);
    put(old[1]);
    await_ready(&s, EA_READABLE);
    take(old[0]);
    pair_of(new);
    test_ok(dup2(new[0], old[0]));
    put(new[1]);
    uint64_t checks = P->checks;
    park(&s, old[0], EA_READABLE, EA_TIME_NEVER, EA_PARK_DRY | EA_PARK_UNSURE);
    ea_poll_turn(P, 0);
    assert_int_equal(s.wakes, 2);
    assert_int_equal(s.reason, EA_WAKE_READY);
    assert_int_equal(P->checks, checks);
    close_pair(old);
    close_pair(new);
}

/* The same of a number that held a file, which was ready for good, and holds a pipe now. */
static void unsure_of_a_file(void **state) {
    (void)state;
    struct sleeper s;
    char name[] = "/tmp/eagain-poll-XXXXXX";
    int pair[2], file = test_ok(mkstemp(name));
    unlink(name);
    init(&s);
    assert_true(ea_poll_park(P, &s.waiter, file, EA_READABLE, EA_TIME_NEVER, 0) > 0);
    pair_of(pair);
    test_ok(dup2(pair[0], file));
    park(&s, file, EA_READABLE, EA_TIME_NEVER, EA_PARK_UNSURE);
    ea_poll_turn(P, 0);
    assert_true(ea_waiter_parked(&s.waiter));
    put(pair[1]);
    await_ready(&s, EA_READABLE);
    ea_poll_forget(P, file);
    close(file);
    close_pair(pair);
}

/* The old file lives on in another hand, and its events go to nobody, least of all to whoever
 * sleeps under its old number. */
static void stale_registration(void **state) {
    (void)state;
    for (int level = 0; level < 2; level++) {
        struct sleeper s;
        int old[2], new[2];
        pair_of(old);
        init(&s);
        put(old[1]);
        for (int i = 0; i <= level * 5; i++) {
            park_plain(&s, old[0], EA_READABLE);
            await_ready(&s, EA_READABLE);
        }
        take(old[0]);
        int copy = test_ok(dup(old[0]));
        pair_of(new);
        test_ok(dup2(new[0], old[0]));
        ea_poll_forget(P, old[0]);
        int wakes = s.wakes;
        park_plain(&s, old[0], EA_READABLE);
        for (int i = 0; i < 200; i++) {
            put(old[1]);
            ea_poll_turn(P, 0);
            take(copy);
        }
        put(old[1]); /* and there it stays */
        assert_true(idle_turns(150 * MS) <= CALM + 100);
        assert_int_equal(s.wakes, wakes);
        put(new[1]);
        await_ready(&s, EA_READABLE);
        close_pair(old);
        close_pair(new);
        close(copy);
    }
}

/* The same with the other hand in another process. */
static void held_by_a_child(void **state) {
    (void)state;
    for (int level = 0; level < 2; level++) {
        struct sleeper s, other;
        int pair[2], quiet[2];
        pair_of(pair);
        pair_of(quiet);
        put(pair[1]);
        init(&s);
        for (int i = 0; i <= level * 5; i++) {
            park_plain(&s, pair[0], EA_READABLE);
            await_ready(&s, EA_READABLE);
        }
        pid_t child = test_ok(fork());
        if (child == 0) {
            signal(SIGALRM, SIG_DFL);
            alarm(30); /* should the parent fail */
            for (;;)
                pause();
        }
        close(pair[0]);
        ea_poll_forget(P, pair[0]);
        park_plain(init(&other), quiet[0], EA_READABLE);
        assert_true(idle_turns(150 * MS) <= CALM + 100);
        for (int i = 0; i < 5; i++)
            put(pair[1]);
        assert_true(idle_turns(150 * MS) <= CALM + 100);
        assert_int_equal(other.wakes, 0);
        put(quiet[1]);
        await_ready(&other, EA_READABLE);
        kill(child, SIGKILL);
        test_ok(waitpid(child, NULL, 0));
        close(pair[1]);
        close_pair(quiet);
    }
}

static bool answer_no(struct ea_waiter *waiter) {
    return waiter->fd->fd < 0;
}

static bool answer_yes(struct ea_waiter *waiter) {
    return waiter->fd->fd >= 0;
}

/* The owner says that it does not hold the descriptor any more. */
static void invalid_sleepers(void **state) {
    (void)state;
    struct sleeper no, yes;
    int pair[2];
    pair_of(pair);
    for (int at_once = 0; at_once < 2; at_once++) {
        init(&no)->waiter.valid = answer_no;
        init(&yes)->waiter.valid = answer_yes;
        park_plain(&no, pair[0], EA_READABLE);
        park_plain(&yes, pair[0], EA_READABLE);
        if (at_once)
            ea_poll_validate(P);
        else
            assert_true(await(&no));
        assert_int_equal(no.wakes, 1);
        assert_int_equal(no.reason, EA_WAKE_CLOSED);
        assert_int_equal(yes.wakes, 0);
        put(pair[1]);
        await_ready(&yes, EA_READABLE);
        take(pair[0]);
    }
    close_pair(pair);
}

/* --- Wake functions that do things. */

static void free_it(struct sleeper *s) {
    (*(int *)s->other)++;
    free(s);
}

/* A waiter may be gone when its wake function returns, for whatever reason it was called. */
static void freed_in_wake(void **state) {
    (void)state;
    int freed = 0, pair[2];
    pair_of(pair);
    for (int i = 0; i < 20; i++) {
        struct sleeper *s = malloc(sizeof(*s));
        assert_non_null(s);
        init(s);
        s->then = free_it;
        s->other = (struct sleeper *)&freed;
        int64_t deadline = i % 4 == 1 ? ea_now() - 1 : EA_TIME_NEVER;
        park(s, i % 4 == 1 ? -1 : pair[0], EA_READABLE, deadline, 0);
        if (i % 4 == 2)
            ea_waiter_wake(&s->waiter, EA_WAKE_CANCEL, 0);
        if (i == 10)
            ea_poll_forget(P, pair[0]);
    }
    put(pair[1]);
    for (int i = 0; i < 100 && freed < 20; i++)
        ea_poll_turn(P, 10 * MS);
    assert_int_equal(freed, 20);
    assert_int_equal(P->waiting, 0);
    close_pair(pair);
}

static void park_again(struct sleeper *s) {
    park_plain(s, s->fd, EA_READABLE);
}

/* To park again in wake is to wait for the next turn, not to hold up this one. */
static void parks_again_in_wake(void **state) {
    (void)state;
    struct sleeper a, b;
    int pair[2];
    pair_of(pair);
    put(pair[1]);
    init(&a)->then = park_again;
    init(&b)->then = park_again;
    park_plain(&a, pair[0], EA_READABLE);
    park_plain(&b, pair[0], EA_READABLE);
    for (int i = 0; i < 50; i++) {
        int before = a.wakes;
        int64_t end = ea_now() + FOREVER;
        while (a.wakes == before && ea_now() < end)
            ea_poll_turn(P, 100 * MS);
        assert_int_equal(a.wakes, before + 1);
    }
    assert_true(abs(a.wakes - b.wakes) <= 1);
    a.then = b.then = NULL;
    assert_true(await(&a));
    assert_true(await(&b));
    close_pair(pair);
}

static void park_again_after_close(struct sleeper *s) {
    s->then = NULL;
    park(s, s->fd, EA_READABLE, EA_TIME_NEVER, 0);
}

/* To park again when told "closed" is a wait on whatever has the number now. */
static void parks_again_when_closed(void **state) {
    (void)state;
    struct sleeper s;
    int pair[2];
    pair_of(pair);
    init(&s)->then = park_again_after_close;
    park_plain(&s, pair[0], EA_READABLE);
    ea_poll_forget(P, pair[0]);
    assert_int_equal(s.wakes, 1);
    assert_true(ea_waiter_parked(&s.waiter));
    put(pair[1]);
    await_ready(&s, EA_READABLE);
    close_pair(pair);
}

static void wake_the_other(struct sleeper *s) {
    ea_waiter_wake(&s->other->waiter, EA_WAKE_CANCEL, 0);
}

static void forget_the_other(struct sleeper *s) {
    ea_poll_forget(P, s->other->fd);
}

/* What a wake function does to those that would have been next: each is woken once. */
static void wakes_others_in_wake(void **state) {
    (void)state;
    for (int what = 0; what < 2; what++) {
        for (int same = 0; same < 2; same++) {
            struct sleeper s[4];
            int pairs[4][2];
            for (int i = 0; i < 4; i++) {
                pair_of(pairs[i]);
                put(pairs[i][1]);
                init(&s[i])->then = what ? forget_the_other : wake_the_other;
                s[i].other = &s[(i + 1) % 4];
                park_plain(&s[i], pairs[same ? 0 : i][0], EA_READABLE);
            }
            for (int i = 0; i < 10; i++)
                ea_poll_turn(P, 0);
            for (int i = 0; i < 4; i++) {
                assert_int_equal(s[i].wakes, 1);
                assert_false(ea_waiter_parked(&s[i].waiter));
                close_pair(pairs[i]);
            }
            assert_int_equal(P->waiting, 0);
        }
    }
}

/* --- Other threads. */

struct helper {
    struct ea_message message;
    int delivered;
    pthread_t owner;
    bool nudge;
};

/* valgrind 3.19 keeps its one lock during io_uring_enter(2): no other thread can end that. */
static void needs_threads_beside_a_wait(void) {
    if (test_under_valgrind() && !strcmp(backend->name, "io_uring"))
        skip();
}

static void deliver(struct ea_message *message) {
    struct helper *h = EA_CONTAINER(message, struct helper, message);
    assert_true(pthread_equal(pthread_self(), h->owner));
    h->delivered++;
}

static void *post_later(void *arg) {
    struct helper *h = arg;
    usleep(20000);
    if (h->nudge)
        ea_poll_nudge(P);
    else
        ea_poll_post(P, &h->message);
    return NULL;
}

/* A sleep without end is ended by a post, and by a nudge. */
static void posts_and_nudges(void **state) {
    (void)state;
    needs_threads_beside_a_wait();
    struct sleeper s;
    int pair[2];
    pair_of(pair);
    for (int round = 0; round < 6; round++) {
        struct helper h = {.owner = pthread_self(), .nudge = round % 2};
        pthread_t thread;
        ea_message_init(&h.message, deliver);
        if (round >= 3)
            park(init(&s), -1, 0, ea_now() + 1000 * 1000 * MS, 0);
        assert_int_equal(pthread_create(&thread, NULL, post_later, &h), 0);
        ea_poll_turn(P, -1); /* would hang */
        assert_int_equal(h.delivered, h.nudge ? 0 : 1);
        pthread_join(thread, NULL);
        assert_true(idle_turns(30 * MS) <= CALM); /* and it is over */
        if (round >= 3)
            ea_waiter_wake(&s.waiter, EA_WAKE_CANCEL, 0);
    }
    /* Before the sleep counts, too. */
    struct helper h = {.owner = pthread_self()};
    ea_message_init(&h.message, deliver);
    ea_poll_post(P, &h.message);
    ea_poll_post(P, &h.message);
    ea_poll_turn(P, -1);
    assert_int_equal(h.delivered, 1);
    close_pair(pair);
}

#define POSTS 20000

static void *post_many(void *arg) {
    struct helper *h = arg;
    for (int i = 0; i < POSTS; i++)
        ea_poll_post(P, &h[i].message);
    return NULL;
}

static void many_posts(void **state) {
    (void)state;
    needs_threads_beside_a_wait();
    static struct helper h[2][POSTS];
    pthread_t threads[2];
    struct sleeper s;
    int pair[2];
    pair_of(pair);
    park_plain(init(&s), pair[0], EA_READABLE);
    for (int t = 0; t < 2; t++) {
        for (int i = 0; i < POSTS; i++) {
            h[t][i] = (struct helper){.owner = pthread_self()};
            ea_message_init(&h[t][i].message, deliver);
        }
    }
    for (int t = 0; t < 2; t++)
        assert_int_equal(pthread_create(&threads[t], NULL, post_many, h[t]), 0);
    int left;
    do {
        ea_poll_turn(P, -1);
        left = 0;
        for (int t = 0; t < 2; t++)
            left += h[t][POSTS - 1].delivered == 0;
    } while (left);
    for (int t = 0; t < 2; t++)
        pthread_join(threads[t], NULL);
    for (int i = 0; i < POSTS; i++)
        assert_int_equal(h[0][i].delivered + h[1][i].delivered, 2);
    assert_int_equal(s.wakes, 0);
    close_pair(pair);
}

/* --- Many. */

static void timers_and_descriptors(void **state) {
    (void)state;
    enum { COUNT = 200 };
    static struct sleeper s[COUNT];
    static int pairs[COUNT][2];
    int64_t now = ea_now();
    for (int i = 0; i < COUNT; i++) {
        pair_of(pairs[i]);
        park(init(&s[i]), pairs[i][0], EA_READABLE, now + (i % 2 ? 20 + i % 7 : 1000000) * MS, 0);
    }
    for (int i = 0; i < COUNT; i += 2)
        put(pairs[i][1]);
    for (int i = 0; i < COUNT; i++) {
        assert_true(await(&s[i]));
        assert_int_equal(s[i].wakes, 1);
        assert_int_equal(s[i].reason, i % 2 ? EA_WAKE_TIMEOUT : EA_WAKE_READY);
        close_pair(pairs[i]);
    }
    assert_int_equal(P->waiting, 0);
    assert_int_equal(P->timers.armed, 0);
}

/* Pipes, or as a pipe takes two descriptors and the hard limit may forbid that, eventfds. */
static void ten_thousand_descriptors(void **state) {
    (void)state;
    enum { COUNT = 10000 };
    bool pipes = test_want_descriptors(2 * COUNT + 100);
    if (!pipes && !test_want_descriptors(COUNT + 100)) {
        print_message("the hard limit of descriptors forbids %d of them\n", COUNT);
        skip();
    }
    static struct sleeper s[COUNT];
    static int pairs[COUNT][2];
    uint64_t one = 1;
    for (int i = 0; i < COUNT; i++) {
        if (pipes)
            test_ok(pipe2(pairs[i], O_NONBLOCK));
        else
            pairs[i][0] = pairs[i][1] = test_ok(eventfd(0, EFD_NONBLOCK));
        init(&s[i]);
    }
    for (int round = 0; round < 3; round++) {
        for (int i = 0; i < COUNT; i++)
            park_dry(&s[i], pairs[i][0], EA_READABLE);
        assert_int_equal(P->waiting, COUNT);
        ea_poll_turn(P, 0);
        for (int i = 0; i < COUNT; i++) {
            assert_int_equal(s[i].wakes, round);
            assert_int_equal(write(pairs[i][1], &one, sizeof(one)), sizeof(one));
        }
        for (int i = 0; i < COUNT; i++) {
            assert_true(await(&s[i]));
            assert_int_equal(s[i].wakes, round + 1);
            assert_int_equal(s[i].reason, EA_WAKE_READY);
            take(pairs[i][0]);
        }
    }
    for (int i = 0; i < COUNT; i++) {
        ea_poll_forget(P, pairs[i][0]);
        close(pairs[i][0]);
        if (pipes)
            close(pairs[i][1]);
    }
}

/* --- fork. */

#define CHILD_CHECK(what)                                                                          \
    do {                                                                                           \
        if (!(what)) {                                                                             \
            fprintf(stderr, "child: %s:%d: %s\n", __FILE__, __LINE__, #what);                      \
            _exit(1);                                                                              \
        }                                                                                          \
    } while (0)

static void child_goes_on(struct sleeper *s, int ready, int quiet[2]) {
    struct sleeper own, timed;
    int pair[2];
    char c;
    CHILD_CHECK(ea_poll_after_fork(P) == 0);
    CHILD_CHECK(ea_waiter_parked(&s[0].waiter) && ea_waiter_parked(&s[1].waiter));
    CHILD_CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, pair) == 0);
    init(&own);
    CHILD_CHECK(ea_poll_park(P, &own.waiter, pair[0], EA_READABLE, EA_TIME_NEVER, 0) == 0);
    ea_poll_turn(P, 0);
    CHILD_CHECK(own.wakes == 0);
    CHILD_CHECK(write(pair[1], "x", 1) == 1);
    CHILD_CHECK(await(&own) && own.reason == EA_WAKE_READY);
    init(&timed);
    CHILD_CHECK(ea_poll_park(P, &timed.waiter, -1, 0, ea_now() + MS, 0) == 0);
    CHILD_CHECK(await(&timed) && timed.reason == EA_WAKE_TIMEOUT);
    ea_poll_nudge(P); /* nobody's sleep but ours */
    ea_poll_turn(P, -1);
    /* Sleepers of before are still served; the parent writes when it is told to. */
    CHILD_CHECK(write(ready, "x", 1) == 1);
    CHILD_CHECK(await(&s[0]) && s[0].reason == EA_WAKE_READY && s[0].wakes == 1);
    CHILD_CHECK(ea_waiter_parked(&s[1].waiter));
    ea_poll_forget(P, quiet[0]);
    CHILD_CHECK(s[1].reason == EA_WAKE_CLOSED);
    CHILD_CHECK(read(pair[0], &c, 1) == 1);
    ea_poll_term(P);
    _exit(0);
}

static void fork_and_go_on(void **state) {
    (void)state;
    struct sleeper s[2];
    int pair[2], quiet[2], ready[2], status;
    char c;
    pair_of(pair);
    pair_of(quiet);
    test_ok(pipe(ready));
    park_plain(init(&s[0]), pair[0], EA_READABLE);
    park_plain(init(&s[1]), quiet[0], EA_READABLE);
    ea_poll_turn(P, 0);
    fflush(NULL);
    pid_t child = test_ok(fork());
    if (child == 0)
        child_goes_on(s, ready[1], quiet);
    close(ready[1]);
    assert_int_equal(read(ready[0], &c, 1), 1);
    assert_true(idle_turns(30 * MS) <= CALM);
    assert_int_equal(s[0].wakes + s[1].wakes, 0);
    put(pair[1]);
    await_ready(&s[0], EA_READABLE);
    test_ok(waitpid(child, &status, 0));
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
    /* What the child took out of its set is still in ours. */
    assert_int_equal(s[1].wakes, 0);
    put(quiet[1]);
    await_ready(&s[1], EA_READABLE);
    take(pair[0]);
    park_dry(&s[0], pair[0], EA_READABLE);
    put(pair[1]);
    await_ready(&s[0], EA_READABLE);
    close(ready[0]);
    close_pair(pair);
    close_pair(quiet);
}

/* --- At random, against a model. */

#define SLOTS 48

struct slot {
    struct sleeper reader;
    int pair[2];    /* [0] is read and waited on, [1] written; -1: closed */
    int copy;       /* of an earlier [0], which keeps a stale registration alive; or -1 */
    int copy_other; /* the far end of copy, which makes it ready */
    int data;       /* bytes that wait in pair[0] */
    bool had_data;  /* there were some since it parked */
    bool dry;       /* would-block was seen and nothing was written since: EA_PARK_DRY is true */
    int64_t deadline;
    int parks;
};

static struct slot slots[SLOTS];
static bool closing; /* the slot whose descriptor is being closed may be woken with CLOSED */

static void slot_woken(struct sleeper *s) {
    struct slot *slot = EA_CONTAINER(s, struct slot, reader);
    assert_int_equal(s->wakes, slot->parks);
    switch (s->reason) {
    case EA_WAKE_READY:
        /* io_uring reports what woke the request; in between, somebody may have read it. */
        assert_true(slot->data > 0 || (slot->had_data && !strcmp(backend->name, "io_uring")));
        assert_int_equal(s->revents, EA_READABLE);
        break;
    case EA_WAKE_TIMEOUT:
        assert_true(slot->deadline <= ea_now());
        break;
    case EA_WAKE_CLOSED:
        assert_true(closing);
        break;
    default:
        assert_int_equal(s->reason, EA_WAKE_CANCEL);
    }
}

static void slot_drain(struct slot *slot) {
    char bytes[4096];
    ssize_t n;
    while ((n = read(slot->pair[0], bytes, sizeof(bytes))) > 0)
        slot->data -= (int)n;
    assert_int_equal(slot->data, 0);
    slot->dry = true;
}

static void slot_drop_copy(struct slot *slot) {
    if (slot->copy < 0)
        return;
    close(slot->copy);
    close(slot->copy_other);
    slot->copy = slot->copy_other = -1;
}

static void slot_open(struct slot *slot) {
    pair_of(slot->pair);
    slot->data = 0;
    slot->dry = false;
}

static void slot_close(struct slot *slot, bool keep) {
    slot_drop_copy(slot);
    closing = true;
    if (keep) {
        slot->copy = test_ok(dup(slot->pair[0]));
        slot->copy_other = slot->pair[1];
    } else {
        close(slot->pair[1]);
    }
    close(slot->pair[0]);
    ea_poll_forget(P, slot->pair[0]);
    assert_false(ea_waiter_parked(&slot->reader.waiter));
    closing = false;
    slot->pair[0] = slot->pair[1] = -1;
}

static void slot_park(struct slot *slot, unsigned dice) {
    struct sleeper *s = &slot->reader;
    if (ea_waiter_parked(&s->waiter))
        return;
    slot->parks++;
    slot->had_data = slot->data > 0;
    slot->deadline = dice % 4 ? EA_TIME_NEVER : ea_now() + (int64_t)(dice % 3) * MS;
    park(s, slot->pair[0], EA_READABLE, slot->deadline, slot->dry ? EA_PARK_DRY : 0);
}

static void random_step(struct slot *slot, unsigned dice) {
    if (slot->pair[0] < 0) {
        slot_open(slot);
        return;
    }
    switch (dice % 16) {
    case 0:
        slot_close(slot, dice & 256);
        break;
    case 1:
        if (ea_waiter_parked(&slot->reader.waiter))
            assert_true(ea_waiter_wake(&slot->reader.waiter, EA_WAKE_CANCEL, 0));
        break;
    case 2:
        if (slot->copy >= 0)
            put(slot->copy_other); /* goes to nobody */
        break;
    case 3:
    case 4:
    case 5:
        if (slot->data < 1000) {
            put(slot->pair[1]);
            slot->data++;
            slot->had_data = true;
            slot->dry = false;
        }
        break;
    case 6:
    case 7:
    case 8:
        slot_drain(slot);
        break;
    case 9:
        slot_drop_copy(slot);
        break;
    default:
        slot_park(slot, dice >> 8);
    }
}

static void random_walk(void **state) {
    (void)state;
    const char *given = getenv("EAGAIN_SEED");
    unsigned seed = given ? (unsigned)strtoul(given, NULL, 0) : (unsigned)ea_now();
    print_message("EAGAIN_SEED=%u\n", seed);
    srandom(seed);
    for (int i = 0; i < SLOTS; i++) {
        slots[i] = (struct slot){.pair = {-1, -1}, .copy = -1, .copy_other = -1};
        init(&slots[i].reader)->then = slot_woken;
    }
    int64_t end = ea_now() + 2000 * MS;
    unsigned long steps = 0, woken_ready = P->wakeups;
    while (ea_now() < end) {
        for (int burst = (int)(random() % 40); burst >= 0; burst--, steps++)
            random_step(&slots[random() % SLOTS], (unsigned)random());
        ea_poll_turn(P, random() % 8 ? 0 : MS / 10);
        for (int i = 0; i < SLOTS; i++) /* nobody sleeps on what is ready */
            if (ea_waiter_parked(&slots[i].reader.waiter) && slots[i].data > 0)
                fail_msg("slot %d (fd %d) sleeps on %d bytes after %lu steps", i, slots[i].pair[0],
                         slots[i].data, steps);
    }
    for (int i = 0; i < SLOTS; i++) {
        if (slots[i].pair[0] >= 0)
            slot_close(&slots[i], false);
        slot_drop_copy(&slots[i]);
        assert_int_equal(slots[i].reader.wakes, slots[i].parks);
    }
    assert_int_equal(P->waiting, 0);
    assert_int_equal(P->timers.armed, 0);
    assert_true(P->wakeups - woken_ready > 100);
}

#define TURNS(f) cmocka_unit_test_setup_teardown(f, in_turn, out_turn)

int main(int argc, char **argv) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(names),
        cmocka_unit_test(out_of_descriptors),
        TURNS(term_wakes_sleepers),
        TURNS(wakes_when_ready),
        TURNS(deadlines),
        TURNS(timeouts_of_turns),
        TURNS(first_reason_wins),
        TURNS(hang_ups_and_errors),
        TURNS(both_directions),
        TURNS(several_waiters),
        TURNS(left_unread),
        TURNS(more_sleepers_than_the_descriptor_limit),
        TURNS(read_until_dry),
        TURNS(ready_for_nobody),
        TURNS(saw_dry),
        TURNS(calm_when_nothing_happens),
        TURNS(calm_when_unwanted),
        TURNS(calm_reader_of_a_writable_socket),
        TURNS(always_ready),
        TURNS(not_open),
        TURNS(closed_in_mid_wait),
        TURNS(closed_behind_our_back),
        TURNS(reused_without_a_word),
        TURNS(replaced_under_a_sleeper),
        TURNS(unsure),
        TURNS(unsure_of_a_file),
        TURNS(stale_registration),
        TURNS(held_by_a_child),
        TURNS(invalid_sleepers),
        TURNS(freed_in_wake),
        TURNS(parks_again_in_wake),
        TURNS(parks_again_when_closed),
        TURNS(wakes_others_in_wake),
        TURNS(posts_and_nudges),
        TURNS(many_posts),
        TURNS(timers_and_descriptors),
        TURNS(ten_thousand_descriptors),
        TURNS(fork_and_go_on),
        TURNS(random_walk),
    };
    if (argc != 2) {
        fprintf(stderr, "usage: %s BACKEND\n", argv[0]);
        return 2;
    }
    backend = ea_poll_backend_find(argv[1]);
    if (!backend) {
        fprintf(stderr, "no backend %s here: skipped\n", argv[1]);
        return TEST_SKIPPED;
    }
    signal(SIGPIPE, SIG_IGN);
    return cmocka_run_group_tests_name(argv[1], tests, NULL, NULL);
}
