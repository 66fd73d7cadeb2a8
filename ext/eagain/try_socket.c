/* tryrecv, tryrecvfrom, trysend: one message, or a piece of a stream, without ancillary data.
 *
 * What is received goes into the buffer that was given, else into this thread's scratch memory,
 * so that a would-block makes no object. All arguments are converted first, since that may run
 * any code; then the socket is looked at and called, with nothing in between. */
#include "calls.h"
#include "scratch.h"

#include <netdb.h>
#include <sys/un.h>

/* Who sent it. */
struct sender {
    union {
        struct sockaddr any;
        struct sockaddr_un un;
        struct sockaddr_storage room;
    } address;
    socklen_t len;
};

/* --- Shared with try_message.c and others (calls.h). */

VALUE ea_socket_answer(ea_result r, const char *call) {
    if (r == EA_WAIT_READABLE)
        return ea_sym_wait_readable;
    if (r == EA_WAIT_WRITABLE)
        return ea_sym_wait_writable;
    rb_syserr_fail(ea_errno(r), call);
}

VALUE ea_socket_addrinfo(VALUE socket, const struct sockaddr *address, socklen_t len) {
    return ea_addrinfo(rb_str_new((const char *)address, (long)len), ea_socket_type(socket));
}

/* --- Senders, as recvfrom and recvfrom_nonblock of the socket's class give them. */

static VALUE unix_sender(const struct sender *sender) {
    const struct sockaddr_un *un = &sender->address.un;
    size_t before = offsetof(struct sockaddr_un, sun_path);
    size_t len = sender->len > before ? sender->len - before : 0;
    while (len > 0 && un->sun_path[len - 1] == '\0')
        len--;
    return rb_assoc_new(rb_str_new_cstr("AF_UNIX"), rb_str_new(un->sun_path, (long)len));
}

/* "AF_INET"; "unknown:77" of a family that Ruby has no name for. */
static VALUE family_name(int family) {
    switch (family) {
    case AF_INET:
        return rb_usascii_str_new_cstr("AF_INET");
    case AF_INET6:
        return rb_usascii_str_new_cstr("AF_INET6");
    case AF_UNIX:
        return rb_usascii_str_new_cstr("AF_UNIX");
    default:
        return rb_sprintf("unknown:%d", family);
    }
}

static VALUE host_of(VALUE addrinfo) {
    VALUE pair = rb_funcall(addrinfo, rb_intern("getnameinfo"), 1, INT2FIX(NI_NUMERICSERV));
    return rb_ary_entry(pair, 0);
}

static VALUE no_host(VALUE nothing, VALUE error) {
    (void)nothing;
    (void)error;
    return Qnil;
}

static VALUE ip_sender(VALUE socket, const struct sender *sender) {
    if (sender->len == 0)
        return Qnil; /* connected: the sender is the peer */
    char number[NI_MAXHOST], port[NI_MAXSERV];
    int error = getnameinfo(&sender->address.any, sender->len, number, sizeof(number), port,
                            sizeof(port), NI_NUMERICHOST | NI_NUMERICSERV);
    if (error)
        rb_raise(ea_socket_class(EA_SOCKET_ERROR), "getnameinfo: %s", gai_strerror(error));
    VALUE numeric = rb_str_new_cstr(number), host = Qnil;
    /* Only then may this wait, for the resolver: the sender's name was asked for. */
    if (!RTEST(rb_funcall(socket, rb_intern("do_not_reverse_lookup"), 0))) {
        VALUE addrinfo = ea_socket_addrinfo(socket, &sender->address.any, sender->len);
        host = rb_rescue2(host_of, addrinfo, no_host, Qnil, ea_socket_class(EA_SOCKET_ERROR),
                          (VALUE)0);
    }
    return rb_ary_new_from_args(4, family_name(sender->address.any.sa_family), INT2FIX(atoi(port)),
                                NIL_P(host) ? numeric : host, numeric);
}

static VALUE sender_of(VALUE socket, const struct sender *sender) {
    if (ea_is_a(socket, EA_IP_SOCKET))
        return ip_sender(socket, sender);
    if (ea_is_a(socket, EA_UNIX_SOCKET))
        return unix_sender(sender);
    return ea_socket_addrinfo(socket, &sender->address.any, sender->len);
}

/* --- Receiving. */

/* What both receive with; sender may be NULL. At the end of file, *buffer is the String that was
 * given. */
