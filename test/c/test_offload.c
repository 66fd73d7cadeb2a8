/* The pool: where work and done run, limits, cancelling, forking, exiting. */
#include "offload_loop.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#if defined(__SANITIZE_THREAD__)
/* The children of the fork tests start threads of their own. */
const char *__tsan_default_options(void);
const char *__tsan_default_options(void) {
    return "die_after_fork=0";
}
#endif

struct job {
    struct ea_offload offload;
    pthread_t worked_in;
    pthread_t done_in;
    sigset_t mask;
    int order; /* in which it was worked on */
    int done;  /* how often done was called */
    int again; /* how often done submits it again */
};

static struct ea_poll *loop;
static sem_t gate;    /* each gated job passes once */
static sem_t arrived; /* each gated job says that it is there */
static EA_ATOMIC(int) order;
static EA_ATOMIC(int) inside;
static EA_ATOMIC(int) most_inside;

static struct job *job_of(struct ea_offload *offload) {
    return EA_CONTAINER(offload, struct job, offload);
}

static void quick_work(struct ea_offload *offload) {
    struct job *job = job_of(offload);
    job->worked_in = pthread_self();
    pthread_sigmask(SIG_SETMASK, NULL, &job->mask);
    job->order = atomic_fetch_add(&order, 1);
}

static void wait_for(sem_t *sem) {
    while (sem_wait(sem) != 0) {
    }
}

static void gated_work(struct ea_offload *offload) {
    int now = atomic_fetch_add(&inside, 1) + 1;
    int most = atomic_load(&most_inside);
    while (now > most && !atomic_compare_exchange_weak(&most_inside, &most, now)) {
    }
    sem_post(&arrived);
    wait_for(&gate);
    atomic_fetch_sub(&inside, 1);
    quick_work(offload);
}

static void job_done(struct ea_offload *offload) {
    struct job *job = job_of(offload);
    job->done_in = pthread_self();
    job->done++;
    if (job->again > 0) {
        job->again--;
        assert_int_equal(ea_offload_submit(offload), 0);
    }
}

static void job_init(struct job *job, void (*work)(struct ea_offload *)) {
    memset(job, 0, sizeof *job);
    ea_offload_init(&job->offload, loop, work, job_done);
}

static void run_until_done(struct job *job, int times) {
    while (job->done < times) {
        assert_true(loop_turn(loop));
    }
}

static int threads_now(void) {
    int threads;
    ea_offload_stats(&threads, NULL, NULL);
    return threads;
}

/* Until one thread is left at most, and idle: posting a completion comes before that. Returns the
 * limit that was. */
static int shrink_to_one(void) {
    int old = ea_offload_limit(1);
    int threads;
    int idle;
    while (ea_offload_stats(&threads, &idle, NULL), threads > 1 || idle < threads) {
        usleep(1000);
    }
    return old;
}

static int setup(void **state) {
    (void)state;
    loop = loop_new();
    sem_init(&gate, 0, 0);
    sem_init(&arrived, 0, 0);
    atomic_store(&order, 0);
    atomic_store(&inside, 0);
    atomic_store(&most_inside, 0);
    return loop ? 0 : -1;
}

static int teardown(void **state) {
    (void)state;
    loop_free(loop);
    sem_destroy(&gate);
    sem_destroy(&arrived);
    return 0;
}

static void works_in_a_thread_and_is_done_in_the_owner(void **state) {
    (void)state;
    struct job job;
    job_init(&job, quick_work);
    assert_int_equal(ea_offload_submit(&job.offload), 0);
    run_until_done(&job, 1);
    assert_false(pthread_equal(job.worked_in, pthread_self()));
    assert_true(pthread_equal(job.done_in, pthread_self()));
    assert_int_equal(atomic_load(&job.offload.state), EA_OFFLOAD_IDLE);
}

