/* See descriptor.h. */
#include "descriptor.h"

#include <errno.h>

_Atomic uint8_t ea_facts[EA_FACTS_MAX];
VALUE ea_sym_wait_readable, ea_sym_wait_writable;

static VALUE basic_socket; /* the class, once it exists; Qfalse until then */

bool ea_is_socket(VALUE io) {
    if (RB_UNLIKELY(!basic_socket)) {
        if (!rb_const_defined(rb_cObject, rb_intern("BasicSocket")))
            return false;
        basic_socket = rb_const_get(rb_cObject, rb_intern("BasicSocket"));
    }
    return RTEST(rb_obj_is_kind_of(io, basic_socket));
}

VALUE ea_io_answer(VALUE io, ea_result r) {
    if (r == EA_WAIT_READABLE)
        return ea_sym_wait_readable;
    if (r == EA_WAIT_WRITABLE)
        return ea_sym_wait_writable;
    ea_io_fail(io, ea_errno(r));
}

/* --- Ruby's own buffers. */

#ifdef HAVE_RB_IO_T_FD

void ea_io_fail(VALUE io, int error) {
    const rb_io_t *fptr = RFILE(io)->fptr;
    rb_syserr_fail_str(error, fptr ? fptr->pathv : Qnil);
}

/* Writes what Ruby has buffered, as far as that needs no waiting. */
static ea_result flush(VALUE io, rb_io_t *fptr) {
    /* Whoever holds the lock is writing this very buffer. */
    if (fptr->write_lock && RTEST(rb_mutex_locked_p(fptr->write_lock)))
        return EA_WAIT_WRITABLE;
    struct ea_known known;
    ea_known_begin(&known, io, fptr->fd);
    ea_result r = 0;
    while (fptr->wbuf.len > 0) {
        r = ea_try_write(&known.fd, fptr->wbuf.ptr + fptr->wbuf.off, (size_t)fptr->wbuf.len);
        if (!ea_is_count(r))
            break;
        fptr->wbuf.off += (int)r;
        fptr->wbuf.len -= (int)r;
    }
    ea_known_end(&known);
    if (ea_is_error(r))
        ea_io_fail(io, ea_errno(r));
    if (ea_is_wait(r))
        return r;
    fptr->wbuf.off = 0;
    return 0;
}

/* The IO is not as it nearly always is. */
static ea_result prepare_read(VALUE io, rb_io_t *fptr) {
    ea_result flushed = 0;
    if (!(fptr->mode & FMODE_READABLE))
        rb_raise(rb_eIOError, "not opened for reading");
    if (fptr->wbuf.len > 0)
        flushed = flush(io, fptr);
    if (fptr->tied_io_for_writing && flushed == 0) {
        rb_io_t *tied;
        GetOpenFile(fptr->tied_io_for_writing, tied);
        if (tied->wbuf.len > 0)
            flushed = flush(fptr->tied_io_for_writing, tied);
    }
    if (flushed == 0 && fptr->cbuf.len > 0)
        rb_io_check_byte_readable(fptr); /* raises */
    return flushed;
}

ea_result ea_io_begin_read(VALUE io, struct ea_known *known) {
    rb_io_t *fptr = RFILE(io)->fptr;
    if (RB_UNLIKELY(!fptr || fptr->fd < 0))
        GetOpenFile(io, fptr); /* raises */
    if (RB_UNLIKELY(!(fptr->mode & FMODE_READABLE) || fptr->wbuf.len > 0 || fptr->cbuf.len > 0 ||
                    fptr->tied_io_for_writing)) {
        ea_result flushed = prepare_read(io, fptr);
        if (flushed != 0)
            return flushed;
    }
    ea_known_begin(known, io, fptr->fd);
    return 0;
}

ea_result ea_io_begin_write(VALUE *io, struct ea_known *known) {
    rb_io_t *fptr = RFILE(*io)->fptr;
    if (RB_UNLIKELY(!fptr || fptr->fd < 0 || fptr->tied_io_for_writing)) {
        *io = rb_io_get_write_io(*io);
        GetOpenFile(*io, fptr);
    }
    if (RB_UNLIKELY(!(fptr->mode & FMODE_WRITABLE) || fptr->rbuf.len > 0))
        rb_io_check_writable(fptr); /* raises, or puts back what was read ahead of a file */
    if (RB_UNLIKELY(fptr->wbuf.len > 0)) {
        ea_result flushed = flush(*io, fptr);
        if (flushed != 0)
            return flushed;
    }
    ea_known_begin(known, *io, fptr->fd);
    return 0;
}

void ea_socket_begin(VALUE socket, struct ea_known *known) {
    if (RB_UNLIKELY(!RB_TYPE_P(socket, T_FILE) || !ea_is_socket(socket)))
        rb_raise(rb_eTypeError, "wrong argument type %" PRIsVALUE " (expected BasicSocket)",
                 rb_obj_class(socket));
    rb_io_t *fptr = RFILE(socket)->fptr;
    if (RB_UNLIKELY(!fptr || fptr->fd < 0))
        GetOpenFile(socket, fptr); /* raises */
    ea_known_begin(known, socket, fptr->fd);
}

size_t ea_io_buffered(VALUE io) {
    return (size_t)RFILE(io)->fptr->rbuf.len;
}

size_t ea_io_peek_buffered(VALUE io, char *to, size_t len) {
    const rb_io_t *fptr = RFILE(io)->fptr;
    if (len > (size_t)fptr->rbuf.len)
        len = (size_t)fptr->rbuf.len;
    if (len > 0)
        memcpy(to, fptr->rbuf.ptr + fptr->rbuf.off, len);
    return len;
}

size_t ea_io_take_buffered(VALUE io, char *to, size_t len) {
    rb_io_t *fptr = RFILE(io)->fptr;
    len = ea_io_peek_buffered(io, to, len);
    fptr->rbuf.off += (int)len;
    fptr->rbuf.len -= (int)len;
    return len;
}

#else
#error "This Ruby hides rb_io_t: what it has read ahead cannot be given out yet."
#endif

void ea_init_descriptor(void) {
    ea_sym_wait_readable = ID2SYM(rb_intern("wait_readable"));
    ea_sym_wait_writable = ID2SYM(rb_intern("wait_writable"));
    rb_gc_register_address(&basic_socket);
}
