/* One word for every outcome of an I/O attempt.
 *
 *   >= 0                a count of bytes, or a new descriptor
 *   -4095 .. -1         -errno, as the system call would have set it
 *   EA_EOF              end of file: the peer has shut down its side
 *   EA_WAIT_READABLE    nothing yet: wait until readable, then try again
 *   EA_WAIT_WRITABLE    no room yet: wait until writable, then try again
 *
 * "Would block" is a value, never an errno: -EAGAIN is not among the results.
 * A result fits a register, costs no memory and may be passed between threads. */
#ifndef EAGAIN_RESULT_H
#define EAGAIN_RESULT_H

#include <eagain/base.h>

EA_BEGIN

typedef ssize_t ea_result;

#define EA_ERRNO_MAX 4095
#define EA_EOF ((ea_result)-0x10001)
#define EA_WAIT_READABLE ((ea_result)-0x10002)
#define EA_WAIT_WRITABLE ((ea_result)-0x10003)

/* Is r a count (or a descriptor)? */
static inline bool ea_is_count(ea_result r) {
    return r >= 0;
}

/* Does r ask the caller to wait, for either direction? */
static inline bool ea_is_wait(ea_result r) {
    return r == EA_WAIT_READABLE || r == EA_WAIT_WRITABLE;
}

/* Is r an error of the operating system? */
static inline bool ea_is_error(ea_result r) {
    return r < 0 && r >= -EA_ERRNO_MAX;
}

/* The errno of an error, 0 of anything else. */
static inline int ea_errno(ea_result r) {
    return ea_is_error(r) ? (int)-r : 0;
}

/* A short constant text for logs: "count", "end of file", "wait readable",
 * "wait writable", or the text of strerror(3). Thread-safe; never NULL. */
EA_API const char *ea_result_text(ea_result r);

EA_END

#endif
