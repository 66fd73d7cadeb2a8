/* Eagain::Stream: bytes. See buffered.h. */
#include "buffered.h"
#include "scratch.h"

#define OPTIONAL(argc, argv, i) ((argc) > (i) ? (argv)[i] : Qnil)

/* --- What is there. */

VALUE ea_buffered_take(struct ea_buffered *stream, size_t len, VALUE buffer) {
    if (NIL_P(buffer)) {
        buffer = rb_str_new(ea_bytes_first(&stream->in), (long)len);
    } else {
        ea_buffer_room(buffer, (long)len);
        if (len > 0)
            memcpy(RSTRING_PTR(buffer), ea_bytes_first(&stream->in), len);
        ea_buffer_set_length(buffer, (long)len);
    }
    ea_buffered_taken(stream, len);
    return buffer;
}

VALUE ea_buffered_take_text(struct ea_buffered *stream, size_t len, size_t less) {
    VALUE text = rb_str_new(ea_bytes_first(&stream->in), (long)(len - less));
    if (RB_UNLIKELY(stream->encoding != rb_ascii8bit_encindex()))
        rb_enc_associate_index(text, stream->encoding);
    ea_buffered_taken(stream, len);
    return text;
}

/* The arguments, converted. */
struct demand {
    struct ea_patience patience;
    size_t len;
    VALUE buffer;
};

/* After the length: buffer = nil, timeout: */
static void demand_rest(struct demand *demand, VALUE buffer) {
    demand->buffer = buffer;
    if (!NIL_P(buffer)) {
        StringValue(demand->buffer);
        rb_str_modify(demand->buffer);
    }
}

static size_t length_of(VALUE value) {
    long len = NUM2LONG(value);
    if (len < 0)
        rb_raise(rb_eArgError, "negative length %ld given", len);
    return (size_t)len;
}

static struct demand demand_of(int argc, VALUE *argv) {
    struct demand demand = {.patience = ea_buffered_patience(&argc, argv)};
    rb_check_arity(argc, 1, 2);
    demand.len = length_of(argv[0]);
    demand_rest(&demand, OPTIONAL(argc, argv, 1));
    return demand;
}

static VALUE emptied(VALUE buffer) {
    if (NIL_P(buffer))
        return rb_str_new(NULL, 0);
    rb_str_modify(buffer);
    ea_buffer_set_length(buffer, 0);
    return buffer;
}

/* Waits until there is a byte, or the source is at its end: false. */
static bool any(VALUE self, struct ea_straight *straight, struct ea_patience *patience) {
    struct ea_buffered *stream = ea_buffered(self);
    while (ea_bytes_length(&stream->in) == 0) {
        if (!ea_buffered_fill(self, 0, straight, patience))
            return false;
        if (straight && straight->answer)
            break;
    }
    return true;
}

/* Waits until len bytes are there, or straight has them: false if the source ends before. */
static bool enough(VALUE self, size_t len, struct ea_straight *straight,
                   struct ea_patience *patience) {
    struct ea_buffered *stream = ea_buffered(self);
    size_t there;
    while ((there = ea_bytes_length(&stream->in)) < len) {
        if (!ea_buffered_fill(self, len - there, straight, patience))
            return false;
        if (straight && straight->answer)
            break;
    }
    return true;
}

/* --- Methods. */

VALUE ea_buffered_read_all(VALUE self, VALUE buffer, struct ea_patience *patience) {
    struct ea_buffered *stream = ea_buffered(self);
    while (ea_buffered_fill(self, ea_bytes_length(&stream->in), NULL, patience))
        ;
    VALUE all = ea_buffered_take(stream, ea_bytes_length(&stream->in), buffer);
    ea_bytes_free(&stream->in);
    if (NIL_P(buffer))
        rb_enc_associate_index(all, stream->encoding);
    return all;
}

