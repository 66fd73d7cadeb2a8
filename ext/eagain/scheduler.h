/* The binding's one struct for each scheduler and each fiber, and what its files call of each other.
 *
 * Everything here runs with the GVL, but for enter_without_gvl() in switch.c, which touches the
 * poller's event buffer alone. Another thread that holds the GVL may therefore make a fiber of this
 * scheduler runnable directly; it nudges the poller in case its owner sleeps. */
#ifndef EA_RB_SCHEDULER_H
#define EA_RB_SCHEDULER_H

#include <ruby.h>
#include <ruby/io.h>
#include <ruby/io/buffer.h>
#include <ruby/fiber/scheduler.h>
#include <ruby/thread.h>

#include <eagain.h>

#include "hosts.h"

/* The interface that the hooks implement. Ruby 3.1 has no such macro: version 1. */
#ifndef EA_RB_SCHEDULER_VERSION
#ifdef RUBY_FIBER_SCHEDULER_VERSION
#define EA_RB_SCHEDULER_VERSION RUBY_FIBER_SCHEDULER_VERSION
#else
#define EA_RB_SCHEDULER_VERSION 1
#endif
#endif

enum ea_fiber_state {
    EA_FIBER_RUNNING, /* it runs, or waits for a fiber that it resumed itself */
    EA_FIBER_PARKED,  /* its waiter, or somebody who holds its Fiber, will wake it */
    EA_FIBER_READY,   /* in scheduler->ready */
};

/* What a parked fiber waits for: says how an unblock, or an exception, may reach it. */
enum ea_fiber_wait {
    EA_WAIT_EVENT, /* a descriptor, a job, a child */
    EA_WAIT_SLEEP, /* #kernel_sleep: also woken by #unblock, above all Mutex#sleep */
    EA_WAIT_BLOCK, /* #block: woken by #unblock */
    EA_WAIT_TURN,  /* nothing: it yielded */
    EA_WAIT_RUN,   /* in #run, for all others to end: no trap handler that waits runs in it now */
};

/* What we know of a Fiber. One is made when a fiber first parks, or is pushed. `own` ones (pushed or
 * scheduled here) are dropped when their fiber ends; others (fibers that the program resumes by
 * itself) are kept without keeping their Fiber alive, and swept now and then: such a record holds
 * nothing while its fiber runs, so that it does no harm if another Fiber gets the same address. */
struct ea_fiber {
    VALUE fiber;     /* the Fiber; of a stand-in, what to transfer to (see ea_fiber_interrupt) */
    VALUE exception; /* raise this in it, or in what it resumed, when that next runs or parks; an
                      * Array: these, one each time; Qfalse: none */
    VALUE io;        /* the IO that it waits on, while parked on one; Qfalse otherwise */
    /* The locked IO::Buffer that a hook was given, while it waits; Qfalse otherwise. */
    VALUE buffer;
    VALUE blocker; /* what it waits for in #block: to compare with, no more */
    struct ea_scheduler *scheduler;
    struct ea_link ready;    /* in scheduler->ready while READY */
    struct ea_link timeouts; /* of ea_timeout.within: the #timeout_after blocks that it is in */
    struct ea_link overdue;  /* of ea_timeout.overdue: those whose time is up, not yet told */
    struct ea_waiter waiter; /* what it is parked on */
    struct ea_link gate;     /* in scheduler->gated while it waits for its turn to write */
    struct ea_fd *gate_fd;   /* on what; means something while gated */
    struct ea_fd *turn;      /* whose turn to write it has; NULL: none */
    struct ea_fd *wrote;     /* what it wrote last, all of it; means something while `switches` is
                              * scheduler->switches: nobody has run since */
    uint64_t wrote_switches;
    struct ea_job *job;       /* the one that it waits for and may leave behind; NULL: none */
    struct ea_op *op;         /* the one that it is parked on and may give up; NULL: none */
    struct ea_select *select; /* the IO.select that it is in, with waiters of its own; NULL: none */
    struct ea_fiber *resumer; /* whose Fiber#resume it runs in, as far as we know; NULL: nobody's */
    struct ea_fiber *inner; /* the one that it resumed and in which, or further in, one is parked */
    /* Of what Ruby runs in it while it is away; NULL: none that we know. */
    struct ea_fiber *handler;
    unsigned resumed; /* how many records have this one as their resumer */
    uint8_t state;    /* enum ea_fiber_state */
    uint8_t wait;     /* enum ea_fiber_wait, while PARKED or READY */
    bool own;         /* we run it: it ends in our hands */
    bool started;     /* false: pushed, and has never run */
    bool token;       /* #unblock came while it ran: its next #block returns at once */
    bool unblocked;   /* READY because of #unblock: it was handed something, do not raise now */
    bool received;    /* its last operation brought bytes: do not raise now */
    bool doubtful;    /* READY because it seems to have given control away; see ea_switch_settle */
    bool pushed;      /* not started yet, and made by who knows whom: perhaps another thread */
    bool slept;       /* since its last #block: that may be the lock that Mutex#sleep takes again */
    bool unlocked;    /* its last #kernel_sleep was that of Mutex#sleep */
    bool relocking;   /* in the #block of a lock that nothing may interrupt */
    bool abandoned; /* dropped in mid-wait: only the frames of that wait know it, until they end */
    bool standin;   /* fiber is no Fiber but an operation's stand-in (interface version 5) */
    bool away;      /* it gives way, or has not come back quite: its wait is not over */
    bool handles;   /* it is the handler of its resumer, in the same Fiber; not in the table */
    bool spawns;    /* READY since it began a fiber, which has not waited for a descriptor yet */
};

