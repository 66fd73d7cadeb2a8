/* The hooks that make fibers, put them to sleep and wake them. */
#include "scheduler.h"

#include <errno.h>

static ID id_new;
static VALUE fiber_class, fiber_error;

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
    current->spawns = true;
    ea_switch_to(current, record);
    RB_GC_GUARD(fiber);
    return fiber;
}

static void check_fiber(VALUE fiber) {
    if (!rb_obj_is_fiber(fiber))
        rb_raise(rb_eTypeError, "wrong argument type %" PRIsVALUE " (expected Fiber)",
                 rb_obj_class(fiber));
}

/* No record is of a fiber that has not begun, but those that are own: another Fiber had the same address. */
static bool has_begun(struct ea_scheduler *scheduler, VALUE fiber) {
    return RARRAY_LEN(ea_fiber_frames(scheduler, fiber, 1)) > 0;
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
    if (!record || (RB_UNLIKELY(!record->own) && !has_begun(scheduler, fiber))) {
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
    struct ea_fiber *record = ea_fiber_new(scheduler, target);
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
    current->unlocked = ea_caller(current->scheduler) == EA_CALLER_RELOCKS;
    ea_fiber_park(current, EA_WAIT_SLEEP, -1, 0, deadline, 0);
    return Qtrue;
}

/* call-seq: block(blocker, timeout = nil) -> true or false
 *
 * Waits for #unblock; false when timeout seconds passed first. */
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
            current->blocker = argv[0];
            ea_fiber_relock(current);
            return Qtrue;
        }
    }
    int64_t deadline = ea_deadline(argc > 1 ? argv[1] : Qnil);
    current->blocker = argv[0];
    enum ea_wake_reason reason = ea_fiber_park(current, EA_WAIT_BLOCK, -1, 0, deadline, 0);
    return reason == EA_WAKE_TIMEOUT ? Qfalse : Qtrue;
}

static bool may_be_unblocked(const struct ea_fiber *record) {
    return record->wait == EA_WAIT_BLOCK || record->wait == EA_WAIT_SLEEP;
}

static void unblock_record(struct ea_fiber *record) {
    if (record->state == EA_FIBER_PARKED) {
        if (!may_be_unblocked(record))
            return;
        ea_fiber_wake(record);
        record->unblocked = true;
        ea_poll_nudge(&record->scheduler->poll);
    } else if (record->away) {
        /* It was woken to be told of something; it is in Ruby's list of who waits as long as it has not
         * run, and was chosen from there to be handed this. */
        record->unblocked |= may_be_unblocked(record);
    } else {
        record->token = true;
    }
}

/* How badly an #unblock fits what record waits for. Mutex#sleep does not tell what it waits for. */
static int misfit(const struct ea_fiber *record, VALUE blocker) {
    if (record->away && record->wait == EA_WAIT_BLOCK && record->blocker == blocker)
        return 0;
    return record->away && !(record->wait == EA_WAIT_SLEEP && !record->unlocked) ? 1 : 2;
}

/* A fiber that waits in a handler, too, waits for two things. */
static void unblock_handled(struct ea_fiber *outer, VALUE blocker) {
    int best = 2;
    bool busy = false; /* one may be on its way to wait for it */
    for (const struct ea_fiber *record = outer; record; record = record->handler) {
        int fit = misfit(record, blocker);
        best = fit < best ? fit : best;
        busy |= !record->away;
    }
    if (busy && best > 0)
        best = 2;
    for (struct ea_fiber *record = outer; record; record = record->handler)
        if (misfit(record, blocker) <= best)
            unblock_record(record);
}

/* call-seq: unblock(blocker, fiber) -> true
 *
 * Ends fiber's #block or #kernel_sleep; if it is on its way there, that will return at once. From
 * any thread. */
static VALUE scheduler_unblock(VALUE self, VALUE blocker, VALUE fiber) {
    struct ea_scheduler *scheduler = RTYPEDDATA_DATA(self);
    /* A thread or a mutex may outlive the scheduler, and let go of it late. */
    if (!scheduler->open)
        return Qfalse;
    int error = errno;
    scheduler = ea_scheduler_get(self);
    check_fiber(fiber);
    struct ea_fiber *record = ea_fiber_find(scheduler, fiber);
    if (!record)
        record = ea_fiber_make(scheduler, fiber, false);
    if (RB_UNLIKELY(record->handler != NULL))
        unblock_handled(record, blocker);
    else
        unblock_record(record);
    /* Bug #19640: before 3.3.1, Ruby unlocks the write lock of an IO, and so comes here, between a write that
     * failed and its look at errno. Nothing above is known to change it, but much may. */
    errno = error;
    return Qtrue;
}

void ea_init_hooks(VALUE klass) {
    id_new = rb_intern("new");
    fiber_class = rb_const_get(rb_cObject, rb_intern("Fiber"));
    fiber_error = rb_const_get(rb_cObject, rb_intern("FiberError"));
    rb_gc_register_mark_object(fiber_class);
    rb_gc_register_mark_object(fiber_error);
    rb_define_method(klass, "fiber", scheduler_fiber, -1);
    rb_define_method(klass, "push", scheduler_push, 1);
    rb_define_method(klass, "yield", scheduler_yield, 0);
    rb_define_method(klass, "raise", scheduler_interrupt, 2);
    rb_define_method(klass, "fiber_interrupt", scheduler_interrupt, 2);
    rb_define_method(klass, "kernel_sleep", scheduler_kernel_sleep, -1);
    rb_define_method(klass, "block", scheduler_block, -1);
    rb_define_method(klass, "unblock", scheduler_unblock, 2);
}
