/* tryrecvmsg, trysendmsg: a message with its flags and its ancillary data.
 *
 * As in try_socket.c, all arguments are converted first. Where Ruby's recvmsg without a length
 * peeks, doubles its buffer and peeks again until the message fits, this receives once, into
 * more address space than any message has bytes (scratch.h).
 *
 * Descriptors that arrive are closed before anything else can happen, or belong to an rb_ensure
 * until an IO object has each of them. */
#include "control.h"
#include "scratch.h"

#include <limits.h>

#ifndef IOV_MAX
#define IOV_MAX 1024
#endif
#ifdef MSG_CMSG_CLOEXEC
#define CLOEXEC MSG_CMSG_CLOEXEC
#else
#define CLOEXEC 0
#endif

/* --- Receiving. */

/* What recvmsg(2) has brought; the data are in the scratch memory still. */
struct received {
    VALUE socket;
    struct msghdr
        message; /* with a copy of the controls, which outlives the scratch memory's next use */
    const char *data;
    long len;
    size_t adopted; /* how many of the descriptors belong to IO objects */
    bool scm_rights;
};

static size_t checked(size_t length) {
    if (length > LONG_MAX)
        rb_raise(rb_eArgError, "negative string size (or size too big)");
    return length;
}

/* [string, sender, flags] */
static inline VALUE message_of(const struct received *received) {
    VALUE string = rb_str_new(received->data, received->len);
    ea_scratch_done(EA_CONTROL_MAX + (size_t)received->len);
    VALUE sender = ea_socket_addrinfo(received->socket, received->message.msg_name,
                                      received->message.msg_namelen);
    return rb_ary_new_from_args(3, string, sender, INT2NUM(received->message.msg_flags));
}

static VALUE message_and_controls(VALUE argument) {
    struct received *received = (void *)argument;
    VALUE result = message_of(received);
    ea_control_push(received->socket, &received->message, result,
                    received->scm_rights ? &received->adopted : NULL);
    return result;
}

static VALUE discard(VALUE argument) {
    struct received *received = (void *)argument;
    ea_control_discard(&received->message, received->adopted);
    return Qnil;
}

static VALUE with_controls(struct received *received) {
    size_t len = received->message.msg_controllen;
    char *controls = ALLOCA_N(char, len);
    memcpy(controls, received->message.msg_control, len);
    received->message.msg_control = controls;
    if (received->scm_rights)
        return rb_ensure(message_and_controls, (VALUE)received, discard, (VALUE)received);
    ea_control_discard(&received->message, 0);
    return message_and_controls((VALUE)received);
}

VALUE ea_tryrecvmsg(VALUE socket, VALUE maxlen, VALUE vflags, VALUE maxcontrol, bool scm_rights) {
    size_t len = NIL_P(maxlen) ? EA_SCRATCH_SIZE - EA_CONTROL_MAX : NUM2SIZET(maxlen);
    size_t control_len = NIL_P(maxcontrol) ? EA_CONTROL_MAX : NUM2SIZET(maxcontrol);
    int flags = (NIL_P(vflags) ? 0 : NUM2INT(vflags)) | CLOEXEC;
    len = checked(len);
    control_len = checked(control_len);
    if (control_len > EA_CONTROL_MAX)
        control_len = EA_CONTROL_MAX;

    struct ea_known known;
    ea_socket_begin(socket, &known);
    if (RB_UNLIKELY(ea_io_buffered(socket) > 0))
        rb_raise(rb_eIOError, "recvmsg for buffered IO");
    char *scratch = RB_UNLIKELY(flags & MSG_TRUNC) ? ea_scratch_zeroed(EA_CONTROL_MAX + len)
                                                   : ea_scratch(EA_CONTROL_MAX + len);
    struct sockaddr_storage name;
    struct iovec iov = {.iov_base = scratch + EA_CONTROL_MAX, .iov_len = len};
    struct received received = {
        .socket = socket,
        .message = {.msg_name = &name,
                    .msg_namelen = sizeof(name),
                    .msg_iov = &iov,
                    .msg_iovlen = 1,
                    .msg_control = scratch,
                    .msg_controllen = control_len},
        .data = iov.iov_base,
        .scm_rights = scm_rights,
    };
    ea_result r = ea_try_recvmsg(&known.fd, &received.message, flags);
    ea_known_end(&known);
    if (RB_UNLIKELY(r == EA_EOF)) {
        ea_control_discard(&received.message, 0);
        return Qnil;
    }
    if (RB_UNLIKELY(!ea_is_count(r)))
        return ea_socket_answer(r, "recvmsg(2)");
    received.len =
        (size_t)r < len ? (long)r : (long)len; /* MSG_TRUNC tells of more than was written */
    if (RB_UNLIKELY(received.message.msg_namelen > sizeof(name)))
        received.message.msg_namelen = sizeof(name);
    if (RB_LIKELY(received.message.msg_controllen == 0))
        return message_of(&received);
    VALUE result = with_controls(&received);
    /* Descriptors were lost, and not for want of room: the limit is reached. As Ruby does,
     * collect those that nobody refers to, so that there is room for the next. */
    if (scm_rights && NIL_P(maxcontrol) && (received.message.msg_flags & MSG_CTRUNC))
        ea_close_unused();
    return result;
}

