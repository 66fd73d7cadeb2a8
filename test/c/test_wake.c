/* The inbox: what is delivered, how often, in which order, and how many system calls it costs.
 *
 * test_wake_pipe.c runs the same tests over the pipe. */
#include <eagain/wake.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct note {
    struct ea_message message;
    struct ea_wake *wake;
    int id;
    int again; /* how many times it posts itself from its delivery */
};

static int seen[16];
static int seen_count;

static void note_deliver(struct ea_message *message) {
    struct note *note = EA_CONTAINER(message, struct note, message);
    if (seen_count < 16) {
        seen[seen_count] = note->id;
    }
    seen_count++;
    if (note->again > 0) {
        note->again--;
        ea_wake_post(note->wake, &note->message);
    }
}

static void note_init(struct note *note, struct ea_wake *wake, int id) {
    ea_message_init(&note->message, note_deliver);
    note->wake = wake;
    note->id = id;
    note->again = 0;
}

/* How many writes wait in the descriptor, taken out of it. An eventfd holds their sum, a pipe a
 * byte for each. */
static unsigned writes_pending(struct ea_wake *wake) {
    unsigned char bytes[64];
    ssize_t n = read(wake->read_fd, bytes, sizeof bytes);
    if (n < 0) {
        assert_int_equal(errno, EAGAIN);
        return 0;
    }
    if (wake->read_fd != wake->write_fd) {
        return (unsigned)n;
    }
    uint64_t count;
    assert_int_equal(n, sizeof count);
    memcpy(&count, bytes, sizeof count);
    return (unsigned)count;
}

/* Puts back what writes_pending() has taken, for the owner to find. */
static void writes_restore(struct ea_wake *wake, unsigned writes) {
    uint64_t one = 1;
    size_t size = wake->read_fd == wake->write_fd ? sizeof one : 1;
    while (writes-- > 0) {
        assert_int_equal(write(wake->write_fd, &one, size), size);
    }
}

static bool readable(struct ea_wake *wake, int timeout) {
    struct pollfd pfd = {.fd = wake->read_fd, .events = POLLIN};
    return poll(&pfd, 1, timeout) == 1;
}

static int setup(void **state) {
    static struct ea_wake wake;
    if (ea_wake_init(&wake) != 0) {
        return -1;
    }
    seen_count = 0;
    *state = &wake;
    return 0;
}

static int teardown(void **state) {
    ea_wake_term(*state);
    return 0;
}

static void descriptors_are_nonblocking_and_close_on_exec(void **state) {
    struct ea_wake *wake = *state;
    int fds[] = {wake->read_fd, wake->write_fd};
    for (int i = 0; i < 2; i++) {
        assert_true(fcntl(fds[i], F_GETFL) & O_NONBLOCK);
        assert_true(fcntl(fds[i], F_GETFD) & FD_CLOEXEC);
    }
}

static void delivers_in_order_of_posting(void **state) {
    struct ea_wake *wake = *state;
    struct note notes[10];
    for (int i = 0; i < 10; i++) {
        note_init(&notes[i], wake, i);
        ea_wake_post(wake, &notes[i].message);
    }
    assert_int_equal(ea_wake_deliver(wake), 10);
    assert_int_equal(seen_count, 10);
    for (int i = 0; i < 10; i++) {
        assert_int_equal(seen[i], i);
    }
    assert_int_equal(ea_wake_deliver(wake), 0);
}

static void running_owner_costs_no_write(void **state) {
    struct ea_wake *wake = *state;
    struct note notes[10];
    for (int i = 0; i < 10; i++) {
        note_init(&notes[i], wake, i);
        ea_wake_post(wake, &notes[i].message);
        ea_wake_nudge(wake);
    }
    assert_int_equal(writes_pending(wake), 0);
    assert_int_equal(ea_wake_deliver(wake), 10);
}

static void sleeping_owner_costs_one_write(void **state) {
    struct ea_wake *wake = *state;
    struct note notes[1000];
    assert_true(ea_wake_prepare(wake));
    for (int i = 0; i < 1000; i++) {
        note_init(&notes[i], wake, i);
        ea_wake_post(wake, &notes[i].message);
        ea_wake_nudge(wake);
    }
    unsigned writes = writes_pending(wake);
    assert_int_equal(writes, 1);
    writes_restore(wake, writes);
    ea_wake_finish(wake, readable(wake, 0));
    assert_false(readable(wake, 0));
    assert_int_equal(ea_wake_deliver(wake), 1000);
}

