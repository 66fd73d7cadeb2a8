/* kgio_tryread, kgio_read, kgio_read!, kgio_trypeek, kgio_peek, Kgio.tryread, Kgio.trypeek.
 *
 * With a buffer, the bytes go into it, at its start; without, into a scratch outside of Ruby's
 * heap, so that a would-block allocates nothing, and a String is made of what came. */
#include "kgio.h"
#include "scratch.h"

#include <errno.h>
#include <sys/stat.h>
#include <unistd.h>

/* Longer reads without a buffer go to the thread's scratch. */
#define STACK_SCRATCH 16384

static const char *call_name(enum ea_kgio_door door) {
    switch (door) {
    case EA_KGIO_SOCKET:
        return "recv";
    case EA_KGIO_PEEK:
        return "recv(MSG_PEEK)";
    default:
        return "read";
    }
}

/* A file that is not in the page cache: nothing will ever announce it, and kgio's callers do not
 * expect to wait for it; so it is read, as read(2) does. */
static ea_result read_file(VALUE io, const struct ea_known *known, char *to, size_t len) {
    struct stat st;
    if (!RTEST(rb_obj_is_kind_of(io, rb_cFile)) || fstat(known->fd.fd, &st) != 0 ||
        !S_ISREG(st.st_mode))
        return EA_WAIT_READABLE;
    ssize_t r;
    do
        r = read(known->fd.fd, to, len);
    while (r < 0 && errno == EINTR);
    return r < 0 ? -errno : r;
}

/* One attempt. len > 0. Raises nothing. */
static inline ea_result attempt(VALUE io, struct ea_known *known, char *to, size_t len,
                                enum ea_kgio_door door) {
    ea_result r;
    if (door == EA_KGIO_FILE) {
        r = ea_try_read(&known->fd, to, len);
        if (RB_UNLIKELY(r == EA_WAIT_READABLE && (known->fd.known & EA_FD_NOWAIT)))
            r = read_file(io, known, to, len);
        r = ea_kgio_settled(io, r, FMODE_READABLE);
    } else {
        r = ea_try_recv(&known->fd, to, len, door == EA_KGIO_PEEK ? MSG_PEEK : 0);
    }
    ea_known_end(known);
    return r;
}

/* What the caller gets, but for bytes. */
static inline VALUE answer(ea_result r, enum ea_kgio_door door) {
    if (r == EA_WAIT_READABLE)
        return ea_sym_wait_readable;
    if (r == EA_EOF || r == 0) /* an empty datagram, too */
        return Qnil;
    ea_kgio_fail(ea_errno(r), call_name(door));
}

static inline void push_before(VALUE object, enum ea_kgio_door door) {
    if (RB_UNLIKELY(door != EA_KGIO_FILE &&
                    atomic_load_explicit(&ea_kgio_pushing, memory_order_relaxed)))
        ea_kgio_push(object);
}

static VALUE read_new(VALUE object, size_t len, enum ea_kgio_door door) {
    char stack[STACK_SCRATCH], *scratch = stack;
    struct ea_known known;

    push_before(object, door);
    VALUE io = ea_kgio_begin(object, &known);
    if (len == 0)
        return rb_str_new(NULL, 0);
    if (len > sizeof(stack))
        scratch = ea_scratch(len);
    ea_result r = attempt(io, &known, scratch, len, door);
    VALUE result = RB_LIKELY(r > 0) ? rb_str_new(scratch, r) : Qundef;
    if (scratch != stack)
        ea_scratch_done(r > 0 ? (size_t)r : 0);
    return result == Qundef ? answer(r, door) : result;
}

static VALUE read_into(VALUE object, VALUE buffer, size_t len, enum ea_kgio_door door) {
    struct ea_known known;

    push_before(object, door);
    VALUE io = ea_kgio_begin(object, &known); /* to_io may run code, so the buffer comes after */
    ea_buffer_room(buffer, (long)len);
    ea_result r = len > 0 ? attempt(io, &known, RSTRING_PTR(buffer), len, door) : 0;
    ea_buffer_set_length(buffer, r > 0 ? r : 0);
    return r > 0 || len == 0 ? buffer : answer(r, door);
}

struct arguments {
    VALUE buffer;
    size_t len;
};

static void parse(int argc, const VALUE *argv, struct arguments *a) {
    rb_check_arity(argc, 1, 2);
    long len = NUM2LONG(argv[0]);
    if (len < 0)
        rb_raise(rb_eArgError, "negative length %ld given", len);
    a->len = (size_t)len;
    a->buffer = argc > 1 ? argv[1] : Qnil;
    if (!NIL_P(a->buffer))
        StringValue(a->buffer);
}

static VALUE read_once(VALUE object, const struct arguments *a, enum ea_kgio_door door) {
    return NIL_P(a->buffer) ? read_new(object, a->len, door)
                            : read_into(object, a->buffer, a->len, door);
}

static VALUE try_read(VALUE object, int argc, const VALUE *argv, enum ea_kgio_door door) {
    struct arguments a;
    parse(argc, argv, &a);
    return read_once(object, &a, door);
}

static VALUE wait_and_read(VALUE object, int argc, const VALUE *argv, enum ea_kgio_door door) {
    struct arguments a;
    parse(argc, argv, &a);
    for (;;) {
        VALUE result = read_once(object, &a, door);
        if (result != ea_sym_wait_readable)
            return result;
        ea_kgio_wait_readable(object);
    }
}

static VALUE or_end_of_file(VALUE result) {
    if (NIL_P(result))
        ea_kgio_end_of_file();
    return result;
}

