/* Who runs next.
 *
 * There is no loop fiber. The fiber that blocks runs pick() on its own stack: the next runnable
 * fiber, or, when there is none, a turn of the poller until there is one; and transfers to it. The
 * kernel is also asked when the budget is spent (SWITCHES, SLICE), so that runnable fibers never
 * starve descriptors and timers.
 *
 * Control comes back to a fiber in one of three ways:
 *   picked      the picker made it RUNNING first;
 *   handed      a fiber ended (Ruby then goes to the thread's root fiber, or to the innermost one
 *               that the root resumed), or somebody used Fiber#transfer: it is PARKED or READY
 *               still, and picks the next;
 *   raised in   Fiber#raise, Fiber#kill, an interrupt, an exception that ended another fiber.
 * settle() makes the books right in each case; it runs as the ensure clause of every switch. */
#include "scheduler.h"

/* How many switches, and nanoseconds, runnable fibers may take before the kernel is asked. */
#define SWITCHES 64
#define SLICE ((int64_t)1000000)
/* After how many bytes read and written it is asked at the next switch: who waits for them finds them in the
 * processor's cache. */
#define WARM_BYTES ((size_t)32768)
/* How many operations that did not have to wait may go by before the clock is looked at, and for
 * how long a fiber may go on doing them while others are there. */
#define TRANSFERS 128
#define TRANSFER_SLICE ((int64_t)5000000)
/* Up to how many sleepers are asked whether their IO was closed, before each sleep. */
#define VALIDATE_MAX 64

struct enter {
    struct ea_poll *poll;
    int64_t timeout;
    int result;
    bool entered; /* false: an interrupt of any kind was pending, and rb_nogvl did nothing */
};

static void *enter_without_gvl(void *arg) {
    struct enter *enter = arg;
    enter->entered = true;
    enter->result = ea_poll_enter(enter->poll, enter->timeout);
    return NULL;
}

static void enter_interrupt(void *arg) {
    ea_poll_nudge(arg);
}

static VALUE handler_body(RB_BLOCK_CALL_FUNC_ARGLIST(unused, self)) {
    (void)unused;
    ea_make_spare(RTYPEDDATA_DATA(self));
    rb_thread_check_ints();
    return Qnil;
}

void ea_make_spare(struct ea_scheduler *scheduler) {
    VALUE body = rb_proc_new(handler_body, scheduler->self);
    VALUE fiber = rb_funcall_with_block(rb_path2class("Fiber"), rb_intern("new"), 0, NULL, body);
    RB_OBJ_WRITE(scheduler->self, &scheduler->spare, fiber);
}

/* What interrupted the sleep is for the fiber in #run, not for the one that happens to have slept last.
 * Nor may it be looked at here: the fiber is parked, and a trap handler may wait. If nobody is in #run,
 * or that one waits for something in a trap handler itself, a fiber of its own takes it; Ruby gives what
 * is raised in that to the fiber that the thread's root had resumed last. */
static void check_interrupts(struct ea_scheduler *scheduler) {
    struct ea_fiber *runner = scheduler->runner;
    if (ea_fiber_idles(runner)) {
        ea_fiber_ready(runner, true);
        return;
    }
    if (!scheduler->spare || (runner && runner->state == EA_FIBER_READY))
        return;
    ea_fiber_ready(ea_fiber_make(scheduler, scheduler->spare, true), true);
    scheduler->spare = Qfalse;
}

/* One turn of the poller, at most limit ns long (negative: as long as it takes). The GVL is let go
 * only if it may sleep. */
static void turn(struct ea_scheduler *scheduler, int64_t limit) {
    struct ea_poll *poll = &scheduler->poll;
    if (limit != 0 && poll->waiting > 0 && poll->waiting <= VALIDATE_MAX) {
        ea_poll_validate(poll);
        if (scheduler->ready_count > 0)
            limit = 0;
    }
    struct enter enter = {.poll = poll, .timeout = ea_poll_prepare(poll, limit)};
    if (enter.timeout == 0)
        enter_without_gvl(&enter);
    else
        rb_nogvl(enter_without_gvl, &enter, enter_interrupt, poll,
                 RB_NOGVL_INTR_FAIL | RB_NOGVL_UBF_ASYNC_SAFE);
    ea_poll_dispatch(poll, enter.result);
    scheduler->budget = SWITCHES;
    scheduler->moved = 0;
    if (enter.timeout != 0 && (!enter.entered || rb_thread_interrupted(rb_thread_current())))
        check_interrupts(scheduler);
}

static bool budget_spent(struct ea_scheduler *scheduler) {
    if (RB_UNLIKELY(--scheduler->budget == 0 || scheduler->moved >= WARM_BYTES))
        return true;
    return (scheduler->budget & 15) == 0 && ea_now() - scheduler->poll.now > SLICE;
}

