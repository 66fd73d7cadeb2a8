/* The extension's entry point, and what it tells of itself. */
#include "calls.h"
#include "scheduler.h"

void Init_eagain(void);

RUBY_FUNC_EXPORTED void Init_eagain(void) {
#ifdef HAVE_RB_EXT_RACTOR_SAFE
    rb_ext_ractor_safe(true);
#endif
    VALUE module = rb_define_module("Eagain");
    VALUE klass = rb_define_class_under(module, "Scheduler", rb_cObject);
    VALUE names = rb_ary_new();
    for (const struct ea_poll_backend *const *b = ea_poll_backends(); *b; b++)
        rb_ary_push(names, rb_str_freeze(rb_usascii_str_new_cstr((*b)->name)));
    rb_ary_freeze(names);
    rb_define_const(module, "BACKENDS", names);
    rb_define_const(klass, "INTERFACE_VERSION", INT2FIX(EA_RB_SCHEDULER_VERSION));
    ea_init_jobs();
    ea_init_scheduler(klass);
    ea_init_hooks(klass);
    ea_init_timeouts(klass);
    ea_init_io(klass);
    ea_init_transfer(klass);
    ea_init_select(klass);
    ea_init_blocking(klass);
    ea_init_script(module);
    ea_init_descriptor();
    ea_init_memory(module);
    ea_init_wait(module);
    ea_init_twins(module);
    ea_init_try_stream(module);
    ea_init_try_socket(module);
    ea_init_try_message(module);
    ea_init_try_accept(module);
    ea_init_try_file(module);
    ea_init_nonblock(module);
    ea_init_fast(module);
    ea_init_api(module);
    ea_init_kgio(module);
    ea_init_buffered(module);
}
