/* What a socket is and where it leads, kept with the IO object, so that the kernel is asked once.
 *
 * The memory is one frozen String in a hidden instance variable: a struct memory, then the bytes of
 * the two addresses. Sockets that never needed one have none. A String and not a wrapped struct, so
 * that an IO may be moved to another Ractor. It dies with the object; a close ends its use.
 *
 * An object is not its descriptor. The memory carries the number it speaks of (a dup copies
 * instance variables, and has another number) and the age of that number, a counter for the whole
 * process. A number ages when something else may be behind it: by IO#reopen of any object that has
 * it, by IO#close, by close_read and close_write, which may close it, when a new socket of ours gets it, when a connection is dissolved. Ruby does not
 * tell of these, so guards in front of its methods (guards.c) do, and nothing but EA_LISTENS is remembered
 * before require "eagain/io" has put them up. What they cannot see is C code that calls close(2) or
 * dup2(2), and an IO that the garbage collector closes while another object still has its number
 * (IO.for_fd without autoclose: false): then the addresses are those of the earlier socket.
 *
 * While a guarded method runs, the lowest byte of the age counts it: nothing is remembered of a
 * number that is about to change hands.
 *
 * An address is remembered when it is final: of a connected stream or SOCK_SEQPACKET socket.
 * Datagram sockets are connected again at will, through a copy with another number too: they are
 * always asked.
 *
 * The blocking mode belongs to the open file description, and so to all copies of a descriptor: it is
 * remembered for one attempt to connect, and of listeners until any IO of this process changes the
 * mode of anything (IO#nonblock=, IO#nonblock, F_SETFL, FIONBIO; all modes have one age). What is not
 * seen is a change by C code or by another process that shares the listener. If that makes it
 * non-blocking, accept(2) takes a system call more than it must. If that makes a listener blocking
 * that was not, tryaccept waits in it for the next connection, with the GVL: whoever has such company
 * says nonblock= once more, or makes new objects. Ruby itself takes O_NONBLOCK from the standard
 * streams, in each child that it starts, so that of these no mode is remembered.
 *
 * All with the GVL; the ages are atomic for the sake of Ractors. */
#include "memory.h"

#include <errno.h>
#include <fcntl.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <unistd.h>

enum {
    EA_FAMILY = 1 << 0,
    EA_TYPE = 1 << 1,
    EA_PROTOCOL = 1 << 2,
    EA_NONBLOCKS = 1 << 3,
    EA_BLOCKS = 1 << 4,
    EA_LISTENS = 1 << 5,
    EA_MODE_HIDDEN = 1 << 6, /* it was asked for and cannot be had */
};

#define EA_MODE_BITS ((uint32_t)(EA_NONBLOCKS | EA_BLOCKS | EA_MODE_HIDDEN))

struct memory {
    int32_t number;
    uint32_t age;   /* of the number, when this was learnt */
    uint32_t known; /* which of the following mean something, and EA_BLOCKS... */
    int32_t family, type, protocol;
    uint32_t modes;       /* the age of the modes when this one was learnt */
    uint16_t peer, local; /* the lengths of the addresses that follow, 0: not known */
};

/* A memory that is being made or changed. */
struct draft {
    struct memory facts;
    char addresses[2 * sizeof(struct sockaddr_storage)];
};

#define IN_FLUX 0xffu
#define GENERATION (IN_FLUX + 1)

static _Atomic uint32_t ages[EA_FACTS_MAX];
static _Atomic uint32_t modes; /* the age of all blocking modes */
static atomic_bool trusted;    /* the guards are up */

static ID id_memory;

bool ea_memory_trusted(void) {
    return atomic_load_explicit(&trusted, memory_order_relaxed);
}

void ea_memory_forget(int number) {
    if (number >= 0 && number < EA_FACTS_MAX)
        atomic_fetch_add_explicit(&ages[number], GENERATION, memory_order_relaxed);
}

#ifdef HAVE_RB_IO_T_FD
int ea_bare_number(VALUE io) {
    rb_io_t *fptr = RFILE(io)->fptr;
    return fptr ? fptr->fd : -1;
}
#else
int ea_bare_number(VALUE io) {
    return RTEST(rb_funcall(io, rb_intern("closed?"), 0)) ? -1 : rb_io_descriptor(io);
}
#endif

