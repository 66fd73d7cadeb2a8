/* A pool of native threads for what can only block: files, getaddrinfo(3), foreign calls.
 *
 * One pool serves the process. Threads are started on demand, up to a limit, and end after they
 * have been idle for ten seconds. They block all signals, have stacks of the default size
 * (getaddrinfo(3) needs room), and do not keep the process from exiting. */
#ifndef EAGAIN_OFFLOAD_H
#define EAGAIN_OFFLOAD_H

#include <eagain/poll.h>

EA_BEGIN

enum ea_offload_state {
    EA_OFFLOAD_IDLE = 0, /* never submitted, or finished and delivered */
    EA_OFFLOAD_QUEUED,
    EA_OFFLOAD_RUNNING,
    EA_OFFLOAD_FINISHED, /* work has returned; done is on its way to the poller */
};

/* Embedded in the submitter's struct. It, and all that work touches, must stay valid until done
 * was called or ea_offload_cancel() returned true. */
struct ea_offload {
    struct ea_link link;       /* in the pool's queue while queued */
    struct ea_message message; /* carries the completion to the poller */
    struct ea_poll *poll;
    EA_ATOMIC(int) state;                 /* enum ea_offload_state */
    void (*work)(struct ea_offload *job); /* in a thread of the pool */
    void (*done)(struct ea_offload *job); /* in the poller's thread */
};

EA_API void ea_offload_init(struct ea_offload *job, struct ea_poll *poll,
                            void (*work)(struct ea_offload *), void (*done)(struct ea_offload *));

/* Queues the job. 0; or -EAGAIN/-ENOMEM when no thread runs and none can be started, -EBUSY when the
 * job is queued or running already (then it was not queued). From any thread. Starting a thread
 * apart, it costs no system call but what waking an idle one takes. */
EA_API int ea_offload_submit(struct ea_offload *job);

/* Takes a job back that no thread has begun. True: it will not run, done will not be called.
 * False: it runs or has run; done will be called (or was). */
EA_API bool ea_offload_cancel(struct ea_offload *job);

/* The most threads that the pool may have (default: 4 * CPUs, between 8 and 64, or
 * EAGAIN_OFFLOAD_THREADS). Returns the old limit; threads < 1 only asks. A smaller limit applies as
 * threads go idle. */
EA_API int ea_offload_limit(int threads);

/* How many threads exist / are idle / how many jobs are queued; any may be NULL. */
EA_API void ea_offload_stats(int *threads, int *idle, size_t *queued);

/* In the child after fork(2): no threads, nothing queued. What the parent had queued or running is
 * idle in the child, and done will not be called there. Called by pthread_atfork too, and harmless
 * the second time: only a child made by clone(2) or _Fork(3) must call it. */
EA_API void ea_offload_after_fork(void);

EA_END

#endif
