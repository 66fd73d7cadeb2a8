/* What the *_nonblock methods of lib/eagain/nonblock.rb call: the try calls, with the answers turned into
 * those of Ruby's own methods.
 *
 * A would-block that is to become an exception needs $!, the exception's cause. Where C code gets it for
 * little, it is raised here. Elsewhere the answer is false, upon which the Ruby method calls one of the
 * ..._would_block functions below with the answer and $!. nil passes through them: the end of a file where
 * no exception was asked for.
 */
#include "calls.h"
#include "scratch.h"
#include "would_block.h"

/* --- Answers. */

static inline bool is_would_block(VALUE answer) {
    return answer == ea_sym_wait_readable || answer == ea_sym_wait_writable;
}

#ifdef HAVE_RB_GVAR_GET
VALUE rb_gvar_get(ID id); /* exported, without a header */
#endif
static ID id_errinfo; /* $! */

/* To be returned, when it returns. */
static VALUE raise_or_false(enum ea_would_block_call call) {
#ifdef HAVE_RB_GVAR_GET
    ea_would_block(call, rb_gvar_get(id_errinfo));
#else
    (void)call;
    return Qfalse;
#endif
}

/* Of what never answers nil, or answers it with or without exceptions. */
static inline VALUE answer_of(enum ea_would_block_call call, VALUE answer, VALUE exception) {
    return RB_UNLIKELY(is_would_block(answer)) && exception != Qfalse ? raise_or_false(call)
                                                                      : answer;
}

/* Of what answers nil at the end of file, where Ruby's own raises. */
static inline VALUE read_answer(VALUE answer, VALUE exception) {
    if (RB_UNLIKELY(NIL_P(answer)) && exception != Qfalse)
        rb_eof_error();
    return answer_of(EA_WB_READ, answer, exception);
}

/* For IO, though not for sockets, exception: is true or false. */
static inline void check_exception(VALUE exception) {
    if (RB_UNLIKELY(exception != Qtrue && exception != Qfalse))
        rb_raise(rb_eArgError, "expected true or false as exception: %+" PRIsVALUE, exception);
}

#define WOULD_BLOCK(name, call)                                                                    \
    static VALUE name##_would_block(VALUE module, VALUE answer, VALUE cause) {                     \
        (void)module;                                                                              \
        if (RB_UNLIKELY(answer != Qfalse))                                                         \
            return answer;                                                                         \
        ea_would_block(call, cause);                                                               \
    }

WOULD_BLOCK(read, EA_WB_READ)
WOULD_BLOCK(write, EA_WB_WRITE)
WOULD_BLOCK(recvfrom, EA_WB_RECVFROM)
WOULD_BLOCK(recvmsg, EA_WB_RECVMSG)
WOULD_BLOCK(sendmsg, EA_WB_SENDMSG)
WOULD_BLOCK(accept, EA_WB_ACCEPT)
WOULD_BLOCK(connect, EA_WB_CONNECT)

/* --- Ruby's own methods, under the names that they have now. */

static VALUE no_exception; /* {exception: false}, frozen */

/* Asks one that is not to raise either. args has room for one more. */
static VALUE ask(VALUE object, ID own, int argc, VALUE *args) {
    args[argc] = no_exception;
    return rb_funcallv_kw(object, own, argc + 1, args, RB_PASS_KEYWORDS);
}

/* --- IO.
 *
 * What Ruby has buffered for writing is flushed first, and if there is no room for it, Ruby's own methods
 * wait. So do these: who reads knows how to wait for what comes, and would do so in vain. */

static VALUE write_flushed(VALUE io, VALUE string) {
    VALUE answer = ea_trywrite(io, string);
    while (RB_UNLIKELY(answer == ea_sym_wait_writable) && ea_io_flush_to_write(io))
        answer = ea_trywrite(io, string);
    return answer;
}

