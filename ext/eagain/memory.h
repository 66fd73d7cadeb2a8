/* What memory.c tells of sockets to the calls that make or connect them; the rest is in calls.h. */
#ifndef EA_RB_MEMORY_H
#define EA_RB_MEMORY_H

#include "calls.h"

/* ea_socket_begin(), and FrozenError of what is frozen, as the methods of Ruby's sockets do. */
void ea_socket_known(VALUE socket, struct ea_known *known);

/* O_NONBLOCK of the socket's description. Asked of the kernel when it is not remembered. */
enum ea_mode { EA_MODE_UNKNOWN, EA_MODE_NONBLOCKING, EA_MODE_BLOCKING };

enum ea_mode ea_socket_mode(VALUE socket);
/* For as long as one attempt to connect lasts; EA_MODE_UNKNOWN forgets. */
void ea_socket_remember_mode(VALUE socket, enum ea_mode mode);

/* Is it a listener? Remembered even where no guard stands: all that a wrong answer can do is to let
 * tryaccept say "would block" where accept(2) says EINVAL. */
bool ea_socket_listens(VALUE socket, int number);

/* May accept(2) be called on this listener without asking poll(2) first? Only if it is known to be
 * non-blocking: remembered, where the guards stand. Does not raise. */
bool ea_listener_nonblocks(VALUE server, int number);

/* The age of a number (memory.c), to see whether it still is what it was; 0: one cannot tell. */
uint32_t ea_memory_age(int number);

/* Is anything to be remembered? False until require "eagain/io" has put up the guards. */
bool ea_memory_trusted(void);

/* The socket was accepted just now, from the server when that was the descriptor `listener` of this
 * age (other threads may have run since), and from this peer. Does not raise because of the server. */
void ea_socket_remember_accepted(VALUE socket, VALUE server, int listener, uint32_t age,
                                 const struct sockaddr *peer, socklen_t length);

/* The number holds something new, or its addresses have changed: whoever remembers something of it
 * does so no more. */
void ea_memory_forget(int number);

/* --- For the guards (guards.c). */

/* The number of an IO; -1 when it is closed. Does not raise. */
int ea_bare_number(VALUE io);
/* A number below EA_FACTS_MAX is about to change hands: nothing is remembered of it until that ends, and
 * nothing of before then. Calls may be nested. */
void ea_memory_flux(int number, bool begins);
/* The same of all blocking modes. */
void ea_modes_flux(bool begins);
/* The guards are up: from here on it is safe to remember. */
void ea_memory_trust(void);
void ea_init_guards(VALUE memory);

#endif
