/* The blocking twins of the calls that servers make all the time: one call from Ruby, an attempt, and,
 * after a would-block, a wait and another attempt, with no frame of Ruby's in between. What then goes on
 * is in lib/eagain/blocking.rb, as is all that is no IO.
 *
 * Ruby hands keywords to a method in C as a Hash; no other is made of it. */
#include "calls.h"

#define OPTIONAL(argc, argv, i) ((argc) > (i) ? (argv)[i] : Qnil)

/* Up to so many strings are written without an Array of them. */
#define FEW 16

static ID id_timeout, read_again, write_rest, write_all, recv_again, sendto_again;

/* Takes timeout:, the one keyword that there is, from the arguments: nil if it is not given. Keywords are
 * a Hash in the last place, which is cheaper to see than whether they were given. */
static inline VALUE take_timeout(int *argc, const VALUE *argv) {
    if (RB_LIKELY(*argc == 0 || !RB_TYPE_P(argv[*argc - 1], T_HASH)) || !rb_keyword_given_p())
        return Qnil;
    VALUE options = argv[--*argc];
    VALUE timeout = rb_hash_lookup2(options, ID2SYM(id_timeout), Qundef);
    if (RB_UNLIKELY(timeout == Qundef || RHASH_SIZE(options) != 1)) {
        options = rb_hash_dup(options);
        rb_get_kwargs(options, &id_timeout, 0, 1, &timeout); /* ArgumentError */
    }
    return timeout;
}

/* The deadline, as the methods of blocking.rb take it. */
static VALUE limit_of(int64_t deadline) {
    return deadline == EA_TIME_NEVER ? Qnil : LL2NUM(deadline);
}

static inline int64_t deadline_of(VALUE timeout) {
    return RB_LIKELY(!RTEST(timeout)) ? EA_TIME_NEVER : ea_deadline_of(timeout);
}

/* After an answer of a call on a T_FILE, which was a would-block. */
static inline void wait_again(VALUE io, VALUE answer, int64_t deadline, size_t written) {
    ea_wait_again(io, answer == ea_sym_wait_readable ? EA_WAIT_READABLE : EA_WAIT_WRITABLE,
                  deadline, written);
}

/* call-seq: Eagain.read(io, maxlen, buffer = nil, timeout: nil) -> String or nil
 *
 * Reads what is there, at most +maxlen+ bytes, or waits for the first.
 *
 * Returns the bytes, binary, in +buffer+ if that is given; nil at the end of file. As IO#readpartial
 * otherwise: what Ruby has read ahead is given out first. +io+ may be an OpenSSL::SSL::SSLSocket, for
 * whose sake the wait may be for room to write.
 *
 * Errors as ::tryread; TimeoutError when +timeout+ seconds are over. */
static VALUE s_read(int argc, VALUE *argv, VALUE self) {
    VALUE timeout = take_timeout(&argc, argv);
    rb_check_arity(argc, 2, 3);
    VALUE io = argv[0], buffer = OPTIONAL(argc, argv, 2);
    int64_t deadline = deadline_of(timeout);
    ea_wait_account();
    VALUE answer = ea_tryread(io, argv[1], buffer);
    if (RB_LIKELY(!RB_SYMBOL_P(answer)))
        return answer;
    if (RB_LIKELY(RB_TYPE_P(io, T_FILE))) {
        wait_again(io, answer, deadline, 0);
        answer = ea_tryread(io, argv[1], buffer);
        if (RB_LIKELY(!RB_SYMBOL_P(answer)))
            return answer;
    }
    return rb_funcall(self, read_again, 5, io, argv[1], buffer, answer, limit_of(deadline));
}

/* An attempt to write the String had that answer: goes on until all of it is written. */
static VALUE write_on(VALUE io, VALUE string, VALUE answer, int64_t deadline) {
    string = rb_str_new_frozen(string); /* others may change theirs meanwhile */
    long written = 0, total = RSTRING_LEN(string);
    for (;;) {
        if (RB_SYMBOL_P(answer)) {
            wait_again(io, answer, deadline, (size_t)written);
        } else {
            written += FIX2LONG(answer);
            if (written >= total)
                return LONG2NUM(written);
            ea_wait_account();
        }
        answer = ea_trywrite_from(io, string, written);
    }
}

/* Several strings, or none. */
static VALUE write_several(VALUE self, int argc, VALUE *argv, int64_t deadline) {
    VALUE io = argv[0], *strings = argv + 1, answer = Qnil;
    int count = argc - 1;
    long total = 0;
    bool usual = count <= FEW && RB_TYPE_P(io, T_FILE);
    for (int i = 0; usual && i < count; i++) {
        usual = RB_TYPE_P(strings[i], T_STRING);
        total += usual ? RSTRING_LEN(strings[i]) : 0;
    }
    if (RB_LIKELY(usual && !ea_wait_accounts())) {
        ea_wait_account();
        answer = ea_trywritev_of(io, strings, count);
        if (RB_LIKELY(RB_FIXNUM_P(answer) && FIX2LONG(answer) >= total))
            return answer;
    }
    return rb_funcall(self, write_all, 4, io, rb_ary_new_from_values(count, strings),
                      limit_of(deadline), answer);
}

