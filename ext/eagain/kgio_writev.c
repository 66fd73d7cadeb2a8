/* kgio_trywritev, kgio_writev, Kgio.trywritev: many Strings, and what was left of them. */
#include "kgio.h"

#include <limits.h>

/* How many go into one writev(2). Less than IOV_MAX, for the stack's sake. */
#define AT_ONCE 256

/* What is still to be written: strings[index..], the first without its first `done` bytes. */
struct rest {
    VALUE strings; /* an Array of Strings */
    long index, done;
    bool any; /* was anything written? */
};

static int collect(const struct rest *rest, struct iovec *iov, size_t *total) {
    int count = 0;
    long done = rest->done;
    *total = 0;
    for (long i = rest->index; i < RARRAY_LEN(rest->strings) && count < AT_ONCE; i++, done = 0) {
        VALUE string = RARRAY_AREF(rest->strings, i);
        size_t len = (size_t)(RSTRING_LEN(string) - done);
        if (len == 0)
            continue;
        iov[count++] = (struct iovec){RSTRING_PTR(string) + done, len};
        *total += len;
    }
    return count;
}

static void advance(struct rest *rest, size_t written) {
    while (rest->index < RARRAY_LEN(rest->strings)) {
        VALUE string = RARRAY_AREF(rest->strings, rest->index);
        size_t len = (size_t)(RSTRING_LEN(string) - rest->done);
        if (written < len) {
            rest->done += (long)written;
            return;
        }
        written -= len;
        rest->index++;
        rest->done = 0;
    }
}

/* Writes until all is through (true) or would block (false). Nothing of Ruby's runs between the
 * attempts, so the strings stay as they are. */
static bool write_some(VALUE object, struct rest *rest) {
    struct iovec iov[AT_ONCE];
    struct ea_known known;
    size_t total;
    int count;
    ea_result r = 0;

    VALUE io = ea_kgio_begin(object, &known);
    while ((count = collect(rest, iov, &total)) > 0) {
        r = ea_try_writev(&known.fd, iov, count);
        if (!ea_is_count(r))
            break;
        rest->any = true;
        advance(rest, (size_t)r);
    }
    ea_known_end(&known);
    r = ea_kgio_settled(io, r, FMODE_WRITABLE);
    if (ea_is_error(r))
        ea_kgio_fail(ea_errno(r), "writev");
    if (RB_UNLIKELY(rest->any && atomic_load_explicit(&ea_kgio_pushing, memory_order_relaxed)))
        ea_kgio_wrote(object);
    return ea_is_count(r);
}

static VALUE as_string(RB_BLOCK_CALL_FUNC_ARGLIST(object, data)) {
    return rb_obj_as_string(object);
}

/* The strings of Array(objects). Only what is no String yet makes a new Array. */
static VALUE to_strings(VALUE objects) {
    VALUE array = rb_Array(objects);
    for (long i = 0; i < RARRAY_LEN(array); i++) {
        if (!RB_TYPE_P(RARRAY_AREF(array, i), T_STRING))
            return rb_block_call(rb_ary_dup(array), rb_intern("map"), 0, NULL, as_string, Qnil);
    }
    return array;
}

/* Of our own, so that others may do with theirs what they like. */
static void keep(struct rest *rest) {
    VALUE kept = rb_ary_new();
    for (long i = rest->index; i < RARRAY_LEN(rest->strings); i++)
        rb_ary_push(kept, rb_str_new_frozen(RARRAY_AREF(rest->strings, i)));
    rest->strings = kept;
    rest->index = 0;
}

static VALUE unwritten(const struct rest *rest) {
    if (!rest->any)
        return ea_sym_wait_writable;
    VALUE left = rb_ary_subseq(rest->strings, rest->index, RARRAY_LEN(rest->strings) - rest->index);
    if (rest->done > 0) {
        VALUE first = RARRAY_AREF(left, 0);
        rb_ary_store(left, 0, rb_str_subseq(first, rest->done, RSTRING_LEN(first) - rest->done));
    }
    return left;
}

static VALUE try_writev(VALUE object, VALUE objects) {
    struct rest rest = {.strings = to_strings(objects)};
    VALUE result = write_some(object, &rest) ? Qnil : unwritten(&rest);
    RB_GC_GUARD(rest.strings);
    return result;
}

/*
 * call-seq:
 *    io.kgio_trywritev(objects) -> nil, array or :wait_writable
 *
 * Writes the Strings (other objects: to_s) of Array(objects) one after the other, as writev(2), as
 * much of them as can be written without waiting. Returns nil when that was all; :wait_writable
 * when it was nothing; else an Array of Strings that holds what is left. Ruby's own write buffer is
 * passed over.
 *
 * Never blocks and never changes the descriptor's mode. IOError for a closed IO, else Errno as
 * writev(2); Errno::EPIPE and Errno::ECONNRESET have no backtrace.
 */
static VALUE kgio_trywritev(VALUE self, VALUE objects) {
    return try_writev(self, objects);
}

/*
 * call-seq:
 *    io.kgio_writev(objects) -> nil
 *
 * As kgio_trywritev, but writes all of it: while there is no room it calls the object's own
 * +kgio_wait_writable+, without arguments, and goes on.
 */
static VALUE kgio_writev(VALUE self, VALUE objects) {
    struct rest rest = {.strings = to_strings(objects)};
    bool kept = false;
    while (!write_some(self, &rest)) {
        if (!kept)
            keep(&rest);
        kept = true;
        ea_kgio_wait_writable(self);
    }
    RB_GC_GUARD(rest.strings);
    return Qnil;
}

/*
 * call-seq:
 *    Kgio.trywritev(io, objects) -> nil, array or :wait_writable
 *
 * PipeMethods#kgio_trywritev for any IO (or an object with #to_io), sockets included.
 */
static VALUE s_trywritev(VALUE self, VALUE io, VALUE objects) {
    return try_writev(io, objects);
}

void ea_kgio_define_writev(const struct ea_kgio_modules *m) {
    rb_define_method(m->pipe_methods, "kgio_trywritev", kgio_trywritev, 1);
    rb_define_method(m->pipe_methods, "kgio_writev", kgio_writev, 1);
    rb_define_method(m->socket_methods, "kgio_trywritev", kgio_trywritev, 1);
    rb_define_method(m->socket_methods, "kgio_writev", kgio_writev, 1);
    rb_define_singleton_method(m->kgio, "trywritev", s_trywritev, 2);
}
