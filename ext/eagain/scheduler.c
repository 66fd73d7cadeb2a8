/* Eagain::Scheduler: its memory and its life, from new over run, and fork, to close. */
#include "scheduler.h"

#include "calls.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>

/* How often this process is a forked child: schedulers made before the last fork must not touch
 * what they share with the parent. */
static _Atomic uint64_t forks;

static ID id_backend;

/* --- Memory. */

static void scheduler_mark(void *ptr) {
    struct ea_scheduler *scheduler = ptr;
    rb_gc_mark(scheduler->self); /* pinned: we know it by its address */
    ea_fibers_mark(scheduler);
    if (scheduler->thread)
        rb_gc_mark(scheduler->thread);
    if (scheduler->spare)
        rb_gc_mark(scheduler->spare);
    ea_hosts_mark(&scheduler->hosts);
    for (int i = 0; i < EA_CALLERS; i++)
        if (scheduler->callers[i].frame)
            rb_gc_mark(scheduler->callers[i].frame);
}

static void scheduler_release(struct ea_scheduler *scheduler) {
    if (!scheduler->open)
        return;
    scheduler->open = false;
    scheduler->runner = NULL;
    ea_jobs_release(scheduler);
    st_free_table(scheduler->fibers);
    scheduler->fibers = NULL;
}

static void scheduler_free(void *ptr) {
    struct ea_scheduler *scheduler = ptr;
    if (scheduler->bound > 0)
        return; /* the process ends, and a thread is at work on a fiber's memory */
    if (scheduler->open)
        ea_fibers_abandon(scheduler);
    scheduler_release(scheduler);
    if (ea_jobs_drained(scheduler))
        xfree(scheduler);
    else
        ea_jobs_orphan(scheduler);
}

static size_t scheduler_memsize(const void *ptr) {
    return sizeof(struct ea_scheduler) + ea_fibers_memsize(ptr);
}

const rb_data_type_t ea_scheduler_type = {
    .wrap_struct_name = "Eagain::Scheduler",
    .function = {.dmark = scheduler_mark, .dfree = scheduler_free, .dsize = scheduler_memsize},
    .flags = RUBY_TYPED_FREE_IMMEDIATELY | RUBY_TYPED_WB_PROTECTED,
};

static VALUE scheduler_alloc(VALUE klass) {
    struct ea_scheduler *scheduler;
    VALUE self = TypedData_Make_Struct(klass, struct ea_scheduler, &ea_scheduler_type, scheduler);
    scheduler->self = self;
    scheduler->thread = scheduler->spare = scheduler->probe = Qfalse;
    ea_link_init(&scheduler->ready);
    ea_link_init(&scheduler->gated);
    ea_link_init(&scheduler->listed);
    ea_jobs_bury_orphans();
    atomic_store_explicit(&ea_wait_schedulers, true, memory_order_relaxed);
    return self;
}

/* --- Life. */

NORETURN(static void unknown_backend(const char *source, VALUE name));
static void unknown_backend(const char *source, VALUE name) {
    VALUE known = rb_str_new_cstr("");
    for (const struct ea_poll_backend *const *b = ea_poll_backends(); *b; b++)
        rb_str_catf(known, "%s%s", RSTRING_LEN(known) ? ", " : "", (*b)->name);
    rb_raise(rb_eArgError, "unknown backend%s: %" PRIsVALUE " (there are %" PRIsVALUE ")", source,
             name, known);
}

/* May its thread go on in another native thread? Then the kernel carries out no operations for it (op.h). Where
 * take_thread() can see to it that it does not, it may not. */
static bool changes_native_threads(void) {
#ifdef HAVE_RB_THREAD_LOCK_NATIVE_THREAD
    return false;
#else
    const char *m_n = getenv("RUBY_MN_THREADS");
    if (m_n && atoi(m_n) > 0)
        return true;
    VALUE ractor = rb_path2class("Ractor");
    return rb_funcall(ractor, rb_intern("current"), 0) != rb_funcall(ractor, rb_intern("main"), 0);
#endif
}

