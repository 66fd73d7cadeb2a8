/* trysendfile, trysplice and tryopen: calls on two descriptors, or on none yet.
 *
 * sendfile(2) and splice(2) have no MSG_DONTWAIT. SPLICE_F_NONBLOCK speaks for the pipe alone; whether
 * the other end may block is up to its O_NONBLOCK, which is not ours to set, and which anybody may take
 * away at any time (IO#nonblock=, IO#reopen onto another, a copy in another process). So nothing is
 * remembered of it: it is read in the very call that relies on it, where there is so much to move that
 * this pays, without fcntl(2). Otherwise
 *
 *   sendfile  copies, and sends with MSG_DONTWAIT;
 *   splice    asks both ends with poll(2), and gives the target no more than what "writable" is worth.
 *
 * What is remembered can be wrong without harm: it spares a would-block all calls but a poll(2). */
#include "calls.h"
#include "scratch.h"

#include <ruby/encoding.h>

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <strings.h>
#include <sys/stat.h>
#include <unistd.h>
#ifdef EA_HAVE_SENDFILE
#include <sys/sendfile.h>
#endif

#ifndef O_CLOEXEC
#define O_CLOEXEC 0
#endif

/* How much is copied at once, where bytes have to be. To send more is worth a look at the mode. */
#define COPY_SIZE 65536

/* Linux moves no more in one call (sendfile(2), NOTES). */
#define MOVE_MAX 0x7ffff000

static ID id_end;

/* --- What an end is. */

/* Does the number's description have O_NONBLOCK? In doubt, it has not. */
static bool is_nonblocking(int number) {
    char text[256];
    snprintf(text, sizeof text, "/proc/self/fdinfo/%d", number);
    int info = open(text, O_RDONLY | O_CLOEXEC);
    if (info < 0)
        return false;
    ssize_t length = read(info, text, sizeof text - 1);
    close(info);
    text[length > 0 ? length : 0] = '\0';
    const char *flags = strstr(text, "flags:");
    return flags && strtoul(flags + strlen("flags:"), NULL, 8) & O_NONBLOCK;
}

/* What was seen of an end, under its number. */
enum { END_BLOCKED = 1, END_PIPE = 2, END_BITS = 2 };

static bool end_is(VALUE io, int number, long what) {
    VALUE known = rb_attr_get(io, id_end);
    return FIXNUM_P(known) && FIX2LONG(known) >> END_BITS == number && FIX2LONG(known) & what;
}

static void end_was(VALUE io, int number, long what) {
    if (!OBJ_FROZEN(io))
        rb_ivar_set(io, id_end, LONG2FIX((long)number << END_BITS | what));
}

/* --- What both calls share. */

/* The arguments, converted; nothing of the user's runs after that. */
struct move {
    VALUE from, to;
    size_t count;
    off_t *offset; /* in the file, or NULL: where it stands */
    struct ea_known source, target;
};

static size_t count_of(VALUE count) {
    long n = NUM2LONG(count);
    if (n < 0)
        rb_raise(rb_eArgError, "negative length %ld given", n);
    return n < MOVE_MAX ? (size_t)n : MOVE_MAX;
}

/* Looks at both IOs: 0, or the would-block of what they have to write first. */
static ea_result move_begin(struct move *m) {
    ea_result r = ea_io_begin_read(m->from, &m->source);
    return r != 0 ? r : ea_io_begin_write(&m->to, &m->target);
}

/* Ruby has read ahead: that goes first, if the place in the file is not given. */
static ea_result move_buffered(struct move *m) {
    char bytes[16384];
    size_t room = m->count < sizeof bytes ? m->count : sizeof bytes;
    size_t length = ea_io_peek_buffered(m->from, bytes, room);
    ea_result r = ea_try_write(&m->target.fd, bytes, length);
    ea_known_end(&m->target);
    if (ea_is_count(r))
        ea_io_take_buffered(m->from, bytes, (size_t)r);
    return r;
}

static VALUE move_answer(const struct move *m, ea_result r, const char *call) {
    if (r == EA_EOF)
        return Qnil;
    if (ea_is_count(r))
        return SSIZET2NUM(r);
    if (ea_is_wait(r))
        return ea_io_answer(m->to, r);
    rb_syserr_fail(ea_errno(r), call);
}

/* --- sendfile. */

/* pread(2), with the error that sendfile(2) has for what is no file. */
static ea_result read_at(int file, char *bytes, size_t room, off_t at) {
    ssize_t length;
    do
        length = pread(file, bytes, room, at);
    while (length < 0 && errno == EINTR);
    if (length > 0)
        return length;
    if (length == 0)
        return EA_EOF;
    return errno == ESPIPE || errno == EISDIR ? -EINVAL : -errno;
}