static void posted_twice_is_delivered_once(void **state) {
    struct ea_wake *wake = *state;
    struct note note;
    note_init(&note, wake, 1);
    ea_wake_post(wake, &note.message);
    ea_wake_post(wake, &note.message);
    assert_int_equal(ea_wake_deliver(wake), 1);
    ea_wake_post(wake, &note.message);
    assert_int_equal(ea_wake_deliver(wake), 1);
    assert_int_equal(seen_count, 2);
}

static void posted_in_deliver_comes_next_time(void **state) {
    struct ea_wake *wake = *state;
    struct note note;
    note_init(&note, wake, 1);
    note.again = 2;
    ea_wake_post(wake, &note.message);
    for (int i = 1; i <= 3; i++) {
        assert_int_equal(ea_wake_deliver(wake), 1);
        assert_int_equal(seen_count, i);
    }
    assert_int_equal(ea_wake_deliver(wake), 0);
}

static void freed_deliver(struct ea_message *message) {
    seen_count++;
    free(message);
}

static void deliver_may_free(void **state) {
    struct ea_wake *wake = *state;
    for (int i = 0; i < 100; i++) {
        struct ea_message *message = malloc(sizeof *message);
        assert_non_null(message);
        ea_message_init(message, freed_deliver);
        ea_wake_post(wake, message);
    }
    assert_int_equal(ea_wake_deliver(wake), 100);
    assert_int_equal(seen_count, 100);
}

static void does_not_sleep_on_a_message(void **state) {
    struct ea_wake *wake = *state;
    struct note note;
    note_init(&note, wake, 1);
    ea_wake_post(wake, &note.message);
    assert_false(ea_wake_prepare(wake));
    assert_int_equal(ea_wake_deliver(wake), 1);
    assert_true(ea_wake_prepare(wake));
    ea_wake_finish(wake, false);
    assert_int_equal(writes_pending(wake), 0);
}

static void nudge_forbids_one_sleep(void **state) {
    struct ea_wake *wake = *state;
    ea_wake_nudge(wake);
    ea_wake_nudge(wake);
    assert_int_equal(ea_wake_deliver(wake), 0);
    assert_false(ea_wake_prepare(wake));
    assert_true(ea_wake_prepare(wake));
    ea_wake_nudge(wake);
    assert_true(readable(wake, 0));
    ea_wake_finish(wake, true);
    assert_false(readable(wake, 0));
    assert_true(ea_wake_prepare(wake));
    ea_wake_finish(wake, false);
}

static void message_on_top_of_a_nudge(void **state) {
    struct ea_wake *wake = *state;
    struct note note;
    note_init(&note, wake, 1);
    ea_wake_nudge(wake);
    ea_wake_post(wake, &note.message);
    assert_false(ea_wake_prepare(wake));
    assert_int_equal(ea_wake_deliver(wake), 1);
    assert_true(ea_wake_prepare(wake));
    ea_wake_nudge(wake);
    ea_wake_post(wake, &note.message);
    assert_int_equal(writes_pending(wake), 1);
    writes_restore(wake, 1);
    ea_wake_finish(wake, true);
    assert_int_equal(ea_wake_deliver(wake), 1);
}

/* The owner woke for another reason, a moment before the poster's write: it sleeps once more, and
 * finds the write then. */
static void late_write_is_found_by_the_next_sleep(void **state) {
    struct ea_wake *wake = *state;
    struct note note;
    note_init(&note, wake, 1);
    assert_true(ea_wake_prepare(wake));
    ea_wake_post(wake, &note.message);
    ea_wake_finish(wake, false);
    assert_int_equal(wake->owed, 1);
    assert_int_equal(ea_wake_deliver(wake), 1);
    assert_true(ea_wake_prepare(wake));
    assert_true(readable(wake, 0));
    ea_wake_finish(wake, true);
    assert_int_equal(wake->owed, 0);
}

static void *write_later(void *arg) {
    usleep(20 * 1000);
    writes_restore(arg, 1);
    return NULL;
}

/* As if a poster were held up between handing over and writing: the descriptor must not be closed
 * under it, since its number could be somebody else's by then. */
