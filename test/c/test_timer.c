/* Deadlines, against a model that keeps everything in one array and looks at all of it.
 *
 *   test_timer [SEED]
 */
#include <eagain/timer.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static struct ea_timers timers;
static uint64_t seed = 0;
static uint64_t random_state;

static uint64_t random_next(void) { /* xorshift64* */
    random_state ^= random_state >> 12;
    random_state ^= random_state << 25;
    random_state ^= random_state >> 27;
    return random_state * UINT64_C(2685821657736338717);
}

static unsigned random_below(unsigned n) {
    return (unsigned)(random_next() >> 32) % n;
}

/* Between 0 and 2^63, every order of magnitude equally likely. */
static int64_t random_span(void) {
    return (int64_t)(random_next() >> (1 + random_below(63)));
}

static int fired[2048];
static int fired_count;

struct probe {
    struct ea_timer timer;
    int id;
};

static void probe_fire(struct ea_timer *timer) {
    assert_false(ea_timer_armed(timer));
    assert_true(fired_count < 2048);
    fired[fired_count++] = EA_CONTAINER(timer, struct probe, timer)->id;
}

static void probe_init(struct probe *probe, int id) {
    ea_timer_init(&probe->timer, probe_fire);
    probe->id = id;
}

static int setup(void **state) {
    (void)state;
    ea_timers_init(&timers, 0);
    fired_count = 0;
    return 0;
}

/* What `deadline` waits for: the start of the next tick. */
static int64_t rounded_up(int64_t deadline) {
    return (deadline + EA_TIMER_TICK - 1) / EA_TIMER_TICK * EA_TIMER_TICK;
}

static void fires_in_its_tick_and_never_early(void **state) {
    (void)state;
    const int64_t deadlines[] = {1,
                                 EA_TIMER_TICK - 1,
                                 EA_TIMER_TICK,
                                 EA_TIMER_TICK + 1,
                                 64 * EA_TIMER_TICK,
                                 64 * EA_TIMER_TICK + 1,
                                 1000000000,
                                 INT64_C(3600) * 1000000000,
                                 INT64_C(1) << 61,
                                 INT64_MAX - EA_TIMER_TICK};
    for (size_t i = 0; i < sizeof deadlines / sizeof *deadlines; i++) {
        struct probe probe;
        probe_init(&probe, (int)i);
        ea_timers_init(&timers, 0);
        fired_count = 0;
        ea_timer_arm(&timers, &probe.timer, deadlines[i]);
        assert_int_equal(ea_timers_next(&timers), rounded_up(deadlines[i]));
        assert_int_equal(ea_timers_expire(&timers, deadlines[i] - 1), 0);
        assert_int_equal(ea_timers_expire(&timers, rounded_up(deadlines[i]) - 1), 0);
        assert_int_equal(ea_timers_next(&timers), rounded_up(deadlines[i]));
        assert_int_equal(ea_timers_expire(&timers, rounded_up(deadlines[i])), 1);
        assert_int_equal(fired[0], i);
        assert_int_equal(ea_timers_next(&timers), EA_TIME_NEVER);
    }
}

static void past_and_now_fire_at_the_next_expire(void **state) {
    (void)state;
    int64_t now = INT64_C(5000000) * EA_TIMER_TICK + 17;
    struct probe probes[4];
    for (int i = 0; i < 4; i++) {
        probe_init(&probes[i], i);
    }
    ea_timers_expire(&timers, now);
    ea_timer_arm(&timers, &probes[0].timer, now);
    ea_timer_arm(&timers, &probes[1].timer, now - EA_TIMER_TICK);
    ea_timer_arm(&timers, &probes[2].timer, -5);
    ea_timer_arm(&timers, &probes[3].timer, INT64_MIN);
    assert_true(ea_timers_next(&timers) <= now);
    assert_int_equal(ea_timers_expire(&timers, now), 3);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(fired[i], i + 1); /* in order of arming */
    }
    /* `now` itself lies within a tick; it ends later. */
    assert_int_equal(ea_timers_next(&timers), rounded_up(now));
    assert_int_equal(ea_timers_expire(&timers, rounded_up(now)), 1);
}

