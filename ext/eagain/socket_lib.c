/* See socket_lib.h. */
#include "socket_lib.h"

#include <stdatomic.h>
#include <stddef.h>
#include <string.h>

VALUE ea_socket_class(enum ea_socket_class which) {
    static const char *const names[EA_SOCKET_CLASSES] = {
        [EA_ADDRINFO] = "Addrinfo",
        [EA_ANCILLARY_DATA] = "AncillaryData",
        [EA_BASIC_SOCKET] = "BasicSocket",
        [EA_IP_SOCKET] = "IPSocket",
        [EA_SOCKET] = "Socket",
        [EA_SOCKET_ERROR] = "SocketError",
        [EA_TCP_SERVER] = "TCPServer",
        [EA_TCP_SOCKET] = "TCPSocket",
        [EA_UNIX_SERVER] = "UNIXServer",
        [EA_UNIX_SOCKET] = "UNIXSocket",
    };
    static _Atomic VALUE classes[EA_SOCKET_CLASSES]; /* Qfalse: not seen yet */
    VALUE klass = atomic_load_explicit(&classes[which], memory_order_relaxed);
    if (RB_LIKELY(klass))
        return klass;
    VALUE outer = which == EA_ANCILLARY_DATA ? ea_socket_class(EA_SOCKET) : rb_cObject;
    ID name = rb_intern(names[which]);
    /* To load it would run the program's code. */
    if (!outer || !rb_const_defined(outer, name) || RTEST(rb_autoload_p(outer, name)))
        return Qfalse;
    klass = rb_const_get(outer, name);
    rb_gc_register_mark_object(klass);
    atomic_store_explicit(&classes[which], klass, memory_order_relaxed);
    return klass;
}

bool ea_is_a(VALUE object, enum ea_socket_class which) {
    VALUE klass = ea_socket_class(which);
    return klass && RTEST(rb_obj_is_kind_of(object, klass));
}

sa_family_t ea_sockaddr_family(const void *address, size_t len) {
    sa_family_t family = AF_UNSPEC;
    size_t at = offsetof(struct sockaddr, sa_family);
    if (len >= at + sizeof(family))
        memcpy(&family, (const char *)address + at, sizeof(family));
    return family;
}

VALUE ea_addrinfo(VALUE sockaddr, int type) {
    int family = ea_sockaddr_family(RSTRING_PTR(sockaddr), (size_t)RSTRING_LEN(sockaddr));
    VALUE arguments[] = {sockaddr, INT2FIX(family), INT2NUM(type), INT2FIX(0)};
    return rb_class_new_instance(4, arguments, ea_socket_class(EA_ADDRINFO));
}

VALUE ea_to_sockaddr(VALUE address) {
    if (!RB_TYPE_P(address, T_STRING) && ea_is_a(address, EA_ADDRINFO))
        address = rb_funcall(address, rb_intern("to_sockaddr"), 0);
    StringValue(address);
    return address;
}