/* call-seq: Eagain.write(io, *strings, timeout: nil) -> Integer
 *
 * Writes all of the strings (anything else by its #to_s), as they are at the time of the call, and returns the
 * count of bytes. Bytes go out as they are: nothing is transcoded, and what Ruby has buffered goes
 * first. Several strings go out in one system call, if there is room. +io+ may be an
 * OpenSSL::SSL::SSLSocket.
 *
 * Errors as ::trywrite; TimeoutError when +timeout+ seconds are over: TimeoutError#written says how many bytes
 * were written before. */
static VALUE s_write(int argc, VALUE *argv, VALUE self) {
    VALUE timeout = take_timeout(&argc, argv);
    rb_check_arity(argc, 1, UNLIMITED_ARGUMENTS);
    int64_t deadline = deadline_of(timeout);
    if (argc != 2)
        return write_several(self, argc, argv, deadline);
    VALUE io = argv[0], string = argv[1];
    if (RB_UNLIKELY(!RB_TYPE_P(string, T_STRING)))
        string = rb_obj_as_string(string);
    ea_wait_account_for(&string);
    VALUE answer = ea_trywrite(io, string);
    if (RB_LIKELY(RB_FIXNUM_P(answer) && FIX2LONG(answer) >= RSTRING_LEN(string)))
        return answer;
    if (RB_LIKELY(RB_TYPE_P(io, T_FILE)))
        return write_on(io, string, answer, deadline);
    return rb_funcall(self, write_rest, 4, io, string, limit_of(deadline), answer);
}

/* call-seq: Eagain.recv(socket, maxlen, flags = 0, buffer = nil, timeout: nil) -> String or nil
 *
 * Receives from a socket, as recv(2) with +flags+ (Socket::MSG_PEEK...), or waits for a message.
 * Returns the bytes, in +buffer+ if that is given; nil at the end of a stream.
 *
 * Errors as ::tryrecv; TimeoutError when +timeout+ seconds are over. */
static VALUE s_recv(int argc, VALUE *argv, VALUE self) {
    VALUE timeout = take_timeout(&argc, argv);
    rb_check_arity(argc, 2, 4);
    VALUE flags = argc > 2 ? argv[2] : INT2FIX(0), buffer = OPTIONAL(argc, argv, 3);
    int64_t deadline = deadline_of(timeout);
    ea_wait_account();
    VALUE answer = ea_tryrecv(argv[0], argv[1], flags, buffer);
    if (RB_UNLIKELY(RB_SYMBOL_P(answer))) {
        wait_again(argv[0], answer, deadline, 0);
        answer = ea_tryrecv(argv[0], argv[1], flags, buffer);
    }
    if (RB_LIKELY(!RB_SYMBOL_P(answer)))
        return answer;
    return rb_funcall(self, recv_again, 6, argv[0], argv[1], flags, buffer, answer,
                      limit_of(deadline));
}

/* call-seq: Eagain.sendto(socket, string, flags = 0, dest = nil, timeout: nil) -> Integer
 *
 * Sends a string by a socket, to +dest+ (a packed address or an Addrinfo) if it is not connected, as
 * sendto(2): in one piece, or, on a stream, as much as there is room for. Returns the count of bytes.
 * (The twin of ::trysend; +Eagain.send+ is Object's.)
 *
 * Errors as ::trysend; TimeoutError when +timeout+ seconds are over. */
static VALUE s_sendto(int argc, VALUE *argv, VALUE self) {
    VALUE timeout = take_timeout(&argc, argv);
    rb_check_arity(argc, 2, 4);
    VALUE flags = argc > 2 ? argv[2] : INT2FIX(0), dest = OPTIONAL(argc, argv, 3);
    int64_t deadline = deadline_of(timeout);
    ea_wait_account();
    VALUE answer = ea_trysend(argv[0], argv[1], flags, dest);
    if (RB_LIKELY(!RB_SYMBOL_P(answer)))
        return answer;
    return rb_funcall(self, sendto_again, 6, argv[0], argv[1], flags, dest, answer,
                      limit_of(deadline));
}

void ea_init_twins(VALUE module) {
    id_timeout = rb_intern("timeout");
    read_again = rb_intern("read_again");
    write_rest = rb_intern("write_rest");
    write_all = rb_intern("write_all");
    recv_again = rb_intern("recv_again");
    sendto_again = rb_intern("sendto_again");
    rb_define_singleton_method(module, "read", s_read, -1);
    rb_define_singleton_method(module, "write", s_write, -1);
    rb_define_singleton_method(module, "recv", s_recv, -1);
    rb_define_singleton_method(module, "sendto", s_sendto, -1);
}
