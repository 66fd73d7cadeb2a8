/* The hooks of reading and writing one IO.
 *
 * Each tries first (ea_try_*) and parks only after would-block. A number is looked at again after
 * every wait, since the IO may have been closed meanwhile; the buffer that Ruby lends may be gone
 * with it, so that nothing is touched before. */
#include "scheduler.h"
#include "socket_lib.h"

#include <errno.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#ifdef __linux__
#include <linux/magic.h>
#include <sys/vfs.h>
#endif

struct ea_fd *ea_io_entry(struct ea_scheduler *scheduler, VALUE io) {
    struct ea_fd *fd = ea_fd_get(&scheduler->poll.fds, ea_io_number(io));
    if (RB_UNLIKELY(!fd))
        rb_syserr_fail(errno, "eagain");
    if (RB_LIKELY(fd->known & (EA_FD_IS_SOCKET | EA_FD_NOT_SOCKET)))
        return fd;
    if (ea_is_a(io, EA_BASIC_SOCKET))
        fd->known |= EA_FD_IS_SOCKET;
    else if (!ea_io_external(io))
        fd->known |= EA_FD_NOT_SOCKET;
    return fd;
}

static bool is_in_memory(int number) {
#ifdef __linux__
    struct statfs fs;
    return fstatfs(number, &fs) == 0 &&
           (fs.f_type == TMPFS_MAGIC || (uint32_t)fs.f_type == RAMFS_MAGIC);
#else
    (void)number;
    return false;
#endif
}

/* A regular file is written to with one plain call, which cannot be refused, and one in memory read with
 * one; but only as long as it is certain that the number is that file's. */
static void learn_regular(struct ea_scheduler *scheduler, VALUE io, struct ea_fd *fd) {
    struct stat st;
    if (ea_io_adopt(scheduler, io, fd->fd) != 0) {
        fd->known &= ~(uint32_t)(EA_FD_REGULAR | EA_FD_IN_MEMORY);
        return;
    }
    if (fd->known & EA_FD_REGULAR)
        return;
    if (fstat(fd->fd, &st) != 0 || !S_ISREG(st.st_mode))
        return;
    fd->known |= EA_FD_REGULAR;
    if (is_in_memory(fd->fd))
        fd->known |= EA_FD_IN_MEMORY;
}

/* RWF_NOWAIT is not to be had: is the plain call as good? */
static bool learn_in_memory(struct ea_scheduler *scheduler, VALUE io, struct ea_fd *fd) {
    learn_regular(scheduler, io, fd);
    return fd->known & EA_FD_IN_MEMORY;
}

/* One buffered hook, as it proceeds. */
struct transfer {
    struct ea_scheduler *scheduler;
    VALUE io;
    VALUE buffer;
    bool write;
    bool positional;
    off_t from;    /* where in the file, if positional */
    size_t offset; /* in the buffer */
    size_t length; /* version < 4: at least so many bytes; later: at most */
    size_t done;
    char *base; /* of the buffer */
    size_t size;
    struct ea_fd *fd;
    struct ea_fd *turn; /* whose turn to write it has, once it had to wait */
    bool may_refuse;    /* the caller may want -EAGAIN rather than wait */
};

/* Looks at the IO and at the buffer anew: after a wait, either may have changed. */
static void transfer_look(struct transfer *t) {
    void *base;
    const void *read_base;
    t->fd = ea_io_entry(t->scheduler, t->io);
    uint32_t no_nowait = t->write ? EA_FD_NO_NOWAIT_WRITE : EA_FD_NO_NOWAIT;
    if (RB_UNLIKELY(t->fd->known & (no_nowait | EA_FD_REGULAR)))
        learn_regular(t->scheduler, t->io, t->fd);
    if (t->write) {
        rb_io_buffer_get_bytes_for_reading(t->buffer, &read_base, &t->size);
        t->base = (char *)read_base;
    } else {
        rb_io_buffer_get_bytes_for_writing(t->buffer, &base, &t->size);
        t->base = base;
    }
}

static ea_result transfer_try(struct transfer *t, char *at, size_t len) {
    if (t->positional) {
        off_t from = t->from + (off_t)t->done;
        ea_result r;
        do
            r = t->write ? ea_try_pwrite(t->fd, at, len, from) : ea_try_pread(t->fd, at, len, from);
        while (RB_UNLIKELY(r == -EOPNOTSUPP) && learn_in_memory(t->scheduler, t->io, t->fd));
        return r;
    }
    return t->write ? ea_try_write(t->fd, at, len) : ea_try_read(t->fd, at, len);
}

