/* Operations (op.h), as far as they are the same for every backend that offers them. */
#include "poll_internal.h"
#include "try_internal.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>

void ea_op_init(struct ea_op *op, enum ea_op_kind kind, int fd) {
    memset(op, 0, sizeof *op);
    ea_link_init(&op->queued);
    op->kind = (uint8_t)kind;
    op->fd = fd;
    op->buffer = EA_OP_NO_BUFFER;
}

bool ea_op_offered(struct ea_poll *poll, enum ea_op_kind kind) {
    const struct ea_op_backend *operations = poll->backend->operations;
    return operations && !poll->no_operations && operations->offers(poll, kind);
}

int ea_op_start(struct ea_poll *poll, struct ea_op *op) {
    if (!ea_op_offered(poll, (enum ea_op_kind)op->kind))
        return -ENOSYS;
    return poll->backend->operations->start(poll, op);
}

int ea_op_park(struct ea_poll *poll, struct ea_waiter *waiter, struct ea_op *op, int64_t deadline) {
    struct ea_fd *fd = NULL;
    if (op->kind == EA_OP_RECEIVE) {
        fd = ea_fd_get(&poll->fds, op->fd);
        if (EA_UNLIKELY(!fd))
            return -errno;
        op->flags = fd->known & EA_FD_IS_SOCKET;
    }
    int rc = ea_op_start(poll, op);
    if (EA_UNLIKELY(rc < 0))
        return rc;
    op->waiter = waiter;
    waiter->op = op;
    ea_waiter_link(poll, waiter, fd, fd ? EA_READABLE : 0, deadline);
    return 0;
}

/* What the backend's result means. */
static ea_result meaning(struct ea_poll *poll, const struct ea_op *op) {
    if (op->kind == EA_OP_READ && op->result == 0 && op->len > 0)
        return EA_EOF;
    if (op->kind != EA_OP_RECEIVE)
        return op->result;
    switch (op->result) {
    case 0: {
        struct ea_fd *fd = ea_fd_find(&poll->fds, op->fd);
        return op->flags && fd ? ea_try_empty_receive(fd) : EA_EOF;
    }
    case -EAGAIN: /* or the kernel was short of something */
    case -EINTR:
    case -ENOBUFS:
    case -ENOMEM:
        return EA_WAIT_READABLE;
    default:
        return op->result;
    }
}

static void settle(struct ea_poll *poll, struct ea_op *op) {
    op->state = EA_OP_OVER;
    op->result = meaning(poll, op);
    if (op->waiter)
        op->waiter->op = NULL;
}

void ea_op_over(struct ea_poll *poll, struct ea_op *op) {
    struct ea_waiter *waiter = op->waiter;
    settle(poll, op);
    if (op->done)
        op->done(op);
    else if (waiter)
        ea_waiter_wake(waiter, EA_WAKE_READY, waiter->events);
}

void ea_op_completed(struct ea_poll *poll, const struct ea_poll_event *event) {
    struct ea_op *op = poll->backend->operations->completed(poll, event);
    if (op)
        ea_op_over(poll, op);
}

void ea_op_end(struct ea_poll *poll, struct ea_op *op) {
    switch (op->state) {
    case EA_OP_QUEUED:
        ea_link_remove(&op->queued);
        op->result = -ECANCELED;
        break;
    case EA_OP_FLIGHT:
        poll->backend->operations->end(poll, op);
        break;
    default:
        return;
    }
    settle(poll, op);
}

void ea_op_forget(struct ea_poll *poll, const struct ea_fd *fd) {
    for (const struct ea_link *l = fd->waiters.next; l != &fd->waiters; l = l->next) {
        struct ea_op *op = EA_CONTAINER(l, struct ea_waiter, link)->op;
        if (op)
            ea_op_end(poll, op);
    }
}

const void *ea_op_take(struct ea_poll *poll, struct ea_op *op) {
    if (op->buffer == EA_OP_NO_BUFFER)
        return NULL;
    const void *bytes = poll->backend->operations->take(poll, op);
    op->buffer = EA_OP_NO_BUFFER;
    return bytes;
}

void ea_op_abandon_all(struct ea_poll *poll) {
    if (poll->backend->operations)
        poll->backend->operations->abandon(poll);
}

/* A terminal, an inotify descriptor and the like are read with rules of their own. */
static bool is_stream(const struct ea_fd *fd) {
    if (fd->known & EA_FD_IS_SOCKET) {
        int type;
        socklen_t length = sizeof type;
        return getsockopt(fd->fd, SOL_SOCKET, SO_TYPE, &type, &length) == 0 && type == SOCK_STREAM;
    }
    struct stat st;
    return fstat(fd->fd, &st) == 0 && S_ISFIFO(st.st_mode);
}

bool ea_op_receives(struct ea_fd *fd) {
    if (EA_LIKELY(fd->known & EA_FD_STREAM))
        return true;
    if (!is_stream(fd)) {
        fd->dry = EA_DRY_OTHERWISE;
        return false;
    }
    fd->known |= EA_FD_STREAM;
    return true;
}
