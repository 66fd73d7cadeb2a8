/* What an IO is, and the hooks of waiting for one and of closing one. */
#include "scheduler.h"

#include <errno.h>
#include <stdatomic.h>
#include <unistd.h>

/* IOs whose number is not theirs alone (autoclose: false, made by Ruby for a bare number). */
#ifndef FMODE_EXTERNAL
#define FMODE_EXTERNAL 0x00010000 /* FMODE_PREP, before Ruby 3.3 */
#endif

static ID id_serial;

/* --- What an IO is. */

VALUE ea_io_of(VALUE io) {
    return RB_TYPE_P(io, T_FILE) ? io : rb_io_get_io(io);
}

int ea_io_number(VALUE io) {
#ifdef HAVE_RB_IO_DESCRIPTOR
    return rb_io_descriptor(io);
#else
    rb_io_t *fptr;
    RB_IO_POINTER(io, fptr);
    rb_io_check_closed(fptr);
    return fptr->fd;
#endif
}

#ifdef HAVE_RB_IO_T_FD
bool ea_io_valid(VALUE io, int number) {
    const rb_io_t *fptr = RFILE(io)->fptr;
    return fptr && fptr->fd == number;
}

bool ea_io_external(VALUE io) {
    return RFILE(io)->fptr->mode & FMODE_EXTERNAL;
}
#else
/* This Ruby hides the struct, and tells us of a close by itself (fiber_interrupt, io_close). */
bool ea_io_valid(VALUE io, int number) {
    (void)io;
    (void)number;
    return true;
}

bool ea_io_external(VALUE io) {
    return rb_io_mode(io) & FMODE_EXTERNAL;
}
#endif

/* An id for the life of an IO object: two IOs never have the same, whatever their address and
 * number. 0 for those that do not own their number. */
static uint64_t io_serial(VALUE io) {
    static _Atomic uint64_t last;
    if (ea_io_external(io))
        return 0;
    VALUE serial = rb_attr_get(io, id_serial);
    if (RB_LIKELY(FIXNUM_P(serial)))
        return (uint64_t)FIX2LONG(serial);
    if (OBJ_FROZEN(io))
        return 0;
    uint64_t fresh = atomic_fetch_add_explicit(&last, 1, memory_order_relaxed) + 1;
    rb_ivar_set(io, id_serial, LONG2FIX((long)fresh));
    return fresh;
}

unsigned ea_io_adopt(struct ea_scheduler *scheduler, VALUE io, int number) {
    struct ea_fd *fd = ea_fd_get(&scheduler->poll.fds, number);
    if (RB_UNLIKELY(!fd))
        rb_syserr_fail(errno, "eagain: wait");
    uint64_t serial = io_serial(io);
    if (RB_UNLIKELY(serial == 0))
        return EA_PARK_UNSURE;
    if (RB_UNLIKELY(fd->owner != serial)) {
        /* Without an owner, what is known may be of another IO that had the number, and was never
         * waited for; the try calls can live with that, a wait cannot. */
        if (fd->owner)
            ea_poll_forget(&scheduler->poll, number);
        else
            fd->known &= EA_FD_IS_SOCKET | EA_FD_NOT_SOCKET;
        fd->owner = serial;
    }
    return 0;
}

/* --- Waiting. */

void ea_io_raise_closed(struct ea_fiber *self) {
    ea_fiber_release_buffer(self);
    rb_raise(rb_eIOError, "stream closed in another thread");
}

unsigned ea_io_park(struct ea_fiber *self, VALUE io, int number, unsigned events, int64_t deadline,
                    unsigned flags) {
    flags |= ea_io_adopt(self->scheduler, io, number);
    self->io = io;
    ea_fiber_spawner_last(self->scheduler);
    enum ea_wake_reason reason =
        ea_fiber_park(self, EA_WAIT_EVENT, number, events, deadline, flags);
    RB_GC_GUARD(io); /* the record does not mark it */
    self->io = Qfalse;
    if (RB_LIKELY(reason == EA_WAKE_READY))
        return self->waiter.revents;
    if (reason == EA_WAKE_TIMEOUT)
        return 0;
    ea_io_raise_closed(self);
}

