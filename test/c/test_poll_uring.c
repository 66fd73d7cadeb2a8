/* What the io_uring backend alone must do, beside the shared suite: count its system calls, get by with
 * little, hold nothing that nobody waits for. 77: not in this build, or this kernel does not let us. */
#include "support.h"

#include "core/poll_internal.h"

#include <poll.h>
#include <pthread.h>
#include <sys/resource.h>

#ifndef EA_HAVE_LIBURING
int main(void) {
    fprintf(stderr, "built without liburing: skipped\n");
    return TEST_SKIPPED;
}
#else

#include <liburing.h>

#define MS INT64_C(1000000)
#define FOREVER (20000 * MS)

static struct ea_poll poll_;
#define P (&poll_)

struct sleeper {
    struct ea_waiter waiter;
    int wakes;
};

static void woken(struct ea_waiter *waiter) {
    EA_CONTAINER(waiter, struct sleeper, waiter)->wakes++;
}

static void park_until(struct sleeper *s, int fd, unsigned events, int64_t deadline) {
    *s = (struct sleeper){0};
    ea_waiter_init(&s->waiter, P, woken);
    assert_int_equal(ea_poll_park(P, &s->waiter, fd, events, deadline, 0), 0);
}

static void park(struct sleeper *s, int fd, unsigned events) {
    park_until(s, fd, events, EA_TIME_NEVER);
}

static void await(struct sleeper *s, int reason) {
    int64_t end = ea_now() + FOREVER;
    while (ea_waiter_parked(&s->waiter) && ea_now() < end)
        ea_poll_turn(P, 100 * MS);
    assert_int_equal(s->wakes, 1);
    assert_int_equal(s->waiter.reason, reason);
}

static void cancel(struct sleeper *s) {
    assert_true(ea_waiter_wake(&s->waiter, EA_WAKE_CANCEL, 0));
}

static void pair_of(int pair[2]) {
    test_ok(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, pair));
}

static void put(int fd) {
    assert_int_equal(write(fd, "x", 1), 1);
}

static void take(int fd) {
    char c;
    assert_int_equal(read(fd, &c, 1), 1);
}

/* Does the other end see this one's close, now? */
static bool at_end(int fd) {
    char c;
    return read(fd, &c, 1) == 0;
}

static void close_pair(int pair[2]) {
    ea_poll_forget(P, pair[0]);
    ea_poll_forget(P, pair[1]);
    close(pair[0]);
    close(pair[1]);
}

static void start(unsigned entries, unsigned refused) {
    ea_uring_limits = (struct ea_uring_limits){entries, refused};
    assert_int_equal(ea_poll_init(P, &ea_poll_uring), 0);
}

static int in_turn(void **state) {
    (void)state;
    test_limit(60);
    ea_uring_limits = (struct ea_uring_limits){1024, 0};
    return -ea_poll_init(P, &ea_poll_uring);
}

static int out_turn(void **state) {
    (void)state;
    if (P->backend && P->waiting == 0 && P->timers.armed == 0)
        ea_poll_term(P);
    alarm(0);
    return 0;
}

/* --- What it costs. */

enum { MANY = 3000 };

static int many[MANY][2];
static struct sleeper sleepers[MANY];

static void open_many(void) {
    if (!test_want_descriptors(2 * MANY + 100)) {
        print_message("the hard limit of descriptors forbids %d of them\n", 2 * MANY);
        skip();
    }
    for (int i = 0; i < MANY; i++)
        pair_of(many[i]);
}

static void close_many(void) {
    for (int i = 0; i < MANY; i++)
        close_pair(many[i]);
}

/* Waits ride on the next enter: one for as many as the queue has room for. */
static void waits_of_one_turn_share_a_call(void **state) {
    (void)state;
    open_many();
    for (int round = 0; round < 2; round++) {
        uint64_t before = ea_uring_enters(P);
        for (int i = 0; i < MANY; i++)
            park(&sleepers[i], many[i][0], EA_READABLE);
        assert_int_equal(ea_uring_enters(P), before);
        ea_poll_turn(P, 0);
        assert_in_range(ea_uring_enters(P) - before, 1, MANY / 1024 + 1);
        for (int i = 0; i < MANY; i++)
            put(many[i][1]);
        for (int i = 0; i < MANY; i++) {
            await(&sleepers[i], EA_WAKE_READY);
            take(many[i][0]);
        }
    }
    close_many();
}

static void one_call_for_each_turn_that_sleeps(void **state) {
    (void)state;
    struct sleeper s;
    int pair[2];
    pair_of(pair);
    for (int i = 0; i < 100; i++) {
        uint64_t before = ea_uring_enters(P);
        park(&s, pair[0], EA_READABLE);
        put(pair[1]);
        ea_poll_turn(P, -1);
        assert_int_equal(s.wakes, 1);
        take(pair[0]);
        assert_int_equal(ea_uring_enters(P), before + 1);
    }
    close_pair(pair);
}

