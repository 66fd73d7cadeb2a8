/* The blocking twins of the calls that servers make all the time, where they need neither a wait nor a
 * timeout: one call from Ruby, one attempt. The rest of each is in lib/eagain/blocking.rb. */
#include "calls.h"

#define OPTIONAL(argc, argv, i) ((argc) > (i) ? (argv)[i] : Qnil)

static ID read_in_time, write_in_time, recv_in_time, sendto_in_time;
static ID read_again, write_rest, recv_again, sendto_again;

/* With keywords, it is the method of blocking.rb that knows what to do. */
static VALUE in_time(VALUE self, ID method, int argc, VALUE *argv) {
    return rb_funcallv_kw(self, method, argc, argv, RB_PASS_KEYWORDS);
}

/* call-seq: Eagain.read(io, maxlen, buffer = nil, timeout: nil) -> String or nil
 *
 * Reads what is there, at most +maxlen+ bytes, or waits for the first.
 *
 * Returns the bytes, binary, in +buffer+ if that is given; nil at the end of file. As IO#readpartial
 * otherwise: what Ruby has read ahead is given out first. +io+ may be an OpenSSL::SSL::SSLSocket, for
 * whose sake the wait may be for room to write. */
static VALUE s_read(int argc, VALUE *argv, VALUE self) {
    if (RB_UNLIKELY(rb_keyword_given_p()))
        return in_time(self, read_in_time, argc, argv);
    rb_check_arity(argc, 2, 3);
    VALUE buffer = OPTIONAL(argc, argv, 2);
    ea_wait_account();
    VALUE answer = ea_tryread(argv[0], argv[1], buffer);
    if (RB_LIKELY(!RB_SYMBOL_P(answer)))
        return answer;
    return rb_funcall(self, read_again, 4, argv[0], argv[1], buffer, answer);
}

/* call-seq: Eagain.write(io, *strings, timeout: nil) -> Integer
 *
 * Writes all of the strings (anything else by its #to_s), as they are at the time of the call, and returns the
 * count of bytes. Bytes go out as they are: nothing is transcoded, and what Ruby has buffered goes
 * first. Several strings go out in one system call, if there is room. +io+ may be an
 * OpenSSL::SSL::SSLSocket.
 *
 * TimeoutError#written says how many bytes were written before the time was over. */
static VALUE s_write(int argc, VALUE *argv, VALUE self) {
    if (RB_UNLIKELY(rb_keyword_given_p()))
        return in_time(self, write_in_time, argc, argv);
    rb_check_arity(argc, 1, UNLIMITED_ARGUMENTS);
    if (RB_UNLIKELY(argc != 2 || !RB_TYPE_P(argv[1], T_STRING)))
        return rb_funcallv(self, write_in_time, argc, argv);
    VALUE string = argv[1];
    if (RB_UNLIKELY(ea_wait_accounts())) /* it is written as it is now */
        string = rb_str_new_frozen(string);
    ea_wait_account();
    VALUE answer = ea_trywrite(argv[0], string);
    if (RB_LIKELY(RB_FIXNUM_P(answer) && FIX2LONG(answer) >= RSTRING_LEN(string)))
        return answer;
    return rb_funcall(self, write_rest, 4, argv[0], string, Qnil, answer);
}

/* call-seq: Eagain.recv(socket, maxlen, flags = 0, buffer = nil, timeout: nil) -> String or nil
 *
 * Receives from a socket, as recv(2) with +flags+ (Socket::MSG_PEEK...), or waits for a message.
 * Returns the bytes, in +buffer+ if that is given; nil at the end of a stream. */
static VALUE s_recv(int argc, VALUE *argv, VALUE self) {
    if (RB_UNLIKELY(rb_keyword_given_p()))
        return in_time(self, recv_in_time, argc, argv);
    rb_check_arity(argc, 2, 4);
    VALUE flags = argc > 2 ? argv[2] : INT2FIX(0), buffer = OPTIONAL(argc, argv, 3);
    ea_wait_account();
    VALUE answer = ea_tryrecv(argv[0], argv[1], flags, buffer);
    if (RB_LIKELY(!RB_SYMBOL_P(answer)))
        return answer;
    return rb_funcall(self, recv_again, 5, argv[0], argv[1], flags, buffer, answer);
}

/* call-seq: Eagain.sendto(socket, string, flags = 0, dest = nil, timeout: nil) -> Integer
 *
 * Sends a string by a socket, to +dest+ (a packed address or an Addrinfo) if it is not connected, as
 * sendto(2): in one piece, or, on a stream, as much as there is room for. Returns the count of bytes.
 * (The twin of trysend; +Eagain.send+ is Object's.) */
static VALUE s_sendto(int argc, VALUE *argv, VALUE self) {
    if (RB_UNLIKELY(rb_keyword_given_p()))
        return in_time(self, sendto_in_time, argc, argv);
    rb_check_arity(argc, 2, 4);
    VALUE flags = argc > 2 ? argv[2] : INT2FIX(0), dest = OPTIONAL(argc, argv, 3);
    ea_wait_account();
    VALUE answer = ea_trysend(argv[0], argv[1], flags, dest);
    if (RB_LIKELY(!RB_SYMBOL_P(answer)))
        return answer;
    return rb_funcall(self, sendto_again, 5, argv[0], argv[1], flags, dest, answer);
}

void ea_init_twins(VALUE module) {
    read_in_time = rb_intern("read_in_time");
    write_in_time = rb_intern("write_in_time");
    recv_in_time = rb_intern("recv_in_time");
    sendto_in_time = rb_intern("sendto_in_time");
    read_again = rb_intern("read_again");
    write_rest = rb_intern("write_rest");
    recv_again = rb_intern("recv_again");
    sendto_again = rb_intern("sendto_again");
    rb_define_singleton_method(module, "read", s_read, -1);
    rb_define_singleton_method(module, "write", s_write, -1);
    rb_define_singleton_method(module, "recv", s_recv, -1);
    rb_define_singleton_method(module, "sendto", s_sendto, -1);
}
