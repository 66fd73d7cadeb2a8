/* Kgio::DefaultWaiters: how kgio_read and the others wait, unless a class has its own way. */
#include "kgio.h"

/* seconds: nil, or as for Kernel#sleep. */
static int64_t deadline_of(VALUE seconds) {
    if (NIL_P(seconds))
        return EA_TIME_NEVER;
    struct timeval interval = rb_time_interval(seconds);
    int64_t now = ea_now();
    if (interval.tv_sec >= (EA_TIME_NEVER - now) / 1000000000 - 1)
        return EA_TIME_NEVER;
    return now + (int64_t)interval.tv_sec * 1000000000 + (int64_t)interval.tv_usec * 1000;
}

static VALUE wait_for(VALUE self, int argc, const VALUE *argv, unsigned events) {
    struct ea_known known;
    rb_check_arity(argc, 0, 1);
    int64_t deadline = deadline_of(argc > 0 ? argv[0] : Qnil);
    VALUE io = ea_kgio_begin(self, &known);
    return ea_wait_untried(io, events, deadline) ? self : Qnil;
}

/*
 * call-seq:
 *    io.kgio_wait_readable(timeout = nil) -> self or nil
 *
 * Waits until the IO is readable: the fiber if there is a fiber scheduler, else the thread. nil
 * when +timeout+ seconds, Integer, Float or Rational, passed first. What Ruby has read ahead does
 * not count.
 *
 * kgio_read, kgio_read!, kgio_peek call this, without an argument, when there is nothing to read.
 * Classes and single objects may have their own.
 *
 * Raises IOError when the IO is closed, or is while it waits.
 */
static VALUE wait_readable(int argc, VALUE *argv, VALUE self) {
    return wait_for(self, argc, argv, EA_READABLE);
}

/*
 * call-seq:
 *    io.kgio_wait_writable(timeout = nil) -> self or nil
 *
 * As kgio_wait_readable, until the IO is writable. kgio_write, kgio_writev and the connecting
 * constructors call this.
 */
static VALUE wait_writable(int argc, VALUE *argv, VALUE self) {
    return wait_for(self, argc, argv, EA_WRITABLE);
}

void ea_kgio_define_wait(const struct ea_kgio_modules *m) {
    rb_define_method(m->waiters, "kgio_wait_readable", wait_readable, -1);
    rb_define_method(m->waiters, "kgio_wait_writable", wait_writable, -1);
}