/* call-seq: Eagain::Scheduler.new(backend: nil)
 *
 * backend: "epoll", "io_uring" or "poll", or a Symbol; nil takes what the environment variable
 * EAGAIN_BACKEND names, else the best. ArgumentError for an unknown one, TypeError for what is no name, Errno::EMFILE and the
 * like when it cannot start. */
static VALUE scheduler_initialize(int argc, VALUE *argv, VALUE self) {
    struct ea_scheduler *scheduler;
    TypedData_Get_Struct(self, struct ea_scheduler, &ea_scheduler_type, scheduler);
    VALUE options = Qnil, name = Qundef;
    rb_scan_args(argc, argv, "0:", &options);
    if (!NIL_P(options))
        rb_get_kwargs(options, &id_backend, 0, 1, &name);
    if (scheduler->open)
        rb_raise(rb_eRuntimeError, "already initialized");
    const struct ea_poll_backend *backend = NULL;
    if (name != Qundef && !NIL_P(name)) {
        VALUE string = RB_SYMBOL_P(name) ? rb_sym2str(name) : name;
        backend = ea_poll_backend_find(StringValueCStr(string));
        if (!backend)
            unknown_backend("", rb_inspect(name));
    }
    int rc = ea_poll_init(&scheduler->poll, backend);
    if (rc == -EINVAL)
        unknown_backend(" in EAGAIN_BACKEND", rb_str_new_cstr(getenv("EAGAIN_BACKEND")));
    if (rc < 0)
        rb_syserr_fail(-rc, "Eagain::Scheduler");
    scheduler->poll.no_operations = changes_native_threads();
    scheduler->fibers = st_init_numtable();
    scheduler->foreign_limit = 64;
    scheduler->budget = 1;
    scheduler->forks = atomic_load_explicit(&forks, memory_order_relaxed);
    scheduler->open = scheduler->polling = true;
    return self;
}

/* The child has its own kernel objects, and of the fibers those that it will go on running: the one
 * that forked, and those in #run, to which the thread comes back at its end. */
static void after_fork(struct ea_scheduler *scheduler) {
    VALUE current = rb_fiber_current();
    const struct ea_fiber *record = ea_fiber_find(scheduler, current);
    ea_fibers_drop_all(scheduler, record, scheduler->runner, true);
    scheduler->running = NULL;
    scheduler->forked = true;
    scheduler->closing = false; /* that is the parent's, too */
    /* The pool's threads are the parent's. */
    scheduler->jobs = 0;
    while (scheduler->bound > 0)
        ea_bound_end(scheduler);
    ea_op_abandon_all(&scheduler->poll);
    int rc = ea_poll_after_fork(&scheduler->poll);
    if (rc < 0)
        rb_syserr_fail(-rc, "Eagain::Scheduler, after fork"); /* the next hook tries again */
    scheduler->forks = atomic_load_explicit(&forks, memory_order_relaxed);
    if (scheduler->thread && !scheduler->spare)
        ea_make_spare(scheduler);
}

struct ea_scheduler *ea_scheduler_get(VALUE self) {
    struct ea_scheduler *scheduler = RTYPEDDATA_DATA(self);
    if (RB_UNLIKELY(!scheduler->open))
        rb_raise(rb_eRuntimeError, "the scheduler is closed");
    if (RB_UNLIKELY(scheduler->forks != atomic_load_explicit(&forks, memory_order_relaxed)))
        after_fork(scheduler);
    return scheduler;
}

bool ea_scheduler_is_open(VALUE self) {
    return ((const struct ea_scheduler *)RTYPEDDATA_DATA(self))->open;
}

static void count_fork(void) {
    atomic_fetch_add_explicit(&forks, 1, memory_order_relaxed);
}