/* What cannot be polled (a file that is not in the page cache) is done by a thread of the pool. The
 * memory is Ruby's, so that the fiber stays until the thread is done with it, come what may. */
struct blocking_transfer {
    struct ea_job job;
    const struct transfer *transfer;
    int number;
    char *at;
    size_t len;
    ea_result result;
};

static void blocking_work(struct ea_job *job) {
    struct blocking_transfer *b = EA_CONTAINER(job, struct blocking_transfer, job);
    const struct transfer *t = b->transfer;
    off_t from = t->from + (off_t)t->done;
    ssize_t r;
    do {
        if (t->positional)
            r = t->write ? pwrite(b->number, b->at, b->len, from)
                         : pread(b->number, b->at, b->len, from);
        else
            r = t->write ? write(b->number, b->at, b->len) : read(b->number, b->at, b->len);
    } while (r < 0 && errno == EINTR);
    b->result = r < 0 ? -errno : r > 0 || t->write ? r : EA_EOF;
}

static ea_result transfer_blocking(const struct transfer *t, char *at, size_t len) {
    off_t from = t->positional ? t->from + (off_t)t->done : -1;
    ea_result result;
    if (!t->write && ea_operation_read_file(t->scheduler, t->fd->fd, at, len, from, &result))
        return result;
    struct blocking_transfer b = {
        .job.work = blocking_work, .transfer = t, .number = t->fd->fd, .at = at, .len = len};
    ea_job_run_bound(t->scheduler, &b.job);
    return b.result;
}

int64_t ea_io_deadline(VALUE io) {
#ifdef HAVE_RB_IO_TIMEOUT
    VALUE timeout = rb_io_timeout(io);
    if (RB_UNLIKELY(!NIL_P(timeout)))
        return ea_deadline(timeout);
#else
    (void)io;
#endif
    return EA_TIME_NEVER;
}

void ea_io_timed_out(struct ea_fiber *self) {
    ea_fiber_release_buffer(self);
#ifdef HAVE_RB_IO_TIMEOUT
    rb_raise(rb_eIOTimeoutError, "Blocking operation timed out!");
#else
    rb_syserr_fail(ETIMEDOUT, NULL);
#endif
}

/* After would-block: parks until it is worth another try, or has the pool do it. Returns the pool's
 * result, or the would-block when the caller is to try again. */
static ea_result transfer_wait(struct transfer *t, ea_result blocked, char *at, size_t len,
                               int64_t *deadline) {
    struct ea_fiber *self = ea_fiber_current(t->scheduler);
    if (*deadline == 0)
        *deadline = ea_io_deadline(t->io);
    self->buffer = t->buffer;
    if (t->positional || t->fd->known & EA_FD_ALWAYS_READY) {
        blocked = transfer_blocking(t, at, len);
    } else {
        unsigned events = blocked == EA_WAIT_READABLE ? EA_READABLE : EA_WRITABLE;
        int number = t->fd->fd;
        if (ea_io_park(self, t->io, number, events, *deadline, EA_PARK_DRY) == 0)
            ea_io_timed_out(self);
    }
    self->buffer = Qfalse;
    return blocked;
}

static VALUE transfer_result(const struct transfer *t, ea_result r) {
    if (t->write) {
        struct ea_fiber *self = ea_fiber_current(t->scheduler);
        self->wrote = t->fd;
        self->wrote_switches = t->scheduler->switches;
    }
    if (t->done > 0 || !ea_is_error(r))
        return SIZET2NUM(t->done);
    return INT2NUM((int)r);
}

/* Before the attempt, when no data is at stake yet, others may run, and what is pending is raised. But
 * nobody comes between the line and the newline of puts. */
static void transfer_account(struct transfer *t) {
    if (t->write && t->size - t->offset == 1 && t->base[t->offset] == '\n')
        return;
    if (RB_UNLIKELY(ea_fiber_account(t->scheduler, t->buffer)))
        transfer_look(t);
}

