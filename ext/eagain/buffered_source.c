/* Eagain::Stream: what it reads from and writes to, and the waits for that. See buffered.h. */
#include "buffered.h"
#include "scratch.h"
#include "stream.h"

#include <string.h>

/* A source that is no IO is given no more at once. */
#define PIECE 65536

/* Seconds after which whoever waits for a turn looks by itself, should it not have been told. */
#define LOOK_AGAIN 1.0

static ID id_readpartial, id_write, id_broadcast, id_wait, id_owned_p;

static int64_t deadline_of(const struct ea_buffered *stream, struct ea_patience *patience) {
    if (!patience->known)
        patience->deadline = ea_deadline_of(stream->timeout);
    patience->known = true;
    return patience->deadline;
}

/* --- Turns. */

struct turn {
    VALUE self;
    struct ea_turn *turn;
    VALUE (*body)(VALUE);
    VALUE argument;
    int64_t deadline;
};

/* Without the lock, for which it would have to wait, and may be raised in then: between a look at the turn and the
 * wait for it no other thread runs. */
static VALUE turn_end(VALUE argument) {
    const struct turn *turn = (const struct turn *)argument;
    turn->turn->taken = false;
    if (RB_UNLIKELY(turn->turn->others > 0)) {
        rb_funcall(ea_buffered(turn->self)->changed, id_broadcast, 0);
    }
    return Qnil;
}

static VALUE turn_body(VALUE argument) {
    const struct turn *turn = (const struct turn *)argument;
    return turn->body(turn->argument);
}

/* Runs the body while the others wait for its end. */
static VALUE in_turn(VALUE self, struct ea_turn *of, VALUE (*body)(VALUE), void *argument) {
    struct turn turn = {.self = self, .turn = of, .body = body, .argument = (VALUE)argument};
    of->taken = true;
    return rb_ensure(turn_body, (VALUE)&turn, turn_end, (VALUE)&turn);
}

static VALUE others_sleep(VALUE argument) {
    const struct turn *turn = (const struct turn *)argument;
    const struct ea_buffered *stream = ea_buffered(turn->self);
    while (turn->turn->taken) {
        double seconds = LOOK_AGAIN;
        if (turn->deadline != EA_TIME_NEVER) {
            double left = (double)(turn->deadline - ea_now()) / 1e9;
            if (left <= 0)
                ea_wait_expire(0);
            seconds = left < seconds ? left : seconds;
        }
        VALUE arguments[] = {stream->mutex, DBL2NUM(seconds)};
        if (turn->turn->taken) /* still, after what was allocated */
            rb_funcallv(stream->changed, id_wait, 2, arguments);
    }
    return Qnil;
}

/* What is raised in a fiber's Mutex#sleep may leave it without the lock (Ruby 3.1). */
static VALUE others_unlock(VALUE argument) {
    VALUE mutex = ea_buffered(((const struct turn *)argument)->self)->mutex;
    return RTEST(rb_funcall(mutex, id_owned_p, 0)) ? rb_mutex_unlock(mutex) : Qnil;
}

static VALUE others_locked(VALUE argument) {
    rb_mutex_lock(ea_buffered(((const struct turn *)argument)->self)->mutex);
    return rb_ensure(others_sleep, argument, others_unlock, argument);
}

static VALUE others_end(VALUE argument) {
    ((const struct turn *)argument)->turn->others--;
    return Qnil;
}

/* Waits until nobody has the turn. */
static void await_turn(VALUE self, struct ea_turn *of, struct ea_patience *patience) {
    struct ea_buffered *stream = ea_buffered(self);
    struct turn turn = {.self = self, .turn = of, .deadline = deadline_of(stream, patience)};
    if (!stream->mutex) {
        VALUE changed = rb_class_new_instance(0, NULL, rb_path2class("Thread::ConditionVariable"));
        VALUE mutex = rb_mutex_new();
        if (!stream->mutex) { /* another thread may have been here meanwhile */
            RB_OBJ_WRITE(self, &stream->changed, changed);
            RB_OBJ_WRITE(self, &stream->mutex, mutex);
        }
    }
    of->others++;
    rb_ensure(others_locked, (VALUE)&turn, others_end, (VALUE)&turn);
}