static void an_older_now_is_no_harm(void **state) {
    (void)state;
    struct probe past;
    struct probe future;
    probe_init(&past, 1);
    probe_init(&future, 2);
    ea_timers_expire(&timers, 1000 * EA_TIMER_TICK);
    ea_timer_arm(&timers, &future.timer, 1001 * EA_TIMER_TICK);
    ea_timer_arm(&timers, &past.timer, 3);
    assert_int_equal(ea_timers_expire(&timers, 500 * EA_TIMER_TICK), 1);
    assert_int_equal(fired[0], 1);
    assert_int_equal(ea_timers_expire(&timers, 1001 * EA_TIMER_TICK), 1);
}

static void never_and_the_end_of_time(void **state) {
    (void)state;
    struct probe probe;
    probe_init(&probe, 1);
    ea_timer_arm(&timers, &probe.timer, 10);
    ea_timer_arm(&timers, &probe.timer, EA_TIME_NEVER);
    assert_false(ea_timer_armed(&probe.timer));
    assert_int_equal(timers.armed, 0);
    assert_int_equal(ea_timers_next(&timers), EA_TIME_NEVER);

    ea_timer_arm(&timers, &probe.timer, INT64_MAX - 1);
    assert_true(ea_timer_armed(&probe.timer));
    assert_int_equal(ea_timers_expire(&timers, INT64_MAX - 2), 0);
    assert_int_equal(ea_timers_expire(&timers, INT64_MAX), 1);
    assert_int_equal(ea_timers_next(&timers), EA_TIME_NEVER);
}

static void cancel_and_rearm(void **state) {
    (void)state;
    struct probe a;
    struct probe b;
    probe_init(&a, 1);
    probe_init(&b, 2);
    assert_false(ea_timer_cancel(&timers, &a.timer));
    ea_timer_arm(&timers, &a.timer, 10 * EA_TIMER_TICK);
    ea_timer_arm(&timers, &b.timer, 20 * EA_TIMER_TICK);
    assert_true(ea_timer_cancel(&timers, &a.timer));
    assert_false(ea_timer_cancel(&timers, &a.timer));
    assert_int_equal(timers.armed, 1);
    assert_int_equal(ea_timers_next(&timers), 20 * EA_TIMER_TICK);
    ea_timer_arm(&timers, &b.timer, 30 * EA_TIMER_TICK);
    assert_int_equal(timers.armed, 1);
    assert_int_equal(ea_timers_next(&timers), 30 * EA_TIMER_TICK);
    assert_int_equal(ea_timers_expire(&timers, 29 * EA_TIMER_TICK), 0);
    assert_int_equal(ea_timers_expire(&timers, 30 * EA_TIMER_TICK), 1);
    assert_int_equal(fired[0], 2);
}

/* Sleeps until next, expires, and so on until nothing is armed: what it costs a loop. */
static int sleeps_until_idle(void) {
    int sleeps = 0;
    int64_t next;
    while ((next = ea_timers_next(&timers)) != EA_TIME_NEVER) {
        ea_timers_expire(&timers, next);
        sleeps++;
    }
    return sleeps;
}

static void a_thousand_sleepers_cost_one_sleep(void **state) {
    (void)state;
    static struct probe probes[1000];
    ea_timers_expire(&timers, 123456789);
    for (int i = 0; i < 1000; i++) {
        probe_init(&probes[i], i);
        ea_timer_arm(&timers, &probes[i].timer, 123456789 + 1000000000);
    }
    assert_int_equal(sleeps_until_idle(), 1);
    assert_int_equal(fired_count, 1000);
    for (int i = 0; i < 1000; i++) {
        assert_int_equal(fired[i], i);
    }
}

/* Those that wait longest are armed first, so that they come down through the levels to where the
 * others are armed directly. */
static void order_within_a_tick_survives_the_levels(void **state) {
    (void)state;
    static struct probe probes[100];
    const int64_t due = INT64_C(5) * 64 * 64 * 64 * EA_TIMER_TICK + 77 * EA_TIMER_TICK;
    for (int i = 0; i < 100; i++) {
        probe_init(&probes[i], i);
        ea_timer_arm(&timers, &probes[i].timer, due);
        int64_t left = due - timers.current * EA_TIMER_TICK;
        assert_int_equal(ea_timers_expire(&timers, due - left * 4 / 5), 0);
    }
    assert_int_equal(sleeps_until_idle(), 1);
    for (int i = 0; i < 100; i++) {
        assert_int_equal(fired[i], i);
    }
}

