/* The spare String, one for each Ractor: see stream.h.
 *
 * It is nobody's: hidden, and forgotten by each GC, so that it costs memory only for as long as it is
 * in use. For that its holder is not protected by write barriers: the GC looks at such an object each
 * time, and again at the end of incremental marking. */
#include "stream.h"

#include <ruby/ractor.h>

/* How much of a String may be unused, as in Ruby. */
#define SLACK 4096

static rb_ractor_local_key_t spare_key;

static void spare_mark(void *spare) {
    ((struct ea_spare *)spare)->string = Qfalse;
}

static const rb_data_type_t spare_type = {
    .wrap_struct_name = "Eagain spare",
    .function = {.dmark = spare_mark, .dfree = RUBY_DEFAULT_FREE},
    .flags = RUBY_TYPED_FREE_IMMEDIATELY,
};

struct ea_spare *ea_spare(void) {
    VALUE holder;
    struct ea_spare *spare;
    if (RB_LIKELY(rb_ractor_local_storage_value_lookup(spare_key, &holder)))
        return RTYPEDDATA_DATA(holder);
    holder = TypedData_Make_Struct(0, struct ea_spare, &spare_type, spare);
    rb_ractor_local_storage_value_set(spare_key, holder);
    return spare;
}

VALUE ea_spare_take(struct ea_spare *spare, long len) {
    VALUE string = spare->string;
    spare->string = Qfalse;
    if (RB_LIKELY(string && spare->room >= len))
        return string;
    if (string)
        rb_str_resize(string, 0); /* gives its memory back now */
    string = rb_str_tmp_new(len);
    spare->room = (long)rb_str_capacity(string);
    return string;
}

VALUE ea_spare_give(struct ea_spare *spare, VALUE string, long n) {
    long unused = spare->room - n;
    if (unused > SLACK && unused > n) {
        VALUE answer = rb_str_new(RSTRING_PTR(string), n);
        spare->string = string;
        return answer;
    }
    rb_str_set_len(string, n);
    rb_obj_reveal(string, rb_cString);
    if (unused > SLACK)
        rb_str_resize(string, n);
    return string;
}

void ea_init_spare(void) {
    spare_key = rb_ractor_local_storage_value_newkey();
}
