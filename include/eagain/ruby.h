/* eagain for C extensions of Ruby: try, wait and raise as Ruby's core does, on any IO.
 *
 *   # extconf.rb
 *   require "mkmf"
 *   require "eagain"
 *   $INCFLAGS << " -I#{Eagain.include_dir.shellescape}"
 *   create_makefile("sample")
 *
 *   static VALUE sample_read(VALUE self, VALUE io) {
 *       char buf[4096];
 *       ea_result r = ea_rb_try_read(io, buf, sizeof(buf));
 *       if (ea_is_wait(r))
 *           ea_rb_readwrite_fail(r, "read would block");
 *       return r == EA_EOF ? Qnil : ea_is_count(r) ? rb_str_new(buf, r) : ea_rb_answer(io, r);
 *   }
 *
 * There is nothing to link with: the functions are those of the gem that is loaded, which the first call
 * requires, and all go through one table. Call ea_rb_init() in the extension's Init function, so that a
 * missing or unsuitable gem is a LoadError there, and so that other Ractors find it loaded.
 *
 * Threads: everything is called with the GVL (the VM's lock), from any thread and Ractor that may use the
 * IO. Functions with "try" in their name keep it, and never wait. The others let go of it when they have
 * to wait: other threads and fibers run, may close the IO (IOError) and change what you share with them.
 *
 * Memory: buffers are the caller's and must stay until the function returns, or raises. Of a String, keep
 * what rb_str_locktmp() or a copy keeps; a local array will do, since a fiber that waits keeps its stack.
 *
 * Errors: what the system says comes back as -errno in an ea_result (<eagain/result.h>), would-block as
 * EA_WAIT_READABLE or EA_WAIT_WRITABLE, the end of a file or stream as EA_EOF. Misuse of the IO is raised,
 * as by Ruby's own methods: IOError when it is closed or opened for the other direction, TypeError when
 * it is no IO, or no socket where one is needed. What is raised leaves by longjmp.
 *
 * Of libeagain's own functions (without the rb_) those that are not inline cannot be called: they are not
 * in the gem's interface. */
#ifndef EAGAIN_RUBY_H
#define EAGAIN_RUBY_H

#include <ruby.h>

#include <eagain/event.h>
#include <eagain/result.h>

#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>

EA_BEGIN

/* Of the table. A gem with another version refuses to serve; functions are appended without a new one. */
#define EA_RB_API_VERSION 1

/* The deadline that is never reached. Others are ns of CLOCK_MONOTONIC. */
#define EA_RB_NEVER INT64_MAX

/* What the gem offers. Not to be used directly. */
struct ea_rb_api {
    uint32_t version; /* EA_RB_API_VERSION of the gem */
    uint32_t size;    /* of the gem's table, in bytes */
    ea_result (*try_read)(VALUE io, void *buf, size_t len);
    ea_result (*try_write)(VALUE io, const void *buf, size_t len);
    ea_result (*try_readv)(VALUE io, const struct iovec *iov, int iovcnt);
    ea_result (*try_writev)(VALUE io, const struct iovec *iov, int iovcnt);
    ea_result (*try_recvfrom)(VALUE socket, void *buf, size_t len, int flags, struct sockaddr *addr,
                              socklen_t *addrlen);
    ea_result (*try_sendto)(VALUE socket, const void *buf, size_t len, int flags,
                            const struct sockaddr *addr, socklen_t addrlen);
    ea_result (*try_recvmsg)(VALUE socket, struct msghdr *msg, int flags);
    ea_result (*try_sendmsg)(VALUE socket, const struct msghdr *msg, int flags);
    ea_result (*try_accept)(VALUE server, struct sockaddr *addr, socklen_t *addrlen);
    VALUE (*socket_new)(VALUE klass, int number);
    int64_t (*deadline)(VALUE timeout);
    unsigned (*wait)(VALUE io, unsigned events, int64_t deadline);
    int (*wait_after)(VALUE io, ea_result wait, int64_t deadline);
    ea_result (*read)(VALUE io, void *buf, size_t len, int64_t deadline);
    size_t (*write)(VALUE io, const void *buf, size_t len, int64_t deadline);
    VALUE (*answer)(VALUE io, ea_result r);
    void (*timeout_fail)(size_t written);
    void (*readwrite_fail)(ea_result wait, const char *message);
};

/* The table, once it was found; one for each source file that includes this. */
static const struct ea_rb_api *ea_rb_found;