static VALUE run_body(VALUE arg) {
    struct ea_fiber *self = (struct ea_fiber *)arg;
    const struct ea_scheduler *scheduler = self->scheduler;
    do {
        self->waiter.reason = EA_WAKE_CANCEL;
        ea_fiber_parked(self, EA_WAIT_RUN);
        ea_switch_away(self);
        rb_thread_check_ints(); /* it may have been woken for them */
    } while (scheduler->parked > scheduler->outer_runners || scheduler->ready_count > 0);
    return Qnil;
}

struct run {
    struct ea_scheduler *scheduler;
    struct ea_fiber *outer; /* who was in #run before; only in a forked child */
};

static VALUE run_ensure(VALUE arg) {
    const struct run *run = (const struct run *)arg;
    run->scheduler->runner = run->outer;
    run->scheduler->outer_runners -= run->outer != NULL;
    return Qnil;
}

static void run_as(struct ea_scheduler *scheduler, struct ea_fiber *current) {
    struct run run = {.scheduler = scheduler, .outer = scheduler->runner};
    scheduler->outer_runners += run.outer != NULL;
    scheduler->runner = current;
    rb_ensure(run_body, (VALUE)current, run_ensure, (VALUE)&run);
}

/* call-seq: run -> self
 *
 * Runs until no fiber of this scheduler is parked or runnable. An exception that arrives meanwhile
 * for the thread (Interrupt, Thread#raise), or that ended a fiber, is raised out of it; the others
 * are still there, and run goes on with them when called again. */
static VALUE scheduler_run(VALUE self) {
    struct ea_scheduler *scheduler = ea_scheduler_get(self);
    if (scheduler->runner)
        rb_raise(rb_eRuntimeError, "the scheduler runs already");
    struct ea_fiber *current = ea_fiber_current(scheduler);
    if (current->own)
        rb_raise(rb_eRuntimeError, "a fiber of the scheduler cannot run it");
    ea_fiber_check(current);
    run_as(scheduler, current);
    return self;
}

static int cancel_record(st_data_t key, st_data_t value, st_data_t arg) {
    struct ea_fiber *record = (struct ea_fiber *)value;
    (void)key;
    if (record->own && record->state == EA_FIBER_PARKED && !record->exception)
        ea_fiber_raise(record, rb_exc_new_cstr((VALUE)arg, "the scheduler's thread ends"));
    return ST_CONTINUE;
}

/* The thread was killed, or ends by an exception or exit: nobody will wake its fibers any more. They
 * are ended where they are parked, so that their ensure clauses run. */
static VALUE cancel_all(VALUE self) {
    struct ea_scheduler *scheduler = RTYPEDDATA_DATA(self);
    if (scheduler->parked + scheduler->ready_count == 0)
        return Qnil;
    VALUE cancelled = rb_path2class("Eagain::Cancelled");
    int state;
    st_foreach(scheduler->fibers, cancel_record, (st_data_t)cancelled);
    do {
        state = 0;
        rb_protect(scheduler_run, self, &state);
        if (state && !ea_error_is(rb_errinfo(), cancelled))
            rb_jump_tag(state);
        if (state)
            rb_set_errinfo(Qnil);
    } while (state);
    return Qnil;
}

static VALUE do_nothing(VALUE unused) {
    return unused;
}

/* Is #close called by Ruby at the end of a thread that does not end normally? Called by a method (by
 * Fiber.set_scheduler), there is a frame above. */
static bool ends_abnormally(void) {
    if (NIL_P(rb_errinfo()))
        return false;
    VALUE above = rb_funcall(rb_mKernel, rb_intern("caller"), 0);
    return RB_TYPE_P(above, T_ARRAY) && RARRAY_LEN(above) == 0;
}

static VALUE close_body(VALUE self) {
    struct ea_scheduler *scheduler = RTYPEDDATA_DATA(self);
    if (scheduler->forked) {
        /* A child that was forked in a task ends in that task; #run, if there is one, is the
         * parent's. */
        run_as(scheduler, ea_fiber_current(scheduler));
        return Qnil;
    }
    /* rb_ensure also keeps what the thread ends by. */
    return rb_ensure(ends_abnormally() ? do_nothing : scheduler_run, self, cancel_all, self);
}