static ea_result send_copied(struct move *m) {
    int file = m->source.fd.fd;
    size_t room = m->count < COPY_SIZE ? m->count : COPY_SIZE;
    off_t at = m->offset ? *m->offset : lseek(file, 0, SEEK_CUR);
    if (at < 0) /* sendfile(2), too, wants what has places */
        return m->offset || errno == ESPIPE ? -EINVAL : -errno;
    char *bytes = ea_scratch(room);
    ea_result r = read_at(file, bytes, room, at);
    if (r > 0) {
        size_t length = (size_t)r;
        r = ea_try_send(&m->target.fd, bytes, length, 0);
        ea_scratch_done(length);
    }
    if (r > 0 && !m->offset && lseek(file, at + (off_t)r, SEEK_SET) < 0)
        return -errno;
    return r;
}

static ea_result send_once(struct move *m) {
#ifdef EA_HAVE_SENDFILE
    if (m->count > COPY_SIZE && is_nonblocking(m->target.fd.fd)) {
        ssize_t r;
        do
            r = sendfile(m->target.fd.fd, m->source.fd.fd, m->offset, m->count);
        while (r < 0 && errno == EINTR);
        if (r > 0)
            return r;
        if (r == 0)
            return EA_EOF;
        return errno == EAGAIN || errno == EWOULDBLOCK ? EA_WAIT_WRITABLE : -errno;
    }
#endif
    return send_copied(m);
}

/* poll(2) is believed only of a socket that was full before: it would say so of a listener, too. */
static ea_result send_from_file(struct move *m) {
    int number = m->target.fd.fd;
    bool was_full = end_is(m->to, number, END_BLOCKED);
    if (was_full && ea_try_poll(number, EA_WRITABLE) == 0)
        return EA_WAIT_WRITABLE;
    ea_result r = send_once(m);
    if (r == EA_WAIT_WRITABLE && !was_full)
        end_was(m->to, number, END_BLOCKED);
    return r;
}

static VALUE trysendfile(VALUE to, VALUE from, VALUE count, VALUE at) {
    off_t offset = 0;
    struct move m = {.count = count_of(count)};
    if (!NIL_P(at)) {
        offset = NUM2OFFT(at);
        m.offset = &offset;
    }
    m.from = ea_to_io(from);
    m.to = to;
    ea_socket_begin(m.to, &m.target);
    ea_result r = move_begin(&m);
    if (r == 0 && m.count > 0) {
        r = !m.offset && ea_io_buffered(m.from) > 0 ? move_buffered(&m) : send_from_file(&m);
        ea_known_end(&m.target);
    }
    VALUE answer = move_answer(&m, r, "sendfile(2)");
    RB_GC_GUARD(m.from);
    return answer;
}

/* call-seq: Eagain.trysendfile(to, from, count, offset = nil) -> Integer, nil or :wait_writable
 *
 * Sends at most count bytes of the file from to the socket to, by sendfile(2): they are not copied through
 * Ruby. Returns how many were sent; nil at the end of the file; :wait_writable when the socket has no room.
 *
 * offset nil:: from where the file stands, which moves on. What Ruby has read ahead of it goes first.
 * offset::     from there; the file stays where it stands.
 *
 * It never waits for the socket. It does wait for the disk, for what is not in memory, as every read of a
 * file does. Up to 64 KiB are copied after all, which takes fewer calls; so is, in pieces of that size, all
 * that goes to a socket without O_NONBLOCK (Ruby makes none).
 *
 * Errors: TypeError when to is no socket, Errno::EINVAL when from is no file, Errno::EPIPE,
 * Errno::ECONNRESET, Errno::ENOTCONN; IOError when one is closed or opened for the other direction;
 * ArgumentError for a negative count. */
static VALUE s_trysendfile(int argc, VALUE *argv, VALUE self) {
    rb_check_arity(argc, 3, 4);
    return trysendfile(argv[0], argv[1], argv[2], argc > 3 ? argv[3] : Qnil);
}

/* call-seq: socket.trysendfile(from, count, offset = nil) -> Integer, nil or :wait_writable
 *
 * See Eagain.trysendfile. After <tt>require "eagain/io"</tt>. */
static VALUE m_trysendfile(int argc, VALUE *argv, VALUE self) {
    rb_check_arity(argc, 2, 3);
    return trysendfile(self, argv[0], argv[1], argc > 2 ? argv[2] : Qnil);
}

/* --- splice. */

#ifdef EA_HAVE_SPLICE

static bool is_pipe(VALUE io, int number) {
    struct stat st;
    if (end_is(io, number, END_PIPE))
        return true;
    if (ea_is_socket(io) || fstat(number, &st) != 0 || !S_ISFIFO(st.st_mode))
        return false;
    end_was(io, number, END_PIPE);
    return true;
}

