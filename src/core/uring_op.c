/* Operations of the io_uring backend.
 *
 * What is in flight has a slot, whose generation and index are the request's user data: so an answer is
 * recognised whatever has become of the owner's memory. A slot is free again when its answer was taken, or
 * when its owner is gone (ea_op_abandon_all).
 *
 * Receives go into buffers of ours, of which the kernel takes one when there is something to receive. So
 * sleepers need no memory for what may come, and nothing of theirs is ever under the kernel's pen.
 *
 * Operations are offered on a ring of the best kind alone: there the kernel carries them out while the
 * ring's thread is in io_uring_enter(2), and at no other time. */
#include "poll_internal.h"

#ifdef EA_HAVE_LIBURING

#include "uring.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

/* Buffers, at first and at most, powers of two: as many descriptors may bring something in one turn. The kernel
 * takes them in turn, so that each will have been touched before long. */
#define BUFFERS 256
#define BUFFERS_MAX 1024

/* Later than some headers. */
#define OP_WAITID 50

struct uring_slot {
    uint32_t generation;
    uint32_t next; /* of the free ones; NO_SLOT: the last */
    struct ea_op *op;
};
#define NO_SLOT UINT32_MAX

void ea_uring_ops_init(struct uring *u) {
    ea_link_init(&u->ops.queue);
    u->ops.slot_free = NO_SLOT;
}

/* --- What is offered. */

static const uint8_t codes[EA_OP_KINDS] = {
    [EA_OP_RECEIVE] = IORING_OP_RECV,    [EA_OP_READ] = IORING_OP_READ,
    [EA_OP_WRITE] = IORING_OP_WRITE,     [EA_OP_FSYNC] = IORING_OP_FSYNC,
    [EA_OP_OPENAT2] = IORING_OP_OPENAT2, [EA_OP_WAITID] = OP_WAITID,
};

#define PROBED (1u << 31)

/* A bit for each kind that this kernel knows. */
static unsigned probe(struct uring *u) {
    static _Atomic unsigned known; /* the same whoever asks: relaxed */
    unsigned kinds = atomic_load_explicit(&known, memory_order_relaxed);
    if (EA_LIKELY(kinds & PROBED))
        return kinds;
    struct io_uring_probe *answer = io_uring_get_probe_ring(&u->ring);
    if (!answer)
        return 0;
    kinds = PROBED;
    for (int i = 0; i < EA_OP_KINDS; i++)
        kinds |= io_uring_opcode_supported(answer, codes[i]) ? 1u << i : 0;
    io_uring_free_probe(answer);
    atomic_store_explicit(&known, kinds, memory_order_relaxed);
    return kinds;
}

static void *map(size_t size) {
    void *at = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    return at == MAP_FAILED ? NULL : at;
}

#define RING_SIZE (BUFFERS_MAX * sizeof(struct io_uring_buf))
#define MEMORY_SIZE ((size_t)BUFFERS_MAX * EA_OP_RECEIVE_MAX)

static void offer_buffer(struct uring_ops *ops, uint16_t id) {
    io_uring_buf_ring_add(ops->ring, ops->memory + (size_t)id * EA_OP_RECEIVE_MAX,
                          EA_OP_RECEIVE_MAX, id, io_uring_buf_ring_mask(BUFFERS_MAX), 0);
    io_uring_buf_ring_advance(ops->ring, 1);
}

static void offer_more(struct uring_ops *ops, uint32_t more) {
    for (uint32_t i = 0; i < more && ops->buffers < BUFFERS_MAX; i++)
        offer_buffer(ops, (uint16_t)ops->buffers++);
}

static void unmap_buffers(struct uring_ops *ops) {
    if (ops->ring)
        munmap(ops->ring, RING_SIZE);
    if (ops->memory)
        munmap(ops->memory, MEMORY_SIZE);
    ops->ring = NULL;
    ops->memory = NULL;
}

static bool have_buffers(struct uring *u) {
    struct uring_ops *ops = &u->ops;
    if (EA_LIKELY(ops->ring != NULL))
        return true;
    if (ops->failed)
        return false;
    ops->ring = map(RING_SIZE);
    ops->memory = map(MEMORY_SIZE);
    struct io_uring_buf_reg reg = {.ring_addr = (uint64_t)(uintptr_t)ops->ring,
                                   .ring_entries = BUFFERS_MAX};
    if (!ops->ring || !ops->memory || io_uring_register_buf_ring(&u->ring, &reg, 0) != 0) {
        unmap_buffers(ops);
        ops->failed = true;
        return false;
    }
    io_uring_buf_ring_init(ops->ring);
    offer_more(ops, BUFFERS);
    return true;
}