static VALUE io_read(VALUE io, VALUE maxlen, VALUE buffer, VALUE exception) {
    /* Converted once, though it may be tried twice. */
    if (RB_UNLIKELY(!RB_FIXNUM_P(maxlen)))
        maxlen = LONG2NUM(NUM2LONG(maxlen));
    if (RB_UNLIKELY(!NIL_P(buffer) && !RB_TYPE_P(buffer, T_STRING)) && NUM2LONG(maxlen) >= 0)
        StringValue(buffer);
    if (RB_UNLIKELY(exception != Qtrue && exception != Qfalse) && NUM2LONG(maxlen) >= 0) {
        if (!NIL_P(buffer))
            rb_str_modify(buffer); /* what is wrong with it comes first */
        check_exception(exception);
    }
    VALUE answer = ea_tryread(io, maxlen, buffer);
    while (RB_UNLIKELY(answer == ea_sym_wait_writable)) {
        ea_io_flush_to_read(io);
        answer = ea_tryread(io, maxlen, buffer);
    }
    return read_answer(answer, exception);
}

static VALUE io_write(VALUE io, VALUE string, VALUE exception) {
    string = rb_obj_as_string(string);
    check_exception(exception);
    return answer_of(EA_WB_WRITE, write_flushed(io, string), exception);
}

/* --- BasicSocket. */

/* Ruby's own looks neither at the direction nor at what is to be written. */
static VALUE socket_read(VALUE socket, VALUE maxlen, VALUE buffer, VALUE exception) {
    long len = NUM2LONG(maxlen);
    if (RB_UNLIKELY(len < 0))
        rb_raise(rb_eArgError, "negative string size (or size too big)");
    if (!NIL_P(buffer))
        ea_buffer_prepare(&buffer, len);
    struct ea_known known;
    ea_socket_begin_self(socket, &known);
    char *to = NIL_P(buffer) ? ea_scratch((size_t)len) : RSTRING_PTR(buffer);
    ea_result r = 0;
    if (RB_UNLIKELY(ea_io_buffered(socket) > 0))
        r = (ea_result)ea_io_take_buffered(socket, to, (size_t)len);
    if (r == 0 && len > 0) {
        r = ea_try_recv(&known.fd, to, (size_t)len, 0);
        ea_known_end(&known);
        if (r == EA_WAIT_READABLE)
            return exception == Qfalse ? ea_sym_wait_readable : raise_or_false(EA_WB_READ);
        if (RB_UNLIKELY(r == EA_EOF || r == 0)) { /* an empty datagram, too */
            if (!NIL_P(buffer))
                rb_str_set_len(buffer, 0);
            return read_answer(Qnil, exception);
        }
        if (RB_UNLIKELY(!ea_is_count(r)))
            return ea_io_answer(socket, r);
    }
    if (!NIL_P(buffer)) {
        ea_buffer_set_length(buffer, r);
        return buffer;
    }
    VALUE string = rb_str_new(to, r);
    ea_scratch_done((size_t)r);
    return string;
}

static VALUE socket_write(VALUE socket, VALUE string, VALUE exception) {
    return answer_of(EA_WB_WRITE, write_flushed(socket, rb_obj_as_string(string)), exception);
}

/* In the order in which Ruby's own convert them, before they look at the socket. */
static inline void convert(VALUE *maxlen, VALUE *flags, VALUE *buffer) {
    *flags = INT2NUM(NUM2INT(*flags));
    *maxlen = INT2NUM(NUM2INT(*maxlen));
    if (!NIL_P(*buffer))
        rb_str_modify(StringValue(*buffer));
}

/* IOError: the socket is closed, or Ruby has read ahead. */
static void check_unbuffered(VALUE socket) {
    struct ea_known known;
    ea_socket_begin_self(socket, &known);
    if (RB_UNLIKELY(ea_io_buffered(socket) > 0))
        rb_raise(rb_eIOError, "recvfrom for buffered IO"); /* says recv_nonblock, too */
}

