/* kgio_trywrite, kgio_write, kgio_syssend, Kgio.trywrite: one String, and what was left of it. */
#include "kgio.h"

#include <ruby/thread.h>

#include <errno.h>

static const char *call_name(enum ea_kgio_door door) {
    return door == EA_KGIO_FILE ? "write" : "send";
}

static inline void wrote(VALUE object, enum ea_kgio_door door) {
    if (RB_UNLIKELY(door != EA_KGIO_FILE &&
                    atomic_load_explicit(&ea_kgio_pushing, memory_order_relaxed)))
        ea_kgio_wrote(object);
}

/* Writes string from *done on until it is through (true) or would block (false). Nothing of Ruby's
 * runs between the attempts, so the string stays as it is. */
static bool write_some(VALUE object, VALUE string, long *done, enum ea_kgio_door door) {
    struct ea_known known;
    VALUE io = ea_kgio_begin(object, &known);
    const char *from = RSTRING_PTR(string);
    long len = RSTRING_LEN(string);
    long before = *done;
    ea_result r;
    do {
        r = door == EA_KGIO_FILE ? ea_try_write(&known.fd, from + *done, (size_t)(len - *done))
                                 : ea_try_send(&known.fd, from + *done, (size_t)(len - *done), 0);
        if (ea_is_count(r))
            *done += r;
    } while (ea_is_count(r) && *done < len);
    ea_known_end(&known);
    r = ea_kgio_settled(io, r, FMODE_WRITABLE);
    if (ea_is_error(r))
        ea_kgio_fail(ea_errno(r), call_name(door));
    if (*done > before)
        wrote(object, door);
    return ea_is_count(r);
}

/* The answer after a would-block. */
static VALUE unwritten(VALUE string, long done) {
    return done > 0 ? rb_str_subseq(string, done, RSTRING_LEN(string) - done)
                    : ea_sym_wait_writable;
}

static VALUE try_write(VALUE object, VALUE string, enum ea_kgio_door door) {
    long done = 0;
    string = rb_obj_as_string(string);
    VALUE result = write_some(object, string, &done, door) ? Qnil : unwritten(string, done);
    RB_GC_GUARD(string);
    return result;
}

static VALUE wait_and_write(VALUE object, VALUE string, enum ea_kgio_door door) {
    long done = 0;
    string = rb_obj_as_string(string);
    while (!write_some(object, string, &done, door)) {
        /* Whoever runs meanwhile may change the caller's string, but not this one, which shares its
         * bytes. */
        string = rb_str_new_frozen(string);
        ea_kgio_wait_writable(object);
    }
    RB_GC_GUARD(string);
    return Qnil;
}

/*
 * call-seq:
 *    io.kgio_trywrite(object) -> nil, string or :wait_writable
 *
 * Writes object.to_s, straight to the descriptor, as much of it as can be written without waiting.
 * Returns nil when that was all of it; :wait_writable when it was nothing; else a String with the
 * bytes that are left. Ruby's own write buffer is passed over.
 *
 * Never blocks and never changes the descriptor's mode. IOError for a closed IO, else Errno as
 * write(2); Errno::EPIPE and Errno::ECONNRESET have no backtrace.
 */
static VALUE pipe_trywrite(VALUE self, VALUE string) {
    return try_write(self, string, EA_KGIO_FILE);
}

/*
 * call-seq:
 *    io.kgio_write(object) -> nil
 *
 * As kgio_trywrite, but writes all of it: while there is no room it calls the object's own
 * +kgio_wait_writable+, without arguments, and goes on.
 */
static VALUE pipe_write(VALUE self, VALUE string) {
    return wait_and_write(self, string, EA_KGIO_FILE);
}

/*
 * call-seq:
 *    socket.kgio_trywrite(object) -> nil, string or :wait_writable
 *
 * As PipeMethods#kgio_trywrite, with send(2): Errno::ENOTSOCK for anything but a socket.
 */
static VALUE socket_trywrite(VALUE self, VALUE string) {
    return try_write(self, string, EA_KGIO_SOCKET);
}

