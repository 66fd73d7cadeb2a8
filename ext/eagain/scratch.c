/* See scratch.h. */
#include "scratch.h"

#include <pthread.h>
#include <sys/mman.h>

#ifndef MAP_NORESERVE
#define MAP_NORESERVE 0
#endif

_Thread_local struct ea_scratch ea_scratch_own;

static pthread_key_t key; /* only for its destructor */

static void unmap(void) {
    if (ea_scratch_own.base)
        munmap(ea_scratch_own.base, ea_scratch_own.size);
    ea_scratch_own = (struct ea_scratch){NULL, 0};
}

static void thread_ends(void *base) {
    (void)base;
    unmap();
}

static bool map(size_t size) {
    char *base = mmap(NULL, size, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (base == MAP_FAILED)
        return false;
#ifdef MADV_NOHUGEPAGE
    madvise(base, size, MADV_NOHUGEPAGE); /* eleven bytes are not worth two megabytes */
#endif
    ea_scratch_own = (struct ea_scratch){base, size};
    pthread_setspecific(key, base);
    return true;
}

char *ea_scratch_make(size_t len) {
    unmap();
    bool made = len <= EA_SCRATCH_SIZE && map(EA_SCRATCH_SIZE);
    if (!made && !map(len > 0 ? len : 1))
        rb_memerror();
    return ea_scratch_own.base;
}

char *ea_scratch_zeroed(size_t len) {
    char *base = ea_scratch(len);
    if (madvise(base, ea_scratch_own.size, MADV_DONTNEED) != 0)
        memset(base, 0, len);
    return base;
}

void ea_scratch_trim(size_t used) {
    if (ea_scratch_own.size > EA_SCRATCH_SIZE)
        unmap();
    else if (used > EA_SCRATCH_KEPT)
        madvise(ea_scratch_own.base + EA_SCRATCH_KEPT, ea_scratch_own.size - EA_SCRATCH_KEPT,
                MADV_DONTNEED);
}

void ea_init_scratch(void) {
    if (pthread_key_create(&key, thread_ends) != 0)
        rb_memerror();
}