/* What Ruby's recv_nonblock and kin make of no bytes depends on the version. Up to 3.2 they are a message
 * like any other, at the end of file, too; later they are nil, unless it is a datagram. */
static bool end_is_nil;
static ID id_recv, id_recvfrom, id_recvmsg; /* Ruby's own, renamed */

static bool is_empty(VALUE answer) {
    if (RB_TYPE_P(answer, T_ARRAY))
        answer = RARRAY_AREF(answer, 0);
    return RB_TYPE_P(answer, T_STRING) && RSTRING_LEN(answer) == 0;
}

/* What comes of it is Ruby's own affair: to ask a stream for nothing can be a would-block. */
static inline bool wants_nothing(VALUE maxlen) {
    return RB_UNLIKELY(maxlen == INT2FIX(0));
}

/* own: for the message that the end of file is; it will come again. */
static inline VALUE received(enum ea_would_block_call call, VALUE answer, VALUE socket, ID own,
                             VALUE *args, VALUE exception) {
    if (RB_UNLIKELY(NIL_P(answer)))
        return end_is_nil ? Qnil : ask(socket, own, 3, args);
    if (RB_UNLIKELY(is_empty(answer)) && end_is_nil && ea_socket_type(socket) != SOCK_DGRAM)
        return Qnil;
    return answer_of(call, answer, exception);
}

static VALUE socket_recv(VALUE socket, VALUE maxlen, VALUE flags, VALUE buffer, VALUE exception) {
    convert(&maxlen, &flags, &buffer);
    check_unbuffered(socket);
    VALUE args[4] = {maxlen, flags, buffer};
    if (wants_nothing(maxlen))
        return answer_of(EA_WB_RECVFROM, ask(socket, id_recv, 3, args), exception);
    return received(EA_WB_RECVFROM, ea_tryrecv(socket, maxlen, flags, buffer), socket, id_recv,
                    args, exception);
}

static VALUE socket_recvfrom(VALUE socket, VALUE maxlen, VALUE flags, VALUE buffer,
                             VALUE exception) {
    convert(&maxlen, &flags, &buffer);
    VALUE args[4] = {maxlen, flags, buffer};
    if (wants_nothing(maxlen))
        return answer_of(EA_WB_RECVFROM, ask(socket, id_recvfrom, 3, args), exception);
    VALUE answer = ea_tryrecvfrom(socket, maxlen, flags, buffer);
    return received(EA_WB_RECVFROM, answer, socket, id_recvfrom, args, exception);
}

static VALUE socket_recvmsg(VALUE socket, VALUE maxlen, VALUE flags, VALUE maxcontrol,
                            VALUE scm_rights, VALUE exception) {
    if (RB_UNLIKELY(NIL_P(flags))) { /* not optional here; what else is wrong comes first */
        if (!NIL_P(maxlen))
            NUM2SIZET(maxlen);
        if (!NIL_P(maxcontrol))
            NUM2SIZET(maxcontrol);
        NUM2INT(flags);
    }
    VALUE args[4] = {maxlen, flags, maxcontrol};
    if (wants_nothing(maxlen) && !RTEST(scm_rights))
        return answer_of(EA_WB_RECVMSG, ask(socket, id_recvmsg, 3, args), exception);
    VALUE answer = ea_tryrecvmsg(socket, maxlen, flags, maxcontrol, RTEST(scm_rights));
    return received(EA_WB_RECVMSG, answer, socket, id_recvmsg, args, exception);
}

static VALUE socket_sendmsg(VALUE socket, VALUE message, VALUE flags, VALUE dest, VALUE controls,
                            VALUE exception) {
    StringValue(message); /* no Array */
    return answer_of(EA_WB_SENDMSG, ea_trysendmsg(socket, message, flags, dest, controls),
                     exception);
}

static VALUE server_accept(VALUE server, VALUE klass, VALUE exception) {
    return answer_of(EA_WB_ACCEPT, ea_tryaccept(server, klass, NULL), exception);
}

