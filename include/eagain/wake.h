/* Waking a thread that sleeps in the kernel, from another thread or a signal handler.
 *
 * An inbox of messages plus a descriptor (eventfd(2), else a pipe) to interrupt the sleep.
 * One word, `inbox`, says all that posters need to know, so that no poster looks at anything else
 * of the struct once it has handed its message over:
 *
 *   NULL             the owner runs, and will look at the inbox before it sleeps
 *   EA_WAKE_ASLEEP   the owner sleeps, or is about to
 *   EA_WAKE_NUDGED   as NULL, but the owner must not sleep: somebody called ea_wake_nudge()
 *   a message        the newest one; the owner will deliver before it sleeps
 *
 * Whoever replaces EA_WAKE_ASLEEP, and nobody else, writes to the descriptor: any number of posts
 * cost one system call, and none while the owner runs. */
#ifndef EAGAIN_WAKE_H
#define EAGAIN_WAKE_H

#include <eagain/base.h>

#ifdef __cplusplus
#include <atomic>
#define EA_ATOMIC(type) std::atomic<type>
#else
#include <stdatomic.h>
#define EA_ATOMIC(type) _Atomic(type)
#endif

EA_BEGIN

/* A message, embedded in the sender's struct; it must stay valid until deliver ran. A message that
 * is posted again before its delivery is delivered once. */
struct ea_message {
    struct ea_message *next;
    EA_ATOMIC(int) posted; /* 1 from ea_wake_post() until just before deliver is called */
    void (*deliver)(struct ea_message *message); /* runs in the owner's thread */
};

#define EA_WAKE_ASLEEP ((struct ea_message *)1)
#define EA_WAKE_NUDGED ((struct ea_message *)2)

struct ea_wake {
    EA_ATOMIC(struct ea_message *) inbox; /* see above */
    int read_fd;   /* readable when the owner must look; what the owner polls */
    int write_fd;  /* the same number for an eventfd */
    bool asleep;   /* owner's: between ea_wake_prepare() and ea_wake_finish() */
    unsigned owed; /* owner's: writes that posters have promised and the owner has not read */
    pid_t process; /* whose posters they are: a forked child waits for none of its parent's */
};

/* Returns 0, or -errno as eventfd(2)/pipe2(2). */
EA_API int ea_wake_init(struct ea_wake *wake);

/* Closes the descriptors. Nobody may post any more; a poster that has handed its message over but
 * not yet written to the descriptor is waited for. Undelivered messages are dropped. */
EA_API void ea_wake_term(struct ea_wake *wake);

EA_API void ea_message_init(struct ea_message *message, void (*deliver)(struct ea_message *));

/* Hands message to the owner and wakes it. From any thread; lock-free; async-signal-safe. */
EA_API void ea_wake_post(struct ea_wake *wake, struct ea_message *message);

/* Wakes the owner without a message. When it runs, its next ea_wake_prepare() returns false, unless
 * it delivers messages before: then the nudge is one of them. From any thread; lock-free;
 * async-signal-safe. */
EA_API void ea_wake_nudge(struct ea_wake *wake);

/* Owner, before it sleeps. Returns false when there is something in the inbox, or was a nudge: do
 * not sleep. */
EA_API bool ea_wake_prepare(struct ea_wake *wake);

/* Owner, after it slept, and before it delivers. readable: the backend saw read_fd readable, so
 * read it. Harmless when it did not sleep. */
EA_API void ea_wake_finish(struct ea_wake *wake, bool readable);

/* Owner: delivers all messages that were posted before the call, oldest first; deliver may free its
 * message, post it again, and post others (they wait for the next call). Returns how many. */
EA_API size_t ea_wake_deliver(struct ea_wake *wake);

EA_END

#endif
