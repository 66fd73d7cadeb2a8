/* The pool of threads for what can only block.
 *
 * One lock guards the queue and the lists of threads. A job moves
 *
 *   IDLE -> QUEUED     submit, under the lock
 *   QUEUED -> IDLE     cancel, under the lock
 *   QUEUED -> RUNNING  a thread takes it, under the lock: whoever comes first, cancel or thread, wins
 *   RUNNING -> FINISHED -> IDLE   the thread, after work; the poller's thread, before done
 *
 * A thread posts the completion as the last thing it does to a job: from then on the job is the
 * poller's thread's, which may free it.
 *
 * Idle threads are a stack: the one that worked last, whose caches are warm, works next, and those
 * at the bottom time out, so that the pool shrinks to what the load needs. Each sleeps on a
 * condition of its own, so that a job wakes one and it is known which. */
#include <eagain/offload.h>

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#ifndef EA_OFFLOAD_IDLE_MS
#define EA_OFFLOAD_IDLE_MS 10000
#endif
#define LIMIT_MAX 4096

struct worker {
    struct ea_link link; /* in pool.workers from its start to its end */
    struct ea_link idle; /* in pool.idle while it waits for work */
    pthread_cond_t wake; /* signalled when it was taken out of pool.idle */
    bool dismissed;      /* it was taken out to end, and is not counted any more */
    /* What it runs; NULL from just before the completion is posted. For the child of a fork, which
     * must not look at a job that may be gone. */
    EA_ATOMIC(struct ea_offload *) job;
};

static struct {
    pthread_mutex_t lock;
    struct ea_link queue;   /* of ea_offload.link, oldest first */
    struct ea_link workers; /* of worker.link */
    struct ea_link idle;    /* of worker.idle, last to work first */
    size_t queued;
    int threads; /* started and not about to end */
    int idle_threads;
    int limit;
    pid_t process; /* whose threads they are */
} pool = {.lock = PTHREAD_MUTEX_INITIALIZER};

static pthread_once_t once = PTHREAD_ONCE_INIT;

static int default_limit(void) {
    const char *text = getenv("EAGAIN_OFFLOAD_THREADS");
    if (text && *text) {
        char *end;
        errno = 0;
        long n = strtol(text, &end, 10);
        if (errno == 0 && *end == '\0' && n >= 1) {
            return n < LIMIT_MAX ? (int)n : LIMIT_MAX;
        }
    }
    long cpus = sysconf(_SC_NPROCESSORS_ONLN);
    if (cpus < 2) {
        return 8;
    }
    return cpus > 16 ? 64 : (int)cpus * 4;
}

static void forget_job(struct ea_offload *job) {
    ea_link_init(&job->link);
    /* relaxed: a forked child has one thread. */
    atomic_store_explicit(&job->state, EA_OFFLOAD_IDLE, memory_order_relaxed);
}

/* The child's only thread is the one that called fork, hence none of ours (if work forked, its child
 * may exec or _exit, but not return). consistent: nobody held
 * the lock at the time, so that the lists can be walked. */
static void start_clean(bool consistent) {
    while (consistent && !ea_link_alone(&pool.queue)) {
        struct ea_offload *job = EA_CONTAINER(pool.queue.next, struct ea_offload, link);
        ea_link_remove(&job->link);
        forget_job(job);
    }
    while (consistent && !ea_link_alone(&pool.workers)) {
        struct worker *worker = EA_CONTAINER(pool.workers.next, struct worker, link);
        struct ea_offload *job = atomic_load_explicit(&worker->job, memory_order_relaxed);
        if (job) {
            forget_job(job);
        }
        ea_link_remove(&worker->link);
        /* Its condition may not be destroyed, for a thread waits on it that is not here. */
        free(worker);
    }
    ea_link_init(&pool.queue);
    ea_link_init(&pool.workers);
    ea_link_init(&pool.idle);
    pool.queued = 0;
    pool.threads = pool.idle_threads = 0;
    pool.process = getpid();
    pthread_mutex_init(&pool.lock, NULL);
}

static void before_fork(void) {
    pthread_mutex_lock(&pool.lock);
}