#if EA_RB_SCHEDULER_VERSION < 4
/* The turn to write to a descriptor. A fiber that has to wait in the middle of a write keeps it, so that
 * what others write does not come in between; they wait in scheduler->gated. Whoever gives the turn back
 * wakes the first of them, and that one, however it leaves (it has written, without a turn even; it
 * raises), wakes the next unless somebody has the turn by then: as long as nobody has it, one of those
 * who wait is on its way. */
static bool may_write(const struct ea_fd *fd, const struct ea_fiber *self) {
    const struct ea_fiber *writer = fd->writer;
    return !writer || writer->fiber == self->fiber; /* a handler would wait for its own end */
}

static VALUE gate_wait(VALUE arg) {
    struct ea_fiber *self = (struct ea_fiber *)arg;
    ea_fiber_park(self, EA_WAIT_EVENT, -1, 0, EA_TIME_NEVER, 0);
    return Qnil;
}

static VALUE gate_unlink(VALUE arg) {
    ea_link_remove(&((struct ea_fiber *)arg)->gate);
    return Qnil;
}

static void gate_enter(struct transfer *t) {
    struct ea_fiber *self = ea_fiber_current(t->scheduler);
    while (!may_write(t->fd, self)) {
        self->gate_fd = t->fd;
        ea_link_insert_before(&t->scheduler->gated, &self->gate);
        self->buffer = t->buffer;
        rb_ensure(gate_wait, (VALUE)self, gate_unlink, (VALUE)self);
        self->buffer = Qfalse;
        transfer_look(t);
    }
}

/* One that is READY already comes to leave by itself. */
static void gate_pass(struct ea_scheduler *scheduler, const struct ea_fd *fd) {
    for (struct ea_link *l = scheduler->gated.next; l != &scheduler->gated; l = l->next) {
        struct ea_fiber *next = EA_CONTAINER(l, struct ea_fiber, gate);
        if (next->gate_fd != fd)
            continue;
        ea_fiber_wake(next);
        return;
    }
}

static void gate_release(struct ea_scheduler *scheduler, struct ea_fd *fd) {
    struct ea_fiber *writer = fd->writer;
    if (writer)
        writer->turn = NULL;
    fd->writer = NULL;
    gate_pass(scheduler, fd);
}

/* Is this read to be handed to the kernel without a try? Only if it found nothing the last times, and its
 * caller would wait. */
static bool transfer_expects_dry(struct transfer *t) {
    struct ea_fd *fd = t->fd;
    if (RB_LIKELY(fd->dry < EA_DRY_ENOUGH))
        return false;
    if (t->may_refuse && ea_caller(t->scheduler) == EA_CALLER_OTHER)
        return false;
    return ea_op_offered(&t->scheduler->poll, EA_OP_RECEIVE) &&
           ea_io_adopt(t->scheduler, t->io, fd->fd) == 0 && ea_fd_expects_dry(fd) &&
           ea_op_receives(fd);
}

/* Hands the read to the kernel. EA_WAIT_READABLE: it is to be tried. */
static ea_result transfer_receive(struct transfer *t, size_t len, int64_t *deadline) {
    struct ea_fiber *self = ea_fiber_current(t->scheduler);
    struct ea_op op;
    if (*deadline == 0)
        *deadline = ea_io_deadline(t->io);
    ea_op_init(&op, EA_OP_RECEIVE, t->fd->fd);
    op.len = len;
    self->buffer = t->buffer;
    ea_result r = ea_operation_receive(self, t->io, &op, *deadline);
    if (RB_UNLIKELY(r == -ETIMEDOUT))
        ea_io_timed_out(self);
    self->buffer = Qfalse;
    const char *bytes = ea_op_take(&t->scheduler->poll, &op);
    transfer_look(t);
    if (r <= 0)
        return r;
    size_t room = t->size > t->offset ? t->size - t->offset : 0;
    size_t fits = (size_t)r < room ? (size_t)r : room;
    memcpy(t->base + t->offset, bytes, fits);
    if (RB_UNLIKELY(fits < (size_t)r))
        ea_operation_unget(t->io, bytes + fits, (size_t)r - fits);
    if (r == EA_OP_RECEIVE_MAX && len > EA_OP_RECEIVE_MAX)
        t->fd->dry = EA_DRY_OTHERWISE;
    return (ea_result)fits;
}

