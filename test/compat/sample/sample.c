/* A C extension as somebody else would write it: every function of <eagain/ruby.h>, as a method. It knows
 * nothing of eagain but that header, and is linked with nothing of it. */
#include <eagain/ruby.h>

#include <ruby/io.h>

#define SIZE 65536

static VALUE optional(int argc, const VALUE *argv, int index) {
    return argc > index ? argv[index] : Qnil;
}

static size_t length_of(VALUE maxlen) {
    size_t length = NUM2SIZET(maxlen);
    return length < SIZE ? length : SIZE;
}

/* What was read, or what the try calls of Ruby would return instead. */
static VALUE bytes_or_answer(VALUE io, const char *bytes, ea_result r) {
    return ea_is_count(r) ? rb_str_new(bytes, r) : ea_rb_answer(io, r);
}

/* --- Try. */

static VALUE sample_try_read(VALUE self, VALUE io, VALUE maxlen) {
    char bytes[SIZE];
    return bytes_or_answer(io, bytes, ea_rb_try_read(io, bytes, length_of(maxlen)));
}

static VALUE sample_try_write(VALUE self, VALUE io, VALUE string) {
    StringValue(string);
    ea_result r = ea_rb_try_write(io, RSTRING_PTR(string), (size_t)RSTRING_LEN(string));
    RB_GC_GUARD(string);
    return ea_rb_answer(io, r);
}

static VALUE sample_try_readv(VALUE self, VALUE io, VALUE first, VALUE second) {
    char a[SIZE], b[SIZE];
    struct iovec iov[] = {{a, length_of(first)}, {b, length_of(second)}};
    ea_result r = ea_rb_try_readv(io, iov, 2);
    if (!ea_is_count(r))
        return ea_rb_answer(io, r);
    size_t n = (size_t)r, in_first = n < iov[0].iov_len ? n : iov[0].iov_len;
    return rb_assoc_new(rb_str_new(a, (long)in_first), rb_str_new(b, (long)(n - in_first)));
}

static VALUE sample_try_writev(VALUE self, VALUE io, VALUE first, VALUE second) {
    StringValue(first);
    StringValue(second);
    struct iovec iov[] = {{RSTRING_PTR(first), (size_t)RSTRING_LEN(first)},
                          {RSTRING_PTR(second), (size_t)RSTRING_LEN(second)}};
    ea_result r = ea_rb_try_writev(io, iov, 2);
    RB_GC_GUARD(first);
    RB_GC_GUARD(second);
    return ea_rb_answer(io, r);
}

static VALUE sample_try_recv(VALUE self, VALUE socket, VALUE maxlen, VALUE flags) {
    char bytes[SIZE];
    ea_result r = ea_rb_try_recv(socket, bytes, length_of(maxlen), NUM2INT(flags));
    return bytes_or_answer(socket, bytes, r);
}

static VALUE sample_try_recvfrom(VALUE self, VALUE socket, VALUE maxlen) {
    char bytes[SIZE];
    struct sockaddr_storage address;
    socklen_t length = sizeof address;
    ea_result r = ea_rb_try_recvfrom(socket, bytes, length_of(maxlen), 0,
                                     (struct sockaddr *)&address, &length);
    if (!ea_is_count(r))
        return ea_rb_answer(socket, r);
    return rb_assoc_new(rb_str_new(bytes, r), rb_str_new((const char *)&address, length));
}

static VALUE sample_try_send(int argc, VALUE *argv, VALUE self) {
    rb_check_arity(argc, 2, 3);
    VALUE string = StringValue(argv[1]), dest = optional(argc, argv, 2);
    const char *bytes = RSTRING_PTR(string);
    size_t length = (size_t)RSTRING_LEN(string);
    if (NIL_P(dest))
        return ea_rb_answer(argv[0], ea_rb_try_send(argv[0], bytes, length, 0));
    StringValue(dest);
    ea_result r =
        ea_rb_try_sendto(argv[0], bytes, length, 0, (const struct sockaddr *)RSTRING_PTR(dest),
                         (socklen_t)RSTRING_LEN(dest));
    RB_GC_GUARD(dest);
    return ea_rb_answer(argv[0], r);
}