static void threads_block_all_signals_and_the_caller_keeps_its_mask(void **state) {
    (void)state;
    sigset_t before;
    sigset_t after;
    struct job jobs[3];
    pthread_sigmask(SIG_SETMASK, NULL, &before);
    for (int i = 0; i < 3; i++) {
        job_init(&jobs[i], gated_work);
        assert_int_equal(ea_offload_submit(&jobs[i].offload), 0);
    }
    pthread_sigmask(SIG_SETMASK, NULL, &after);
    for (int i = 0; i < 3; i++) {
        sem_post(&gate);
    }
    for (int i = 0; i < 3; i++) {
        run_until_done(&jobs[i], 1);
        const int signals[] = {SIGINT, SIGTERM, SIGCHLD, SIGUSR1, SIGALRM, SIGVTALRM, SIGPROF};
        for (size_t s = 0; s < sizeof signals / sizeof *signals; s++) {
            assert_int_equal(sigismember(&jobs[i].mask, signals[s]), 1);
        }
    }
    for (int signo = 1; signo < 32; signo++) {
        assert_int_equal(sigismember(&after, signo), sigismember(&before, signo));
    }
}

static void limit_holds(void **state) {
    (void)state;
    struct job jobs[10];
    size_t queued;
    int old = shrink_to_one();
    ea_offload_limit(2);
    for (int i = 0; i < 10; i++) {
        job_init(&jobs[i], gated_work);
        assert_int_equal(ea_offload_submit(&jobs[i].offload), 0);
        assert_in_range(threads_now(), 1, 2);
    }
    wait_for(&arrived);
    wait_for(&arrived);
    ea_offload_stats(NULL, NULL, &queued);
    assert_int_equal(queued, 8);
    for (int i = 0; i < 10; i++) {
        sem_post(&gate);
    }
    for (int i = 0; i < 10; i++) {
        run_until_done(&jobs[i], 1);
    }
    assert_int_equal(atomic_load(&most_inside), 2);
    assert_int_equal(ea_offload_limit(old), 2);
}

static void the_oldest_job_is_next(void **state) {
    (void)state;
    struct job jobs[10];
    int old = shrink_to_one();
    for (int i = 0; i < 10; i++) {
        job_init(&jobs[i], i == 0 ? gated_work : quick_work);
        assert_int_equal(ea_offload_submit(&jobs[i].offload), 0);
    }
    sem_post(&gate);
    for (int i = 0; i < 10; i++) {
        run_until_done(&jobs[i], 1);
        assert_int_equal(jobs[i].order, i);
    }
    ea_offload_limit(old);
}

static void a_larger_limit_serves_the_queue_at_once(void **state) {
    (void)state;
    struct job jobs[4];
    int old = ea_offload_limit(1);
    for (int i = 0; i < 4; i++) {
        job_init(&jobs[i], gated_work);
        assert_int_equal(ea_offload_submit(&jobs[i].offload), 0);
    }
    ea_offload_limit(4);
    for (int i = 0; i < 4; i++) {
        wait_for(&arrived); /* all four are inside together */
    }
    for (int i = 0; i < 4; i++) {
        sem_post(&gate);
    }
    for (int i = 0; i < 4; i++) {
        run_until_done(&jobs[i], 1);
    }
    assert_int_equal(ea_offload_limit(1), 4);
    while (threads_now() > 1) {
        usleep(1000);
    }
    ea_offload_limit(old);
}

static void limit_below_one_only_asks(void **state) {
    (void)state;
    int old = ea_offload_limit(0);
    assert_in_range(old, 1, 4096);
    assert_int_equal(ea_offload_limit(-1), old);
    assert_int_equal(ea_offload_limit(0), old);
}

static void one_after_the_other_needs_one_thread(void **state) {
    (void)state;
    struct job job;
    ea_offload_limit(shrink_to_one());
    job_init(&job, quick_work);
    for (int i = 1; i <= 200; i++) {
        assert_int_equal(ea_offload_submit(&job.offload), 0);
        run_until_done(&job, i);
        int threads;
        int idle;
        do { /* it posts before it goes idle */
            ea_offload_stats(&threads, &idle, NULL);
        } while (idle < threads);
        assert_int_equal(threads, 1);
    }
}