static bool offers(struct ea_poll *poll, enum ea_op_kind kind) {
    struct uring *u = poll->backend_data;
    return u->ring.flags & IORING_SETUP_DEFER_TASKRUN && !u->ops.renewed && !u->renew &&
           ea_uring_ours(u) && probe(u) & 1u << kind && (kind != EA_OP_RECEIVE || have_buffers(u));
}

/* --- Slots. */

static bool is_lent(const struct ea_op *op) {
    return op->kind == EA_OP_READ || op->kind == EA_OP_WRITE || op->kind == EA_OP_OPENAT2;
}

static bool more_slots(struct uring_ops *ops) {
    uint32_t count = ops->slot_count ? 2 * ops->slot_count : 64;
    struct uring_slot *slots = realloc(ops->slots, count * sizeof *slots);
    if (!slots || count > NUMBER_MAX)
        return false;
    ops->slots = slots;
    for (uint32_t i = count; i-- > ops->slot_count;) {
        slots[i] = (struct uring_slot){.generation = 1, .next = ops->slot_free};
        ops->slot_free = i;
    }
    ops->slot_count = count;
    return true;
}

static void free_slot(struct uring_ops *ops, uint32_t index) {
    struct uring_slot *slot = &ops->slots[index];
    slot->generation = ea_generation_after(slot->generation);
    slot->op = NULL;
    slot->next = ops->slot_free;
    ops->slot_free = index;
}

/* No more in flight. */
static void land(struct uring_ops *ops, struct ea_op *op) {
    ops->lending -= is_lent(op);
    free_slot(ops, op->slot);
}

static int start(struct ea_poll *poll, struct ea_op *op) {
    struct uring *u = poll->backend_data;
    struct uring_ops *ops = &u->ops;
    if (ops->slot_free == NO_SLOT && !more_slots(ops))
        return -ENOMEM;
    ea_link_insert_before(&ops->queue, &op->queued);
    op->state = EA_OP_QUEUED;
    return 0;
}

/* --- Requests. */

static void prepare(struct io_uring_sqe *sqe, const struct ea_op *op) {
    switch (op->kind) {
    case EA_OP_RECEIVE: {
        unsigned len = (unsigned)(op->len < EA_OP_RECEIVE_MAX ? op->len : EA_OP_RECEIVE_MAX);
        if (op->flags) {
            io_uring_prep_recv(sqe, op->fd, NULL, len, 0);
            sqe->ioprio |= IORING_RECVSEND_POLL_FIRST;
        } else {
            io_uring_prep_read(sqe, op->fd, NULL, len, (uint64_t)-1);
        }
        sqe->flags |= IOSQE_BUFFER_SELECT;
        break;
    }
    case EA_OP_READ:
        io_uring_prep_read(sqe, op->fd, op->buf, (unsigned)op->len, (uint64_t)op->offset);
        break;
    case EA_OP_WRITE:
        io_uring_prep_write(sqe, op->fd, op->buf, (unsigned)op->len, (uint64_t)op->offset);
        break;
    case EA_OP_FSYNC:
        io_uring_prep_fsync(sqe, op->fd, op->flags ? IORING_FSYNC_DATASYNC : 0);
        break;
    case EA_OP_OPENAT2:
        io_uring_prep_openat2(sqe, op->fd, op->buf, (struct open_how *)op->how);
        break;
    case EA_OP_WAITID:
        io_uring_prep_rw(OP_WAITID, sqe, op->fd, NULL, (unsigned)op->offset, 0);
        sqe->file_index = op->flags;
        break;
    }
}

static uint64_t data_of(const struct uring_ops *ops, const struct ea_op *op) {
    return ea_uring_data(ops->slots[op->slot].generation, OPERATION_DIRECTION, op->slot);
}