/* --- Sending. */

/* The message's pieces, all of them Strings: the Array itself if they are. */
static VALUE pieces_of(VALUE array) {
    long count = RARRAY_LEN(array), strings = 0;
    while (strings < count && RB_TYPE_P(RARRAY_AREF(array, strings), T_STRING))
        strings++;
    if (strings == count)
        return array;
    VALUE pieces = rb_ary_new_capa(count);
    for (long i = 0; i < RARRAY_LEN(array); i++) {
        VALUE piece = RARRAY_AREF(array, i);
        rb_ary_push(pieces, StringValue(piece));
    }
    return pieces;
}

/* More pieces than the kernel takes at once, and yet one message. */
static VALUE join(VALUE pieces) {
    VALUE joined = rb_str_new(NULL, 0);
    for (long i = 0; i < RARRAY_LEN(pieces); i++) {
        VALUE piece = RARRAY_AREF(pieces, i);
        rb_str_cat(joined, RSTRING_PTR(piece), RSTRING_LEN(piece));
    }
    return joined;
}

/* The message, if it is no Array, and the controls have been converted; the rest is here. */
static VALUE send_message(VALUE socket, VALUE message, VALUE vflags, VALUE dest,
                          const struct ea_control *controls, long control_count) {
    int flags = NIL_P(vflags) ? 0 : NUM2INT(vflags);
    if (!NIL_P(dest))
        dest = ea_to_sockaddr(dest);
    if (RB_TYPE_P(message, T_ARRAY)) { /* last: an Array is not kept from changing */
        message = pieces_of(message);
        if (RARRAY_LEN(message) > IOV_MAX)
            message = join(message);
    }
    bool many = RB_TYPE_P(message, T_ARRAY);
    size_t iov_count = many ? (size_t)RARRAY_LEN(message) : 1;
    size_t control_size = ea_control_size(controls, control_count);
    socklen_t dest_len = NIL_P(dest) ? 0 : (socklen_t)RSTRING_LENINT(dest);

    struct ea_known known;
    ea_socket_begin(socket, &known);
    char *scratch = ea_scratch(control_size + iov_count * sizeof(struct iovec));
    ea_control_write(controls, control_count, scratch);
    struct iovec *iov = (void *)(scratch + control_size);
    for (size_t i = 0; i < iov_count; i++) {
        VALUE piece = many ? RARRAY_AREF(message, (long)i) : message;
        iov[i] =
            (struct iovec){.iov_base = RSTRING_PTR(piece), .iov_len = (size_t)RSTRING_LEN(piece)};
    }
    struct msghdr header = {
        .msg_name = NIL_P(dest) ? NULL : RSTRING_PTR(dest),
        .msg_namelen = dest_len,
        .msg_iov = iov,
        .msg_iovlen = iov_count,
        .msg_control = control_size > 0 ? scratch : NULL,
        .msg_controllen = control_size,
    };
    ea_result r = ea_try_sendmsg(&known.fd, &header, flags);
    ea_known_end(&known);
    ea_scratch_done(control_size + iov_count * sizeof(struct iovec));
    return RB_LIKELY(ea_is_count(r)) ? LONG2NUM(r) : ea_socket_answer(r, "sendmsg(2)");
}