/* What a method that calls hooks is like; caller.c. */
enum ea_caller_kind {
    EA_CALLER_OTHER = 1, /* may not want to wait */
    EA_CALLER_WAITS,     /* would wait, and try again */
    EA_CALLER_RELOCKS, /* Mutex#sleep, and so ConditionVariable#wait: locks again, come what may */
    EA_CALLER_WRITES,  /* the same, and writes in pieces that belong together */
};

struct ea_caller {
    VALUE frame; /* a method entry or code, as rb_profile_frames gives it; 0: empty */
    uint8_t kind;
    bool brief; /* its blocking operations end by themselves */
    /* What those took, which were done in the scheduler's own thread; blocking.c. */
    bool slow;       /* the next go to another thread */
    uint8_t timed;   /* how many since it was decided anew */
    int64_t least;   /* ns; of those */
    uint32_t left;   /* while slow: so many go to another thread before one is tried here */
    uint32_t spread; /* what left begins with */
};

#define EA_CALLERS 16

/* How many more fibers may have ended, and not be collected, than are alive. */
#ifdef EA_STACKS_ARE_KEPT
#define EA_DEAD_STACKS 256
#else
#define EA_DEAD_STACKS 4096
#endif

/* When it was last looked at how many there are; stacks.c. */
struct ea_stacks {
    size_t starts; /* fibers begun since */
    size_t majors; /* how many major collections there had been before */
    size_t looks;  /* how many since the last of those */
    size_t mapped; /* bytes; 0: not known */
};

/* A block of #timeout_after; goes with the fiber that runs it. */
struct ea_timeout {
    struct ea_timer timer;
    struct ea_link within;  /* in owner->timeouts */
    struct ea_link overdue; /* in owner->overdue from its deadline until it was told */
    struct ea_fiber *owner; /* NULL when its record is gone (closed, forked): it never fires */
    int argc;
    const VALUE *argv; /* the exception's class and its arguments */
    VALUE seconds;
    VALUE token; /* the object that it is in; a hidden exception knows its block by it */
    bool hidden; /* raise what the block does not rescue, and convert it on the way out */
};

/* What Timeout.timeout does for a call that names no class. */
enum ea_library {
    EA_LIBRARY_UNKNOWN = 0,
    EA_LIBRARY_SHOWS, /* asks for a Timeout::Error */
    EA_LIBRARY_HIDES, /* asks for what no block rescues, and raises Timeout::Error itself */
};