void ea_memory_trust(void) {
    atomic_store_explicit(&trusted, true, memory_order_relaxed);
}

void ea_memory_flux(int number, bool begins) {
    atomic_fetch_add_explicit(&ages[number], begins ? 1 : GENERATION - 1, memory_order_relaxed);
}

void ea_modes_flux(bool begins) {
    atomic_fetch_add_explicit(&modes, begins ? 1 : GENERATION - 1, memory_order_relaxed);
}

/* --- Recall and remember. */

void ea_socket_known(VALUE socket, struct ea_known *known) {
    if (RB_TYPE_P(socket, T_FILE))
        rb_check_frozen(socket);
    ea_socket_begin(socket, known);
}

/* The descriptor's number; raises as ea_socket_known(). */
static int number_of(VALUE socket) {
    struct ea_known known;
    ea_socket_known(socket, &known);
    return known.fd.fd;
}

/* The age of a number that nobody is about to exchange; false otherwise. */
static bool settled_age(int number, uint32_t *age) {
    if (number >= EA_FACTS_MAX)
        return false;
    *age = atomic_load_explicit(&ages[number], memory_order_relaxed);
    return !(*age & IN_FLUX);
}

uint32_t ea_memory_age(int number) {
    uint32_t age;
    return settled_age(number, &age) ? age + 1 : 0;
}

/* What is remembered, as a String; Qnil if nothing is, or it speaks of something else. */
static VALUE recall(VALUE socket, int number) {
    VALUE string = rb_attr_get(socket, id_memory);
    if (NIL_P(string))
        return Qnil;
    /* Before Ruby 3.2 an object whose class IO#reopen has changed may have its variables mixed up. */
    struct memory facts;
    if (RB_UNLIKELY(!RB_TYPE_P(string, T_STRING) || (size_t)RSTRING_LEN(string) < sizeof(facts)))
        return Qnil;
    memcpy(&facts, RSTRING_PTR(string), sizeof(facts));
    if (RB_UNLIKELY((size_t)RSTRING_LEN(string) != sizeof(facts) + facts.peer + facts.local))
        return Qnil;
    uint32_t age;
    return facts.number == number && settled_age(number, &age) && facts.age == age ? string : Qnil;
}

static bool recall_facts(VALUE socket, int number, struct memory *facts) {
    VALUE string = recall(socket, number);
    if (NIL_P(string))
        return false;
    memcpy(facts, RSTRING_PTR(string), sizeof(*facts));
    return true;
}

/* Begins a draft with all that is remembered. False when nothing can be remembered of this one. */
static bool begin(struct draft *draft, VALUE socket, int number) {
    draft->facts = (struct memory){.number = number};
    if (RB_OBJ_FROZEN(socket) || !settled_age(number, &draft->facts.age))
        return false;
    VALUE string = recall(socket, number);
    if (!NIL_P(string))
        memcpy(draft, RSTRING_PTR(string), (size_t)RSTRING_LEN(string));
    return true;
}

static void set_address(struct draft *draft, uint16_t *which, const void *address, size_t length) {
    if (length > sizeof(struct sockaddr_storage))
        return;
    char *peer = draft->addresses;
    if (which == &draft->facts.peer) {
        memmove(peer + length, peer + draft->facts.peer, draft->facts.local);
        memcpy(peer, address, length);
    } else {
        memcpy(peer + draft->facts.peer, address, length);
    }
    *which = (uint16_t)length;
}

static void end(const struct draft *draft, VALUE socket) {
    size_t length =
        offsetof(struct draft, addresses) + draft->facts.peer + (size_t)draft->facts.local;
    rb_ivar_set(socket, id_memory, rb_str_freeze(rb_str_new((const char *)draft, (long)length)));
}

/* --- Family, type, protocol. */