/* Both at once: 0, or the would-block. An end without readiness of its own, a file say, is ready. */
static ea_result splice_ready(const struct move *m) {
    struct pollfd ends[] = {{m->source.fd.fd, POLLIN, 0}, {m->target.fd.fd, POLLOUT, 0}};
    int n;
    do
        n = poll(ends, 2, 0);
    while (n < 0 && errno == EINTR);
    if (n < 0)
        return -errno;
    if (!ends[0].revents)
        return EA_WAIT_READABLE;
    return ends[1].revents ? 0 : EA_WAIT_WRITABLE;
}

/* How much the target, which is writable, takes without a wait. */
static size_t splice_room(const struct move *m) {
    int number = m->target.fd.fd;
    size_t room = PIPE_BUF;
    if (!ea_is_socket(m->to)) {
        struct stat st;
        if (fstat(number, &st) == 0) {
            if (S_ISFIFO(st.st_mode) || S_ISREG(st.st_mode) || S_ISBLK(st.st_mode))
                return m->count;
            if (S_ISCHR(st.st_mode) && isatty(number))
                room = 1;
        }
    }
    return m->count <= room || is_nonblocking(number) ? m->count : room;
}

static ea_result splice_ends(struct move *m) {
    if (!is_pipe(m->from, m->source.fd.fd) && !is_pipe(m->to, m->target.fd.fd))
        return -EINVAL;
    ea_result ready = splice_ready(m);
    if (ready != 0)
        return ready;
    size_t room = splice_room(m);
    ssize_t r;
    do
        r = splice(m->source.fd.fd, NULL, m->target.fd.fd, NULL, room,
                   SPLICE_F_NONBLOCK | SPLICE_F_MOVE);
    while (r < 0 && errno == EINTR);
    if (r > 0)
        return r;
    if (r == 0)
        return EA_EOF;
    if (errno != EAGAIN && errno != EWOULDBLOCK)
        return -errno;
    return ea_try_poll(m->source.fd.fd, EA_READABLE) > 0 ? EA_WAIT_WRITABLE : EA_WAIT_READABLE;
}

/* call-seq: Eagain.trysplice(from, to, count) -> Integer, nil, :wait_readable or :wait_writable
 *
 * Moves at most count bytes from one IO to another by splice(2), without a copy through the process. One
 * of the two is a pipe. Returns how many were moved; nil at the end of from; :wait_readable when from has
 * nothing, :wait_writable when to has no room, of which one poll(2) tells. What Ruby has read ahead goes
 * first.
 *
 * It never waits, but for the disk. A target other than a pipe or a file that has no O_NONBLOCK takes 4 KiB
 * at a time; a source without it that another process reads from at that very moment lets the call last
 * until there is something again.
 *
 * Errors: Errno::EINVAL when neither is a pipe, or both are the same one, or to is opened for appending;
 * Errno::EPIPE and the like; IOError when one is closed or opened for the other direction; ArgumentError
 * for a negative count; NotImplementedError where there is no splice(2). */
static VALUE s_trysplice(VALUE self, VALUE from, VALUE to, VALUE count) {
    struct move m = {.count = count_of(count)};
    m.from = ea_to_io(from);
    m.to = ea_to_io(to);
    ea_result r = move_begin(&m);
    if (r == 0 && m.count > 0)
        r = ea_io_buffered(m.from) > 0 ? move_buffered(&m) : splice_ends(&m);
    VALUE answer = move_answer(&m, r, "splice(2)");
    RB_GC_GUARD(m.from);
    return answer;
}

/* call-seq: io.trysplice(to, count) -> Integer, nil, :wait_readable or :wait_writable
 *
 * See Eagain.trysplice. After <tt>require "eagain/io"</tt>. */
static VALUE m_trysplice(VALUE self, VALUE to, VALUE count) {
    return s_trysplice(self, self, to, count);
}
#else
#define s_trysplice rb_f_notimplement
#define m_trysplice rb_f_notimplement
#endif

/* --- open. */

/* As Ruby's own failure to open a path: "... @ rb_sysopen - PATH". */
NORETURN(static void open_fail(int error, VALUE path));
static void open_fail(int error, VALUE path) {
    VALUE arguments[] = {path, INT2NUM(error), rb_str_new_cstr("rb_sysopen")};
    rb_exc_raise(rb_class_new_instance(3, arguments, rb_eSystemCallError));
}

static bool is_fifo(const char *path) {
    struct stat st;
    return stat(path, &st) == 0 && S_ISFIFO(st.st_mode);
}

static int open_now(const char *path, int flags, mode_t perm) {
    int number;
    do
        number = rb_cloexec_open(path, flags | O_NONBLOCK, perm);
    while (number < 0 && errno == EINTR);
    return number;
}

struct opened {
    int number;
    VALUE mode;
};