static void term_waits_for_a_promised_write(void **state) {
    (void)state;
    struct ea_wake wake;
    struct note note;
    pthread_t thread;
    assert_int_equal(ea_wake_init(&wake), 0);
    note_init(&note, &wake, 1);
    assert_true(ea_wake_prepare(&wake));
    ea_wake_post(&wake, &note.message);
    assert_int_equal(writes_pending(&wake), 1);
    assert_int_equal(pthread_create(&thread, NULL, write_later, &wake), 0);
    ea_wake_term(&wake);
    pthread_join(thread, NULL);
    assert_int_equal(wake.owed, 0);
    assert_int_equal(wake.read_fd, -1);
    assert_int_equal(wake.write_fd, -1);
}

static struct ea_wake *signal_wake;
static struct note signal_note;

static void on_signal(int signo) {
    (void)signo;
    ea_wake_post(signal_wake, &signal_note.message);
}

static void post_from_a_signal_handler_keeps_errno(void **state) {
    struct ea_wake *wake = *state;
    signal_wake = wake;
    note_init(&signal_note, wake, 7);
    struct sigaction action = {.sa_handler = on_signal};
    struct sigaction old;
    assert_int_equal(sigaction(SIGUSR1, &action, &old), 0);
    assert_true(ea_wake_prepare(wake));
    errno = ENOTTY;
    raise(SIGUSR1);
    assert_int_equal(errno, ENOTTY);
    assert_true(readable(wake, 0));
    ea_wake_finish(wake, true);
    assert_int_equal(ea_wake_deliver(wake), 1);
    assert_int_equal(seen[0], 7);
    sigaction(SIGUSR1, &old, NULL);
}

/* The owner really sleeps, four threads post and nudge. A lost wake-up shows as a poll(2) that
 * reaches its time limit. */
enum { POSTERS = 4, ROUNDS = 20000, IN_FLIGHT = 8 };

struct slot {
    struct ea_message message;
    struct poster *poster;
    EA_ATOMIC(int) free;
    int payload; /* plain on purpose: the thread sanitizer sees whether it is handed over */
};

struct poster {
    pthread_t thread;
    struct ea_wake *wake;
    struct slot slots[IN_FLIGHT];
    int delivered;
    long sum;
};

static void slot_deliver(struct ea_message *message) {
    struct slot *slot = EA_CONTAINER(message, struct slot, message);
    slot->poster->delivered++;
    slot->poster->sum += slot->payload;
    atomic_store_explicit(&slot->free, 1, memory_order_release);
}

static void *post_many(void *arg) {
    struct poster *poster = arg;
    for (int i = 0; i < ROUNDS; i++) {
        struct slot *slot = &poster->slots[i % IN_FLIGHT];
        while (!atomic_load_explicit(&slot->free, memory_order_acquire)) {
            sched_yield();
        }
        atomic_store_explicit(&slot->free, 0, memory_order_relaxed);
        slot->payload = i;
        ea_wake_post(poster->wake, &slot->message);
        if (i % 64 == 0) {
            ea_wake_nudge(poster->wake);
            usleep(50); /* lets the owner fall asleep */
        }
    }
    return NULL;
}

static void no_wake_up_is_lost(void **state) {
    struct ea_wake *wake = *state;
    static struct poster posters[POSTERS];
    for (int p = 0; p < POSTERS; p++) {
        posters[p].wake = wake;
        posters[p].delivered = 0;
        posters[p].sum = 0;
        for (int i = 0; i < IN_FLIGHT; i++) {
            ea_message_init(&posters[p].slots[i].message, slot_deliver);
            posters[p].slots[i].poster = &posters[p];
            atomic_init(&posters[p].slots[i].free, 1);
        }
        assert_int_equal(pthread_create(&posters[p].thread, NULL, post_many, &posters[p]), 0);
    }
    long delivered = 0;
    int sleeps = 0;
    while (delivered < (long)POSTERS * ROUNDS) {
        if (ea_wake_prepare(wake)) {
            sleeps++;
            bool woken = readable(wake, 60 * 1000);
            ea_wake_finish(wake, woken);
            assert_true(woken);
        }
        delivered += (long)ea_wake_deliver(wake);
    }
    for (int p = 0; p < POSTERS; p++) {
        pthread_join(posters[p].thread, NULL);
        assert_int_equal(posters[p].delivered, ROUNDS);
        assert_int_equal(posters[p].sum, (long)ROUNDS * (ROUNDS - 1) / 2);
    }
    assert_true(sleeps > 0);
    print_message("%ld messages, %d sleeps\n", delivered, sleeps);
}