/* One of the three; *value, or false with errno. */
static bool ask(int number, uint32_t fact, int *value) {
    int option = SO_TYPE;
    if (fact == EA_FAMILY) {
#ifdef SO_DOMAIN
        option = SO_DOMAIN;
#else
        struct sockaddr_storage name = {0};
        socklen_t size = sizeof(name);
        *value = 0;
        if (getsockname(number, (struct sockaddr *)&name, &size) != 0)
            return false;
        *value = name.ss_family;
        return true;
#endif
    } else if (fact == EA_PROTOCOL) {
#ifdef SO_PROTOCOL
        option = SO_PROTOCOL;
#else
        *value = 0; /* what socket(2) was given nearly always: the default of family and type */
        return true;
#endif
    }
    socklen_t length = sizeof(*value);
    return getsockopt(number, SOL_SOCKET, option, value, &length) == 0;
}

/* From memory, else from the kernel; -1 with errno when it cannot be had. */
static int fact_of(VALUE socket, int number, uint32_t fact) {
    struct memory facts;
    if (recall_facts(socket, number, &facts) && (facts.known & fact)) {
        if (fact == EA_FAMILY)
            return facts.family;
        return fact == EA_TYPE ? facts.type : facts.protocol;
    }
    int value;
    if (!ask(number, fact, &value))
        return -1;
    struct draft draft;
    if (ea_memory_trusted() && begin(&draft, socket, number)) {
        if (fact == EA_FAMILY)
            draft.facts.family = value;
        else if (fact == EA_TYPE)
            draft.facts.type = value;
        else
            draft.facts.protocol = value;
        draft.facts.known |= fact;
        end(&draft, socket);
    }
    return value;
}

int ea_socket_family(VALUE socket) {
    return fact_of(socket, number_of(socket), EA_FAMILY);
}

int ea_socket_type(VALUE socket) {
    return fact_of(socket, number_of(socket), EA_TYPE);
}

int ea_socket_protocol(VALUE socket) {
    return fact_of(socket, number_of(socket), EA_PROTOCOL);
}

/* --- Blocking mode, listening. */

/* The flags of the open file description, as proc_pid_fdinfo(5) has them: what fcntl(F_GETFL) says,
 * in a way that leaves the socket alone. */
static enum ea_mode ask_mode(int number) {
    char text[256];
    snprintf(text, sizeof(text), "/proc/self/fdinfo/%d", number);
    int info = open(text, O_RDONLY | O_CLOEXEC);
    if (info < 0)
        return EA_MODE_UNKNOWN;
    ssize_t length = read(info, text, sizeof(text) - 1);
    close(info);
    if (length <= 0)
        return EA_MODE_UNKNOWN;
    text[length] = 0;
    const char *flags = strstr(text, "flags:");
    if (!flags)
        return EA_MODE_UNKNOWN;
    return strtoul(flags + strlen("flags:"), NULL, 8) & O_NONBLOCK ? EA_MODE_NONBLOCKING
                                                                   : EA_MODE_BLOCKING;
}

/* The bits of the mode that is remembered; 0: none. */
static uint32_t recall_mode(VALUE socket, int number) {
    struct memory facts;
    if (!recall_facts(socket, number, &facts) || !(facts.known & EA_MODE_BITS))
        return 0;
    uint32_t age = atomic_load_explicit(&modes, memory_order_relaxed);
    return facts.modes == age && !(age & IN_FLUX) ? facts.known & EA_MODE_BITS : 0;
}

/* Remembers it as of an age of the modes; bits 0: none. */
static void remember_mode(VALUE socket, int number, uint32_t bits, uint32_t age) {
    struct draft draft;
    if (!ea_memory_trusted() || !begin(&draft, socket, number))
        return;
    draft.facts.known = (draft.facts.known & ~EA_MODE_BITS) | bits;
    draft.facts.modes = age;
    end(&draft, socket);
}

enum ea_mode ea_socket_mode(VALUE socket) {
    int number = number_of(socket);
    uint32_t known = recall_mode(socket, number);
    if (known & (EA_BLOCKS | EA_NONBLOCKS))
        return known & EA_BLOCKS ? EA_MODE_BLOCKING : EA_MODE_NONBLOCKING;
    return ask_mode(number);
}