/*
 * call-seq:
 *    socket.kgio_write(object) -> nil
 *
 * As kgio_trywrite, but writes all of it: while there is no room it calls the object's own
 * +kgio_wait_writable+, without arguments, and goes on.
 */
static VALUE socket_write(VALUE self, VALUE string) {
    return wait_and_write(self, string, EA_KGIO_SOCKET);
}

/*
 * call-seq:
 *    Kgio.trywrite(io, object) -> nil, string or :wait_writable
 *
 * PipeMethods#kgio_trywrite for any IO (or an object with #to_io), sockets included.
 */
static VALUE s_trywrite(VALUE self, VALUE io, VALUE string) {
    return try_write(io, string, EA_KGIO_FILE);
}

/* --- kgio_syssend. */

struct blocking_send {
    const char *from;
    size_t len;
    ssize_t result;
    int fd, flags, error;
    bool called; /* not so if an interrupt was pending */
};

static void *send_without_gvl(void *data) {
    struct blocking_send *s = data;
    s->called = true;
    s->result = send(s->fd, s->from, s->len, s->flags);
    s->error = errno;
    return NULL;
}

/* send(2) as the caller has it, blocking if that is how the socket is. The string is ours alone. */
static ea_result send_blocking(VALUE object, VALUE string, long done, int flags) {
    struct ea_known known;
    struct blocking_send s = {.flags = flags};
    for (;;) {
        ea_kgio_begin(object, &known); /* after an interrupt it may be closed */
        s.fd = known.fd.fd;
        s.from = RSTRING_PTR(string) + done;
        s.len = (size_t)(RSTRING_LEN(string) - done);
        s.called = false;
        rb_nogvl(send_without_gvl, &s, RUBY_UBF_IO, NULL, RB_NOGVL_INTR_FAIL);
        if (s.called && s.result >= 0)
            return s.result;
        if (s.called && s.error != EINTR)
            return s.error == EAGAIN || s.error == EWOULDBLOCK ? EA_WAIT_WRITABLE : -s.error;
        rb_thread_check_ints();
    }
}

/*
 * call-seq:
 *    socket.kgio_syssend(object, flags) -> nil, string or :wait_writable
 *
 * As kgio_trywrite, with flags for send(2): an Integer of Socket::MSG_*. Without
 * Socket::MSG_DONTWAIT among them, a socket in blocking mode blocks until all is sent, the thread,
 * though not the others: a fiber scheduler has no say in that.
 */
static VALUE kgio_syssend(VALUE self, VALUE object, VALUE flag_value) {
    int flags = NUM2INT(flag_value);
    VALUE string = rb_obj_as_string(object);
    long done = 0;
    ea_result r;
    do {
        struct ea_known known;
        ea_kgio_begin(self, &known);
        r = ea_try_send(&known.fd, RSTRING_PTR(string) + done, (size_t)(RSTRING_LEN(string) - done),
                        flags);
        ea_known_end(&known);
        if (r == EA_WAIT_WRITABLE && !(flags & MSG_DONTWAIT)) {
            string = rb_str_new_frozen(string);
            r = send_blocking(self, string, done, flags);
        }
        if (ea_is_error(r))
            ea_kgio_fail(ea_errno(r), "send");
        if (ea_is_count(r))
            done += r;
    } while (ea_is_count(r) && done < RSTRING_LEN(string));
    if (done > 0)
        wrote(self, EA_KGIO_SOCKET);
    VALUE result = ea_is_count(r) ? Qnil : unwritten(string, done);
    RB_GC_GUARD(string);
    return result;
}

void ea_kgio_define_write(const struct ea_kgio_modules *m) {
    rb_define_method(m->pipe_methods, "kgio_trywrite", pipe_trywrite, 1);
    rb_define_method(m->pipe_methods, "kgio_write", pipe_write, 1);
    rb_define_method(m->socket_methods, "kgio_trywrite", socket_trywrite, 1);
    rb_define_method(m->socket_methods, "kgio_write", socket_write, 1);
    rb_define_method(m->socket_methods, "kgio_syssend", kgio_syssend, 2);
    rb_define_singleton_method(m->kgio, "trywrite", s_trywrite, 2);
}