static void after_fork_in_parent(void) {
    pthread_mutex_unlock(&pool.lock);
}

static void after_fork_in_child(void) {
    pthread_mutex_unlock(&pool.lock);
    start_clean(true);
}

static void start_pool(void) {
    ea_link_init(&pool.queue);
    ea_link_init(&pool.workers);
    ea_link_init(&pool.idle);
    pool.limit = default_limit();
    pool.process = getpid();
    pthread_atfork(before_fork, after_fork_in_parent, after_fork_in_child);
}

static void lock_pool(void) {
    pthread_once(&once, start_pool);
    pthread_mutex_lock(&pool.lock);
}

static void unlock_pool(void) {
    pthread_mutex_unlock(&pool.lock);
}

static void deliver(struct ea_message *message) {
    struct ea_offload *job = EA_CONTAINER(message, struct ea_offload, message);
    /* relaxed: the message carried all that is to be seen; done may submit the job again. */
    atomic_store_explicit(&job->state, EA_OFFLOAD_IDLE, memory_order_relaxed);
    job->done(job);
}

/* Takes the worker that idles for the shortest time out of the stack and wakes it. Locked. */
static void call_worker(bool dismiss) {
    struct worker *worker = EA_CONTAINER(pool.idle.next, struct worker, idle);
    ea_link_remove(&worker->idle);
    pool.idle_threads--;
    if (dismiss) {
        worker->dismissed = true;
        pool.threads--;
    }
    pthread_cond_signal(&worker->wake);
}

/* Runs the oldest job. Locked before and after, not in between. */
static void run_next(struct worker *worker) {
    struct ea_offload *job = EA_CONTAINER(pool.queue.next, struct ea_offload, link);
    ea_link_remove(&job->link);
    pool.queued--;
    atomic_store_explicit(&worker->job, job, memory_order_relaxed);
    /* relaxed: changes from QUEUED happen under the lock. */
    atomic_store_explicit(&job->state, EA_OFFLOAD_RUNNING, memory_order_relaxed);
    unlock_pool();
    job->work(job);
    /* relaxed: the post, a release, comes after both. */
    atomic_store_explicit(&job->state, EA_OFFLOAD_FINISHED, memory_order_relaxed);
    atomic_store_explicit(&worker->job, NULL, memory_order_relaxed);
    ea_wake_post(&job->poll->wake, &job->message);
    lock_pool();
}

/* Waits for work. Locked before and after. False: nobody called for so long that it shall end. */
static bool wait_for_call(struct worker *worker) {
    struct timespec until;
    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_sec += EA_OFFLOAD_IDLE_MS / 1000;
    until.tv_nsec += EA_OFFLOAD_IDLE_MS % 1000 * 1000000L;
    if (until.tv_nsec >= 1000000000L) {
        until.tv_sec++;
        until.tv_nsec -= 1000000000L;
    }
    ea_link_insert_before(pool.idle.next, &worker->idle);
    pool.idle_threads++;
    while (!ea_link_alone(&worker->idle)) {
        int error = pthread_cond_timedwait(&worker->wake, &pool.lock, &until);
        if (error && !ea_link_alone(&worker->idle)) { /* else it was called just in time */
            ea_link_remove(&worker->idle);
            pool.idle_threads--;
            return false;
        }
    }
    return true;
}

static void free_worker(struct worker *worker) {
    pthread_cond_destroy(&worker->wake);
    free(worker);
}

static void *worker_main(void *arg) {
    struct worker *worker = arg;
    lock_pool();
    for (;;) {
        if (worker->dismissed) {
            break;
        }
        if (pool.threads > pool.limit) {
            pool.threads--;
            break;
        }
        if (!ea_link_alone(&pool.queue)) {
            run_next(worker);
        } else if (!wait_for_call(worker)) {
            pool.threads--;
            break;
        }
    }
    ea_link_remove(&worker->link);
    free_worker(worker); /* under the lock, so that no fork finds it neither listed nor freed */
    unlock_pool();
    return NULL;
}