/* All that this scheduler had to do is done, but for the fiber in #run. */
static bool finished(const struct ea_scheduler *scheduler) {
    const struct ea_fiber *runner = scheduler->runner;
    return ea_fiber_idles(runner) && scheduler->parked == 1 + scheduler->outer_runners &&
           scheduler->ready_count == 0;
}

/* The next fiber, taken off the run queue. */
static struct ea_fiber *pick_any(struct ea_scheduler *scheduler) {
    while (scheduler->ready_count == 0) {
        if (finished(scheduler))
            ea_fiber_ready(scheduler->runner, false);
        else
            turn(scheduler, -1);
    }
    if (budget_spent(scheduler))
        turn(scheduler, 0);
    struct ea_fiber *next = EA_CONTAINER(scheduler->ready.next, struct ea_fiber, ready);
    ea_fiber_unready(next);
    return next;
}

/* What has a handler goes on when that ends. */
static struct ea_fiber *pick(struct ea_scheduler *scheduler) {
    struct ea_fiber *next = pick_any(scheduler);
    while (RB_UNLIKELY(next->handler != NULL))
        next = pick_any(scheduler);
    return next;
}

static bool has_ended(const struct ea_fiber *record) {
    return record->state == EA_FIBER_RUNNING && !RTEST(rb_fiber_alive_p(record->fiber));
}

/* The fiber that had control before self got it without being picked: it ended, or raised or
 * transferred directly and wants to go on later. What we know of it is what called a hook last; since
 * then it may have yielded to, or ended in favour of, the fiber that had resumed it. */
void ea_switch_settle(const struct ea_fiber *self) {
    struct ea_scheduler *scheduler = self->scheduler;
    struct ea_fiber *other = scheduler->running;
    const struct ea_fiber *ended = NULL;
    scheduler->running = NULL;
    for (struct ea_fiber *up = other; up && up != self; up = up->resumer)
        if (has_ended(up))
            ended = up;
    /* What an ended fiber had resumed, and what that had, gave control back before. */
    while (ended) {
        struct ea_fiber *up = other->resumer;
        if (other == ended) {
            ended = NULL;
            up = other->own ? NULL : up;
        }
        if (has_ended(other))
            ea_fiber_drop(other);
        other = up;
    }
    if (!other || other == self || other->state != EA_FIBER_RUNNING || other->inner)
        return;
    other->doubtful = true;
    ea_fiber_ready(other, false);
}

struct away {
    struct ea_scheduler *scheduler;
    struct ea_fiber *self;
    struct ea_fiber *next; /* whom to go to first; NULL: whoever is picked */
    bool picked;           /* false at the end: it is raised in */
};

static VALUE transfer_protected(VALUE fiber) {
    return rb_fiber_transfer(fiber, 0, NULL);
}

/* See ea_switch_settle. If Ruby refuses at once, it was not this one that gave control away, but the one
 * that had resumed it; or another thread made a fiber that was pushed here. */
static void transfer_to_doubtful(struct ea_scheduler *scheduler, struct ea_fiber *next) {
    uint64_t switches = scheduler->switches;
    int state = 0;
    bool pushed = next->pushed;
    next->doubtful = next->pushed = false;
    rb_protect(transfer_protected, next->fiber, &state);
    if (!state)
        return;
    VALUE error = rb_errinfo();
    if (scheduler->running != next || scheduler->switches != switches ||
        !ea_error_is(error, rb_path2class("FiberError")))
        rb_jump_tag(state);
    rb_set_errinfo(Qnil);
    scheduler->running = NULL;
    if (pushed) {
        ea_fiber_drop(next); /* the warning may raise */
        rb_warn("a fiber that was pushed cannot run here: %" PRIsVALUE, error);
        return;
    }
    struct ea_fiber *resumer = next->resumer;
    if (resumer && resumer->state == EA_FIBER_RUNNING) {
        resumer->doubtful = true;
        ea_fiber_ready(resumer, true);
    }
}

/* The handler ended before self has gone away; if it waited, self may have been picked meanwhile, and is
 * the next to run. */
static void handled_early(struct ea_fiber *self) {
    ea_fiber_handled(self);
    if (self->state == EA_FIBER_RUNNING)
        ea_fiber_ready(self, true);
}