static void far_timers_wake_nobody_on_their_way(void **state) {
    (void)state;
    struct probe probes[5];
    const int64_t second = 1000000000;
    const int64_t spans[] = {second, 60 * second, 3600 * second, 86400 * second,
                             400 * 86400 * second};
    for (int i = 0; i < 5; i++) {
        probe_init(&probes[i], i);
        ea_timer_arm(&timers, &probes[i].timer, spans[i]);
    }
    assert_int_equal(sleeps_until_idle(), 5);
    assert_int_equal(fired_count, 5);
}

static void a_cancelled_timer_costs_at_most_one_sleep(void **state) {
    (void)state;
    struct probe early;
    struct probe late;
    probe_init(&early, 1);
    probe_init(&late, 2);
    /* Both in one slot of level 2. */
    ea_timer_arm(&timers, &late.timer, (64 * 64 + 100) * EA_TIMER_TICK);
    ea_timer_arm(&timers, &early.timer, (64 * 64 + 50) * EA_TIMER_TICK);
    ea_timer_cancel(&timers, &early.timer);
    assert_int_equal(sleeps_until_idle(), 2);
    assert_int_equal(fired_count, 1);
}

static struct probe *victim;
static struct probe *rearmed;

static void meddle(struct ea_timer *timer) {
    probe_fire(timer);
    assert_true(ea_timer_cancel(&timers, &victim->timer));
    ea_timer_arm(&timers, &rearmed->timer, 0);
    ea_timer_arm(&timers, timer, 0);
}

static void fire_may_cancel_and_rearm_what_is_due(void **state) {
    (void)state;
    struct probe probes[4];
    for (int i = 0; i < 4; i++) {
        probe_init(&probes[i], i);
        ea_timer_arm(&timers, &probes[i].timer, EA_TIMER_TICK);
    }
    probes[0].timer.fire = meddle;
    victim = &probes[1];
    rearmed = &probes[2];
    /* 1 is cancelled; 2 and 0 itself are armed anew, for the past, hence for the next call. */
    assert_int_equal(ea_timers_expire(&timers, EA_TIMER_TICK), 2);
    assert_int_equal(fired[0], 0);
    assert_int_equal(fired[1], 3);
    assert_int_equal(timers.armed, 2);
    probes[0].timer.fire = probe_fire;
    assert_int_equal(ea_timers_expire(&timers, EA_TIMER_TICK), 2);
    assert_int_equal(fired[2], 2);
    assert_int_equal(fired[3], 0);
    assert_int_equal(timers.armed, 0);
}

static void free_fire(struct ea_timer *timer) {
    free(timer);
}

static void fire_may_free_its_timer(void **state) {
    (void)state;
    for (int i = 0; i < 100; i++) {
        struct ea_timer *timer = malloc(sizeof *timer);
        assert_non_null(timer);
        ea_timer_init(timer, free_fire);
        ea_timer_arm(&timers, timer, i * EA_TIMER_TICK / 10);
    }
    assert_int_equal(ea_timers_expire(&timers, 100 * EA_TIMER_TICK), 100);
}

static void deadline_after_saturates(void **state) {
    (void)state;
    const double none[] = {0.0, -0.0, -1.0, -1e300, -INFINITY, NAN};
    for (size_t i = 0; i < sizeof none / sizeof *none; i++) {
        int64_t before = ea_now();
        int64_t deadline = ea_deadline_after(none[i]);
        assert_true(before <= deadline && deadline <= ea_now());
    }
    const double never[] = {9.3e9, 1e18, 1e300, INFINITY};
    for (size_t i = 0; i < sizeof never / sizeof *never; i++) {
        assert_int_equal(ea_deadline_after(never[i]), EA_TIME_NEVER);
    }
    const double spans[] = {1e-9, 1e-3, 1.5, 86400.0};
    for (size_t i = 0; i < sizeof spans / sizeof *spans; i++) {
        int64_t before = ea_now();
        int64_t deadline = ea_deadline_after(spans[i]);
        int64_t ns = (int64_t)(spans[i] * 1e9);
        assert_true(before + ns <= deadline && deadline <= ea_now() + ns + 1);
    }
    assert_true(ea_deadline_after(1e-12) > 0);
}