/* The first attempt of a read. */
static ea_result transfer_first(struct transfer *t, int64_t *deadline) {
    size_t len = t->size - t->offset;
    if (transfer_expects_dry(t)) {
        ea_result r = transfer_receive(t, len, deadline);
        if (r != EA_WAIT_READABLE)
            return r;
        return transfer_try(t, t->base + t->offset, t->size - t->offset);
    }
    ea_result r = transfer_try(t, t->base + t->offset, len);
    if (t->scheduler->poll.backend->operations)
        ea_fd_tried(t->fd, r == EA_WAIT_READABLE);
    return r;
}

/* Until at least t->length bytes went over, or an error. blocked: what an attempt said just now, that is
 * not made again; 0: there was none. */
static ea_result transfer_loop(struct transfer *t, ea_result blocked, int64_t *deadline) {
    ea_result r = 0;
    bool first = !t->write && !t->positional && t->done == 0;
    while (t->offset + t->done < t->size) {
        char *at = t->base + t->offset + t->done;
        size_t len = t->size - t->offset - t->done;
        if (RB_LIKELY(blocked == 0))
            r = first ? transfer_first(t, deadline) : transfer_try(t, at, len);
        else
            r = blocked;
        blocked = 0;
        first = false;
        if (ea_is_wait(r) || (t->positional && r == -EOPNOTSUPP)) {
            if (t->may_refuse && !(t->positional || t->fd->known & EA_FD_ALWAYS_READY) &&
                ea_caller(t->scheduler) == EA_CALLER_OTHER) {
                unsigned events = r == EA_WAIT_READABLE ? EA_READABLE : EA_WRITABLE;
                ea_poll_saw_dry(&t->scheduler->poll, t->fd, events);
                return t->done > 0 ? 0 : -EAGAIN;
            }
            t->may_refuse = false;
            if (t->write && !t->turn) {
                struct ea_fiber *self = ea_fiber_current(t->scheduler);
                t->turn = t->fd;
                if (!t->fd->writer) {
                    self->turn = t->fd;
                    t->fd->writer = self;
                }
                return r;
            }
            r = transfer_wait(t, r, at, len, deadline);
        }
        if (ea_is_wait(r)) {
            transfer_look(t);
            continue;
        }
        if (r <= 0)
            break;
        t->done += (size_t)r;
        if (t->done >= t->length && !(t->write && t->length == 0))
            break;
        if (t->offset + t->done < t->size)
            transfer_look(t);
    }
    return r;
}

struct keep_turn {
    struct transfer *t;
    const struct ea_fiber *self;
    struct ea_fd *fd; /* whose turn it has, or waits for */
    int64_t *deadline;
    ea_result result; /* before: that of the attempt that was made */
};

static VALUE keep_turn_body(VALUE arg) {
    struct keep_turn *keep = (struct keep_turn *)arg;
    keep->result = transfer_loop(keep->t, keep->result, keep->deadline);
    return Qnil;
}

static VALUE keep_turn_ensure(VALUE arg) {
    const struct keep_turn *keep = (const struct keep_turn *)arg;
    /* Abandoned: the turn is another's, or its descriptor's entry is gone. */
    if (!keep->self->abandoned && keep->fd->writer == keep->self)
        gate_release(keep->t->scheduler, keep->fd);
    return Qnil;
}

static ea_result transfer_keeping_turn(struct transfer *t, ea_result blocked, int64_t *deadline) {
    struct keep_turn keep = {.t = t,
                             .self = ea_fiber_current(t->scheduler),
                             .fd = t->turn,
                             .deadline = deadline,
                             .result = blocked};
    rb_ensure(keep_turn_body, (VALUE)&keep, keep_turn_ensure, (VALUE)&keep);
    return keep.result;
}

static ea_result transfer_all(struct transfer *t, ea_result blocked, int64_t *deadline) {
    ea_result r = transfer_loop(t, blocked, deadline);
    return RB_LIKELY(!t->turn) ? r : transfer_keeping_turn(t, r, deadline);
}

static VALUE gated_body(VALUE arg) {
    struct keep_turn *keep = (struct keep_turn *)arg;
    gate_enter(keep->t);
    keep->result = transfer_all(keep->t, 0, keep->deadline);
    return Qnil;
}