/* --- The source. */

static void receive(struct ea_buffered *stream, const char *from, size_t len) {
    ea_bytes_append(&stream->in, from, len, stream->size);
    stream->received += len;
}

/* One attempt to read from an IO. anew: what was found to be no file may be one by now. */
static ea_result io_read(VALUE io, char *to, size_t len, bool anew) {
    struct ea_known known;
    ea_result r = ea_io_begin_read(io, &known);
    if (RB_UNLIKELY(r != 0))
        return r;
    if (RB_UNLIKELY(ea_io_buffered(io) > 0))
        return (ea_result)ea_io_take_buffered(io, to, len);
    if (RB_UNLIKELY(anew))
        known.fd.known &= ~EA_KNOWN_WAITS;
    r = ea_io_try_read(&known, to, len);
    ea_known_end(&known);
    return RB_LIKELY(r != 0) ? r : EA_EOF;
}

static ea_result io_push(struct ea_buffered *stream) {
    VALUE io = stream->object;
    struct ea_known known;
    ea_result r = ea_io_begin_write(&io, &known);
    if (RB_UNLIKELY(r != 0))
        return r;
    while (ea_bytes_length(&stream->out) > 0) {
        r = ea_io_try_write(&known, ea_bytes_first(&stream->out), ea_bytes_length(&stream->out));
        if (!ea_is_count(r))
            break;
        ea_bytes_drop(&stream->out, (size_t)r);
        r = 0;
    }
    ea_known_end(&known);
    return r;
}

static VALUE call_readpartial(VALUE argument) {
    const VALUE *call = (const VALUE *)argument;
    return rb_funcall(call[0], id_readpartial, 1, call[1]);
}

static VALUE end_of_file(VALUE unused, VALUE error) {
    return Qnil;
}

static ea_result symbol_result(VALUE answer) {
    if (answer == ea_sym_wait_readable)
        return EA_WAIT_READABLE;
    if (answer == ea_sym_wait_writable)
        return EA_WAIT_WRITABLE;
    rb_raise(rb_eTypeError, "the source of a stream answered %+" PRIsVALUE, answer);
}

/* The same of what is no IO: by its methods, which may run any code. */
static ea_result object_read(struct ea_buffered *stream, size_t len) {
    VALUE call[] = {stream->object, SIZET2NUM(len)}, data;
    if (stream->source == EA_SOURCE_TRIES)
        data = ea_tryread(call[0], call[1], Qnil);
    else
        data = rb_rescue2(call_readpartial, (VALUE)call, end_of_file, Qnil, rb_eEOFError, (VALUE)0);
    if (NIL_P(data))
        return EA_EOF;
    if (!RB_TYPE_P(data, T_STRING))
        return symbol_result(data);
    long length = RSTRING_LEN(data);
    receive(stream, RSTRING_PTR(data), (size_t)length);
    RB_GC_GUARD(data);
    return length > 0 ? length : EA_EOF;
}

static VALUE object_push(VALUE argument) {
    struct ea_buffered *stream = (struct ea_buffered *)argument;
    size_t len;
    while ((len = ea_bytes_length(&stream->out)) > 0) {
        VALUE string = rb_str_new(ea_bytes_first(&stream->out), (long)(len < PIECE ? len : PIECE));
        long length = RSTRING_LEN(string);
        if (stream->source == EA_SOURCE_TRIES) {
            VALUE answer = ea_trywrite(stream->object, string);
            if (RB_SYMBOL_P(answer))
                return LONG2NUM(symbol_result(answer));
            length = NUM2LONG(answer);
        } else {
            rb_funcall(stream->object, id_write, 1, string);
        }
        if (length < 0 || (size_t)length > ea_bytes_length(&stream->out)) /* it was closed */
            length = (long)ea_bytes_length(&stream->out);
        ea_bytes_drop(&stream->out, (size_t)length);
    }
    return INT2FIX(0);
}

