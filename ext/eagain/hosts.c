/* Names that are in /etc/hosts, and need no thread.
 *
 * Where that file is what the system's resolver asks first (nsswitch.conf(5): "hosts: files ..."), and has the
 * name, getaddrinfo(3) waits for nobody. It is asked once for each such name, on the spot, so that the answer is
 * the system's in every respect; and again once the file is another, which stat(2) tells. */
#include "hosts.h"

#include <ctype.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define HOSTS "/etc/hosts"

/* A longer file (a list of what to block) is left to the thread. */
#define LONGEST 65536

/* ns after which a file that has not changed since is known by its time. */
#define SETTLED 100000000

/* How many spellings of its names are remembered. */
#define ANSWERS 1024

static const char *skip_blanks(const char *at) {
    return at + strspn(at, " \t");
}

/* Does the line say that the file is asked first, and that nobody else is once it has the name? */
static bool asks_files_first(const char *line) {
    line = skip_blanks(line);
    if (strncmp(line, "hosts:", 6) != 0)
        return false;
    line = skip_blanks(line + 6);
    if (strncmp(line, "files", 5) != 0 || !strchr(" \t\n", line[5]))
        return false;
    return *skip_blanks(line + 5) != '[';
}

static bool files_come_first(void) {
#if defined(__linux__) && defined(__GLIBC__)
    char line[512];
    bool first = false;
    FILE *file = fopen("/etc/nsswitch.conf", "re");
    if (!file)
        return false;
    while (!first && fgets(line, sizeof(line), file))
        first = asks_files_first(line);
    fclose(file);
    return first;
#elif defined(__linux__)
    (void)asks_files_first;
    return true; /* musl */
#else
    (void)asks_files_first;
    return false;
#endif
}

static void add_names(VALUE names, char *line) {
    char *rest;
    line[strcspn(line, "#")] = 0;
    if (!strtok_r(line, " \t\r", &rest)) /* the address */
        return;
    for (const char *name; (name = strtok_r(NULL, " \t\r", &rest)) != NULL;) {
        VALUE key = rb_usascii_str_new_cstr(name);
        for (char *c = RSTRING_PTR(key); *c; c++)
            *c = (char)tolower((unsigned char)*c);
        rb_hash_aset(names, key, Qtrue);
    }
}

static VALUE read_names(void) {
    VALUE names = rb_hash_new();
    VALUE text = rb_str_tmp_new(LONGEST); /* goes with whatever raises */
    int fd = open(HOSTS, O_RDONLY | O_CLOEXEC);
    ssize_t length = fd < 0 ? -1 : read(fd, RSTRING_PTR(text), LONGEST);
    if (fd >= 0)
        close(fd);
    if (length > 0 && length < LONGEST) {
        char *line, *rest, *at = RSTRING_PTR(text);
        at[length] = 0;
        for (; (line = strtok_r(at, "\n", &rest)) != NULL; at = NULL)
            add_names(names, line);
    }
    RB_GC_GUARD(text);
    return names;
}

static bool same(const struct stat *a, const struct stat *b) {
    return a->st_dev == b->st_dev && a->st_ino == b->st_ino && a->st_size == b->st_size &&
           a->st_mtim.tv_sec == b->st_mtim.tv_sec && a->st_mtim.tv_nsec == b->st_mtim.tv_nsec &&
           a->st_ctim.tv_sec == b->st_ctim.tv_sec && a->st_ctim.tv_nsec == b->st_ctim.tv_nsec;
}

/* It may change again, and get the same time once more: the clock of files has ticks. */
static bool just_changed(const struct stat *st) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    int64_t age =
        ((int64_t)now.tv_sec - st->st_ctim.tv_sec) * 1000000000 + now.tv_nsec - st->st_ctim.tv_nsec;
    return age < SETTLED;
}

static bool look(struct ea_hosts *hosts, VALUE owner) {
    struct stat st;
    if (stat(HOSTS, &st) != 0)
        return false;
    if (RB_LIKELY(hosts->names && same(&st, &hosts->seen)))
        return true;
    RB_OBJ_WRITE(owner, &hosts->names, Qfalse);
    VALUE names = files_come_first() ? read_names() : rb_hash_new();
    RB_OBJ_WRITE(owner, &hosts->answers, rb_hash_new());
    RB_OBJ_WRITE(owner, &hosts->names, names);
    hosts->seen = just_changed(&st) ? (struct stat){0} : st;
    return true;
}

enum ea_hosts_answer ea_hosts_find(struct ea_hosts *hosts, VALUE owner, VALUE name, VALUE *answer) {
    if (!look(hosts, owner))
        return EA_HOSTS_UNKNOWN;
    *answer = rb_hash_lookup(hosts->answers, name);
    if (RB_LIKELY(RB_TYPE_P(*answer, T_ARRAY))) {
        *answer = rb_ary_dup(*answer);
        return EA_HOSTS_KNOWN;
    }
    VALUE lower = rb_funcall(name, rb_intern("downcase"), 1, ID2SYM(rb_intern("ascii")));
    return RTEST(rb_hash_lookup(hosts->names, lower)) ? EA_HOSTS_ASK : EA_HOSTS_UNKNOWN;
}

void ea_hosts_keep(struct ea_hosts *hosts, VALUE name, VALUE answer) {
    if (RHASH_SIZE(hosts->answers) >= ANSWERS)
        rb_hash_clear(hosts->answers);
    for (long i = 0; i < RARRAY_LEN(answer); i++)
        rb_str_freeze(rb_ary_entry(answer, i));
    rb_hash_aset(hosts->answers, name, rb_ary_dup(answer));
}

void ea_hosts_mark(const struct ea_hosts *hosts) {
    if (hosts->names)
        rb_gc_mark(hosts->names);
    if (hosts->answers)
        rb_gc_mark(hosts->answers);
}
