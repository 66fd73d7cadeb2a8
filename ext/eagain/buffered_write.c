/* Eagain::Stream: writing, closing. See buffered.h. */
#include "buffered.h"

#include <string.h>

/* Up to so many strings go out without being copied. */
#define FEW 16

static ID id_close, id_close_write, id_flush;

/* --- Writing. */

static void check_writable(const struct ea_buffered *stream) {
    ea_buffered_check(stream);
    if (RB_UNLIKELY(!stream->writable))
        rb_raise(rb_eIOError, "not opened for writing");
}

static inline void accept_bytes(struct ea_buffered *stream, const char *from, size_t len) {
    ea_bytes_append(&stream->out, from, len, stream->size);
    stream->accepted += len;
}

/* Of a string, what comes behind the first *skip bytes of all; *skip becomes what is left of them. */
static void accept_rest(struct ea_buffered *stream, VALUE string, size_t *skip) {
    size_t len = (size_t)RSTRING_LEN(string), gone = *skip < len ? *skip : len;
    *skip -= gone;
    if (gone < len)
        accept_bytes(stream, RSTRING_PTR(string) + gone, len - gone);
}

/* One attempt at what is buffered and the strings, in one system call: how many bytes of all went out; a
 * would-block or -errno. */
static ea_result write_once(struct ea_buffered *stream, const VALUE *strings, int count) {
    struct iovec iov[FEW + 1];
    int parts = 0;
    struct ea_known known;
    VALUE io = stream->object;
    ea_result r = ea_io_begin_write(&io, &known);
    if (RB_UNLIKELY(r != 0))
        return r;
    if (ea_bytes_length(&stream->out) > 0)
        iov[parts++] =
            (struct iovec){stream->out.base + stream->out.start, ea_bytes_length(&stream->out)};
    for (int i = 0; i < count; i++)
        if (RSTRING_LEN(strings[i]) > 0)
            iov[parts++] = (struct iovec){RSTRING_PTR(strings[i]), (size_t)RSTRING_LEN(strings[i])};
    if (parts == 1)
        r = ea_io_try_write(&known, iov->iov_base, iov->iov_len);
    else if (parts > 1)
        r = ea_try_writev(&known.fd, iov, parts);
    if (r == EA_WAIT_WRITABLE && RB_UNLIKELY(!ea_known_waits(&known)))
        r = ea_io_write_disk(&known, iov->iov_base, iov->iov_len);
    ea_known_end(&known);
    return r;
}

/* Those that are too many for the buffer: past it, as far as there is room, and the rest into it. */
static void write_past(VALUE self, const VALUE *strings, int count, struct ea_patience *patience) {
    struct ea_buffered *stream = ea_buffered(self);
    size_t skip = 0;
    bool direct = stream->source == EA_SOURCE_IO && count <= FEW && !stream->writing.taken &&
                  !ea_wait_accounts();
    if (RB_LIKELY(direct)) {
        ea_wait_account();
        ea_result r = write_once(stream, strings, count);
        if (ea_is_error(r))
            ea_io_fail(rb_io_get_write_io(stream->object), ea_errno(r));
        if (RB_LIKELY(ea_is_count(r))) {
            size_t buffered = ea_bytes_length(&stream->out), written = (size_t)r;
            skip = written > buffered ? written - buffered : 0;
            ea_bytes_drop(&stream->out, written - skip);
        }
    }
    for (int i = 0; i < count; i++)
        accept_rest(stream, strings[i], &skip);
    if (ea_bytes_length(&stream->out) > 0)
        ea_buffered_flush(self, stream->accepted, patience);
}

/* All Strings. Returns the count of their bytes. */
static VALUE write_strings(VALUE self, const VALUE *strings, int count,
                           struct ea_patience *patience) {
    struct ea_buffered *stream = ea_buffered(self);
    size_t total = 0, there = ea_bytes_length(&stream->out);
    check_writable(stream);
    for (int i = 0; i < count; i++)
        total += (size_t)RSTRING_LEN(strings[i]);
    if (!stream->sync && there <= stream->size && total <= stream->size - there) {
        for (int i = 0; i < count; i++)
            accept_bytes(stream, RSTRING_PTR(strings[i]), (size_t)RSTRING_LEN(strings[i]));
    } else {
        write_past(self, strings, count, patience);
    }
    return SIZET2NUM(total);
}