ea_result ea_buffered_push(VALUE self) {
    struct ea_buffered *stream = ea_buffered(self);
    if (RB_LIKELY(stream->source == EA_SOURCE_IO))
        return io_push(stream);
    return NUM2LONG(in_turn(self, &stream->writing, object_push, stream));
}

/* --- Waits. */

struct wait {
    VALUE self;
    VALUE io;
    unsigned events;
    int64_t deadline;
    size_t written;
};

static VALUE wait_body(VALUE argument) {
    const struct wait *wait = (const struct wait *)argument;
    ea_wait_for(wait->io, wait->events, wait->deadline, wait->written);
    return Qnil;
}

static VALUE wait_writing(VALUE argument) {
    VALUE self = ((const struct wait *)argument)->self;
    return in_turn(self, &ea_buffered(self)->writing, wait_body, (void *)argument);
}

static unsigned events_of(ea_result r) {
    return r == EA_WAIT_READABLE ? EA_READABLE : r == EA_WAIT_WRITABLE ? EA_WRITABLE : 0;
}

/* Who waits needs no memory until something comes. */
static void release(struct ea_buffered *stream) {
    if (ea_bytes_length(&stream->in) == 0 && stream->in.base)
        ea_bytes_free(&stream->in);
    if (ea_bytes_length(&stream->out) == 0 && stream->out.base)
        ea_bytes_free(&stream->out);
}

/* For each direction one waits alone: a scheduler of somebody else's may know of no more. */
static void wait_in_turn(VALUE self, struct ea_turn *turn, unsigned events, size_t written,
                         struct ea_patience *patience) {
    struct ea_buffered *stream = ea_buffered(self);
    struct wait wait = {.self = self,
                        .io = ea_to_io(stream->object),
                        .events = events,
                        .deadline = deadline_of(stream, patience),
                        .written = written};
    bool both = turn == &stream->reading && events & EA_WRITABLE && !stream->writing.taken;
    release(stream);
    in_turn(self, turn, both ? wait_writing : wait_body, &wait);
    RB_GC_GUARD(wait.io);
}

/* Is what is written to another IO than what is read from (IO.popen)? */
static bool is_tied(const struct ea_buffered *stream) {
    return stream->source == EA_SOURCE_IO && rb_io_get_write_io(stream->object) != stream->object;
}

/* Before a read: the other side may wait for it. What goes wrong is told to who writes. */
static ea_result push_first(VALUE self, struct ea_patience *patience) {
    struct ea_buffered *stream = ea_buffered(self);
    if (RB_LIKELY(ea_bytes_length(&stream->out) == 0) || stream->writing.taken)
        return 0;
    if (RB_UNLIKELY(is_tied(stream))) {
        ea_buffered_flush(self, stream->accepted, patience);
        return 0;
    }
    return ea_buffered_push(self);
}

struct object_fill {
    VALUE self;
    size_t want;
    ea_result result;
};

static VALUE object_fill(VALUE argument) {
    struct object_fill *fill = (struct object_fill *)argument;
    fill->result = object_read(ea_buffered(fill->self), fill->want);
    return Qnil;
}

