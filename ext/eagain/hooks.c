/* Eagain::Scheduler: its life, and the hooks that make fibers, put them to sleep and wake them. */
#include "scheduler.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>

/* How often this process is a forked child: schedulers made before the last fork must not touch
 * what they share with the parent. */
static _Atomic uint64_t forks;

static ID id_new, id_backend;
static VALUE fiber_class, fiber_error;

/* --- Memory. */

static void scheduler_mark(void *ptr) {
    struct ea_scheduler *scheduler = ptr;
    rb_gc_mark(scheduler->self); /* pinned: we know it by its address */
    ea_fibers_mark(scheduler);
    if (scheduler->thread)
        rb_gc_mark(scheduler->thread);
    if (scheduler->spare)
        rb_gc_mark(scheduler->spare);
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
    return self;
}

/* --- Life. */

/* call-seq: Eagain::Scheduler.new(backend: nil)
 *
 * backend: "epoll" or "poll"; nil takes what the environment variable EAGAIN_BACKEND names, else
 * the best. ArgumentError for an unknown one, Errno::EMFILE and the like when it cannot start. */
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
        backend = ea_poll_backend_find(StringValueCStr(name));
        if (!backend)
            rb_raise(rb_eArgError, "unknown backend: %" PRIsVALUE, rb_inspect(name));
    }
    int rc = ea_poll_init(&scheduler->poll, backend);
    if (rc == -EINVAL)
        rb_raise(rb_eArgError, "unknown backend in EAGAIN_BACKEND: %s", getenv("EAGAIN_BACKEND"));
    if (rc < 0)
        rb_syserr_fail(-rc, "Eagain::Scheduler");
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

/* call-seq: close -> nil
 *
 * Runs to the end, then gives back what the scheduler holds. Called by Ruby at the end of the thread
 * and by Fiber.set_scheduler. Harmless when closed already. */
static VALUE scheduler_close(VALUE self) {
    struct ea_scheduler *scheduler = RTYPEDDATA_DATA(self);
    if (!scheduler->open)
        return Qnil;
    scheduler = ea_scheduler_get(self);
    if (scheduler->closing)
        return Qnil;
    if (scheduler->runner && !scheduler->forked)
        rb_raise(rb_eRuntimeError, "the scheduler runs");
    scheduler->closing = true;
    rb_ensure(close_body, self, close_ensure, self);
    return Qnil;
}

static VALUE scheduler_closed_p(VALUE self) {
    const struct ea_scheduler *scheduler = RTYPEDDATA_DATA(self);
    return scheduler->open ? Qfalse : Qtrue;
}

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

/* --- Fibers. */

/* call-seq: fiber(**options) { } -> Fiber
 *
 * Fiber.schedule: a new non-blocking fiber, which runs at once, until it first waits. Options are
 * those of Fiber.new. */
static VALUE scheduler_fiber(int argc, VALUE *argv, VALUE self) {
    struct ea_scheduler *scheduler = ea_scheduler_get(self);
    rb_need_block();
    VALUE fiber = rb_funcall_with_block_kw(fiber_class, id_new, argc, argv, rb_block_proc(),
                                           RB_PASS_CALLED_KEYWORDS);
    struct ea_fiber *current = ea_fiber_current(scheduler);
    struct ea_fiber *record = ea_fiber_make(scheduler, fiber, true);
    current->wait = EA_WAIT_TURN;
    current->unblocked = false;
    ea_fiber_ready(current, true);
    ea_switch_to(current, record);
    RB_GC_GUARD(fiber);
    return fiber;
}

static void check_fiber(VALUE fiber) {
    if (!rb_obj_is_fiber(fiber))
        rb_raise(rb_eTypeError, "wrong argument type %" PRIsVALUE " (expected Fiber)",
                 rb_obj_class(fiber));
}

/* call-seq: push(fiber) -> fiber
 *
 * Makes a new fiber, or one that is parked here, runnable: it runs when its turn comes. From any
 * thread. FiberError when it has ended. A fiber that belongs to another thread cannot run here: that
 * is found when its turn comes, and is a warning. */