void ea_socket_remember_mode(VALUE socket, enum ea_mode mode) {
    int number = number_of(socket);
    uint32_t bit = 0;
    if (mode == EA_MODE_BLOCKING)
        bit = EA_BLOCKS;
    else if (mode == EA_MODE_NONBLOCKING)
        bit = EA_NONBLOCKS;
    if (recall_mode(socket, number) != bit)
        remember_mode(socket, number, bit, atomic_load_explicit(&modes, memory_order_relaxed));
}

bool ea_listener_nonblocks(VALUE server, int number) {
    if (!ea_memory_trusted() || number <= STDERR_FILENO)
        return false;
    uint32_t known = recall_mode(server, number);
    if (RB_LIKELY(known))
        return known & EA_NONBLOCKS;
    uint32_t age = atomic_load_explicit(&modes, memory_order_relaxed);
    if (age & IN_FLUX || RB_OBJ_FROZEN(server))
        return false;
    errno = 0;
    switch (ask_mode(number)) {
    case EA_MODE_NONBLOCKING:
        known = EA_NONBLOCKS;
        break;
    case EA_MODE_BLOCKING:
        known = EA_BLOCKS;
        break;
    default: /* without a descriptor for it, ask again */
        known = errno == EMFILE || errno == ENFILE || errno == ENOMEM ? 0 : EA_MODE_HIDDEN;
    }
    remember_mode(server, number, known, age);
    return known & EA_NONBLOCKS;
}

bool ea_socket_listens(VALUE socket, int number) {
    struct memory facts;
    if (recall_facts(socket, number, &facts) && (facts.known & EA_LISTENS))
        return true;
    int listens = 0;
    socklen_t length = sizeof(listens);
    if (getsockopt(number, SOL_SOCKET, SO_ACCEPTCONN, &listens, &length) != 0 || !listens)
        return false;
    struct draft draft;
    if (begin(&draft, socket, number)) {
        draft.facts.known |= EA_LISTENS;
        end(&draft, socket);
    }
    return true;
}

/* --- Addresses. */

static bool connects_for_good(int type) {
    return type == SOCK_STREAM || type == SOCK_SEQPACKET;
}

void ea_socket_remember_accepted(VALUE socket, VALUE server, int listener, uint32_t age,
                                 const struct sockaddr *peer, socklen_t length) {
    if (!ea_memory_trusted() || ea_bare_number(server) != listener || !age ||
        ea_memory_age(listener) != age)
        return;
    int family = fact_of(server, listener, EA_FAMILY);
    int type = fact_of(server, listener, EA_TYPE);
    int protocol = fact_of(server, listener, EA_PROTOCOL);
    struct draft draft;
    if (family < 0 || type < 0 || protocol < 0 || !begin(&draft, socket, number_of(socket)))
        return;
    draft.facts.known |= EA_FAMILY | EA_TYPE | EA_PROTOCOL;
    draft.facts.family = family;
    draft.facts.type = type;
    draft.facts.protocol = protocol;
    if (connects_for_good(type))
        set_address(&draft, &draft.facts.peer, peer, length);
    end(&draft, socket);
}

void ea_socket_remember_peer(VALUE socket, VALUE sockaddr) {
    int number = number_of(socket);
    struct draft draft;
    if (!ea_memory_trusted() || !connects_for_good(fact_of(socket, number, EA_TYPE)) ||
        !begin(&draft, socket, number))
        return;
    set_address(&draft, &draft.facts.peer, RSTRING_PTR(sockaddr), (size_t)RSTRING_LEN(sockaddr));
    end(&draft, socket);
    RB_GC_GUARD(sockaddr);
}

static VALUE frozen(const void *address, size_t length) {
    return rb_str_freeze(rb_str_new(address, (long)length));
}

VALUE ea_socket_peer(VALUE socket) {
    int number = number_of(socket);
    VALUE string = recall(socket, number);
    if (!NIL_P(string)) {
        const struct draft *known = (const void *)RSTRING_PTR(string);
        if (known->facts.peer) {
            char peer[sizeof(struct sockaddr_storage)];
            size_t length = known->facts.peer;
            memcpy(peer, known->addresses, length);
            return frozen(peer, length);
        }
    }
    struct sockaddr_storage address;
    socklen_t length = sizeof(address);
    if (getpeername(number, (struct sockaddr *)&address, &length) != 0)
        rb_syserr_fail(errno, "getpeername(2)");
    if (length > sizeof(address))
        length = sizeof(address);
    VALUE peer = frozen(&address, length);
    ea_socket_remember_peer(socket, peer);
    return peer;
}

