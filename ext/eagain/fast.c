/* IO#readpartial, #read, #gets, #write and their kin by the short way, for lib/eagain/fast.rb.
 *
 * In a fiber of an Eagain::Scheduler Ruby's own methods allocate an IO::Buffer, call a hook with it, and
 * read its answer back; on the way they take a lock. All of that is for what is not at once as it should be. So
 * these make the attempt themselves, if the IO is as it nearly always is, and leave everything else to
 * Ruby's own methods: other arguments, other threads and schedulers, text that is to be transcoded, what
 * Ruby has buffered for writing, a write that somebody else is in the middle of, the rest of a write for which
 * there was no room, and the errors of what has a path, which Ruby tells with the name of a function.
 *
 * Nothing here lets go of the GVL. What may run other fibers (ea_fiber_account, ea_wait) is followed by
 * another look at everything. */
#include "calls.h"
#include "scheduler.h"
#include "scratch.h"

/* Ruby's own methods, under the names that they have now. */
static ID own_readpartial, own_sysread, own_read, own_gets, own_readline, own_write, own_syswrite;
static ID id_chomp;

/* Longer reads pay for the way. */
#define READ_MOST 65536

#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"

/* --- Reading. */

/* Has Ruby's own method nothing to do but to give out what it has read ahead, or else to read? */
static inline bool is_plain_reader(VALUE io) {
    const rb_io_t *fptr = RFILE(io)->fptr;
    return RB_LIKELY(fptr && fptr->fd >= 0 && fptr->mode & FMODE_READABLE &&
                     (fptr->wbuf.len | fptr->cbuf.len) == 0 && !fptr->tied_io_for_writing &&
                     !RTEST(fptr->pathv) && !RB_OBJ_FROZEN_RAW(io));
}

/* The time that IO#timeout gives a wait that begins now. */
static int64_t deadline_of(VALUE io) {
#ifdef HAVE_RB_IO_TIMEOUT
    VALUE timeout = rb_io_timeout(io);
    if (RB_UNLIKELY(!NIL_P(timeout)))
        return ea_deadline_of(timeout);
#else
    (void)io;
#endif
    return EA_TIME_NEVER;
}

static void wait_for(VALUE io, unsigned events) {
    if (RB_LIKELY(ea_wait(io, events, deadline_of(io)) != 0))
        return;
#ifdef HAVE_RB_IO_TIMEOUT
    rb_raise(rb_eIOTimeoutError, "Blocking operation timed out!");
#endif
}

/* past: what Ruby has read ahead is in the way. */
static inline VALUE read_by(ID own, int argc, VALUE *argv, VALUE io, bool past) {
    struct ea_scheduler *scheduler;
    VALUE buffer = argc > 1 ? argv[1] : Qnil;
    if (RB_UNLIKELY(argc < 1 || argc > 2 || !RB_FIXNUM_P(argv[0]) || FIX2LONG(argv[0]) <= 0 ||
                    !(NIL_P(buffer) || RB_TYPE_P(buffer, T_STRING)) ||
                    !(scheduler = ea_scheduler_running())))
        return rb_funcallv_kw(io, own, argc, argv, RB_PASS_CALLED_KEYWORDS);
    ea_fiber_account(scheduler, Qfalse);
    while (is_plain_reader(io) && !(past && ea_io_buffered(io) > 0)) {
        VALUE answer = ea_tryread(io, argv[0], buffer);
        if (RB_LIKELY(!RB_SYMBOL_P(answer))) {
            if (RB_UNLIKELY(NIL_P(answer)))
                rb_eof_error();
            scheduler->moved += (size_t)RSTRING_LEN(answer);
            return answer;
        }
        wait_for(io, EA_READABLE);
    }
    return rb_funcallv(io, own, argc, argv);
}

/* Whether Ruby's own method may be spared: for a task of ours, and a positive length without a buffer. */
static inline struct ea_scheduler *scheduler_for(int argc, const VALUE *argv) {
    bool usual = argc == 1 && RB_FIXNUM_P(argv[0]) && FIX2LONG(argv[0]) > 0;
    return RB_LIKELY(usual) ? ea_scheduler_running() : NULL;
}

static VALUE fast_readpartial(int argc, VALUE *argv, VALUE io) {
    return read_by(own_readpartial, argc, argv, io, false);
}

