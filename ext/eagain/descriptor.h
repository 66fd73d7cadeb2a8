/* What the calls on an IO that need no scheduler share: the number behind it and what is known of that,
 * Ruby's own buffers, and the answers.
 *
 * Facts are kept by number, for the whole process. They are first guesses (try.h): a wrong one, after
 * the number changed hands, costs a system call or two and harms nobody. So nobody has to be told of a
 * close, and threads and Ractors may read and write them at any time. That it is a socket puts itself
 * right; other facts could stay wrong, and are therefore good only for the IO object that they were
 * learnt of, as far as a few bits can tell. What would do harm (addresses, the blocking mode) is kept
 * with the object itself.
 *
 * Everything here runs with the GVL, and nothing here lets go of it or waits. */
#ifndef EA_RB_DESCRIPTOR_H
#define EA_RB_DESCRIPTOR_H

#include <ruby.h>
#include <ruby/io.h>

#include <eagain.h>

#include <stdatomic.h>

/* A fact of our own, which try.h forgets with the others: after a would-block it was looked at, and is
 * no file on a disk, so that to wait for it makes sense. */
#define EA_KNOWN_WAITS (1u << 15)
/* The facts that are guesses. */
#define EA_FACTS                                                                                   \
    (EA_FD_IS_SOCKET | EA_FD_NOT_SOCKET | EA_FD_NOWAIT | EA_FD_NO_NOWAIT | EA_FD_ALWAYS_READY |    \
     EA_FD_NO_NOWAIT_WRITE | EA_KNOWN_WAITS)
/* Of numbers from here on nothing is remembered. */
#define EA_FACTS_MAX (1 << 20)

/* Facts, and above them ea_facts_tag() of the object; no tag with EA_FD_IS_SOCKET is fine, too. */
extern _Atomic uint32_t ea_facts[EA_FACTS_MAX];

/* The number and its facts, for one call: on the caller's stack, between ea_known_begin() and
 * ea_known_end(). Only try.h may have `fd`: its other fields are not there. */
struct ea_known {
    struct ea_fd fd;
    uint32_t before; /* the facts at the beginning; 0: none, or those of another object */
    VALUE io;
};

/* :wait_readable and :wait_writable. */
extern VALUE ea_sym_wait_readable, ea_sym_wait_writable;

/* Is it a BasicSocket? False as long as the class was not loaded. */
bool ea_is_socket(VALUE io);

/* Later Rubies wish that one did not look. There is no other way to what was read ahead. */
#ifndef HAVE_RB_IO_T_FD
#error "This Ruby hides rb_io_t: what it has read ahead cannot be given out yet."
#endif
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"

/* 16 bits, never 0, of the object and of what it was last reopened as; not of one without fptr. */
static inline uint32_t ea_facts_tag(VALUE io) {
    return ((uint32_t)(io ^ RFILE(io)->fptr->pathv) << 13 & 0xffff0000) | 0x10000;
}

static inline void ea_known_begin(struct ea_known *known, VALUE io, int number) {
    uint32_t word = RB_LIKELY(number < EA_FACTS_MAX)
                        ? atomic_load_explicit(&ea_facts[number], memory_order_relaxed)
                        : 0;
    known->fd.fd = number;
    known->io = io;
    known->fd.known = known->before = word & 0xffff;
    if (RB_LIKELY(word & EA_FD_IS_SOCKET) || RB_LIKELY((word & 0xffff0000) == ea_facts_tag(io)))
        return;
    known->before = 0;
    known->fd.known = ea_is_socket(io) ? EA_FD_IS_SOCKET : EA_FD_NOT_SOCKET;
}

/* Remembers what the try calls learnt. */
static inline void ea_known_end(const struct ea_known *known) {
    if (RB_UNLIKELY(known->fd.known != known->before) && known->fd.fd < EA_FACTS_MAX)
        atomic_store_explicit(&ea_facts[known->fd.fd],
                              (known->fd.known & EA_FACTS) | ea_facts_tag(known->io),
                              memory_order_relaxed);
}

/* The T_FILE behind an object that has #to_io; TypeError as Ruby's own methods. */
static inline VALUE ea_to_io(VALUE object) {
    return RB_LIKELY(RB_TYPE_P(object, T_FILE)) ? object : rb_io_get_io(object);
}

/* Checks what IO#read_nonblock would (IOError: closed, not opened for reading, characters were pushed
 * back; FrozenError), and flushes what Ruby has buffered for writing: 0, or EA_WAIT_WRITABLE when that
 * could not be done at once. Raises Errno. After 0, known has begun. Of a socket, as its own
 * read_nonblock, whether it is closed or frozen, and no more. */
static inline ea_result ea_io_begin_read(VALUE io, struct ea_known *known);

/* The same for writing. *io becomes the IO that is written to (the other half of a popen, say). */
static inline ea_result ea_io_begin_write(VALUE *io, struct ea_known *known);

/* The same, for an IO that is not as it nearly always is. */
ea_result ea_io_prepare_read(VALUE io, struct ea_known *known);
ea_result ea_io_prepare_write(VALUE *io, struct ea_known *known);

