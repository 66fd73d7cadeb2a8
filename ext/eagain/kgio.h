/* What the files of the kgio layer share. The layer is calls.h's core in another dress: the
 * methods, answers and habits of the kgio gem (2.11.4), for programs that were written for it.
 *
 * Its habits, where they are not ours: it goes to the descriptor and never looks into Ruby's
 * buffers; what a partial write left comes back as a String or an Array; SocketMethods insist on a
 * socket; errors name the system call; EPIPE, ECONNRESET and the end of file are raised without a
 * backtrace; who must wait calls the object's own kgio_wait_readable or kgio_wait_writable.
 *
 * Everything runs with the GVL, unless it says otherwise. */
#ifndef EA_RB_KGIO_H
#define EA_RB_KGIO_H

#include "calls.h"

/* Through which of the gem's doors a call came. */
enum ea_kgio_door {
    EA_KGIO_FILE,   /* PipeMethods, Kgio.tryread...: any descriptor */
    EA_KGIO_SOCKET, /* SocketMethods: ENOTSOCK for anything else, and autopush */
    EA_KGIO_PEEK,   /* the same, with MSG_PEEK */
};

/* Begins known for the IO behind an object and returns that IO: TypeError if there is none, IOError
 * when it is closed. Looks at no buffers and at no mode: the kernel will say EBADF. */
VALUE ea_kgio_begin(VALUE object, struct ea_known *known);

/* A would-block is one only of what was opened for that direction (FMODE_READABLE, FMODE_WRITABLE):
 * r, or -EBADF. Where poll(2) must be asked first it knows no other answer to the wrong direction.
 * */
ea_result ea_kgio_settled(VALUE io, ea_result r, int direction);

/* Raises the Errno of a failed call, named after it; without a backtrace where what happened is the
 * peer's doing. */
NORETURN(void ea_kgio_fail(int error, const char *call));
NORETURN(void ea_kgio_end_of_file(void));

/* Calls the object's kgio_wait_readable, kgio_wait_writable. */
void ea_kgio_wait_readable(VALUE object);
void ea_kgio_wait_writable(VALUE object);

/* Does this errno mean that descriptors or memory have run out? Then a collection may free some. */
bool ea_kgio_exhausted(int error);

/* A new IO of a class for a number that is ours, which is closed if that raises. #initialize does
 * not run. flags: of open(2), for the directions; path: Qnil, or a String. */
VALUE ea_kgio_file_new(VALUE klass, int number, int flags, VALUE path);
VALUE ea_kgio_socket_new(VALUE klass, int number);

/* The address of a peer as kgio_addr has it: "127.0.0.1", "::1"; of a UNIX socket Kgio::LOCALHOST.
 * */
VALUE ea_kgio_address(const struct sockaddr *addr, socklen_t length);

/* kgio_autopush.c. Around each call on a socket; nothing, until the first socket has autopush. */
extern _Atomic bool ea_kgio_pushing; /* there is such a socket */
void ea_kgio_push(VALUE socket);
void ea_kgio_wrote(VALUE socket);
/* accepted is new, from server (TCP). */
void ea_kgio_accepted(VALUE server, int server_number, VALUE accepted);

/* The modules and classes, for the files that define methods of them. */
struct ea_kgio_modules {
    VALUE kgio, waiters, pipe_methods, socket_methods;
    VALUE socket, tcp_socket, unix_socket; /* Kgio::Socket... */
};

void ea_kgio_define_accept(const struct ea_kgio_modules *modules);
void ea_kgio_define_autopush(const struct ea_kgio_modules *modules);
void ea_kgio_define_connect(const struct ea_kgio_modules *modules);
void ea_kgio_define_open(const struct ea_kgio_modules *modules);
void ea_kgio_define_poll(const struct ea_kgio_modules *modules);
void ea_kgio_define_read(const struct ea_kgio_modules *modules);
void ea_kgio_define_wait(const struct ea_kgio_modules *modules);
void ea_kgio_define_write(const struct ea_kgio_modules *modules);
void ea_kgio_define_writev(const struct ea_kgio_modules *modules);

#endif
