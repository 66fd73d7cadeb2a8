/* Eagain::Stream, the object: see buffered.h. */
#include "buffered.h"
#include "stream.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

/* What is read at once by default: a request, a TLS record, a quarter of a pipe. */
#define SIZE 16384
static ID id_timeout, id_tryread, id_trywrite, id_readpartial, id_write, id_close, id_closed_p,
    option_ids[5];

/* --- Bytes. Not by xmalloc: who waits gives its memory back, and such as comes and goes would make the GC
 * run for nothing. Of the usual size, some are kept for the next, in each native thread. */

#define SPARES 16

static _Thread_local struct {
    char *blocks[SPARES];
    unsigned count;
} spares;

static pthread_key_t spares_key; /* only for its destructor */

static void free_spares(void *unused) {
    (void)unused;
    while (spares.count > 0)
        free(spares.blocks[--spares.count]);
}

static char *allocate(size_t capa) {
    if (RB_LIKELY(capa == SIZE && spares.count > 0))
        return spares.blocks[--spares.count];
    char *base = malloc(capa);
    if (!base)
        rb_memerror();
    return base;
}

static void deallocate(char *base, size_t capa) {
    if (RB_LIKELY(capa == SIZE && spares.count < SPARES)) {
        if (RB_UNLIKELY(spares.count == 0))
            pthread_setspecific(spares_key, &spares);
        spares.blocks[spares.count++] = base;
        return;
    }
    free(base);
}

void ea_bytes_free(struct ea_bytes *bytes) {
    if (bytes->base)
        deallocate(bytes->base, bytes->capa);
    *bytes = (struct ea_bytes){NULL, 0, 0, 0};
}

void ea_bytes_reserve(struct ea_bytes *bytes, size_t len, size_t least) {
    size_t length = ea_bytes_length(bytes);
    if (bytes->capa - bytes->end >= len)
        return;
    /* To move few is cheaper than to ask for more. */
    if (bytes->base && bytes->start >= length && bytes->capa - length >= len) {
        memcpy(bytes->base, bytes->base + bytes->start, length);
    } else {
        if (len > SIZE_MAX / 2 - length)
            rb_memerror();
        size_t capa = length + len > 2 * length ? length + len : 2 * length;
        capa = capa > bytes->capa ? capa : bytes->capa;
        capa = capa > least ? capa : least;
        char *base = allocate(capa);
        if (bytes->base) {
            memcpy(base, bytes->base + bytes->start, length);
            deallocate(bytes->base, bytes->capa);
        }
        bytes->base = base;
        bytes->capa = capa;
    }
    bytes->start = 0;
    bytes->end = length;
}

void ea_bytes_append(struct ea_bytes *bytes, const char *from, size_t len, size_t least) {
    if (len == 0)
        return;
    ea_bytes_reserve(bytes, len, least);
    memcpy(bytes->base + bytes->end, from, len);
    bytes->end += len;
}

/* --- The object. */

static void buffered_mark(void *data) {
    const struct ea_buffered *stream = data;
    rb_gc_mark_movable(stream->object);
    rb_gc_mark_movable(stream->timeout);
    rb_gc_mark_movable(stream->mutex);
    rb_gc_mark_movable(stream->changed);
}

static void buffered_compact(void *data) {
    struct ea_buffered *stream = data;
    stream->object = rb_gc_location(stream->object);
    stream->timeout = rb_gc_location(stream->timeout);
    stream->mutex = rb_gc_location(stream->mutex);
    stream->changed = rb_gc_location(stream->changed);
}

static void buffered_free(void *data) {
    struct ea_buffered *stream = data;
    ea_bytes_free(&stream->in);
    ea_bytes_free(&stream->out);
    xfree(stream);
}

static size_t buffered_memsize(const void *data) {
    const struct ea_buffered *stream = data;
    return sizeof *stream + stream->in.capa + stream->out.capa;
}