static inline VALUE receive(VALUE socket, VALUE maxlen, VALUE vflags, VALUE *buffer,
                            struct sender *sender) {
    int flags = NIL_P(vflags) ? 0 : NUM2INT(vflags);
    long len = NUM2INT(maxlen);
    if (!NIL_P(*buffer))
        ea_buffer_prepare(buffer, len);
    if (RB_UNLIKELY(len < 0))
        rb_raise(rb_eArgError, "negative string size (or size too big)");

    struct ea_known known;
    ea_socket_begin(socket, &known);
    if (RB_UNLIKELY(ea_io_buffered(socket) > 0))
        rb_raise(rb_eIOError, "%s for buffered IO", sender ? "recvfrom" : "recv");
    /* MSG_TRUNC gives the length of what was there, which may not have been written anywhere. */
    bool scratch = NIL_P(*buffer) || (flags & MSG_TRUNC);
    char *to = RB_UNLIKELY(flags & MSG_TRUNC) ? ea_scratch_zeroed((size_t)len)
               : scratch                      ? ea_scratch((size_t)len)
                                              : RSTRING_PTR(*buffer);
    ea_result r;
    if (sender) {
        sender->len = sizeof(sender->address);
        r = ea_try_recvfrom(&known.fd, to, (size_t)len, flags, &sender->address.any, &sender->len);
        if (sender->len > sizeof(sender->address))
            sender->len = sizeof(sender->address);
    } else {
        r = ea_try_recv(&known.fd, to, (size_t)len, flags);
    }
    ea_known_end(&known);
    if (RB_UNLIKELY(r > len))
        r = len;
    if (RB_UNLIKELY(!ea_is_count(r)))
        return r == EA_EOF ? Qnil : ea_socket_answer(r, "recvfrom(2)");
    if (!NIL_P(*buffer)) {
        if (scratch) {
            memcpy(RSTRING_PTR(*buffer), to, (size_t)r);
            ea_scratch_done((size_t)r);
        }
        ea_buffer_set_length(*buffer, r);
        return *buffer;
    }
    VALUE string = rb_str_new(to, r);
    ea_scratch_done((size_t)r);
    return string;
}

VALUE ea_tryrecv(VALUE socket, VALUE maxlen, VALUE flags, VALUE buffer) {
    return receive(socket, maxlen, flags, &buffer, NULL);
}

VALUE ea_tryrecvfrom(VALUE socket, VALUE maxlen, VALUE flags, VALUE buffer) {
    struct sender sender;
    VALUE data = receive(socket, maxlen, flags, &buffer, &sender);
    return RB_TYPE_P(data, T_STRING) ? rb_assoc_new(data, sender_of(socket, &sender)) : data;
}

/* --- Sending. */

VALUE ea_trysend(VALUE socket, VALUE string, VALUE vflags, VALUE dest) {
    StringValue(string);
    if (RB_UNLIKELY(!NIL_P(dest)))
        dest = ea_to_sockaddr(dest);
    int flags = NIL_P(vflags) ? 0 : NUM2INT(vflags);

    struct ea_known known;
    ea_result r;
    if (RB_LIKELY(NIL_P(dest))) {
        ea_socket_begin(socket, &known);
        r = ea_try_send(&known.fd, RSTRING_PTR(string), (size_t)RSTRING_LEN(string), flags);
    } else {
        socklen_t len = (socklen_t)RSTRING_LENINT(dest);
        ea_socket_begin(socket, &known);
        r = ea_try_sendto(&known.fd, RSTRING_PTR(string), (size_t)RSTRING_LEN(string), flags,
                          (const struct sockaddr *)RSTRING_PTR(dest), len);
    }
    ea_known_end(&known);
    if (RB_LIKELY(ea_is_count(r)))
        return LONG2NUM(r);
    return ea_socket_answer(r, NIL_P(dest) ? "send(2)" : "sendto(2)");
}

/* --- The Ruby methods: of Eagain, with the socket as the first argument, and of SocketMethods. */

static VALUE optional(int argc, const VALUE *argv, int index) {
    return argc > index ? argv[index] : Qnil;
}

static VALUE at_end(VALUE data, VALUE buffer) {
    if (NIL_P(data) && !NIL_P(buffer))
        rb_str_set_len(buffer, 0);
    return data;
}

/*
 * call-seq:
 *   tryrecv(maxlen, flags = 0, buffer = nil) -> string, nil or :wait_readable
 *
 * Receives at most +maxlen+ bytes of what has arrived, and never waits, whatever the mode of the
 * socket. One system call, recv(2). +flags+ is an Integer made of the Socket::MSG_ constants.
 *
 * Returns the bytes, in +buffer+ if that was given; +nil+ at the end of a stream, with an empty
 * +buffer+; +:wait_readable+ when there is nothing yet, and the +buffer+ as it was. An empty
 * datagram is an empty string. Nothing is allocated for a would-block.
 *
 * Raises IOError when the socket is closed or Ruby has read ahead (as BasicSocket#recv),
 * FrozenError for a frozen buffer, ArgumentError for a negative length, and Errno as recv(2).
 */
static VALUE m_tryrecv(int argc, VALUE *argv, VALUE socket) {
    rb_check_arity(argc, 1, 3);
    VALUE buffer = optional(argc, argv, 2);
    return at_end(receive(socket, argv[0], optional(argc, argv, 1), &buffer, NULL), buffer);
}

