/* The inbox of a poller and the descriptor that interrupts its sleep. The states are in wake.h.
 *
 * Why no wake-up is lost: the owner goes to sleep by one compare-and-swap, NULL to
 * EA_WAKE_ASLEEP, which fails if anything was posted; a poster hands over by one compare-and-swap
 * on the same word, so it either sees EA_WAKE_ASLEEP and writes, or the owner's attempt to sleep
 * sees the message. There is no second variable, hence nothing to order against it.
 *
 * Why a poster never touches a dead struct: after its compare-and-swap it goes on only if it
 * replaced EA_WAKE_ASLEEP. The owner notices that when it wakes (`owed`) and will not close the
 * descriptor before it has read as many writes as were promised. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* pipe2 */
#endif

#include <eagain/wake.h>

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

/* -DEA_WAKE_PIPE: the portable way, also where there is an eventfd. */
#if defined(EA_HAVE_EVENTFD) && !defined(EA_WAKE_PIPE)
#define EA_WAKE_EVENTFD 1
#include <sys/eventfd.h>
#else
#define EA_WAKE_EVENTFD 0
#endif

static bool is_message(const struct ea_message *head) {
    return head && head != EA_WAKE_ASLEEP && head != EA_WAKE_NUDGED;
}

/* Async-signal-safe: errno survives. The write cannot find the descriptor full, for the owner owes
 * at most one write per sleep and reads them all when it sees one. */
static void interrupt_sleep(const struct ea_wake *wake) {
    int saved = errno;
    ssize_t n;
#if EA_WAKE_EVENTFD
    uint64_t one = 1;
#else
    char one = 1;
#endif
    do {
        n = write(wake->write_fd, &one, sizeof one);
    } while (n < 0 && errno == EINTR);
    errno = saved;
}

/* Reads all that was written. Returns how many writes that were. */
static unsigned drain(const struct ea_wake *wake) {
    unsigned writes = 0;
#if EA_WAKE_EVENTFD
    uint64_t count;
    ssize_t n;
    do {
        n = read(wake->read_fd, &count, sizeof count);
    } while (n < 0 && errno == EINTR);
    if (n == (ssize_t)sizeof count)
        writes = (unsigned)count;
#else
    char bytes[64];
    ssize_t n;
    do {
        n = read(wake->read_fd, bytes, sizeof bytes);
        if (n > 0)
            writes += (unsigned)n;
    } while (n == (ssize_t)sizeof bytes || (n < 0 && errno == EINTR));
#endif
    return writes;
}

static void settle(struct ea_wake *wake) {
    unsigned writes = drain(wake);
    wake->owed -= writes < wake->owed ? writes : wake->owed;
}

#if !EA_WAKE_EVENTFD
static int make_pipe(int fds[2]) {
#if defined(EA_HAVE_PIPE2) && !defined(EA_WAKE_PIPE)
    return pipe2(fds, O_CLOEXEC | O_NONBLOCK);
#else
    if (pipe(fds) < 0)
        return -1;
    for (int i = 0; i < 2; i++) /* of a new pipe these cannot fail */
        if (fcntl(fds[i], F_SETFD, FD_CLOEXEC) < 0 || fcntl(fds[i], F_SETFL, O_NONBLOCK) < 0)
            return -1;
    return 0;
#endif
}
#endif

int ea_wake_init(struct ea_wake *wake) {
    atomic_init(&wake->inbox, NULL);
    wake->asleep = false;
    wake->owed = 0;
    wake->process = getpid();
#if EA_WAKE_EVENTFD
    int fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (fd < 0)
        return -errno;
    wake->read_fd = wake->write_fd = fd;
#else
    int fds[2];
    if (make_pipe(fds) < 0)
        return -errno;
    wake->read_fd = fds[0];
    wake->write_fd = fds[1];
#endif
    return 0;
}

void ea_wake_term(struct ea_wake *wake) {
    ea_wake_finish(wake, false);
    while (wake->owed > 0 && wake->process == getpid()) {
        struct pollfd pfd = {.fd = wake->read_fd, .events = POLLIN};
        /* The writer is between two instructions; we only give it the processor. */
        if (poll(&pfd, 1, -1) < 0 && errno != EINTR)
            break;
        settle(wake);
    }
    close(wake->read_fd);
    if (wake->write_fd != wake->read_fd)
        close(wake->write_fd);
    wake->read_fd = wake->write_fd = -1;
}

