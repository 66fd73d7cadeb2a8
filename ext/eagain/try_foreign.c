/* The calls of try_stream.c on what is no IO: see stream.h. */
#include "stream.h"

#define CALLS 5
#define TLS_RECORD 16384

static ID names[CALLS], id_open_ssl, id_ssl, id_ssl_socket, id_read_nonblock, id_write_nonblock,
    id_ungetc;
static VALUE unread_class;
static VALUE no_exception; /* {exception: false}, frozen */

bool ea_foreign_is_ssl(VALUE object) {
    VALUE scope = rb_cObject;
    const ID path[] = {id_open_ssl, id_ssl, id_ssl_socket};
    for (int i = 0; i < 3; i++) {
        if (!rb_const_defined_from(scope, path[i]) || RTEST(rb_autoload_p(scope, path[i])))
            return false;
        scope = rb_const_get_from(scope, path[i]);
        if (!RB_TYPE_P(scope, i < 2 ? T_MODULE : T_CLASS))
            return false;
    }
    return RTEST(rb_obj_is_kind_of(object, scope));
}

/* method(arguments..., exception: false) */
static VALUE call_without_exception(VALUE object, ID method, int argc, VALUE first, VALUE second) {
    VALUE arguments[3] = {first, second};
    arguments[argc] = no_exception;
    return rb_funcallv_kw(object, method, argc + 1, arguments, RB_PASS_KEYWORDS);
}

static VALUE ssl_read(VALUE ssl, VALUE maxlen, VALUE buffer) {
    return call_without_exception(ssl, id_read_nonblock, NIL_P(buffer) ? 1 : 2, maxlen, buffer);
}

static VALUE ssl_write(VALUE ssl, VALUE string) {
    return call_without_exception(ssl, id_write_nonblock, 1, rb_obj_as_string(string), Qnil);
}

/* By the SSLSocket's tryread or trywrite, if it has one: that of lib/eagain/io.rb waits for nothing. */
static VALUE ssl_own(enum ea_stream_call call, VALUE ssl, VALUE argument) {
    if (rb_respond_to(ssl, names[call]))
        return rb_funcallv_public(ssl, names[call], 1, &argument);
    return call == EA_STREAM_READ ? ssl_read(ssl, argument, Qnil) : ssl_write(ssl, argument);
}

static VALUE ssl_readv(VALUE ssl, VALUE maxlens, VALUE buffers) {
    struct ea_pieces pieces;
    /* Before anything is read, which would be lost. */
    ea_pieces_init(&pieces, maxlens, buffers);
    VALUE data = ssl_own(EA_STREAM_READ, ssl, LONG2NUM(pieces.total));
    if (!NIL_P(data) && !RB_TYPE_P(data, T_STRING))
        return data;
    /* Again, since that was Ruby code. */
    ea_pieces_init(&pieces, pieces.lengths, pieces.buffers);
    if (!NIL_P(data)) {
        VALUE answer = ea_pieces_fill(&pieces, RSTRING_PTR(data), RSTRING_LEN(data));
        RB_GC_GUARD(data);
        return answer;
    }
    if (!NIL_P(buffers))
        ea_pieces_fill(&pieces, NULL, 0);
    return Qnil;
}

/* SSLSocket#ungetc pushes back the #chr of its argument. This kind of String gives all of itself. */
static VALUE unread_chr(VALUE self) {
    return self;
}

/* What is there, as much as a TLS record has, goes to the SSLSocket's own buffer. */
static VALUE ssl_peek(VALUE ssl, VALUE maxlen, VALUE buffer) {
    long len = NUM2LONG(maxlen);
    if (len < 0)
        rb_raise(rb_eArgError, "negative length %ld given", len);
    if (!NIL_P(buffer)) {
        StringValue(buffer);
        rb_str_modify(buffer);
    }
    VALUE data = len > 0 ? ssl_read(ssl, INT2FIX(TLS_RECORD), Qnil) : rb_str_new(NULL, 0);
    if (!NIL_P(data) && !RB_TYPE_P(data, T_STRING))
        return data;
    if (!NIL_P(data) && RSTRING_LEN(data) > 0) {
        VALUE unread = rb_class_new_instance(1, &data, unread_class);
        rb_funcall(ssl, id_ungetc, 1, unread);
        data = rb_str_subseq(data, 0, len < RSTRING_LEN(data) ? len : RSTRING_LEN(data));
    }
    if (NIL_P(buffer))
        return data;
    rb_str_modify(buffer);
    rb_str_set_len(buffer, 0);
    return NIL_P(data) ? Qnil : rb_str_cat(buffer, RSTRING_PTR(data), RSTRING_LEN(data));
}

static VALUE ssl_writev(VALUE ssl, VALUE strings) {
    VALUE list = ea_stream_strings(strings);
    VALUE all = rb_str_new(NULL, 0);
    for (long i = 0; i < RARRAY_LEN(list); i++) {
        VALUE string = RARRAY_AREF(list, i);
        rb_str_cat(all, RSTRING_PTR(string), RSTRING_LEN(string));
    }
    return ssl_own(EA_STREAM_WRITE, ssl, all);
}

static VALUE ssl_call(enum ea_stream_call call, VALUE ssl, VALUE first, VALUE second) {
    switch (call) {
    case EA_STREAM_READ:
        return ssl_read(ssl, first, second);
    case EA_STREAM_READV:
        return ssl_readv(ssl, first, second);
    case EA_STREAM_PEEK:
        return ssl_peek(ssl, first, second);
    case EA_STREAM_WRITE:
        return ssl_write(ssl, first);
    default:
        return ssl_writev(ssl, first);
    }
}

static VALUE io_call(enum ea_stream_call call, VALUE io, VALUE first, VALUE second) {
    switch (call) {
    case EA_STREAM_READ:
        return ea_tryread(io, first, second);
    case EA_STREAM_READV:
        return ea_tryreadv(io, first, second);
    case EA_STREAM_PEEK:
        return ea_trypeek(io, first, second);
    case EA_STREAM_WRITE:
        return ea_trywrite(io, first);
    default:
        return ea_trywritev(io, first);
    }
}

VALUE ea_foreign(enum ea_stream_call call, VALUE object, VALUE first, VALUE second, bool ask) {
    if (ask && rb_respond_to(object, names[call])) {
        VALUE arguments[] = {first, second};
        return rb_funcallv_public(object, names[call], NIL_P(second) ? 1 : 2, arguments);
    }
    if (ea_foreign_is_ssl(object))
        return ssl_call(call, object, first, second);
    return io_call(call, rb_io_get_io(object), first, second);
}

void ea_init_try_foreign(void) {
    static const char *const calls[CALLS] = {"tryread", "tryreadv", "trypeek", "trywrite",
                                             "trywritev"};
    for (int i = 0; i < CALLS; i++)
        names[i] = rb_intern(calls[i]);
    id_open_ssl = rb_intern("OpenSSL");
    id_ssl = rb_intern("SSL");
    id_ssl_socket = rb_intern("SSLSocket");
    id_read_nonblock = rb_intern("read_nonblock");
    id_write_nonblock = rb_intern("write_nonblock");
    id_ungetc = rb_intern("ungetc");
    no_exception = rb_hash_new();
    rb_hash_aset(no_exception, ID2SYM(rb_intern("exception")), Qfalse);
    rb_obj_freeze(no_exception);
    rb_gc_register_mark_object(no_exception);
    unread_class = rb_class_new(rb_cString);
    rb_gc_register_mark_object(unread_class);
    rb_define_method(unread_class, "chr", unread_chr, 0);
}