/* One message, posted by all at once, over and over: each delivery sees what was written before
 * any post that it stands for. */
struct shared {
    struct ea_message message;
    EA_ATOMIC(long) posted;
    long delivered;
    long last;
};

static struct shared shared;
static struct ea_wake *shared_wake;

static void shared_deliver(struct ea_message *message) {
    struct shared *s = EA_CONTAINER(message, struct shared, message);
    s->delivered++;
    s->last = atomic_load_explicit(&s->posted, memory_order_relaxed);
}

static void *post_shared(void *arg) {
    (void)arg;
    for (int i = 0; i < ROUNDS; i++) {
        atomic_fetch_add_explicit(&shared.posted, 1, memory_order_relaxed);
        ea_wake_post(shared_wake, &shared.message);
    }
    return NULL;
}

static void one_message_from_many_threads(void **state) {
    struct ea_wake *wake = *state;
    pthread_t threads[POSTERS];
    shared_wake = wake;
    ea_message_init(&shared.message, shared_deliver);
    atomic_store(&shared.posted, 0);
    shared.delivered = shared.last = 0;
    for (int i = 0; i < POSTERS; i++) {
        assert_int_equal(pthread_create(&threads[i], NULL, post_shared, NULL), 0);
    }
    while (shared.last < (long)POSTERS * ROUNDS) {
        if (ea_wake_prepare(wake)) {
            bool woken = readable(wake, 60 * 1000);
            ea_wake_finish(wake, woken);
            assert_true(woken);
        }
        ea_wake_deliver(wake);
    }
    for (int i = 0; i < POSTERS; i++) {
        pthread_join(threads[i], NULL);
    }
    /* The last post may have been absorbed before its own delivery, but never lost or doubled. */
    ea_wake_deliver(wake);
    assert_true(shared.delivered <= (long)POSTERS * ROUNDS);
    assert_int_equal(shared.last, (long)POSTERS * ROUNDS);
}

/* Each round a poller's life ends as soon as its only message has come, in a thread that races
 * with the poster's way out. */
static void *post_once(void *arg) {
    struct note *note = arg;
    ea_wake_post(note->wake, &note->message);
    return NULL;
}

static void term_races_with_the_last_poster(void **state) {
    (void)state;
    for (int i = 0; i < 300; i++) {
        struct ea_wake *wake = malloc(sizeof *wake);
        struct note note;
        pthread_t thread;
        assert_non_null(wake);
        assert_int_equal(ea_wake_init(wake), 0);
        note_init(&note, wake, i);
        assert_int_equal(pthread_create(&thread, NULL, post_once, &note), 0);
        while (ea_wake_deliver(wake) == 0) {
            if (ea_wake_prepare(wake)) {
                ea_wake_finish(wake, readable(wake, i % 2));
            }
        }
        ea_wake_term(wake);
        free(wake);
        pthread_join(thread, NULL);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(descriptors_are_nonblocking_and_close_on_exec, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(delivers_in_order_of_posting, setup, teardown),
        cmocka_unit_test_setup_teardown(running_owner_costs_no_write, setup, teardown),
        cmocka_unit_test_setup_teardown(sleeping_owner_costs_one_write, setup, teardown),
        cmocka_unit_test_setup_teardown(posted_twice_is_delivered_once, setup, teardown),
        cmocka_unit_test_setup_teardown(posted_in_deliver_comes_next_time, setup, teardown),
        cmocka_unit_test_setup_teardown(deliver_may_free, setup, teardown),
        cmocka_unit_test_setup_teardown(does_not_sleep_on_a_message, setup, teardown),
        cmocka_unit_test_setup_teardown(nudge_forbids_one_sleep, setup, teardown),
        cmocka_unit_test_setup_teardown(message_on_top_of_a_nudge, setup, teardown),
        cmocka_unit_test_setup_teardown(late_write_is_found_by_the_next_sleep, setup, teardown),
        cmocka_unit_test(term_waits_for_a_promised_write),
        cmocka_unit_test_setup_teardown(post_from_a_signal_handler_keeps_errno, setup, teardown),
        cmocka_unit_test_setup_teardown(no_wake_up_is_lost, setup, teardown),
        cmocka_unit_test_setup_teardown(one_message_from_many_threads, setup, teardown),
        cmocka_unit_test(term_races_with_the_last_poster),
    };
    return cmocka_run_group_tests_name("wake", tests, NULL, NULL);
}
