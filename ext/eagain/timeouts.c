/* Timeouts: the hook of Timeout.timeout. A block has a timer, and its fiber is told when it next waits, or
 * at once if it does.
 *
 * A fiber that the program resumes by itself may be left for good in the midst of a block, and is collected
 * then. So the timer lies in an object that the fiber's stack alone refers to, and is disarmed with that.
 * It may be swept after the Fiber, and another Fiber have the same address meanwhile: those that have had
 * timeouts themselves are known by a hidden instance variable.
 *
 * Outside of a scheduler, no `rescue => e` in a block sees the error of a Timeout.timeout that names no
 * class. Up to Ruby 3.3's (0.4.1) the library asks a scheduler for a plain Timeout::Error then, as if
 * the caller had named it, and the two cannot be told apart. So such a block is ended by an
 * Eagain::Expired, which is no StandardError, and becomes what was asked for on the way out. Later
 * versions pass an exception object that they hide themselves, and a named class is raised as it is. */
#include "scheduler.h"

static ID id_mark;

static void timeout_fire(struct ea_timer *timer) {
    struct ea_timeout *timeout = EA_CONTAINER(timer, struct ea_timeout, timer);
    struct ea_fiber *sleeper = ea_fiber_innermost(timeout->owner);
    ea_link_insert_before(&timeout->owner->overdue, &timeout->overdue);
    if (!sleeper->relocking)
        ea_fiber_wake(sleeper);
}

static void detach(struct ea_timeout *timeout) {
    if (!timeout->owner)
        return;
    ea_timer_cancel(&timeout->owner->scheduler->poll.timers, &timeout->timer);
    ea_link_remove(&timeout->within);
    ea_link_remove(&timeout->overdue);
    timeout->owner = NULL;
}

static void timeout_free(void *ptr) {
    detach(ptr);
    xfree(ptr);
}

static size_t timeout_memsize(const void *ptr) {
    (void)ptr;
    return sizeof(struct ea_timeout);
}

/* It marks nothing: what it refers to is on the fiber's stack, and looked at while that is there. */
static const rb_data_type_t timeout_type = {
    .wrap_struct_name = "Eagain timeout",
    .function = {.dfree = timeout_free, .dsize = timeout_memsize},
    .flags = RUBY_TYPED_FREE_IMMEDIATELY | RUBY_TYPED_WB_PROTECTED,
};

void ea_timeouts_detach(struct ea_fiber *owner) {
    while (!ea_link_alone(&owner->timeouts))
        detach(EA_CONTAINER(owner->timeouts.next, struct ea_timeout, within));
}

void ea_timeouts_adopt(struct ea_fiber *owner) {
    if (!OBJ_FROZEN(owner->fiber) && NIL_P(rb_ivar_get(owner->fiber, id_mark)))
        ea_timeouts_detach(owner);
}

static VALUE timeout_exception(const struct ea_timeout *timeout) {
    if (!timeout->hidden)
        return rb_make_exception(timeout->argc, timeout->argv);
    return rb_funcall(rb_path2class("Eagain::Expired"), rb_intern("new"), 1, timeout->token);
}

void ea_timeout_raise(struct ea_link *overdue) {
    struct ea_timeout *timeout = EA_CONTAINER(overdue->next, struct ea_timeout, overdue);
    ea_link_remove(&timeout->overdue);
    rb_exc_raise(timeout_exception(timeout));
}

static VALUE timeout_body(VALUE arg) {
    return rb_yield(((const struct ea_timeout *)arg)->seconds);
}

static VALUE timeout_ensure(VALUE arg) {
    detach((struct ea_timeout *)arg);
    return Qnil;
}

static VALUE timeout_run(VALUE arg) {
    return rb_ensure(timeout_body, arg, timeout_ensure, arg);
}

static VALUE timeout_run_hidden(struct ea_timeout *timeout) {
    int state = 0;
    VALUE result = rb_protect(timeout_run, (VALUE)timeout, &state);
    if (!state)
        return result;
    VALUE error = rb_errinfo();
    if (!ea_error_is(error, rb_path2class("Eagain::Expired")) ||
        rb_funcall(error, rb_intern("token"), 0) != timeout->token)
        rb_jump_tag(state);
    rb_set_errinfo(Qnil);
    VALUE exception = rb_make_exception(timeout->argc, timeout->argv);
    rb_funcall(exception, rb_intern("set_backtrace"), 1,
               rb_funcall(error, rb_intern("backtrace"), 0));
    rb_exc_raise(exception);
}