/* [socket, Addrinfo] */
static VALUE socket_accept(VALUE server, VALUE klass, VALUE exception) {
    VALUE address = Qnil;
    VALUE socket = ea_tryaccept(server, klass, &address);
    if (is_would_block(socket))
        return answer_of(EA_WB_ACCEPT, socket, exception);
    VALUE peer = ea_socket_addrinfo(socket, (const struct sockaddr *)RSTRING_PTR(address),
                                    (socklen_t)RSTRING_LEN(address));
    RB_GC_GUARD(address);
    return rb_assoc_new(socket, peer);
}

static VALUE socket_connect(VALUE socket, VALUE address, VALUE exception) {
    if (exception == Qfalse)
        return ea_tryconnect(socket, address);
    return answer_of(EA_WB_CONNECT, ea_tryconnect_anew(socket, address), exception);
}

/* --- OpenSSL::SSL::SSLSocket: openssl's own, asked not to raise. */

static ID id_ssl_read, id_ssl_write, id_ssl_accept, id_ssl_connect; /* openssl's own, renamed */

static VALUE ssl_read(VALUE module, VALUE ssl, VALUE maxlen, VALUE buffer) {
    (void)module;
    VALUE args[3] = {maxlen, buffer};
    return ask(ssl, id_ssl_read, 2, args);
}

static VALUE ssl_write(VALUE module, VALUE ssl, VALUE string) {
    (void)module;
    VALUE args[2] = {string};
    return ask(ssl, id_ssl_write, 1, args);
}

/* What openssl would have raised instead of this answer; or the answer, if nothing. */
static VALUE ssl_raise(VALUE module, VALUE answer, VALUE cause) {
    (void)module;
    if (NIL_P(answer))
        rb_eof_error();
    if (answer == ea_sym_wait_readable)
        ea_would_block(EA_WB_SSL_READ, cause);
    if (answer == ea_sym_wait_writable)
        ea_would_block(EA_WB_SSL_WRITE, cause);
    return answer;
}

/* Takes whatever arguments openssl's does, and leaves complaining to it. */
static VALUE ssl_handshake(int argc, const VALUE *argv, VALUE ssl, ID own) {
    int given = rb_keyword_given_p() ? RB_PASS_KEYWORDS : RB_NO_KEYWORDS;
    if (given && rb_hash_lookup2(argv[argc - 1], ID2SYM(rb_intern("exception")), Qtrue) == Qfalse)
        return rb_funcallv_kw(ssl, own, argc, argv, given);
    if (given)
        argc--;
    VALUE guard;
    VALUE *args = ALLOCV_N(VALUE, guard, argc + 1);
    MEMCPY(args, argv, VALUE, argc);
    VALUE answer = ask(ssl, own, argc, args);
    ALLOCV_END(guard);
    return is_would_block(answer) ? ssl_raise(Qnil, answer, rb_gv_get("$!")) : answer;
}

static VALUE ssl_accept(int argc, VALUE *argv, VALUE ssl) {
    return ssl_handshake(argc, argv, ssl, id_ssl_accept);
}

static VALUE ssl_connect(int argc, VALUE *argv, VALUE ssl) {
    return ssl_handshake(argc, argv, ssl, id_ssl_connect);
}

/* Once, when its methods have been renamed. */
static VALUE introduce_ssl(VALUE module, VALUE ssl_socket, VALUE readable, VALUE writable) {
    (void)module;
    ea_would_block_introduce_ssl(readable, writable);
    rb_define_method(ssl_socket, "accept_nonblock", ssl_accept, -1);
    rb_define_method(ssl_socket, "connect_nonblock", ssl_connect, -1);
    return Qnil;
}

/* --- Eagain::Nonblock. */

/*
 * call-seq:
 *   Eagain::Nonblock.backtraces -> true or false
 *
 * Whether would-block exceptions have backtraces: +false+ at first.
 */
static VALUE s_backtraces(VALUE module) {
    (void)module;
    return atomic_load_explicit(&ea_would_block_backtraces, memory_order_relaxed) ? Qtrue : Qfalse;
}