union control {
    struct cmsghdr header;
    char space[CMSG_SPACE(sizeof(int))];
};

/* Passes a message and an IO. */
static VALUE sample_try_sendmsg(VALUE self, VALUE socket, VALUE string, VALUE io) {
    StringValue(string);
    int number = NUM2INT(rb_funcall(io, rb_intern("fileno"), 0));
    union control control = {.space = {0}};
    struct iovec iov = {RSTRING_PTR(string), (size_t)RSTRING_LEN(string)};
    struct msghdr message = {.msg_iov = &iov,
                             .msg_iovlen = 1,
                             .msg_control = &control,
                             .msg_controllen = sizeof control.space};
    struct cmsghdr *cmsg = CMSG_FIRSTHDR(&message);
    cmsg->cmsg_level = SOL_SOCKET;
    cmsg->cmsg_type = SCM_RIGHTS;
    cmsg->cmsg_len = CMSG_LEN(sizeof number);
    memcpy(CMSG_DATA(cmsg), &number, sizeof number);
    ea_result r = ea_rb_try_sendmsg(socket, &message, 0);
    RB_GC_GUARD(string);
    RB_GC_GUARD(io);
    return ea_rb_answer(socket, r);
}

/* [message, number of the descriptor that came with it, or nil] */
static VALUE sample_try_recvmsg(VALUE self, VALUE socket) {
    char bytes[SIZE];
    union control control;
    struct iovec iov = {bytes, sizeof bytes};
    struct msghdr message = {.msg_iov = &iov,
                             .msg_iovlen = 1,
                             .msg_control = &control,
                             .msg_controllen = sizeof control.space};
    ea_result r = ea_rb_try_recvmsg(socket, &message, 0);
    if (!ea_is_count(r))
        return ea_rb_answer(socket, r);
    const struct cmsghdr *cmsg = CMSG_FIRSTHDR(&message);
    VALUE number = Qnil;
    if (cmsg && cmsg->cmsg_type == SCM_RIGHTS) {
        int passed;
        memcpy(&passed, CMSG_DATA(cmsg), sizeof passed);
        number = INT2NUM(passed);
    }
    return rb_assoc_new(rb_str_new(bytes, r), number);
}

static VALUE sample_try_accept(VALUE self, VALUE server, VALUE klass) {
    struct sockaddr_storage address;
    socklen_t length = sizeof address;
    ea_result r = ea_rb_try_accept(server, (struct sockaddr *)&address, &length);
    if (!ea_is_count(r))
        return ea_rb_answer(server, r);
    VALUE socket = ea_rb_socket_new(klass, (int)r);
    return rb_assoc_new(socket, rb_str_new((const char *)&address, length));
}

static VALUE sample_socket_new(VALUE self, VALUE klass, VALUE number) {
    return ea_rb_socket_new(klass, NUM2INT(number));
}

/* As many parts of one byte each; the answer alone. */
static VALUE sample_try_parts(VALUE self, VALUE io, VALUE count, VALUE writing) {
    static char byte[1];
    struct iovec parts[2000];
    int n = NUM2INT(count);
    for (int i = 0; i < n && i < 2000; i++)
        parts[i] = (struct iovec){byte, 1};
    ea_result r = RTEST(writing) ? ea_rb_try_writev(io, parts, n) : ea_rb_try_readv(io, parts, n);
    return ea_rb_answer(io, r);
}

/* --- Wait. */

static VALUE sample_wait(int argc, VALUE *argv, VALUE self) {
    rb_check_arity(argc, 2, 3);
    return UINT2NUM(ea_rb_wait(argv[0], NUM2UINT(argv[1]), optional(argc, argv, 2)));
}