static inline const struct ea_rb_api *ea_rb_load(void) {
    ID gem = rb_intern("Eagain"), name = rb_intern("C_API");
    VALUE module, holder;
    const struct ea_rb_api *api;
    if (!rb_const_defined(rb_cObject, gem) ||
        !rb_const_defined(rb_const_get(rb_cObject, gem), name))
        /* Not rb_require(), which knows of no gem that was not activated. */
        rb_funcall(rb_cObject, rb_intern("require"), 1, rb_str_new_cstr("eagain"));
    module = rb_const_get(rb_cObject, gem);
    if (!rb_const_defined(module, name))
        rb_raise(rb_eLoadError, "this eagain has no interface for C extensions: it is too old");
    holder = rb_const_get(module, name);
    if (!RB_TYPE_P(holder, T_DATA) || !RTYPEDDATA_P(holder) ||
        strcmp(RTYPEDDATA_TYPE(holder)->wrap_struct_name, "eagain/c_api") != 0)
        rb_raise(rb_eLoadError, "Eagain::C_API is not eagain's");
    api = (const struct ea_rb_api *)RTYPEDDATA_DATA(holder);
    if (api->version != EA_RB_API_VERSION || api->size < sizeof(struct ea_rb_api))
        rb_raise(rb_eLoadError,
                 "the extension was compiled for another eagain than the one that is loaded "
                 "(C interface %u.%u, and %u.%u): compile it anew, or install the other",
                 (unsigned)EA_RB_API_VERSION, (unsigned)sizeof(struct ea_rb_api),
                 (unsigned)api->version, (unsigned)api->size);
    __atomic_store_n(&ea_rb_found, api, __ATOMIC_RELEASE);
    return api;
}

static inline const struct ea_rb_api *ea_rb_api(void) {
    const struct ea_rb_api *api = __atomic_load_n(&ea_rb_found, __ATOMIC_ACQUIRE);
    return EA_LIKELY(api != NULL) ? api : ea_rb_load();
}

/* Requires the gem "eagain". LoadError if it is not installed, or not for the version of this header. */
static inline void ea_rb_init(void) {
    (void)ea_rb_load();
}

/* --- Try: one attempt, which never waits. */

/* At most len bytes from any IO, from Ruby's read buffer first; EA_EOF at the end of file. */
static inline ea_result ea_rb_try_read(VALUE io, void *buf, size_t len) {
    return ea_rb_api()->try_read(io, buf, len);
}

/* Writes to any IO, perhaps not all, after what Ruby has buffered. */
static inline ea_result ea_rb_try_write(VALUE io, const void *buf, size_t len) {
    return ea_rb_api()->try_write(io, buf, len);
}

/* As readv(2) and writev(2); at most IOV_MAX parts, else -EINVAL. */
static inline ea_result ea_rb_try_readv(VALUE io, const struct iovec *iov, int iovcnt) {
    return ea_rb_api()->try_readv(io, iov, iovcnt);
}
static inline ea_result ea_rb_try_writev(VALUE io, const struct iovec *iov, int iovcnt) {
    return ea_rb_api()->try_writev(io, iov, iovcnt);
}

/* recv(2) and its kin on a BasicSocket. IOError when Ruby has read ahead of it. An empty datagram is a
 * count of 0. */
static inline ea_result ea_rb_try_recvfrom(VALUE socket, void *buf, size_t len, int flags,
                                           struct sockaddr *addr, socklen_t *addrlen) {
    return ea_rb_api()->try_recvfrom(socket, buf, len, flags, addr, addrlen);
}
static inline ea_result ea_rb_try_recv(VALUE socket, void *buf, size_t len, int flags) {
    return ea_rb_try_recvfrom(socket, buf, len, flags, NULL, NULL);
}
static inline ea_result ea_rb_try_sendto(VALUE socket, const void *buf, size_t len, int flags,
                                         const struct sockaddr *addr, socklen_t addrlen) {
    return ea_rb_api()->try_sendto(socket, buf, len, flags, addr, addrlen);
}
static inline ea_result ea_rb_try_send(VALUE socket, const void *buf, size_t len, int flags) {
    return ea_rb_try_sendto(socket, buf, len, flags, NULL, 0);
}
static inline ea_result ea_rb_try_recvmsg(VALUE socket, struct msghdr *msg, int flags) {
    return ea_rb_api()->try_recvmsg(socket, msg, flags);
}
static inline ea_result ea_rb_try_sendmsg(VALUE socket, const struct msghdr *msg, int flags) {
    return ea_rb_api()->try_sendmsg(socket, msg, flags);
}

