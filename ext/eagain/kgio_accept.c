/* Kgio::TCPServer, Kgio::UNIXServer: kgio_tryaccept, kgio_accept, and what is accepted. */
#include "kgio.h"

#include <fcntl.h>
#include <sys/socket.h>

static VALUE socket_methods, default_class; /* Kgio::Socket */
static VALUE accept_class;
static ID id_addr;

/* SOCK_CLOEXEC | SOCK_NONBLOCK of what is accepted without flags. */
static _Atomic int default_flags = SOCK_CLOEXEC;

static VALUE class_for(int argc, const VALUE *argv) {
    if (argc == 0 || NIL_P(argv[0]))
        return accept_class;
    Check_Type(argv[0], T_CLASS);
    if (!RTEST(rb_class_inherited_p(argv[0], rb_cIO)))
        rb_raise(rb_eTypeError, "%" PRIsVALUE " is no class of IO", argv[0]);
    return argv[0];
}

static ea_result try_accept(VALUE self, struct ea_known *known, struct sockaddr_storage *addr,
                            socklen_t *length, int flags) {
    *length = sizeof(*addr);
    ea_kgio_begin(self, known);
    ea_result r = ea_accept(self, known, (struct sockaddr *)addr, length, flags);
    ea_known_end(known);
    return r;
}

/* The same; what nobody refers to any more is closed first when there is no descriptor left. */
static ea_result try_accept_again(VALUE self, struct ea_known *known, struct sockaddr_storage *addr,
                                  socklen_t *length, int flags) {
    ea_result r = try_accept(self, known, addr, length, flags);
    if (RB_LIKELY(!ea_is_error(r)) || !ea_kgio_exhausted(ea_errno(r)))
        return r;
    ea_close_unused();
    return try_accept(self, known, addr, length, flags);
}

/* tcp: its peers have addresses and may be corked. */
static VALUE do_accept(VALUE self, int argc, const VALUE *argv, bool tcp, bool wait) {
    struct sockaddr_storage addr;
    socklen_t length;
    struct ea_known known;

    rb_check_arity(argc, 0, 2);
    VALUE klass = class_for(argc, argv);
    int flags =
        argc > 1 ? NUM2INT(argv[1]) : atomic_load_explicit(&default_flags, memory_order_relaxed);
    ea_result r;
    while ((r = try_accept_again(self, &known, &addr, &length, flags)) == EA_WAIT_READABLE && wait)
        ea_wait(self, EA_READABLE, EA_TIME_NEVER);
    if (r == EA_WAIT_READABLE)
        return Qnil;
    if (ea_is_error(r))
        ea_kgio_fail(ea_errno(r), "accept");
    if (!(flags & SOCK_CLOEXEC))
        rb_update_max_fd((int)r); /* to be closed before exec, where the program asks for that */
    VALUE accepted = ea_kgio_socket_new(klass, (int)r);
    if (tcp)
        ea_kgio_accepted(self, known.fd.fd, accepted);
    rb_ivar_set(accepted, id_addr, ea_kgio_address((struct sockaddr *)&addr, length));
    return accepted;
}

/*
 * call-seq:
 *    server.kgio_tryaccept(klass = nil, flags = nil) -> socket or nil
 *
 * Accepts a connection if there is one; nil if not. Returns an instance of +klass+, a class of IO
 * (Kgio.accept_class), whose #initialize does not run; its +kgio_addr+ is the peer's address, such
 * as "127.0.0.1" or "::1". +flags+ is an Integer of Kgio::SOCK_CLOEXEC and Kgio::SOCK_NONBLOCK,
 * each of which is off unless it is named; without +flags+ the new socket is close-on-exec and in
 * blocking mode.
 *
 * Does not block, and does not change the server's mode. (Where a server in blocking mode is shared
 * with other threads or processes, the connection that is there may be gone when it is taken, and
 * then this thread waits for the next one: see Eagain.tryaccept. Ruby's own servers are in non-blocking
 * mode.) A connection that
 * failed before it was accepted is passed over. Raises Errno::EMFILE and the like, after a garbage
 * collection did not help, and IOError when the server is closed.
 */
static VALUE tcp_tryaccept(int argc, VALUE *argv, VALUE self) {
    return do_accept(self, argc, argv, true, false);
}

/*
 * call-seq:
 *    server.kgio_accept(klass = nil, flags = nil) -> socket
 *
 * As kgio_tryaccept, but waits for a connection: the fiber if there is a fiber scheduler, else the
 * thread.
 */
static VALUE tcp_accept(int argc, VALUE *argv, VALUE self) {
    return do_accept(self, argc, argv, true, true);
}

/*
 * call-seq:
 *    server.kgio_tryaccept(klass = nil, flags = nil) -> socket or nil
 *
 * As TCPServer#kgio_tryaccept. The new socket's +kgio_addr+ is Kgio::LOCALHOST.
 */