static void transfer_to(struct ea_fiber *self, struct ea_fiber *next) {
    struct ea_scheduler *scheduler = self->scheduler;
    VALUE fiber = next->fiber;
    scheduler->switches++;
    if (RB_UNLIKELY(next->standin)) {
        /* The operation's fiber is parked somewhere here, and is woken by an exception. */
        scheduler->running = NULL;
        ea_fiber_drop(next);
        if (RTEST(rb_funcall(fiber, rb_intern("alive?"), 0)))
            rb_funcall(fiber, rb_intern("transfer"), 0);
        return;
    }
    if (RB_UNLIKELY(!next->started)) {
        if (!RTEST(rb_fiber_alive_p(fiber))) {
            ea_fiber_drop(next);
            return;
        }
        next->started = true;
        if (RB_UNLIKELY(++scheduler->stacks.starts > EA_DEAD_STACKS + scheduler->own))
            ea_stacks_limit(scheduler);
        if (RB_UNLIKELY(self->handler != NULL)) /* of a finalizer */
            handled_early(self);
    }
    scheduler->running = next;
    if (RB_UNLIKELY(next->doubtful || next->pushed))
        transfer_to_doubtful(scheduler, next);
    else
        rb_fiber_transfer(fiber, 0, NULL);
#ifndef EA_STACKS_ARE_KEPT
    RB_GC_GUARD(fiber); /* Bug #22196: Ruby looks at what it transferred to, when it comes back */
#endif
}

static VALUE away_body(VALUE arg) {
    struct away *away = (struct away *)arg;
    struct ea_fiber *self = away->self;
    struct ea_fiber *next = away->next;
    if (RB_UNLIKELY(self->resumer != NULL))
        ea_fiber_nest(self);
    if (RB_UNLIKELY(self->handler != NULL)) /* of a TracePoint, in there */
        handled_early(self);
    for (;;) {
        if (!next)
            next = pick(away->scheduler);
        if (next == self)
            break;
        transfer_to(self, next);
        if (RB_UNLIKELY(self->handler != NULL))
            ea_fiber_handled(self);
        if (self->state == EA_FIBER_RUNNING)
            break;
        ea_switch_settle(self);
        next = NULL;
    }
    away->picked = true;
    return Qnil;
}

/* Bug #22298: when a hook raises, Ruby before 4.1 leaves the IO::Buffer that it made for the hook
 * locked, and pointing at memory that is gone. A buffer of the program's is the program's; called at the
 * end of a wait, this still has the hook's caller in the frame above. */
void ea_fiber_release_buffer(struct ea_fiber *self) {
    self->io = Qfalse;
#if EA_RB_SCHEDULER_VERSION < 4
    VALUE buffer = self->buffer;
    self->buffer = Qfalse;
    if (RTEST(buffer) && ea_caller_lends()) {
        rb_io_buffer_try_unlock(buffer);
        rb_io_buffer_free(buffer);
    }
#else
    self->buffer = Qfalse;
#endif
}

static VALUE away_settle(VALUE arg) {
    const struct away *away = (const struct away *)arg;
    struct ea_fiber *self = away->self;
    if (RB_UNLIKELY(self->handler != NULL))
        ea_fiber_handled(self);
    VALUE io = self->io;
    self->io = Qfalse; /* also when it is not woken but raised in */
    self->relocking = false;
    /* What is raised in it leaves the hook, and nobody marks the buffer then. */
    if (RB_UNLIKELY(!away->picked))
        ea_fiber_release_buffer(self);
    if (RB_UNLIKELY(away->scheduler->running != self))
        ea_switch_settle(self);
    if (RB_UNLIKELY(self->state == EA_FIBER_READY)) {
        ea_fiber_unready(self);
        self->doubtful = false;
    } else if (RB_UNLIKELY(self->state == EA_FIBER_PARKED)) {
        self->state = EA_FIBER_RUNNING;
        away->scheduler->parked--;
        ea_waiter_wake(&self->waiter, EA_WAKE_CANCEL, 0);
    }
    if (self->op)
        ea_operation_settle(self, io, !away->picked);
    RB_GC_GUARD(io);
    /* It may close what it waited for, without a word to us. */
    if (RB_UNLIKELY(self->waiter.reason != EA_WAKE_READY) && away->scheduler->polling)
        ea_poll_release(&away->scheduler->poll);
    if (RB_UNLIKELY(self->resumer != NULL))
        ea_fiber_unnest(self);
    self->away = false;
    /* An abandoned one that calls a hook again gets a record that is in the table, as anybody. */
    away->scheduler->running = RB_LIKELY(!self->abandoned) ? self : NULL;
    return Qnil;
}

static void go_away(struct ea_fiber *self, struct ea_fiber *next) {
    struct away away = {.scheduler = self->scheduler, .self = self, .next = next};
    self->away = true;
    rb_ensure(away_body, (VALUE)&away, away_settle, (VALUE)&away);
}

