/* The guards that tell memory.c when a number, or a blocking mode, may become another: methods in front of
 * Ruby's own, which each of them runs. Put up by eagain/io.rb. */
#include "memory.h"

#include <fcntl.h>
#include <sys/ioctl.h>

struct guarded {
    VALUE io;
    int argc;
    const VALUE *argv;
    int number; /* before; -1: none */
};

static VALUE run_guarded(VALUE pointer) {
    const struct guarded *g = (const void *)pointer;
    return rb_call_super_kw(g->argc, g->argv, RB_PASS_CALLED_KEYWORDS);
}

static VALUE end_guarded(VALUE pointer) {
    const struct guarded *g = (const void *)pointer;
    if (g->number >= 0)
        ea_memory_flux(g->number, false);
    int number = ea_bare_number(g->io); /* IO#reopen may have opened what was closed */
    if (number != g->number)
        ea_memory_forget(number);
    return Qnil;
}

/* Ages the number that the object has, from before the method to its end. */
static VALUE guarded(int argc, VALUE *argv, VALUE self) {
    struct guarded g = {self, argc, argv, ea_bare_number(self)};
    if (g.number >= EA_FACTS_MAX)
        g.number = -1;
    if (g.number >= 0)
        ea_memory_flux(g.number, true);
    return rb_ensure(run_guarded, (VALUE)&g, end_guarded, (VALUE)&g);
}

static VALUE end_guarded_mode(VALUE unused) {
    (void)unused;
    ea_modes_flux(false);
    return Qnil;
}

/* Ages all modes. */
static VALUE guarded_mode(int argc, VALUE *argv, VALUE self) {
    struct guarded g = {self, argc, argv, -1};
    ea_modes_flux(true);
    return rb_ensure(run_guarded, (VALUE)&g, end_guarded_mode, Qnil);
}

static VALUE guarded_fcntl(int argc, VALUE *argv, VALUE self) {
    if (argc > 0 && FIXNUM_P(argv[0]) && FIX2LONG(argv[0]) != F_SETFL)
        return rb_call_super(argc, argv);
    return guarded_mode(argc, argv, self);
}

static VALUE guarded_ioctl(int argc, VALUE *argv, VALUE self) {
    if (argc > 0 && FIXNUM_P(argv[0]) && FIX2LONG(argv[0]) != FIONBIO)
        return rb_call_super(argc, argv);
    return guarded_mode(argc, argv, self);
}

/* The guards are up: from here on it is safe to remember. */
static VALUE trust(VALUE self) {
    (void)self;
    ea_memory_trust();
    return Qnil;
}

void ea_init_guards(VALUE memory) {
    rb_define_singleton_method(memory, "trust", trust, 0);
    VALUE guard = rb_define_module_under(memory, "IOGuard");
    rb_define_method(guard, "reopen", guarded, -1);
    rb_define_method(guard, "close", guarded, -1);
    rb_define_method(guard, "nonblock", guarded_mode, -1);
    rb_define_method(guard, "nonblock=", guarded_mode, -1);
    rb_define_method(guard, "fcntl", guarded_fcntl, -1);
    rb_define_method(guard, "ioctl", guarded_ioctl, -1);
    VALUE halves = rb_define_module_under(memory, "HalfGuard"); /* of IO, and of BasicSocket */
    rb_define_method(halves, "close_read", guarded, -1);
    rb_define_method(halves, "close_write", guarded, -1);
    guard = rb_define_module_under(memory, "SocketGuard");
    rb_define_method(guard, "connect", guarded, -1);
    rb_define_method(guard, "connect_nonblock", guarded, -1);
}