const rb_data_type_t ea_buffered_type = {
    .wrap_struct_name = "Eagain::Stream",
    .function = {.dmark = buffered_mark,
                 .dfree = buffered_free,
                 .dsize = buffered_memsize,
                 .dcompact = buffered_compact},
    .flags = RUBY_TYPED_FREE_IMMEDIATELY | RUBY_TYPED_WB_PROTECTED,
};

static VALUE buffered_allocate(VALUE klass) {
    struct ea_buffered *stream;
    VALUE self = TypedData_Make_Struct(klass, struct ea_buffered, &ea_buffered_type, stream);
    stream->object = stream->mutex = stream->changed = Qfalse;
    stream->timeout = Qnil;
    stream->size = SIZE;
    stream->limit = SIZE_MAX;
    stream->encoding = rb_ascii8bit_encindex();
    return self;
}

void ea_buffered_check(const struct ea_buffered *stream) {
    if (RB_UNLIKELY(!stream->object))
        rb_raise(rb_eIOError, "uninitialized stream");
    if (RB_UNLIKELY(stream->closed))
        rb_raise(rb_eIOError, "closed stream");
}

/* --- Options. */

void ea_buffered_options(int *argc, const VALUE *argv, const ID *ids, VALUE *values, int count) {
    for (int i = 0; i < count; i++)
        values[i] = Qundef;
    if (RB_LIKELY(*argc == 0 || !RB_TYPE_P(argv[*argc - 1], T_HASH)) || !rb_keyword_given_p())
        return;
    VALUE options = argv[--*argc];
    size_t found = 0;
    for (int i = 0; i < count; i++) {
        values[i] = rb_hash_lookup2(options, ID2SYM(ids[i]), Qundef);
        found += values[i] != Qundef;
    }
    if (RB_UNLIKELY(found != RHASH_SIZE(options)))
        rb_get_kwargs(rb_hash_dup(options), ids, 0, count, values); /* ArgumentError */
}

struct ea_patience ea_patience_of(VALUE timeout) {
    if (RB_LIKELY(timeout == Qundef || NIL_P(timeout)))
        return (struct ea_patience){EA_TIME_NEVER, false};
    return (struct ea_patience){ea_deadline_of(timeout), true};
}

struct ea_patience ea_buffered_patience(int *argc, const VALUE *argv) {
    VALUE timeout;
    ea_buffered_options(argc, argv, &id_timeout, &timeout, 1);
    return ea_patience_of(timeout);
}

/* --- Methods. */

static size_t size_option(VALUE value, const char *name) {
    long n = NUM2LONG(value);
    if (n <= 0)
        rb_raise(rb_eArgError, "%s must be positive: %ld", name, n);
    return (size_t)n;
}

/* Of an object: which way it is spoken to. object becomes its IO, if that is the way. */
static enum ea_source source_of(VALUE *object) {
    if (RB_TYPE_P(*object, T_FILE))
        return EA_SOURCE_IO;
    if (rb_respond_to(*object, id_tryread) || rb_respond_to(*object, id_trywrite) ||
        ea_foreign_is_ssl(*object))
        return EA_SOURCE_TRIES;
    if (rb_respond_to(*object, id_readpartial) || rb_respond_to(*object, id_write))
        return EA_SOURCE_METHODS;
    *object = rb_io_get_io(*object); /* TypeError */
    return EA_SOURCE_IO;
}

static bool opened_for_writing(VALUE object, enum ea_source source) {
    rb_io_t *fptr;
    if (source != EA_SOURCE_IO)
        return true;
    GetOpenFile(rb_io_get_write_io(object), fptr);
    return fptr->mode & FMODE_WRITABLE;
}

static void set_encoding(struct ea_buffered *stream, VALUE value) {
    rb_encoding *encoding = NIL_P(value) ? rb_ascii8bit_encoding() : rb_to_encoding(value);
    if (!rb_enc_asciicompat(encoding))
        rb_raise(rb_eArgError, "lines in an encoding that is not ASCII-compatible: %s",
                 rb_enc_name(encoding));
    stream->encoding = rb_enc_to_index(encoding);
}

static void set_timeout(VALUE self, VALUE timeout) {
    if (!NIL_P(timeout))
        ea_deadline_of(timeout); /* TypeError, ArgumentError */
    RB_OBJ_WRITE(self, &ea_buffered(self)->timeout, timeout);
}

