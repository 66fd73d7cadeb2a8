/* The hooks io_read and io_write as they nearly always go: a whole buffer, on a socket or a pipe. One
 * attempt, and for a read one wait if need be. Whatever is not like that is for transfer.c, which has the
 * rest of the contract.
 *
 * It is here for the sake of two things. A fiber that waits keeps what is on its C stack, which the kernel
 * gives out in pages: with the few frames below, a task that waits in IO#read or IO#readpartial touches one
 * page of that stack, and would touch a second with those of transfer.c (docs/decisions/hot_paths.md).
 * And a call that finds data, or room, executes half as many instructions of ours. */
#include "scheduler.h"

#if EA_RB_SCHEDULER_VERSION < 4

#include <errno.h>

/* Neither an attempt nor a wait for this descriptor is anything out of the ordinary, as far as is known. */
static bool is_plain(const struct ea_fd *fd) {
    const uint32_t odd = EA_FD_NO_NOWAIT | EA_FD_NO_NOWAIT_WRITE | EA_FD_ALWAYS_READY |
                         EA_FD_REGULAR | EA_FD_IN_MEMORY;
    return (fd->known & (EA_FD_IS_SOCKET | EA_FD_NOT_SOCKET)) && !(fd->known & odd);
}

static VALUE answer(ea_result r) {
    return LONG2NUM(r == EA_EOF ? 0 : r);
}

VALUE ea_usual_read(VALUE self, VALUE io, VALUE buffer) {
    struct ea_scheduler *scheduler = ea_scheduler_get(self);
    int64_t deadline = 0;
    ea_fiber_account(scheduler, buffer);
    for (;;) {
        struct ea_fd *fd = ea_io_entry(scheduler, io);
        void *base;
        size_t size;
        rb_io_buffer_get_bytes_for_writing(buffer, &base, &size);
        bool first = deadline == 0;
        bool hand_over = first && fd->dry >= EA_DRY_ENOUGH; /* to the kernel; only io_uring does */
        if (RB_UNLIKELY(!is_plain(fd) || size == 0 || hand_over))
            return ea_transfer_rest(scheduler, io, buffer, false, 0);
        ea_result r = ea_try_read(fd, base, size);
        if (first && scheduler->poll.backend->operations)
            ea_fd_tried(fd, r == EA_WAIT_READABLE);
        if (r != EA_WAIT_READABLE) {
            scheduler->moved += r > 0 ? (size_t)r : 0;
            return answer(r);
        }
        if (RB_UNLIKELY(!is_plain(fd)))
            return ea_transfer_rest(scheduler, io, buffer, false, r);
        if (first) {
            if (ea_caller(scheduler) == EA_CALLER_OTHER) {
                ea_poll_saw_dry(&scheduler->poll, fd, EA_READABLE);
                return INT2FIX(-EAGAIN);
            }
            deadline = ea_io_deadline(io);
        }
        struct ea_fiber *current = ea_fiber_current(scheduler);
        current->buffer = buffer;
        if (ea_io_park(current, io, fd->fd, EA_READABLE, deadline, EA_PARK_DRY) == 0)
            ea_io_timed_out(current);
        current->buffer = Qfalse;
    }
}

VALUE ea_usual_write(VALUE self, VALUE io, VALUE buffer) {
    struct ea_scheduler *scheduler = ea_scheduler_get(self);
    struct ea_fd *fd = ea_io_entry(scheduler, io);
    const void *base;
    size_t size;
    rb_io_buffer_get_bytes_for_reading(buffer, &base, &size);
    if (RB_UNLIKELY(!is_plain(fd) || fd->writer || size == 0 || ea_fiber_accounts(scheduler)))
        return ea_transfer_rest(scheduler, io, buffer, true, 0);
    ea_fiber_account(scheduler, buffer);
    ea_result r = ea_try_write(fd, base, size);
    if (RB_UNLIKELY(r != (ea_result)size))
        return ea_transfer_rest(scheduler, io, buffer, true, r);
    struct ea_fiber *current = ea_fiber_current(scheduler);
    current->wrote = fd;
    current->wrote_switches = scheduler->switches;
    scheduler->moved += size;
    return answer(r);
}

#endif
