/* Records of fibers, and the run queue. See struct ea_fiber for what a record is. */
#include "scheduler.h"

#include <stdlib.h>

static void fiber_woken(struct ea_waiter *waiter) {
    struct ea_fiber *record = EA_CONTAINER(waiter, struct ea_fiber, waiter);
    if (record->state == EA_FIBER_PARKED)
        ea_fiber_ready(record, false);
}

static bool fiber_valid(struct ea_waiter *waiter) {
    const struct ea_fiber *record = EA_CONTAINER(waiter, struct ea_fiber, waiter);
    return !RTEST(record->io) || ea_io_valid(record->io, waiter->fd->fd);
}

struct ea_fiber *ea_fiber_find(struct ea_scheduler *scheduler, VALUE fiber) {
    st_data_t record;
    return st_lookup(scheduler->fibers, (st_data_t)fiber, &record) ? (struct ea_fiber *)record
                                                                   : NULL;
}

static int unlink_resumed(st_data_t key, st_data_t value, st_data_t arg) {
    struct ea_fiber *record = (struct ea_fiber *)value;
    (void)key;
    if (record->resumer == (struct ea_fiber *)arg)
        record->resumer = NULL;
    return ST_CONTINUE;
}

/* Nobody points at a record that is detached, but for the C frames of a fiber that is parked. */
static void detach_record(struct ea_fiber *record) {
    struct ea_scheduler *scheduler = record->scheduler;
    if (record->state == EA_FIBER_READY) {
        ea_fiber_unready(record);
    } else if (record->state == EA_FIBER_PARKED) {
        scheduler->parked--;
        record->state = EA_FIBER_RUNNING;
    }
    ea_waiter_wake(&record->waiter, EA_WAKE_CANCEL, 0);
    if (record->op)
        ea_operation_abandon(record);
    if (record->select)
        ea_select_abandon(record->select);
    record->select = NULL;
    ea_timeouts_detach(record);
    ea_link_remove(&record->gate);
    if (record->turn)
        record->turn->writer = NULL;
    record->turn = NULL;
    if (record->job)
        record->job->fiber = NULL;
    if (scheduler->running == record)
        scheduler->running = NULL;
    if (record->own)
        scheduler->own--;
    else if (!record->standin && !record->handles)
        scheduler->foreign--;
    ea_fiber_resumed_by(record, NULL);
    if (record->resumed > 0)
        st_foreach(scheduler->fibers, unlink_resumed, (st_data_t)record);
}

static void free_record(struct ea_fiber *record) {
    detach_record(record);
    free(record);
}

void ea_fiber_drop(struct ea_fiber *record) {
    if (!record->standin && !record->handles) {
        st_data_t key = (st_data_t)record->fiber;
        st_delete(record->scheduler->fibers, &key, NULL);
    }
    free_record(record);
}

/* Holds nothing that its fiber would miss, but for timeouts perhaps; those go with the fiber. */
static bool blank(const struct ea_fiber *record) {
    return !record->own && record->state == EA_FIBER_RUNNING && !record->token &&
           !record->exception && !record->inner && !record->handler && !record->select;
}

/* A fiber that ended with an exception pending is told of it no more than a thread. */
static bool ended(const struct ea_fiber *record) {
    return !record->own && record->state == EA_FIBER_RUNNING && !record->away &&
           !RTEST(rb_fiber_alive_p(record->fiber));
}

/* It is marked from now on, with those that it runs in: ea_switch_settle looks at their Fibers. */
static void keep_fibers(const struct ea_fiber *record) {
    for (const struct ea_fiber *up = record; up; up = up->resumer)
        RB_OBJ_WRITTEN(record->scheduler->self, Qundef, up->fiber);
}

/* rb_gc_mark pins: the table is keyed by address. */
static void mark_fibers(const struct ea_fiber *record) {
    for (const struct ea_fiber *up = record; up; up = up->resumer)
        rb_gc_mark(up->fiber);
}

struct sweep {
    const struct ea_fiber *keep;
    const struct ea_fiber *keep_too;
    bool all;            /* or blank ones alone */
    bool keep_idle;      /* see ea_fibers_drop_all */
    struct ea_link list; /* of ea_fiber.ready: what was taken out of the table */
};

static int sweep_record(st_data_t key, st_data_t value, st_data_t arg) {
    struct ea_fiber *record = (struct ea_fiber *)value;
    struct sweep *sweep = (struct sweep *)arg;
    (void)key;
    if (record == sweep->keep || record == sweep->keep_too ||
        !(sweep->all || (blank(record) ? ea_link_alone(&record->timeouts) : ended(record))) ||
        (sweep->keep_idle && ea_fiber_idles(record)))
        return ST_CONTINUE;
    for (; record; record = record->handler) {
        ea_link_remove(&record->ready);
        ea_link_insert_before(&sweep->list, &record->ready);
    }
    return ST_DELETE;
}

