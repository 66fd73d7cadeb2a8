/* What we use of Ruby's socket library, which a program may load late or never: classes, addresses. */
#ifndef EA_RB_SOCKET_LIB_H
#define EA_RB_SOCKET_LIB_H

#include <ruby.h>

#include <stdbool.h>
#include <sys/socket.h>

enum ea_socket_class {
    EA_ADDRINFO,
    EA_ANCILLARY_DATA,
    EA_BASIC_SOCKET,
    EA_IP_SOCKET,
    EA_SOCKET,
    EA_SOCKET_ERROR,
    EA_TCP_SERVER,
    EA_TCP_SOCKET,
    EA_UNIX_SERVER,
    EA_UNIX_SOCKET,
    EA_SOCKET_CLASSES,
};

/* Qfalse while it is not there; runs none of the program's code. It is kept, and not moved. */
VALUE ea_socket_class(enum ea_socket_class which);
/* Is it an instance of one? Of a class that is not there nothing is. */
bool ea_is_a(VALUE object, enum ea_socket_class which);

/* The family in an address of len bytes; AF_UNSPEC if that is too short to have one. */
sa_family_t ea_sockaddr_family(const void *address, size_t len);
/* An Addrinfo as Ruby's own methods give: of the address's own family, with the socket's type and without
 * a protocol. */
VALUE ea_addrinfo(VALUE sockaddr, int type);
/* An address for sendto(2) as Ruby takes it, an Addrinfo or a String (to_str): the String. */
VALUE ea_to_sockaddr(VALUE address);

#endif
