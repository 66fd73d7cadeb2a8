/* tryaccept, tryconnect, and new socket objects.
 *
 * accept(2) and connect(2) have no flag that makes one call non-blocking, and whether the socket is
 * cannot be trusted for long, since others may share it. A listener that is not known to be
 * non-blocking (memory.c) is asked with poll(2) first, each time; and since another process may take
 * the connection that was there, accept(2) then runs without the GVL, so that it can wait for the next
 * one without stopping other threads, and be interrupted. A socket that connects is looked at once per attempt; one
 * that blocks is connected by a sendto(2) of nothing with MSG_FASTOPEN | MSG_DONTWAIT, where it is
 * TCP. No other kind has such a way: see Eagain.tryconnect.
 *
 * An accepted number is closed if no object comes of it. Nothing is allocated before there is one.
 */
#include "memory.h"

#include <errno.h>
#include <netinet/in.h>
#include <unistd.h>

#ifndef IPPROTO_MPTCP
#define IPPROTO_MPTCP 262
#endif

static ID id_class, id_for_fd, id_do_not_reverse_lookup, id_inspect_sockaddr;

/* --- New sockets. */

struct new_socket {
    VALUE klass;
    int number;
    bool owned; /* by the object: whoever collects it closes the number */
};

#ifdef HAVE_RB_IO_T_FD

/* Of Ruby's socket library, which does not tell: addresses are not resolved to names. */
#define MODE_NO_REVERSE_LOOKUP 0x100

/* As every socket of Ruby's begins. Not rb_update_max_fd(), which asks fcntl(2) about a number that
 * is the highest so far: it serves those who close descriptors before exec, and ours close by
 * themselves. */
static VALUE new_socket(VALUE pointer) {
    struct new_socket *new = (void *)pointer;
    int lookup = 0;
    if (RTEST(rb_funcall(ea_socket_class(EA_BASIC_SOCKET), id_do_not_reverse_lookup, 0)))
        lookup = MODE_NO_REVERSE_LOOKUP;
    VALUE socket = rb_obj_alloc(new->klass);
    rb_io_t *fptr;
    MakeOpenFile(socket, fptr);
    fptr->fd = new->number;
    new->owned = true;
    fptr->mode = FMODE_READWRITE | FMODE_DUPLEX | lookup;
    rb_io_ascii8bit_binmode(socket);
    rb_io_synchronized(fptr);
    return socket;
}

#else

static VALUE new_socket(VALUE pointer) {
    struct new_socket *new = (void *)pointer;
    VALUE socket = rb_funcall(new->klass, id_for_fd, 1, INT2FIX(new->number));
    new->owned = true;
    return socket;
}

#endif

static VALUE make_socket(VALUE klass, int number) {
    ea_memory_forget(number);
    if (number < EA_FACTS_MAX)
        atomic_store_explicit(&ea_facts[number], (uint8_t)EA_FD_IS_SOCKET, memory_order_relaxed);
    struct new_socket new = {klass, number, false};
    int state;
    VALUE socket = rb_protect(new_socket, (VALUE) & new, &state);
    if (RB_UNLIKELY(state)) {
        if (!new.owned)
            close(number);
        rb_jump_tag(state);
    }
    return socket;
}

/* A subclass of BasicSocket that has instances? */
static bool is_socket_class(VALUE klass) {
    return RB_TYPE_P(klass, T_CLASS) && !RB_FL_TEST(klass, RUBY_FL_SINGLETON) &&
           ea_socket_class(EA_BASIC_SOCKET) &&
           RTEST(rb_class_inherited_p(klass, ea_socket_class(EA_BASIC_SOCKET)));
}

static void check_class(VALUE klass) {
    if (!is_socket_class(klass))
        rb_raise(rb_eTypeError, "%+" PRIsVALUE " is not a subclass of BasicSocket", klass);
    if (!rb_get_alloc_func(klass))
        rb_raise(rb_eTypeError, "allocator undefined for %" PRIsVALUE, klass);
}

