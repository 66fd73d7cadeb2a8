/* tryread, tryreadv, trypeek, trywrite, trywritev: what every IO has.
 *
 * What they give and raise is what IO#read_nonblock and IO#write_nonblock (exception: false) of the
 * running Ruby would, with two exceptions: nothing makes the descriptor non-blocking, and what Ruby
 * has buffered for writing is flushed without waiting for room.
 *
 * The order is the same everywhere. First the arguments: they may run the program's code, which may
 * close the IO and change the strings. Then the IO is looked at; then comes the call. In between no
 * code of the program can run, and no GC, so that the memory of a String can be lent to the kernel
 * without further ado.
 *
 * A would-block leaves no object behind. Small reads go to scratch memory; a large one goes to a String
 * that is kept, if it found nothing, for the next. */
#include "scratch.h"
#include "stream.h"

#include <limits.h>

#ifndef IOV_MAX
#define IOV_MAX 1024
#endif

/* Up to so many bytes are read into scratch memory. */
#define SMALL 4096
/* Up to so many strings are filled in place. */
#define FEW 64

/* --- Reading. */

static ea_result peek(VALUE io, struct ea_known *known, char *to, long len) {
    if (ea_io_buffered(io) == 0) {
        ea_result r = -ENOTSOCK;
        if (known->fd.known & EA_FD_IS_SOCKET)
            r = ea_try_recv(&known->fd, to, (size_t)len, MSG_PEEK);
        bool copied = r != -ENOTSOCK;
        if (!copied)
            r = ea_io_fill_buffer(io, known);
        ea_known_end(known);
        if (r <= 0 || copied)
            return r != 0 ? r : EA_EOF;
    }
    return (ea_result)ea_io_peek_buffered(io, to, (size_t)len);
}

/* One attempt, after ea_io_begin_read(), of a len > 0. Never 0: an empty datagram is what Ruby calls the
 * end of file. */
static inline ea_result attempt(VALUE io, struct ea_known *known, char *to, long len) {
    if (RB_UNLIKELY(ea_io_buffered(io) > 0))
        return (ea_result)ea_io_take_buffered(io, to, (size_t)len);
    ea_result r = ea_io_try_read(known, to, (size_t)len);
    ea_known_end(known);
    return RB_LIKELY(r != 0) ? r : EA_EOF;
}

/* The same of any len, or a peek. */
static inline ea_result attempt_any(VALUE io, struct ea_known *known, char *to, long len,
                                    bool peeking) {
    if (RB_UNLIKELY(len == 0))
        return 0;
    return peeking ? peek(io, known, to, len) : attempt(io, known, to, len);
}

/* The answer where there is no data. */
static inline VALUE nothing_read(VALUE io, ea_result r) {
    if (RB_LIKELY(r == EA_WAIT_READABLE))
        return ea_sym_wait_readable;
    if (r == EA_EOF)
        return Qnil;
    if (r == EA_WAIT_WRITABLE)
        return ea_sym_wait_writable;
    ea_io_fail_in(io, ea_errno(r), ea_is_socket(io) ? "rsock_read_nonblock" : "io_read_nonblock");
}

/* 1..SMALL bytes. Not into the stack: a fiber that waits then keeps each page of it that was touched. */
static VALUE read_small(VALUE io, long len) {
    char *scratch = ea_scratch((size_t)len);
    struct ea_known known;
    ea_result r = ea_io_begin_read(io, &known);
    if (RB_LIKELY(r == 0)) {
        r = attempt(io, &known, scratch, len);
        if (r >= 0)
            return rb_str_new(scratch, r);
    }
    return nothing_read(io, r);
}

static VALUE read_spare(VALUE io, long len, bool peeking) {
    struct ea_spare *spare = ea_spare();
    VALUE string = ea_spare_take(spare, len);
    struct ea_known known;
    ea_result r = ea_io_begin_read(io, &known);
    if (RB_LIKELY(r == 0)) {
        r = attempt_any(io, &known, RSTRING_PTR(string), len, peeking);
        if (r >= 0)
            return ea_spare_give(spare, string, r);
    }
    spare->string = string;
    return nothing_read(io, r);
}