/* call-seq: write(*strings, timeout: nil) -> Integer
 *
 * Takes all of the strings (anything else by its #to_s), and returns the count of their bytes. They are kept until
 * there are more than #buffer_size; then they go out together, in one system call if there is room. So they do at
 * #flush, #close, and before a wait for something to read; with #sync at once. Bytes go out as they are: nothing is
 * transcoded.
 *
 * What several tasks write does not mix: each call's strings stay together.
 *
 * TimeoutError when timeout seconds are over: all was taken, and what is #unwritten goes out with the next call.
 * IOError when it is closed, or not opened for writing; Errno of write(2), now or of what was taken earlier: then
 * nothing of these strings was taken, if there was no wait. */
static VALUE stream_write(int argc, VALUE *argv, VALUE self) {
    struct ea_buffered *stream = ea_buffered(self);
    if (RB_LIKELY(argc == 1 && RB_TYPE_P(argv[0], T_STRING))) {
        size_t len = (size_t)RSTRING_LEN(argv[0]);
        if (RB_LIKELY(stream->writable && !stream->sync &&
                      len + ea_bytes_length(&stream->out) <= stream->size)) {
            accept_bytes(stream, RSTRING_PTR(argv[0]), len);
            return SIZET2NUM(len);
        }
    }
    struct ea_patience patience = ea_buffered_patience(&argc, argv);
    const VALUE *strings = argv;
    VALUE copy = Qnil;
    for (int i = 0; i < argc; i++) {
        if (RB_LIKELY(RB_TYPE_P(argv[i], T_STRING)))
            continue;
        if (NIL_P(copy))
            copy = rb_ary_new_from_values(argc, argv);
        rb_ary_store(copy, i, rb_obj_as_string(argv[i]));
    }
    if (!NIL_P(copy))
        strings = RARRAY_CONST_PTR(copy);
    VALUE total = write_strings(self, strings, argc, &patience);
    RB_GC_GUARD(copy);
    return total;
}

/* call-seq: stream << object -> stream
 *
 * As #write of one. */
static VALUE stream_append(VALUE self, VALUE object) {
    stream_write(1, &object, self);
    return self;
}

/* call-seq: puts(*objects) -> nil
 *
 * As IO#puts, by #write. */
static VALUE stream_puts(int argc, VALUE *argv, VALUE self) {
    return rb_io_puts(argc, argv, self);
}

/* call-seq: print(*objects) -> nil
 *
 * As IO#print, by #write. */
static VALUE stream_print(int argc, VALUE *argv, VALUE self) {
    return rb_io_print(argc, argv, self);
}

/* call-seq: printf(format, *objects) -> nil
 *
 * As IO#printf, by #write. */
static VALUE stream_printf(int argc, VALUE *argv, VALUE self) {
    return rb_io_printf(argc, argv, self);
}

/* call-seq: trywrite(string) -> Integer or :wait_writable
 *
 * One attempt, which does not wait, after what is buffered: see Eagain.trywrite. So Eagain.write works on a stream, too.
 * To a source that has no more than #write it may wait. */
static VALUE stream_trywrite(VALUE self, VALUE string) {
    struct ea_buffered *stream = ea_buffered(self);
    string = rb_obj_as_string(string);
    check_writable(stream);
    if (stream->writing.taken)
        return ea_sym_wait_writable;
    if (ea_bytes_length(&stream->out) > 0) {
        ea_result r = ea_buffered_push(self);
        if (ea_is_wait(r) || ea_is_error(r))
            return ea_io_answer(ea_to_io(stream->object), r);
    }
    if (stream->source != EA_SOURCE_METHODS)
        return ea_trywrite(stream->object, string);
    struct ea_patience patience = ea_patience_of(Qnil);
    write_past(self, &string, 1, &patience);
    return LONG2NUM(RSTRING_LEN(string));
}

static void flush(VALUE self, struct ea_patience *patience) {
    struct ea_buffered *stream = ea_buffered(self);
    if (ea_bytes_length(&stream->out) > 0)
        ea_buffered_flush(self, stream->accepted, patience);
}