static VALUE file_of(VALUE arg) {
    const struct opened *opened = (const struct opened *)arg;
    return rb_funcall(rb_cFile, rb_intern("for_fd"), NIL_P(opened->mode) ? 1 : 2,
                      INT2NUM(opened->number), opened->mode);
}

static void remember_path(VALUE file, VALUE path) {
#ifdef HAVE_RB_IO_T_FD
    rb_io_t *fptr;
    GetOpenFile(file, fptr);
    RB_OBJ_WRITE(file, &fptr->pathv, path);
#else
#error "This Ruby hides rb_io_t: File.for_fd has to be told the path by its keyword."
#endif
}

/* File.for_fd would read the mark, and wait for it; and keep the number if that fails. */
static void refuse_bom(VALUE mode) {
    const char *colon = strchr(StringValueCStr(mode), ':');
    if (colon && strncasecmp(colon + 1, "BOM|", 4) == 0)
        rb_raise(rb_eArgError, "a byte order mark would have to be waited for: %" PRIsVALUE, mode);
}

/* call-seq: Eagain.tryopen(path, mode = "r", perm = 0666) -> File, :wait_readable or :wait_writable
 *
 * Opens a file, as File.open does, but never waits for the other end of a FIFO, the carrier of a serial
 * line, or who holds a lease on the file (fcntl(2)). mode: a String ("r", "w+", "rb:UTF-8"), or an Integer
 * of File's constants. perm: of a file that is made, less the umask.
 *
 * A FIFO opens for reading whether it has a writer or not. As long as it never had one, tryread says
 * :wait_readable, where read(2) says that it is at its end.
 * :wait_writable: a FIFO has no reader yet; and, or :wait_readable, somebody has to give up a lease first.
 * There is nothing to wait on: pause, and try again.
 *
 * O_NONBLOCK stays on: the open file is ours alone, until it is handed on. Ruby's own methods wait on it
 * as on any other.
 *
 * Errors: Errno::ENOENT, Errno::EACCES and so on, as File.open; ArgumentError for an encoding with BOM|,
 * which would be read first. */
static VALUE s_tryopen(int argc, VALUE *argv, VALUE self) {
    rb_check_arity(argc, 1, 3);
    /* In this order, as File.open. */
    VALUE path = rb_get_path(argv[0]);
    VALUE mode = argc > 1 ? argv[1] : Qnil;
    int oflags = O_RDONLY;
    if (!NIL_P(mode)) {
        VALUE flags = rb_check_to_int(mode);
        if (NIL_P(flags))
            refuse_bom(mode);
        oflags = NIL_P(flags) ? rb_io_modestr_oflags(StringValueCStr(mode)) : NUM2INT(flags);
    }
    mode_t perm = argc > 2 && !NIL_P(argv[2]) ? NUM2MODET(argv[2]) : 0666;
    VALUE native = rb_str_encode_ospath(path);

    int number = open_now(RSTRING_PTR(native), oflags, perm);
    if (number < 0 && (errno == EMFILE || errno == ENFILE || errno == ENOMEM)) {
        ea_close_unused();
        number = open_now(RSTRING_PTR(native), oflags, perm);
    }
    if (number < 0) {
        int error = errno;
        bool writes = (oflags & O_ACCMODE) != O_RDONLY;
        if (error == EWOULDBLOCK || error == EAGAIN)
            return writes ? ea_sym_wait_writable : ea_sym_wait_readable;
        if (error == ENXIO && writes && is_fifo(RSTRING_PTR(native)))
            return ea_sym_wait_writable;
        open_fail(error, path);
    }
    RB_GC_GUARD(native);
    struct opened opened = {.number = number, .mode = mode};
    int state = 0;
    VALUE file = rb_protect(file_of, (VALUE)&opened, &state);
    if (state) {
        close(number);
        rb_jump_tag(state);
    }
    remember_path(file, path);
    RB_GC_GUARD(mode);
    return file;
}

void ea_init_try_file(VALUE module) {
    id_end = rb_intern("__eagain_end__");
    rb_define_module_function(module, "trysendfile", s_trysendfile, -1);
    rb_define_module_function(module, "trysplice", s_trysplice, 3);
    rb_define_module_function(module, "tryopen", s_tryopen, -1);
    VALUE methods = rb_define_module_under(module, "SocketMethods"); /* :nodoc: */
    rb_define_method(methods, "trysendfile", m_trysendfile, -1);
    methods = rb_define_module_under(module, "IOMethods"); /* :nodoc: */
    rb_define_method(methods, "trysplice", m_trysplice, 2);
    VALUE hidden[] = {ID2SYM(rb_intern("SocketMethods")), ID2SYM(rb_intern("IOMethods"))};
    rb_funcallv(module, rb_intern("private_constant"), 2, hidden);
}