void ea_uring_ops_settle(struct uring *u) {
    struct uring_ops *ops = &u->ops;
    while (!ea_link_alone(&ops->queue)) {
        struct ea_op *op = EA_CONTAINER(ops->queue.next, struct ea_op, queued);
        struct io_uring_sqe *sqe = NULL;
        if (ops->slot_free != NO_SLOT || more_slots(ops))
            sqe = ea_uring_sqe(u);
        if (EA_UNLIKELY(!sqe)) {
            u->hurry = true;
            return;
        }
        ea_link_remove(&op->queued);
        op->state = EA_OP_FLIGHT;
        op->slot = ops->slot_free;
        struct uring_slot *slot = &ops->slots[op->slot];
        ops->slot_free = slot->next;
        slot->op = op;
        ops->lending += is_lent(op);
        prepare(sqe, op);
        io_uring_sqe_set_data64(sqe, data_of(ops, op));
    }
}

/* --- Answers. */

static bool has_buffer(const struct ea_poll_event *event) {
    return event->flags & IORING_CQE_F_BUFFER;
}

static uint16_t buffer_of(const struct ea_poll_event *event) {
    return (uint16_t)(event->flags >> IORING_CQE_BUFFER_SHIFT);
}

static void give_back(struct uring *u, uint16_t buffer) {
    if (!u->ops.renewed && ea_uring_ours(u))
        offer_buffer(&u->ops, buffer);
}

static struct ea_op *completed(struct ea_poll *poll, const struct ea_poll_event *event) {
    struct uring *u = poll->backend_data;
    struct uring_ops *ops = &u->ops;
    uint32_t index = (uint32_t)event->fd;
    if (EA_UNLIKELY(index >= ops->slot_count ||
                    ops->slots[index].generation != event->generation)) {
        if (has_buffer(event))
            give_back(u, buffer_of(event));
        return NULL;
    }
    struct ea_op *op = ops->slots[index].op;
    land(ops, op);
    op->result = event->result;
    if (EA_UNLIKELY(event->result == -ENOBUFS && op->kind == EA_OP_RECEIVE && ops->ring))
        offer_more(ops, ops->buffers);
    if (has_buffer(event)) {
        if (event->result > 0)
            op->buffer = buffer_of(event);
        else
            give_back(u, buffer_of(event));
    }
    return op;
}

/* The kernel takes a buffer in io_uring_enter(2) alone, so that it is the caller's until then. */
static const void *take(struct ea_poll *poll, struct ea_op *op) {
    struct uring *u = poll->backend_data;
    give_back(u, op->buffer);
    return u->ops.memory + (size_t)op->buffer * EA_OP_RECEIVE_MAX;
}

/* --- Events that are kept for the next turn. */

static bool keep(struct uring_ops *ops, const struct ea_poll_event *event) {
    if (ops->kept_count == ops->kept_room) {
        size_t room = ops->kept_room ? 2 * ops->kept_room : 64;
        struct ea_poll_event *kept = realloc(ops->kept, room * sizeof *kept);
        if (!kept)
            return false;
        ops->kept = kept;
        ops->kept_room = room;
    }
    ops->kept[ops->kept_count++] = *event;
    return true;
}

void ea_uring_ops_keep(struct ea_poll *poll, struct uring *u) {
    struct io_uring_cqe *cqe;
    unsigned head, seen = 0;
    io_uring_for_each_cqe(&u->ring, head, cqe) {
        struct ea_poll_event event;
        seen++;
        if (!ea_uring_answer(poll, u, cqe, &event) || keep(&u->ops, &event))
            continue;
        /* No memory: an operation ends here and now, of other events the poller asks again. */
        if (event.events == EA_EVENT_OPERATION)
            ea_op_completed(poll, &event);
        else
            u->renew = true;
    }
    io_uring_cq_advance(&u->ring, seen);
}

size_t ea_uring_ops_kept(struct uring *u, struct ea_poll_event *events, size_t count) {
    struct uring_ops *ops = &u->ops;
    if (EA_LIKELY(ops->kept_count == 0))
        return 0;
    if (count > ops->kept_count)
        count = ops->kept_count;
    memcpy(events, ops->kept, count * sizeof *events);
    ops->kept_count -= count;
    memmove(ops->kept, ops->kept + count, ops->kept_count * sizeof *events);
    return count;
}

/* --- The end. */