static VALUE read_into(VALUE io, long len, VALUE buffer, bool peeking) {
    ea_buffer_prepare(&buffer, len);
    struct ea_known known;
    ea_result r = ea_io_begin_read(io, &known);
    if (RB_LIKELY(r == 0)) {
        r = attempt_any(io, &known, RSTRING_PTR(buffer), len, peeking);
        if (r >= 0) {
            ea_buffer_set_length(buffer, r);
            return buffer;
        }
        if (r == EA_EOF)
            ea_buffer_set_length(buffer, 0);
    }
    return nothing_read(io, r);
}

NORETURN(static void negative_length(VALUE io, long len));
static void negative_length(VALUE io, long len) {
    if (ea_is_socket(io))
        rb_str_new(NULL, len); /* where a socket's own method notices it, too */
    rb_raise(rb_eArgError, "negative length %ld given", len);
}

static VALUE read_any(VALUE io, VALUE maxlen, VALUE buffer, bool peeking) {
    long len = NUM2LONG(maxlen);
    if (RB_UNLIKELY(len < 0))
        negative_length(io, len);
    if (!NIL_P(buffer))
        return read_into(io, len, buffer, peeking);
    return len > 0 && len <= SMALL && !peeking ? read_small(io, len) : read_spare(io, len, peeking);
}

static inline VALUE tryread(VALUE io, VALUE maxlen, VALUE buffer) {
    if (RB_UNLIKELY(!RB_TYPE_P(io, T_FILE)))
        return ea_foreign(EA_STREAM_READ, io, maxlen, buffer, true);
    if (RB_LIKELY(NIL_P(buffer) && RB_FIXNUM_P(maxlen) &&
                  (unsigned long)FIX2LONG(maxlen) - 1 < SMALL))
        return read_small(io, FIX2LONG(maxlen));
    return read_any(io, maxlen, buffer, false);
}

VALUE ea_tryread(VALUE io, VALUE maxlen, VALUE buffer) {
    return tryread(io, maxlen, buffer);
}

VALUE ea_trypeek(VALUE io, VALUE maxlen, VALUE buffer) {
    if (RB_UNLIKELY(!RB_TYPE_P(io, T_FILE)))
        return ea_foreign(EA_STREAM_PEEK, io, maxlen, buffer, true);
    return read_any(io, maxlen, buffer, true);
}

/* --- Lists. What converts an element may run the program's code, which may change the list: so
 * that happens in a copy. */

static VALUE to_list(VALUE list) {
    return rb_convert_type(list, T_ARRAY, "Array", "to_ary");
}

static VALUE converted(VALUE list, VALUE (*convert)(VALUE)) {
    VALUE copy = rb_ary_dup(list);
    for (long i = 0; i < RARRAY_LEN(copy); i++)
        rb_ary_store(copy, i, convert(RARRAY_AREF(copy, i)));
    return copy;
}

static bool all_strings(VALUE list) {
    for (long i = 0; i < RARRAY_LEN(list); i++)
        if (!RB_TYPE_P(RARRAY_AREF(list, i), T_STRING))
            return false;
    return true;
}

static VALUE to_length(VALUE value) {
    long len = NUM2LONG(value);
    if (len < 0)
        rb_raise(rb_eArgError, "negative length %ld given", len);
    return LONG2NUM(len);
}

static VALUE lengths_of(VALUE list) {
    list = to_list(list);
    for (long i = 0; i < RARRAY_LEN(list); i++)
        if (!RB_FIXNUM_P(RARRAY_AREF(list, i)) || FIX2LONG(RARRAY_AREF(list, i)) < 0)
            return converted(list, to_length);
    return list;
}

VALUE ea_stream_strings(VALUE list) {
    list = to_list(list);
    return RB_LIKELY(all_strings(list)) ? list : converted(list, rb_obj_as_string);
}

