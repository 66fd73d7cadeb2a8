/* Waiting for one IO, whoever waits: a fiber of Eagain::Scheduler is parked by its poller, without the
 * detour of a hook; a fiber of another scheduler by that one's io_wait; and where there is no scheduler,
 * the thread sleeps in rb_io_wait(), without the GVL, until the IO is ready or closed, a signal comes or
 * another thread raises in it.
 *
 * A deadline is a time of the monotonic clock in ns (ea_now()). Wake-ups that tell of nothing are waited
 * out here, so that 0 events always mean that the deadline has passed. */
#include "calls.h"
#include "scheduler.h"

#include <ruby/fiber/scheduler.h>

#include <errno.h>

/* A wait for ever, where Ruby must be given a number of seconds. */
#define AGES 1e9

static VALUE timeout_error;   /* Eagain::TimeoutError */
static VALUE scheduler_class; /* Eagain::Scheduler */
static ID id_written, accept_options[2];

/* --- Deadlines. */

int64_t ea_deadline_of(VALUE timeout) {
    if (RB_TYPE_P(timeout, T_BIGNUM) && rb_big_cmp(timeout, INT2FIX(0)) == INT2FIX(1))
        return EA_TIME_NEVER;
    return ea_deadline(timeout);
}

/* The seconds until deadline, not less: Ruby cuts off what is below a microsecond. */
static VALUE seconds_until(int64_t deadline) {
    if (deadline == EA_TIME_NEVER)
        return DBL2NUM(AGES);
    double left = (double)(deadline - ea_now()) / 1e9 + 1e-6;
    return DBL2NUM(left < 0 ? 0 : left > AGES ? AGES : left);
}

static bool is_over(int64_t deadline) {
    return deadline != EA_TIME_NEVER && deadline <= ea_now();
}

static VALUE timeout_of(VALUE io) {
#ifdef HAVE_RB_IO_TIMEOUT
    return rb_io_timeout(io);
#else
    (void)io;
    return Qnil;
#endif
}

/* --- Waiting. */

/* The running fiber's scheduler if it is one of ours, whose #io_wait nobody has replaced, and runs this
 * thread; NULL otherwise. */
static struct ea_scheduler *own_scheduler(VALUE scheduler) {
    if (CLASS_OF(scheduler) != scheduler_class)
        return NULL;
    struct ea_scheduler *own = ea_scheduler_get(scheduler);
    return own->thread && own->thread != rb_thread_current() ? NULL : own;
}

static unsigned ready_events(VALUE ready, unsigned events) {
    if (!RTEST(ready))
        return 0;
    unsigned mask = RB_INTEGER_TYPE_P(ready) ? NUM2UINT(ready) & events : 0;
    return mask ? mask : events; /* an error or a hang-up is found by trying */
}

/* A scheduler of somebody else's need not notice that an IO is closed. */
static void check_still_open(VALUE io, int number) {
    if (!ea_io_valid(io, number))
        rb_raise(rb_eIOError, "stream closed in another thread");
}

static unsigned wait_with_scheduler(VALUE scheduler, VALUE io, unsigned events, int64_t deadline) {
    int number = ea_io_number(io);
    for (;;) {
        VALUE left = deadline == EA_TIME_NEVER ? Qnil : seconds_until(deadline);
        VALUE ready = rb_fiber_scheduler_io_wait(scheduler, io, UINT2NUM(events), left);
        check_still_open(io, number);
        if (RTEST(ready))
            return ready_events(ready, events);
        if (is_over(deadline))
            return 0;
    }
}

/* Ruby 3.3 on its own M:N threads says "timeout" of any wake-up. */
static unsigned wait_in_thread(VALUE io, unsigned events, int64_t deadline) {
    for (;;) {
        /* nil is "for ever", but IO#timeout where there is one. */
        bool for_ever = deadline == EA_TIME_NEVER && NIL_P(timeout_of(io));
        VALUE ready = rb_io_wait(io, UINT2NUM(events), for_ever ? Qnil : seconds_until(deadline));
        if (RTEST(ready))
            return ready_events(ready, events);
        if (is_over(deadline))
            return 0;
        ea_result now = ea_try_poll(ea_io_number(io), events);
        if (now > 0)
            return ready_events(INT2NUM((int)now), events);
    }
}