static VALUE timeout_module(void) {
    ID name = rb_intern("Timeout");
    return rb_const_defined(rb_cObject, name) ? rb_const_get(rb_cObject, name) : Qnil;
}

static bool is_timeout_error(VALUE klass) {
    return RB_TYPE_P(klass, T_CLASS) && !NIL_P(timeout_module()) &&
           klass == rb_path2class("Timeout::Error");
}

static VALUE nothing(RB_BLOCK_CALL_FUNC_ARGLIST(unused, data)) {
    (void)unused;
    return data;
}

static VALUE ask_library(VALUE seconds) {
    return rb_block_call(timeout_module(), rb_intern("timeout"), 1, &seconds, nothing, Qnil);
}

/* Does Timeout.timeout hide the error of a call that names no class by itself? Found out by such a call,
 * which comes back to timeout_after; known by its number, in case that a trap handler calls it, too. */
static bool library_hides(struct ea_scheduler *scheduler) {
    if (scheduler->library != EA_LIBRARY_UNKNOWN || rb_fiber_scheduler_current() != scheduler->self)
        return scheduler->library == EA_LIBRARY_HIDES;
    int state = 0;
    VALUE seconds = rb_rational_raw(INT2FIX(1), INT2FIX(1));
    scheduler->probe = seconds;
    rb_protect(ask_library, seconds, &state);
    RB_GC_GUARD(seconds); /* the only one with this address until here */
    scheduler->probe = Qfalse;
    if (state && !ea_error_is(rb_errinfo(), rb_eStandardError))
        rb_jump_tag(state);
    if (state)
        rb_set_errinfo(Qnil);
    if (scheduler->library == EA_LIBRARY_UNKNOWN) /* it is not what we know it as */
        scheduler->library = EA_LIBRARY_SHOWS;
    return scheduler->library == EA_LIBRARY_HIDES;
}

/* call-seq: timeout_after(seconds, exception_class, *arguments) { |seconds| } -> result of the block
 *
 * Timeout.timeout: raises in the block, where it waits or does I/O, once the time is up. A block that
 * computes is not interrupted.
 *
 * The Timeout::Error of a Timeout.timeout that names no class is not for the block to rescue. Up to Ruby
 * 3.3, one that names Timeout::Error itself looks the same from here, and is hidden from the block too. */
static VALUE scheduler_timeout_after(int argc, VALUE *argv, VALUE self) {
    struct ea_scheduler *scheduler = ea_scheduler_get(self);
    rb_check_arity(argc, 1, UNLIMITED_ARGUMENTS);
    rb_need_block();
    if (RB_UNLIKELY(scheduler->probe && argv[0] == scheduler->probe)) {
        bool shows = argc > 1 && is_timeout_error(argv[1]);
        scheduler->library = shows ? EA_LIBRARY_SHOWS : EA_LIBRARY_HIDES;
        return Qnil;
    }
    int64_t deadline = ea_deadline(argv[0]);
    bool hidden = argc > 1 && is_timeout_error(argv[1]) && !library_hides(scheduler);
    struct ea_timeout *timeout;
    VALUE token = TypedData_Make_Struct(rb_cObject, struct ea_timeout, &timeout_type, timeout);
    struct ea_fiber *owner = ea_fiber_current(scheduler);
    if (!owner->own && ea_link_alone(&owner->timeouts) && !OBJ_FROZEN(owner->fiber))
        rb_ivar_set(owner->fiber, id_mark, Qtrue);
    timeout->owner = owner;
    timeout->argc = argc > 1 ? argc - 1 : 1;
    timeout->argv = argc > 1 ? argv + 1 : &rb_eRuntimeError;
    timeout->seconds = argv[0];
    timeout->token = token;
    timeout->hidden = hidden;
    ea_timer_init(&timeout->timer, timeout_fire);
    ea_link_init(&timeout->overdue);
    ea_link_insert_before(&owner->timeouts, &timeout->within);
    ea_timer_arm(&scheduler->poll.timers, &timeout->timer, deadline);
    VALUE result = hidden ? timeout_run_hidden(timeout) : timeout_run((VALUE)timeout);
    RB_GC_GUARD(token);
    return result;
}

void ea_init_timeouts(VALUE klass) {
    id_mark = rb_intern("__eagain_timeout__"); /* no name of Ruby's: hidden */
    rb_define_method(klass, "timeout_after", scheduler_timeout_after, -1);
}
