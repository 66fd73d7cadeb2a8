/* IO.select: one fiber parked on many descriptors at once.
 *
 * poll(2) is asked first, without waiting, as the answer must name all that is ready. Then a waiter
 * for each descriptor is parked; the first event makes the fiber runnable, and those that come
 * before it runs are gathered with it. */
#include "scheduler.h"

#include <errno.h>
#include <poll.h>

static const short select_events[3] = {POLLIN, POLLOUT, POLLPRI};

struct entry {
    struct ea_waiter waiter;
    struct ea_select *select;
    VALUE object; /* what the caller passed: it has to_io */
    VALUE io;
    int number;
    int list;      /* 0 readable, 1 writable, 2 exceptable */
    bool buffered; /* Ruby has read ahead: ready whatever the kernel says */
    bool ready;
};

struct ea_select {
    struct ea_fiber *fiber;
    struct ea_select *outer; /* that a trap handler interrupted, to call this one; NULL: none */
    struct entry *entries;
    struct pollfd *fds;
    size_t count;
    bool woken;
    int64_t deadline;
    VALUE memory; /* keeps entries and fds */
    VALUE lists[3];
};

static void select_woken(struct ea_waiter *waiter) {
    struct entry *entry = EA_CONTAINER(waiter, struct entry, waiter);
    struct ea_select *select = entry->select;
    if (waiter->reason == EA_WAKE_READY)
        entry->ready = true;
    if (waiter->reason == EA_WAKE_CANCEL || select->woken)
        return;
    select->woken = true;
    ea_fiber_wake(select->fiber);
}

static bool select_valid(struct ea_waiter *waiter) {
    const struct entry *entry = EA_CONTAINER(waiter, struct entry, waiter);
    return ea_io_valid(entry->io, entry->number);
}

static bool read_ahead(VALUE io) {
#ifdef HAVE_RB_IO_T_FD
    rb_io_t *fptr = RFILE(io)->fptr;
    return rb_io_read_pending(fptr);
#elif defined(HAVE_RB_IO_BUFFERED_READ_P)
    return rb_io_buffered_read_p(io);
#else
    (void)io;
    return false;
#endif
}

static void add_list(struct ea_select *select, int list) {
    VALUE objects = select->lists[list];
    if (NIL_P(objects))
        return;
    for (long i = 0; i < RARRAY_LEN(objects); i++) {
        struct entry *entry = &select->entries[select->count];
        entry->object = RARRAY_AREF(objects, i);
        entry->io = rb_io_get_io(entry->object);
        if (list == 1)
            entry->io = rb_io_get_write_io(entry->io);
        entry->number = ea_io_number(entry->io);
        entry->list = list;
        entry->buffered = list == 0 && read_ahead(entry->io);
        entry->select = select;
        select->fds[select->count] =
            (struct pollfd){.fd = entry->number, .events = select_events[list]};
        select->count++;
    }
}

static bool any_buffered(const struct ea_select *select) {
    for (size_t i = 0; i < select->count; i++)
        if (select->entries[i].buffered)
            return true;
    return false;
}

/* All at once; but poll(2) refuses more entries than the process may have descriptors (EINVAL), and a
 * descriptor may be in all three lists, and more than once. */
static void ask_kernel(const struct ea_select *select) {
    size_t batch = select->count;
    size_t left;
    for (size_t i = 0; i < select->count; i += left) {
        left = select->count - i < batch ? select->count - i : batch;
        int rc = poll(select->fds + i, (nfds_t)left, 0);
        if (rc >= 0)
            continue;
        if (errno == EINVAL && batch > 1)
            batch /= 2;
        else if (errno != EINTR)
            rb_sys_fail("select");
        left = 0; /* again */
    }
}

/* What is ready now. True if anything is. */
static bool ask(struct ea_select *select) {
    bool any = false;
    ask_kernel(select);
    for (size_t i = 0; i < select->count; i++) {
        struct entry *entry = &select->entries[i];
        short revents = select->fds[i].revents;
        if (revents & POLLNVAL)
            rb_syserr_fail(EBADF, "select");
        /* As select(2): errors and hang-ups are readable and writable. */
        if (entry->list < 2)
            entry->ready = revents != 0 || entry->buffered;
        else
            entry->ready = revents & POLLPRI;
        any |= entry->ready;
    }
    return any;
}

static VALUE answer(const struct ea_select *select) {
    VALUE lists[3] = {rb_ary_new(), rb_ary_new(), rb_ary_new()};
    for (size_t i = 0; i < select->count; i++) {
        const struct entry *entry = &select->entries[i];
        if (entry->ready)
            rb_ary_push(lists[entry->list], entry->object);
    }
    return rb_ary_new_from_values(3, lists);
}