/* No code of the program's runs in here. */
static ea_result attempt_straight(struct ea_buffered *stream, struct ea_straight *straight,
                                  bool anew) {
    size_t len = straight->len;
    VALUE string = straight->buffer;
    struct ea_spare *spare = NIL_P(string) ? ea_spare() : NULL;
    if (spare)
        string = ea_spare_take(spare, (long)len);
    else
        ea_buffer_room(string, (long)len);
    ea_result r = io_read(stream->object, RSTRING_PTR(string), len, anew);
    bool enough = r > 0 && (!straight->all || (size_t)r == len);
    if (r > 0 && !enough)
        receive(stream, RSTRING_PTR(string), (size_t)r);
    if (enough && !spare)
        ea_buffer_set_length(string, r);
    if (enough)
        straight->answer = spare ? ea_spare_give(spare, string, r) : string;
    else if (spare)
        spare->string = string;
    RB_GC_GUARD(string);
    return r;
}

static ea_result attempt(VALUE self, size_t want, struct ea_straight *straight, bool anew) {
    struct ea_buffered *stream = ea_buffered(self);
    if (RB_UNLIKELY(stream->source != EA_SOURCE_IO)) {
        struct object_fill fill = {self, want < PIECE ? want : PIECE, 0};
        in_turn(self, &stream->reading, object_fill, &fill);
        return fill.result;
    }
    if (straight && straight->len >= stream->size && ea_bytes_length(&stream->in) == 0)
        return attempt_straight(stream, straight, anew);
    ea_bytes_reserve(&stream->in, stream->in.base && want > 1 ? want / 2 : want, stream->size);
    ea_result r = io_read(stream->object, stream->in.base + stream->in.end,
                          stream->in.capa - stream->in.end, anew);
    if (r > 0) {
        stream->in.end += (size_t)r;
        stream->received += (uint64_t)r;
    }
    return r;
}

bool ea_buffered_fill(VALUE self, size_t want, struct ea_straight *straight,
                      struct ea_patience *patience) {
    struct ea_buffered *stream = ea_buffered(self);
    uint64_t received = stream->received;
    want = want < stream->size ? stream->size : want;
    want = want < EA_AT_ONCE || stream->size > EA_AT_ONCE ? want : EA_AT_ONCE;
    for (bool waited = false;; waited = true) {
        ea_wait_account();
        rb_thread_check_ints();
        ea_buffered_check(stream);
        if (stream->received != received)
            return true;
        if (RB_UNLIKELY(stream->reading.taken)) {
            await_turn(self, &stream->reading, patience);
            continue;
        }
        ea_result pushed = push_first(self, patience);
        if (RB_UNLIKELY(stream->reading.taken || stream->received != received))
            continue; /* that took a while */
        ea_result r = attempt(self, want, straight, waited);
        if (RB_LIKELY(r > 0))
            return true;
        if (r == EA_EOF)
            return false;
        if (ea_is_error(r))
            ea_io_fail(stream->object, ea_errno(r));
        ea_buffered_check(stream);
        wait_in_turn(self, &stream->reading, events_of(r) | events_of(pushed), 0, patience);
    }
}

void ea_buffered_flush(VALUE self, uint64_t accepted, struct ea_patience *patience) {
    struct ea_buffered *stream = ea_buffered(self);
    uint64_t before = ea_buffered_written(stream);
    while (ea_buffered_written(stream) < accepted) {
        ea_wait_account();
        rb_thread_check_ints();
        ea_buffered_check(stream);
        if (RB_UNLIKELY(stream->writing.taken)) {
            await_turn(self, &stream->writing, patience);
            continue;
        }
        ea_result r = ea_buffered_push(self);
        if (RB_LIKELY(r == 0))
            return;
        if (ea_is_error(r))
            ea_io_fail(rb_io_get_write_io(stream->object), ea_errno(r));
        ea_buffered_check(stream);
        wait_in_turn(self, &stream->writing, events_of(r),
                     (size_t)(ea_buffered_written(stream) - before), patience);
    }
}

void ea_init_buffered_source(void) {
    id_readpartial = rb_intern("readpartial");
    id_write = rb_intern("write");
    id_broadcast = rb_intern("broadcast");
    id_wait = rb_intern("wait");
    id_owned_p = rb_intern("owned?");
}
