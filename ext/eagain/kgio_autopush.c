/* autopush: a corked socket that was written to is pushed when it is read from next.
 *
 * TCP_CORK holds small writes back until a segment is full. A server that has it on its listener,
 * and so on what it accepts, need not care where an answer ends: to ask for the next request is to
 * have ended it. Then the cork is taken out and put back.
 *
 * A socket without autopush has no state; with it Qfalse, and Qtrue from a write to the next read.
 * A listener remembers whether it is corked, from its first connection on. */
#include "kgio.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>

#if defined(TCP_CORK)
#define CORK TCP_CORK
#elif defined(TCP_NOPUSH)
#define CORK TCP_NOPUSH
#endif

_Atomic bool ea_kgio_pushing;

static _Atomic bool enabled = true; /* Kgio.autopush? */
static ID id_state;                 /* of sockets and listeners; no name that Ruby can say */

static VALUE state_of(VALUE object) {
    return rb_attr_get(object, id_state);
}

static void set_state(VALUE object, VALUE state) {
    rb_ivar_set(object, id_state, state);
}

static void give(VALUE socket) {
    set_state(socket, Qfalse);
    atomic_store_explicit(&ea_kgio_pushing, true, memory_order_relaxed);
}

void ea_kgio_wrote(VALUE socket) {
    if (state_of(socket) == Qfalse)
        set_state(socket, Qtrue);
}

void ea_kgio_push(VALUE socket) {
    if (state_of(socket) != Qtrue)
        return;
    struct ea_known known;
    ea_kgio_begin(socket, &known);
#ifdef CORK
    for (int cork = 0; cork <= 1; cork++) {
        if (setsockopt(known.fd.fd, IPPROTO_TCP, CORK, &cork, sizeof(cork)) != 0)
            ea_kgio_fail(errno, "setsockopt(TCP_CORK)");
    }
#endif
    set_state(socket, Qfalse);
}

void ea_kgio_accepted(VALUE server, int server_number, VALUE accepted) {
    if (!atomic_load_explicit(&enabled, memory_order_relaxed))
        return;
    VALUE corked = state_of(server);
    if (NIL_P(corked)) {
        int cork = 0;
#ifdef CORK
        socklen_t length = sizeof(cork);
        if (getsockopt(server_number, IPPROTO_TCP, CORK, &cork, &length) != 0)
            cork = 0;
#endif
        corked = cork ? Qtrue : Qfalse;
        if (!OBJ_FROZEN(server))
            set_state(server, corked);
    }
    if (RTEST(corked))
        give(accepted);
}

/*
 * call-seq:
 *    Kgio.autopush? -> true or false
 *
 * Do accepted sockets get autopush? True at first.
 */
static VALUE s_autopush_p(VALUE self) {
    return atomic_load_explicit(&enabled, memory_order_relaxed) ? Qtrue : Qfalse;
}

/*
 * call-seq:
 *    Kgio.autopush = boolean
 *
 * Whether sockets that are accepted from now on, from a TCP listener with TCP_CORK (elsewhere
 * TCP_NOPUSH), get autopush: kgio_read and its kin first push what kgio_write and its kin have
 * written. A listener is asked for its TCP_CORK once.
 */
static VALUE s_set_autopush(VALUE self, VALUE on) {
    atomic_store_explicit(&enabled, RTEST(on), memory_order_relaxed);
    return on;
}

/*
 * call-seq:
 *    socket.kgio_autopush? -> true or false
 */
static VALUE autopush_p(VALUE self) {
    return NIL_P(state_of(self)) ? Qfalse : Qtrue;
}

/*
 * call-seq:
 *    socket.kgio_autopush = boolean
 *
 * Gives this socket autopush, or takes it. TCP_CORK itself is not touched before the first push,
 * which needs a TCP socket: else the next read after a write raises Errno.
 */
static VALUE set_autopush(VALUE self, VALUE on) {
    if (!RTEST(on))
        set_state(self, Qnil);
    else if (NIL_P(state_of(self)))
        give(self);
    return on;
}

void ea_kgio_define_autopush(const struct ea_kgio_modules *m) {
    id_state = rb_intern("kgio autopush state");
    rb_define_singleton_method(m->kgio, "autopush?", s_autopush_p, 0);
    rb_define_singleton_method(m->kgio, "autopush=", s_set_autopush, 1);
    rb_define_method(m->socket_methods, "kgio_autopush?", autopush_p, 0);
    rb_define_method(m->socket_methods, "kgio_autopush=", set_autopush, 1);
}
