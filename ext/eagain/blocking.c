/* The hooks of what can only block: names, children, and work that Ruby hands over whole. */
#include "scheduler.h"
#include "socket_lib.h"

#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <arpa/inet.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

/* --- Names. */

struct lookup {
    struct ea_job job;
    int error; /* as getaddrinfo(3) */
    int system_error;
    struct addrinfo *list;
    char host[];
};

static void lookup_work(struct ea_job *job) {
    struct lookup *lookup = EA_CONTAINER(job, struct lookup, job);
    struct addrinfo hints = {.ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM};
    lookup->error = getaddrinfo(lookup->host, NULL, &hints, &lookup->list);
    lookup->system_error = errno;
}

static void lookup_dispose(struct ea_job *job) {
    struct lookup *lookup = EA_CONTAINER(job, struct lookup, job);
    if (lookup->list)
        freeaddrinfo(lookup->list);
}

static VALUE lookup_addresses(VALUE arg) {
    const struct lookup *lookup = (const struct lookup *)arg;
    VALUE addresses = rb_ary_new();
    char text[NI_MAXHOST];
    for (const struct addrinfo *ai = lookup->list; ai; ai = ai->ai_next) {
        int rc =
            getnameinfo(ai->ai_addr, ai->ai_addrlen, text, sizeof text, NULL, 0, NI_NUMERICHOST);
        if (rc == 0)
            rb_ary_push(addresses, rb_usascii_str_new_cstr(text));
    }
    return addresses;
}

NORETURN(static void lookup_fail(int error, int system_error));
static void lookup_fail(int error, int system_error) {
    if (error == EAI_SYSTEM)
        rb_syserr_fail(system_error, "getaddrinfo");
    VALUE klass = ea_socket_class(EA_SOCKET_ERROR);
    rb_raise(klass ? klass : rb_eIOError, "getaddrinfo: %s", gai_strerror(error));
}

static bool is_unknown_name(int error) {
#ifdef EAI_NODATA
    if (error == EAI_NODATA)
        return true;
#endif
    return error == EAI_NONAME;
}

/* call-seq: address_resolve(hostname) -> Array of String, or nil
 *
 * Numeric addresses of hostname, by the system's resolver (getaddrinfo(3): /etc/hosts, resolv.conf
 * and nsswitch.conf hold), in a thread of the pool, or at once for a name that is in /etc/hosts. nil when there is no
 * such name; SocketError for other failures, such as a name server that does not answer. */
static VALUE hook_address_resolve(VALUE self, VALUE hostname) {
    struct ea_scheduler *scheduler = ea_scheduler_get(self);
    const char *host = StringValueCStr(hostname);
    ea_fiber_account(scheduler, Qfalse);
    VALUE known;
    enum ea_hosts_answer found = ea_hosts_find(&scheduler->hosts, self, hostname, &known);
    if (RB_LIKELY(found == EA_HOSTS_KNOWN))
        return known;
    size_t size = strlen(host) + 1;
    struct lookup *lookup = ea_job_new(sizeof *lookup + size);
    memcpy(lookup->host, host, size);
    lookup->job.work = lookup_work;
    lookup->job.dispose = lookup_dispose;
    if (found == EA_HOSTS_ASK)
        lookup_work(&lookup->job);
    else
        ea_job_run(scheduler, &lookup->job);

    int error = lookup->error, system_error = lookup->system_error, state = 0;
    VALUE addresses = error ? Qnil : rb_protect(lookup_addresses, (VALUE)lookup, &state);
    ea_job_free(&lookup->job);
    if (state)
        rb_jump_tag(state);
    if (error && !is_unknown_name(error))
        lookup_fail(error, system_error);
    if (error)
        return Qnil;
    addresses = rb_funcall(addresses, rb_intern("uniq"), 0);
    if (found == EA_HOSTS_ASK)
        ea_hosts_keep(&scheduler->hosts, hostname, addresses);
    return addresses;
}

/* --- Children. */

/* With WNOHANG, or in a thread that has no scheduler, Ruby does not come back here. nil when no child has
 * ended. */
static VALUE reap(pid_t pid, int flags) {
#ifdef HAVE_RB_PROCESS_STATUS_WAIT
    return rb_process_status_wait(pid, flags);
#else
    VALUE status = rb_const_get(rb_mProcess, rb_intern("Status"));
    return rb_funcall(status, rb_intern("wait"), 2, PIDT2NUM(pid), INT2NUM(flags));
#endif
}

struct wait {
    pid_t pid;
    int flags;
};