void ea_pieces_init(struct ea_pieces *pieces, VALUE maxlens, VALUE buffers) {
    pieces->lengths = lengths_of(maxlens);
    pieces->buffers = buffers;
    if (!NIL_P(buffers) && !(RB_TYPE_P(buffers, T_ARRAY) && all_strings(buffers))) {
        pieces->lengths = rb_ary_dup(pieces->lengths);
        pieces->buffers = converted(to_list(buffers), rb_str_to_str);
    }
    /* No code of the program's runs any more. */
    pieces->count = RARRAY_LEN(pieces->lengths);
    pieces->total = 0;
    for (long i = 0; i < pieces->count; i++) {
        long len = NUM2LONG(RARRAY_AREF(pieces->lengths, i));
        if (len > LONG_MAX - pieces->total)
            rb_raise(rb_eArgError, "lengths too big");
        pieces->total += len;
    }
    if (NIL_P(buffers))
        return;
    if (RARRAY_LEN(pieces->buffers) != pieces->count)
        rb_raise(rb_eArgError, "%ld buffers for %ld lengths", RARRAY_LEN(pieces->buffers),
                 pieces->count);
    for (long i = 0; i < pieces->count; i++)
        ea_buffer_room(RARRAY_AREF(pieces->buffers, i), NUM2LONG(RARRAY_AREF(pieces->lengths, i)));
}

/* How many of the next n bytes are for piece i. */
static long share(const struct ea_pieces *pieces, long i, long n) {
    long len = NUM2LONG(RARRAY_AREF(pieces->lengths, i));
    return len < n ? len : n;
}

VALUE ea_pieces_fill(const struct ea_pieces *pieces, const char *data, long n) {
    VALUE answer = NIL_P(pieces->buffers) ? rb_ary_new_capa(pieces->count) : pieces->buffers;
    for (long i = 0; i < pieces->count; i++) {
        long part = share(pieces, i, n);
        if (NIL_P(pieces->buffers)) {
            rb_ary_push(answer, rb_str_new(data, part));
        } else {
            VALUE string = RARRAY_AREF(answer, i);
            memcpy(RSTRING_PTR(string), data, (size_t)part);
            ea_buffer_set_length(string, part);
        }
        data += part;
        n -= part;
    }
    return answer;
}

/* --- tryreadv. */

/* Where it reads from a disk, one piece will do. */
static const struct iovec *first_piece(const struct iovec *iov) {
    while (iov->iov_len == 0)
        iov++;
    return iov;
}

/* In place, after ea_io_begin_read(): there is no more than FEW, and nothing was read ahead. */
static VALUE read_in_place(VALUE io, struct ea_known *known, const struct ea_pieces *pieces) {
    struct iovec iov[FEW];
    for (long i = 0; i < pieces->count; i++)
        iov[i] = (struct iovec){RSTRING_PTR(RARRAY_AREF(pieces->buffers, i)),
                                NUM2SIZET(RARRAY_AREF(pieces->lengths, i))};
    ea_result r = ea_try_readv(&known->fd, iov, (int)pieces->count);
    if (r == EA_WAIT_READABLE && RB_UNLIKELY(!ea_known_waits(known))) {
        const struct iovec *first = first_piece(iov);
        r = ea_io_read_disk(known, first->iov_base, first->iov_len);
    }
    ea_known_end(known);
    if (r == 0)
        r = EA_EOF;
    if (r != EA_EOF && r < 0)
        return nothing_read(io, r);
    long n = r > 0 ? r : 0;
    for (long i = 0; i < pieces->count; i++) {
        long part = share(pieces, i, n);
        ea_buffer_set_length(RARRAY_AREF(pieces->buffers, i), part);
        n -= part;
    }
    return r > 0 ? pieces->buffers : Qnil;
}

/* In one piece, which is then shared out. */
static VALUE read_apart(VALUE io, struct ea_known *known, const struct ea_pieces *pieces,
                        char *to) {
    ea_result r = attempt_any(io, known, to, pieces->total, false);
    if (r >= 0)
        return ea_pieces_fill(pieces, to, r);
    if (r == EA_EOF && !NIL_P(pieces->buffers))
        ea_pieces_fill(pieces, to, 0);
    return nothing_read(io, r);
}

static VALUE readv_small(VALUE io, struct ea_known *known, const struct ea_pieces *pieces) {
    char scratch[SMALL];
    return read_apart(io, known, pieces, scratch);
}

