/* Kgio::File.tryopen: open(2) without exceptions for what is expected to fail. */
#include "kgio.h"

#include <ruby/thread.h>

#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

/* The constants of Errno by number. errno values of other systems go up to some hundreds. */
#define NAMES 256
static ID names[NAMES];

struct open_call {
    const char *path;
    int flags, number, error;
    mode_t perm;
    bool called; /* not so if an interrupt was pending */
};

static void *open_without_gvl(void *data) {
    struct open_call *call = data;
    call->called = true;
    call->number = open(call->path, call->flags, call->perm);
    call->error = errno;
    return NULL;
}

static VALUE check_ints(VALUE unused) {
    rb_thread_check_ints();
    return Qnil;
}

/* Other threads run meanwhile: a FIFO opens when somebody opens its other end. */
static void open_interruptibly(struct open_call *call) {
    int state;
    do {
        call->called = false;
        call->number = -1;
        rb_nogvl(open_without_gvl, call, RUBY_UBF_IO, NULL, RB_NOGVL_INTR_FAIL);
        rb_protect(check_ints, Qnil, &state);
        if (state) {
            if (call->number >= 0)
                close(call->number);
            rb_jump_tag(state);
        }
    } while (!call->called || (call->number < 0 && call->error == EINTR));
}

static int integer_or(VALUE value, int otherwise, const char *what) {
    if (NIL_P(value))
        return otherwise;
    if (!RB_INTEGER_TYPE_P(value))
        rb_raise(rb_eArgError, "%s: expected an Integer", what);
    return NUM2INT(value);
}

/*
 * call-seq:
 *    Kgio::File.tryopen(path, mode = IO::RDONLY, perm = 0666) -> file or symbol
 *
 * Opens a file as open(2), close-on-exec. +mode+ is an Integer of IO::RDONLY, IO::CREAT and so on.
 * Returns a new instance of the class that it is called on; or the name of the error, such as
 * :ENOENT or :EACCES, as the constant of Errno has it.
 *
 * May block: other threads run meanwhile. Raises Errno when descriptors or memory have run out,
 * ArgumentError for a mode that is no Integer or a path with a null byte.
 */
static VALUE s_tryopen(int argc, VALUE *argv, VALUE klass) {
    rb_check_arity(argc, 1, 3);
    VALUE path = rb_str_new_frozen(rb_get_path(argv[0]));
    struct open_call call = {
        .path = StringValueCStr(path),
        .flags = integer_or(argc > 1 ? argv[1] : Qnil, O_RDONLY, "mode") | O_CLOEXEC,
        .perm = (mode_t)integer_or(argc > 2 ? argv[2] : Qnil, 0666, "perm"),
    };
    open_interruptibly(&call);
    if (call.number < 0 && ea_kgio_exhausted(call.error)) {
        ea_close_unused();
        open_interruptibly(&call);
    }
    if (call.number >= 0)
        return ea_kgio_file_new(klass, call.number, call.flags, path);
    if (ea_kgio_exhausted(call.error) || call.error >= NAMES || !names[call.error])
        rb_syserr_fail_str(call.error, path);
    RB_GC_GUARD(path);
    return ID2SYM(names[call.error]);
}

static void learn_names(void) {
    VALUE constants = rb_mod_constants(0, NULL, rb_mErrno);
    for (long i = 0; i < RARRAY_LEN(constants); i++) {
        VALUE name = RARRAY_AREF(constants, i);
        VALUE error = rb_const_get(rb_mErrno, SYM2ID(name));
        if (!RB_TYPE_P(error, T_CLASS))
            continue;
        /* Two names of one number are one class, which knows its first name. */
        int number = NUM2INT(rb_const_get(error, rb_intern("Errno")));
        VALUE path = rb_class_name(error);
        const char *last = strrchr(StringValueCStr(path), ':');
        if (number > 0 && number < NAMES && last)
            names[number] = rb_intern(last + 1);
    }
}

void ea_kgio_define_open(const struct ea_kgio_modules *m) {
    learn_names();
    VALUE file = rb_define_class_under(m->kgio, "File", rb_cFile);
    rb_include_module(file, m->pipe_methods);
    rb_define_singleton_method(file, "tryopen", s_tryopen, -1);
}
