/* See descriptor.h. */
#include "descriptor.h"
#include "socket_lib.h"

#include <errno.h>
#include <sys/stat.h>
#include <unistd.h>

_Atomic uint32_t ea_facts[EA_FACTS_MAX];
VALUE ea_sym_wait_readable, ea_sym_wait_writable;

bool ea_is_socket(VALUE io) {
    return ea_is_a(io, EA_BASIC_SOCKET);
}

void ea_close_unused(void) {
    rb_funcall(rb_mGC, rb_intern("start"), 0);
}

VALUE ea_io_answer(VALUE io, ea_result r) {
    if (r == EA_WAIT_READABLE)
        return ea_sym_wait_readable;
    if (r == EA_WAIT_WRITABLE)
        return ea_sym_wait_writable;
    ea_io_fail(io, ea_errno(r));
}

void ea_io_fail(VALUE io, int error) {
    const rb_io_t *fptr = RFILE(io)->fptr;
    rb_syserr_fail_str(error, fptr ? fptr->pathv : Qnil);
}

void ea_io_fail_in(VALUE io, int error, const char *function) {
    const rb_io_t *fptr = RFILE(io)->fptr;
    VALUE arguments[] = {fptr && fptr->pathv ? fptr->pathv : Qnil, INT2FIX(error),
                         rb_str_new_cstr(function)};
    rb_exc_raise(rb_class_new_instance(3, arguments, rb_eSystemCallError));
}

/* --- Files on a disk.
 *
 * They are never ready later: RWF_NOWAIT says "would block" of what is not in the page cache, and
 * poll(2) says "ready" all the same. */

/* An answer that became wrong, after the number was exchanged without a word to us, sends the caller
 * through a wait that ends at once, and back; meanwhile the kernel, which was asked, reads ahead. */
bool ea_known_ask_waits(struct ea_known *known) {
    struct stat st;
    if (fstat(known->fd.fd, &st) == 0 && (S_ISREG(st.st_mode) || S_ISBLK(st.st_mode)))
        return false;
    known->fd.known |= EA_KNOWN_WAITS;
    return true;
}

ea_result ea_io_read_disk(struct ea_known *known, void *buf, size_t len) {
    ssize_t r;
    do
        r = read(known->fd.fd, buf, len < EA_DISK_PIECE ? len : EA_DISK_PIECE);
    while (r < 0 && errno == EINTR);
    if (r > 0)
        return r;
    return r == 0 ? EA_EOF : errno == EAGAIN ? EA_WAIT_READABLE : -errno;
}

ea_result ea_io_write_disk(struct ea_known *known, const void *buf, size_t len) {
    ssize_t r;
    do
        r = write(known->fd.fd, buf, len < EA_DISK_PIECE ? len : EA_DISK_PIECE);
    while (r < 0 && errno == EINTR);
    return r >= 0 ? r : errno == EAGAIN ? EA_WAIT_WRITABLE : -errno;
}

/* --- Ruby's own buffers. */

/* Writes what Ruby has buffered, as far as that needs no waiting. */
static ea_result flush(VALUE io, rb_io_t *fptr, const char *function) {
    /* Whoever holds the lock is writing this very buffer. */
    if (RTEST(fptr->write_lock) && RTEST(rb_mutex_locked_p(fptr->write_lock)))
        return EA_WAIT_WRITABLE;
    struct ea_known known;
    ea_known_begin(&known, io, fptr->fd);
    ea_result r = 0;
    while (fptr->wbuf.len > 0) {
        r = ea_io_try_write(&known, fptr->wbuf.ptr + fptr->wbuf.off, (size_t)fptr->wbuf.len);
        if (!ea_is_count(r))
            break;
        fptr->wbuf.off += (int)r;
        fptr->wbuf.len -= (int)r;
    }
    ea_known_end(&known);
    if (ea_is_error(r))
        ea_io_fail_in(io, ea_errno(r), function);
    if (ea_is_wait(r))
        return r;
    fptr->wbuf.off = 0;
    return 0;
}

