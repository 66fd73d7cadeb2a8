/* tryread, tryreadv, trypeek, trywrite, trywritev. */
#include "calls.h"

#define STACK_READ 4096
static VALUE tryread(VALUE io, VALUE length, VALUE buffer) {
    long len = NUM2LONG(length);
    char scratch[STACK_READ];
    struct ea_known known;
    ea_result r = ea_io_begin_read(io, &known);
    if (RB_UNLIKELY(r))
        return ea_io_answer(io, r);
    r = ea_try_read(&known.fd, scratch, len < STACK_READ ? len : STACK_READ);
    ea_known_end(&known);
    if (r == EA_EOF)
        return Qnil;
    if (ea_is_count(r))
        return rb_str_new(scratch, r);
    return ea_io_answer(io, r);
}
static VALUE s_tryread(int argc, VALUE *argv, VALUE self) {
    rb_check_arity(argc, 2, 3);
    return tryread(ea_to_io(argv[0]), argv[1], argc > 2 ? argv[2] : Qnil);
}
void ea_init_try_stream(VALUE module) {
    rb_define_module_function(module, "tryread", s_tryread, -1);
}
