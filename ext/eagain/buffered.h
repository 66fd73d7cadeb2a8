/* Eagain::Stream: what its files share.
 *
 *   buffered.c         the object, and its buffers
 *   buffered_source.c  what it reads from and writes to, and the waits for that
 *   buffered_read.c    bytes
 *   buffered_lines.c   lines
 *   buffered_write.c   writing, closing
 *
 * What is in a buffer stays there until it is handed to the program, or to the kernel: whatever is raised
 * in a wait, nothing is lost. The GVL is held but in waits. So between two of them no lock is needed, and
 * nothing here keeps a pointer into a buffer, or a count of what is in it, over one.
 *
 * Of the tasks and threads that read at the same time, one waits for the descriptor, and the others for
 * that one: what it gets may be theirs. So do those that write. That is the turn. */
#ifndef EA_RB_BUFFERED_H
#define EA_RB_BUFFERED_H

#include "calls.h"

#include <ruby/encoding.h>

/* What it reads from and writes to. */
enum ea_source {
    EA_SOURCE_IO,      /* a T_FILE: straight by the try calls of the core */
    EA_SOURCE_TRIES,   /* what has tryread or trywrite, or is an SSLSocket */
    EA_SOURCE_METHODS, /* what has readpartial or write, which wait by themselves */
};

/* Those from start to end are there. */
struct ea_bytes {
    char *base; /* NULL while capa is 0 */
    size_t capa;
    size_t start;
    size_t end;
};

struct ea_turn {
    bool taken;
    unsigned others; /* who waits until it is not */
};

struct ea_buffered {
    VALUE object;            /* what was given; Qfalse before #initialize */
    VALUE timeout;           /* of each call that does not say; nil: none */
    VALUE mutex, changed;    /* for who waits for a turn; Qfalse until there was one */
    struct ea_bytes in, out; /* read and not taken; taken and not written */
    uint64_t received;       /* how many bytes ever came into `in` */
    uint64_t fronts;         /* how often its start was changed */
    uint64_t accepted;       /* how many bytes ever came into `out` */
    size_t size;             /* bytes to read at once, and to keep before they are written */
    size_t limit;            /* of a line, without its end; SIZE_MAX: none */
    struct ea_turn reading, writing;
    int encoding;   /* index of that of lines */
    uint8_t source; /* enum ea_source */
    bool sync;
    bool closed;
    bool writable; /* not closed, and opened for writing */
};

/* How long a call may wait, which is worked out when it has to. */
struct ea_patience {
    int64_t deadline;
    bool known;
};

extern const rb_data_type_t ea_buffered_type;

/* --- buffered.c */

static inline struct ea_buffered *ea_buffered(VALUE self) {
    return RTYPEDDATA_DATA(self);
}

static inline size_t ea_bytes_length(const struct ea_bytes *bytes) {
    return bytes->end - bytes->start;
}

static inline const char *ea_bytes_first(const struct ea_bytes *bytes) {
    return bytes->base + bytes->start;
}

/* Makes room for len more behind the end; where there is no memory yet, for `least`. NoMemoryError. */
void ea_bytes_reserve(struct ea_bytes *bytes, size_t len, size_t least);
void ea_bytes_append(struct ea_bytes *bytes, const char *from, size_t len, size_t least);
/* The first len are gone. */
static inline void ea_bytes_drop(struct ea_bytes *bytes, size_t len) {
    bytes->start += len;
    if (bytes->start == bytes->end)
        bytes->start = bytes->end = 0;
}
void ea_bytes_free(struct ea_bytes *bytes);

/* IOError when it is closed, or was never initialized. */
void ea_buffered_check(const struct ea_buffered *stream);

/* The first len bytes of `in` have been handed out. */
static inline void ea_buffered_taken(struct ea_buffered *stream, size_t len) {
    ea_bytes_drop(&stream->in, len);
    stream->fronts++;
}

/* The keywords that a method was called with, taken from its arguments: as many values as there are ids,
 * Qundef for one that was not given. ArgumentError for others. */
void ea_buffered_options(int *argc, const VALUE *argv, const ID *ids, VALUE *values, int count);
/* The same for who takes timeout: alone. */
struct ea_patience ea_buffered_patience(int *argc, const VALUE *argv);
/* Of its value; nil and Qundef: the stream's own. */
struct ea_patience ea_patience_of(VALUE timeout);

/* --- buffered_source.c */

/* Bytes that are for a String alone, and so need not come by way of the buffer. */
struct ea_straight {
    size_t len;   /* how many at most; at most EA_AT_ONCE */
    bool all;     /* or none: fewer go to `in` */
    VALUE buffer; /* to read them into; nil: a new one */
    VALUE answer; /* Qfalse, or the String that has them */
};

/* More is not read at once, however much is asked for: memory comes with the bytes. */
#define EA_AT_ONCE ((size_t)1 << 20)

/* Reads more, and waits for it if need be: false at the end of the source. It is in `in`; or in straight
 * (may be NULL), if that has an answer. Writes first what is to be written, as far as there is room. */
bool ea_buffered_fill(VALUE self, size_t want, struct ea_straight *straight,
                      struct ea_patience *patience);
/* Writes until as many bytes were written as had been accepted. TimeoutError: the rest stays. */
void ea_buffered_flush(VALUE self, uint64_t accepted, struct ea_patience *patience);
/* Writes what is there as far as that needs no wait: 0, a would-block or -errno. */
ea_result ea_buffered_push(VALUE self);
/* All but the last len bytes of those that were accepted. */
static inline uint64_t ea_buffered_written(const struct ea_buffered *stream) {
    return stream->accepted - ea_bytes_length(&stream->out);
}

/* --- buffered_read.c */

/* What the first len bytes are, which are taken: binary; in the buffer, a String, if it is not nil. */
VALUE ea_buffered_take(struct ea_buffered *stream, size_t len, VALUE buffer);
/* The same in the encoding of lines, but for the last `less` of them. */
VALUE ea_buffered_take_text(struct ea_buffered *stream, size_t len, size_t less);
/* All until the end of the source, in the encoding of lines. */
VALUE ea_buffered_read_all(VALUE self, VALUE buffer, struct ea_patience *patience);

void ea_init_buffered(VALUE module);
void ea_init_buffered_source(void);
void ea_init_buffered_read(VALUE klass);
void ea_init_buffered_lines(VALUE module, VALUE klass);
void ea_init_buffered_write(VALUE klass);

#endif