/* puts from several fibers on one IO: Ruby writes the line, waits for IO::WRITABLE, writes the newline.
 * Where it does so (no other fiber has run since the line), wait in the second write if need be, where
 * the turn to write is kept, and not in between, where others would write. */
static bool continues_to_write(const struct ea_fiber *self, int number) {
    struct ea_scheduler *scheduler = self->scheduler;
    return self->wrote && self->wrote_switches == scheduler->switches &&
           self->wrote->fd == number && ea_caller(scheduler) == EA_CALLER_WRITES;
}

/* Ruby 3.4's IO.copy_stream, handed to another thread by blocking_operation_wait, asks the scheduler of
 * the thread that it came from. No fiber of ours is there to park. */
static VALUE wait_elsewhere(int number, unsigned events, int64_t deadline) {
    struct timeval left, *timeout = NULL;
    if (deadline != EA_TIME_NEVER) {
        int64_t ns = deadline - ea_now();
        ns = ns > 0 ? ns : 0;
        left.tv_sec = (time_t)(ns / 1000000000);
        left.tv_usec = (suseconds_t)(ns % 1000000000 / 1000);
        timeout = &left;
    }
    int ready = rb_wait_for_single_fd(number, (int)events, timeout);
    if (ready < 0)
        rb_sys_fail("eagain: wait");
    return ready > 0 ? INT2NUM(ready) : Qfalse;
}

/* call-seq: io_wait(io, events, timeout) -> events that are ready, or false
 *
 * events: IO::READABLE, IO::PRIORITY, IO::WRITABLE. timeout in seconds, nil for none; with 0 it does
 * not wait. IOError when the IO is closed meanwhile. */
static VALUE hook_io_wait(VALUE self, VALUE io, VALUE events, VALUE timeout) {
    struct ea_scheduler *scheduler = ea_scheduler_get(self);
    io = ea_io_of(io);
    unsigned wanted = NUM2UINT(events);
    int64_t deadline = ea_deadline(timeout);
    int number = ea_io_number(io);
    bool elsewhere = scheduler->thread && scheduler->thread != rb_thread_current();
    if (deadline != EA_TIME_NEVER && deadline <= ea_now()) {
        if (!elsewhere)
            ea_fiber_account(scheduler, Qfalse);
        number = ea_io_number(io); /* others may have run */
        ea_result ready = ea_try_poll(number, wanted);
        if (ea_is_error(ready))
            rb_syserr_fail(ea_errno(ready), "eagain: poll");
        return ready > 0 ? UINT2NUM((unsigned)ready & wanted ? (unsigned)ready & wanted : wanted)
                         : Qfalse;
    }
    if (RB_UNLIKELY(elsewhere))
        return wait_elsewhere(number, wanted, deadline);
    struct ea_fiber *current = ea_fiber_current(scheduler);
    if (wanted == EA_WRITABLE && continues_to_write(current, number))
        return events;
    unsigned ready = ea_io_park(current, io, number, wanted, deadline, 0);
    return ready ? UINT2NUM(ready & wanted) : Qfalse;
}

/* call-seq: io_close(fd) -> true
 *
 * Closes the number (Ruby 4.0 and later ask us to), having forgotten what was known of it: who waits
 * on it gets an IOError. Also takes an IO. */
static VALUE hook_io_close(VALUE self, VALUE io) {
    struct ea_scheduler *scheduler = ea_scheduler_get(self);
    if (!RB_INTEGER_TYPE_P(io)) {
        io = ea_io_of(io);
        ea_poll_forget(&scheduler->poll, ea_io_number(io));
        rb_io_close(io);
        return Qtrue;
    }
    int number = NUM2INT(io);
    ea_poll_forget(&scheduler->poll, number);
    if (close(number) < 0 && errno != EINTR)
        rb_syserr_fail(errno, "close");
    return Qtrue;
}

void ea_init_io(VALUE klass) {
    id_serial = rb_intern("__eagain_serial__");
    rb_define_method(klass, "io_wait", hook_io_wait, 3);
    rb_define_method(klass, "io_close", hook_io_close, 1);
}