/* After a would-block of ea_io_begin_read(): what it could not flush at once is flushed as Ruby's own
 * methods do, which wait for room, without the GVL or in the fiber scheduler. Raises what they raise;
 * any code may have run meanwhile. */
void ea_io_flush_to_read(VALUE io);
/* The same after one of ea_io_begin_write() or of the write that followed; false if it was the latter. */
bool ea_io_flush_to_write(VALUE io);

/* One attempt to read, as ea_try_read(), but what would have to wait for a disk is read for good, and no
 * more than EA_DISK_PIECE of it: nothing else could tell when it is there, and this is what Ruby's own
 * method does. The same for writing. */
static inline ea_result ea_io_try_read(struct ea_known *known, void *buf, size_t len);
static inline ea_result ea_io_try_write(struct ea_known *known, const void *buf, size_t len);
#define EA_DISK_PIECE ((size_t)65536)

/* After a would-block of a call that is not the two above: is there something to wait for? One more
 * system call, the first time. If not, the plain call is to be made. */
static inline bool ea_known_waits(struct ea_known *known);
bool ea_known_ask_waits(struct ea_known *known);
ea_result ea_io_read_disk(struct ea_known *known, void *buf, size_t len);
ea_result ea_io_write_disk(struct ea_known *known, const void *buf, size_t len);

/* Begins known for a BasicSocket; TypeError if it is none, IOError when it is closed. Looks at no
 * buffers. */
void ea_socket_begin(VALUE socket, struct ea_known *known);
/* The same for the receiver of a method of BasicSocket, which is one. */
void ea_socket_begin_self(VALUE socket, struct ea_known *known);

/* How many bytes Ruby has read ahead. After ea_io_begin_read(), as the next three. */
static inline size_t ea_io_buffered(VALUE io);
/* Moves at most len of them to `to`, and says how many. */
size_t ea_io_take_buffered(VALUE io, char *to, size_t len);
/* Copies at most len of them, and leaves them. */
size_t ea_io_peek_buffered(VALUE io, char *to, size_t len);
/* One attempt to read ahead, when nothing is: as ea_io_try_read() of as much as Ruby's buffer takes. */
ea_result ea_io_fill_buffer(VALUE io, struct ea_known *known);

/* When there is no descriptor left: closes those of objects that nobody refers to any more. GC.start, as
 * rb_gc() would leave the closing for later. Any finalizer may run. */
void ea_close_unused(void);

/* The symbol of a would-block; of an error, raises Errno with the IO's path, if it has one, as Ruby's
 * own methods do. r is neither a count nor EA_EOF. */
VALUE ea_io_answer(VALUE io, ea_result r);
NORETURN(void ea_io_fail(VALUE io, int error));
/* The same with a function's name in the message, which Ruby gives where there is a path. */
NORETURN(void ea_io_fail_in(VALUE io, int error, const char *function));

void ea_init_descriptor(void);

/* --- What is short and on the way of each call. */

static inline ea_result ea_io_begin_read(VALUE io, struct ea_known *known) {
    const rb_io_t *fptr = RFILE(io)->fptr;
    if (RB_UNLIKELY(!fptr || fptr->fd < 0 || !(fptr->mode & FMODE_READABLE) ||
                    (fptr->wbuf.len | fptr->cbuf.len) != 0 || fptr->tied_io_for_writing ||
                    RB_OBJ_FROZEN_RAW(io)))
        return ea_io_prepare_read(io, known);
    ea_known_begin(known, io, fptr->fd);
    return 0;
}

static inline ea_result ea_io_begin_write(VALUE *io, struct ea_known *known) {
    const rb_io_t *fptr = RFILE(*io)->fptr;
    if (RB_UNLIKELY(!fptr || fptr->fd < 0 || !(fptr->mode & FMODE_WRITABLE) ||
                    (fptr->wbuf.len | fptr->rbuf.len) != 0 || fptr->tied_io_for_writing ||
                    RB_OBJ_FROZEN_RAW(*io)))
        return ea_io_prepare_write(io, known);
    ea_known_begin(known, *io, fptr->fd);
    return 0;
}

static inline size_t ea_io_buffered(VALUE io) {
    return (size_t)RFILE(io)->fptr->rbuf.len;
}

#pragma GCC diagnostic pop

static inline bool ea_known_waits(struct ea_known *known) {
    return RB_LIKELY(known->fd.known & (EA_FD_IS_SOCKET | EA_KNOWN_WAITS)) ||
           ea_known_ask_waits(known);
}

static inline ea_result ea_io_try_read(struct ea_known *known, void *buf, size_t len) {
    ea_result r = ea_try_read(&known->fd, buf, len);
    if (r == EA_WAIT_READABLE && RB_UNLIKELY(!ea_known_waits(known)))
        return ea_io_read_disk(known, buf, len);
    return r;
}

static inline ea_result ea_io_try_write(struct ea_known *known, const void *buf, size_t len) {
    ea_result r = ea_try_write(&known->fd, buf, len);
    if (r == EA_WAIT_WRITABLE && RB_UNLIKELY(!ea_known_waits(known)))
        return ea_io_write_disk(known, buf, len);
    return r;
}

#endif
