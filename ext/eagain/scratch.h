/* Memory to receive into before it is known whether there is anything to receive, so that
 * finding nothing makes no object, and what was found becomes a String of just its size.
 *
 * One mapping per native thread, made at the first need. Its size is address space: only what
 * the kernel has written to is memory, and ea_scratch_done() gives back all of that but the
 * first megabyte.
 *
 * Whoever holds the pointer may call nothing that runs Ruby code or lets go of the GVL, for that
 * could receive, too. Allocating an object is fine.
 *
 * And what is done with a String of the caller's instead. */
#ifndef EA_RB_SCRATCH_H
#define EA_RB_SCRATCH_H

#include <ruby.h>

#include <stdbool.h>

/* Longer than any datagram: AF_UNIX allocates the most of a message in one piece, of at most 4
 * MiB on Linux. Also longer than the receive queue of a TCP socket is by default (tcp_rmem). */
#define EA_SCRATCH_SIZE ((size_t)8 << 20)
#define EA_SCRATCH_KEPT ((size_t)1 << 20)

struct ea_scratch {
    char *base; /* page-aligned; NULL while size is 0 */
    size_t size;
};
extern _Thread_local struct ea_scratch ea_scratch_own;

/* The slow halves of what follows. */
char *ea_scratch_make(size_t len);
void ea_scratch_trim(size_t used);

/* At least len bytes, aligned for anything. NoMemoryError. */
static inline char *ea_scratch(size_t len) {
    struct ea_scratch *own = &ea_scratch_own;
    return RB_LIKELY(len <= own->size && own->base) ? own->base : ea_scratch_make(len);
}

/* The same, all zeros, at the price of a system call: for calls that may leave a hole in it. */
char *ea_scratch_zeroed(size_t len);

/* No longer needed; the first `used` bytes were written to. */
static inline void ea_scratch_done(size_t used) {
    if (RB_UNLIKELY(used > EA_SCRATCH_KEPT || ea_scratch_own.size > EA_SCRATCH_SIZE))
        ea_scratch_trim(used);
}

/* Does the String hold len bytes, beyond doubt, without being asked? */
static inline bool ea_buffer_is_roomy(VALUE string, long len) {
#ifdef RSTRING_EMBED_LEN_MAX
    /* The terminator has 4 bytes at most, one of which was counted. */
    if (!RB_FL_TEST_RAW(string, RSTRING_NOEMBED) && len <= RSTRING_EMBED_LEN_MAX - 3)
        return true;
#endif
    return len <= RSTRING_LEN(string);
}

/* Makes a String that something is received into independent of others, with room for len bytes.
 * FrozenError, NoMemoryError. */
static inline void ea_buffer_room(VALUE string, long len) {
    rb_str_modify(string);
    if (RB_LIKELY(ea_buffer_is_roomy(string, len)))
        return;
    if ((long)rb_str_capacity(string) < len)
        rb_str_modify_expand(string, len - RSTRING_LEN(string));
}

/* The same of what may have to be converted first. */
static inline void ea_buffer_prepare(VALUE *buffer, long len) {
    if (RB_UNLIKELY(!RB_TYPE_P(*buffer, T_STRING)))
        StringValue(*buffer);
    ea_buffer_room(*buffer, len);
}

static inline void ea_buffer_set_length(VALUE string, long n) {
    if (RSTRING_LEN(string) != n)
        rb_str_set_len(string, n);
}

/* Once per process, before the first use. */
void ea_init_scratch(void);

#endif