/* To look whether something happened is to look into memory. */
static void a_look_costs_no_call(void **state) {
    (void)state;
    struct sleeper s;
    int pair[2];
    pair_of(pair);
    park(&s, pair[0], EA_READABLE);
    ea_poll_turn(P, 0);
    uint64_t before = ea_uring_enters(P);
    for (int i = 0; i < 100; i++)
        ea_poll_turn(P, 0);
    assert_int_equal(ea_uring_enters(P), before);
    put(pair[1]);
    ea_poll_turn(P, 0);
    assert_int_equal(s.wakes, 1);
    close_pair(pair);
}

/* A wait that began and ended within a turn never gets to the kernel; nor does one that ended and began. */
static void waits_that_do_not_last_are_not_asked_for(void **state) {
    (void)state;
    struct sleeper s;
    int pair[2];
    pair_of(pair);
    ea_poll_turn(P, 0);
    uint64_t before = ea_uring_enters(P);
    for (int i = 0; i < 10; i++) {
        park(&s, pair[0], EA_READABLE);
        cancel(&s);
        ea_poll_turn(P, 0);
    }
    assert_int_equal(ea_uring_enters(P), before);
    park(&s, pair[0], EA_READABLE);
    ea_poll_turn(P, 0);
    assert_int_equal(ea_uring_enters(P), before + 1);
    for (int i = 0; i < 10; i++) {
        cancel(&s);
        park(&s, pair[0], EA_READABLE);
        ea_poll_turn(P, 0);
    }
    assert_int_equal(ea_uring_enters(P), before + 1);
    put(pair[1]);
    await(&s, EA_WAKE_READY);
    close_pair(pair);
}

/* --- What it holds. */

/* Whatever ended the wait: the peer sees the end when the descriptor is closed without a word. */
static void closed_with_nobody_waiting(void **state) {
    (void)state;
    for (int how = 0; how < 3; how++) {
        struct sleeper s;
        int pair[2];
        pair_of(pair);
        park_until(&s, pair[0], EA_READABLE, how == 1 ? ea_now() + 5 * MS : EA_TIME_NEVER);
        ea_poll_turn(P, 0);
        if (how == 0)
            put(pair[1]);
        if (how < 2)
            await(&s, how == 0 ? EA_WAKE_READY : EA_WAKE_TIMEOUT);
        else
            cancel(&s);
        if (how == 0)
            take(pair[0]);
        else
            ea_poll_release(P);
        close(pair[0]);
        assert_true(at_end(pair[1]));
        ea_poll_forget(P, pair[0]);
        close(pair[1]);
    }
}

/* The next turn lets go without being asked to. */
static void let_go_with_the_next_turn(void **state) {
    (void)state;
    struct sleeper s, peer;
    int pair[2];
    pair_of(pair);
    park(&s, pair[0], EA_READABLE);
    ea_poll_turn(P, 0);
    cancel(&s);
    close(pair[0]);
    park(&peer, pair[1], EA_READABLE);
    await(&peer, EA_WAKE_READY);
    assert_true(at_end(pair[1]));
    ea_poll_forget(P, pair[0]);
    ea_poll_forget(P, pair[1]);
    close(pair[1]);
}

/* With a word to us, the close takes effect at once, waited for or not. */
static void forgotten_in_mid_wait(void **state) {
    (void)state;
    open_many();
    for (int i = 0; i < MANY; i++)
        park(&sleepers[i], many[i][0], EA_READABLE);
    ea_poll_turn(P, 0);
    for (int i = 0; i < MANY; i++) {
        if (i % 7 == 0)
            put(many[i][1]); /* its answer is on its way */
        ea_poll_forget(P, many[i][0]);
        assert_int_equal(sleepers[i].waiter.reason, EA_WAKE_CLOSED);
        close(many[i][0]);
        char c;
        ssize_t n = read(many[i][1], &c, 1);
        assert_true(n == 0 || (n < 0 && errno == ECONNRESET));
        close(many[i][1]);
        many[i][0] = many[i][1] = -1;
    }
}

/* Many at once: the kernel does not carry out all cancellations in one call. */
static void released_by_the_thousand(void **state) {
    (void)state;
    open_many();
    for (int i = 0; i < MANY; i++)
        park(&sleepers[i], many[i][0], EA_READABLE);
    ea_poll_turn(P, 0);
    for (int i = 0; i < MANY; i++)
        cancel(&sleepers[i]);
    ea_poll_release(P);
    for (int i = 0; i < MANY; i++) {
        close(many[i][0]);
        assert_true(at_end(many[i][1]));
        ea_poll_forget(P, many[i][0]);
        close(many[i][1]);
    }
}