static VALUE fast_sysread(int argc, VALUE *argv, VALUE io) {
    return read_by(own_sysread, argc, argv, io, true);
}

/* What is missing of len bytes is waited for. Nothing yet is held on to while nothing has come. */
static VALUE fast_read(int argc, VALUE *argv, VALUE io) {
    struct ea_scheduler *scheduler = scheduler_for(argc, argv);
    if (RB_UNLIKELY(!scheduler || FIX2LONG(argv[0]) > READ_MOST || !is_plain_reader(io)))
        return rb_funcallv_kw(io, own_read, argc, argv, RB_PASS_CALLED_KEYWORDS);
    ea_fiber_account(scheduler, Qfalse);
    long missing = FIX2LONG(argv[0]);
    VALUE string = Qnil;
    for (;;) {
        VALUE length = LONG2FIX(missing);
        VALUE more = RB_LIKELY(is_plain_reader(io)) ? ea_tryread(io, length, Qnil)
                                                    : rb_funcallv(io, own_read, 1, &length);
        if (more == ea_sym_wait_readable) {
            wait_for(io, EA_READABLE);
            continue;
        }
        if (NIL_P(more))
            return string;
        scheduler->moved += (size_t)RSTRING_LEN(more);
        if (NIL_P(string))
            string = more;
        else
            rb_str_buf_append(string, more);
        missing = FIX2LONG(argv[0]) - RSTRING_LEN(string);
        if (RB_LIKELY(missing <= 0))
            return string;
    }
}

/* As Ruby's own says it of an IO without a path. */
static VALUE fill_error(VALUE io, int error) {
    VALUE arguments[] = {rb_sprintf("fd:%d ", RFILE(io)->fptr->fd), INT2FIX(error),
                         rb_str_new_cstr("io_fillbuf")};
    return rb_class_new_instance(3, arguments, rb_eSystemCallError);
}

/* Sees to it that Ruby has something read ahead: false if the file is at its end, which is not to be asked for twice. A
 * terminal tells of it once, and after an empty datagram comes the next. */
static bool fill(struct ea_scheduler *scheduler, VALUE io) {
    ea_fiber_account(scheduler, Qfalse);
    while (is_plain_reader(io) && ea_io_buffered(io) == 0) {
        struct ea_known known;
        ea_known_begin(&known, io, RFILE(io)->fptr->fd);
        ea_result r = ea_io_fill_buffer(io, &known);
        ea_known_end(&known);
        if (RB_LIKELY(r != EA_WAIT_READABLE)) {
            if (ea_is_error(r))
                rb_exc_raise(fill_error(io, ea_errno(r)));
            return r > 0;
        }
        wait_for(io, EA_READABLE);
    }
    return true;
}

static bool is_plain_separator(VALUE io, VALUE separator) {
    const rb_encoding *encoding = RFILE(io)->fptr->encs.enc;
    return NIL_P(separator) ||
           (RB_TYPE_P(separator, T_STRING) && rb_enc_str_asciionly_p(separator) &&
            (!encoding || rb_enc_asciicompat(encoding)));
}

/* Arguments for which a line is read, so that nothing else is to be told first: 0 bytes are there at once. */
static inline bool asks_for_line(VALUE io, int argc, const VALUE *argv) {
    if (RB_LIKELY(argc == 0))
        return true;
    if (rb_keyword_given_p()) {
        VALUE options = argv[--argc];
        if (RHASH_SIZE(options) != 1 ||
            rb_hash_lookup2(options, ID2SYM(id_chomp), Qundef) == Qundef)
            return false;
    }
    if (argc > 0 && RB_FIXNUM_P(argv[argc - 1]) && argv[argc - 1] != INT2FIX(0))
        argc--;
    return argc == 0 || (argc == 1 && is_plain_separator(io, argv[0]));
}

/* nil at the end. */
static inline VALUE line_by(ID own, int argc, VALUE *argv, VALUE io) {
    struct ea_scheduler *scheduler;
    if (RB_LIKELY(is_plain_reader(io) && ea_io_buffered(io) == 0 && asks_for_line(io, argc, argv) &&
                  (scheduler = ea_scheduler_running())) &&
        RB_UNLIKELY(!fill(scheduler, io)) && !RFILE(io)->fptr->readconv) {
        rb_lastline_set(Qnil);
        return Qnil;
    }
    return rb_funcallv_kw(io, own, argc, argv, RB_PASS_CALLED_KEYWORDS);
}