static VALUE scheduler_push(VALUE self, VALUE fiber) {
    struct ea_scheduler *scheduler = ea_scheduler_get(self);
    check_fiber(fiber);
    if (!RTEST(rb_fiber_alive_p(fiber)))
        rb_raise(fiber_error, "dead fiber called");
    struct ea_fiber *record = ea_fiber_find(scheduler, fiber);
    if (!record) {
        record = ea_fiber_make(scheduler, fiber, true);
        record->pushed = true;
        ea_fiber_ready(record, false);
    } else {
        ea_fiber_wake(record);
    }
    ea_poll_nudge(&scheduler->poll);
    return fiber;
}

/* call-seq: yield -> true
 *
 * Lets the other runnable fibers run, then goes on. */
static VALUE scheduler_yield(VALUE self) {
    struct ea_fiber *current = ea_fiber_current(ea_scheduler_get(self));
    ea_fiber_check(current);
    current->wait = EA_WAIT_TURN;
    current->unblocked = false;
    ea_fiber_ready(current, false);
    ea_switch_away(current);
    return Qtrue;
}

/* An operation's stand-in for its fiber (interface version 5) is queued like a fiber: when its turn
 * comes it is transferred to, which raises in the fiber while the operation lasts. */
static VALUE interrupt_standin(struct ea_scheduler *scheduler, VALUE target) {
    struct ea_fiber *record = ZALLOC(struct ea_fiber);
    ea_fiber_init(record, scheduler, target);
    record->standin = record->started = true;
    ea_fiber_ready(record, false);
    ea_poll_nudge(&scheduler->poll);
    return Qtrue;
}

/* call-seq: fiber_interrupt(fiber, exception) -> true or false
 *           raise(fiber, exception) -> true or false
 *
 * Raises exception in fiber where it is parked. One that is runnable gets it when it next runs (or,
 * if it was handed something by #unblock, when it next waits); one that has not begun ends without
 * having run. false when it has ended. From any thread. */
static VALUE scheduler_interrupt(VALUE self, VALUE fiber, VALUE exception) {
    struct ea_scheduler *scheduler = ea_scheduler_get(self);
    if (!rb_obj_is_fiber(fiber)) {
        if (rb_respond_to(fiber, rb_intern("transfer")) &&
            rb_respond_to(fiber, rb_intern("alive?")))
            return interrupt_standin(scheduler, fiber);
        check_fiber(fiber);
    }
    if (!rb_obj_is_kind_of(exception, rb_eException))
        exception = rb_make_exception(1, &exception);
    if (!RTEST(rb_fiber_alive_p(fiber)))
        return Qfalse;
    if (fiber == rb_fiber_current())
        rb_exc_raise(exception);
    struct ea_fiber *record = ea_fiber_find(scheduler, fiber);
    if (!record)
        record = ea_fiber_make(scheduler, fiber, false);
    if (!record->started)
        ea_fiber_drop(record);
    else
        ea_fiber_raise(record, exception);
    ea_poll_nudge(&scheduler->poll);
    return Qtrue;
}

/* --- Sleeping and waking. */

int64_t ea_deadline(VALUE timeout) {
    if (NIL_P(timeout))
        return EA_TIME_NEVER;
    if (RB_FLOAT_TYPE_P(timeout) && RFLOAT_VALUE(timeout) >= 0)
        return ea_deadline_after(RFLOAT_VALUE(timeout));
    struct timespec span = rb_time_timespec_interval(timeout);
    if (span.tv_sec > INT64_MAX / 1000000000 / 2)
        return EA_TIME_NEVER;
    return ea_now() + (int64_t)span.tv_sec * 1000000000 + span.tv_nsec;
}

static bool is_zero(VALUE duration) {
    return duration == INT2FIX(0) || (RB_FLOAT_TYPE_P(duration) && RFLOAT_VALUE(duration) == 0.0);
}

/* call-seq: kernel_sleep(duration = nil) -> true
 *
 * Kernel#sleep, and Mutex#sleep, which #unblock ends. nil sleeps until then. */
static VALUE scheduler_kernel_sleep(int argc, VALUE *argv, VALUE self) {
    struct ea_fiber *current = ea_fiber_current(ea_scheduler_get(self));
    rb_check_arity(argc, 0, 1);
    VALUE duration = argc > 0 ? argv[0] : Qnil;
    if (current->token) {
        /* Woken between Mutex#unlock and here. */
        current->token = false;
        return Qtrue;
    }
    if (is_zero(duration))
        return scheduler_yield(self);
    int64_t deadline = ea_deadline(duration);
    current->slept = true;
    ea_fiber_park(current, EA_WAIT_SLEEP, -1, 0, deadline, 0);
    return Qtrue;
}

