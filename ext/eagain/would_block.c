/* See would_block.h.
 *
 * A class is introduced by a specimen: an instance that was made the normal way. What is in it besides
 * the message (nil and small integers, or this does not apply) is what a new one gets, in the same
 * order, so that all have the same shape.
 *
 * Making the message and the empty backtrace on demand: the exception is given a text and an array that
 * all share, frozen. Whoever asks for them by a method gets his own, and the exception keeps that. What
 * looks inside without asking (Marshal, ==, dup) finds the right content either way. */
#include "would_block.h"

#include <errno.h>
#include <ruby/ractor.h>

/* More than a specimen has. */
#define VARIABLES_MAX 8

#ifdef HAVE_STRUCT_ROBJECT_AS_HEAP_NUMIV
#define HAVE_SLOTS 1
#endif

/* How an instance of a class is made. */
struct recipe {
    VALUE klass;
    VALUE text;           /* the message without ours: "Resource temporarily unavailable" */
    rb_alloc_func_t make; /* NULL: only the normal way leads to an instance */
    int count;
    int message, backtrace; /* which of the variables they are */
    ID names[VARIABLES_MAX];
    VALUE values[VARIABLES_MAX]; /* nil or a Fixnum; nothing to mark */
#ifdef HAVE_SLOTS
    /* What the slots of an instance hold, but for the message; 0 of them: not known. */
    uint32_t slots, message_slot;
    VALUE image[VARIABLES_MAX];
#endif
};

enum {
    AGAIN_READABLE,
    AGAIN_WRITABLE,
    PROGRESS_READABLE,
    PROGRESS_WRITABLE,
    SSL_READABLE,
    SSL_WRITABLE,
    RECIPES
};

static struct recipe recipes[RECIPES];

static const struct {
    int recipe;
    const char *text;
} calls[EA_WB_CALLS] = {
    [EA_WB_READ] = {AGAIN_READABLE, "read would block"},
    [EA_WB_WRITE] = {AGAIN_WRITABLE, "write would block"},
    [EA_WB_RECVFROM] = {AGAIN_READABLE, "recvfrom(2) would block"},
    [EA_WB_RECVMSG] = {AGAIN_READABLE, "recvmsg(2) would block"},
    [EA_WB_SENDMSG] = {AGAIN_WRITABLE, "sendmsg(2) would block"},
    [EA_WB_ACCEPT] = {AGAIN_READABLE, "accept(2) would block"},
    [EA_WB_CONNECT] = {PROGRESS_WRITABLE, "connect(2) would block"},
    [EA_WB_SSL_READ] = {SSL_READABLE, "read would block"},
    [EA_WB_SSL_WRITE] = {SSL_WRITABLE, "write would block"},
};

/* The whole messages, frozen; 0 of a class that was not introduced. */
static VALUE messages[EA_WB_CALLS];

atomic_bool ea_would_block_backtraces;

static VALUE no_backtrace;          /* a frozen empty Array */
static ID id_message, id_backtrace; /* the hidden variables of an exception */
static int raised;                  /* what rb_protect says of an exception */
static atomic_bool on_demand;

/* --- Introduction. */

struct survey {
    struct recipe *recipe;
    bool fits;
};

static int survey_variable(ID name, VALUE value, st_data_t argument) {
    struct survey *survey = (struct survey *)argument;
    struct recipe *recipe = survey->recipe;
    if (recipe->count == VARIABLES_MAX ||
        !(NIL_P(value) || FIXNUM_P(value) || name == id_message)) {
        survey->fits = false;
        return ST_STOP;
    }
    if (name == id_message)
        recipe->message = recipe->count;
    if (name == id_backtrace)
        recipe->backtrace = recipe->count;
    recipe->names[recipe->count] = name;
    recipe->values[recipe->count] = name == id_message ? Qnil : value;
    recipe->count++;
    return ST_CONTINUE;
}

static VALUE instance(VALUE klass, const char *text) {
    VALUE message = text ? rb_str_new_cstr(text) : Qnil;
    return rb_class_new_instance(text ? 1 : 0, &message, klass);
}

/* What Exception#message gives, as a frozen String. */
static VALUE message_of(VALUE error) {
    VALUE message = rb_obj_as_string(error);
    return rb_str_new_frozen(message);
}

#ifdef HAVE_SLOTS
/* In a Ruby that counts the slots of an object, all instances of a class have a variable in the same slot,
 * and it can be put there without being looked for. */