static VALUE fast_gets(int argc, VALUE *argv, VALUE io) {
    return line_by(own_gets, argc, argv, io);
}

static VALUE fast_readline(int argc, VALUE *argv, VALUE io) {
    VALUE line = line_by(own_readline, argc, argv, io);
    if (RB_UNLIKELY(NIL_P(line)))
        rb_eof_error();
    return line;
}

/* --- Writing. */

#define FEW 8

static inline bool transcodes(const rb_io_t *fptr) {
    return (fptr->encs.enc && fptr->encs.enc != rb_ascii8bit_encoding()) ||
           fptr->encs.ecflags & (ECONV_DECORATOR_MASK | ECONV_STATEFUL_DECORATOR_MASK);
}

/* Is somebody in the middle of a write? */
static inline bool is_being_written(const struct ea_scheduler *scheduler, const rb_io_t *fptr) {
    if (RB_UNLIKELY(RTEST(fptr->write_lock) && RTEST(rb_mutex_locked_p(fptr->write_lock))))
        return true;
    const struct ea_fd *fd = ea_fd_find(&scheduler->poll.fds, fptr->fd);
    return fd && fd->writer;
}

/* Has Ruby's own method nothing to do but to write, here and now? */
static inline bool is_plain_writer(const struct ea_scheduler *scheduler, VALUE io) {
    const rb_io_t *fptr = RFILE(io)->fptr;
    return RB_LIKELY(fptr && fptr->fd >= 0 &&
                     (fptr->mode & (FMODE_WRITABLE | FMODE_SYNC)) ==
                         (FMODE_WRITABLE | FMODE_SYNC) &&
                     fptr->wbuf.len == 0 && (fptr->rbuf.len == 0 || fptr->mode & FMODE_DUPLEX) &&
                     !fptr->tied_io_for_writing && !RB_OBJ_FROZEN_RAW(io) && !transcodes(fptr) &&
                     !is_being_written(scheduler, fptr));
}

static inline ea_result written(const struct ea_known *known, ea_result r) {
    ea_known_end(known);
    if (RB_LIKELY(!ea_is_error(r)))
        return r;
    if (RTEST(RFILE(known->io)->fptr->pathv))
        return 0;
    /* A socket tells of an error once. */
    ea_io_fail(known->io, ea_errno(r));
}

/* One attempt, after is_plain_writer(): what was written, or the would-block; 0 if Ruby's own method is to do it.
 * What may not be written to without waiting for a disk is left alone. */
static inline ea_result write_one(VALUE io, VALUE string) {
    struct ea_known known;
    ea_known_begin(&known, io, RFILE(io)->fptr->fd);
    if (RB_UNLIKELY(known.fd.known & EA_FD_NO_NOWAIT_WRITE))
        return 0;
    return written(&known,
                   ea_try_write(&known.fd, RSTRING_PTR(string), (size_t)RSTRING_LEN(string)));
}

static ea_result write_few(VALUE io, int argc, const VALUE *argv) {
    struct iovec iov[FEW];
    struct ea_known known;
    ea_known_begin(&known, io, RFILE(io)->fptr->fd);
    if (RB_UNLIKELY(known.fd.known & EA_FD_NO_NOWAIT_WRITE))
        return 0;
    for (int i = 0; i < argc; i++)
        iov[i] = (struct iovec){RSTRING_PTR(argv[i]), (size_t)RSTRING_LEN(argv[i])};
    return written(&known, ea_try_writev(&known.fd, iov, argc));
}

/* Where others may run first, and change the strings, Ruby's own method is to do it. */
static inline bool account(struct ea_scheduler *scheduler) {
    return RB_LIKELY(!ea_fiber_accounts(scheduler)) && !ea_fiber_account(scheduler, Qfalse);
}

/* Writes something, or 0, as above. Waits while there is no room at all; nobody has a turn to write meanwhile: whoever
 * finds room, writes. What is written is what the strings are now. */