static VALUE unix_tryaccept(int argc, VALUE *argv, VALUE self) {
    return do_accept(self, argc, argv, false, false);
}

/*
 * call-seq:
 *    server.kgio_accept(klass = nil, flags = nil) -> socket
 *
 * As kgio_tryaccept, but waits for a connection: the fiber if there is a fiber scheduler, else the
 * thread.
 */
static VALUE unix_accept(int argc, VALUE *argv, VALUE self) {
    return do_accept(self, argc, argv, false, true);
}

/* --- Settings. */

/*
 * call-seq:
 *    Kgio.accept_class -> class
 *
 * What kgio_accept and kgio_tryaccept return instances of: Kgio::Socket at first.
 */
static VALUE s_accept_class(VALUE self) {
    return accept_class;
}

/*
 * call-seq:
 *    Kgio.accept_class = klass
 *
 * Sets it; nil: Kgio::Socket again. TypeError for what is no class that includes
 * Kgio::SocketMethods.
 */
static VALUE s_set_accept_class(VALUE self, VALUE klass) {
    if (NIL_P(klass)) {
        accept_class = default_class;
        return klass;
    }
    Check_Type(klass, T_CLASS);
    if (!RTEST(rb_class_inherited_p(klass, socket_methods)))
        rb_raise(rb_eTypeError, "%" PRIsVALUE " does not include Kgio::SocketMethods", klass);
    return accept_class = klass;
}

static VALUE flag(int which) {
    return atomic_load_explicit(&default_flags, memory_order_relaxed) & which ? Qtrue : Qfalse;
}

static VALUE set_flag(int which, VALUE on) {
    if (on == Qtrue)
        atomic_fetch_or_explicit(&default_flags, which, memory_order_relaxed);
    else if (on == Qfalse)
        atomic_fetch_and_explicit(&default_flags, ~which, memory_order_relaxed);
    else
        rb_raise(rb_eTypeError, "neither true nor false");
    return on;
}

/*
 * call-seq:
 *    Kgio.accept_cloexec? -> true or false
 *
 * Are sockets that are accepted without +flags+ close-on-exec? True at first.
 */
static VALUE s_accept_cloexec_p(VALUE self) {
    return flag(SOCK_CLOEXEC);
}

/*
 * call-seq:
 *    Kgio.accept_cloexec = true or false
 *
 * Sets it. TypeError for any other object.
 */
static VALUE s_set_accept_cloexec(VALUE self, VALUE on) {
    return set_flag(SOCK_CLOEXEC, on);
}

/*
 * call-seq:
 *    Kgio.accept_nonblock? -> true or false
 *
 * Are sockets that are accepted without +flags+ in non-blocking mode? False at first.
 */
static VALUE s_accept_nonblock_p(VALUE self) {
    return flag(SOCK_NONBLOCK);
}

/*
 * call-seq:
 *    Kgio.accept_nonblock = true or false
 *
 * Sets it. TypeError for any other object.
 */
static VALUE s_set_accept_nonblock(VALUE self, VALUE on) {
    return set_flag(SOCK_NONBLOCK, on);
}

void ea_kgio_define_accept(const struct ea_kgio_modules *m) {
    socket_methods = m->socket_methods;
    default_class = accept_class = m->socket;
    rb_gc_register_address(&socket_methods);
    rb_gc_register_address(&default_class);
    rb_gc_register_address(&accept_class);
    id_addr = rb_intern("@kgio_addr");

    rb_define_const(m->kgio, "SOCK_CLOEXEC", INT2FIX(SOCK_CLOEXEC));
    rb_define_const(m->kgio, "SOCK_NONBLOCK", INT2FIX(SOCK_NONBLOCK));
    rb_define_singleton_method(m->kgio, "accept_class", s_accept_class, 0);
    rb_define_singleton_method(m->kgio, "accept_class=", s_set_accept_class, 1);
    rb_define_singleton_method(m->kgio, "accept_cloexec?", s_accept_cloexec_p, 0);
    rb_define_singleton_method(m->kgio, "accept_cloexec=", s_set_accept_cloexec, 1);
    rb_define_singleton_method(m->kgio, "accept_nonblock?", s_accept_nonblock_p, 0);
    rb_define_singleton_method(m->kgio, "accept_nonblock=", s_set_accept_nonblock, 1);

    VALUE tcp = rb_define_class_under(m->kgio, "TCPServer", rb_path2class("TCPServer"));
    rb_define_method(tcp, "kgio_tryaccept", tcp_tryaccept, -1);
    rb_define_method(tcp, "kgio_accept", tcp_accept, -1);
    VALUE unix_server = rb_define_class_under(m->kgio, "UNIXServer", rb_path2class("UNIXServer"));
    rb_define_method(unix_server, "kgio_tryaccept", unix_tryaccept, -1);
    rb_define_method(unix_server, "kgio_accept", unix_accept, -1);
}