static VALUE gated_ensure(VALUE arg) {
    const struct keep_turn *keep = (const struct keep_turn *)arg;
    if (!keep->self->abandoned && !keep->fd->writer)
        gate_pass(keep->t->scheduler, keep->fd);
    return Qnil;
}

static ea_result transfer_gated(struct transfer *t, int64_t *deadline) {
    struct keep_turn keep = {
        .t = t, .self = ea_fiber_current(t->scheduler), .fd = t->fd, .deadline = deadline};
    rb_ensure(gated_body, (VALUE)&keep, gated_ensure, (VALUE)&keep);
    return keep.result;
}

/* With a length of 0: a read returns what there is, a write writes it all; and who may refuse to wait
 * (see caller.c) gets -EAGAIN. */
static VALUE transfer_run(struct transfer *t) {
    int64_t deadline = 0;
    transfer_look(t);
    if (t->offset > t->size || t->length > t->size - t->offset)
        rb_raise(rb_eArgError, "the buffer is too small: %zu bytes at %zu of %zu", t->length,
                 t->offset, t->size);
    t->may_refuse = t->length == 0;
    transfer_account(t);
    bool gated = t->write && t->fd->writer;
    ea_result r = RB_LIKELY(!gated) ? transfer_all(t, 0, &deadline) : transfer_gated(t, &deadline);
    return transfer_result(t, r);
}

VALUE ea_transfer_rest(struct ea_scheduler *scheduler, VALUE io, VALUE buffer, bool write,
                       ea_result r) {
    struct transfer t = {.scheduler = scheduler, .io = io, .buffer = buffer, .write = write};
    if (r == 0)
        return transfer_run(&t);
    int64_t deadline = 0;
    transfer_look(&t);
    if (ea_is_count(r) || ea_is_wait(r)) {
        t.may_refuse = true;
        t.done = r > 0 ? (size_t)r : 0;
        r = transfer_all(&t, r > 0 ? 0 : r, &deadline);
    }
    return transfer_result(&t, r);
}
#else
/* One transfer of at most length bytes. Would-block is the caller's to wait for, but for what
 * cannot be waited for. */
static VALUE transfer_run(struct transfer *t) {
    int64_t deadline = 0;
    transfer_look(t);
    if (t->offset > t->size || t->length > t->size - t->offset)
        return INT2NUM(-EINVAL);
    if (t->length == 0)
        return INT2FIX(0);
    transfer_account(t);
    char *at = t->base + t->offset;
    ea_result r = transfer_try(t, at, t->length);
    if (ea_is_wait(r) && !t->positional && !(t->fd->known & EA_FD_ALWAYS_READY)) {
        unsigned events = r == EA_WAIT_READABLE ? EA_READABLE : EA_WRITABLE;
        ea_poll_saw_dry(&t->scheduler->poll, t->fd, events);
        return INT2NUM(-EAGAIN);
    }
    if (ea_is_wait(r) || (t->positional && r == -EOPNOTSUPP))
        r = transfer_wait(t, r, at, t->length, &deadline);
    if (r > 0)
        t->done = (size_t)r;
    return transfer_result(t, r);
}
#endif

/* Ruby 3.3 and 3.4 call io_pread and io_pwrite inside of a blocking region, without the GVL. There it is
 * right to block, and wrong to touch anything of Ruby's. Exported, though no header says so. */
int ruby_thread_has_gvl_p(void);

static VALUE positional_without_gvl(VALUE io, VALUE buffer, bool write, off_t from, size_t length,
                                    size_t offset) {
    void *base;
    const void *read_base;
    size_t size;
    int number = ea_io_number(io);
    if (write) {
        rb_io_buffer_get_bytes_for_reading(buffer, &read_base, &size);
        base = (void *)read_base;
    } else {
        rb_io_buffer_get_bytes_for_writing(buffer, &base, &size);
    }
    if (offset > size || length > size - offset)
        return INT2FIX(-EINVAL);
    char *at = (char *)base + offset;
    ssize_t r;
    do
        r = write ? pwrite(number, at, size - offset, from)
                  : pread(number, at, size - offset, from);
    while (r < 0 && errno == EINTR);
    return r < 0 ? INT2FIX(-errno) : LONG2FIX(r);
}