VALUE ea_socket_new(VALUE klass, int number) {
    if (number < 0)
        rb_syserr_fail(EBADF, NULL);
    if (!is_socket_class(klass) || !rb_get_alloc_func(klass)) {
        close(number);
        check_class(klass);
    }
    return make_socket(klass, number);
}

/* --- tryaccept. */

/* What Ruby's own accept makes of it. */
static VALUE accepted_class(VALUE server) {
    if (ea_is_a(server, EA_TCP_SERVER))
        return ea_socket_class(EA_TCP_SOCKET);
    if (ea_is_a(server, EA_UNIX_SERVER))
        return ea_socket_class(EA_UNIX_SOCKET);
    return ea_socket_class(EA_SOCKET);
}

struct accepting {
    struct ea_fd fd;
    struct sockaddr *addr;
    socklen_t *addrlen;
    int flags;
    ea_result result;
};

static VALUE accept_without_gvl(void *pointer) {
    struct accepting *a = pointer;
    a->result = ea_accept_ready(&a->fd, a->addr, a->addrlen, a->flags);
    errno = 0; /* Ruby has a view of some */
    return Qnil;
}

/* Interrupts are looked at before and after: it may raise, and run the program's code. */
static VALUE accept_interruptibly(VALUE pointer) {
    struct accepting *a = (void *)pointer;
#ifdef HAVE_RB_THREAD_IO_BLOCKING_REGION
    /* Which IO#close in another thread interrupts. */
    VALUE rb_thread_io_blocking_region(rb_blocking_function_t *, void *, int);
    return rb_thread_io_blocking_region(accept_without_gvl, a, a->fd.fd);
#else
    rb_nogvl((void *(*)(void *))accept_without_gvl, a, RUBY_UBF_IO, NULL, 0);
    return Qnil;
#endif
}

/* poll(2) has said that there is a connection. Another process may have taken it since: without the
 * GVL, then. No fiber is switched. A connection that was accepted when an exception came is closed. */
static ea_result accept_ready(const struct ea_known *known, struct sockaddr *addr,
                              socklen_t *addrlen, int flags) {
    struct accepting a = {known->fd, addr, addrlen, flags, -EINTR};
    int state;
    rb_protect(accept_interruptibly, (VALUE)&a, &state);
    if (RB_UNLIKELY(state)) {
        if (ea_is_count(a.result))
            close((int)a.result);
        rb_jump_tag(state);
    }
    return a.result;
}

static ea_result accept_at_once(struct ea_known *known, struct sockaddr *addr, socklen_t *addrlen,
                                int flags) {
    known->fd.known |= EA_FD_NONBLOCKING;
    ea_result r = ea_try_accept_as(&known->fd, addr, addrlen, flags);
    known->fd.known &= ~(uint32_t)EA_FD_NONBLOCKING;
    return r;
}

/* How often poll(2) is asked again after a connection that was not to be had: it failed, or a signal
 * came where another process had taken it. */
#define ACCEPT_TRIES 16

ea_result ea_accept(VALUE server, struct ea_known *known, struct sockaddr *addr, socklen_t *addrlen,
                    int flags) {
    if (RB_LIKELY(ea_listener_nonblocks(server, known->fd.fd))) {
        ea_result r = accept_at_once(known, addr, addrlen, flags);
        /* At the limit accept(2) says so even where there is no connection. */
        if (RB_UNLIKELY(r == -EMFILE || r == -ENFILE) &&
            ea_try_poll(known->fd.fd, EA_READABLE) == 0)
            return EA_WAIT_READABLE;
        return r;
    }
    if (RB_UNLIKELY(flags & ~(SOCK_CLOEXEC | SOCK_NONBLOCK)))
        return -EINVAL;
    socklen_t room = addrlen ? *addrlen : 0;
    for (int tries = 0; tries < ACCEPT_TRIES; tries++) {
        ea_result r = ea_try_poll(known->fd.fd, EA_READABLE);
        if (r < 0)
            return r;
        if (r == 0) {
            /* poll(2) has nothing to say about a socket that does not listen; accept(2) does, and
             * fails at once in either mode. */
            return ea_socket_listens(server, known->fd.fd)
                       ? EA_WAIT_READABLE
                       : accept_at_once(known, NULL, NULL, flags);
        }
        if (addrlen)
            *addrlen = room;
        r = accept_ready(known, addr, addrlen, flags);
        if (r != -EINTR && r != EA_WAIT_READABLE)
            return r;
        ea_socket_begin(server, known); /* it may be closed, or another one */
        if (r == EA_WAIT_READABLE && !ea_socket_listens(server, known->fd.fd))
            return accept_at_once(known, NULL, NULL,
                                  flags); /* says why: a datagram is there, say */
    }
    return EA_WAIT_READABLE;
}

