/* What try_stream.c, try_foreign.c, spare.c and buffered.c share. */
#ifndef EA_RB_STREAM_H
#define EA_RB_STREAM_H

#include "calls.h"

enum ea_stream_call {
    EA_STREAM_READ,
    EA_STREAM_READV,
    EA_STREAM_PEEK,
    EA_STREAM_WRITE,
    EA_STREAM_WRITEV,
};

/* A call on what is no IO (try_foreign.c): its own method of that name, if ask and it has one; of an
 * SSLSocket, the same by its own means; else of its #to_io. first and second are the arguments, as in
 * calls.h; second is Qnil for the calls that take one. */
VALUE ea_foreign(enum ea_stream_call call, VALUE object, VALUE first, VALUE second, bool ask);

/* Is it an OpenSSL::SSL::SSLSocket? False as long as the class was not loaded. */
bool ea_foreign_is_ssl(VALUE object);

/* The arguments of tryreadv: integers, and nil or as many Strings, which have room for them. Runs the
 * program's code. */
struct ea_pieces {
    VALUE lengths;
    VALUE buffers;
    long count;
    long total;
};
void ea_pieces_init(struct ea_pieces *pieces, VALUE maxlens, VALUE buffers);
/* Its answer: n bytes, shared out. */
VALUE ea_pieces_fill(const struct ea_pieces *pieces, const char *data, long n);

/* An Array of Strings; what is none is converted as IO#write_nonblock does. */
VALUE ea_stream_strings(VALUE strings);

/* --- spare.c: the String of a large read that found nothing, for the next. */

struct ea_spare {
    VALUE string; /* Qfalse: none; whoever took it puts it back here */
    long room;    /* bytes in the one that is here, or was last */
};

struct ea_spare *ea_spare(void);
/* A hidden String with room for len bytes, for the caller alone. */
VALUE ea_spare_take(struct ea_spare *spare, long len);
/* A String of the n bytes that string holds: string itself, unless most of it would be wasted. */
VALUE ea_spare_give(struct ea_spare *spare, VALUE string, long n);

void ea_init_try_foreign(void);
void ea_init_spare(void);

#endif