/* --- The model --- */

enum { ENTRIES = 200 };

struct entry {
    struct ea_timer timer;
    bool armed;
    bool due;         /* in the expire that runs, it must fire unless it is disarmed */
    int64_t deadline; /* as armed */
    int64_t tick;     /* in which it is due */
    uint64_t order;   /* of arming */
};

static struct entry entries[ENTRIES];
static uint64_t arm_count;
static int64_t model_current; /* ticks */
static int64_t model_now;     /* ns */
static bool cancels;          /* this run disarms timers before they fire */
static size_t model_armed;
static size_t model_fired;

static int64_t model_tick(int64_t deadline) {
    if (deadline <= 0) {
        return 0;
    }
    return deadline / EA_TIMER_TICK + (deadline % EA_TIMER_TICK != 0);
}

static void entry_disarm(struct entry *entry) {
    assert_int_equal(ea_timer_cancel(&timers, &entry->timer), entry->armed);
    if (entry->armed) {
        model_armed--;
    }
    entry->armed = entry->due = false;
}

static void entry_arm(struct entry *entry) {
    if (entry->armed && !cancels) {
        return;
    }
    static const int64_t edges[] = {INT64_MIN, -1, 0, 1, INT64_MAX - 1, EA_TIME_NEVER};
    int64_t deadline;
    switch (random_below(10)) {
    case 0:
        deadline = edges[random_below(6)];
        break;
    case 1: /* the same as another's: ties */
        deadline = entries[random_below(ENTRIES)].deadline;
        break;
    case 2: /* past */
        deadline = model_now - random_span();
        break;
    default: {
        int64_t span = random_span();
        deadline = span > INT64_MAX - 1 - model_now ? INT64_MAX - 1 : model_now + span;
    }
    }
    ea_timer_arm(&timers, &entry->timer, deadline);
    if (entry->armed) {
        model_armed--;
    }
    entry->due = false;
    entry->deadline = deadline;
    entry->armed = deadline != EA_TIME_NEVER;
    if (entry->armed) {
        model_armed++;
    }
    entry->tick = model_tick(deadline);
    if (entry->tick < model_current) {
        entry->tick = model_current;
    }
    entry->order = arm_count++;
}

static void random_operation(void) {
    struct entry *entry = &entries[random_below(ENTRIES)];
    if (cancels && random_below(3) == 0) {
        entry_disarm(entry);
    } else {
        entry_arm(entry);
    }
}

static void entry_fire(struct ea_timer *timer) {
    struct entry *first = NULL;
    for (int i = 0; i < ENTRIES; i++) {
        struct entry *e = &entries[i];
        if (e->due && (!first || e->tick < first->tick ||
                       (e->tick == first->tick && e->order < first->order))) {
            first = e;
        }
    }
    assert_ptr_equal(first, EA_CONTAINER(timer, struct entry, timer));
    first->armed = first->due = false;
    model_armed--;
    model_fired++;
    for (unsigned n = random_below(3); n > 0; n--) {
        random_operation();
    }
}

/* When the loop must get up, by looking at everything. */
static int64_t model_next(void) {
    int64_t next = EA_TIME_NEVER;
    for (int i = 0; i < ENTRIES; i++) {
        if (entries[i].armed) {
            int64_t tick = model_tick(entries[i].deadline);
            int64_t ns = tick > INT64_MAX / EA_TIMER_TICK ? INT64_MAX : tick * EA_TIMER_TICK;
            if (ns < next) {
                next = ns;
            }
        }
    }
    return next;
}