ea_result ea_io_prepare_read(VALUE io, struct ea_known *known) {
    static const char function[] = "rb_io_check_char_readable";
    ea_result flushed = 0;
    rb_io_t *fptr;
    GetOpenFile(io, fptr); /* raises, if frozen or closed */
    if (ea_is_socket(io)) {
        /* Ruby's sockets have a method of their own, which looks at no more than that. */
        ea_known_begin(known, io, fptr->fd);
        return 0;
    }
    if (!(fptr->mode & FMODE_READABLE))
        rb_raise(rb_eIOError, "not opened for reading");
    if (fptr->wbuf.len > 0)
        flushed = flush(io, fptr, function);
    if (fptr->tied_io_for_writing && flushed == 0) {
        rb_io_t *tied;
        GetOpenFile(fptr->tied_io_for_writing, tied);
        if (tied->wbuf.len > 0)
            flushed = flush(fptr->tied_io_for_writing, tied, function);
    }
    if (flushed != 0)
        return flushed;
    if (fptr->cbuf.len > 0)
        rb_io_check_byte_readable(fptr); /* raises */
    ea_known_begin(known, io, fptr->fd);
    return 0;
}

ea_result ea_io_prepare_write(VALUE *io, struct ea_known *known) {
    rb_io_t *fptr;
    *io = rb_io_get_write_io(*io);
    GetOpenFile(*io, fptr);     /* raises, if frozen or closed */
    rb_io_check_writable(fptr); /* raises, or puts back what was read ahead of a file */
    if (fptr->wbuf.len > 0) {
        ea_result flushed = flush(*io, fptr, "io_write_nonblock");
        if (flushed != 0)
            return flushed;
    }
    ea_known_begin(known, *io, fptr->fd);
    return 0;
}

void ea_io_flush_to_read(VALUE io) {
    rb_io_t *fptr;
    GetOpenFile(io, fptr);
    rb_io_check_byte_readable(fptr);
}

bool ea_io_flush_to_write(VALUE io) {
    io = rb_io_get_write_io(io);
    const rb_io_t *fptr = RFILE(io)->fptr;
    if (!fptr || fptr->wbuf.len == 0)
        return false;
    rb_io_flush(io);
    return true;
}

void ea_socket_begin(VALUE socket, struct ea_known *known) {
    if (RB_UNLIKELY(!RB_TYPE_P(socket, T_FILE) || !ea_is_socket(socket)))
        rb_raise(rb_eTypeError, "wrong argument type %" PRIsVALUE " (expected BasicSocket)",
                 rb_obj_class(socket));
    ea_socket_begin_self(socket, known);
}

void ea_socket_begin_self(VALUE socket, struct ea_known *known) {
    rb_io_t *fptr = RFILE(socket)->fptr;
    if (RB_UNLIKELY(RB_OBJ_FROZEN_RAW(socket) || !fptr || fptr->fd < 0))
        GetOpenFile(socket, fptr); /* raises */
    ea_known_begin(known, socket, fptr->fd);
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

/* As much as Ruby itself reads ahead, and allocated as Ruby does, which frees it. */
#define READ_AHEAD 8192

ea_result ea_io_fill_buffer(VALUE io, struct ea_known *known) {
    rb_io_t *fptr = RFILE(io)->fptr;
    if (!fptr->rbuf.ptr) {
        fptr->rbuf.ptr = ALLOC_N(char, READ_AHEAD);
        fptr->rbuf.capa = READ_AHEAD;
    }
    fptr->rbuf.off = 0;
    ea_result r = ea_io_try_read(known, fptr->rbuf.ptr, (size_t)fptr->rbuf.capa);
    if (r > 0)
        fptr->rbuf.len = (int)r;
    return r;
}

void ea_init_descriptor(void) {
    ea_sym_wait_readable = ID2SYM(rb_intern("wait_readable"));
    ea_sym_wait_writable = ID2SYM(rb_intern("wait_writable"));
}