/*
 * call-seq:
 *   Eagain.tryrecv(socket, maxlen, flags = 0, buffer = nil) -> string, nil or :wait_readable
 *
 * As BasicSocket#tryrecv (of <tt>require "eagain/io"</tt>), which says more: receives at most +maxlen+
 * bytes without waiting; +nil+ at the end of a stream. Errors: IOError, FrozenError, ArgumentError, and
 * Errno as recv(2).
 */
static VALUE s_tryrecv(int argc, VALUE *argv, VALUE module) {
    (void)module;
    rb_check_arity(argc, 2, 4);
    VALUE buffer = optional(argc, argv, 3);
    return at_end(receive(argv[0], argv[1], optional(argc, argv, 2), &buffer, NULL), buffer);
}

static VALUE recvfrom_call(VALUE socket, int argc, const VALUE *argv) {
    VALUE buffer = optional(argc, argv, 2);
    struct sender sender;
    VALUE data = receive(socket, argv[0], optional(argc, argv, 1), &buffer, &sender);
    if (!RB_TYPE_P(data, T_STRING))
        return at_end(data, buffer);
    return rb_assoc_new(data, sender_of(socket, &sender));
}

/*
 * call-seq:
 *   tryrecvfrom(maxlen, flags = 0, buffer = nil) -> [string, sender], nil or :wait_readable
 *
 * As #tryrecv, with the sender: an Addrinfo for a Socket; <tt>["AF_INET", port, host, address]</tt>
 * for an IPSocket, +nil+ when it is connected; <tt>["AF_UNIX", path]</tt> for a UNIXSocket. The
 * host is the address, unless +do_not_reverse_lookup+ was switched off: then its name is looked up,
 * which can wait.
 */
static VALUE m_tryrecvfrom(int argc, VALUE *argv, VALUE socket) {
    rb_check_arity(argc, 1, 3);
    return recvfrom_call(socket, argc, argv);
}

/*
 * call-seq:
 *   Eagain.tryrecvfrom(socket, maxlen, flags = 0, buffer = nil)
 *       -> [string, sender], nil or :wait_readable
 *
 * As BasicSocket#tryrecvfrom (of <tt>require "eagain/io"</tt>), which says more: receives at most +maxlen+
 * bytes without waiting, and tells who sent them. Errors as ::tryrecv.
 */
static VALUE s_tryrecvfrom(int argc, VALUE *argv, VALUE module) {
    (void)module;
    rb_check_arity(argc, 2, 4);
    return recvfrom_call(argv[0], argc - 1, argv + 1);
}

/*
 * call-seq:
 *   trysend(string, flags = 0, dest = nil) -> count or :wait_writable
 *
 * Sends what there is room for, and never waits, whatever the mode of the socket. One system call,
 * send(2) or sendto(2). +flags+ is an Integer made of the Socket::MSG_ constants, +dest+ an
 * Addrinfo or a packed sockaddr for a socket that is not connected.
 *
 * Returns how many bytes were sent, which may be less than all of them on a stream, or
 * +:wait_writable+ when there is no room.
 *
 * Raises IOError when the socket is closed, and Errno as send(2).
 */
static VALUE m_trysend(int argc, VALUE *argv, VALUE socket) {
    rb_check_arity(argc, 1, 3);
    return ea_trysend(socket, argv[0], optional(argc, argv, 1), optional(argc, argv, 2));
}

/*
 * call-seq:
 *   Eagain.trysend(socket, string, flags = 0, dest = nil) -> count or :wait_writable
 *
 * As BasicSocket#trysend (of <tt>require "eagain/io"</tt>), which says more: sends what there is room
 * for without waiting. Errors: IOError when the socket is closed, and Errno as send(2).
 */
static VALUE s_trysend(int argc, VALUE *argv, VALUE module) {
    (void)module;
    rb_check_arity(argc, 2, 4);
    return ea_trysend(argv[0], argv[1], optional(argc, argv, 2), optional(argc, argv, 3));
}

void ea_init_try_socket(VALUE module) {
    ea_init_scratch();
    VALUE methods = rb_define_module_under(module, "SocketMethods"); /* :nodoc: */
    rb_funcall(module, rb_intern("private_constant"), 1, ID2SYM(rb_intern("SocketMethods")));
    rb_define_method(methods, "tryrecv", m_tryrecv, -1);
    rb_define_method(methods, "tryrecvfrom", m_tryrecvfrom, -1);
    rb_define_method(methods, "trysend", m_trysend, -1);
    rb_define_module_function(module, "tryrecv", s_tryrecv, -1);
    rb_define_module_function(module, "tryrecvfrom", s_tryrecvfrom, -1);
    rb_define_module_function(module, "trysend", s_trysend, -1);
}
