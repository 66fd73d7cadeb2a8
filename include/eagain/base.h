/* What every public header needs: linkage, symbol visibility, list links. */
#ifndef EAGAIN_BASE_H
#define EAGAIN_BASE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#ifdef __cplusplus
#define EA_BEGIN extern "C" {
#define EA_END }
#else
#define EA_BEGIN
#define EA_END
#endif

/* Marks what the shared library exports; everything else is hidden. */
#if defined(__GNUC__)
#define EA_API __attribute__((visibility("default")))
#define EA_LIKELY(x) __builtin_expect(!!(x), 1)
#define EA_UNLIKELY(x) __builtin_expect(!!(x), 0)
#else
#define EA_API
#define EA_LIKELY(x) (x)
#define EA_UNLIKELY(x) (x)
#endif

EA_BEGIN

/* A link of an intrusive, circular, doubly linked list. A list head is a link
 * too. An unlinked link points at itself, so that unlinking twice is harmless
 * and "is it linked?" needs no flag. Not thread-safe. */
struct ea_link {
    struct ea_link *next;
    struct ea_link *prev;
};

static inline void ea_link_init(struct ea_link *link) {
    link->next = link->prev = link;
}

static inline bool ea_link_alone(const struct ea_link *link) {
    return link->next == link;
}

static inline void ea_link_insert_before(struct ea_link *where, struct ea_link *link) {
    link->prev = where->prev;
    link->next = where;
    where->prev->next = link;
    where->prev = link;
}

static inline void ea_link_remove(struct ea_link *link) {
    link->prev->next = link->next;
    link->next->prev = link->prev;
    ea_link_init(link);
}

/* The struct of type that holds member at ptr. */
#define EA_CONTAINER(ptr, type, member) ((type *)(void *)((char *)(ptr)-offsetof(type, member)))

EA_END

#endif
