/* The exceptions that say "would block": the classes that Ruby made at start-up, cheaply.
 *
 * A fresh object each time, with what Ruby's own constructor leaves in it, but made without calling it:
 * what it would do was found out once per class, when the class was introduced. Where that cannot be
 * (a Ruby, or a program, with another idea of an exception), the constructor is called as usual.
 *
 * Unless ea_would_block_backtraces, nobody pays for a backtrace: it is empty. And without a cause and
 * $DEBUG, the exception is not handed to rb_exc_raise, which does for every exception what only some
 * need, but thrown as rb_jump_tag throws what rb_protect caught. A TracePoint of :raise does not see it.
 *
 * Needs the GVL. */
#ifndef EA_RB_WOULD_BLOCK_H
#define EA_RB_WOULD_BLOCK_H

#include <ruby.h>

#include <stdatomic.h>
#include <stdbool.h>

/* What would block, and so what the exception says. */
enum ea_would_block_call {
    EA_WB_READ,
    EA_WB_WRITE,
    EA_WB_RECVFROM,
    EA_WB_RECVMSG,
    EA_WB_SENDMSG,
    EA_WB_ACCEPT,
    EA_WB_CONNECT,
    EA_WB_SSL_READ, /* only after ea_would_block_introduce_ssl() */
    EA_WB_SSL_WRITE,
    EA_WB_CALLS
};

/* Whether would-block exceptions have a backtrace, and are raised in full, as Ruby does it. */
extern atomic_bool ea_would_block_backtraces;

/* Raises the exception of this call. cause: what $! is, or nil. */
NORETURN(void ea_would_block(enum ea_would_block_call call, VALUE cause));

/* Raises as rb_readwrite_syserr_fail(3): any errno, any text (NULL: none). */
NORETURN(void ea_would_block_fail(bool writable, int error, const char *message));

/* From here on, the message and the empty backtrace are made when they are asked for: the classes get
 * methods `to_s` and `backtrace` that do so. */
void ea_would_block_on_demand(void);

/* Introduces OpenSSL::SSL::SSLErrorWaitReadable and ...WaitWritable. */
void ea_would_block_introduce_ssl(VALUE readable, VALUE writable);

void ea_init_would_block(void);

#endif