static VALUE with_control_arguments(VALUE socket, VALUE message, VALUE flags, VALUE dest,
                                    long count, const VALUE *arguments) {
    VALUE guard;
    struct ea_control *controls = ALLOCV_N(struct ea_control, guard, count);
    MEMZERO(controls, struct ea_control, count); /* the garbage collector looks at it */
    for (long i = 0; i < count; i++)
        ea_control_read(socket, arguments[i], &controls[i]);
    VALUE answer = send_message(socket, message, flags, dest, controls, count);
    ALLOCV_END(guard);
    return answer;
}

/* A String and nothing else, as nearly all messages are: sendto(2) does what sendmsg(2) would,
 * with less for the kernel to copy. (But for the uppermost flag, which only sendmsg(2) rejects.) */
static inline VALUE send_string(VALUE socket, VALUE string, int flags) {
    struct ea_known known;
    ea_socket_begin(socket, &known);
    ea_result r = ea_try_send(&known.fd, RSTRING_PTR(string), (size_t)RSTRING_LEN(string), flags);
    ea_known_end(&known);
    return RB_LIKELY(ea_is_count(r)) ? LONG2NUM(r) : ea_socket_answer(r, "sendmsg(2)");
}

static inline VALUE send_arguments(VALUE socket, VALUE message, VALUE flags, VALUE dest, long count,
                                   const VALUE *controls) {
    if (!RB_TYPE_P(message, T_ARRAY))
        StringValue(message);
    if (RB_UNLIKELY(count > 0))
        return with_control_arguments(socket, message, flags, dest, count, controls);
    long plain = NIL_P(flags) ? 0 : FIXNUM_P(flags) ? FIX2LONG(flags) : -1;
    if (RB_LIKELY(RB_TYPE_P(message, T_STRING) && NIL_P(dest) && plain >= 0 && plain <= INT_MAX))
        return send_string(socket, message, (int)plain);
    return send_message(socket, message, flags, dest, NULL, 0);
}

VALUE ea_trysendmsg(VALUE socket, VALUE message, VALUE flags, VALUE dest, VALUE controls) {
    long count = RB_TYPE_P(controls, T_ARRAY) ? RARRAY_LEN(controls) : 0;
    if (RB_LIKELY(count == 0))
        return send_arguments(socket, message, flags, dest, 0, NULL);
    /* A copy: reading one control can change the Array. */
    VALUE guard;
    VALUE *copy = ALLOCV_N(VALUE, guard, count);
    MEMCPY(copy, RARRAY_CONST_PTR(controls), VALUE, count);
    VALUE answer = send_arguments(socket, message, flags, dest, count, copy);
    ALLOCV_END(guard);
    return answer;
}

/* --- The Ruby methods: of Eagain, with the socket as the first argument, and of SocketMethods. */

static VALUE recvmsg_arguments(VALUE socket, int argc, const VALUE *argv) {
    VALUE maxlen, flags, maxcontrol, options, scm_rights = Qfalse;
    rb_scan_args(argc, argv, "03:", &maxlen, &flags, &maxcontrol, &options);
    if (!NIL_P(options)) {
        ID name = rb_intern("scm_rights");
        rb_get_kwargs(options, &name, 0, 1, &scm_rights);
        if (scm_rights == Qundef)
            scm_rights = Qfalse;
    }
    return ea_tryrecvmsg(socket, maxlen, flags, maxcontrol, RTEST(scm_rights));
}