struct ea_scheduler {
    VALUE self;
    VALUE thread; /* whose fibers it runs, once it has run one; Qfalse until then */
    struct ea_poll poll;
    st_table *fibers;         /* VALUE (Fiber) => struct ea_fiber * */
    struct ea_link ready;     /* of ea_fiber.ready: the run queue, FIFO */
    struct ea_fiber *running; /* the fiber that last got control from us; NULL: unknown */
    struct ea_fiber *runner;  /* the fiber inside #run, NULL: none */
    VALUE spare;              /* a Fiber to run trap handlers; Qfalse: it has yet to begin */
    size_t outer_runners;     /* fibers in #run further up, PARKED; only in a forked child */
    size_t own;               /* own fibers that have not ended */
    size_t foreign;           /* records that are not own */
    size_t foreign_limit;     /* sweep when foreign reaches it */
    size_t looking;           /* calls of Ruby's during which no record is swept */
    size_t parked;            /* how many are PARKED */
    size_t ready_count;       /* how many are READY */
    size_t peak;              /* the most own fibers at once */
    unsigned budget;          /* switches left until the kernel is asked, though fibers are ready */
    size_t moved; /* bytes that usual.c and fast.c read and wrote since the kernel was last asked */
    unsigned transfers; /* I/O that succeeded at once since the clock was last looked at */
    uint64_t switches;
    uint64_t offloaded;
    struct ea_stacks stacks;
    uint64_t forks;                       /* ea_forks when the poller was made */
    struct ea_caller callers[EA_CALLERS]; /* a cache, by frame; caller.c */
    struct ea_link gated;  /* of ea_fiber.gate: who waits for another's turn to write to end */
    struct ea_hosts hosts; /* names that need no thread */
    VALUE probe;           /* the seconds of a call that finds out about `library`; Qfalse: none */
    uint8_t library;       /* enum ea_library */
    size_t jobs;           /* submitted to the pool and not delivered yet */
    size_t bound;          /* works in other threads, now, on memory of its fibers */
    struct ea_link listed; /* in the list of busy ones, or of orphans; jobs.c */
    bool polling;          /* the poller is there, if only for the sake of jobs */
    bool open;             /* the poller is there */
    bool forked;           /* this process is a child that was forked while it was open */
    bool closing;          /* inside #close */
};

extern const rb_data_type_t ea_scheduler_type;

/* The scheduler of self; raises RuntimeError when it is closed. In a forked child it is made usable
 * first: an own poller, and of the parent's fibers none but the one that forked. */
struct ea_scheduler *ea_scheduler_get(VALUE self);
bool ea_scheduler_is_open(VALUE self);
/* The running fiber's scheduler if it is one of ours, open, with its own methods, and runs this thread; else NULL. Raises
 * nothing. (wait.c) */
struct ea_scheduler *ea_scheduler_running(void);

/* Is error, as rb_errinfo() gives it after rb_protect(), an exception of klass? It may be no object at
 * all, but what carries a throw, a break or a kill; nothing of Ruby's may look at that. */
static inline bool ea_error_is(VALUE error, VALUE klass) {
    return !RB_SPECIAL_CONST_P(error) && !RB_TYPE_P(error, T_IMEMO) &&
           RTEST(rb_obj_is_kind_of(error, klass));
}

/* --- fibers.c: records and the run queue. */

/* The record of the running fiber, made if need be. */
struct ea_fiber *ea_fiber_current(struct ea_scheduler *scheduler);
struct ea_fiber *ea_fiber_find(struct ea_scheduler *scheduler, VALUE fiber);
struct ea_fiber *ea_fiber_make(struct ea_scheduler *scheduler, VALUE fiber, bool own);
/* A record that is in no list and no table. NoMemoryError. */
struct ea_fiber *ea_fiber_new(struct ea_scheduler *scheduler, VALUE fiber);
/* Takes a record out and frees it. */
void ea_fiber_drop(struct ea_fiber *record);
/* Makes it runnable, at the front or the back. It is PARKED or new. */
void ea_fiber_ready(struct ea_fiber *record, bool front);
/* Out of the run queue, as RUNNING. */
void ea_fiber_unready(struct ea_fiber *record);
/* The running fiber is about to wait for a descriptor. If one that began it would be next, the others go
 * first: a task that accepts connections, and begins a task for each, would have all of them open before
 * the first is served. */