static void sweep_records(struct ea_scheduler *scheduler, struct sweep sweep) {
    ea_link_init(&sweep.list);
    st_foreach(scheduler->fibers, sweep_record, (st_data_t)&sweep);
    /* Out of the table they are not found by unlink_resumed any more. */
    for (struct ea_link *l = sweep.list.next; l != &sweep.list; l = l->next)
        ea_fiber_resumed_by(EA_CONTAINER(l, struct ea_fiber, ready), NULL);
    while (!ea_link_alone(&sweep.list)) {
        struct ea_fiber *record = EA_CONTAINER(sweep.list.next, struct ea_fiber, ready);
        bool has_frames = record->away || (record->state != EA_FIBER_RUNNING && record->started);
        ea_link_remove(&record->ready); /* from this list */
        record->handler = NULL;
        detach_record(record);
        /* Abandoned in mid-wait, by a fork or a close. Whoever holds the Fiber may raise in it yet, and
         * its frames look at the record then: leave it to them. Of the scheduler they may touch no more
         * than its own books, as its poller may be gone. */
        record->abandoned = true;
        if (!has_frames)
            free(record);
    }
}

void ea_fibers_drop_all(struct ea_scheduler *scheduler, const struct ea_fiber *keep,
                        const struct ea_fiber *keep_too, bool keep_idle) {
    struct ea_link *next;
    for (struct ea_link *l = scheduler->ready.next; l != &scheduler->ready; l = next) {
        struct ea_fiber *record = EA_CONTAINER(l, struct ea_fiber, ready);
        next = l->next;
        if (record->standin) /* not in the table */
            free_record(record);
    }
    sweep_records(
        scheduler,
        (struct sweep){.keep = keep, .keep_too = keep_too, .all = true, .keep_idle = keep_idle});
}

/* Ruby is not told of this memory: it goes with the fiber, and to collect garbage would not give it back. */
struct ea_fiber *ea_fiber_new(struct ea_scheduler *scheduler, VALUE fiber) {
    struct ea_fiber *record = calloc(1, sizeof(*record));
    if (!record)
        rb_memerror();
    record->fiber = fiber;
    record->exception = record->io = record->buffer = record->blocker = Qfalse;
    record->scheduler = scheduler;
    ea_link_init(&record->ready);
    ea_link_init(&record->timeouts);
    ea_link_init(&record->overdue);
    ea_link_init(&record->gate);
    ea_waiter_init(&record->waiter, &scheduler->poll, fiber_woken);
    record->waiter.valid = fiber_valid;
    return record;
}

struct ea_fiber *ea_fiber_make(struct ea_scheduler *scheduler, VALUE fiber, bool own) {
    if (!own && scheduler->foreign >= scheduler->foreign_limit && !scheduler->looking) {
        sweep_records(scheduler,
                      (struct sweep){.keep = scheduler->running, .keep_too = scheduler->runner});
        scheduler->foreign_limit = 2 * scheduler->foreign + 64;
    }
    /* One that does not keep its Fiber alive, and that had the same address. */
    struct ea_fiber *stale = own ? ea_fiber_find(scheduler, fiber) : NULL;
    if (stale)
        ea_fiber_drop(stale);
    struct ea_fiber *record = ea_fiber_new(scheduler, fiber);
    record->own = own;
    record->started = !own;
    if (own) {
        if (++scheduler->own > scheduler->peak)
            scheduler->peak = scheduler->own;
    } else {
        scheduler->foreign++;
    }
    st_insert(scheduler->fibers, (st_data_t)fiber, (st_data_t)record);
    RB_OBJ_WRITTEN(scheduler->self, Qundef, fiber);
    return record;
}

/* The running thread becomes the scheduler's, for good. Ruby's M:N threads (RUBY_MN_THREADS=1, and those of
 * Ractors) may go on in another native thread after a wait or a time slice. Where the compiler keeps the
 * address of a thread-local in a register across Ruby's switch of fibers (that of Ruby 3.4 on Debian;
 * ruby/ruby#17802), a fiber that goes on there takes what the former native thread runs now for itself, or
 * crashes. So this thread keeps its native thread. */
static void take_thread(struct ea_scheduler *scheduler) {
#ifdef HAVE_RB_THREAD_LOCK_NATIVE_THREAD
    rb_thread_lock_native_thread();
#endif
    RB_OBJ_WRITE(scheduler->self, &scheduler->thread, rb_thread_current());
    ea_make_spare(scheduler);
}

struct ea_fiber *ea_fiber_current(struct ea_scheduler *scheduler) {
    VALUE fiber = rb_fiber_current();
    struct ea_fiber *running = scheduler->running;
    if (RB_LIKELY(running && running->fiber == fiber && !running->away))
        return running;
    if (RB_UNLIKELY(!scheduler->thread))
        take_thread(scheduler);
    else if (RB_UNLIKELY(scheduler->thread != rb_thread_current()))
        rb_raise(rb_eThreadError, "the scheduler belongs to another thread");
    struct ea_fiber *record = ea_fiber_find(scheduler, fiber);
    if (!record)
        record = ea_fiber_make(scheduler, fiber, false);
    else if (RB_UNLIKELY(!record->own && !ea_link_alone(&record->timeouts)))
        ea_timeouts_adopt(record);
    if (RB_UNLIKELY(record->handler || record->away))
        record = ea_fiber_handle(record);
    running = scheduler->running; /* or it had ended, and was dropped */
    /* The fiber that we switched to resumed this one, unless this one resumed it and has it back; or it
     * yielded, and this one is resumed by whoever has resumed that. */
    const struct ea_fiber *up = running;
    while (up && up != record)
        up = up->resumer;
    if (!up && !record->own && !record->handles)
        ea_fiber_resumed_by(record, ea_fiber_resuming(running));
    /* It has control though nobody picked it: it was transferred to by hand. */
    if (RB_UNLIKELY(record->state == EA_FIBER_READY)) {
        ea_fiber_unready(record);
        record->doubtful = false;
    }
    scheduler->running = record;
    keep_fibers(record);
    return record;
}

