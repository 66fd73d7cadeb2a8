/* Operations that the kernel carries out while their fiber is parked (op.h), where the backend offers them.
 *
 * A receive, and a wait for a child, can be given up: whatever ends the wait, away_settle() ends the
 * operation (ea_operation_settle), so that nothing is in flight when the fiber goes on. Bytes that have come
 * all the same are not lost:
 *
 *   pending exceptions  (Timeout, Task#cancel, Scheduler#raise) are told when the fiber parks next, as
 *                       those of a fiber that was handed a mutex: the read has succeeded before;
 *   what unwinds it     (Fiber#raise, a kill, a throw) goes on, and the bytes are put into the IO's own
 *                       buffer, as IO#ungetbyte does: the next read finds them first.
 *
 * Only a scheduler that the garbage collector finds before it was closed takes bytes with it.
 *
 * An operation on a file works on the memory that Ruby lent, and cannot be given up: the fiber stays until it
 * is over, as for a bound job (jobs.c). */
#include "scheduler.h"

#include <errno.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

/* --- What can be given up. */

/* Parks self on the operation. False: it is not to be had now. */
static bool park_on(struct ea_fiber *self, struct ea_op *op, int64_t deadline) {
    ea_fiber_check(self);
    self->token = self->received = false;
    if (ea_op_park(&self->scheduler->poll, &self->waiter, op, deadline) < 0)
        return false;
    self->op = op;
    ea_fiber_parked(self, EA_WAIT_EVENT);
    ea_switch_away(self);
    return true;
}

struct unget {
    VALUE io;
    const char *bytes;
    size_t length;
};

static VALUE unget(VALUE arg) {
    const struct unget *u = (const struct unget *)arg;
    return rb_io_ungetbyte(u->io, rb_str_new(u->bytes, (long)u->length));
}

void ea_operation_unget(VALUE io, const void *bytes, size_t length) {
    struct unget u = {io, bytes, length};
    int state = 0;
    rb_protect(unget, (VALUE)&u, &state);
    if (state) /* closed meanwhile, and so is what it held */
        rb_set_errinfo(Qnil);
}

void ea_operation_settle(struct ea_fiber *self, VALUE io, bool unwinds) {
    struct ea_op *op = self->op;
    struct ea_poll *poll = &self->scheduler->poll;
    self->op = NULL;
    ea_op_end(poll, op);
    if (op->kind != EA_OP_RECEIVE || op->result <= 0)
        return;
    if (!unwinds)
        self->received = true;
    else
        ea_operation_unget(io, ea_op_take(poll, op), (size_t)op->result);
}

void ea_operation_abandon(struct ea_fiber *self) {
    struct ea_op *op = self->op;
    self->op = NULL;
    ea_op_end(&self->scheduler->poll, op);
    ea_op_take(&self->scheduler->poll, op);
}

ea_result ea_operation_receive(struct ea_fiber *self, VALUE io, struct ea_op *op,
                               int64_t deadline) {
    self->io = io;
    bool parked = park_on(self, op, deadline);
    RB_GC_GUARD(io); /* the record does not mark it */
    self->io = Qfalse;
    if (!parked)
        return EA_WAIT_READABLE;
    if (op->result > 0)
        return op->result;
    switch (self->waiter.reason) {
    case EA_WAKE_READY:
        return op->result == -ECANCELED ? EA_WAIT_READABLE : op->result;
    case EA_WAKE_TIMEOUT:
        return -ETIMEDOUT;
    default:
        ea_io_raise_closed(self);
    }
}

/* --- Children. */

bool ea_operation_child(struct ea_scheduler *scheduler, pid_t pid, int flags) {
    if (flags & ~WUNTRACED || !ea_op_offered(&scheduler->poll, EA_OP_WAITID))
        return false;
    struct ea_op op;
    ea_op_init(&op, EA_OP_WAITID, pid > 0 ? pid : pid == 0 ? getpgrp() : pid == -1 ? 0 : -pid);
    op.offset = pid > 0 ? P_PID : pid == -1 ? P_ALL : P_PGID;
    op.flags = WEXITED | WNOWAIT | (flags & WUNTRACED ? WSTOPPED : 0);
    if (!park_on(ea_fiber_current(scheduler), &op, EA_TIME_NEVER))
        return false;
    return op.result >= 0 || op.result == -ECHILD || op.result == -ECANCELED;
}

/* --- Files. */

struct file_operation {
    struct ea_op op;
    struct ea_fiber *fiber;
    bool done;
};

static void file_done(struct ea_op *op) {
    struct file_operation *file = EA_CONTAINER(op, struct file_operation, op);
    file->done = true;
    ea_bound_end(file->fiber->scheduler);
    ea_fiber_wake(file->fiber);
}

bool ea_operation_read_file(struct ea_scheduler *scheduler, int number, void *at, size_t length,
                            off_t from, ea_result *result) {
    struct file_operation file = {.fiber = ea_fiber_current(scheduler)};
    ea_op_init(&file.op, EA_OP_READ, number);
    file.op.buf = at;
    file.op.len = length < INT_MAX ? length : INT_MAX;
    file.op.offset = from;
    file.op.done = file_done;
    if (ea_op_start(&scheduler->poll, &file.op) < 0)
        return false;
    ea_bound_begin(scheduler);
    ea_fiber_park_masked(file.fiber, &file.done);
    *result = file.op.result;
    return *result != -EAGAIN && *result != -ECANCELED && *result != -EOPNOTSUPP;
}
