/* See kgio.h: what the layer's files share, and the modules. Nothing of it is defined before
 * eagain/kgio is required. */
#include "kgio.h"
#include "memory.h"

#include <errno.h>
#include <netdb.h>
#include <unistd.h>

static ID id_wait_readable, id_wait_writable, id_set_backtrace, id_no_reverse, id_set_no_reverse;
static VALUE localhost;

/* --- Errors. */

NORETURN(static void fail_silently(VALUE exception));
static void fail_silently(VALUE exception) {
    rb_funcall(exception, id_set_backtrace, 1, rb_ary_new());
    rb_exc_raise(exception);
}

void ea_kgio_fail(int error, const char *call) {
    if (error == EPIPE || error == ECONNRESET)
        fail_silently(rb_syserr_new(error, call));
    rb_syserr_fail(error, call);
}

void ea_kgio_end_of_file(void) {
    fail_silently(rb_exc_new_cstr(rb_eEOFError, "end of file reached"));
}

bool ea_kgio_exhausted(int error) {
    return error == EMFILE || error == ENFILE || error == ENOMEM || error == ENOBUFS;
}

/* --- The IO behind an object. */

VALUE ea_kgio_begin(VALUE object, struct ea_known *known) {
    VALUE io = ea_to_io(object);
    rb_io_t *fptr = RFILE(io)->fptr;
    if (RB_UNLIKELY(!fptr || fptr->fd < 0))
        GetOpenFile(io, fptr); /* raises */
    ea_known_begin(known, io, fptr->fd);
    return io;
}

ea_result ea_kgio_settled(VALUE io, ea_result r, int direction) {
    if (RB_LIKELY(!ea_is_wait(r)))
        return r;
    const rb_io_t *fptr = RFILE(io)->fptr;
    bool opened = fptr->mode & direction;
    /* Both directions of a popen are two descriptors; ours is for reading. */
    if (direction == FMODE_WRITABLE && fptr->tied_io_for_writing)
        opened = false;
    return opened ? r : -EBADF;
}

void ea_kgio_wait_readable(VALUE object) {
    rb_funcallv(object, id_wait_readable, 0, NULL);
}

void ea_kgio_wait_writable(VALUE object) {
    rb_funcallv(object, id_wait_writable, 0, NULL);
}

/* --- New IOs. */

struct new_io {
    VALUE klass, path;
    int number, mode;
    bool socket;
    rb_io_t *made;
};

static VALUE make_io(VALUE data) {
    struct new_io *new = (struct new_io *)data;
    VALUE io = rb_obj_alloc(new->klass);
    rb_io_t *fptr;
    MakeOpenFile(io, fptr);
    new->made = fptr;
    fptr->fd = new->number;
    fptr->mode = new->mode;
    if (new->socket)
        rb_io_ascii8bit_binmode(io);
    if (!NIL_P(new->path))
        RB_OBJ_WRITE(io, &fptr->pathv, new->path);
    if (new->socket && ea_is_a(io, EA_BASIC_SOCKET))
        rb_funcall(io, id_set_no_reverse, 1,
                   rb_funcall(ea_socket_class(EA_BASIC_SOCKET), id_no_reverse, 0));
    return io;
}

/* Not rb_update_max_fd(), which asks fcntl(2) about a number that is the highest so far: it serves those
 * who close descriptors before exec, and ours close by themselves (but see kgio_accept.c). */
static VALUE new_io(struct new_io new) {
    int state;
    VALUE io = rb_protect(make_io, (VALUE) & new, &state);
    if (state) {
        if (new.made)
            new.made->fd = -1; /* the collector is not to close it again */
        close(new.number);
        rb_jump_tag(state);
    }
    return io;
}

VALUE ea_kgio_file_new(VALUE klass, int number, int flags, VALUE path) {
    return new_io((struct new_io){klass, path, number, rb_io_oflags_fmode(flags), false, NULL});
}

VALUE ea_kgio_socket_new(VALUE klass, int number) {
    ea_memory_forget(number);
    if (number < EA_FACTS_MAX)
        atomic_store_explicit(&ea_facts[number], EA_FD_IS_SOCKET, memory_order_relaxed);
    int mode = FMODE_READWRITE | FMODE_DUPLEX | FMODE_SYNC;
    return new_io((struct new_io){klass, Qnil, number, mode, true, NULL});
}

/* --- Addresses. */