VALUE ea_tryreadv(VALUE io, VALUE maxlens, VALUE buffers) {
    if (RB_UNLIKELY(!RB_TYPE_P(io, T_FILE)))
        return ea_foreign(EA_STREAM_READV, io, maxlens, buffers, true);
    struct ea_pieces pieces;
    struct ea_known known;
    ea_pieces_init(&pieces, maxlens, buffers);
    struct ea_spare *spare = pieces.total > SMALL ? ea_spare() : NULL;
    VALUE string = spare ? ea_spare_take(spare, pieces.total) : Qnil;
    ea_result r = ea_io_begin_read(io, &known);
    VALUE answer;
    if (r != 0)
        answer = nothing_read(io, r);
    else if (!NIL_P(buffers) && pieces.count <= FEW && pieces.total > 0 && ea_io_buffered(io) == 0)
        answer = read_in_place(io, &known, &pieces);
    else if (!spare)
        answer = readv_small(io, &known, &pieces);
    else
        answer = read_apart(io, &known, &pieces, RSTRING_PTR(string));
    if (spare)
        spare->string = string;
    RB_GC_GUARD(pieces.lengths);
    RB_GC_GUARD(pieces.buffers);
    return answer;
}

/* --- Writing. */

static inline VALUE written(VALUE io, ea_result r) {
    if (RB_LIKELY(ea_is_count(r)))
        return LONG2NUM(r);
    if (RB_LIKELY(r == EA_WAIT_WRITABLE))
        return ea_sym_wait_writable;
    ea_io_fail_in(io, ea_errno(r), ea_is_socket(io) ? "rsock_write_nonblock" : "io_write_nonblock");
}

static inline VALUE write_from(VALUE io, VALUE string, long offset) {
    struct ea_known known;
    ea_result r = ea_io_begin_write(&io, &known);
    if (RB_LIKELY(r == 0)) {
        r = ea_io_try_write(&known, RSTRING_PTR(string) + offset,
                            (size_t)(RSTRING_LEN(string) - offset));
        ea_known_end(&known);
    }
    RB_GC_GUARD(string);
    return written(io, r);
}

VALUE ea_trywrite(VALUE io, VALUE string) {
    if (RB_UNLIKELY(!RB_TYPE_P(io, T_FILE)))
        return ea_foreign(EA_STREAM_WRITE, io, string, Qnil, true);
    if (RB_UNLIKELY(!RB_TYPE_P(string, T_STRING)))
        string = rb_obj_as_string(string);
    return write_from(io, string, 0);
}

VALUE ea_trywrite_from(VALUE io, VALUE string, long offset) {
    return write_from(io, string, offset);
}

static inline VALUE write_list(VALUE io, const VALUE *strings, struct iovec *iov, long count) {
    struct ea_known known;
    ea_result r = ea_io_begin_write(&io, &known);
    if (RB_UNLIKELY(r != 0))
        return written(io, r);
    for (long i = 0; i < count; i++)
        iov[i] = (struct iovec){RSTRING_PTR(strings[i]), (size_t)RSTRING_LEN(strings[i])};
    r = ea_try_writev(&known.fd, iov, (int)count);
    if (r == EA_WAIT_WRITABLE && RB_UNLIKELY(!ea_known_waits(&known))) {
        const struct iovec *first = first_piece(iov);
        r = ea_io_write_disk(&known, first->iov_base, first->iov_len);
    }
    ea_known_end(&known);
    return written(io, r);
}

static VALUE write_few(VALUE io, const VALUE *strings, long count) {
    struct iovec iov[FEW];
    return write_list(io, strings, iov, count);
}

static VALUE write_many(VALUE io, const VALUE *strings, long count) {
    struct iovec iov[IOV_MAX];
    return write_list(io, strings, iov, count < IOV_MAX ? count : IOV_MAX);
}

VALUE ea_trywritev_of(VALUE io, const VALUE *strings, long count) {
    return count <= FEW ? write_few(io, strings, count) : write_many(io, strings, count);
}