VALUE ea_tryaccept(VALUE server, VALUE klass, VALUE *address) {
    if (!NIL_P(klass))
        check_class(klass); /* before a connection could be lost by it */
    bool collected = false;
    struct sockaddr_storage peer;
    socklen_t length;
    struct sockaddr *wanted;
    struct ea_known known;
    ea_result r;
    uint32_t age;
    for (;;) {
        ea_socket_known(server, &known);
        age = ea_memory_age(known.fd.fd);
        length = sizeof(peer);
        wanted = address || ea_memory_trusted() ? (struct sockaddr *)&peer : NULL;
        r = ea_accept(server, &known, wanted, wanted ? &length : NULL,
                      SOCK_CLOEXEC | SOCK_NONBLOCK);
        ea_known_end(&known);
        if (RB_LIKELY(r != -EMFILE && r != -ENFILE && r != -ENOMEM) || collected)
            break;
        ea_close_unused(); /* finalizers may run, and do anything */
        collected = true;
    }
    if (r == -ECONNABORTED || r == -EPROTO) /* many in a row: as Ruby's accept_nonblock has them */
        r = EA_WAIT_READABLE;
    if (r == EA_WAIT_READABLE)
        return ea_sym_wait_readable;
    if (!ea_is_count(r))
        rb_syserr_fail(ea_errno(r), "accept(2)");
    VALUE socket = make_socket(NIL_P(klass) ? accepted_class(server) : klass, (int)r);
    if (!wanted)
        return socket;
    if (length > sizeof(peer))
        length = sizeof(peer);
    if (ea_memory_trusted())
        ea_socket_remember_accepted(socket, server, known.fd.fd, age, wanted, length);
    if (address)
        *address = rb_str_freeze(rb_str_new((const char *)wanted, (long)length));
    return socket;
}

/* --- tryconnect. */

/* Connects a TCP socket that is in blocking mode, without waiting. -EOPNOTSUPP when it is none, or
 * the system does not allow it (net.ipv4.tcp_fastopen). */
static ea_result connect_at_once(const struct ea_fd *fd, const struct sockaddr *address,
                                 socklen_t length) {
#ifdef MSG_FASTOPEN
    for (;;) {
        if (sendto(fd->fd, NULL, 0, MSG_FASTOPEN | MSG_DONTWAIT | MSG_NOSIGNAL, address, length) >=
            0)
            return 0;
        if (errno == EINTR)
            continue;
        if (errno == EINPROGRESS || errno == EALREADY)
            return EA_WAIT_WRITABLE;
        return -errno;
    }
#else
    return -EOPNOTSUPP;
#endif
}

static bool is_tcp(VALUE socket) {
    int family = ea_socket_family(socket);
    if ((family != AF_INET && family != AF_INET6) || ea_socket_type(socket) != SOCK_STREAM)
        return false;
    int protocol = ea_socket_protocol(socket);
    return protocol == 0 || protocol == IPPROTO_TCP || protocol == IPPROTO_MPTCP;
}