/*
 * call-seq:
 *   Eagain::Nonblock.backtraces = true or false
 *
 * Switches the backtraces of would-block exceptions on or off, for the whole process. With them, the
 * exceptions are made and raised as Ruby does it, at Ruby's price.
 */
static VALUE s_set_backtraces(VALUE module, VALUE on) {
    (void)module;
    atomic_store_explicit(&ea_would_block_backtraces, RTEST(on), memory_order_relaxed);
    return on;
}

/* Once, when the methods have been renamed: what Ruby's own recv_nonblock gives at the end of file. */
static VALUE start(VALUE module, VALUE end) {
    (void)module;
    end_is_nil = NIL_P(end);
    ea_would_block_on_demand();
    return Qnil;
}

void ea_init_nonblock(VALUE module) {
    ea_init_would_block();
    no_exception = rb_hash_new();
    rb_hash_aset(no_exception, ID2SYM(rb_intern("exception")), Qfalse);
    rb_obj_freeze(no_exception);
    rb_gc_register_mark_object(no_exception);
    id_errinfo = rb_intern("$!");
    id_recv = rb_intern("__ruby_recv_nonblock");
    id_recvfrom = rb_intern("__ruby_recvfrom_nonblock");
    id_recvmsg = rb_intern("__ruby_recvmsg_nonblock");
    id_ssl_read = rb_intern("__ruby_sysread_nonblock");
    id_ssl_write = rb_intern("__ruby_syswrite_nonblock");
    id_ssl_accept = rb_intern("__ruby_accept_nonblock");
    id_ssl_connect = rb_intern("__ruby_connect_nonblock");

    VALUE nonblock = rb_define_module_under(module, "Nonblock");
    rb_define_singleton_method(nonblock, "backtraces", s_backtraces, 0);
    rb_define_singleton_method(nonblock, "backtraces=", s_set_backtraces, 1);
    VALUE calls = rb_define_module_under(nonblock, "Calls"); /* :nodoc: */
    rb_funcall(nonblock, rb_intern("private_constant"), 1, ID2SYM(rb_intern("Calls")));
    rb_define_singleton_method(calls, "start", start, 1);
    rb_define_method(calls, "read", io_read, 3);
    rb_define_method(calls, "write", io_write, 2);
    rb_define_method(calls, "socket_read", socket_read, 3);
    rb_define_method(calls, "socket_write", socket_write, 2);
    rb_define_method(calls, "recv", socket_recv, 4);
    rb_define_method(calls, "recvfrom", socket_recvfrom, 4);
    rb_define_method(calls, "recvmsg", socket_recvmsg, 5);
    rb_define_method(calls, "sendmsg", socket_sendmsg, 5);
    rb_define_method(calls, "accept", server_accept, 2);
    rb_define_method(calls, "socket_accept", socket_accept, 2);
    rb_define_method(calls, "connect", socket_connect, 2);
    rb_define_singleton_method(calls, "read_would_block", read_would_block, 2);
    rb_define_singleton_method(calls, "write_would_block", write_would_block, 2);
    rb_define_singleton_method(calls, "recvfrom_would_block", recvfrom_would_block, 2);
    rb_define_singleton_method(calls, "recvmsg_would_block", recvmsg_would_block, 2);
    rb_define_singleton_method(calls, "sendmsg_would_block", sendmsg_would_block, 2);
    rb_define_singleton_method(calls, "accept_would_block", accept_would_block, 2);
    rb_define_singleton_method(calls, "connect_would_block", connect_would_block, 2);
    rb_define_singleton_method(calls, "ssl_read", ssl_read, 3);
    rb_define_singleton_method(calls, "ssl_write", ssl_write, 2);
    rb_define_singleton_method(calls, "ssl_raise", ssl_raise, 2);
    rb_define_singleton_method(calls, "introduce_ssl", introduce_ssl, 3);
}
