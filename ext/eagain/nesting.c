/* Who runs on whose behalf, and is told of what.
 *
 * A fiber that the program resumes by itself runs on behalf of the one that resumed it: what is raised in
 * that one, or a timeout of its, reaches the fiber that is parked furthest in, and leaves one fiber after
 * the other from there. Ruby does not tell who resumed whom. A fiber that calls a hook, though another one
 * called one last, was resumed by that, or, if that has yielded since, by whoever had resumed that.
 *
 * While a fiber is away, Ruby may run other code in it: trap handlers, when control comes back; finalizers;
 * a Warning.warn. If that calls hooks, it gets a record of its own, the handler, as if it was resumed by the
 * fiber: the wait that is not over yet keeps its own. */
#include "scheduler.h"

#include <string.h>

void ea_fiber_resumed_by(struct ea_fiber *record, struct ea_fiber *resumer) {
    if (record->resumer == resumer)
        return;
    if (record->resumer) {
        record->resumer->resumed--;
        if (record->resumer->inner == record)
            record->resumer->inner = NULL;
    }
    record->resumer = resumer;
    if (resumer)
        resumer->resumed++;
}

struct frames {
    VALUE fiber;
    int most;
};

static VALUE frames_body(VALUE arg) {
    const struct frames *frames = (const struct frames *)arg;
    return rb_funcall(frames->fiber, rb_intern("backtrace_locations"), 2, INT2FIX(0),
                      INT2FIX(frames->most));
}

VALUE ea_fiber_frames(struct ea_scheduler *scheduler, VALUE fiber, int most) {
    struct frames frames = {.fiber = fiber, .most = most};
    int state = 0;
    scheduler->looking++;
    VALUE locations = rb_protect(frames_body, (VALUE)&frames, &state);
    scheduler->looking--;
    if (state)
        rb_jump_tag(state);
    return RB_TYPE_P(locations, T_ARRAY) ? locations : rb_ary_new();
}

/* A method in C has the place of what called it. */
static bool is_in_c(VALUE frames) {
    if (RARRAY_LEN(frames) < 2)
        return true;
    const ID asked[] = {rb_intern("lineno"), rb_intern("path")};
    bool same = true;
    for (size_t i = 0; i < sizeof asked / sizeof *asked && same; i++)
        same = rb_equal(rb_funcall(rb_ary_entry(frames, 0), asked[i], 0),
                        rb_funcall(rb_ary_entry(frames, 1), asked[i], 0));
    return same;
}

/* Does a fiber, which is not the running one, wait for one that it resumed? Ruby would tell by refusing to
 * transfer to it, or else would transfer. So look at what it called last: these are all of Ruby's methods
 * that resume. Those that yield have many names (an Enumerator's fiber is in any each), these too if they
 * are the program's. */
static bool is_resuming(struct ea_scheduler *scheduler, VALUE fiber) {
    static const char *const methods[] = {"resume",      "next",  "peek", "next_values",
                                          "peek_values", "raise", "kill"};
    VALUE frames = ea_fiber_frames(scheduler, fiber, 2);
    if (RARRAY_LEN(frames) == 0)
        return false;
    VALUE label = rb_funcall(rb_ary_entry(frames, 0), rb_intern("label"), 0);
    const char *name = StringValueCStr(label); /* resume, Fiber#resume, block in resume */
    if (strchr(name, ' '))
        return false;
    size_t owner = strcspn(name, "#.");
    if (name[owner])
        name += owner + 1;
    bool found = false;
    for (size_t i = 0; i < sizeof methods / sizeof *methods && !found; i++)
        found = strcmp(name, methods[i]) == 0;
    RB_GC_GUARD(label);
    return found && is_in_c(frames);
}

/* Our own fibers are transferred to, and cannot yield. */
struct ea_fiber *ea_fiber_resuming(struct ea_fiber *record) {
    while (record && !(record->own ? RTEST(rb_fiber_alive_p(record->fiber))
                                   : is_resuming(record->scheduler, record->fiber)))
        record = record->resumer;
    return record;
}

/* One that yielded may have been resumed by another one since, which is what ea_fiber_current does not see
 * if no hook was called in between. */