void ea_fiber_spawner_last(struct ea_scheduler *scheduler);
/* RUNNING becomes PARKED for the sake of wait. */
void ea_fiber_parked(struct ea_fiber *record, enum ea_fiber_wait wait);
/* Wakes a PARKED fiber, whatever it waits for. */
void ea_fiber_wake(struct ea_fiber *record);
void ea_fibers_mark(struct ea_scheduler *scheduler);
/* Frees all records but two (either may be NULL), and those that idle in #run further up if they are to
 * stay, and empties the run queue. */
void ea_fibers_drop_all(struct ea_scheduler *scheduler, const struct ea_fiber *keep,
                        const struct ea_fiber *keep_too, bool keep_idle);
/* Frees all records and touches nothing else: for the garbage collector. */
void ea_fibers_abandon(struct ea_scheduler *scheduler);
size_t ea_fibers_memsize(const struct ea_scheduler *scheduler);

/* --- nesting.c: who runs on whose behalf, and is told of what. */

/* Fiber#backtrace_locations: an Array, empty before its begin and after its end. The call may be traced, but
 * no record is swept meanwhile. */
VALUE ea_fiber_frames(struct ea_scheduler *scheduler, VALUE fiber, int most);
/* Remembers whose Fiber#resume record runs in (NULL: nobody's). */
void ea_fiber_resumed_by(struct ea_fiber *record, struct ea_fiber *resumer);
/* Of record and those in whose Fiber#resume it runs, the first that really waits for a fiber that it
 * resumed; NULL: none. */
struct ea_fiber *ea_fiber_resuming(struct ea_fiber *record);
/* self parks: makes sure of those in whose Fiber#resume it runs, and tells them. */
void ea_fiber_nest(struct ea_fiber *self);
void ea_fiber_unnest(struct ea_fiber *self);
/* The fiber that is parked on behalf of record: what it resumed, and that resumed in turn. */
struct ea_fiber *ea_fiber_innermost(struct ea_fiber *record);
/* The record for what Ruby runs in a fiber that is away. */
struct ea_fiber *ea_fiber_handle(struct ea_fiber *away);
/* That came to its end. */
void ea_fiber_handled(struct ea_fiber *away);
/* Marks exception as pending for record, after those that are, and wakes it as soon as that is safe. Each
 * is raised once, in the order in which they came, as a thread's are. */
void ea_fiber_raise(struct ea_fiber *record, VALUE exception);
/* The same, without waking anybody. */
void ea_fiber_add_pending(struct ea_fiber *record, VALUE exception);
/* Raises what is pending (an exception, a timeout) for self, or for those in whose Fiber#resume it runs. */
void ea_fiber_check(struct ea_fiber *self);

/* --- switch.c: who runs next, and the turns of the poller. */

/* The running fiber, PARKED or READY already, gives way until it is picked again. Raises what was
 * raised for it meanwhile. */
void ea_switch_away(struct ea_fiber *self);
/* The running fiber, READY already, gives way to next. */
void ea_switch_to(struct ea_fiber *self, struct ea_fiber *next);
/* self has control, and perhaps nobody picked it: takes note of what became of the one that had it. */
void ea_switch_settle(const struct ea_fiber *self);
/* Makes scheduler->spare, while no fiber is parked halfway: Ruby may run trap handlers meanwhile. */
void ea_make_spare(struct ea_scheduler *scheduler);
/* Is record in #run, with nothing to do but to wait? */
static inline bool ea_fiber_idles(const struct ea_fiber *record) {
    return record && record->state == EA_FIBER_PARKED && record->wait == EA_WAIT_RUN &&
           !record->handler;
}
/* The hook that self waits in is about to raise: gives back the buffer that it was lent. */
void ea_fiber_release_buffer(struct ea_fiber *self);
/* Parks self on fd (-1: none) and the deadline. Returns the waiter's reason; revents in the waiter.
 * Returns EA_WAKE_READY at once when the descriptor is always ready. Raises what was raised for
 * self, Errno as ea_poll_park says. */
