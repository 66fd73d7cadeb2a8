/* What <eagain/ruby.h> offers to C extensions: a table of functions, in a constant that only they look
 * for, since nothing but Init_eagain leaves this shared object. The contracts are in that header. */
#include "calls.h"
#include "would_block.h"

#include <eagain/ruby.h>

#include <errno.h>
#include <limits.h>

#if EA_RB_NEVER != EA_TIME_NEVER
#error "the header's EA_RB_NEVER is not the core's"
#endif

/* --- Try. */

/* The first part that has a length: one attempt need not do more. NULL: none has. */
static const struct iovec *first_part(const struct iovec *iov, int iovcnt) {
    for (int i = 0; i < iovcnt; i++)
        if (iov[i].iov_len > 0)
            return &iov[i];
    return NULL;
}

static ea_result api_try_readv(VALUE io, const struct iovec *iov, int iovcnt) {
    io = ea_to_io(io);
    struct ea_known known;
    ea_result r = ea_io_begin_read(io, &known);
    if (r != 0)
        return r;
    if (RB_UNLIKELY(ea_io_buffered(io) > 0)) {
        if (iovcnt < 0 || iovcnt > IOV_MAX) /* as readv(2) */
            return -EINVAL;
        r = 0;
        for (int i = 0; i < iovcnt; i++)
            r += (ea_result)ea_io_take_buffered(io, iov[i].iov_base, iov[i].iov_len);
        return r;
    }
    r = ea_try_readv(&known.fd, iov, iovcnt);
    const struct iovec *first;
    if (r == EA_WAIT_READABLE && RB_UNLIKELY(!ea_known_waits(&known)) &&
        (first = first_part(iov, iovcnt)))
        r = ea_io_read_disk(&known, first->iov_base, first->iov_len);
    ea_known_end(&known);
    RB_GC_GUARD(io);
    return r;
}

static ea_result api_try_read(VALUE io, void *buf, size_t len) {
    io = ea_to_io(io);
    struct ea_known known;
    ea_result r = ea_io_begin_read(io, &known);
    if (r != 0)
        return r;
    if (RB_UNLIKELY(ea_io_buffered(io) > 0))
        return (ea_result)ea_io_take_buffered(io, buf, len);
    r = ea_io_try_read(&known, buf, len);
    ea_known_end(&known);
    RB_GC_GUARD(io);
    return r;
}

static ea_result api_try_writev(VALUE io, const struct iovec *iov, int iovcnt) {
    io = ea_to_io(io);
    struct ea_known known;
    ea_result r = ea_io_begin_write(&io, &known);
    if (r != 0)
        return r;
    r = ea_try_writev(&known.fd, iov, iovcnt);
    const struct iovec *first;
    if (r == EA_WAIT_WRITABLE && RB_UNLIKELY(!ea_known_waits(&known)) &&
        (first = first_part(iov, iovcnt)))
        r = ea_io_write_disk(&known, first->iov_base, first->iov_len);
    ea_known_end(&known);
    RB_GC_GUARD(io);
    return r;
}

static ea_result api_try_write(VALUE io, const void *buf, size_t len) {
    io = ea_to_io(io);
    struct ea_known known;
    ea_result r = ea_io_begin_write(&io, &known);
    if (r != 0)
        return r;
    r = ea_io_try_write(&known, buf, len);
    ea_known_end(&known);
    RB_GC_GUARD(io);
    return r;
}

static void begin_receive(VALUE socket, const char *call, struct ea_known *known) {
    ea_socket_begin(socket, known);
    if (ea_io_buffered(socket) > 0)
        rb_raise(rb_eIOError, "%s for buffered IO", call);
}

static ea_result api_try_recvfrom(VALUE socket, void *buf, size_t len, int flags,
                                  struct sockaddr *addr, socklen_t *addrlen) {
    struct ea_known known;
    begin_receive(socket, "recv", &known);
    ea_result r = ea_try_recvfrom(&known.fd, buf, len, flags, addr, addrlen);
    ea_known_end(&known);
    return r;
}

static ea_result api_try_sendto(VALUE socket, const void *buf, size_t len, int flags,
                                const struct sockaddr *addr, socklen_t addrlen) {
    struct ea_known known;
    ea_socket_begin(socket, &known);
    ea_result r = ea_try_sendto(&known.fd, buf, len, flags, addr, addrlen);
    ea_known_end(&known);
    return r;
}