static VALUE wait_thread(void *arg) {
    struct wait wait = *(struct wait *)arg;
    xfree(arg);
    return reap(wait.pid, wait.flags);
}

static VALUE thread_value(VALUE thread) {
    return rb_funcall(thread, rb_intern("value"), 0);
}

static VALUE thread_kill(VALUE thread) {
    return rb_funcall(thread, rb_intern("kill"), 0);
}

/* A thread of Ruby's, and not of the pool, which it might occupy for ever. */
static VALUE wait_in_thread(pid_t pid, int flags) {
    struct wait *wait = ALLOC(struct wait);
    *wait = (struct wait){pid, flags};
    VALUE thread = rb_thread_create(wait_thread, wait);
    rb_funcall(thread, rb_intern("report_on_exception="), 1, Qfalse);
    VALUE status = rb_ensure(thread_value, thread, thread_kill, thread);
    if (NIL_P(status))
        rb_raise(rb_eThreadError, "the thread that waited for this fiber was killed");
    return status;
}

struct pidfd {
    struct ea_fiber *fiber;
    int number;
};

static VALUE pidfd_wait(VALUE arg) {
    const struct pidfd *pidfd = (const struct pidfd *)arg;
    ea_fiber_park(pidfd->fiber, EA_WAIT_EVENT, pidfd->number, EA_READABLE, EA_TIME_NEVER, 0);
    return Qnil;
}

static VALUE pidfd_close(VALUE arg) {
    const struct pidfd *pidfd = (const struct pidfd *)arg;
    if (pidfd->fiber->scheduler->polling) /* it may have been closed in between */
        ea_poll_forget(&pidfd->fiber->scheduler->poll, pidfd->number);
    close(pidfd->number);
    return Qnil;
}

/* call-seq: process_wait(pid, flags) -> Process::Status
 *
 * Process.wait and its kin, where the kernel does not wait for them (operation.c): one child is waited for
 * through a pidfd; any child, or one of a group, or for other ends than exit (WUNTRACED), by a thread. */
static VALUE hook_process_wait(VALUE self, VALUE rb_pid, VALUE rb_flags) {
    struct ea_scheduler *scheduler = ea_scheduler_get(self);
    pid_t pid = NUM2PIDT(rb_pid);
    int flags = NUM2INT(rb_flags);
    for (;;) {
        VALUE status = reap(pid, flags | WNOHANG);
        if (!NIL_P(status) || flags & WNOHANG)
            return status;
        if (ea_operation_child(scheduler, pid, flags))
            continue;
        /* Stopped and continued children do not make a pidfd readable. */
        ea_result opened = flags == 0 ? ea_process_open(pid) : -ENOSYS;
        if (opened < 0)
            return wait_in_thread(pid, flags);
        struct pidfd pidfd = {.fiber = ea_fiber_current(scheduler), .number = (int)opened};
        rb_ensure(pidfd_wait, (VALUE)&pidfd, pidfd_close, (VALUE)&pidfd);
    }
}

/* --- Work that Ruby hands over (RB_NOGVL_OFFLOAD_SAFE: zlib, getdents of Dir.glob). Its memory is
 * Ruby's and lives on the stack of the fiber, which therefore stays until the work is done.
 *
 * A hand-over costs tens of microseconds, and much of what Ruby hands over takes one (each stat(2), each
 * getdents(2)). So what a method asks for whose work is brief by nature is done here, and timed, until
 * it has turned out to take longer than that. */

#if defined(RB_NOGVL_OFFLOAD_SAFE) || EA_RB_SCHEDULER_VERSION >= 3

/* From which duration on, in ns, work goes to another thread: what the least of so many takes, as on a busy
 * machine a call that takes a microsecond may have to wait for the processor or the GVL, in threads of
 * ours above all; or one alone, if it takes too long to look at another. Now and then one is tried here,
 * at first soon, and, when it was slow again, later and later. */
#define WORTH_A_THREAD 200000
#define TIMED 4
#define TOO_LONG 25000000
#define SPREAD 16
#define SPREAD_MAX (1u << 20)

static VALUE call_work(RB_BLOCK_CALL_FUNC_ARGLIST(unused, work)) {
    return rb_funcall(work, rb_intern("call"), 0);
}

/* Without the GVL, and without coming back to the scheduler: a blocking fiber has none. */
static void work_here(VALUE work) {
    VALUE fiber = rb_const_get(rb_cObject, rb_intern("Fiber"));
    rb_block_call(fiber, rb_intern("blocking"), 0, NULL, call_work, work);
}