/* Takes the answer to op, if it is there. */
static bool answered(struct ea_poll *poll, struct uring *u, struct ea_op *op) {
    struct uring_ops *ops = &u->ops;
    uint32_t generation = ops->slots[op->slot].generation;
    ea_uring_ops_keep(poll, u);
    if (op->state == EA_OP_OVER)
        return true;
    for (size_t i = 0; i < ops->kept_count; i++) {
        struct ea_poll_event event = ops->kept[i];
        if (event.events != EA_EVENT_OPERATION || (uint32_t)event.fd != op->slot ||
            event.generation != generation)
            continue;
        ops->kept_count--;
        memmove(&ops->kept[i], &ops->kept[i + 1], (ops->kept_count - i) * sizeof event);
        completed(poll, &event);
        return true;
    }
    return false;
}

/* Waits for one more answer. False: never. */
static bool await_answer(struct uring *u) {
    int rc = ea_uring_flags(u) & (IORING_SQ_TASKRUN | IORING_SQ_CQ_OVERFLOW)
                 ? ea_uring_submit(u)
                 : ea_uring_entered(u, io_uring_submit_and_wait(&u->ring, 1));
    return rc != -EEXIST;
}

static void end(struct ea_poll *poll, struct ea_op *op) {
    struct uring *u = poll->backend_data;
    struct uring_ops *ops = &u->ops;
    bool lost = !ea_uring_ours(u);
    if (!lost && answered(poll, u, op))
        return;
    bool asked = !lost && ea_uring_cancel(u, data_of(ops, op));
    if (!lost && ea_uring_submit(u) == -EEXIST)
        lost = true;
    while (!lost && !answered(poll, u, op)) {
        if (!asked)
            asked = ea_uring_cancel(u, data_of(ops, op));
        lost = !await_answer(u);
    }
    if (!lost)
        return;
    land(ops, op);
    op->result = -ECANCELED;
}

static void abandon(struct ea_poll *poll) {
    struct uring *u = poll->backend_data;
    struct uring_ops *ops = &u->ops;
    ea_link_init(&ops->queue);
    for (uint32_t i = 0; i < ops->slot_count; i++) {
        if (!ops->slots[i].op)
            continue;
        if (ea_uring_ours(u))
            ea_uring_cancel(u, ea_uring_data(ops->slots[i].generation, OPERATION_DIRECTION, i));
        free_slot(ops, i);
    }
}

/* Another poller may go on where this one ended: nothing was received, so it is worth a try. */
static void over(struct ea_poll *poll, struct ea_op *op, int result) {
    op->result = op->kind == EA_OP_RECEIVE && result == -ECANCELED ? -EAGAIN : result;
    ea_op_over(poll, op);
}

void ea_uring_ops_renewed(struct ea_poll *poll, struct uring *u) {
    struct uring_ops *ops = &u->ops;
    ops->renewed = true;
    for (uint32_t i = 0; i < ops->slot_count; i++) {
        struct ea_op *op = ops->slots[i].op;
        bool kept = false;
        for (size_t k = 0; k < ops->kept_count && op; k++)
            kept |= ops->kept[k].events == EA_EVENT_OPERATION && (uint32_t)ops->kept[k].fd == i &&
                    ops->kept[k].generation == ops->slots[i].generation;
        if (!op || kept)
            continue;
        land(ops, op);
        over(poll, op, -ECANCELED);
    }
}

void ea_uring_ops_term(struct ea_poll *poll, struct uring *u) {
    struct uring_ops *ops = &u->ops;
    for (uint32_t i = 0; i < ops->slot_count; i++) {
        struct ea_op *op = ops->slots[i].op;
        if (!op)
            continue;
        end(poll, op);
        over(poll, op, op->result);
    }
    while (!ea_link_alone(&ops->queue)) {
        struct ea_op *op = EA_CONTAINER(ops->queue.next, struct ea_op, queued);
        ea_link_remove(&op->queued);
        over(poll, op, -ECANCELED);
    }
    free(ops->slots);
    free(ops->kept);
    unmap_buffers(ops);
    ops->slots = NULL;
    ops->kept = NULL;
    ops->slot_count = 0;
    ops->kept_count = ops->kept_room = 0;
}

const struct ea_op_backend ea_uring_operations = {
    .offers = offers,
    .start = start,
    .end = end,
    .completed = completed,
    .take = take,
    .abandon = abandon,
};

#endif