/* call-seq: Eagain::Stream.new(io, buffer_size: 16_384, limit: nil, timeout: nil, sync: false, external_encoding: nil)
 *
 * A stream that reads from io, and writes to it.
 *
 * io::                an IO; an OpenSSL::SSL::SSLSocket; what has #tryread and #trywrite, as another stream; or has
 *                     #readpartial and #write, which then wait by themselves, whatever <tt>timeout:</tt> says; or has
 *                     #to_io
 * buffer_size::       how many bytes it tries to read at once, and how many it keeps before it writes them
 * limit::             the longest line, in bytes without its end: LimitError for a longer one. nil: none
 * timeout::           seconds for each call that does not say; nil: none but IO#timeout
 * sync::              whether each write goes out at once
 * external_encoding:: of lines, and of #read without a length: an Encoding that is ASCII-compatible, or its name.
 *                     nil: binary
 *
 * What Ruby's own buffers of an IO hold comes first. From then on nobody else should read from io or write to it. */
static VALUE stream_initialize(int argc, VALUE *argv, VALUE self) {
    struct ea_buffered *stream = ea_buffered(self);
    VALUE values[5];
    ea_buffered_options(&argc, argv, option_ids, values, 5);
    rb_check_arity(argc, 1, 1);
    VALUE object = argv[0];
    enum ea_source source = source_of(&object);
    if (values[0] != Qundef)
        stream->size = size_option(values[0], "buffer_size");
    if (values[1] != Qundef && !NIL_P(values[1]))
        stream->limit = size_option(values[1], "limit");
    if (values[2] != Qundef)
        set_timeout(self, values[2]);
    stream->sync = values[3] != Qundef && RTEST(values[3]);
    if (values[4] != Qundef)
        set_encoding(stream, values[4]);
    stream->writable = opened_for_writing(object, source);
    stream->source = (uint8_t)source;
    stream->closed = false;
    RB_OBJ_WRITE(self, &stream->object, object);
    return self;
}

static VALUE close_stream(VALUE self) {
    return rb_funcall(self, id_close, 0);
}

/* call-seq:
 *   Eagain::Stream.open(io, **options)                     -> stream
 *   Eagain::Stream.open(io, **options) { |stream| ... }    -> value of the block
 *
 * As ::new. With a block, the stream is closed at its end, and io with it. */
static VALUE stream_open(int argc, VALUE *argv, VALUE klass) {
    VALUE self = rb_class_new_instance_kw(argc, argv, klass,
                                          rb_keyword_given_p() ? RB_PASS_KEYWORDS : RB_NO_KEYWORDS);
    return rb_block_given_p() ? rb_ensure(rb_yield, self, close_stream, self) : self;
}

/* call-seq: io -> object
 *
 * What it was made for. */
static VALUE stream_io(VALUE self) {
    return ea_buffered(self)->object ? ea_buffered(self)->object : Qnil;
}

/* call-seq: to_io -> IO
 *
 * The IO behind it, for IO.select and the like. What was read ahead is not in there: see #pending. */
static VALUE stream_to_io(VALUE self) {
    if (!ea_buffered(self)->object)
        ea_buffered_check(ea_buffered(self));
    return ea_to_io(ea_buffered(self)->object);
}

/* call-seq: timeout -> seconds or nil
 *
 * For how long each call may wait that does not say. */
static VALUE stream_timeout(VALUE self) {
    return ea_buffered(self)->timeout;
}

/* call-seq: stream.timeout = seconds or nil
 *
 * See #timeout. TypeError, ArgumentError as Kernel#sleep. */
static VALUE stream_set_timeout(VALUE self, VALUE timeout) {
    set_timeout(self, timeout);
    return timeout;
}

/* call-seq: limit -> Integer or nil
 *
 * The longest line, in bytes without its end. */
static VALUE stream_limit(VALUE self) {
    size_t limit = ea_buffered(self)->limit;
    return limit == SIZE_MAX ? Qnil : SIZET2NUM(limit);
}