VALUE ea_trywritev(VALUE io, VALUE strings) {
    if (RB_UNLIKELY(!RB_TYPE_P(io, T_FILE)))
        return ea_foreign(EA_STREAM_WRITEV, io, strings, Qnil, true);
    VALUE list = ea_stream_strings(strings);
    VALUE answer = ea_trywritev_of(io, RARRAY_CONST_PTR(list), RARRAY_LEN(list));
    RB_GC_GUARD(list);
    return answer;
}

/* --- The module functions. */

#define OPTIONAL(argc, argv, i) ((argc) > (i) ? (argv)[i] : Qnil)

/* call-seq:
 *   Eagain.tryread(io, maxlen)         -> String, nil, :wait_readable or :wait_writable
 *   Eagain.tryread(io, maxlen, buffer) -> buffer, nil, :wait_readable or :wait_writable
 *
 * One attempt to read at most maxlen bytes. Never waits. The answer is what was read, a binary String
 * (or the buffer, which keeps its encoding); nil at the end of file; :wait_readable when there is
 * nothing yet. When Ruby holds something back that must be written to the IO first, and there is no
 * room for it, it is :wait_writable.
 *
 * Bytes that Ruby has read ahead (IO#gets) come first, and alone. A buffer holds what was read, and
 * nothing at the end of file; after a would-block it is as it was.
 *
 * As IO#read_nonblock with exception: false, whose errors it has too (IOError, Errno, ArgumentError,
 * FrozenError), except that the IO is not made non-blocking. Bytes of a file that are not in memory
 * are read from the disk, 64 KiB at most: there is no way to wait for them.
 *
 * io may be an OpenSSL::SSL::SSLSocket, or have a method #tryread or #to_io. */
static VALUE s_tryread(int argc, VALUE *argv, VALUE self) {
    rb_check_arity(argc, 2, 3);
    return tryread(argv[0], argv[1], OPTIONAL(argc, argv, 2));
}

/* call-seq:
 *   Eagain.tryreadv(io, maxlens)          -> Array of String, nil, :wait_readable or :wait_writable
 *   Eagain.tryreadv(io, maxlens, buffers) -> buffers, nil, :wait_readable or :wait_writable
 *
 * One attempt to read, as ::tryread, into several strings: as many as maxlens has lengths (bytes). They
 * are filled in order: the last one that has something may be short, those after it are empty.
 *
 * buffers is an Array of as many Strings to fill. No String should be there twice. Errors as ::tryread. */
static VALUE s_tryreadv(int argc, VALUE *argv, VALUE self) {
    rb_check_arity(argc, 2, 3);
    return ea_tryreadv(argv[0], argv[1], OPTIONAL(argc, argv, 2));
}

/* call-seq:
 *   Eagain.trypeek(io, maxlen)         -> String, nil, :wait_readable or :wait_writable
 *   Eagain.trypeek(io, maxlen, buffer) -> buffer, nil, :wait_readable or :wait_writable
 *
 * As ::tryread, but whatever reads next gets the same bytes again.
 *
 * From a socket they are not taken (MSG_PEEK). From anything else they are read into Ruby's own buffer,
 * which holds 8 KiB: so there are no more than that, and IO#sysread, which does not like that buffer,
 * raises IOError until they are read. Errors as ::tryread. */
static VALUE s_trypeek(int argc, VALUE *argv, VALUE self) {
    rb_check_arity(argc, 2, 3);
    return ea_trypeek(argv[0], argv[1], OPTIONAL(argc, argv, 2));
}

/* call-seq: Eagain.trywrite(io, string) -> Integer or :wait_writable
 *
 * One attempt to write the string, or what #to_s makes of another object. Never waits. The answer is
 * how many bytes were written, perhaps fewer than there are; :wait_writable when there is no room.
 *
 * What Ruby has buffered for writing is written first; if there is no room for all of it, the answer is
 * :wait_writable.
 *
 * As IO#write_nonblock with exception: false, whose errors it has too, except that the IO is not made
 * non-blocking. A write to a file on a disk is done at once.
 *
 * io may be an OpenSSL::SSL::SSLSocket, or have a method #trywrite or #to_io. */
static VALUE s_trywrite(VALUE self, VALUE io, VALUE string) {
    return ea_trywrite(io, string);
}