VALUE ea_kgio_address(const struct sockaddr *addr, socklen_t length) {
    char host[NI_MAXHOST];
    /* An unnamed UNIX socket may come with no address at all. */
    if (length < sizeof(addr->sa_family) || addr->sa_family == AF_UNIX)
        return localhost;
    if (addr->sa_family != AF_INET && addr->sa_family != AF_INET6)
        rb_raise(rb_eArgError, "address family %d has no kgio_addr", addr->sa_family);
    int error = getnameinfo(addr, length, host, sizeof(host), NULL, 0, NI_NUMERICHOST);
    if (error)
        rb_raise(rb_eRuntimeError, "getnameinfo: %s", gai_strerror(error));
    return rb_str_new_cstr(host);
}

/*
 * call-seq:
 *    socket.kgio_addr! -> string
 *
 * Asks the kernel (getpeername(2)) for the peer's address and makes that the socket's +kgio_addr+:
 * a String such as "127.0.0.1" or "::1"; Kgio::LOCALHOST for a UNIX socket. Raises Errno::ENOTCONN
 * when there is no peer, Errno::ENOTSOCK for anything but a socket, IOError when closed. Never
 * blocks.
 */
static VALUE kgio_addr_bang(VALUE self) {
    struct sockaddr_storage addr;
    socklen_t length = sizeof(addr);
    struct ea_known known;
    ea_kgio_begin(self, &known);
    if (getpeername(known.fd.fd, (struct sockaddr *)&addr, &length) != 0)
        ea_kgio_fail(errno, "getpeername");
    VALUE address = ea_kgio_address((struct sockaddr *)&addr, length);
    rb_iv_set(self, "@kgio_addr", address);
    return address;
}

/* --- The modules. */

static VALUE subclass(const struct ea_kgio_modules *m, const char *name, VALUE methods) {
    VALUE klass = rb_define_class_under(m->kgio, name, rb_path2class(name));
    if (!NIL_P(methods))
        rb_include_module(klass, methods);
    return klass;
}

/* Eagain.define_kgio, called once, by eagain/kgio.rb, which has required socket. */
static VALUE define_kgio(VALUE self) {
    struct ea_kgio_modules m;

    rb_gc_register_address(&localhost);
    id_wait_readable = rb_intern("kgio_wait_readable");
    id_wait_writable = rb_intern("kgio_wait_writable");
    id_set_backtrace = rb_intern("set_backtrace");
    id_no_reverse = rb_intern("do_not_reverse_lookup");
    id_set_no_reverse = rb_intern("do_not_reverse_lookup=");

    m.kgio = rb_define_module("Kgio");
    localhost = rb_obj_freeze(rb_usascii_str_new_cstr("127.0.0.1"));
    rb_define_const(m.kgio, "LOCALHOST", localhost);
    rb_define_const(m.kgio, "WaitReadable", ea_sym_wait_readable);
    rb_define_const(m.kgio, "WaitWritable", ea_sym_wait_writable);

    m.waiters = rb_define_module_under(m.kgio, "DefaultWaiters");
    m.pipe_methods = rb_define_module_under(m.kgio, "PipeMethods");
    m.socket_methods = rb_define_module_under(m.kgio, "SocketMethods");
    rb_include_module(m.pipe_methods, m.waiters);
    rb_include_module(m.socket_methods, m.waiters);

    rb_define_attr(m.socket_methods, "kgio_addr", 1, 1);
    rb_define_method(m.socket_methods, "kgio_addr!", kgio_addr_bang, 0);

    m.socket = subclass(&m, "Socket", m.socket_methods);
    m.tcp_socket = subclass(&m, "TCPSocket", m.socket_methods);
    m.unix_socket = subclass(&m, "UNIXSocket", m.socket_methods);

    VALUE pipe = rb_define_class_under(m.kgio, "Pipe", rb_cIO);
    rb_include_module(pipe, m.pipe_methods);
    rb_define_alias(rb_singleton_class(pipe), "new", "pipe");

    ea_kgio_define_wait(&m);
    ea_kgio_define_poll(&m);
    ea_kgio_define_read(&m);
    ea_kgio_define_write(&m);
    ea_kgio_define_writev(&m);
    ea_kgio_define_autopush(&m);
    ea_kgio_define_accept(&m);
    ea_kgio_define_connect(&m);
    ea_kgio_define_open(&m);
    return m.kgio;
}

void ea_init_kgio(VALUE module) {
    rb_define_private_method(rb_singleton_class(module), "define_kgio", define_kgio, 0);
}