/* Reads len bytes, or what there is until the end: Qfalse if that are fewer and all is asked for. */
static VALUE read_length(VALUE self, struct demand *demand, bool all) {
    struct ea_buffered *stream = ea_buffered(self);
    struct ea_straight straight = {demand->len, true, demand->buffer, Qfalse};
    bool direct = demand->len >= stream->size && demand->len <= EA_AT_ONCE;
    ea_buffered_check(stream);
    if (demand->len == 0)
        return emptied(demand->buffer);
    size_t len = demand->len;
    if (!enough(self, len, direct ? &straight : NULL, &demand->patience)) {
        len = ea_bytes_length(&stream->in);
        if (all)
            return Qfalse;
    }
    if (straight.answer)
        return straight.answer;
    if (len == 0) {
        emptied(demand->buffer);
        return Qnil;
    }
    VALUE string = ea_buffered_take(stream, len, demand->buffer);
    if (len > EA_AT_ONCE && ea_bytes_length(&stream->in) == 0)
        ea_bytes_free(&stream->in);
    return string;
}

/* call-seq: read(length = nil, buffer = nil, timeout: nil) -> String or nil
 *
 * Reads length bytes, binary, or as many as there are until the end; nil at the end. Without a length, all until
 * the end, in #external_encoding. As IO#read.
 *
 * TimeoutError when timeout seconds are over: what came meanwhile is kept, and read by the next call. So it is
 * whatever is raised in the wait. IOError when it is closed; ArgumentError for a negative length. */
static VALUE stream_read(int argc, VALUE *argv, VALUE self) {
    struct demand demand = {.patience = ea_buffered_patience(&argc, argv)};
    rb_check_arity(argc, 0, 2);
    demand_rest(&demand, OPTIONAL(argc, argv, 1));
    if (NIL_P(OPTIONAL(argc, argv, 0))) {
        ea_buffered_check(ea_buffered(self));
        return ea_buffered_read_all(self, demand.buffer, &demand.patience);
    }
    demand.len = length_of(argv[0]);
    return read_length(self, &demand, false);
}

/* call-seq: read_exact(length, buffer = nil, timeout: nil) -> String
 *
 * Reads length bytes, binary. EOFError if the source ends before: what came is kept, and read by the next call.
 * Otherwise as #read. */
static VALUE stream_read_exact(int argc, VALUE *argv, VALUE self) {
    struct demand demand = demand_of(argc, argv);
    VALUE string = read_length(self, &demand, true);
    if (!string)
        rb_raise(rb_eEOFError, "end of file after %" PRIuSIZE " of %" PRIuSIZE " bytes",
                 ea_bytes_length(&ea_buffered(self)->in), demand.len);
    return string;
}

/* What is there, at most demand->len bytes of it, or the first that comes: Qfalse at the end. */
static VALUE read_some(VALUE self, struct demand *demand) {
    struct ea_buffered *stream = ea_buffered(self);
    struct ea_straight straight = {demand->len < EA_AT_ONCE ? demand->len : EA_AT_ONCE, false,
                                   demand->buffer, Qfalse};
    if (!any(self, &straight, &demand->patience)) {
        emptied(demand->buffer);
        return Qfalse;
    }
    if (straight.answer)
        return straight.answer;
    size_t there = ea_bytes_length(&stream->in);
    return ea_buffered_take(stream, there < demand->len ? there : demand->len, demand->buffer);
}

/* call-seq: readpartial(maxlen, buffer = nil, timeout: nil) -> String
 *
 * What is there, at most maxlen bytes, or the first that comes. EOFError at the end. As IO#readpartial; otherwise as
 * #read. */
static VALUE stream_readpartial(int argc, VALUE *argv, VALUE self) {
    struct demand demand = demand_of(argc, argv);
    ea_buffered_check(ea_buffered(self));
    if (demand.len == 0)
        return emptied(demand.buffer);
    VALUE string = read_some(self, &demand);
    if (RB_UNLIKELY(!string))
        rb_eof_error();
    return string;
}

/* call-seq: tryread(maxlen, buffer = nil) -> String, nil, :wait_readable or :wait_writable
 *
 * What is there, without a wait: see Eagain.tryread. So Eagain.read works on a stream, too. Of a source that has no
 * more than #readpartial it may wait. */