static ea_result api_try_recvmsg(VALUE socket, struct msghdr *msg, int flags) {
    struct ea_known known;
    begin_receive(socket, "recvmsg", &known);
    ea_result r = ea_try_recvmsg(&known.fd, msg, flags);
    ea_known_end(&known);
    return r;
}

static ea_result api_try_sendmsg(VALUE socket, const struct msghdr *msg, int flags) {
    struct ea_known known;
    ea_socket_begin(socket, &known);
    ea_result r = ea_try_sendmsg(&known.fd, msg, flags);
    ea_known_end(&known);
    return r;
}

static ea_result api_try_accept(VALUE server, struct sockaddr *addr, socklen_t *addrlen) {
    struct ea_known known;
    ea_socket_begin(server, &known);
    ea_result r = ea_accept(server, &known, addr, addrlen, SOCK_CLOEXEC | SOCK_NONBLOCK);
    ea_known_end(&known);
    return r;
}

/* --- Wait. */

static unsigned api_wait(VALUE io, unsigned events, int64_t deadline) {
    if (events == 0 || events > (EA_READABLE | EA_PRIORITY | EA_WRITABLE))
        rb_raise(rb_eArgError, "Events must be positive integer!");
    return ea_wait_untried(ea_to_io(io), events, deadline);
}

static int api_wait_after(VALUE io, ea_result wait, int64_t deadline) {
    return ea_wait_after(ea_to_io(io), wait, deadline);
}

/* --- Both. */

static ea_result api_read(VALUE io, void *buf, size_t len, int64_t deadline) {
    ea_result r;
    ea_wait_account();
    while (ea_is_wait(r = api_try_read(io, buf, len)))
        ea_wait_again(ea_to_io(io), r, deadline, 0);
    if (ea_is_error(r))
        ea_io_fail(ea_to_io(io), ea_errno(r));
    return r;
}

static size_t api_write(VALUE io, const void *buf, size_t len, int64_t deadline) {
    size_t done = 0;
    do {
        ea_wait_account();
        ea_result r = api_try_write(io, (const char *)buf + done, len - done);
        if (ea_is_wait(r))
            ea_wait_again(ea_to_io(io), r, deadline, done);
        else if (ea_is_error(r))
            ea_io_fail(ea_to_io(io), ea_errno(r));
        else
            done += (size_t)r;
    } while (done < len);
    return done;
}

/* --- Answer and raise. */

static VALUE api_answer(VALUE io, ea_result r) {
    if (ea_is_count(r))
        return SSIZET2NUM(r);
    return r == EA_EOF ? Qnil : ea_io_answer(ea_to_io(io), r);
}

static void api_readwrite_fail(ea_result wait, const char *message) {
    if (!ea_is_wait(wait))
        rb_raise(rb_eArgError, "neither EA_WAIT_READABLE nor EA_WAIT_WRITABLE");
    ea_would_block_fail(wait == EA_WAIT_WRITABLE, EAGAIN, message);
}

static const struct ea_rb_api api = {
    .version = EA_RB_API_VERSION,
    .size = sizeof api,
    .try_read = api_try_read,
    .try_write = api_try_write,
    .try_readv = api_try_readv,
    .try_writev = api_try_writev,
    .try_recvfrom = api_try_recvfrom,
    .try_sendto = api_try_sendto,
    .try_recvmsg = api_try_recvmsg,
    .try_sendmsg = api_try_sendmsg,
    .try_accept = api_try_accept,
    .socket_new = ea_socket_new,
    .deadline = ea_deadline_of,
    .wait = api_wait,
    .wait_after = api_wait_after,
    .read = api_read,
    .write = api_write,
    .answer = api_answer,
    .timeout_fail = ea_wait_expire,
    .readwrite_fail = api_readwrite_fail,
};

/* Found by its name: the header's part lives in other shared objects. */
static const rb_data_type_t api_type = {
    .wrap_struct_name = "eagain/c_api",
    .flags = RUBY_TYPED_FREE_IMMEDIATELY | RUBY_TYPED_FROZEN_SHAREABLE,
};

void ea_init_api(VALUE module) {
    VALUE holder = TypedData_Wrap_Struct(rb_cObject, &api_type, (void *)&api);
    rb_obj_freeze(holder);
    rb_define_const(module, "C_API", holder); /* :nodoc: */
    rb_funcall(module, rb_intern("private_constant"), 1, ID2SYM(rb_intern("C_API")));
}