/* Final, and so remembered, where the peer is. */
VALUE ea_socket_local(VALUE socket) {
    int number = number_of(socket);
    VALUE string = recall(socket, number);
    if (!NIL_P(string)) {
        const struct draft *known = (const void *)RSTRING_PTR(string);
        if (known->facts.local) {
            char local[sizeof(struct sockaddr_storage)];
            size_t length = known->facts.local;
            memcpy(local, known->addresses + known->facts.peer, length);
            return frozen(local, length);
        }
    }
    struct sockaddr_storage address;
    socklen_t length = sizeof(address);
    if (getsockname(number, (struct sockaddr *)&address, &length) != 0)
        rb_syserr_fail(errno, "getsockname(2)");
    if (length > sizeof(address))
        length = sizeof(address);
    VALUE local = frozen(&address, length);
    struct draft draft;
    if (!NIL_P(string) && ea_memory_trusted() && begin(&draft, socket, number) &&
        draft.facts.peer) {
        set_address(&draft, &draft.facts.local, &address, length);
        end(&draft, socket);
    }
    return local;
}

static VALUE to_addrinfo(VALUE socket, VALUE sockaddr) {
    int type = fact_of(socket, number_of(socket), EA_TYPE);
    if (type < 0)
        rb_syserr_fail(errno, "getsockopt(SO_TYPE)");
    return ea_addrinfo(sockaddr, type);
}

/* --- In Ruby. */

/*
 * call-seq:
 *   Eagain.remote_address(socket) -> addrinfo
 *
 * The address that a socket is connected to: BasicSocket#remote_address, with its answers and its
 * errors. After <tt>require "eagain/io"</tt> the address of a connected stream or SOCK_SEQPACKET
 * socket is remembered, until it is closed or reopened: a socket from Eagain.tryaccept has it from
 * the start, others ask the kernel once. A connection that the peer has reset then still tells
 * where it led, where BasicSocket#remote_address without this raises Errno::ENOTCONN.
 *
 * Raises IOError when the socket is closed, TypeError when it is no BasicSocket. Never blocks.
 */
static VALUE remote_address(VALUE self, VALUE socket) {
    (void)self;
    socket = ea_to_io(socket);
    return to_addrinfo(socket, ea_socket_peer(socket));
}

/*
 * call-seq:
 *   Eagain.local_address(socket) -> addrinfo
 *
 * The socket's own address: BasicSocket#local_address, with its answers and its errors. After
 * <tt>require "eagain/io"</tt> that of a connected socket whose remote address is remembered is,
 * too.
 *
 * Raises IOError when the socket is closed, TypeError when it is no BasicSocket. Never blocks.
 */
static VALUE local_address(VALUE self, VALUE socket) {
    (void)self;
    socket = ea_to_io(socket);
    return to_addrinfo(socket, ea_socket_local(socket));
}

/* :nodoc: */
static VALUE socket_remote_address(VALUE self) {
    return to_addrinfo(self, ea_socket_peer(self));
}

/* :nodoc: */
static VALUE socket_local_address(VALUE self) {
    return to_addrinfo(self, ea_socket_local(self));
}

void ea_init_memory(VALUE module) {
    id_memory = rb_intern("eagain_memory");
    rb_define_module_function(module, "remote_address", remote_address, 1);
    rb_define_module_function(module, "local_address", local_address, 1);

    VALUE memory = rb_define_module_under(module, "Memory");
    rb_funcall(module, rb_intern("private_constant"), 1, ID2SYM(rb_intern("Memory")));
    ea_init_guards(memory);
    VALUE addresses = rb_define_module_under(memory, "Addresses");
    rb_define_method(addresses, "remote_address", socket_remote_address, 0);
    rb_define_method(addresses, "local_address", socket_local_address, 0);
}