/* The end of the poller is the end of what it held. */
static void nothing_held_after_the_end(void **state) {
    (void)state;
    open_many();
    for (int i = 0; i < MANY; i++)
        park(&sleepers[i], many[i][0], EA_READABLE);
    ea_poll_turn(P, 0);
    ea_poll_term(P);
    int held = 0;
    for (int i = 0; i < MANY; i++) {
        close(many[i][0]);
        held += !at_end(many[i][1]);
        close(many[i][1]);
    }
    start(1024, 0); /* for the teardown */
    assert_int_equal(held, 0);
}

/* The answer to a wait that has ended is not one to the next. */
static void late_answers_are_nobodys(void **state) {
    (void)state;
    struct sleeper s;
    int pair[2];
    pair_of(pair);
    for (int i = 0; i < 100; i++) {
        park(&s, pair[0], EA_READABLE);
        ea_poll_turn(P, 0);
        put(pair[1]); /* the request is complete, and nobody has looked */
        cancel(&s);
        take(pair[0]);
        park(&s, pair[0], EA_READABLE);
        ea_poll_turn(P, 0);
        ea_poll_turn(P, 0);
        assert_true(ea_waiter_parked(&s.waiter));
        put(pair[1]);
        await(&s, EA_WAKE_READY);
        take(pair[0]);
    }
    close_pair(pair);
}

/* Two directions are two requests: one ends, is given up and renewed without the other. */
static void directions_are_independent(void **state) {
    (void)state;
    struct sleeper r, w;
    int pair[2];
    char page[4096] = {0};
    pair_of(pair);
    while (write(pair[0], page, sizeof(page)) > 0) {
    }
    park(&r, pair[0], EA_READABLE);
    for (int i = 0; i < 20; i++) {
        park(&w, pair[0], EA_WRITABLE);
        ea_poll_turn(P, 0);
        assert_int_equal(r.wakes + w.wakes, 0);
        if (i % 2) {
            cancel(&w);
            ea_poll_turn(P, 0);
            continue;
        }
        while (read(pair[1], page, sizeof(page)) > 0) {
        }
        await(&w, EA_WAKE_READY);
        while (write(pair[0], page, sizeof(page)) > 0) {
        }
    }
    assert_int_equal(r.wakes, 0);
    put(pair[1]);
    await(&r, EA_WAKE_READY);
    close_pair(pair);
}

/* --- Little room. */

/* Both queues overflow, over and over; wake-ups from outside get through as well. */
static void tiny_ring(void **state) {
    (void)state;
    ea_poll_term(P);
    start(4, 0);
    open_many();
    for (int round = 0; round < 3; round++) {
        for (int i = 0; i < MANY; i++)
            park(&sleepers[i], many[i][0], EA_READABLE);
        ea_poll_turn(P, 0);
        for (int i = 0; i < MANY; i++)
            put(many[i][1]);
        for (int i = 0; i < MANY; i++) {
            await(&sleepers[i], EA_WAKE_READY);
            take(many[i][0]);
        }
        for (int i = 0; i < MANY; i++)
            park(&sleepers[i], many[i][0], EA_READABLE);
        ea_poll_turn(P, 0);
        for (int i = 0; i < MANY; i++)
            cancel(&sleepers[i]);
        ea_poll_turn(P, 0);
    }
    close_many();
}

/* The poll of the wake descriptor ends when the completion queue overflows, and is renewed. */
static void woken_after_an_overflow(void **state) {
    (void)state;
    ea_poll_term(P);
    start(4, 0);
    open_many();
    for (int round = 0; round < 3; round++) {
        for (int i = 0; i < MANY; i++) {
            park(&sleepers[i], many[i][0], EA_READABLE);
            put(many[i][1]);
        }
        int64_t timeout = ea_poll_prepare(P, FOREVER); /* the queues are full from here on */
        ea_poll_nudge(P);                              /* which writes, to whom is about to sleep */
        ea_poll_dispatch(P, ea_poll_enter(P, timeout));
        for (int i = 0; i < MANY; i++) {
            await(&sleepers[i], EA_WAKE_READY);
            take(many[i][0]);
        }
        ea_poll_turn(P, 0);
        timeout = ea_poll_prepare(P, FOREVER);
        ea_poll_nudge(P);
        int64_t begin = ea_now();
        ea_poll_dispatch(P, ea_poll_enter(P, timeout));
        assert_true(ea_now() - begin < FOREVER / 2);
    }
    close_many();
}

/* --- Other kernels and other threads. */

static void works(int pair[2]) {
    struct sleeper s;
    for (int i = 0; i < 20; i++) {
        park(&s, pair[0], EA_READABLE);
        if (i % 2)
            ea_poll_turn(P, 0);
        put(pair[1]);
        await(&s, EA_WAKE_READY);
        take(pair[0]);
    }
    park_until(&s, pair[0], EA_READABLE, ea_now() + MS);
    await(&s, EA_WAKE_TIMEOUT);
}

