/* Ancillary data between Ruby's objects and the bytes of recvmsg(2) and sendmsg(2). */
#ifndef EA_RB_CONTROL_H
#define EA_RB_CONTROL_H

#include "calls.h"

/* The most that is received: with room for the most descriptors that one message may carry
 * (253), and for every header that IPv6 can deliver. */
#define EA_CONTROL_MAX ((size_t)64 << 10)

/* --- Sending. */

/* One control of a message. Where data is an IO, its descriptor is to be passed, with all the
 * others. */
struct ea_control {
    int level;
    int type;
    VALUE data; /* a String, or an IO */
};

/* Reads one as Ruby's sendmsg takes it: a Socket::AncillaryData (or what has its level, type and
 * data), or [level, type, data]; or an IO. May run any code, and raises what Ruby's would. */
void ea_control_read(VALUE socket, VALUE object, struct ea_control *control);

/* How many bytes they take. */
size_t ea_control_size(const struct ea_control *controls, long count);

/* Puts them into `to`, which is aligned and has the room. IOError for an IO that is closed. Runs no
 * Ruby code. */
void ea_control_write(const struct ea_control *controls, long count, char *to);

/* --- Receiving. */

/* Closes the descriptors that came with a message, from the index `from` on. */
void ea_control_discard(struct msghdr *message, size_t from);

/* Pushes a Socket::AncillaryData for each control onto the Array. With `adopted`, descriptors
 * become IO objects; it counts those that need not be discarded any more. */
void ea_control_push(VALUE socket, struct msghdr *message, VALUE array, size_t *adopted);

#endif