/* Accepts a connection: its number, which is the caller's to close, non-blocking and close-on-exec.
 * addr and addrlen as of accept(2), or NULL. Lets go of the GVL, and may raise what is raised into the
 * thread, where the listener may block: see Eagain.tryaccept. */
static inline ea_result ea_rb_try_accept(VALUE server, struct sockaddr *addr, socklen_t *addrlen) {
    return ea_rb_api()->try_accept(server, addr, addrlen);
}

/* A new IO of klass that owns the number, which is closed if this raises: TypeError when klass is no class
 * of sockets, Errno::EBADF when the number is negative. */
static inline VALUE ea_rb_socket_new(VALUE klass, int number) {
    return ea_rb_api()->socket_new(klass, number);
}

/* --- Wait: through the fiber scheduler if the running fiber has one, else without the GVL. */

/* The deadline of a timeout in seconds, as of now (an Integer, a Float, a Rational); nil: EA_RB_NEVER.
 * ArgumentError when it is negative, TypeError when it is no number. */
static inline int64_t ea_rb_deadline(VALUE timeout) {
    return ea_rb_api()->deadline(timeout);
}

/* Waits until one of the events (EA_READABLE, EA_PRIORITY, EA_WRITABLE) is there: those that are; 0 when
 * the deadline has passed. EA_RB_NEVER: as long as IO#timeout says. IOError when the IO is closed. */
static inline unsigned ea_rb_wait_until(VALUE io, unsigned events, int64_t deadline) {
    return ea_rb_api()->wait(io, events, deadline);
}

/* The same with a timeout in seconds, or nil. */
static inline unsigned ea_rb_wait(VALUE io, unsigned events, VALUE timeout) {
    return ea_rb_wait_until(io, events, ea_rb_deadline(timeout));
}

/* After a would-block, and only then: waits until it is worth another try. False when the deadline has
 * passed. Spares a look at the descriptor that ea_rb_wait() has to take, as nothing was tried there.
 *
 *   int64_t deadline = ea_rb_deadline(timeout);
 *   while (ea_is_wait(r = ea_rb_try_recv(socket, buf, sizeof(buf), 0)))
 *       if (!ea_rb_wait_after(socket, r, deadline))
 *           ea_rb_timeout_fail(0); */
static inline bool ea_rb_wait_after(VALUE io, ea_result wait, int64_t deadline) {
    return ea_rb_api()->wait_after(io, wait, deadline) != 0;
}

/* --- Both: try, and wait if need be. Errors are raised: Errno, Eagain::TimeoutError. */

/* What is there, at most len bytes, or waits for the first: a count, or EA_EOF. */
static inline ea_result ea_rb_read(VALUE io, void *buf, size_t len, VALUE timeout) {
    return ea_rb_api()->read(io, buf, len, ea_rb_deadline(timeout));
}

/* All of it: len. TimeoutError#written says how much was written until then. */
static inline size_t ea_rb_write(VALUE io, const void *buf, size_t len, VALUE timeout) {
    return ea_rb_api()->write(io, buf, len, ea_rb_deadline(timeout));
}

/* --- Answer and raise. */

/* What a try call of Ruby's would return for r: an Integer, nil (EA_EOF), :wait_readable or
 * :wait_writable; of -errno, raises its Errno, with the path that the IO has. */
static inline VALUE ea_rb_answer(VALUE io, ea_result r) {
    return ea_rb_api()->answer(io, r);
}

/* Raises Eagain::TimeoutError. */
NORETURN(static inline void ea_rb_timeout_fail(size_t written));
static inline void ea_rb_timeout_fail(size_t written) {
    ea_rb_api()->timeout_fail(written);
    UNREACHABLE;
}

/* Raises IO::EAGAINWaitReadable or IO::EAGAINWaitWritable for EA_WAIT_READABLE or EA_WAIT_WRITABLE: what
 * rb_readwrite_sys_fail() raises, of the classes that Ruby made once, and without a backtrace, unless
 * Eagain::Nonblock.backtraces is on. message as of rb_sys_fail(); may be NULL. */
NORETURN(static inline void ea_rb_readwrite_fail(ea_result wait, const char *message));
static inline void ea_rb_readwrite_fail(ea_result wait, const char *message) {
    ea_rb_api()->readwrite_fail(wait, message);
    UNREACHABLE;
}

EA_END

#endif