void ea_message_init(struct ea_message *message, void (*deliver)(struct ea_message *)) {
    message->next = NULL;
    atomic_init(&message->posted, 0);
    message->deliver = deliver;
}

void ea_wake_post(struct ea_wake *wake, struct ea_message *message) {
    /* acquire: deliver has finished with `next` when we see its 0. release: a poster who comes
     * second leaves what it wrote before to the delivery that is already on its way. */
    if (atomic_exchange_explicit(&message->posted, 1, memory_order_acq_rel))
        return;
    /* relaxed: only compared and stored as a pointer, never followed here. */
    struct ea_message *head = atomic_load_explicit(&wake->inbox, memory_order_relaxed);
    do {
        message->next = is_message(head) ? head : NULL;
        /* release: the owner, who takes the list, sees `next` and what the sender prepared. Older
         * messages' releases stay in force, since ours is a read-modify-write. */
    } while (!atomic_compare_exchange_weak_explicit(&wake->inbox, &head, message,
                                                    memory_order_release, memory_order_relaxed));
    if (head == EA_WAKE_ASLEEP)
        interrupt_sleep(wake);
}

void ea_wake_nudge(struct ea_wake *wake) {
    /* relaxed: as in ea_wake_post(). */
    struct ea_message *head = atomic_load_explicit(&wake->inbox, memory_order_relaxed);
    struct ea_message *wanted;
    do {
        /* Messages keep the owner awake as well as a nudge does. They are swapped for themselves
         * all the same, so that (release) the owner sees what was written before this nudge. */
        wanted = is_message(head) ? head : EA_WAKE_NUDGED;
    } while (!atomic_compare_exchange_weak_explicit(&wake->inbox, &head, wanted,
                                                    memory_order_release, memory_order_relaxed));
    if (head == EA_WAKE_ASLEEP)
        interrupt_sleep(wake);
}

bool ea_wake_prepare(struct ea_wake *wake) {
    struct ea_message *head = NULL;
    /* acquire, for when it fails: what the nudger wrote before is what we stay awake for. No
     * release: the owner tells posters nothing by going to sleep. */
    if (atomic_compare_exchange_strong_explicit(&wake->inbox, &head, EA_WAKE_ASLEEP,
                                                memory_order_acquire, memory_order_acquire)) {
        wake->asleep = true;
        return true;
    }
    /* One nudge forbids one sleep. Failing is fine: then a message came on top. acquire: a second
     * nudge may have swapped the mark for itself since the load above. */
    if (head == EA_WAKE_NUDGED)
        atomic_compare_exchange_strong_explicit(&wake->inbox, &head, NULL, memory_order_acquire,
                                                memory_order_relaxed);
    return false;
}

void ea_wake_finish(struct ea_wake *wake, bool readable) {
    if (wake->asleep) {
        wake->asleep = false;
        struct ea_message *head = EA_WAKE_ASLEEP;
        /* relaxed: still ours, nobody has said anything. */
        if (!atomic_compare_exchange_strong_explicit(&wake->inbox, &head, NULL,
                                                     memory_order_relaxed, memory_order_relaxed)) {
            wake->owed++;
            /* The nudge has done its work: we are awake. acquire: see what it was about; if it
             * fails, a message came on top, and taking that one acquires. */
            if (head == EA_WAKE_NUDGED)
                atomic_compare_exchange_strong_explicit(&wake->inbox, &head, NULL,
                                                        memory_order_acquire, memory_order_relaxed);
        }
    }
    if (readable)
        settle(wake);
}

size_t ea_wake_deliver(struct ea_wake *wake) {
    /* relaxed: a look to spare the exchange when there is nothing, which is the rule; a message
     * that we miss here is seen by ea_wake_prepare(). */
    if (!is_message(atomic_load_explicit(&wake->inbox, memory_order_relaxed)))
        return 0;
    /* acquire: see what the senders wrote before they posted. */
    struct ea_message *newest = atomic_exchange_explicit(&wake->inbox, NULL, memory_order_acquire);
    struct ea_message *oldest = NULL;
    while (newest) {
        struct ea_message *older = newest->next;
        newest->next = oldest;
        oldest = newest;
        newest = older;
    }
    size_t count = 0;
    while (oldest) {
        struct ea_message *message = oldest;
        oldest = message->next; /* before it is anybody else's again */
        /* release: we are done with `next`. acquire: see what later posters of it wrote. */
        atomic_exchange_explicit(&message->posted, 0, memory_order_acq_rel);
        message->deliver(message);
        count++;
    }
    return count;
}