static void forget_yielded(struct ea_fiber *self) {
    for (struct ea_fiber *record = self; record; record = record->resumer)
        if (!record->handles)
            ea_fiber_resumed_by(record, ea_fiber_resuming(record->resumer));
}

void ea_fiber_nest(struct ea_fiber *self) {
    forget_yielded(self);
    for (struct ea_fiber *record = self; record->resumer; record = record->resumer)
        record->resumer->inner = record;
}

void ea_fiber_unnest(struct ea_fiber *self) {
    for (struct ea_fiber *record = self; record->resumer && record->resumer->inner == record;
         record = record->resumer)
        record->resumer->inner = NULL;
}

/* Nothing comes in between while a lock is taken again. */
struct ea_fiber *ea_fiber_innermost(struct ea_fiber *record) {
    while (record->inner && !record->relocking)
        record = record->inner;
    return record;
}

struct ea_fiber *ea_fiber_handle(struct ea_fiber *away) {
    while (away->handler)
        away = away->handler;
    if (!away->away)
        return away;
    struct ea_fiber *handler = ea_fiber_new(away->scheduler, away->fiber);
    handler->started = handler->handles = true;
    away->handler = handler;
    ea_fiber_resumed_by(handler, away);
    ea_switch_settle(away);
    return handler;
}

void ea_fiber_handled(struct ea_fiber *away) {
    struct ea_scheduler *scheduler = away->scheduler;
    struct ea_fiber *handler = away->handler;
    if (handler->handler)
        ea_fiber_handled(handler);
    VALUE pending = handler->exception;
    away->handler = NULL;
    if (scheduler->running == handler)
        scheduler->running = away;
    ea_fiber_drop(handler);
    if (RB_TYPE_P(pending, T_ARRAY))
        for (long i = 0; i < RARRAY_LEN(pending); i++)
            ea_fiber_add_pending(away, rb_ary_entry(pending, i));
    else if (pending)
        ea_fiber_add_pending(away, pending);
}

/* Is anything pending for record itself? Is a timeout block overdue that it is within? */
static bool is_told(const struct ea_fiber *record) {
    return record->exception || !ea_link_alone(&record->overdue);
}

/* Self, or the first of those in whose Fiber#resume it runs, that is to be told of something. */
static struct ea_fiber *first_told(struct ea_fiber *self) {
    struct ea_fiber *record = self;
    while (record && !is_told(record)) {
        record = record->resumer;
        if (record && record->relocking)
            return NULL;
    }
    return record;
}

void ea_fiber_add_pending(struct ea_fiber *record, VALUE exception) {
    VALUE all = record->exception;
    if (all && !RB_TYPE_P(all, T_ARRAY))
        all = rb_ary_new_from_args(2, all, exception);
    else if (all)
        rb_ary_push(all, exception);
    else
        all = exception;
    RB_OBJ_WRITE(record->scheduler->self, &record->exception, all);
}

/* The first of those that are pending; there is one. */
static VALUE take_pending(struct ea_fiber *record) {
    VALUE first = record->exception;
    if (RB_TYPE_P(first, T_ARRAY)) {
        VALUE all = first;
        first = rb_ary_shift(all);
        if (RARRAY_LEN(all) > 0)
            return first;
    }
    record->exception = Qfalse;
    return first;
}

void ea_fiber_check(struct ea_fiber *self) {
    struct ea_fiber *told = first_told(self);
    if (RB_LIKELY(!told))
        return;
    if (told != self) {
        forget_yielded(self);
        told = first_told(self);
        if (!told)
            return;
    }
    ea_fiber_release_buffer(self);
    if (told->exception)
        rb_exc_raise(take_pending(told));
    ea_timeout_raise(&told->overdue);
}

/* Pending for record itself, though another fiber may wait on its behalf: that one may yield, or end, with
 * what it was woken for, before it can be told. */
void ea_fiber_raise(struct ea_fiber *record, VALUE exception) {
    struct ea_fiber *sleeper = ea_fiber_innermost(record);
    ea_fiber_add_pending(record, exception);
    if (!sleeper->relocking)
        ea_fiber_wake(sleeper);
}