static VALUE close_ensure(VALUE self) {
    struct ea_scheduler *scheduler = RTYPEDDATA_DATA(self);
    scheduler->closing = false;
    if (scheduler->runner) {
        scheduler->open = false; /* the process is about to end, with #run on a stack */
        return Qnil;
    }
    /* What is left was abandoned by an exception: nobody runs it any more. */
    scheduler_release(scheduler);
    return Qnil;
}

/* Does another thread run it, which may be asleep in its poller? */
static bool is_anothers(const struct ea_scheduler *scheduler) {
    return scheduler->thread && scheduler->thread != rb_thread_current() &&
           RTEST(rb_funcall(scheduler->thread, rb_intern("alive?"), 0));
}

/* call-seq: close -> nil
 *
 * Runs to the end, then gives back what the scheduler holds. Called by Ruby at the end of the thread
 * and by Fiber.set_scheduler. Harmless when closed already. ThreadError in another thread than the one that it
 * runs, while that is alive. */
static VALUE scheduler_close(VALUE self) {
    struct ea_scheduler *scheduler = RTYPEDDATA_DATA(self);
    if (!scheduler->open)
        return Qnil;
    scheduler = ea_scheduler_get(self);
    if (is_anothers(scheduler))
        rb_raise(rb_eThreadError, "the scheduler belongs to another thread");
    if (scheduler->closing)
        return Qnil;
    if (scheduler->runner && !scheduler->forked)
        rb_raise(rb_eRuntimeError, "the scheduler runs");
    scheduler->closing = true;
    rb_ensure(close_body, self, close_ensure, self);
    return Qnil;
}

/* call-seq: closed? -> true or false
 *
 * Whether #close was called. */
static VALUE scheduler_closed_p(VALUE self) {
    const struct ea_scheduler *scheduler = RTYPEDDATA_DATA(self);
    return scheduler->open ? Qfalse : Qtrue;
}

/* call-seq: backend -> String
 *
 * What it waits with: one of Eagain::BACKENDS. */
static VALUE scheduler_backend(VALUE self) {
    return rb_str_new_cstr(ea_scheduler_get(self)->poll.backend->name);
}

/* call-seq: stats -> Hash
 *
 * Counters since the scheduler was made, and sizes now. */
static VALUE scheduler_stats(VALUE self) {
    const struct ea_scheduler *scheduler = ea_scheduler_get(self);
    const struct {
        const char *name;
        uint64_t value;
    } stats[] = {
        {"turns", scheduler->poll.turns},     {"switches", scheduler->switches},
        {"wakeups", scheduler->poll.wakeups}, {"parked", scheduler->parked},
        {"ready", scheduler->ready_count},    {"fibers", scheduler->own},
        {"peak_fibers", scheduler->peak},     {"timers", scheduler->poll.timers.armed},
        {"offloaded", scheduler->offloaded},  {"checks", scheduler->poll.checks},
        {"waiting", scheduler->poll.waiting},
    };
    VALUE hash = rb_hash_new();
    for (size_t i = 0; i < sizeof stats / sizeof *stats; i++)
        rb_hash_aset(hash, ID2SYM(rb_intern(stats[i].name)), ULL2NUM(stats[i].value));
    return hash;
}

void ea_init_scheduler(VALUE klass) {
    id_backend = rb_intern("backend");
    pthread_atfork(NULL, NULL, count_fork);
    rb_define_alloc_func(klass, scheduler_alloc);
    rb_define_method(klass, "initialize", scheduler_initialize, -1);
    rb_define_method(klass, "run", scheduler_run, 0);
    rb_define_method(klass, "close", scheduler_close, 0);
    rb_define_method(klass, "scheduler_close", scheduler_close, 0);
    rb_define_method(klass, "closed?", scheduler_closed_p, 0);
    rb_define_method(klass, "backend", scheduler_backend, 0);
    rb_define_method(klass, "stats", scheduler_stats, 0);
}