static struct worker *new_worker(void) {
    struct worker *worker = malloc(sizeof *worker);
    if (!worker) {
        return NULL;
    }
    pthread_condattr_t attr;
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(&worker->wake, &attr);
    pthread_condattr_destroy(&attr);
    ea_link_init(&worker->idle);
    worker->dismissed = false;
    atomic_init(&worker->job, NULL);
    return worker;
}

/* 0, -EAGAIN or -ENOMEM. Locked all the way, since whether a thread exists decides whether others'
 * jobs may be queued. */
static int start_worker(void) {
    struct worker *worker = new_worker();
    if (!worker) {
        return -ENOMEM;
    }
    ea_link_insert_before(&pool.workers, &worker->link);
    /* A thread inherits the mask: no signal can reach it before it could block them itself. */
    sigset_t all;
    sigset_t old;
    sigfillset(&all);
    pthread_sigmask(SIG_BLOCK, &all, &old);
    pthread_t thread;
    int error = pthread_create(&thread, NULL, worker_main, worker);
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    if (error) {
        ea_link_remove(&worker->link);
        free_worker(worker);
        return error == ENOMEM ? -ENOMEM : -EAGAIN;
    }
    pthread_detach(thread);
    pool.threads++;
    return 0;
}

void ea_offload_init(struct ea_offload *job, struct ea_poll *poll,
                     void (*work)(struct ea_offload *), void (*done)(struct ea_offload *)) {
    ea_link_init(&job->link);
    ea_message_init(&job->message, deliver);
    job->poll = poll;
    atomic_init(&job->state, EA_OFFLOAD_IDLE);
    job->work = work;
    job->done = done;
}

int ea_offload_submit(struct ea_offload *job) {
    int error = 0;
    lock_pool();
    /* relaxed: under the lock; a job that just became idle did so in this thread, or the submitter
     * learnt of it by means of its own. */
    if (atomic_load_explicit(&job->state, memory_order_relaxed) != EA_OFFLOAD_IDLE) {
        unlock_pool();
        return -EBUSY;
    }
    if (!ea_link_alone(&pool.idle)) {
        call_worker(false);
    } else if (pool.threads < pool.limit) {
        error = start_worker();
    }
    /* If no more threads are to be had, those that exist will come to it. */
    if (error && pool.threads > 0) {
        error = 0;
    }
    if (!error) {
        atomic_store_explicit(&job->state, EA_OFFLOAD_QUEUED, memory_order_relaxed);
        ea_link_insert_before(&pool.queue, &job->link);
        pool.queued++;
    }
    unlock_pool();
    return error;
}

bool ea_offload_cancel(struct ea_offload *job) {
    lock_pool();
    bool queued = atomic_load_explicit(&job->state, memory_order_relaxed) == EA_OFFLOAD_QUEUED;
    if (queued) {
        ea_link_remove(&job->link);
        pool.queued--;
        atomic_store_explicit(&job->state, EA_OFFLOAD_IDLE, memory_order_relaxed);
    }
    unlock_pool();
    return queued;
}

int ea_offload_limit(int threads) {
    lock_pool();
    int old = pool.limit;
    if (threads >= 1) {
        pool.limit = threads < LIMIT_MAX ? threads : LIMIT_MAX;
    }
    while (pool.threads > pool.limit && !ea_link_alone(&pool.idle)) {
        call_worker(true);
    }
    /* The jobs that the old limit kept waiting. */
    for (size_t n = pool.queued; n > 0 && pool.threads < pool.limit; n--) {
        if (start_worker() != 0) {
            break;
        }
    }
    unlock_pool();
    return old;
}

void ea_offload_stats(int *threads, int *idle, size_t *queued) {
    lock_pool();
    if (threads) {
        *threads = pool.threads;
    }
    if (idle) {
        *idle = pool.idle_threads;
    }
    if (queued) {
        *queued = pool.queued;
    }
    unlock_pool();
}

void ea_offload_after_fork(void) {
    pthread_once(&once, start_pool);
    if (pool.process == getpid()) {
        return;
    }
    bool consistent = pthread_mutex_trylock(&pool.lock) == 0;
    if (consistent) {
        pthread_mutex_unlock(&pool.lock);
    }
    start_clean(consistent);
}