enum ea_wake_reason ea_fiber_park(struct ea_fiber *self, enum ea_fiber_wait wait, int fd,
                                  unsigned events, int64_t deadline, unsigned flags);
/* Parks until #unblock, and is told of exceptions and timeouts when it parks next. */
void ea_fiber_relock(struct ea_fiber *self);
/* Parks until *done; an exception waits for that: somebody else works on the fiber's memory. */
void ea_fiber_park_masked(struct ea_fiber *self, const bool *done);
/* Before each attempt that may not have to wait: when such have gone on for long, lets others run, and
 * raises what is pending (buffer, or Qfalse: what the running hook was lent). Returns whether others may
 * have run. */
bool ea_fiber_account(struct ea_scheduler *scheduler, VALUE buffer);
/* Is the next time one at which others may run? */
bool ea_fiber_accounts(const struct ea_scheduler *scheduler);

/* --- stacks.c: those of fibers that have ended. */

/* Collects garbage, if stacks of fibers that have ended are kept. */
void ea_stacks_limit(struct ea_scheduler *scheduler);

/* --- jobs.c: work for the offload pool. */

struct ea_job {
    struct ea_offload offload;
    struct ea_scheduler *scheduler;
    struct ea_fiber *fiber; /* who waits for it; NULL: nobody any more */
    bool done;
    bool bound;                          /* works on the fiber's memory */
    bool left;                           /* whoever waits for it was interrupted */
    void (*work)(struct ea_job *job);    /* in a thread of the pool, without the GVL */
    void (*dispose)(struct ea_job *job); /* frees what work made; may be NULL */
};

/* Runs a job that works on the fiber's own memory (the job itself may be there too), in the pool, or
 * here and now if there can be no thread. */
void ea_job_run_bound(struct ea_scheduler *scheduler, struct ea_job *job);
/* A zeroed job that may be left behind, of at least sizeof(struct ea_job). NoMemoryError. */
void *ea_job_new(size_t size);
/* Runs such a job. When it returns, the job is the caller's to look at and to free; when it raises,
 * the job is taken care of. */
void ea_job_run(struct ea_scheduler *scheduler, struct ea_job *job);
void ea_job_free(struct ea_job *job);
/* Something begins, and ends, to work on a fiber's memory. */
void ea_bound_begin(struct ea_scheduler *scheduler);
void ea_bound_end(struct ea_scheduler *scheduler);
/* Drops all fibers, once nothing works on their memory, and the poller if no job needs it. */
void ea_jobs_release(struct ea_scheduler *scheduler);
/* Ends the poller of a closed scheduler if it can. */
bool ea_jobs_drained(struct ea_scheduler *scheduler);
/* Keeps a scheduler that is being freed until its jobs are done. */
void ea_jobs_orphan(struct ea_scheduler *scheduler);
void ea_jobs_bury_orphans(void);
void ea_init_jobs(void);

/* --- operation.c: what the kernel does meanwhile. */

/* Parks on an EA_OP_RECEIVE. Returns as ea_try_read(); -ETIMEDOUT when the deadline has passed. Bytes: the
 * caller takes them. IOError when io was closed, and what was raised for self. */
ea_result ea_operation_receive(struct ea_fiber *self, VALUE io, struct ea_op *op, int64_t deadline);
/* self has control again: ends its operation. unwinds: it is raised in, and does not go on where it was. */
void ea_operation_settle(struct ea_fiber *self, VALUE io, bool unwinds);
/* Its frames will not run on. */
void ea_operation_abandon(struct ea_fiber *self);
/* Puts bytes into io's own buffer. */
void ea_operation_unget(VALUE io, const void *bytes, size_t length);
/* Waits until one such child (as waitpid(2)) has something to tell. False: it cannot be waited for so. */
bool ea_operation_child(struct ea_scheduler *scheduler, pid_t pid, int flags);
/* Reads a file (from -1: where it stands), as ea_try_read(). False: it cannot be read so. */
bool ea_operation_read_file(struct ea_scheduler *scheduler, int number, void *at, size_t length,
                            off_t from, ea_result *result);