static void find_slots(struct recipe *recipe) {
    VALUE probe = recipe->make(recipe->klass);
    for (int i = 0; i < recipe->count; i++)
        rb_ivar_set(probe, recipe->names[i], INT2FIX(i));
    if (ROBJECT_NUMIV(probe) < (uint32_t)recipe->count)
        return;
    for (int slot = 0; slot < recipe->count; slot++) {
        VALUE value = ROBJECT_IVPTR(probe)[slot];
        if (!FIXNUM_P(value)) /* an empty one, between them */
            return;
        int i = FIX2INT(value);
        recipe->image[slot] = i == recipe->backtrace ? no_backtrace : recipe->values[i];
        if (i == recipe->message)
            recipe->message_slot = (uint32_t)slot;
    }
    recipe->slots = (uint32_t)recipe->count;
}
#endif

static void introduce(int index, VALUE klass) {
    struct recipe *recipe = &recipes[index];
    *recipe = (struct recipe){.klass = klass, .message = -1, .backtrace = -1};
    rb_gc_register_mark_object(klass);
    recipe->text = message_of(instance(klass, NULL));
    rb_gc_register_mark_object(recipe->text);
    VALUE specimen = Qnil;
    for (int i = 0; i < EA_WB_CALLS; i++) {
        if (calls[i].recipe != index)
            continue;
        specimen = instance(klass, calls[i].text);
        messages[i] = message_of(specimen);
        rb_gc_register_mark_object(messages[i]);
    }
    if (NIL_P(specimen))
        specimen = instance(klass, "");
    struct survey survey = {.recipe = recipe, .fits = true};
    rb_ivar_foreach(specimen, survey_variable, (st_data_t)&survey);
    if (survey.fits && recipe->message >= 0 && recipe->backtrace >= 0 &&
        RB_TYPE_P(specimen, T_OBJECT))
        recipe->make = rb_get_alloc_func(klass);
#ifdef HAVE_SLOTS
    if (recipe->make)
        find_slots(recipe);
#endif
}

/* Does this Ruby keep an exception's message and backtrace where we think? If not, no class that is
 * introduced has variables of these names, and all are made the normal way. */
static void find_variables(void) {
    VALUE text = rb_str_new_cstr("text"), array = rb_ary_new();
    VALUE error = rb_exc_new_str(rb_eStandardError, text);
    ID message = rb_intern("mesg"), backtrace = rb_intern("bt");
    if (rb_attr_get(error, message) != text)
        return;
    rb_ivar_set(error, backtrace, array);
    if (rb_funcall(error, rb_intern("backtrace"), 0) != array)
        return;
    id_message = message;
    id_backtrace = backtrace;
}

static VALUE raise_any(VALUE klass) {
    rb_exc_raise(rb_exc_new_cstr(klass, ""));
}

static VALUE io_class(const char *name) {
    return rb_const_get(rb_cIO, rb_intern(name));
}

/* --- Making one. */

static VALUE make(const struct recipe *recipe, VALUE message, VALUE backtrace) {
    VALUE error = recipe->make(recipe->klass);
    for (int i = 0; i < recipe->count; i++)
        rb_ivar_set(error, recipe->names[i],
                    i == recipe->message     ? message
                    : i == recipe->backtrace ? backtrace
                                             : recipe->values[i]);
    return error;
}

/* With what all share, and no GC ever frees: hence no write barrier. */
static inline VALUE make_shared(const struct recipe *recipe, VALUE message) {
#ifdef HAVE_SLOTS
    if (RB_LIKELY(recipe->slots)) {
        VALUE error = recipe->make(recipe->klass);
        /* Outside of the object, when some instance of the class has more variables. */
        VALUE *slots = ROBJECT_IVPTR(error);
        if (RB_LIKELY(ROBJECT_NUMIV(error) >= recipe->slots)) {
            for (uint32_t i = 0; i < recipe->slots; i++)
                slots[i] = recipe->image[i];
            slots[recipe->message_slot] = message;
            return error;
        }
    }
#endif
    return make(recipe, message, no_backtrace);
}

/* The cheap way. */
static VALUE make_call(enum ea_would_block_call call, const struct recipe *recipe) {
    if (RB_LIKELY(atomic_load_explicit(&on_demand, memory_order_relaxed)))
        return make_shared(recipe, messages[call]);
    return make(recipe, rb_str_dup(messages[call]), rb_ary_new_capa(0));
}

static bool wants_backtrace(void) {
    return atomic_load_explicit(&ea_would_block_backtraces, memory_order_relaxed);
}

