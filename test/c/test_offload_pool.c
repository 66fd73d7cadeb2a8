/* What of the pool cannot be seen from outside in a reasonable time: idle threads that end, threads
 * that cannot be started, the default limit. This program brings its own ea_offload_* along. */
#include <pthread.h>

#define EA_OFFLOAD_IDLE_MS 20
static int create_error; /* pthread_create fails with it, when not 0 */
static int test_create(pthread_t *thread, const pthread_attr_t *attr, void *(*main)(void *),
                       void *arg) {
    return create_error ? create_error : pthread_create(thread, attr, main, arg);
}
#define pthread_create test_create
#include "../../src/core/offload.c" // NOLINT(bugprone-suspicious-include)
#undef pthread_create

#include "offload_loop.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <semaphore.h>

static struct ea_poll *loop;
static EA_ATOMIC(int) worked;
static int done;
static sem_t gate;
static sem_t arrived;

static void work(struct ea_offload *job) {
    (void)job;
    atomic_fetch_add(&worked, 1);
}

static void gated_work(struct ea_offload *job) {
    sem_post(&arrived);
    while (sem_wait(&gate) != 0) {
    }
    work(job);
}

static void count_done(struct ea_offload *job) {
    (void)job;
    done++;
}

static int setup(void **state) {
    (void)state;
    loop = loop_new();
    atomic_store(&worked, 0);
    done = 0;
    create_error = 0;
    sem_init(&gate, 0, 0);
    sem_init(&arrived, 0, 0);
    return loop ? 0 : -1;
}

static int teardown(void **state) {
    (void)state;
    loop_free(loop);
    sem_destroy(&gate);
    sem_destroy(&arrived);
    return 0;
}

static int threads_now(void) {
    int threads;
    ea_offload_stats(&threads, NULL, NULL);
    return threads;
}

static void wait_until_all_have_ended(void) {
    while (threads_now() > 0) {
        usleep(1000);
    }
}

static void idle_threads_end_and_come_back(void **state) {
    (void)state;
    struct ea_offload jobs[5];
    for (int round = 1; round <= 3; round++) {
        for (int i = 0; i < 5; i++) {
            ea_offload_init(&jobs[i], loop, gated_work, count_done);
            assert_int_equal(ea_offload_submit(&jobs[i]), 0);
        }
        assert_int_equal(threads_now(), 5);
        for (int i = 0; i < 5; i++) {
            sem_post(&gate);
        }
        while (done < 5 * round) {
            assert_true(loop_turn(loop));
        }
        wait_until_all_have_ended();
        int idle;
        ea_offload_stats(NULL, &idle, NULL);
        assert_int_equal(idle, 0);
    }
    assert_int_equal(atomic_load(&worked), 15);
}

/* The pool's threads end at about the moment at which the next job comes. */
static void jobs_race_with_the_end_of_idle_threads(void **state) {
    (void)state;
    struct ea_offload job;
    ea_offload_init(&job, loop, work, count_done);
    for (int round = 1; round <= 30; round++) {
        assert_int_equal(ea_offload_submit(&job), 0);
        while (done < round) {
            assert_true(loop_turn(loop));
        }
        usleep((EA_OFFLOAD_IDLE_MS - 1) * 1000 + round * 60);
    }
    assert_int_equal(atomic_load(&worked), 30);
    wait_until_all_have_ended();
}

static void without_any_thread_the_job_is_refused(void **state) {
    (void)state;
    struct ea_offload job;
    wait_until_all_have_ended();
    ea_offload_init(&job, loop, work, count_done);
    create_error = EAGAIN;
    assert_int_equal(ea_offload_submit(&job), -EAGAIN);
    create_error = ENOMEM;
    assert_int_equal(ea_offload_submit(&job), -ENOMEM);
    assert_int_equal(atomic_load(&job.state), EA_OFFLOAD_IDLE);
    assert_false(ea_offload_cancel(&job));
    size_t queued;
    ea_offload_stats(NULL, NULL, &queued);
    assert_int_equal(queued, 0);
    assert_int_equal(threads_now(), 0);
    create_error = 0;
    assert_int_equal(ea_offload_submit(&job), 0);
    while (done < 1) {
        assert_true(loop_turn(loop));
    }
}

static void with_one_thread_the_job_waits_for_it(void **state) {
    (void)state;
    struct ea_offload first;
    struct ea_offload second;
    wait_until_all_have_ended();
    ea_offload_init(&first, loop, gated_work, count_done);
    ea_offload_init(&second, loop, work, count_done);
    assert_int_equal(ea_offload_submit(&first), 0);
    while (sem_wait(&arrived) != 0) {
    }
    create_error = EAGAIN;
    assert_int_equal(ea_offload_submit(&second), 0);
    assert_int_equal(threads_now(), 1);
    sem_post(&gate);
    while (done < 2) {
        assert_true(loop_turn(loop));
    }
}

static void default_limit_heeds_the_environment(void **state) {
    (void)state;
    unsetenv("EAGAIN_OFFLOAD_THREADS");
    int fallback = default_limit();
    assert_in_range(fallback, 8, 64);
    setenv("EAGAIN_OFFLOAD_THREADS", "3", 1);
    assert_int_equal(default_limit(), 3);
    setenv("EAGAIN_OFFLOAD_THREADS", "99999", 1);
    assert_int_equal(default_limit(), LIMIT_MAX);
    const char *const nonsense[] = {"", "0", "-4", "many", "5x", "99999999999999999999999"};
    for (size_t i = 0; i < sizeof nonsense / sizeof *nonsense; i++) {
        setenv("EAGAIN_OFFLOAD_THREADS", nonsense[i], 1);
        assert_int_equal(default_limit(), fallback);
    }
    unsetenv("EAGAIN_OFFLOAD_THREADS");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(idle_threads_end_and_come_back, setup, teardown),
        cmocka_unit_test_setup_teardown(jobs_race_with_the_end_of_idle_threads, setup, teardown),
        cmocka_unit_test_setup_teardown(without_any_thread_the_job_is_refused, setup, teardown),
        cmocka_unit_test_setup_teardown(with_one_thread_the_job_waits_for_it, setup, teardown),
        cmocka_unit_test(default_limit_heeds_the_environment),
    };
    return cmocka_run_group_tests_name("offload pool", tests, NULL, NULL);
}
