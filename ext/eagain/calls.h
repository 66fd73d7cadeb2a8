/* The try calls, for the files that build on them (nonblock.c, kgio.c, api.c). Each is one attempt; it
 * never waits and never lets go of the GVL (accept does, see ea_accept()). Arguments are as the Ruby method of that name takes them
 * (nil: not given). The answers, too: what was read, a count, a new object; nil at the end of file;
 * :wait_readable or :wait_writable; any other error raises its Errno. */
#ifndef EA_RB_CALLS_H
#define EA_RB_CALLS_H

#include "descriptor.h"
#include "socket_lib.h"

/* try_stream.c */
VALUE ea_tryread(VALUE io, VALUE maxlen, VALUE buffer);
VALUE ea_tryreadv(VALUE io, VALUE maxlens, VALUE buffers);
VALUE ea_trypeek(VALUE io, VALUE maxlen, VALUE buffer);
VALUE ea_trywrite(VALUE io, VALUE string);
VALUE ea_trywritev(VALUE io, VALUE strings);
/* Of a T_FILE and Strings, which are not converted: what comes behind offset; several. */
VALUE ea_trywrite_from(VALUE io, VALUE string, long offset);
VALUE ea_trywritev_of(VALUE io, const VALUE *strings, long count);

/* try_socket.c. At the end of file the buffer is as before, whereas the Ruby methods empty it. */
VALUE ea_tryrecv(VALUE socket, VALUE maxlen, VALUE flags, VALUE buffer);
VALUE ea_tryrecvfrom(VALUE socket, VALUE maxlen, VALUE flags, VALUE buffer);
VALUE ea_trysend(VALUE socket, VALUE string, VALUE flags, VALUE dest);
/* The Addrinfo that Ruby's own methods give with what came from this address (len 0: none). */
VALUE ea_socket_addrinfo(VALUE socket, const struct sockaddr *address, socklen_t len);
/* The symbol of a would-block; of an error, raises Errno with the name of the call, as Ruby's
 * methods of sockets do. r is neither a count nor EA_EOF. */
VALUE ea_socket_answer(ea_result r, const char *call);

/* try_message.c */
VALUE ea_tryrecvmsg(VALUE socket, VALUE maxlen, VALUE flags, VALUE maxcontrol, bool scm_rights);
/* controls: an Array. */
VALUE ea_trysendmsg(VALUE socket, VALUE message, VALUE flags, VALUE dest, VALUE controls);

/* try_accept.c. klass nil: as the server's class has it. *address (may be NULL) becomes the peer's
 * sockaddr, a frozen binary String. */
VALUE ea_tryaccept(VALUE server, VALUE klass, VALUE *address);
/* What it does on a BasicSocket for which known has begun, with flags as ea_try_accept_as(). Of a
 * listener that may block it lets go of the GVL, and raises what is raised into the thread; known has
 * begun anew then. */
ea_result ea_accept(VALUE server, struct ea_known *known, struct sockaddr *addr, socklen_t *addrlen,
                    int flags);
VALUE ea_tryconnect(VALUE socket, VALUE address);
/* The same, but Errno::EISCONN of a socket that is connected. */
VALUE ea_tryconnect_anew(VALUE socket, VALUE address);
/* A new IO of a BasicSocket class (or a subclass) for a number that is ours: as klass.for_fd, without a
 * system call. Closes the number if it raises: TypeError for another class, Errno::EBADF. */
VALUE ea_socket_new(VALUE klass, int number);

/* memory.c: what a socket is and where it leads, kept with the IO object. */
int ea_socket_family(VALUE socket);   /* AF_*; -1 and no exception when it cannot be had */
int ea_socket_type(VALUE socket);     /* SOCK_* */
int ea_socket_protocol(VALUE socket); /* IPPROTO_* */
VALUE ea_socket_peer(VALUE socket);   /* the sockaddr, a frozen String; Errno as getpeername(2) */
VALUE ea_socket_local(VALUE socket);  /* the same of getsockname(2) */
void ea_socket_remember_peer(VALUE socket, VALUE sockaddr);

/* wait.c. Waits until one of the events (EA_READABLE...) is there, through the fiber scheduler if there
 * is one, else in this thread, without the GVL. deadline: EA_TIME_NEVER or as ea_now(). Returns the
 * events that are ready, 0 when the deadline passed. IOError when the IO is closed meanwhile. To be
 * called after a would-block. */
unsigned ea_wait(VALUE io, unsigned events, int64_t deadline);
/* The deadline that a timeout: in seconds means; nil: EA_TIME_NEVER. ArgumentError, TypeError as sleep. */
int64_t ea_deadline_of(VALUE timeout);
/* After the would-block `blocked`: waits until it is worth another try. EA_TIME_NEVER: as long as
 * IO#timeout says. Eagain::TimeoutError when the time is over, with the count of bytes written so far. */
void ea_wait_again(VALUE io, ea_result blocked, int64_t deadline, size_t written);
/* The same of events, after an attempt at each of them. */
void ea_wait_for(VALUE io, unsigned events, int64_t deadline, size_t written);
/* As ea_wait_again(); false when the time is over. */
bool ea_wait_after(VALUE io, ea_result blocked, int64_t deadline);
/* As ea_wait(), for who has not tried; EA_TIME_NEVER as ea_wait_again(). */
unsigned ea_wait_untried(VALUE io, unsigned events, int64_t deadline);
/* Raises Eagain::TimeoutError. */
NORETURN(void ea_wait_expire(size_t written));
/* Lets other fibers run, if this one has done I/O without a wait for long. To be called before an
 * attempt, and not after it, since it may raise. */
static inline void ea_wait_account(void);
/* The same, and *string becomes a copy if others may run: it is to be written as it is now. */
static inline void ea_wait_account_for(VALUE *string);
/* Might others run in the next account? */
bool ea_wait_accounts(void);
/* Was there ever an Eagain::Scheduler in this process? If not, nobody need look for one. */
extern atomic_bool ea_wait_schedulers;
/* The scheduler is looked for once in so many times, in each native thread. */
#define EA_WAIT_TICKS 16
extern _Thread_local unsigned ea_wait_ticks;
void ea_wait_account_in_scheduler(VALUE *string);

static inline void ea_wait_account_for(VALUE *string) {
    if (RB_UNLIKELY(atomic_load_explicit(&ea_wait_schedulers, memory_order_relaxed)) &&
        RB_UNLIKELY(++ea_wait_ticks % EA_WAIT_TICKS == 0))
        ea_wait_account_in_scheduler(string);
}

static inline void ea_wait_account(void) {
    ea_wait_account_for(NULL);
}

void ea_init_try_stream(VALUE module);
void ea_init_try_socket(VALUE module);
void ea_init_try_message(VALUE module);
void ea_init_try_accept(VALUE module);
void ea_init_try_file(VALUE module);
void ea_init_memory(VALUE module);
void ea_init_wait(VALUE module);
void ea_init_twins(VALUE module);
void ea_init_fast(VALUE module);
void ea_init_nonblock(VALUE module);
void ea_init_api(VALUE module);
void ea_init_kgio(VALUE module);
void ea_init_buffered(VALUE module);

#endif