static void learn_cost(struct ea_caller *caller, int64_t ns) {
    if (caller->slow) {
        caller->slow = ns >= WORTH_A_THREAD;
        caller->spread = caller->spread < SPREAD_MAX ? caller->spread * 4 : SPREAD_MAX;
        caller->left = caller->spread;
        caller->timed = 0;
        return;
    }
    if (caller->timed == 0 || ns < caller->least)
        caller->least = ns;
    if (++caller->timed < TIMED && ns < TOO_LONG)
        return;
    caller->slow = caller->least >= WORTH_A_THREAD || ns >= TOO_LONG;
    caller->left = caller->spread = SPREAD;
    caller->timed = 0;
}

#ifdef HAVE_RB_FIBER_SCHEDULER_BLOCKING_OPERATION_EXTRACT
struct operation {
    struct ea_job job;
    rb_fiber_scheduler_blocking_operation_t *operation;
};

static void operation_work(struct ea_job *job) {
    struct operation *op = EA_CONTAINER(job, struct operation, job);
    rb_fiber_scheduler_blocking_operation_execute(op->operation);
}

static void work_elsewhere(struct ea_scheduler *scheduler, VALUE work) {
    struct operation op = {.job.work = operation_work,
                           .operation = rb_fiber_scheduler_blocking_operation_extract(work)};
    ea_job_run_bound(scheduler, &op.job);
}
#else
struct operation {
    struct ea_fiber *fiber;
    VALUE work;
    bool returned;
    bool done;
};

static VALUE operation_body(VALUE arg) {
    struct operation *op = (struct operation *)arg;
    rb_funcall(op->work, rb_intern("call"), 0);
    op->returned = true;
    return Qnil;
}

/* Also when the thread was killed. */
static VALUE operation_end(VALUE arg) {
    struct operation *op = (struct operation *)arg;
    op->done = true;
    ea_bound_end(op->fiber->scheduler);
    ea_fiber_wake(op->fiber);
    ea_poll_nudge(&op->fiber->scheduler->poll);
    return Qnil;
}

static VALUE operation_thread(void *arg) {
    return rb_ensure(operation_body, (VALUE)arg, operation_end, (VALUE)arg);
}

static VALUE operation_start(VALUE arg) {
    return rb_thread_create(operation_thread, (void *)arg);
}

/* Ruby 3.4 has no way to call the work without a thread of Ruby's. If there can be none, it is done here. */
static void work_elsewhere(struct ea_scheduler *scheduler, VALUE work) {
    struct operation op = {.fiber = ea_fiber_current(scheduler), .work = work};
    VALUE before = rb_errinfo();
    int state = 0;
    VALUE thread = rb_protect(operation_start, (VALUE)&op, &state);
    if (state && !ea_error_is(rb_errinfo(), rb_eThreadError))
        rb_jump_tag(state);
    if (state) {
        rb_set_errinfo(before);
        work_here(work);
        return;
    }
    scheduler->offloaded++;
    ea_bound_begin(scheduler);
    ea_fiber_park_masked(op.fiber, &op.done);
    RB_GC_GUARD(thread);
    if (!op.returned)
        rb_raise(rb_eThreadError, "the thread that worked for this fiber was killed");
}
#endif

/* call-seq: blocking_operation_wait(work) -> true
 *
 * Calls work, which can only block: in another thread, while other fibers run, if the method that
 * asks is one whose work takes long; here otherwise. */
static VALUE hook_blocking_operation_wait(VALUE self, VALUE work) {
    struct ea_scheduler *scheduler = ea_scheduler_get(self);
    struct ea_caller *caller = ea_caller_slot(scheduler);
    VALUE frame = caller->frame;
    if (!caller->brief || (caller->slow && caller->left > 0)) {
        if (caller->brief)
            caller->left--;
        work_elsewhere(scheduler, work);
    } else {
        int64_t start = ea_now();
        work_here(work);
        if (caller->frame == frame) /* or the slot went to another */
            learn_cost(caller, ea_now() - start);
    }
    RB_GC_GUARD(work);
    return Qtrue;
}

#endif

void ea_init_blocking(VALUE klass) {
    rb_define_method(klass, "address_resolve", hook_address_resolve, 1);
    rb_define_method(klass, "process_wait", hook_process_wait, 2);
#if defined(RB_NOGVL_OFFLOAD_SAFE) || EA_RB_SCHEDULER_VERSION >= 3
    rb_define_method(klass, "blocking_operation_wait", hook_blocking_operation_wait, 1);
#endif
}
