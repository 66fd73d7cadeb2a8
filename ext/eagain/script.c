/* A main program as the whole body of a fiber.
 *
 * Whatever Ruby code calls to run a script (load, InstructionSequence#eval) is a frame below the
 * script's, and shows in caller and in every backtrace. A proc whose body is C, calling rb_load, is none. */
#include "scheduler.h"

static VALUE load_file(RB_BLOCK_CALL_FUNC_ARGLIST(unused, path)) {
    (void)unused, (void)argc, (void)argv, (void)blockarg;
    rb_load(path, 0);
    return Qnil;
}

/* Eagain.loader(path) -> Proc that loads the file (an absolute path), as Kernel#load does. */
static VALUE module_loader(VALUE self, VALUE path) {
    (void)self;
    return rb_proc_new(load_file, rb_str_new_frozen(StringValue(path)));
}

void ea_init_script(VALUE module) {
    rb_define_singleton_method(module, "loader", module_loader, 1);
}