static void cancel_takes_back_what_is_queued_only(void **state) {
    (void)state;
    struct job running;
    struct job queued;
    int old = ea_offload_limit(1);
    job_init(&running, gated_work);
    job_init(&queued, quick_work);
    assert_false(ea_offload_cancel(&running.offload));
    assert_int_equal(ea_offload_submit(&running.offload), 0);
    wait_for(&arrived);
    assert_int_equal(ea_offload_submit(&queued.offload), 0);
    assert_true(ea_offload_cancel(&queued.offload));
    assert_false(ea_offload_cancel(&queued.offload));
    assert_false(ea_offload_cancel(&running.offload));
    sem_post(&gate);
    run_until_done(&running, 1);
    assert_false(ea_offload_cancel(&running.offload));
    assert_int_equal(queued.done, 0);
    /* A cancelled job is as good as new. */
    assert_int_equal(ea_offload_submit(&queued.offload), 0);
    run_until_done(&queued, 1);
    ea_offload_limit(old);
}

static void busy_jobs_are_refused_and_done_may_submit_again(void **state) {
    (void)state;
    struct job job;
    job_init(&job, gated_work);
    assert_int_equal(ea_offload_submit(&job.offload), 0);
    wait_for(&arrived);
    assert_int_equal(ea_offload_submit(&job.offload), -EBUSY);
    job.again = 3;
    for (int i = 0; i < 4; i++) {
        sem_post(&gate);
    }
    run_until_done(&job, 4);
    assert_int_equal(job.again, 0);
}

/* Several owners submit and cancel at random; every job is either done or taken back. */
enum { OWNERS = 3, ROUNDS = 3000, JOBS = 16 };

struct racing_job {
    struct ea_offload offload;
    int value; /* plain on purpose: the thread sanitizer sees whether it is handed over */
    bool pending;
    long *done;
};

static void racing_work(struct ea_offload *offload) {
    EA_CONTAINER(offload, struct racing_job, offload)->value++;
}

static void racing_done(struct ea_offload *offload) {
    struct racing_job *job = EA_CONTAINER(offload, struct racing_job, offload);
    job->value++;
    job->pending = false;
    ++*job->done;
}

/* Returns NULL, or what went wrong. */
static void *race(void *arg) {
    unsigned random = *(unsigned *)arg;
    struct ea_poll *mine = loop_new();
    struct racing_job jobs[JOBS];
    long submitted = 0;
    long cancelled = 0;
    long done = 0;
    if (!mine) {
        return "no loop";
    }
    for (int i = 0; i < JOBS; i++) {
        ea_offload_init(&jobs[i].offload, mine, racing_work, racing_done);
        jobs[i].value = 0;
        jobs[i].pending = false;
        jobs[i].done = &done;
    }
    for (int round = 0; round < ROUNDS; round++) {
        struct racing_job *job = &jobs[rand_r(&random) % JOBS];
        if (!job->pending) {
            if (ea_offload_submit(&job->offload) != 0) {
                return "not submitted";
            }
            job->pending = true;
            submitted++;
        } else if (rand_r(&random) % 2 && ea_offload_cancel(&job->offload)) {
            job->pending = false;
            cancelled++;
        } else if (!loop_turn(mine) && submitted == cancelled + done) {
            return "nothing came";
        }
        ea_wake_deliver(&mine->wake);
    }
    while (done + cancelled < submitted) {
        loop_turn(mine);
    }
    loop_free(mine);
    long values = 0;
    for (int i = 0; i < JOBS; i++) {
        values += jobs[i].value;
    }
    return values == 2 * done ? NULL : "work and done do not match";
}

static void cancel_races_with_the_threads(void **state) {
    (void)state;
    pthread_t threads[OWNERS];
    unsigned seeds[OWNERS];
    for (int i = 0; i < OWNERS; i++) {
        seeds[i] = (unsigned)i + 1;
        assert_int_equal(pthread_create(&threads[i], NULL, race, &seeds[i]), 0);
    }
    for (int i = 0; i < OWNERS; i++) {
        void *problem;
        pthread_join(threads[i], &problem);
        if (problem) {
            fail_msg("%s", (char *)problem);
        }
    }
}

/* --- Processes. A child says by its status which check failed; it must not return into cmocka. */

#define CHILD_CHECK(condition)                                                                     \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            _exit(__LINE__ % 200 + 1);                                                             \
        }                                                                                          \
    } while (0)

static void assert_child_succeeds(pid_t pid) {
    int status;
    assert_true(pid > 0);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
}