/* call-seq: Eagain.trywritev(io, strings) -> Integer or :wait_writable
 *
 * As ::trywrite of all the strings together, in one system call and without joining them. Of more than
 * IOV_MAX (1,024) strings, the first so many. To a datagram socket they are one message. Errors as
 * ::trywrite. */
static VALUE s_trywritev(VALUE self, VALUE io, VALUE strings) {
    return ea_trywritev(io, strings);
}

/* --- The same for including in IO and the like: without a look for a method of that name, which would
 * find these. */

/* call-seq: io.tryread(maxlen, buffer = nil) -> String, nil, :wait_readable or :wait_writable
 *
 * See Eagain.tryread. After <tt>require "eagain/io"</tt>. */
static VALUE m_tryread(int argc, VALUE *argv, VALUE self) {
    rb_check_arity(argc, 1, 2);
    VALUE buffer = OPTIONAL(argc, argv, 1);
    return RB_LIKELY(RB_TYPE_P(self, T_FILE))
               ? tryread(self, argv[0], buffer)
               : ea_foreign(EA_STREAM_READ, self, argv[0], buffer, false);
}

/* call-seq: io.tryreadv(maxlens, buffers = nil) -> Array of String, nil, :wait_readable or :wait_writable
 *
 * See Eagain.tryreadv. After <tt>require "eagain/io"</tt>. */
static VALUE m_tryreadv(int argc, VALUE *argv, VALUE self) {
    rb_check_arity(argc, 1, 2);
    VALUE buffers = OPTIONAL(argc, argv, 1);
    return RB_LIKELY(RB_TYPE_P(self, T_FILE))
               ? ea_tryreadv(self, argv[0], buffers)
               : ea_foreign(EA_STREAM_READV, self, argv[0], buffers, false);
}

/* call-seq: io.trypeek(maxlen, buffer = nil) -> String, nil, :wait_readable or :wait_writable
 *
 * See Eagain.trypeek. After <tt>require "eagain/io"</tt>. */
static VALUE m_trypeek(int argc, VALUE *argv, VALUE self) {
    rb_check_arity(argc, 1, 2);
    VALUE buffer = OPTIONAL(argc, argv, 1);
    return RB_LIKELY(RB_TYPE_P(self, T_FILE))
               ? ea_trypeek(self, argv[0], buffer)
               : ea_foreign(EA_STREAM_PEEK, self, argv[0], buffer, false);
}

/* call-seq: io.trywrite(string) -> Integer or :wait_writable
 *
 * See Eagain.trywrite. After <tt>require "eagain/io"</tt>. */
static VALUE m_trywrite(VALUE self, VALUE string) {
    return RB_LIKELY(RB_TYPE_P(self, T_FILE))
               ? ea_trywrite(self, string)
               : ea_foreign(EA_STREAM_WRITE, self, string, Qnil, false);
}

/* call-seq: io.trywritev(strings) -> Integer or :wait_writable
 *
 * See Eagain.trywritev. After <tt>require "eagain/io"</tt>. */
static VALUE m_trywritev(VALUE self, VALUE strings) {
    return RB_LIKELY(RB_TYPE_P(self, T_FILE))
               ? ea_trywritev(self, strings)
               : ea_foreign(EA_STREAM_WRITEV, self, strings, Qnil, false);
}

void ea_init_try_stream(VALUE module) {
    ea_init_spare();
    ea_init_try_foreign();

    rb_define_module_function(module, "tryread", s_tryread, -1);
    rb_define_module_function(module, "tryreadv", s_tryreadv, -1);
    rb_define_module_function(module, "trypeek", s_trypeek, -1);
    rb_define_module_function(module, "trywrite", s_trywrite, 2);
    rb_define_module_function(module, "trywritev", s_trywritev, 2);

    VALUE methods = rb_define_module_under(module, "IOMethods"); /* :nodoc: */
    rb_define_method(methods, "tryread", m_tryread, -1);
    rb_define_method(methods, "tryreadv", m_tryreadv, -1);
    rb_define_method(methods, "trypeek", m_trypeek, -1);
    rb_define_method(methods, "trywrite", m_trywrite, 1);
    rb_define_method(methods, "trywritev", m_trywritev, 1);
}