/* flags: enum ea_park_flag. */
static unsigned wait_for(VALUE io, unsigned events, int64_t deadline, unsigned flags) {
    if (events == EA_WRITABLE)
        io = rb_io_get_write_io(io);
    int number = ea_io_number(io);
    if (is_over(deadline))
        return 0;
    VALUE scheduler = rb_fiber_scheduler_current();
    if (NIL_P(scheduler))
        return wait_in_thread(io, events, deadline);
    struct ea_scheduler *own = own_scheduler(scheduler);
    if (!own)
        return wait_with_scheduler(scheduler, io, events, deadline);
    unsigned ready = ea_io_park(ea_fiber_current(own), io, number, events, deadline, flags);
    RB_GC_GUARD(io);
    return ready && !(ready & events) ? events : ready & events;
}

unsigned ea_wait(VALUE io, unsigned events, int64_t deadline) {
    return wait_for(io, events, deadline, EA_PARK_DRY);
}

atomic_bool ea_wait_schedulers;

struct ea_scheduler *ea_scheduler_running(void) {
    VALUE scheduler = rb_fiber_scheduler_current();
    if (NIL_P(scheduler) || CLASS_OF(scheduler) != scheduler_class)
        return NULL;
    return ea_scheduler_is_open(scheduler) ? own_scheduler(scheduler) : NULL;
}

_Thread_local unsigned ea_wait_ticks;

/* As many transfers have gone by. */
void ea_wait_account_in_scheduler(VALUE *string) {
    struct ea_scheduler *own = ea_scheduler_running();
    if (!own)
        return;
    own->transfers += EA_WAIT_TICKS - 1;
    if (string && ea_fiber_accounts(own))
        *string = rb_str_new_frozen(*string);
    ea_fiber_account(own, Qfalse);
}

bool ea_wait_accounts(void) {
    if (!atomic_load_explicit(&ea_wait_schedulers, memory_order_relaxed) ||
        (ea_wait_ticks + 1) % EA_WAIT_TICKS != 0)
        return false;
    struct ea_scheduler *own = ea_scheduler_running();
    if (!own)
        return false;
    own->transfers += EA_WAIT_TICKS - 1;
    bool accounts = ea_fiber_accounts(own);
    own->transfers -= EA_WAIT_TICKS - 1;
    return accounts;
}

void ea_wait_expire(size_t written) {
    VALUE error = rb_exc_new_cstr(timeout_error, "Blocking operation timed out!");
    rb_ivar_set(error, id_written, SIZET2NUM(written));
    rb_exc_raise(error);
}

static int64_t deadline_or_own(VALUE io, int64_t deadline) {
    return deadline == EA_TIME_NEVER ? ea_deadline_of(timeout_of(io)) : deadline;
}

bool ea_wait_after(VALUE io, ea_result blocked, int64_t deadline) {
    unsigned events = blocked == EA_WAIT_READABLE ? EA_READABLE : EA_WRITABLE;
    return ea_wait(io, events, deadline_or_own(io, deadline)) != 0;
}

void ea_wait_again(VALUE io, ea_result blocked, int64_t deadline, size_t written) {
    if (!ea_wait_after(io, blocked, deadline))
        ea_wait_expire(written);
}

void ea_wait_for(VALUE io, unsigned events, int64_t deadline, size_t written) {
    if (!ea_wait(io, events, deadline_or_own(io, deadline)))
        ea_wait_expire(written);
}

/* --- For blocking.rb, hidden. */