/* What the kernel does not know is done without. */
static void fall_backs(void **state) {
    (void)state;
    const unsigned refused[] = {
        0,
        IORING_SETUP_DEFER_TASKRUN,
        IORING_SETUP_SINGLE_ISSUER,
        IORING_SETUP_SINGLE_ISSUER | IORING_SETUP_COOP_TASKRUN,
    };
    int pair[2];
    pair_of(pair);
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) {
        ea_poll_term(P);
        start(64, refused[i]);
        assert_int_equal(ea_uring_setup(P) & refused[i], 0);
        works(pair);
        ea_poll_forget(P, pair[0]);
    }
    close_pair(pair);
}

static void *in_thread(void *pair) {
    works(pair);
    return NULL;
}

/* Made here, used there, and then in a third thread: the ring becomes one that anybody may enter. */
static void changes_threads(void **state) {
    (void)state;
    pthread_t thread;
    struct sleeper s;
    int pair[2], other[2];
    pair_of(pair);
    pair_of(other);
    assert_int_equal(pthread_create(&thread, NULL, in_thread, pair), 0);
    pthread_join(thread, NULL);
    bool was_single = ea_uring_setup(P) & IORING_SETUP_SINGLE_ISSUER;
    park(&s, other[0], EA_READABLE);
    works(pair);
    if (was_single)
        assert_int_equal(ea_uring_setup(P) & IORING_SETUP_SINGLE_ISSUER, 0);
    assert_int_equal(s.wakes, 0);
    /* What was asked for by a thread that ends is asked for again. */
    assert_int_equal(pthread_create(&thread, NULL, in_thread, pair), 0);
    pthread_join(thread, NULL);
    assert_int_equal(s.wakes, 0);
    put(other[1]);
    await(&s, EA_WAKE_READY);
    close_pair(pair);
    close_pair(other);
}

/* The child's poller works on a ring of its own, and leaves the parent's alone even before it was told of
 * the fork. */
static void forked(void **state) {
    (void)state;
    struct sleeper s, t;
    int pair[2], other[2], status;
    pair_of(pair);
    pair_of(other);
    park(&s, pair[0], EA_READABLE);
    park(&t, other[0], EA_READABLE);
    ea_poll_turn(P, 0);
    const struct io_uring *ring = P->backend_data; /* which begins with it */
    unsigned tail = *ring->sq.ktail;
    fflush(NULL);
    pid_t child = test_ok(fork());
    if (child == 0) {
        int own[2];
        ea_waiter_wake(&s.waiter, EA_WAKE_CANCEL, 0);
        ea_poll_release(P);
        ea_poll_forget(P, other[0]);
        if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, own))
            _exit(1);
        works(own);
        if (ea_poll_after_fork(P) != 0)
            _exit(1);
        works(own);
        ea_poll_term(P);
        _exit(0);
    }
    test_ok(waitpid(child, &status, 0));
    assert_int_equal(status, 0);
    assert_int_equal(*ring->sq.ktail, tail); /* it is shared memory */
    assert_int_equal(s.wakes + t.wakes, 0);
    put(pair[1]);
    put(other[1]);
    ea_poll_turn(P, 0); /* and not in a later one, as if something had come between */
    assert_int_equal(s.wakes, 1);
    assert_int_equal(t.wakes, 1);
    take(pair[0]);
    works(pair);
    close_pair(pair);
    close_pair(other);
}

#define TURNS(f) cmocka_unit_test_setup_teardown(f, in_turn, out_turn)

int main(void) {
    const struct CMUnitTest tests[] = {
        TURNS(waits_of_one_turn_share_a_call),
        TURNS(one_call_for_each_turn_that_sleeps),
        TURNS(a_look_costs_no_call),
        TURNS(waits_that_do_not_last_are_not_asked_for),
        TURNS(closed_with_nobody_waiting),
        TURNS(let_go_with_the_next_turn),
        TURNS(forgotten_in_mid_wait),
        TURNS(released_by_the_thousand),
        TURNS(nothing_held_after_the_end),
        TURNS(late_answers_are_nobodys),
        TURNS(directions_are_independent),
        TURNS(tiny_ring),
        TURNS(woken_after_an_overflow),
        TURNS(fall_backs),
        TURNS(changes_threads),
        TURNS(forked),
    };
    int error = ea_poll_init(P, &ea_poll_uring);
    if (error) {
        fprintf(stderr, "no io_uring here (%s): skipped\n", strerror(-error));
        return TEST_SKIPPED;
    }
    ea_poll_term(P);
    signal(SIGPIPE, SIG_IGN);
    return cmocka_run_group_tests(tests, NULL, NULL);
}

#endif
