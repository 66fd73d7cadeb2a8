/* Stacks of fibers that have ended.
 *
 * Up to Ruby 3.3, the stack of a fiber that was transferred to is given back only when the garbage collector
 * finds the fiber, and the collector knows nothing of stacks. Each new fiber would have one that is in no cache,
 * and the process would run out of mappings (vm.max_map_count) in the end. So see to it that not many more are
 * dead than alive: most fibers die young, and are found without a look at all objects.
 *
 * Later Rubies (extconf.rb finds out which) give it back when whoever transferred to it goes on, so that none of
 * those who are alive keeps more than one. Should there be one that does not after all, it shows in how much is
 * mapped. */
#include "scheduler.h"

#include <fcntl.h>
#include <unistd.h>

/* After so many looks at the young ones, all are looked at. */
#define YOUNG 16

/* Bytes of address space; stacks are 256 KiB and more, unless the environment says otherwise. */
#define LEAST_STACK 32768

static void collect(bool all) {
    if (RTEST(rb_gc_disable())) /* by the program, which knows why */
        return;
    rb_gc_enable();
    VALUE options = rb_hash_new();
    rb_hash_aset(options, ID2SYM(rb_intern("full_mark")), all ? Qtrue : Qfalse);
    rb_funcallv_kw(rb_mGC, rb_intern("start"), 1, &options, RB_PASS_KEYWORDS);
}

#ifdef EA_STACKS_ARE_KEPT
void ea_stacks_limit(struct ea_scheduler *scheduler) {
    size_t majors = rb_gc_stat(ID2SYM(rb_intern("major_gc_count")));
    if (majors != scheduler->stacks.majors)
        scheduler->stacks.looks = 0;
    collect(++scheduler->stacks.looks % YOUNG == 0);
    scheduler->stacks.majors = majors;
    scheduler->stacks.starts = 0;
}
#else
/* Bytes of address space; 0: the system does not tell. */
static size_t mapped(void) {
    char text[32];
    int fd = open("/proc/self/statm", O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return 0;
    ssize_t length = read(fd, text, sizeof(text) - 1);
    close(fd);
    if (length <= 0)
        return 0;
    text[length] = 0;
    return strtoul(text, NULL, 10) * (size_t)sysconf(_SC_PAGESIZE);
}

void ea_stacks_limit(struct ea_scheduler *scheduler) {
    size_t before = scheduler->stacks.mapped, now = mapped();
    if (now == 0 || (before > 0 && now - before > EA_DEAD_STACKS * LEAST_STACK && now > before)) {
        collect(true);
        now = mapped();
    }
    scheduler->stacks.mapped = now;
    scheduler->stacks.starts = 0;
}
#endif