/* timeout in seconds -> its deadline, for await. */
static VALUE s_deadline(VALUE self, VALUE timeout) {
    return LL2NUM(ea_deadline_of(timeout));
}

/* After an answer of :wait_readable or :wait_writable: waits for it. limit: a deadline, or nil: as
 * IO#timeout says. Raises TimeoutError, which says how many bytes were written. */
static VALUE s_await(VALUE self, VALUE io, VALUE answer, VALUE limit, VALUE written) {
    ea_result blocked = answer == ea_sym_wait_readable ? EA_WAIT_READABLE : EA_WAIT_WRITABLE;
    int64_t deadline = NIL_P(limit) ? EA_TIME_NEVER : NUM2LL(limit);
    ea_wait_again(ea_to_io(io), blocked, deadline, NUM2SIZET(written));
    return Qnil;
}

static VALUE s_expire(VALUE self, VALUE written) {
    ea_wait_expire(NUM2SIZET(written));
}

/* Before an attempt: others may run, where this fiber has gone on without a wait for long. */
static VALUE s_account(VALUE self) {
    ea_wait_account();
    return Qnil;
}

/* Might others run in the next account? Then what they could change is to be copied before it. */
static VALUE s_accounts(VALUE self) {
    return ea_wait_accounts() ? Qtrue : Qfalse;
}

/* --- Public. */

static void check_readable(VALUE io, bool *pending) {
    rb_io_t *fptr;
    GetOpenFile(io, fptr);
    rb_io_check_char_readable(fptr);
    *pending = rb_io_read_pending(fptr);
}

static void check_writable(VALUE io) {
    rb_io_t *fptr;
    GetOpenFile(rb_io_get_write_io(io), fptr);
    rb_io_check_writable(fptr);
}

unsigned ea_wait_untried(VALUE io, unsigned events, int64_t deadline) {
    deadline = deadline_or_own(io, deadline);
    if (is_over(deadline)) { /* it was 0, or nearly so: a look */
        int number = ea_io_number(events == EA_WRITABLE ? rb_io_get_write_io(io) : io);
        ea_result ready = ea_try_poll(number, events);
        if (ea_is_error(ready))
            rb_syserr_fail(ea_errno(ready), "poll(2)");
        return ready > 0 ? ready_events(INT2NUM((int)ready), events) : 0;
    }
    return wait_for(io, events, deadline, 0);
}

static unsigned wait_public(VALUE io, unsigned events, VALUE timeout) {
    return ea_wait_untried(io, events, ea_deadline_of(timeout));
}

/* call-seq: Eagain.wait_readable(io, timeout = nil) -> io, or nil
 *
 * Waits until io has something to read, Ruby's read buffer included, or is at its end; nil when timeout
 * seconds passed first (nil: IO#timeout if the IO has one, else for ever; 0: does not wait). A fiber of
 * a scheduler lets the others run, a thread the other threads.
 *
 * Errors: IOError when io is not opened for reading, is closed, or is closed meanwhile; ArgumentError for
 * a negative timeout, TypeError for what is no number. */
static VALUE s_wait_readable(int argc, VALUE *argv, VALUE self) {
    rb_check_arity(argc, 1, 2);
    VALUE io = ea_to_io(argv[0]);
    bool pending;
    check_readable(io, &pending);
    if (pending)
        return argv[0];
    return wait_public(io, EA_READABLE, argc > 1 ? argv[1] : Qnil) ? argv[0] : Qnil;
}

/* call-seq: Eagain.wait_writable(io, timeout = nil) -> io, or nil
 *
 * Waits until io takes more. As ::wait_readable otherwise. */
static VALUE s_wait_writable(int argc, VALUE *argv, VALUE self) {
    rb_check_arity(argc, 1, 2);
    VALUE io = ea_to_io(argv[0]);
    check_writable(io);
    return wait_public(io, EA_WRITABLE, argc > 1 ? argv[1] : Qnil) ? argv[0] : Qnil;
}