/*
 * call-seq:
 *    io.kgio_tryread(maxlen, buffer = nil) -> string, nil or :wait_readable
 *
 * One attempt to read at most +maxlen+ bytes, straight from the descriptor: what Ruby has read
 * ahead (with IO#gets, say) is passed over. Returns a new binary String, or +buffer+, a String that
 * then holds what was read and keeps its encoding; nil at the end of file; :wait_readable when
 * there is nothing yet. The buffer is empty after the last two. A +maxlen+ of 0 gives an empty
 * String at once.
 *
 * Never blocks and never changes the descriptor's mode. ArgumentError for a negative +maxlen+,
 * FrozenError for a frozen buffer, IOError for a closed IO, else Errno as read(2);
 * Errno::ECONNRESET has no backtrace.
 */
static VALUE pipe_tryread(int argc, VALUE *argv, VALUE self) {
    return try_read(self, argc, argv, EA_KGIO_FILE);
}

/*
 * call-seq:
 *    io.kgio_read(maxlen, buffer = nil) -> string or nil
 *
 * As kgio_tryread, but while there is nothing to read it calls the object's own
 * +kgio_wait_readable+, without arguments, and tries again.
 */
static VALUE pipe_read(int argc, VALUE *argv, VALUE self) {
    return wait_and_read(self, argc, argv, EA_KGIO_FILE);
}

/*
 * call-seq:
 *    io.kgio_read!(maxlen, buffer = nil) -> string
 *
 * As kgio_read, but raises EOFError, without a backtrace, at the end of file.
 */
static VALUE pipe_read_bang(int argc, VALUE *argv, VALUE self) {
    return or_end_of_file(wait_and_read(self, argc, argv, EA_KGIO_FILE));
}

/*
 * call-seq:
 *    socket.kgio_tryread(maxlen, buffer = nil) -> string, nil or :wait_readable
 *
 * As PipeMethods#kgio_tryread, with recv(2): Errno::ENOTSOCK for anything but a socket. An empty
 * datagram gives nil.
 */
static VALUE socket_tryread(int argc, VALUE *argv, VALUE self) {
    return try_read(self, argc, argv, EA_KGIO_SOCKET);
}

/*
 * call-seq:
 *    socket.kgio_read(maxlen, buffer = nil) -> string or nil
 *
 * As kgio_tryread, but while there is nothing to read it calls the object's own
 * +kgio_wait_readable+, without arguments, and tries again.
 */
static VALUE socket_read(int argc, VALUE *argv, VALUE self) {
    return wait_and_read(self, argc, argv, EA_KGIO_SOCKET);
}

/*
 * call-seq:
 *    socket.kgio_read!(maxlen, buffer = nil) -> string
 *
 * As kgio_read, but raises EOFError, without a backtrace, at the end of the stream.
 */
static VALUE socket_read_bang(int argc, VALUE *argv, VALUE self) {
    return or_end_of_file(wait_and_read(self, argc, argv, EA_KGIO_SOCKET));
}

/*
 * call-seq:
 *    socket.kgio_trypeek(maxlen, buffer = nil) -> string, nil or :wait_readable
 *
 * As kgio_tryread, but what is read stays in the socket (MSG_PEEK).
 */
static VALUE socket_trypeek(int argc, VALUE *argv, VALUE self) {
    return try_read(self, argc, argv, EA_KGIO_PEEK);
}

/*
 * call-seq:
 *    socket.kgio_peek(maxlen, buffer = nil) -> string or nil
 *
 * As kgio_read, but what is read stays in the socket (MSG_PEEK).
 */
static VALUE socket_peek(int argc, VALUE *argv, VALUE self) {
    return wait_and_read(self, argc, argv, EA_KGIO_PEEK);
}

/*
 * call-seq:
 *    Kgio.tryread(io, maxlen, buffer = nil) -> string, nil or :wait_readable
 *
 * PipeMethods#kgio_tryread for any IO (or an object with #to_io), sockets included.
 */
static VALUE s_tryread(int argc, VALUE *argv, VALUE self) {
    rb_check_arity(argc, 2, 3);
    return try_read(argv[0], argc - 1, argv + 1, EA_KGIO_FILE);
}

/*
 * call-seq:
 *    Kgio.trypeek(socket, maxlen, buffer = nil) -> string, nil or :wait_readable
 *
 * SocketMethods#kgio_trypeek for any socket; Errno::ENOTSOCK for anything else.
 */
static VALUE s_trypeek(int argc, VALUE *argv, VALUE self) {
    rb_check_arity(argc, 2, 3);
    return try_read(argv[0], argc - 1, argv + 1, EA_KGIO_PEEK);
}

void ea_kgio_define_read(const struct ea_kgio_modules *m) {

    rb_define_method(m->pipe_methods, "kgio_tryread", pipe_tryread, -1);
    rb_define_method(m->pipe_methods, "kgio_read", pipe_read, -1);
    rb_define_method(m->pipe_methods, "kgio_read!", pipe_read_bang, -1);
    rb_define_method(m->socket_methods, "kgio_tryread", socket_tryread, -1);
    rb_define_method(m->socket_methods, "kgio_read", socket_read, -1);
    rb_define_method(m->socket_methods, "kgio_read!", socket_read_bang, -1);
    rb_define_method(m->socket_methods, "kgio_trypeek", socket_trypeek, -1);
    rb_define_method(m->socket_methods, "kgio_peek", socket_peek, -1);
    rb_define_singleton_method(m->kgio, "tryread", s_tryread, -1);
    rb_define_singleton_method(m->kgio, "trypeek", s_trypeek, -1);
}