/* call-seq: flush(timeout: nil) -> self
 *
 * Writes what is buffered. TimeoutError when timeout seconds are over: the rest stays; TimeoutError#written is how much
 * went out. Errno of write(2). */
static VALUE stream_flush(int argc, VALUE *argv, VALUE self) {
    struct ea_patience patience = ea_buffered_patience(&argc, argv);
    const struct ea_buffered *stream = ea_buffered(self);
    rb_check_arity(argc, 0, 0);
    ea_buffered_check(stream);
    flush(self, &patience);
    if (stream->source == EA_SOURCE_METHODS && rb_respond_to(stream->object, id_flush))
        rb_funcall(stream->object, id_flush, 0);
    return self;
}

/* call-seq: sync -> true or false
 *
 * Does each write go out at once? */
static VALUE stream_sync(VALUE self) {
    return ea_buffered(self)->sync ? Qtrue : Qfalse;
}

/* call-seq: stream.sync = true or false
 *
 * See #sync. What is buffered goes out before the next write. */
static VALUE stream_set_sync(VALUE self, VALUE sync) {
    ea_buffered(self)->sync = RTEST(sync);
    return sync;
}

/* --- Closing. */

struct close {
    VALUE self;
    struct ea_patience patience;
};

static VALUE close_flush(VALUE argument) {
    struct close *close = (struct close *)argument;
    flush(close->self, &close->patience);
    return Qnil;
}

static VALUE close_object(VALUE argument) {
    struct ea_buffered *stream = ea_buffered(((const struct close *)argument)->self);
    stream->closed = true;
    stream->writable = false;
    ea_bytes_free(&stream->in);
    ea_bytes_free(&stream->out);
    if (RB_TYPE_P(stream->object, T_FILE) || rb_respond_to(stream->object, id_close))
        rb_funcall(stream->object, id_close, 0);
    return Qnil;
}

/* call-seq: close(timeout: nil) -> nil
 *
 * Writes what is buffered, and closes what the stream was made for; whoever waits for it gets an IOError. What was read
 * and not taken is lost. Closes also when the first raises: TimeoutError, Errno; then what was not written is lost, too.
 * Of a closed stream it does nothing. */
static VALUE stream_close(int argc, VALUE *argv, VALUE self) {
    struct close close = {self, ea_buffered_patience(&argc, argv)};
    const struct ea_buffered *stream = ea_buffered(self);
    rb_check_arity(argc, 0, 0);
    if (stream->closed || !stream->object)
        return Qnil;
    return rb_ensure(close_flush, (VALUE)&close, close_object, (VALUE)&close);
}

/* call-seq: close_write(timeout: nil) -> nil
 *
 * Writes what is buffered, and closes for writing alone, as BasicSocket#close_write does: the other side reads the end
 * of file. IOError if there is no such half. */
static VALUE stream_close_write(int argc, VALUE *argv, VALUE self) {
    struct ea_patience patience = ea_buffered_patience(&argc, argv);
    struct ea_buffered *stream = ea_buffered(self);
    rb_check_arity(argc, 0, 0);
    check_writable(stream);
    flush(self, &patience);
    if (!rb_respond_to(stream->object, id_close_write))
        rb_raise(rb_eIOError, "closing non-duplex IO for writing");
    rb_funcall(stream->object, id_close_write, 0);
    stream->writable = false;
    return Qnil;
}

void ea_init_buffered_write(VALUE klass) {
    id_close = rb_intern("close");
    id_close_write = rb_intern("close_write");
    id_flush = rb_intern("flush");
    rb_define_method(klass, "write", stream_write, -1);
    rb_define_method(klass, "<<", stream_append, 1);
    rb_define_method(klass, "puts", stream_puts, -1);
    rb_define_method(klass, "print", stream_print, -1);
    rb_define_method(klass, "printf", stream_printf, -1);
    rb_define_method(klass, "trywrite", stream_trywrite, 1);
    rb_define_method(klass, "flush", stream_flush, -1);
    rb_define_method(klass, "sync", stream_sync, 0);
    rb_define_method(klass, "sync=", stream_set_sync, 1);
    rb_define_method(klass, "close", stream_close, -1);
    rb_define_method(klass, "close_write", stream_close_write, -1);
}