/* call-seq: Eagain.wait(io, events, timeout = nil) -> Integer, or nil
 *
 * Waits for any of the events (IO::READABLE, IO::PRIORITY, IO::WRITABLE, or-ed) and returns those that are
 * there; nil when timeout seconds passed first. Where Ruby has read ahead, that is IO::READABLE. As
 * wait_readable otherwise, but for the direction in which io is opened, which is not looked at. */
static VALUE s_wait(int argc, VALUE *argv, VALUE self) {
    rb_check_arity(argc, 2, 3);
    int events = NUM2INT(argv[1]);
    VALUE io = ea_to_io(argv[0]);
    if (events <= 0)
        rb_raise(rb_eArgError, "Events must be positive integer!");
    rb_io_t *fptr;
    GetOpenFile(io, fptr);
    if (events & EA_READABLE && rb_io_read_pending(fptr))
        return INT2FIX(EA_READABLE);
    unsigned ready = wait_public(io, (unsigned)events, argc > 2 ? argv[2] : Qnil);
    return ready ? UINT2NUM(ready) : Qnil;
}

/* call-seq: Eagain.accept(server, class: nil, timeout: nil) -> socket
 *
 * Accepts a connection, or waits for one: a socket of the class that the server's own accept has, or of
 * the given one. As ::tryaccept otherwise, with its errors. With timeout: in seconds, TimeoutError when it is
 * over. */
static VALUE s_accept(int argc, VALUE *argv, VALUE self) {
    VALUE server, options, values[2] = {Qundef, Qundef};
    rb_scan_args(argc, argv, "1:", &server, &options);
    if (!NIL_P(options))
        rb_get_kwargs(options, accept_options, 0, 2, values);
    VALUE klass = values[0] == Qundef ? Qnil : values[0];
    int64_t deadline = ea_deadline_of(values[1] == Qundef ? Qnil : values[1]);
    server = ea_to_io(server);
    for (;;) {
        ea_wait_account();
        VALUE socket = ea_tryaccept(server, klass, NULL);
        if (socket != ea_sym_wait_readable)
            return socket;
        ea_wait_again(server, EA_WAIT_READABLE, deadline, 0);
    }
}

/* call-seq: written -> Integer
 *
 * How many bytes were written before, in part of what was to be; 0 of calls that do not write. */
static VALUE error_written(VALUE self) {
    VALUE written = rb_attr_get(self, id_written);
    return NIL_P(written) ? INT2FIX(0) : written;
}

static VALUE timeout_superclass(void) {
    ID name = rb_intern("TimeoutError");
    if (rb_const_defined_at(rb_cIO, name))
        return rb_const_get_at(rb_cIO, name);
    rb_require("timeout");
    return rb_path2class("Timeout::Error");
}

void ea_init_wait(VALUE module) {
    id_written = rb_intern("@written");
    accept_options[0] = rb_intern("class");
    accept_options[1] = rb_intern("timeout");
    scheduler_class = rb_const_get(module, rb_intern("Scheduler"));
    rb_gc_register_mark_object(scheduler_class);
    timeout_error = rb_define_class_under(module, "TimeoutError", timeout_superclass());
    rb_gc_register_mark_object(timeout_error);
    rb_define_method(timeout_error, "written", error_written, 0);

    rb_define_singleton_method(module, "wait_readable", s_wait_readable, -1);
    rb_define_singleton_method(module, "wait_writable", s_wait_writable, -1);
    rb_define_singleton_method(module, "wait", s_wait, -1);
    rb_define_singleton_method(module, "accept", s_accept, -1);
    VALUE hidden = rb_singleton_class(module);
    rb_define_private_method(hidden, "deadline", s_deadline, 1);
    rb_define_private_method(hidden, "await", s_await, 4);
    rb_define_private_method(hidden, "expire", s_expire, 1);
    rb_define_private_method(hidden, "account", s_account, 0);
    rb_define_private_method(hidden, "accounts?", s_accounts, 0);
}