/* The fiber that is in select never comes back to it, or never as one of ours: its waiters, in memory
 * that goes with the fiber, are unlinked; select.c. */
void ea_select_abandon(struct ea_select *select);

/* --- timeouts.c */

/* Raises what the first of the overdue blocks raises. */
void ea_timeout_raise(struct ea_link *overdue);
/* All blocks of a fiber: they never fire. */
void ea_timeouts_detach(struct ea_fiber *owner);
/* The running fiber has a record that is not new, with timeouts: if they are not its own but those of a Fiber
 * that had the same address, they are detached. */
void ea_timeouts_adopt(struct ea_fiber *owner);

/* --- The scheduler's methods. */
void ea_init_scheduler(VALUE scheduler_class); /* scheduler.c: new, run, close */
void ea_init_hooks(VALUE scheduler_class);     /* hooks.c: fibers, sleep, block */
void ea_init_timeouts(VALUE scheduler_class);  /* timeouts.c */
void ea_init_io(VALUE scheduler_class);        /* io.c: waiting */
void ea_init_transfer(VALUE scheduler_class);  /* transfer.c: reading, writing */
void ea_init_select(VALUE scheduler_class);    /* select.c */
void ea_init_blocking(VALUE scheduler_class);  /* blocking.c: what can only block */
void ea_init_script(VALUE module);

/* The deadline of a hook's timeout argument: nil for none. TypeError, ArgumentError as sleep. */
int64_t ea_deadline(VALUE timeout);

/* --- caller.c */

/* The kind of the method that called the running hook. */
enum ea_caller_kind ea_caller(struct ea_scheduler *scheduler);
/* Did whoever called the running hook make the buffer for it? Slow. */
bool ea_caller_lends(void);
/* All that is remembered of it; good until the next call. */
struct ea_caller *ea_caller_slot(struct ea_scheduler *scheduler);

/* --- io.c, for its neighbours. */

/* The number of an IO; IOError when it is closed. */
int ea_io_number(VALUE io);
/* Parks on an IO. Returns revents, 0 when the deadline passed. IOError when it was closed. */
unsigned ea_io_park(struct ea_fiber *self, VALUE io, int number, unsigned events, int64_t deadline,
                    unsigned flags);
/* The IO that self waited on was closed. */
NORETURN(void ea_io_raise_closed(struct ea_fiber *self));
/* What is known of the IO's number; forgets what was known of another IO with that number. */
unsigned ea_io_adopt(struct ea_scheduler *scheduler, VALUE io, int number);
/* A waiter's valid(): does the IO still have the number? */
bool ea_io_valid(VALUE io, int number);
/* Is its number not its alone (autoclose: false)? */
bool ea_io_external(VALUE io);
/* The T_FILE behind what a hook was given. */
VALUE ea_io_of(VALUE io);

/* --- transfer.c and usual.c: each the other's half. */

/* The number's entry, with a first guess at what it is: a wrong one costs a system call, once. */
struct ea_fd *ea_io_entry(struct ea_scheduler *scheduler, VALUE io);
/* When IO#timeout, beginning now, is over. */
int64_t ea_io_deadline(VALUE io);
/* It is over: raises. */
NORETURN(void ea_io_timed_out(struct ea_fiber *self));
#if EA_RB_SCHEDULER_VERSION < 4
/* io_read and io_write of the whole buffer (a length of 0) on a T_FILE. */
VALUE ea_usual_read(VALUE self, VALUE io, VALUE buffer);
VALUE ea_usual_write(VALUE self, VALUE io, VALUE buffer);
/* What is left to do after an attempt that said r; 0: there was none. */
VALUE ea_transfer_rest(struct ea_scheduler *scheduler, VALUE io, VALUE buffer, bool write,
                       ea_result r);
#endif

#endif