static ea_result try_connect(VALUE socket, struct ea_fd *fd, const struct sockaddr *address,
                             socklen_t length) {
    if (ea_sockaddr_family(address, length) ==
        AF_UNSPEC) { /* dissolves a connection; never waits */
        ea_memory_forget(fd->fd);
        return ea_try_connect(fd, address, length);
    }
    enum ea_mode mode = ea_socket_mode(socket);
    ea_result r = -EOPNOTSUPP;
    bool tcp = mode != EA_MODE_NONBLOCKING && is_tcp(socket);
    if (tcp)
        r = connect_at_once(fd, address, length);
    if (!tcp || (r == -EOPNOTSUPP && mode == EA_MODE_UNKNOWN))
        r = ea_try_connect(fd, address, length);
    bool known = r == 0 || r == -EISCONN || r == EA_WAIT_WRITABLE;
    ea_socket_remember_mode(socket, known ? mode : EA_MODE_UNKNOWN);
    return r;
}

NORETURN(static void fail_to_connect(int error, VALUE sockaddr, VALUE address));
static void fail_to_connect(int error, VALUE sockaddr, VALUE address) {
    if (!ea_is_a(address, EA_ADDRINFO)) {
        /* A string that is no address at all says so here (ArgumentError), as Ruby's own does. */
        address = rb_class_new_instance(1, &sockaddr, ea_socket_class(EA_ADDRINFO));
    }
    VALUE text = rb_funcall(address, id_inspect_sockaddr, 0);
    rb_syserr_fail_str(error, rb_sprintf("connect(2) for %" PRIsVALUE, text));
}

/* connected: what EISCONN means. */
static VALUE connect_to(VALUE socket, VALUE address, ea_result connected) {
    VALUE sockaddr = ea_to_sockaddr(address);
    socklen_t length = (socklen_t)RSTRING_LENINT(sockaddr);
    struct ea_known known;
    ea_socket_known(socket, &known);
    ea_result r = try_connect(socket, &known.fd, (const void *)RSTRING_PTR(sockaddr), length);
    ea_known_end(&known);
    if (r == -EISCONN)
        r = connected;
    if (r == 0)
        return INT2FIX(0);
    if (r == EA_WAIT_WRITABLE)
        return ea_sym_wait_writable;
    fail_to_connect(r == -EBUSY ? EAGAIN : ea_errno(r), sockaddr, address);
}

VALUE ea_tryconnect(VALUE socket, VALUE address) {
    return connect_to(socket, address, 0);
}

VALUE ea_tryconnect_anew(VALUE socket, VALUE address) {
    return connect_to(socket, address, -EISCONN);
}

/* --- In Ruby. */

/* The class: of tryaccept, nil if it is not given. */
static VALUE class_option(VALUE options) {
    VALUE klass = Qundef;
    if (!NIL_P(options))
        rb_get_kwargs(options, &id_class, 0, 1, &klass);
    return klass == Qundef ? Qnil : klass;
}

/*
 * call-seq:
 *   Eagain.tryaccept(server, class: nil) -> socket or :wait_readable
 *
 * Accepts one connection, if there is one: two system calls, or one when there is none. After
 * <tt>require "eagain/io"</tt> one in both cases, of a listener that is non-blocking, as those are
 * that Ruby makes: its mode is asked for once, and again after IO#nonblock= and the like.
 *
 * Does not wait, and does not change the listener's mode, but for one case: the listener is in blocking
 * mode (it was inherited, say), and another process or thread takes the connection just after the
 * system has said that there is one. Then this thread waits for the next connection, with all of its
 * fibers. Other threads run meanwhile, and signals, Thread#raise, Thread#kill and the server's close in
 * another thread end it; a connection that was accepted in that very moment is closed. When several
 * processes share a listener, make it non-blocking: <tt>server.nonblock = true</tt>. After
 * <tt>require "eagain/io"</tt> a process that makes a non-blocking listener blocking behind the back of
 * this one stops it, with all threads, until the next connection.
 *
 * The new socket is non-blocking and closed on exec. It is what Ruby's own +accept+ of the server
 * gives: a TCPSocket of a TCPServer, a UNIXSocket of a UNIXServer, else a Socket (without the
 * address, which Eagain.remote_address has); or of the given class, a subclass of BasicSocket.
 * After <tt>require "eagain/io"</tt> it remembers its peer. (With +class:+ Ruby makes a
 * Hash for each call; without, nothing is allocated unless there is a connection.)
 *
 * Connections that failed in the queue are passed over. Raises Errno::EMFILE and Errno::ENFILE when
 * descriptors have run out, even after a garbage collection: the connection stays in the queue.
 * Raises Errno::EINVAL when the socket does not listen, TypeError when the class or the server is
 * no BasicSocket, IOError when the server is closed.
 */