static void model_expire(int64_t now) {
    int64_t target = now == INT64_MAX ? model_tick(now) : now / EA_TIMER_TICK;
    if (target > model_current) {
        model_current = target;
    }
    if (now > model_now) {
        model_now = now;
    }
    for (int i = 0; i < ENTRIES; i++) {
        entries[i].due = entries[i].armed && entries[i].tick <= model_current;
    }
    size_t before = model_fired;
    size_t count = ea_timers_expire(&timers, now);
    assert_int_equal(count, model_fired - before);
    for (int i = 0; i < ENTRIES; i++) {
        assert_false(entries[i].due);
        assert_int_equal(ea_timer_armed(&entries[i].timer), entries[i].armed);
    }
    assert_int_equal(timers.armed, model_armed);
    assert_int_equal(timers.current, model_current);
}

static void model_run(int64_t start) {
    ea_timers_init(&timers, start);
    model_now = start;
    model_current = start / EA_TIMER_TICK;
    model_armed = 0;
    for (int i = 0; i < ENTRIES; i++) {
        memset(&entries[i], 0, sizeof entries[i]);
        ea_timer_init(&entries[i].timer, entry_fire);
    }
    for (int step = 0; step < 2000; step++) {
        for (unsigned n = random_below(8); n > 0; n--) {
            random_operation();
        }
        int64_t next = ea_timers_next(&timers);
        int64_t exact = model_next();
        if (cancels) {
            assert_true(next <= exact);
        } else {
            assert_int_equal(next, exact);
        }
        size_t before = model_fired;
        switch (random_below(8)) {
        case 0: /* a little, or a century */
        case 1: {
            int64_t span = random_span() >> 3;
            model_expire(span > INT64_MAX - 1 - model_now ? INT64_MAX - 1 : model_now + span);
            break;
        }
        case 2: /* not quite */
            if (next != EA_TIME_NEVER && next - 1 > model_now) {
                model_expire(next - 1);
                assert_int_equal(model_fired, before);
            }
            break;
        default: /* as a loop does */
            if (next != EA_TIME_NEVER) {
                model_expire(next > model_now ? next : model_now);
                if (model_fired == before) {
                    assert_true(cancels);
                    assert_int_equal(ea_timers_next(&timers), model_next());
                }
            }
        }
        if (model_now > INT64_MAX / 2) {
            break; /* little time is left to draw deadlines from */
        }
    }
    /* The end of time fires all, and what fire arms then is past at once. */
    for (int i = 0; i < 100 && model_armed > 0; i++) {
        model_expire(INT64_MAX);
    }
}

static void agrees_with_the_model(void **state) {
    (void)state;
    random_state = seed;
    print_message("seed %llu\n", (unsigned long long)seed);
    for (int run = 0; run < 150; run++) {
        cancels = run % 2;
        model_run(random_span() >> (run % 4 == 3 ? 0 : 10));
    }
    assert_true(model_fired > 10000);
    print_message("%zu armed, %zu fired\n", (size_t)arm_count, model_fired);
}

int main(int argc, char **argv) {
    seed = argc > 1 ? strtoull(argv[1], NULL, 0) : (uint64_t)time(NULL) * 2654435761u;
    if (seed == 0) {
        seed = 1; /* the generator's fixed point */
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(fires_in_its_tick_and_never_early, setup),
        cmocka_unit_test_setup(past_and_now_fire_at_the_next_expire, setup),
        cmocka_unit_test_setup(an_older_now_is_no_harm, setup),
        cmocka_unit_test_setup(never_and_the_end_of_time, setup),
        cmocka_unit_test_setup(cancel_and_rearm, setup),
        cmocka_unit_test_setup(a_thousand_sleepers_cost_one_sleep, setup),
        cmocka_unit_test_setup(order_within_a_tick_survives_the_levels, setup),
        cmocka_unit_test_setup(far_timers_wake_nobody_on_their_way, setup),
        cmocka_unit_test_setup(a_cancelled_timer_costs_at_most_one_sleep, setup),
        cmocka_unit_test_setup(fire_may_cancel_and_rearm_what_is_due, setup),
        cmocka_unit_test_setup(fire_may_free_its_timer, setup),
        cmocka_unit_test(deadline_after_saturates),
        cmocka_unit_test(agrees_with_the_model),
    };
    return cmocka_run_group_tests_name("timer", tests, NULL, NULL);
}