static inline ea_result write_some(struct ea_scheduler *scheduler, VALUE io, int argc,
                                   VALUE *strings) {
    if (RB_UNLIKELY(!account(scheduler)))
        return 0;
    while (is_plain_writer(scheduler, io)) {
        ea_result r = argc == 1 ? write_one(io, strings[0]) : write_few(io, argc, strings);
        if (RB_LIKELY(!ea_is_wait(r))) {
            scheduler->moved += (size_t)r;
            return r;
        }
        for (int i = 0; i < argc; i++)
            strings[i] = rb_str_new_frozen(strings[i]);
        wait_for(io, EA_WRITABLE);
    }
    return 0;
}

static VALUE rest_of(VALUE string, size_t from) {
    return rb_str_subseq(string, (long)from, RSTRING_LEN(string) - (long)from);
}

/* Ruby's own method, for what is left of strings of which n bytes were written. Nobody has a turn before it tries,
 * and could write in between. */
static VALUE write_rest(struct ea_scheduler *scheduler, int argc, const VALUE *strings, VALUE io,
                        size_t n) {
    VALUE rest[FEW];
    size_t skip = n;
    int count = 0;
    for (int i = 0; i < argc; i++) {
        size_t len = (size_t)RSTRING_LEN(strings[i]);
        if (skip < len)
            rest[count++] = skip > 0 ? rest_of(strings[i], skip) : strings[i];
        skip -= skip < len ? skip : len;
    }
    scheduler->transfers = 0;
    VALUE more = rb_funcallv(io, own_write, count, rest);
    return SIZET2NUM(n + NUM2SIZET(more));
}

static bool all_strings(int argc, const VALUE *argv, size_t *total) {
    for (int i = 0; i < argc; i++) {
        if (!RB_TYPE_P(argv[i], T_STRING))
            return false;
        *total += (size_t)RSTRING_LEN(argv[i]);
    }
    return *total > 0;
}

static VALUE fast_write(int argc, VALUE *argv, VALUE io) {
    struct ea_scheduler *scheduler;
    size_t total = 0;
    if (RB_UNLIKELY(argc < 1 || argc > FEW || !all_strings(argc, argv, &total) ||
                    !(scheduler = ea_scheduler_running())))
        return rb_funcallv_kw(io, own_write, argc, argv, RB_PASS_CALLED_KEYWORDS);
    VALUE strings[FEW];
    MEMCPY(strings, argv, VALUE, argc);
    ea_result n = write_some(scheduler, io, argc, strings);
    if (RB_LIKELY(n == (ea_result)total))
        return SIZET2NUM(total);
    return n > 0 ? write_rest(scheduler, argc, strings, io, (size_t)n)
                 : rb_funcallv(io, own_write, argc, strings);
}

static VALUE fast_syswrite(VALUE io, VALUE string) {
    struct ea_scheduler *scheduler;
    if (RB_LIKELY(RB_TYPE_P(string, T_STRING) && RSTRING_LEN(string) > 0 &&
                  (scheduler = ea_scheduler_running()))) {
        ea_result n = write_some(scheduler, io, 1, &string);
        if (RB_LIKELY(n > 0))
            return SIZET2NUM(n);
    }
    return rb_funcall(io, own_syswrite, 1, string);
}

#pragma GCC diagnostic pop

void ea_init_fast(VALUE module) {
    own_readpartial = rb_intern("__ruby_readpartial");
    own_sysread = rb_intern("__ruby_sysread");
    own_read = rb_intern("__ruby_read");
    own_gets = rb_intern("__ruby_gets");
    own_readline = rb_intern("__ruby_readline");
    own_write = rb_intern("__ruby_write");
    own_syswrite = rb_intern("__ruby_syswrite");
    id_chomp = rb_intern("chomp");
    /* A module of its own, hidden, whose methods fast.rb gives to IO. */
    VALUE methods = rb_define_module_under(module, "FastMethods"); /* :nodoc: */
    rb_funcall(module, rb_intern("private_constant"), 1, ID2SYM(rb_intern("FastMethods")));
    rb_define_method(methods, "readpartial", fast_readpartial, -1);
    rb_define_method(methods, "sysread", fast_sysread, -1);
    rb_define_method(methods, "read", fast_read, -1);
    rb_define_method(methods, "gets", fast_gets, -1);
    rb_define_method(methods, "readline", fast_readline, -1);
    rb_define_method(methods, "write", fast_write, -1);
    rb_define_method(methods, "syswrite", fast_syswrite, 1);
}