/*
 * call-seq:
 *   tryrecvmsg(maxlen = nil, flags = 0, maxcontrol = nil, scm_rights: false)
 *       -> [string, sender, flags, *controls], nil or :wait_readable
 *
 * Receives a message, or a piece of a stream, with its ancillary data, and never waits, whatever
 * the mode of the socket. One system call, recvmsg(2). +maxlen+ and +maxcontrol+ are in bytes;
 * without them, a message is received whole, and of a stream what is there, up to almost 8 MiB.
 *
 * Returns the bytes, the sender's Addrinfo, an Integer made of the Socket::MSG_ constants
 * (MSG_TRUNC, MSG_CTRUNC...) and Socket::AncillaryData objects; +nil+ at the end of a stream;
 * +:wait_readable+ when there is nothing yet.
 *
 * Descriptors that come with the message (SCM_RIGHTS) are closed at once, unless +scm_rights+ is
 * true: then Socket::AncillaryData#unix_rights has them as Socket and IO objects, close-on-exec.
 * Those for which the process has no room are lost, and the flags have MSG_CTRUNC.
 *
 * Raises IOError when the socket is closed or Ruby has read ahead (as BasicSocket#recvmsg),
 * ArgumentError for a negative length, and Errno as recvmsg(2).
 */
static VALUE m_tryrecvmsg(int argc, VALUE *argv, VALUE socket) {
    return recvmsg_arguments(socket, argc, argv);
}

/*
 * call-seq:
 *   Eagain.tryrecvmsg(socket, maxlen = nil, flags = 0, maxcontrol = nil, scm_rights: false)
 *       -> [string, sender, flags, *controls], nil or :wait_readable
 *
 * As BasicSocket#tryrecvmsg (of <tt>require "eagain/io"</tt>), which says more: receives a message with
 * its ancillary data without waiting; +nil+ at the end of a stream. Errors: IOError, ArgumentError, and
 * Errno as recvmsg(2).
 */
static VALUE s_tryrecvmsg(int argc, VALUE *argv, VALUE module) {
    (void)module;
    if (argc < 1)
        rb_error_arity(argc, 1, 4);
    return recvmsg_arguments(argv[0], argc - 1, argv + 1);
}

/*
 * call-seq:
 *   trysendmsg(message, flags = 0, dest = nil, *controls) -> count or :wait_writable
 *
 * Sends a message with ancillary data, and never waits, whatever the mode of the socket. One system
 * call. +message+ is a String, or an Array of Strings, which are sent as one message. +flags+ is an
 * Integer made of the Socket::MSG_ constants, +dest+ an Addrinfo or a packed sockaddr for a socket
 * that is not connected. A control is a Socket::AncillaryData, <tt>[level, type, data]</tt>, or an
 * IO: the descriptors of all IOs are passed together (SCM_RIGHTS), and stay open here.
 *
 * Returns how many bytes were sent, which may be less than all of them on a stream (the controls
 * went with the first), or +:wait_writable+ when there is no room.
 *
 * Raises IOError when the socket, or an IO to pass, is closed, and Errno as sendmsg(2).
 */
static VALUE m_trysendmsg(int argc, VALUE *argv, VALUE socket) {
    rb_check_arity(argc, 1, UNLIMITED_ARGUMENTS);
    return send_arguments(socket, argv[0], argc > 1 ? argv[1] : Qnil, argc > 2 ? argv[2] : Qnil,
                          argc > 3 ? argc - 3 : 0, argv + 3);
}

/*
 * call-seq:
 *   Eagain.trysendmsg(socket, message, flags = 0, dest = nil, *controls) -> count or :wait_writable
 *
 * As BasicSocket#trysendmsg (of <tt>require "eagain/io"</tt>), which says more: sends a message, with
 * ancillary data, without waiting. Errors: IOError when an IO is closed, and Errno as sendmsg(2).
 */
static VALUE s_trysendmsg(int argc, VALUE *argv, VALUE module) {
    (void)module;
    rb_check_arity(argc, 2, UNLIMITED_ARGUMENTS);
    return m_trysendmsg(argc - 1, argv + 1, argv[0]);
}

void ea_init_try_message(VALUE module) {
    VALUE methods = rb_define_module_under(module, "SocketMethods"); /* :nodoc: */
    rb_define_method(methods, "tryrecvmsg", m_tryrecvmsg, -1);
    rb_define_method(methods, "trysendmsg", m_trysendmsg, -1);
    rb_define_module_function(module, "tryrecvmsg", s_tryrecvmsg, -1);
    rb_define_module_function(module, "trysendmsg", s_trysendmsg, -1);
}