/* Apart, so that the usual case has no frame of it below. */
NOINLINE(static VALUE hook_transfer(VALUE self, VALUE io, VALUE buffer, bool write,
                                    const VALUE *from, VALUE length, VALUE offset));
static VALUE hook_transfer(VALUE self, VALUE io, VALUE buffer, bool write, const VALUE *from,
                           VALUE length, VALUE offset) {
    if (from && !ruby_thread_has_gvl_p())
        return positional_without_gvl(io, buffer, write, NUM2OFFT(*from), NUM2SIZET(length),
                                      NUM2SIZET(offset));
    struct transfer t = {
        .scheduler = ea_scheduler_get(self),
        .io = ea_io_of(io),
        .buffer = buffer,
        .write = write,
        .positional = from != NULL,
        .from = from ? NUM2OFFT(*from) : 0,
        .offset = NUM2SIZET(offset),
        .length = NUM2SIZET(length),
    };
    VALUE result = transfer_run(&t);
    RB_GC_GUARD(buffer);
    return result;
}

/* call-seq, by the version of the interface (see the constant INTERFACE_VERSION):
 *
 *   1     io_read(io, buffer, length)             io_pread(io, buffer, length, from)
 *   2, 3  io_read(io, buffer, length, offset)     io_pread(io, buffer, from, length, offset)
 *   4...  io_read(io, buffer, offset, length)     io_pread(io, buffer, from, offset, length)
 *
 * and the same for io_write and io_pwrite. They return the count of bytes, or -errno. Up to 3,
 * length is the least progress to make, and they wait for it; from 4 on it is the most, in one
 * transfer, and would-block is -EAGAIN. */
#if EA_RB_SCHEDULER_VERSION < 4
static bool is_usual(VALUE io, VALUE length, VALUE offset) {
    return RB_LIKELY(length == INT2FIX(0) && offset == INT2FIX(0) && RB_TYPE_P(io, T_FILE));
}
#else
#define is_usual(io, length, offset) false
#define ea_usual_read(self, io, buffer) Qfalse
#define ea_usual_write(self, io, buffer) Qfalse
#endif
#if EA_RB_SCHEDULER_VERSION < 2
#define BUFFERED_HOOKS(verb, write)                                                                \
    static VALUE hook_io_##verb(VALUE self, VALUE io, VALUE buffer, VALUE length) {                \
        if (is_usual(io, length, INT2FIX(0)))                                                      \
            return ea_usual_##verb(self, io, buffer);                                              \
        return hook_transfer(self, io, buffer, write, NULL, length, INT2FIX(0));                   \
    }                                                                                              \
    static VALUE hook_io_p##verb(VALUE self, VALUE io, VALUE buffer, VALUE length, VALUE from) {   \
        return hook_transfer(self, io, buffer, write, &from, length, INT2FIX(0));                  \
    }
#define BUFFERED_ARITY 3
#else
#if EA_RB_SCHEDULER_VERSION < 4
#define IN_ORDER(length, offset) length, offset
#else
#define IN_ORDER(length, offset) offset, length
#endif
#define BUFFERED_HOOKS(verb, write)                                                                \
    static VALUE hook_io_##verb(VALUE self, VALUE io, VALUE buffer,                                \
                                IN_ORDER(VALUE length, VALUE offset)) {                            \
        if (is_usual(io, length, offset))                                                          \
            return ea_usual_##verb(self, io, buffer);                                              \
        return hook_transfer(self, io, buffer, write, NULL, length, offset);                       \
    }                                                                                              \
    static VALUE hook_io_p##verb(VALUE self, VALUE io, VALUE buffer, VALUE from,                   \
                                 IN_ORDER(VALUE length, VALUE offset)) {                           \
        return hook_transfer(self, io, buffer, write, &from, length, offset);                      \
    }
#define BUFFERED_ARITY 4
#endif

BUFFERED_HOOKS(read, false)
BUFFERED_HOOKS(write, true)

void ea_init_transfer(VALUE klass) {
    rb_define_method(klass, "io_read", hook_io_read, BUFFERED_ARITY);
    rb_define_method(klass, "io_write", hook_io_write, BUFFERED_ARITY);
    rb_define_method(klass, "io_pread", hook_io_pread, BUFFERED_ARITY + 1);
    rb_define_method(klass, "io_pwrite", hook_io_pwrite, BUFFERED_ARITY + 1);
}
