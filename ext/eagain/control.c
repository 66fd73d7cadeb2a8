/* See control.h.
 *
 * Descriptors that arrive are ours from the moment of the call, and nobody else's until an IO
 * object holds them: whoever receives discards those that were not adopted, whatever is raised
 * meanwhile. */
#include "control.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

/* --- Sending. */

static VALUE field(VALUE object, const char *name) {
    return rb_funcall(object, rb_intern(name), 0);
}

/* Symbols and names become numbers as the family has it. */
static VALUE normal(VALUE socket, VALUE level, VALUE type, VALUE data) {
    VALUE args[] = {INT2NUM(ea_socket_family(socket)), level, type, data};
    return rb_class_new_instance(4, args, ea_socket_class(EA_ANCILLARY_DATA));
}

void ea_control_read(VALUE socket, VALUE object, struct ea_control *control) {
    if (RB_TYPE_P(object, T_FILE)) {
        *control = (struct ea_control){.data = object};
        return;
    }
    VALUE level, type, data, triple = rb_check_array_type(object);
    if (!NIL_P(triple)) {
        if (RARRAY_LEN(triple) != 3)
            rb_raise(rb_eArgError, "an element of controls should be 3-elements array");
        level = rb_ary_entry(triple, 0);
        type = rb_ary_entry(triple, 1);
        data = rb_ary_entry(triple, 2);
    } else {
        VALUE io = ea_is_a(object, EA_ANCILLARY_DATA) ? Qnil : rb_io_check_io(object);
        if (!NIL_P(io)) {
            *control = (struct ea_control){.data = io};
            return;
        }
        level = field(object, "level");
        type = field(object, "type");
        data = field(object, "data");
    }
    if (!RB_INTEGER_TYPE_P(level) || !RB_INTEGER_TYPE_P(type)) {
        VALUE named = normal(socket, level, type, data);
        level = field(named, "level");
        type = field(named, "type");
    }
    control->level = NUM2INT(level);
    control->type = NUM2INT(type);
    StringValue(data);
    control->data = data;
}

static bool is_io(const struct ea_control *control) {
    return RB_TYPE_P(control->data, T_FILE);
}

size_t ea_control_size(const struct ea_control *controls, long count) {
    size_t size = 0, ios = 0;
    for (long i = 0; i < count; i++) {
        if (is_io(&controls[i]))
            ios++;
        else
            size += CMSG_SPACE((size_t)RSTRING_LEN(controls[i].data));
    }
    return size + (ios > 0 ? CMSG_SPACE(ios * sizeof(int)) : 0);
}

/* Begins a control with room for len bytes; returns where these go. */
static char *begin(char **to, int level, int type, size_t len) {
    memset(*to, 0, CMSG_SPACE(len));
    struct cmsghdr *header = (struct cmsghdr *)(void *)*to;
    header->cmsg_level = level;
    header->cmsg_type = type;
    header->cmsg_len = CMSG_LEN(len);
    *to += CMSG_SPACE(len);
    return (char *)CMSG_DATA(header);
}

void ea_control_write(const struct ea_control *controls, long count, char *to) {
    size_t ios = 0;
    for (long i = 0; i < count; i++) {
        const struct ea_control *control = &controls[i];
        if (is_io(control)) {
            ios++;
            continue;
        }
        size_t len = (size_t)RSTRING_LEN(control->data);
        memcpy(begin(&to, control->level, control->type, len), RSTRING_PTR(control->data), len);
    }
    if (ios == 0)
        return;
    char *numbers = begin(&to, SOL_SOCKET, SCM_RIGHTS, ios * sizeof(int));
    for (long i = 0; i < count; i++) {
        if (!is_io(&controls[i]))
            continue;
        rb_io_t *fptr;
        GetOpenFile(controls[i].data, fptr);
        memcpy(numbers, &fptr->fd, sizeof(int));
        numbers += sizeof(int);
    }
}

/* --- Receiving. */

/* How many bytes of data a control has. One that was cut off claims more than there are. */
static size_t data_length(const struct msghdr *message, const struct cmsghdr *header) {
    const char *end = (const char *)message->msg_control + message->msg_controllen;
    const char *data = (const char *)CMSG_DATA((struct cmsghdr *)header);
    size_t room = end > data ? (size_t)(end - data) : 0;
    size_t len = header->cmsg_len > CMSG_LEN(0) ? header->cmsg_len - CMSG_LEN(0) : 0;
    return len < room ? len : room;
}

static size_t descriptors(const struct msghdr *message, const struct cmsghdr *header) {
    if (header->cmsg_level != SOL_SOCKET || header->cmsg_type != SCM_RIGHTS)
        return 0;
    return data_length(message, header) / sizeof(int);
}

static int descriptor(const struct cmsghdr *header, size_t index) {
    int number;
    memcpy(&number, CMSG_DATA((struct cmsghdr *)header) + index * sizeof(int), sizeof(int));
    return number;
}

void ea_control_discard(struct msghdr *message, size_t from) {
    size_t seen = 0;
    for (struct cmsghdr *header = CMSG_FIRSTHDR(message); header;
         header = CMSG_NXTHDR(message, header)) {
        size_t count = descriptors(message, header);
        for (size_t i = 0; i < count; i++) {
            if (seen++ >= from)
                close(descriptor(header, i));
        }
    }
}

/* The IO object for a descriptor that arrived: as Ruby has it, a Socket or an IO for both
 * directions. */
static VALUE adopt(int number, size_t *adopted) {
    struct stat status;
    if (fstat(number, &status) != 0)
        rb_raise(ea_socket_class(EA_SOCKET_ERROR), "invalid fd in SCM_RIGHTS");
#ifndef MSG_CMSG_CLOEXEC
    rb_fd_fix_cloexec(number);
#endif
    if (S_ISSOCK(status.st_mode)) {
        VALUE klass = ea_socket_class(EA_SOCKET);
        ++*adopted; /* ea_socket_new() closes it if it raises */
        return ea_socket_new(klass, number);
    }
    VALUE io = rb_io_fdopen(number, O_RDWR, NULL);
    ++*adopted;
    return io;
}

void ea_control_push(VALUE socket, struct msghdr *message, VALUE array, size_t *adopted) {
    VALUE klass = ea_socket_class(EA_ANCILLARY_DATA);
    VALUE family = INT2NUM(ea_socket_family(socket));
    for (struct cmsghdr *header = CMSG_FIRSTHDR(message); header;
         header = CMSG_NXTHDR(message, header)) {
        const char *data = (const char *)CMSG_DATA(header);
        VALUE args[] = {family, INT2NUM(header->cmsg_level), INT2NUM(header->cmsg_type),
                        rb_str_new(data, (long)data_length(message, header))};
        VALUE control = rb_class_new_instance(4, args, klass);
        size_t count = descriptors(message, header);
        if (adopted && count > 0) {
            VALUE ios = rb_ary_new_capa((long)count);
            for (size_t i = 0; i < count; i++)
                rb_ary_push(ios, adopt(descriptor(header, i), adopted));
            OBJ_FREEZE(ios);
            /* Where Socket::AncillaryData#unix_rights looks. */
            rb_ivar_set(control, rb_intern("unix_rights"), ios);
        }
        rb_ary_push(array, control);
    }
}