static VALUE s_tryaccept(int argc, VALUE *argv, VALUE self) {
    (void)self;
    VALUE server, options;
    rb_scan_args(argc, argv, "1:", &server, &options);
    VALUE klass = class_option(options);
    return ea_tryaccept(ea_to_io(server), klass, NULL);
}

/*
 * call-seq:
 *   server.tryaccept(class: nil) -> socket or :wait_readable
 *
 * See Eagain.tryaccept. After <tt>require "eagain/io"</tt>.
 */
static VALUE m_tryaccept(int argc, VALUE *argv, VALUE self) {
    VALUE options;
    rb_scan_args(argc, argv, "0:", &options);
    return ea_tryaccept(self, class_option(options), NULL);
}

/*
 * call-seq:
 *   Eagain.tryconnect(socket, address) -> 0 or :wait_writable
 *
 * Begins to connect a socket to an address, an Addrinfo or a packed sockaddr, or tells how far that
 * is: 0 when it is connected, <tt>:wait_writable</tt> while it is under way. Wait until the socket
 * is writable, then call it again with the same address for the outcome.
 *
 * Every other outcome raises its Errno, as Socket#connect_nonblock does: Errno::ECONNREFUSED,
 * Errno::ETIMEDOUT and so on. Errno::EAGAIN is that of a UNIX socket whose peer's queue is full:
 * nothing is under way, and no event will tell of room; try again later. Raises IOError when the
 * socket is closed, TypeError when it is no BasicSocket or the address is none.
 *
 * The sockets that Ruby makes are non-blocking. One that is not (it was inherited, say) stays so,
 * and is not waited for either:
 *
 * - TCP connects with MSG_FASTOPEN and no data, which puts the Fast Open option into the first
 *   segment. Where the system does not allow that (net.ipv4.tcp_fastopen without bit 0) it raises
 *   Errno::EOPNOTSUPP;
 * - datagram sockets never wait;
 * - other sockets wait as connect(2) does: UNIX sockets while the peer's queue is full.
 */
static VALUE s_tryconnect(VALUE self, VALUE socket, VALUE address) {
    (void)self;
    return ea_tryconnect(ea_to_io(socket), address);
}

/*
 * call-seq:
 *   socket.tryconnect(address) -> 0 or :wait_writable
 *
 * See Eagain.tryconnect. After <tt>require "eagain/io"</tt>.
 */
static VALUE m_tryconnect(VALUE self, VALUE address) {
    return ea_tryconnect(self, address);
}

void ea_init_try_accept(VALUE module) {
    id_class = rb_intern("class");
    id_for_fd = rb_intern("for_fd");
    id_do_not_reverse_lookup = rb_intern("do_not_reverse_lookup");
    id_inspect_sockaddr = rb_intern("inspect_sockaddr");
    rb_define_module_function(module, "tryaccept", s_tryaccept, -1);
    rb_define_module_function(module, "tryconnect", s_tryconnect, 2);

    VALUE methods = rb_define_module_under(module, "SocketMethods");
    rb_funcall(module, rb_intern("private_constant"), 1, ID2SYM(rb_intern("SocketMethods")));
    rb_define_method(methods, "tryaccept", m_tryaccept, -1);
    rb_define_method(methods, "tryconnect", m_tryconnect, 1);
}