/* What a child finds, and that the pool works there. */
static void check_child(struct job *running, struct job *first, struct job *second) {
    int threads;
    int idle;
    size_t queued;
    struct job *jobs[] = {running, first, second};
    alarm(60);
    ea_offload_stats(&threads, &idle, &queued);
    CHILD_CHECK(threads == 0 && idle == 0 && queued == 0);
    for (int i = 0; i < 3; i++) {
        CHILD_CHECK(atomic_load(&jobs[i]->offload.state) == EA_OFFLOAD_IDLE);
        CHILD_CHECK(!ea_offload_cancel(&jobs[i]->offload));
    }
    loop = loop_new();
    CHILD_CHECK(loop);
    job_init(first, quick_work);
    CHILD_CHECK(ea_offload_submit(&first->offload) == 0);
    ea_offload_after_fork(); /* once more is harmless */
    while (first->done < 1) {
        CHILD_CHECK(loop_turn(loop));
    }
    CHILD_CHECK(running->done == 0 && second->done == 0);
    _exit(0);
}

static void a_forked_child_starts_clean(void **state) {
    bool by_hand = *state; /* a child of which pthread_atfork knows nothing */
    struct job running;
    struct job queued[2];
    int old = shrink_to_one();
    job_init(&running, gated_work);
    assert_int_equal(ea_offload_submit(&running.offload), 0);
    wait_for(&arrived);
    for (int i = 0; i < 2; i++) {
        job_init(&queued[i], quick_work);
        assert_int_equal(ea_offload_submit(&queued[i].offload), 0);
    }
    fflush(NULL);
    pid_t pid;
#if defined(__GLIBC__) && __GLIBC_PREREQ(2, 34)
    pid = by_hand ? _Fork() : fork();
#else
    pid = fork();
#endif
    if (pid == 0) {
        if (by_hand) {
            ea_offload_after_fork();
        }
        check_child(&running, &queued[0], &queued[1]);
    }
    assert_child_succeeds(pid);
    /* The parent has not noticed anything. */
    sem_post(&gate);
    run_until_done(&running, 1);
    run_until_done(&queued[0], 1);
    run_until_done(&queued[1], 1);
    ea_offload_limit(old);
}

static void a_child_forked_by_hand_starts_clean(void **state) {
    static bool by_hand = true;
    (void)state;
    void *flag = &by_hand;
    a_forked_child_starts_clean(&flag);
}

static void exit_does_not_wait_for_running_jobs(void **state) {
    (void)state;
    fflush(NULL);
    pid_t pid = fork();
    if (pid == 0) {
        static struct job jobs[20];
        alarm(60);
        for (int i = 0; i < 20; i++) {
            job_init(&jobs[i], gated_work);
            CHILD_CHECK(ea_offload_submit(&jobs[i].offload) == 0);
        }
        wait_for(&arrived);
        exit(0);
    }
    assert_child_succeeds(pid);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(works_in_a_thread_and_is_done_in_the_owner, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(threads_block_all_signals_and_the_caller_keeps_its_mask,
                                        setup, teardown),
        cmocka_unit_test_setup_teardown(limit_holds, setup, teardown),
        cmocka_unit_test_setup_teardown(the_oldest_job_is_next, setup, teardown),
        cmocka_unit_test_setup_teardown(a_larger_limit_serves_the_queue_at_once, setup, teardown),
        cmocka_unit_test(limit_below_one_only_asks),
        cmocka_unit_test_setup_teardown(one_after_the_other_needs_one_thread, setup, teardown),
        cmocka_unit_test_setup_teardown(cancel_takes_back_what_is_queued_only, setup, teardown),
        cmocka_unit_test_setup_teardown(busy_jobs_are_refused_and_done_may_submit_again, setup,
                                        teardown),
        cmocka_unit_test(cancel_races_with_the_threads),
        cmocka_unit_test_setup_teardown(a_forked_child_starts_clean, setup, teardown),
        cmocka_unit_test_setup_teardown(a_child_forked_by_hand_starts_clean, setup, teardown),
        cmocka_unit_test_setup_teardown(exit_does_not_wait_for_running_jobs, setup, teardown),
    };
    return cmocka_run_group_tests_name("offload", tests, NULL, NULL);
}