/* call-seq: block(blocker, timeout = nil) -> true or false
 *
 * Waits for #unblock; false when timeout seconds passed first. blocker is not looked at. */
static VALUE scheduler_block(int argc, VALUE *argv, VALUE self) {
    struct ea_fiber *current = ea_fiber_current(ea_scheduler_get(self));
    rb_check_arity(argc, 1, 2);
    if (current->token) {
        current->token = false;
        return Qtrue;
    }
    if (RB_UNLIKELY(current->slept)) {
        current->slept = false;
        if (ea_caller(current->scheduler) == EA_CALLER_RELOCKS) {
            current->slept = true; /* it may take more than one attempt */
            ea_fiber_relock(current);
            return Qtrue;
        }
    }
    int64_t deadline = ea_deadline(argc > 1 ? argv[1] : Qnil);
    enum ea_wake_reason reason = ea_fiber_park(current, EA_WAIT_BLOCK, -1, 0, deadline, 0);
    return reason == EA_WAKE_TIMEOUT ? Qfalse : Qtrue;
}

/* call-seq: unblock(blocker, fiber) -> true
 *
 * Ends fiber's #block or #kernel_sleep; if it is on its way there, that will return at once. From
 * any thread. */
static VALUE scheduler_unblock(VALUE self, VALUE blocker, VALUE fiber) {
    struct ea_scheduler *scheduler = RTYPEDDATA_DATA(self);
    (void)blocker;
    /* A thread or a mutex may outlive the scheduler, and let go of it late. */
    if (!scheduler->open)
        return Qfalse;
    int error = errno;
    scheduler = ea_scheduler_get(self);
    check_fiber(fiber);
    struct ea_fiber *record = ea_fiber_find(scheduler, fiber);
    if (!record)
        record = ea_fiber_make(scheduler, fiber, false);
    if (record->state == EA_FIBER_RUNNING) {
        record->token = true;
    } else if (record->state == EA_FIBER_PARKED &&
               (record->wait == EA_WAIT_BLOCK || record->wait == EA_WAIT_SLEEP)) {
        ea_fiber_wake(record);
        record->unblocked = true;
        ea_poll_nudge(&scheduler->poll);
    } else if (record->state == EA_FIBER_READY &&
               (record->wait == EA_WAIT_BLOCK || record->wait == EA_WAIT_SLEEP)) {
        /* It was woken to be told of something; it is in Ruby's list of who waits as long as it has not
         * run, and was chosen from there to be handed this. */
        record->unblocked = true;
    }
    /* Bug #19640: before 3.3.1, Ruby unlocks the write lock of an IO, and so comes here, between a write that
     * failed and its look at errno. Nothing above is known to change it, but much may. */
    errno = error;
    return Qtrue;
}

void ea_init_hooks(VALUE klass) {
    id_new = rb_intern("new");
    id_backend = rb_intern("backend");
    fiber_class = rb_const_get(rb_cObject, rb_intern("Fiber"));
    fiber_error = rb_const_get(rb_cObject, rb_intern("FiberError"));
    rb_gc_register_mark_object(fiber_class);
    rb_gc_register_mark_object(fiber_error);
    pthread_atfork(NULL, NULL, count_fork);
    rb_define_alloc_func(klass, scheduler_alloc);
    rb_define_method(klass, "initialize", scheduler_initialize, -1);
    rb_define_method(klass, "run", scheduler_run, 0);
    rb_define_method(klass, "close", scheduler_close, 0);
    rb_define_method(klass, "scheduler_close", scheduler_close, 0);
    rb_define_method(klass, "closed?", scheduler_closed_p, 0);
    rb_define_method(klass, "backend", scheduler_backend, 0);
    rb_define_method(klass, "stats", scheduler_stats, 0);
    rb_define_method(klass, "fiber", scheduler_fiber, -1);
    rb_define_method(klass, "push", scheduler_push, 1);
    rb_define_method(klass, "yield", scheduler_yield, 0);
    rb_define_method(klass, "raise", scheduler_interrupt, 2);
    rb_define_method(klass, "fiber_interrupt", scheduler_interrupt, 2);
    rb_define_method(klass, "kernel_sleep", scheduler_kernel_sleep, -1);
    rb_define_method(klass, "block", scheduler_block, -1);
    rb_define_method(klass, "unblock", scheduler_unblock, 2);
}