/* In full. */
NORETURN(static void raise_instance(VALUE error));
static void raise_instance(VALUE error) {
    if (!wants_backtrace() && id_backtrace)
        rb_ivar_set(error, id_backtrace, rb_ary_new_capa(0));
    rb_exc_raise(error);
}

void ea_would_block(enum ea_would_block_call call, VALUE cause) {
    const struct recipe *recipe = &recipes[calls[call].recipe];
    if (RB_UNLIKELY(!recipe->make || wants_backtrace()))
        raise_instance(instance(recipe->klass, calls[call].text));
    VALUE error = make_call(call, recipe);
    if (RB_UNLIKELY(!NIL_P(cause) || RTEST(ruby_debug) || !raised))
        rb_exc_raise(error);
    rb_set_errinfo(error);
    rb_jump_tag(raised);
}

static int recipe_of(bool writable, int error) {
    switch (error) {
    case EAGAIN:
        return writable ? AGAIN_WRITABLE : AGAIN_READABLE;
    case EINPROGRESS:
        return writable ? PROGRESS_WRITABLE : PROGRESS_READABLE;
    default:
        return -1;
    }
}

void ea_would_block_fail(bool writable, int error, const char *message) {
    int index = recipe_of(writable, error);
    if (index <
        0) /* Ruby's own affair: it has a class where EWOULDBLOCK is not EAGAIN, else extends */
        rb_readwrite_syserr_fail(writable ? RB_IO_WAIT_WRITABLE : RB_IO_WAIT_READABLE, error,
                                 message);
    const struct recipe *recipe = &recipes[index];
    if (RB_UNLIKELY(!recipe->make || wants_backtrace()))
        raise_instance(instance(recipe->klass, message));
    VALUE text = rb_str_dup(recipe->text);
    if (message) {
        rb_str_cat_cstr(text, " - ");
        rb_str_cat_cstr(text, message);
    }
    rb_exc_raise(make(recipe, text, rb_ary_new_capa(0)));
}

/* --- On demand. */

static bool is_shared(VALUE message) {
    if (!RB_TYPE_P(message, T_STRING) || !RB_OBJ_FROZEN(message))
        return false;
    for (int i = 0; i < EA_WB_CALLS; i++) {
        if (messages[i] == message)
            return true;
    }
    return false;
}

/* :nodoc: Its own message, before anybody sees the one that is shared. */
static VALUE error_to_s(VALUE error) {
    VALUE message = rb_attr_get(error, id_message);
    if (is_shared(message)) {
        VALUE own = rb_str_dup(message);
        if (RB_OBJ_FROZEN(error))
            return own;
        rb_ivar_set(error, id_message, own);
    }
    return rb_call_super(0, NULL);
}

/* :nodoc: The same for the backtrace. */
static VALUE error_backtrace(VALUE error) {
    if (rb_attr_get(error, id_backtrace) == no_backtrace) {
        VALUE own = rb_ary_new_capa(0);
        if (RB_OBJ_FROZEN(error))
            return own;
        rb_ivar_set(error, id_backtrace, own);
    }
    return rb_call_super(0, NULL);
}

static void answer_on_demand(const struct recipe *recipe) {
    if (!recipe->make)
        return;
    rb_define_method(recipe->klass, "to_s", error_to_s, 0);
    rb_define_method(recipe->klass, "backtrace", error_backtrace, 0);
}

void ea_would_block_on_demand(void) {
    for (int i = AGAIN_READABLE; i <= PROGRESS_WRITABLE; i++)
        answer_on_demand(&recipes[i]);
    atomic_store(&on_demand, true);
}

void ea_would_block_introduce_ssl(VALUE readable, VALUE writable) {
    introduce(SSL_READABLE, readable);
    introduce(SSL_WRITABLE, writable);
    if (atomic_load(&on_demand)) {
        answer_on_demand(&recipes[SSL_READABLE]);
        answer_on_demand(&recipes[SSL_WRITABLE]);
    }
}

void ea_init_would_block(void) {
    no_backtrace = rb_ractor_make_shareable(rb_ary_new());
    rb_gc_register_mark_object(no_backtrace);
    rb_protect(raise_any, rb_eStandardError, &raised);
    rb_set_errinfo(Qnil);
    find_variables();
    introduce(AGAIN_READABLE, io_class("EAGAINWaitReadable"));
    introduce(AGAIN_WRITABLE, io_class("EAGAINWaitWritable"));
    introduce(PROGRESS_READABLE, io_class("EINPROGRESSWaitReadable"));
    introduce(PROGRESS_WRITABLE, io_class("EINPROGRESSWaitWritable"));
}