void ea_fiber_ready(struct ea_fiber *record, bool front) {
    struct ea_scheduler *scheduler = record->scheduler;
    if (record->state == EA_FIBER_PARKED)
        scheduler->parked--;
    record->state = EA_FIBER_READY;
    scheduler->ready_count++;
    ea_link_insert_before(front ? scheduler->ready.next : &scheduler->ready, &record->ready);
    keep_fibers(record);
}

void ea_fiber_unready(struct ea_fiber *record) {
    ea_link_remove(&record->ready);
    record->scheduler->ready_count--;
    record->state = EA_FIBER_RUNNING;
    record->spawns = false;
}

void ea_fiber_spawner_last(struct ea_scheduler *scheduler) {
    struct ea_link *first = scheduler->ready.next;
    if (first == &scheduler->ready || !EA_CONTAINER(first, struct ea_fiber, ready)->spawns)
        return;
    ea_link_remove(first);
    ea_link_insert_before(&scheduler->ready, first);
}

void ea_fiber_parked(struct ea_fiber *record, enum ea_fiber_wait wait) {
    record->wait = (uint8_t)wait;
    record->unblocked = false;
    record->state = EA_FIBER_PARKED;
    record->scheduler->parked++;
    keep_fibers(record);
}

void ea_fiber_wake(struct ea_fiber *record) {
    if (record->state != EA_FIBER_PARKED)
        return;
    if (!ea_waiter_wake(&record->waiter, EA_WAKE_CANCEL, 0))
        ea_fiber_ready(record, false);
}

static int detach_timeouts(st_data_t key, st_data_t value, st_data_t unused) {
    (void)key;
    (void)unused;
    for (struct ea_fiber *record = (struct ea_fiber *)value; record; record = record->handler)
        ea_timeouts_detach(record);
    return ST_CONTINUE;
}

static int abandon_record(st_data_t key, st_data_t value, st_data_t unused) {
    struct ea_fiber *record = (struct ea_fiber *)value;
    (void)key;
    (void)unused;
    while (record) {
        struct ea_fiber *handler = record->handler;
        if (record->job)
            record->job->fiber = NULL;
        free(record);
        record = handler;
    }
    return ST_DELETE;
}

/* The scheduler is collected, and its fibers with it, in whatever order: what is on their stacks, or in
 * buffers that those hold (the waiters of a select), may be gone already. */
void ea_fibers_abandon(struct ea_scheduler *scheduler) {
    struct ea_poll *poll = &scheduler->poll;
    st_foreach(scheduler->fibers, detach_timeouts, 0);
    while (!ea_link_alone(&scheduler->ready)) {
        struct ea_fiber *record = EA_CONTAINER(scheduler->ready.next, struct ea_fiber, ready);
        ea_fiber_unready(record);
        if (record->standin)
            free(record);
    }
    for (int i = 0; i < EA_CHECK_STAGES; i++)
        ea_link_init(&poll->parked[i]);
    ea_op_abandon_all(poll);
    poll->waiting = 0;
    ea_timers_init(&poll->timers, poll->now);
    st_foreach(scheduler->fibers, abandon_record, 0);
    scheduler->parked = scheduler->own = scheduler->foreign = 0;
    scheduler->running = NULL;
}

static int mark_record(st_data_t key, st_data_t value, st_data_t arg) {
    const struct ea_fiber *record = (const struct ea_fiber *)value;
    (void)key;
    (void)arg;
    if (!blank(record))
        mark_fibers(record);
    for (; record; record = record->handler)
        if (record->exception)
            rb_gc_mark(record->exception);
    return ST_CONTINUE;
}

void ea_fibers_mark(struct ea_scheduler *scheduler) {
    if (scheduler->fibers)
        st_foreach(scheduler->fibers, mark_record, 0);
    mark_fibers(scheduler->running);
    for (struct ea_link *l = scheduler->ready.next; l != &scheduler->ready; l = l->next) {
        const struct ea_fiber *record = EA_CONTAINER(l, struct ea_fiber, ready);
        if (record->standin)
            rb_gc_mark(record->fiber);
    }
}

size_t ea_fibers_memsize(const struct ea_scheduler *scheduler) {
    if (!scheduler->fibers)
        return 0;
    return st_memsize(scheduler->fibers) + scheduler->fibers->num_entries * sizeof(struct ea_fiber);
}