/* call-seq: stream.limit = Integer or nil
 *
 * See #limit. */
static VALUE stream_set_limit(VALUE self, VALUE limit) {
    ea_buffered(self)->limit = NIL_P(limit) ? SIZE_MAX : size_option(limit, "limit");
    return limit;
}

/* call-seq: buffer_size -> Integer
 *
 * How many bytes it tries to read at once, and keeps before it writes them. */
static VALUE stream_buffer_size(VALUE self) {
    return SIZET2NUM(ea_buffered(self)->size);
}

/* call-seq: external_encoding -> Encoding
 *
 * That of lines, and of #read without a length. */
static VALUE stream_encoding(VALUE self) {
    return rb_enc_from_encoding(rb_enc_from_index(ea_buffered(self)->encoding));
}

/* call-seq: stream.external_encoding = encoding
 *
 * See #external_encoding; nil: binary. Nothing is transcoded. ArgumentError for one that is not ASCII-compatible. */
static VALUE stream_set_encoding(VALUE self, VALUE encoding) {
    set_encoding(ea_buffered(self), encoding);
    return encoding;
}

/* call-seq: pending -> Integer
 *
 * How many bytes were read and not taken yet: so many come without a wait. */
static VALUE stream_pending(VALUE self) {
    return SIZET2NUM(ea_bytes_length(&ea_buffered(self)->in));
}

/* call-seq: unwritten -> Integer
 *
 * How many bytes were given to #write and not written yet. */
static VALUE stream_unwritten(VALUE self) {
    return SIZET2NUM(ea_bytes_length(&ea_buffered(self)->out));
}

/* call-seq: closed? -> true or false
 *
 * Was it closed, or what it was made for? */
static VALUE stream_closed_p(VALUE self) {
    const struct ea_buffered *stream = ea_buffered(self);
    if (!stream->object || stream->closed)
        return Qtrue;
    if (!RB_TYPE_P(stream->object, T_FILE) && !rb_respond_to(stream->object, id_closed_p))
        return Qfalse;
    return RTEST(rb_funcall(stream->object, id_closed_p, 0)) ? Qtrue : Qfalse;
}

void ea_init_buffered(VALUE module) {
    static const char *const options[] = {"buffer_size", "limit", "timeout", "sync",
                                          "external_encoding"};
    for (int i = 0; i < 5; i++)
        option_ids[i] = rb_intern(options[i]);
    id_timeout = rb_intern("timeout");
    id_tryread = rb_intern("tryread");
    id_trywrite = rb_intern("trywrite");
    id_readpartial = rb_intern("readpartial");
    id_write = rb_intern("write");
    id_close = rb_intern("close");
    id_closed_p = rb_intern("closed?");

    if (pthread_key_create(&spares_key, free_spares) != 0)
        rb_memerror();

    VALUE klass = rb_define_class_under(module, "Stream", rb_cObject);
    rb_define_alloc_func(klass, buffered_allocate);
    rb_define_singleton_method(klass, "open", stream_open, -1);
    rb_define_method(klass, "initialize", stream_initialize, -1);
    rb_define_method(klass, "io", stream_io, 0);
    rb_define_method(klass, "to_io", stream_to_io, 0);
    rb_define_method(klass, "timeout", stream_timeout, 0);
    rb_define_method(klass, "timeout=", stream_set_timeout, 1);
    rb_define_method(klass, "limit", stream_limit, 0);
    rb_define_method(klass, "limit=", stream_set_limit, 1);
    rb_define_method(klass, "buffer_size", stream_buffer_size, 0);
    rb_define_method(klass, "external_encoding", stream_encoding, 0);
    rb_define_method(klass, "external_encoding=", stream_set_encoding, 1);
    rb_define_method(klass, "pending", stream_pending, 0);
    rb_define_method(klass, "unwritten", stream_unwritten, 0);
    rb_define_method(klass, "closed?", stream_closed_p, 0);
    ea_init_buffered_source();
    ea_init_buffered_read(klass);
    ea_init_buffered_lines(module, klass);
    ea_init_buffered_write(klass);
}
