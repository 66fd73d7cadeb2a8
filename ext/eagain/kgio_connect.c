/* Kgio::TCPSocket, Kgio::UNIXSocket, Kgio::Socket: new, connect, start; and kgio_fastopen.
 *
 * The sockets are ours, so they are made non-blocking. No name is ever looked up. Whether a
 * connection that was started came to be is told by the first use of the socket, as kgio has it:
 * not by new. */
#include "kgio.h"

#include <ruby/thread.h>

#include <errno.h>
#include <netdb.h>
#include <stddef.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

struct address {
    struct sockaddr_storage storage;
    socklen_t length;
};

static int new_socket(int family) {
    int number = socket(family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (number < 0 && ea_kgio_exhausted(errno)) {
        ea_close_unused();
        number = socket(family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    }
    if (number < 0)
        ea_kgio_fail(errno, "socket");
    return number;
}

static VALUE connect_to(VALUE klass, const struct address *address, bool wait) {
    int number = new_socket(address->storage.ss_family);
    struct ea_fd fd = {.fd = number};
    ea_result r = ea_try_connect(&fd, (const struct sockaddr *)&address->storage, address->length);
    if (ea_is_error(r)) {
        close(number);
        /* The backlog of a UNIX socket is full: connect(2) says EAGAIN. */
        ea_kgio_fail(r == -EBUSY ? EAGAIN : ea_errno(r), "connect");
    }
    VALUE socket = ea_kgio_socket_new(klass, number);
    if (wait && ea_is_wait(r))
        ea_kgio_wait_writable(socket);
    return socket;
}

/* --- Kgio::TCPSocket. */

static void tcp_address(struct address *address, VALUE host, VALUE port) {
    struct addrinfo *found;
    struct addrinfo hints = {.ai_family = AF_UNSPEC,
                             .ai_socktype = SOCK_STREAM,
                             .ai_flags = AI_NUMERICHOST | AI_NUMERICSERV};
    char service[8];

    StringValue(host);
    if (!FIXNUM_P(port))
        rb_raise(rb_eTypeError, "port must be an Integer, 0 to 65535");
    if (FIX2LONG(port) < 0 || FIX2LONG(port) > 65535)
        rb_raise(rb_eArgError, "port %ld is not within 0 to 65535", FIX2LONG(port));
    ruby_snprintf(service, sizeof(service), "%ld", FIX2LONG(port));
    int error = getaddrinfo(StringValueCStr(host), service, &hints, &found);
    if (error)
        rb_raise(rb_eArgError, "%" PRIsVALUE " is no numeric address: %s", host,
                 gai_strerror(error));
    memcpy(&address->storage, found->ai_addr, found->ai_addrlen);
    address->length = found->ai_addrlen;
    freeaddrinfo(found);
}

/*
 * call-seq:
 *    Kgio::TCPSocket.new(ip, port) -> socket
 *
 * Connects to an IPv4 or IPv6 address, a String of digits: a name raises ArgumentError, and is not
 * looked up. +port+ is an Integer. If the connection takes its time, the new socket's
 * +kgio_wait_writable+ is called, once. Whether it came to be is told by the first read or write,
 * which may raise Errno::ECONNREFUSED, say; Errno at once if connect(2) fails at once.
 */
static VALUE tcp_new(VALUE klass, VALUE host, VALUE port) {
    struct address address;
    tcp_address(&address, host, port);
    return connect_to(klass, &address, true);
}

/*
 * call-seq:
 *    Kgio::TCPSocket.start(ip, port) -> socket
 *
 * As new, but never waits.
 */
static VALUE tcp_start(VALUE klass, VALUE host, VALUE port) {
    struct address address;
    tcp_address(&address, host, port);
    return connect_to(klass, &address, false);
}

/* --- Kgio::UNIXSocket. */

static void unix_address(struct address *address, VALUE path) {
    struct sockaddr_un *sun = (struct sockaddr_un *)&address->storage;
    StringValue(path);
    size_t len = (size_t)RSTRING_LEN(path);
    if (len >= sizeof(sun->sun_path))
        rb_raise(rb_eArgError, "path of a UNIX socket is too long: %zu bytes, at most %zu", len,
                 sizeof(sun->sun_path) - 1);
    *sun = (struct sockaddr_un){.sun_family = AF_UNIX};
    memcpy(sun->sun_path, RSTRING_PTR(path), len);
    /* A name that starts with a null byte is as long as it is; a path ends with one. */
    bool abstract = len > 0 && sun->sun_path[0] == '\0';
    address->length =
        (socklen_t)(abstract ? offsetof(struct sockaddr_un, sun_path) + len : sizeof(*sun));
}

/*
 * call-seq:
 *    Kgio::UNIXSocket.new(path) -> socket
 *
 * Connects to the UNIX socket of that path. Errno if connect(2) fails: Errno::EAGAIN when the
 * server's backlog is full. ArgumentError for a path that is too long.
 */
static VALUE unix_new(VALUE klass, VALUE path) {
    struct address address;
    unix_address(&address, path);
    return connect_to(klass, &address, true);
}

/*
 * call-seq:
 *    Kgio::UNIXSocket.start(path) -> socket
 *
 * As new, but never waits.
 */
static VALUE unix_start(VALUE klass, VALUE path) {
    struct address address;
    unix_address(&address, path);
    return connect_to(klass, &address, false);
}

/* --- Kgio::Socket. */

static void packed_address(struct address *address, VALUE packed) {
    if (!RB_TYPE_P(packed, T_STRING))
        rb_raise(rb_eTypeError, "an address must be a String, of Socket.pack_sockaddr_in say");
    size_t len = (size_t)RSTRING_LEN(packed);
    address->storage.ss_family = AF_UNSPEC;
    memcpy(&address->storage, RSTRING_PTR(packed),
           len < sizeof(address->storage) ? len : sizeof(address->storage));
    /* What is longer than any address gets its EINVAL from the kernel. */
    address->length =
        (socklen_t)(len <= sizeof(address->storage) ? len : sizeof(address->storage) + 1);
}

static void check_family(const struct address *address) {
    int family = address->length < sizeof(sa_family_t) ? AF_UNSPEC : address->storage.ss_family;
    if (family != AF_INET && family != AF_INET6 && family != AF_UNIX)
        rb_raise(rb_eArgError, "address family %d is not AF_INET, AF_INET6 or AF_UNIX", family);
}

static VALUE socket_connect_to(VALUE klass, VALUE packed, bool wait) {
    struct address address;
    packed_address(&address, packed);
    check_family(&address);
    return connect_to(klass, &address, wait);
}

/*
 * call-seq:
 *    Kgio::Socket.connect(sockaddr) -> socket
 *
 * Connects a stream socket to an address as Socket.pack_sockaddr_in and Socket.pack_sockaddr_un
 * make it. Waits and raises as Kgio::TCPSocket.new.
 */
static VALUE socket_connect(VALUE klass, VALUE packed) {
    return socket_connect_to(klass, packed, true);
}

/*
 * call-seq:
 *    Kgio::Socket.start(sockaddr) -> socket
 *
 * As connect, but never waits.
 */
static VALUE socket_start(VALUE klass, VALUE packed) {
    return socket_connect_to(klass, packed, false);
}

/*
 * call-seq:
 *    Kgio::Socket.new(sockaddr) -> socket
 *    Kgio::Socket.new(domain, type, protocol = 0) -> socket
 *
 * With one argument, as connect; else as Socket.new.
 */
static VALUE socket_new(int argc, VALUE *argv, VALUE klass) {
    return argc == 1 ? socket_connect_to(klass, argv[0], true) : rb_call_super(argc, argv);
}

/* --- TCP Fast Open. */

#if !defined(MSG_FASTOPEN) && defined(__linux__)
#define MSG_FASTOPEN 0x20000000
#endif
#if !defined(TCP_FASTOPEN) && defined(__linux__)
#define TCP_FASTOPEN 23
#endif

#ifdef MSG_FASTOPEN
struct fastopen {
    VALUE string;
    const struct address *address;
    ssize_t result;
    int fd, error;
    bool called; /* not so if an interrupt was pending */
};

static void *fastopen_without_gvl(void *data) {
    struct fastopen *f = data;
    f->called = true;
    f->result = sendto(f->fd, RSTRING_PTR(f->string), (size_t)RSTRING_LEN(f->string), MSG_FASTOPEN,
                       (const struct sockaddr *)&f->address->storage, f->address->length);
    f->error = errno;
    return NULL;
}

/*
 * call-seq:
 *    socket.kgio_fastopen(object, sockaddr) -> nil or string
 *
 * Connects and sends the first bytes, object.to_s, in one step, by TCP Fast Open (sendto(2) with
 * MSG_FASTOPEN). Returns nil, or a String with the bytes that were not sent.
 *
 * On a socket in blocking mode this blocks, the thread, though not the others; a time limit can be
 * set with SO_SNDTIMEO. On others it raises Errno::EINPROGRESS, since Kgio::Socket.new makes them
 * so: IO#nonblock= changes it. Errno as sendto(2).
 */
static VALUE kgio_fastopen(VALUE self, VALUE object, VALUE packed) {
    struct address address;
    struct ea_known known;
    VALUE string = rb_str_new_frozen(rb_obj_as_string(object));
    struct fastopen f = {.string = string, .address = &address};

    packed_address(&address, packed);
    do {
        ea_kgio_begin(self, &known);
        f.fd = known.fd.fd;
        rb_nogvl(fastopen_without_gvl, &f, RUBY_UBF_IO, NULL, RB_NOGVL_INTR_FAIL);
        if (!f.called || (f.result < 0 && f.error == EINTR))
            rb_thread_check_ints();
    } while (!f.called);
    if (f.result < 0)
        ea_kgio_fail(f.error, "sendto");
    if (f.result < RSTRING_LEN(string))
        return rb_str_subseq(string, f.result, RSTRING_LEN(string) - f.result);
    RB_GC_GUARD(string);
    return Qnil;
}
#endif

void ea_kgio_define_connect(const struct ea_kgio_modules *m) {
    rb_define_singleton_method(m->tcp_socket, "new", tcp_new, 2);
    rb_define_singleton_method(m->tcp_socket, "start", tcp_start, 2);
    rb_define_singleton_method(m->unix_socket, "new", unix_new, 1);
    rb_define_singleton_method(m->unix_socket, "start", unix_start, 1);
    rb_define_singleton_method(m->socket, "new", socket_new, -1);
    rb_define_singleton_method(m->socket, "connect", socket_connect, 1);
    rb_define_singleton_method(m->socket, "start", socket_start, 1);
#ifdef MSG_FASTOPEN
    rb_define_method(m->socket, "kgio_fastopen", kgio_fastopen, 2);
    rb_define_const(m->kgio, "MSG_FASTOPEN", INT2FIX(MSG_FASTOPEN));
#endif
#ifdef TCP_FASTOPEN
    rb_define_const(m->kgio, "TCP_FASTOPEN", INT2FIX(TCP_FASTOPEN));
#endif
}
