/* Kgio.poll: poll(2) over a Hash. */
#include "kgio.h"

#include <ruby/fiber/scheduler.h>
#include <ruby/thread.h>

#include <errno.h>
#include <poll.h>

static ID id_keys, id_value, id_kill;

struct poll_call {
    struct pollfd *fds;
    nfds_t count;
    int timeout; /* milliseconds, -1: for ever */
    int result, error;
    bool called; /* not so if an interrupt was pending */
};

static void *poll_without_gvl(void *data) {
    struct poll_call *call = data;
    call->called = true;
    call->result = poll(call->fds, call->count, call->timeout);
    call->error = errno;
    return NULL;
}

static short events_of(VALUE value) {
    if (value == ea_sym_wait_readable)
        return POLLIN;
    if (value == ea_sym_wait_writable)
        return POLLOUT;
    if (!FIXNUM_P(value))
        rb_raise(rb_eArgError,
                 "neither :wait_readable, :wait_writable nor a mask of events: %+" PRIsVALUE,
                 value);
    return (short)FIX2LONG(value);
}

static int timeout_of(VALUE value) {
    if (NIL_P(value))
        return -1;
    if (!RB_INTEGER_TYPE_P(value))
        rb_raise(rb_eTypeError, "timeout must be an Integer of milliseconds, or nil");
    return NUM2INT(value);
}

/* An IO that was closed meanwhile has no number any more, or somebody else's. */
static int number_of(VALUE io) {
    const rb_io_t *fptr = RFILE(io)->fptr;
    return fptr && fptr->fd >= 0 ? fptr->fd : -1;
}

/* Waits, through interrupts. The numbers are looked up again after each. */
static void wait_without_gvl(struct poll_call *call, VALUE ios) {
    int64_t deadline =
        call->timeout < 0 ? EA_TIME_NEVER : ea_now() + call->timeout * INT64_C(1000000);
    for (;;) {
        call->called = false;
        rb_nogvl(poll_without_gvl, call, RUBY_UBF_IO, NULL, RB_NOGVL_INTR_FAIL);
        if (call->called && (call->result >= 0 || call->error != EINTR))
            return;
        rb_thread_check_ints();
        call->result = 0;
        for (nfds_t i = 0; i < call->count; i++) {
            if (number_of(RARRAY_AREF(ios, (long)i)) != call->fds[i].fd) {
                call->fds[i].revents = POLLNVAL;
                call->result++;
            }
        }
        if (call->result > 0)
            return;
        if (call->timeout >= 0) {
            int64_t left = deadline - ea_now();
            call->timeout = left > 0 ? (int)((left + 999999) / 1000000) : 0;
        }
    }
}

/* Under a fiber scheduler the waiting is done by a thread, which has none. */
static VALUE poll_in_thread(void *arguments) {
    VALUE *pair = (VALUE *)RARRAY_CONST_PTR((VALUE)arguments);
    return rb_funcallv(pair[0], rb_intern("poll"), 2, pair + 1);
}

static VALUE thread_value(VALUE thread) {
    return rb_funcallv(thread, id_value, 0, NULL);
}

static VALUE thread_kill(VALUE thread) {
    return rb_funcallv(thread, id_kill, 0, NULL);
}

static VALUE fill(VALUE hash, VALUE keys, const struct poll_call *call) {
    rb_hash_clear(hash);
    for (nfds_t i = 0; i < call->count; i++) {
        if (call->fds[i].revents)
            rb_hash_aset(hash, RARRAY_AREF(keys, (long)i), INT2FIX(call->fds[i].revents));
    }
    return hash;
}

/*
 * call-seq:
 *    Kgio.poll(hash, timeout = nil) -> hash or nil
 *
 * Waits, as poll(2), for the keys of the Hash, IOs or objects with #to_io. The values say for what:
 * :wait_readable, :wait_writable, or an Integer of Kgio::POLLIN, POLLPRI, POLLOUT, POLLRDHUP.
 * Returns the same Hash, in which now are the objects for which something happened, with an Integer
 * of what, Kgio::POLLERR, POLLHUP and POLLNVAL included; nil, and the Hash as it was, when
 * +timeout+ milliseconds, an Integer, passed first.
 *
 * Other threads run meanwhile, and other fibers, if there is a fiber scheduler: the waiting is done
 * by another thread then. Signals do not end it. What Ruby has read ahead does not count.
 *
 * Raises TypeError for a timeout that is no Integer, ArgumentError for a value that is not as
 * above, IOError when an IO is closed.
 */
static VALUE s_poll(int argc, VALUE *argv, VALUE self) {
    struct poll_call call = {0};
    VALUE store, hash, ios = rb_ary_new(), result = Qnil;

    rb_check_arity(argc, 1, 2);
    hash = argv[0];
    Check_Type(hash, T_HASH);
    int timeout = timeout_of(argc > 1 ? argv[1] : Qnil);
    VALUE keys = rb_funcallv(hash, id_keys, 0, NULL);
    long count = RARRAY_LEN(keys);
    call.fds = ALLOCV_N(struct pollfd, store, count > 0 ? count : 1);
    for (long i = 0; i < count; i++) {
        VALUE key = RARRAY_AREF(keys, i);
        call.fds[i] = (struct pollfd){.events = events_of(rb_hash_lookup(hash, key))};
        rb_ary_push(ios, ea_to_io(key));
    }
    /* No code of others from here on: the numbers are true. */
    call.count = (nfds_t)RARRAY_LEN(ios);
    for (long i = 0; i < count; i++) {
        rb_io_t *fptr;
        GetOpenFile(RARRAY_AREF(ios, i), fptr);
        call.fds[i].fd = fptr->fd;
    }
    poll_without_gvl(&call);
    if (call.result < 0 && call.error == EINTR)
        call.result = 0;
    if (call.result == 0 && timeout != 0) {
        if (!NIL_P(rb_fiber_scheduler_current())) {
            VALUE arguments = rb_ary_new_from_args(3, self, hash, argc > 1 ? argv[1] : Qnil);
            VALUE thread = rb_thread_create(poll_in_thread, (void *)arguments);
            rb_funcall(thread, rb_intern("report_on_exception="), 1, Qfalse);
            result = rb_ensure(thread_value, thread, thread_kill, thread);
            RB_GC_GUARD(arguments);
            ALLOCV_END(store);
            return result;
        }
        call.timeout = timeout;
        wait_without_gvl(&call, ios);
    }
    if (call.result < 0)
        rb_syserr_fail(call.error, "poll");
    if (call.result > 0)
        result = fill(hash, keys, &call);
    ALLOCV_END(store);
    RB_GC_GUARD(ios);
    RB_GC_GUARD(keys);
    return result;
}

void ea_kgio_define_poll(const struct ea_kgio_modules *m) {
    id_keys = rb_intern("keys");
    id_value = rb_intern("value");
    id_kill = rb_intern("kill");
    rb_define_singleton_method(m->kgio, "poll", s_poll, -1);
    rb_define_const(m->kgio, "POLLIN", INT2FIX(POLLIN));
    rb_define_const(m->kgio, "POLLPRI", INT2FIX(POLLPRI));
    rb_define_const(m->kgio, "POLLOUT", INT2FIX(POLLOUT));
    rb_define_const(m->kgio, "POLLERR", INT2FIX(POLLERR));
    rb_define_const(m->kgio, "POLLHUP", INT2FIX(POLLHUP));
    rb_define_const(m->kgio, "POLLNVAL", INT2FIX(POLLNVAL));
#ifdef POLLRDHUP
    rb_define_const(m->kgio, "POLLRDHUP", INT2FIX(POLLRDHUP));
#endif
}
