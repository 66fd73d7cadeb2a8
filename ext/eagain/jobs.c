/* Jobs of the offload pool on behalf of fibers: who waits for them, and who cleans up.
 *
 *   bound  works on memory of the fiber (a buffer that Ruby lent, the C stack). The fiber stays until
 *          the job is done, whatever is raised for it meanwhile; while there is one, the scheduler is
 *          a root of the garbage collector, so that the fiber's stack outlives even its thread.
 *   free   owns its memory. An interrupted fiber leaves it behind; whoever delivers it frees it.
 *
 * A job that was submitted is delivered to the scheduler's poller, which must therefore live as long:
 * a scheduler that is freed while a thread is still at a job of its joins the orphans, and is looked
 * at again when another one is made. */
#include "scheduler.h"

#include <pthread.h>
#include <stdlib.h>

/* Ractors share these two lists, each with a GVL of its own. Nothing of Ruby is called under the lock:
 * a garbage collection would wait for whoever waits for it. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct ea_link busy = {&busy, &busy}; /* of ea_scheduler.listed: bound jobs */
static struct ea_link orphans = {&orphans,
                                 &orphans}; /* of ea_scheduler.listed: freed, but for jobs */

static void list_in(struct ea_link *list, struct ea_scheduler *scheduler) {
    pthread_mutex_lock(&lock);
    ea_link_insert_before(list, &scheduler->listed);
    pthread_mutex_unlock(&lock);
}

static void list_out(struct ea_scheduler *scheduler) {
    pthread_mutex_lock(&lock);
    ea_link_remove(&scheduler->listed);
    pthread_mutex_unlock(&lock);
}

/* All Ractors stand still. */
static void mark_busy(void *unused) {
    (void)unused;
    for (struct ea_link *l = busy.next; l != &busy; l = l->next)
        rb_gc_mark(EA_CONTAINER(l, struct ea_scheduler, listed)->self);
}

static const rb_data_type_t busy_type = {.wrap_struct_name = "Eagain::Scheduler/busy",
                                         .function = {.dmark = mark_busy}};

static void job_work(struct ea_offload *offload) {
    struct ea_job *job = EA_CONTAINER(offload, struct ea_job, offload);
    job->work(job);
}

void ea_job_free(struct ea_job *job) {
    if (job->dispose)
        job->dispose(job);
    free(job);
}

static void job_done(struct ea_offload *offload) {
    struct ea_job *job = EA_CONTAINER(offload, struct ea_job, offload);
    job->scheduler->jobs--;
    job->done = true;
    if (job->bound)
        ea_bound_end(job->scheduler);
    if (job->fiber)
        ea_fiber_wake(job->fiber);
    else
        ea_job_free(job);
}

static bool submit(struct ea_scheduler *scheduler, struct ea_job *job) {
    job->scheduler = scheduler;
    job->fiber = ea_fiber_current(scheduler);
    ea_offload_init(&job->offload, &scheduler->poll, job_work, job_done);
    if (ea_offload_submit(&job->offload) < 0) {
        job->work(job);
        return false;
    }
    job->fiber->job = job;
    scheduler->jobs++;
    scheduler->offloaded++;
    return true;
}

void ea_bound_begin(struct ea_scheduler *scheduler) {
    if (scheduler->bound++ == 0)
        list_in(&busy, scheduler);
}

void ea_bound_end(struct ea_scheduler *scheduler) {
    if (--scheduler->bound == 0)
        list_out(scheduler);
}

void ea_job_run_bound(struct ea_scheduler *scheduler, struct ea_job *job) {
    job->bound = true;
    if (!submit(scheduler, job))
        return;
    struct ea_fiber *self = job->fiber;
    self->job = NULL;
    ea_bound_begin(scheduler);
    ea_fiber_park_masked(self, &job->done);
}

static VALUE job_wait(VALUE arg) {
    struct ea_job *job = (struct ea_job *)arg;
    while (!job->done)
        ea_fiber_park(job->fiber, EA_WAIT_EVENT, -1, 0, EA_TIME_NEVER, 0);
    return Qnil;
}

static VALUE job_leave(VALUE arg) {
    struct ea_job *job = (struct ea_job *)arg;
    if (!job->fiber) /* the scheduler was closed, or forked, under it */
        return Qnil;
    job->fiber->job = NULL;
    if (job->left) {
        if (job->done) {
            ea_job_free(job);
        } else if (ea_offload_cancel(&job->offload)) {
            job->scheduler->jobs--;
            ea_job_free(job);
        } else {
            job->fiber = NULL;
        }
    }
    return Qnil;
}

static VALUE job_wait_and_stay(VALUE arg) {
    job_wait(arg);
    ((struct ea_job *)arg)->left = false;
    return Qnil;
}

void ea_job_run(struct ea_scheduler *scheduler, struct ea_job *job) {
    if (!submit(scheduler, job))
        return;
    job->left = true; /* unless it returns */
    rb_ensure(job_wait_and_stay, (VALUE)job, job_leave, (VALUE)job);
}

void *ea_job_new(size_t size) {
    void *job = calloc(1, size);
    if (!job)
        rb_memerror();
    return job;
}

/* --- The end of a scheduler. */

static void finish(struct ea_scheduler *scheduler) {
    ea_poll_term(&scheduler->poll);
    scheduler->polling = false;
}

void ea_jobs_release(struct ea_scheduler *scheduler) {
    while (scheduler->bound > 0) {
        ea_poll_turn(&scheduler->poll, 1000000);
        rb_thread_schedule(); /* it may be a thread of Ruby's that works */
    }
    ea_fibers_drop_all(scheduler, NULL, NULL, false);
    if (scheduler->jobs == 0)
        finish(scheduler);
}

bool ea_jobs_drained(struct ea_scheduler *scheduler) {
    if (!scheduler->polling)
        return true;
    ea_wake_deliver(&scheduler->poll.wake);
    if (scheduler->jobs > 0)
        return false;
    finish(scheduler);
    return true;
}

void ea_jobs_orphan(struct ea_scheduler *scheduler) {
    list_in(&orphans, scheduler);
}

static struct ea_scheduler *next_orphan(void) {
    struct ea_scheduler *scheduler = NULL;
    pthread_mutex_lock(&lock);
    if (!ea_link_alone(&orphans)) {
        scheduler = EA_CONTAINER(orphans.next, struct ea_scheduler, listed);
        ea_link_remove(&scheduler->listed);
    }
    pthread_mutex_unlock(&lock);
    return scheduler;
}

void ea_jobs_bury_orphans(void) {
    struct ea_link waiting;
    struct ea_scheduler *scheduler;
    ea_link_init(&waiting);
    while ((scheduler = next_orphan()) != NULL) {
        if (ea_jobs_drained(scheduler))
            xfree(scheduler);
        else
            ea_link_insert_before(&waiting, &scheduler->listed);
    }
    while (!ea_link_alone(&waiting)) {
        scheduler = EA_CONTAINER(waiting.next, struct ea_scheduler, listed);
        ea_link_remove(&scheduler->listed);
        list_in(&orphans, scheduler);
    }
}

void ea_init_jobs(void) {
    /* A NULL pointer would not be marked. */
    rb_gc_register_mark_object(TypedData_Wrap_Struct(rb_cObject, &busy_type, &busy));
}