/* Parks all. Returns false if a descriptor turned out to be ready for good. */
static bool park_all(struct ea_select *select) {
    struct ea_scheduler *scheduler = select->fiber->scheduler;
    bool all = true;
    for (size_t i = 0; i < select->count; i++) {
        struct entry *entry = &select->entries[i];
        unsigned flags = EA_PARK_DRY | ea_io_adopt(scheduler, entry->io, entry->number);
        int rc = ea_poll_park(&scheduler->poll, &entry->waiter, entry->number,
                              (unsigned)select_events[entry->list], EA_TIME_NEVER, flags);
        if (rc < 0)
            rb_syserr_fail(-rc, "select");
        if (rc > 0) {
            entry->ready = true;
            all = false;
        }
    }
    return all;
}

static VALUE wait_body(VALUE arg) {
    struct ea_select *select = (struct ea_select *)arg;
    struct ea_fiber *self = select->fiber;
    select->outer = self->select;
    self->select = select;
    if (!park_all(select) || select->woken)
        return Qnil;
    ea_fiber_park(self, EA_WAIT_EVENT, -1, 0, select->deadline, 0);
    return Qnil;
}

static void unpark_all(struct ea_select *select) {
    for (size_t i = 0; i < select->count; i++)
        ea_waiter_wake(&select->entries[i].waiter, EA_WAKE_CANCEL, 0);
}

static VALUE wait_ensure(VALUE arg) {
    struct ea_select *select = (struct ea_select *)arg;
    unpark_all(select);
    if (select->fiber->select == select) /* or it was abandoned */
        select->fiber->select = select->outer;
    return Qnil;
}

void ea_select_abandon(struct ea_select *select) {
    for (; select; select = select->outer)
        unpark_all(select);
}

static bool any_ready(const struct ea_select *select) {
    for (size_t i = 0; i < select->count; i++)
        if (select->entries[i].ready)
            return true;
    return false;
}

static void raise_if_closed(const struct ea_select *select) {
    for (size_t i = 0; i < select->count; i++)
        if (select->entries[i].waiter.reason == EA_WAKE_CLOSED)
            rb_raise(rb_eIOError, "stream closed in another thread");
}

/* call-seq: io_select(readables, writables, exceptables, timeout) -> three arrays, or nil
 *
 * IO.select. nil when timeout seconds passed. */
static VALUE hook_io_select(int argc, VALUE *argv, VALUE self) {
    struct ea_scheduler *scheduler = ea_scheduler_get(self);
    VALUE timeout;
    struct ea_select select = {0};
    size_t total = 0;
    rb_scan_args(argc, argv, "13", &select.lists[0], &select.lists[1], &select.lists[2], &timeout);
    select.deadline = ea_deadline(timeout);
    ea_fiber_account(scheduler, Qfalse); /* it may find something ready each time */
    for (int i = 0; i < 3; i++) {
        if (NIL_P(select.lists[i]))
            continue;
        Check_Type(select.lists[i], T_ARRAY);
        select.lists[i] = rb_ary_dup(select.lists[i]); /* to_io may change it */
        total += (size_t)RARRAY_LEN(select.lists[i]);
    }
    /* The count is of words to mark (and pin): entries hold VALUEs that nobody else may. */
    select.entries = rb_alloc_tmp_buffer_with_count(
        &select.memory, (total + 1) * (sizeof(struct entry) + sizeof(struct pollfd)),
        (total + 1) * sizeof(struct entry) / sizeof(VALUE));
    memset(select.entries, 0, total * sizeof(struct entry));
    select.fds = (struct pollfd *)(select.entries + total);
    select.fiber = ea_fiber_current(scheduler);
    for (size_t i = 0; i < total; i++)
        ea_waiter_init(&select.entries[i].waiter, &scheduler->poll, select_woken);
    for (int i = 0; i < 3; i++)
        add_list(&select, i);
    for (size_t i = 0; i < select.count; i++)
        select.entries[i].waiter.valid = select_valid;

    bool ready = ask(&select);
    if (!ready && !any_buffered(&select) && select.deadline > ea_now()) {
        rb_ensure(wait_body, (VALUE)&select, wait_ensure, (VALUE)&select);
        ready = any_ready(&select);
        if (!ready)
            raise_if_closed(&select);
    }
    VALUE result = ready ? answer(&select) : Qnil;
    rb_free_tmp_buffer(&select.memory);
    return result;
}

void ea_init_select(VALUE klass) {
    rb_define_method(klass, "io_select", hook_io_select, -1);
}
