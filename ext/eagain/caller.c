/* Which method of Ruby's asked for a hook.
 *
 * Up to interface version 3, Ruby calls io_read with length 0 for IO#readpartial, which waits, and for
 * IO#read_nonblock, which must not; and io_write with length 0 for everything. -EAGAIN is always right:
 * Ruby then calls io_wait, and the hook again. But where it is known that the caller would wait, to do
 * so at once saves two calls of hooks and an IO::Buffer. So, after would-block and never before, look
 * at the frame above: a C method of IO or Kernel is one that waits. IO#read_nonblock is written in
 * Ruby, and whatever else may call a hook (a test, IO::Buffer, another scheduler) is none of these.
 *
 * What a frame is was found out once, is remembered by its method entry, and costs some 50 ns then. */
#include "scheduler.h"

#include <ruby/debug.h>
#include <string.h>

static bool among(VALUE name, const char *const *names) {
    if (!RB_TYPE_P(name, T_STRING))
        return false;
    for (; *names; names++)
        if (strcmp(RSTRING_PTR(name), *names) == 0)
            return true;
    return false;
}

static uint8_t classify(VALUE frame) {
    static const char *const classes[] = {"IO", "ARGF.class", NULL};
    static const char *const refusing[] = {
        "read_nonblock", "write_nonblock", "wait", "wait_readable",
        "wait_writable", "wait_priority",  NULL};
    static const char *const kernel[] = {"gets",  "readline", "readlines", "puts",
                                         "print", "printf",   "p",         "putc",
                                         "`",     "display",  NULL};
    /* These write in pieces, and wait for IO::WRITABLE in between. */
    static const char *const writers[] = {"puts",   "write", "print",   "<<", "p",
                                          "printf", "putc",  "display", NULL};
    VALUE name = rb_profile_frame_method_name(frame);
    VALUE klass = rb_profile_frame_classpath(frame);

    if (!NIL_P(rb_profile_frame_path(frame))) /* written in Ruby */
        return EA_CALLER_OTHER;
    if (among(klass, (const char *const[]){"Thread::Mutex", NULL}))
        return among(name, (const char *const[]){"sleep", NULL}) ? EA_CALLER_RELOCKS
                                                                 : EA_CALLER_OTHER;
    /* Mutex#sleep again: the frame of what it slept in is still there when that was interrupted. */
    if (among(klass, (const char *const[]){"Eagain::Scheduler", NULL}))
        return among(name, (const char *const[]){"kernel_sleep", NULL}) ? EA_CALLER_RELOCKS
                                                                        : EA_CALLER_OTHER;
    if (among(klass, classes)
            ? among(name, refusing)
            : !among(klass, (const char *const[]){"Kernel", NULL}) || !among(name, kernel))
        return EA_CALLER_OTHER;
    return among(name, writers) ? EA_CALLER_WRITES : EA_CALLER_WAITS;
}

/* Does its blocking work end by itself, and mostly soon? Not so: what opens (a FIFO), or copies between
 * descriptors, and what is not known. */
static bool is_brief(VALUE frame) {
    static const char *const classes[] = {"Dir", "File",    "FileTest", "File::Stat", "IO::Buffer",
                                          "IO",  "Integer", "Zlib",     NULL};
    static const char *const lasting[] = {
        "initialize", "open",      "new",     "sysopen", "copy_stream", "read",  "binread", "write",
        "binwrite",   "readlines", "foreach", "reopen",  "flock",       "popen", "mkfifo",  NULL};
    static const char *const loading[] = {"require", "require_relative", "load", "test", NULL};
    VALUE name = rb_profile_frame_method_name(frame);
    VALUE klass = rb_profile_frame_classpath(frame);
    if (among(klass, (const char *const[]){"Kernel", NULL}))
        return among(name, loading);
    if (RB_TYPE_P(klass, T_STRING) && strncmp(RSTRING_PTR(klass), "Zlib::", 6) == 0)
        return true;
    if (among(klass, (const char *const[]){"Dir", NULL}))
        return true;
    return among(klass, classes) && !among(name, lasting);
}

struct ea_caller *ea_caller_slot(struct ea_scheduler *scheduler) {
    VALUE frames[2] = {0, 0};
    int lines[2];
    rb_profile_frames(0, 2, frames, lines);
    struct ea_caller *slot = &scheduler->callers[(frames[1] >> 5) % EA_CALLERS];
    if (RB_UNLIKELY(slot->frame != frames[1])) {
        slot->kind = frames[1] ? classify(frames[1]) : EA_CALLER_OTHER;
        slot->brief = frames[1] && is_brief(frames[1]);
        slot->slow = false;
        slot->timed = 0;
        RB_OBJ_WRITE(scheduler->self, &slot->frame, frames[1]);
    }
    return slot;
}

enum ea_caller_kind ea_caller(struct ea_scheduler *scheduler) {
    return (enum ea_caller_kind)ea_caller_slot(scheduler)->kind;
}

/* Those that read and write for an IO do. IO::Buffer#read and its kin pass the buffer that the program called
 * them on, and who knows what others do. */
bool ea_caller_lends(void) {
    static const char *const hooks[] = {"io_read", "io_write", "io_pread", "io_pwrite", NULL};
    static const char *const lenders[] = {"IO", "Kernel", "ARGF.class", NULL};
    VALUE frames[2];
    int lines[2];
    return rb_profile_frames(0, 2, frames, lines) == 2 &&
           among(rb_profile_frame_method_name(frames[0]), hooks) &&
           NIL_P(rb_profile_frame_path(frames[1])) &&
           among(rb_profile_frame_classpath(frames[1]), lenders);
}