/* All that comes until the end, within the time. */
static VALUE sample_receive_all(int argc, VALUE *argv, VALUE self) {
    rb_check_arity(argc, 1, 2);
    char bytes[SIZE];
    VALUE socket = argv[0], all = rb_str_new(NULL, 0);
    int64_t deadline = ea_rb_deadline(optional(argc, argv, 1));
    for (;;) {
        ea_result r = ea_rb_try_recv(socket, bytes, sizeof bytes, 0);
        if (r == EA_EOF)
            return all;
        if (ea_is_count(r))
            rb_str_cat(all, bytes, r);
        else if (!ea_is_wait(r))
            ea_rb_answer(socket, r);
        else if (!ea_rb_wait_after(socket, r, deadline))
            ea_rb_timeout_fail(0);
    }
}

/* --- Both. */

static VALUE sample_read(int argc, VALUE *argv, VALUE self) {
    rb_check_arity(argc, 2, 3);
    char bytes[SIZE];
    ea_result r = ea_rb_read(argv[0], bytes, length_of(argv[1]), optional(argc, argv, 2));
    return r == EA_EOF ? Qnil : rb_str_new(bytes, r);
}

struct write {
    VALUE io, string, timeout;
};

static VALUE write_locked(VALUE arg) {
    const struct write *w = (const struct write *)arg;
    size_t length = (size_t)RSTRING_LEN(w->string);
    return SIZET2NUM(ea_rb_write(w->io, RSTRING_PTR(w->string), length, w->timeout));
}

/* While it waits, others may run: the string is locked against them. */
static VALUE sample_write(int argc, VALUE *argv, VALUE self) {
    rb_check_arity(argc, 2, 3);
    struct write w = {argv[0], StringValue(argv[1]), optional(argc, argv, 2)};
    rb_str_locktmp(w.string);
    return rb_ensure(write_locked, (VALUE)&w, rb_str_unlocktmp, w.string);
}

/* --- Raise. */

static VALUE sample_read_nonblock(VALUE self, VALUE io, VALUE maxlen) {
    char bytes[SIZE];
    ea_result r = ea_rb_try_read(io, bytes, length_of(maxlen));
    if (ea_is_wait(r))
        ea_rb_readwrite_fail(r, "read would block");
    if (r == EA_EOF)
        rb_eof_error();
    return bytes_or_answer(io, bytes, r);
}

static VALUE sample_fail(VALUE self, VALUE wait, VALUE message) {
    ea_rb_readwrite_fail(NUM2INT(wait), NIL_P(message) ? NULL : StringValueCStr(message));
}

void Init_sample(void);

void Init_sample(void) {
#ifdef HAVE_RB_EXT_RACTOR_SAFE
    rb_ext_ractor_safe(true);
#endif
    ea_rb_init();
    VALUE module = rb_define_module("Sample");
    rb_define_const(module, "WAIT_READABLE", SSIZET2NUM(EA_WAIT_READABLE));
    rb_define_const(module, "WAIT_WRITABLE", SSIZET2NUM(EA_WAIT_WRITABLE));
    rb_define_singleton_method(module, "try_read", sample_try_read, 2);
    rb_define_singleton_method(module, "try_write", sample_try_write, 2);
    rb_define_singleton_method(module, "try_readv", sample_try_readv, 3);
    rb_define_singleton_method(module, "try_writev", sample_try_writev, 3);
    rb_define_singleton_method(module, "try_recv", sample_try_recv, 3);
    rb_define_singleton_method(module, "try_recvfrom", sample_try_recvfrom, 2);
    rb_define_singleton_method(module, "try_send", sample_try_send, -1);
    rb_define_singleton_method(module, "try_sendmsg", sample_try_sendmsg, 3);
    rb_define_singleton_method(module, "try_recvmsg", sample_try_recvmsg, 1);
    rb_define_singleton_method(module, "try_accept", sample_try_accept, 2);
    rb_define_singleton_method(module, "socket_new", sample_socket_new, 2);
    rb_define_singleton_method(module, "try_parts", sample_try_parts, 3);
    rb_define_singleton_method(module, "wait", sample_wait, -1);
    rb_define_singleton_method(module, "receive_all", sample_receive_all, -1);
    rb_define_singleton_method(module, "read", sample_read, -1);
    rb_define_singleton_method(module, "write", sample_write, -1);
    rb_define_singleton_method(module, "read_nonblock", sample_read_nonblock, 2);
    rb_define_singleton_method(module, "fail", sample_fail, 2);
}