void ea_switch_away(struct ea_fiber *self) {
    go_away(self, NULL);
    /* Whoever was handed something (a mutex, an item) by #unblock goes on to take it, and is told
     * when it parks next: nobody else would be woken for it. */
    if (!self->unblocked && RB_LIKELY(!self->received))
        ea_fiber_check(self);
    self->received = false;
}

void ea_switch_to(struct ea_fiber *self, struct ea_fiber *next) {
    go_away(self, next);
    ea_fiber_check(self);
}

enum ea_wake_reason ea_fiber_park(struct ea_fiber *self, enum ea_fiber_wait wait, int fd,
                                  unsigned events, int64_t deadline, unsigned flags) {
    ea_fiber_check(self);
    self->token = false;
    if (fd >= 0 || deadline != EA_TIME_NEVER) {
        int rc = ea_poll_park(&self->scheduler->poll, &self->waiter, fd, events, deadline, flags);
        if (RB_UNLIKELY(rc > 0)) {
            self->waiter.revents = (uint16_t)rc;
            return EA_WAKE_READY;
        }
        if (RB_UNLIKELY(rc < 0)) {
            ea_fiber_release_buffer(self);
            rb_syserr_fail(-rc, "eagain: wait");
        }
    } else {
        self->waiter.reason = EA_WAKE_CANCEL;
    }
    ea_fiber_parked(self, wait);
    ea_switch_away(self);
    return (enum ea_wake_reason)self->waiter.reason;
}

static VALUE park_once(VALUE arg) {
    go_away((struct ea_fiber *)arg, NULL);
    return Qnil;
}

/* What is pending for the fiber stays so. What Ruby raises in it directly is kept: the first exception, to
 * be raised at the end, and further ones as if they had been raised by way of the scheduler; or instead
 * of them what ends the fiber (a throw, a kill). */
void ea_fiber_park_masked(struct ea_fiber *self, const bool *done) {
    int first = 0;
    VALUE exception = Qnil;
    /* Whatever is raised meanwhile, the buffer is being worked on. */
    VALUE buffer = self->buffer;
    self->buffer = Qfalse;
    /* In a forked child nobody works on it, nor will anybody say so. */
    while (!*done && !self->abandoned) {
        int state = 0;
        self->waiter.reason = EA_WAKE_CANCEL;
        ea_fiber_parked(self, EA_WAIT_EVENT);
        rb_protect(park_once, (VALUE)self, &state);
        if (!state)
            continue;
        VALUE error = rb_errinfo();
        bool is_exception = ea_error_is(error, rb_eException);
        if (first && is_exception) {
            if (ea_error_is(exception, rb_eException))
                ea_fiber_add_pending(self, error);
        } else {
            first = state;
            exception = error;
        }
        if (is_exception)
            rb_set_errinfo(Qnil);
    }
    if (!first && !*done)
        rb_raise(rb_eThreadError, "the thread that worked for this fiber is the parent's");
    self->buffer = buffer;
    if (!first) {
        ea_fiber_check(self);
        return;
    }
    ea_fiber_release_buffer(self);
    if (ea_error_is(exception, rb_eException))
        rb_exc_raise(exception);
    rb_jump_tag(first);
}

/* Nobody can run, and no time can be up, that the fiber would not notice by itself. */
static bool is_alone(const struct ea_scheduler *scheduler) {
    size_t others = scheduler->parked - scheduler->outer_runners + scheduler->ready_count;
    if (ea_fiber_idles(scheduler->runner))
        others--;
    return others == 0 && scheduler->poll.timers.armed == 0;
}

static bool account(struct ea_scheduler *scheduler, VALUE buffer) {
    scheduler->transfers = 0;
    struct ea_fiber *self = ea_fiber_current(scheduler);
    bool away = false;
    self->buffer = buffer;
    if (!is_alone(scheduler) && ea_now() - scheduler->poll.now >= TRANSFER_SLICE) {
        turn(scheduler, 0);
        away = scheduler->ready_count > 0;
    }
    if (away) {
        self->wait = EA_WAIT_TURN;
        ea_fiber_ready(self, false);
        go_away(self, NULL);
    }
    ea_fiber_check(self);
    self->buffer = Qfalse;
    return away;
}

bool ea_fiber_account(struct ea_scheduler *scheduler, VALUE buffer) {
    if (RB_LIKELY(++scheduler->transfers < TRANSFERS))
        return false;
    return account(scheduler, buffer);
}

bool ea_fiber_accounts(const struct ea_scheduler *scheduler) {
    return scheduler->transfers + 1 >= TRANSFERS;
}

void ea_fiber_relock(struct ea_fiber *self) {
    self->relocking = true;
    self->waiter.reason = EA_WAKE_CANCEL;
    ea_fiber_parked(self, EA_WAIT_BLOCK);
    go_away(self, NULL);
}