static VALUE stream_tryread(int argc, VALUE *argv, VALUE self) {
    struct ea_buffered *stream = ea_buffered(self);
    rb_check_arity(argc, 1, 2);
    struct demand demand = {.len = length_of(argv[0])};
    demand_rest(&demand, OPTIONAL(argc, argv, 1));
    ea_buffered_check(stream);
    size_t there = ea_bytes_length(&stream->in);
    if (demand.len == 0)
        return emptied(demand.buffer);
    if (there > 0)
        return ea_buffered_take(stream, there < demand.len ? there : demand.len, demand.buffer);
    if (stream->source == EA_SOURCE_METHODS) {
        VALUE string = read_some(self, &demand);
        return string ? string : Qnil;
    }
    if (ea_bytes_length(&stream->out) > 0 && !stream->writing.taken)
        ea_buffered_push(self);
    return ea_tryread(stream->object, argv[0], demand.buffer);
}

/* call-seq: peek(length = nil, timeout: nil) -> String or nil
 *
 * The next length bytes, binary, which are read again by the next call; fewer if the source ends before; nil at the
 * end. Without a length, what is there, or the first that comes. Otherwise as #read. */
static VALUE stream_peek(int argc, VALUE *argv, VALUE self) {
    struct ea_buffered *stream = ea_buffered(self);
    struct ea_patience patience = ea_buffered_patience(&argc, argv);
    rb_check_arity(argc, 0, 1);
    bool all = NIL_P(OPTIONAL(argc, argv, 0));
    size_t len = all ? 1 : length_of(argv[0]);
    ea_buffered_check(stream);
    if (len == 0)
        return rb_str_new(NULL, 0);
    enough(self, len, NULL, &patience);
    size_t there = ea_bytes_length(&stream->in);
    if (there == 0)
        return Qnil;
    return rb_str_new(ea_bytes_first(&stream->in), (long)(all || there < len ? there : len));
}

static VALUE next_byte(VALUE self, struct ea_patience *patience) {
    struct ea_buffered *stream = ea_buffered(self);
    ea_buffered_check(stream);
    if (!any(self, NULL, patience))
        return Qnil;
    int byte = (unsigned char)*ea_bytes_first(&stream->in);
    ea_buffered_taken(stream, 1);
    return INT2FIX(byte);
}

/* call-seq: getbyte(timeout: nil) -> Integer or nil
 *
 * The next byte; nil at the end. Otherwise as #read. */
static VALUE stream_getbyte(int argc, VALUE *argv, VALUE self) {
    struct ea_patience patience = ea_buffered_patience(&argc, argv);
    rb_check_arity(argc, 0, 0);
    return next_byte(self, &patience);
}

/* call-seq: readbyte(timeout: nil) -> Integer
 *
 * The next byte. EOFError at the end. Otherwise as #read. */
static VALUE stream_readbyte(int argc, VALUE *argv, VALUE self) {
    struct ea_patience patience = ea_buffered_patience(&argc, argv);
    rb_check_arity(argc, 0, 0);
    VALUE byte = next_byte(self, &patience);
    if (NIL_P(byte))
        rb_eof_error();
    return byte;
}

/* call-seq: eof?(timeout: nil) -> true or false
 *
 * Is it at its end? Waits for a byte, or the end. Otherwise as #read. */
static VALUE stream_eof_p(int argc, VALUE *argv, VALUE self) {
    struct ea_patience patience = ea_buffered_patience(&argc, argv);
    rb_check_arity(argc, 0, 0);
    ea_buffered_check(ea_buffered(self));
    return any(self, NULL, &patience) ? Qfalse : Qtrue;
}

void ea_init_buffered_read(VALUE klass) {
    rb_define_method(klass, "read", stream_read, -1);
    rb_define_method(klass, "read_exact", stream_read_exact, -1);
    rb_define_method(klass, "readpartial", stream_readpartial, -1);
    rb_define_method(klass, "tryread", stream_tryread, -1);
    rb_define_method(klass, "peek", stream_peek, -1);
    rb_define_method(klass, "getbyte", stream_getbyte, -1);
    rb_define_method(klass, "readbyte", stream_readbyte, -1);
    rb_define_method(klass, "eof?", stream_eof_p, -1);
    rb_define_method(klass, "eof", stream_eof_p, -1);
}
