/* The table of descriptors: two levels, so that a table for descriptor 1,000,000 costs one page
 * and not a million entries, and so that entries never move (see fd.h).
 *
 * Growing either succeeds or leaves the table as it was: a page or a longer directory that was
 * made before an allocation failed is kept, empty, and used by the next attempt. */
#include <eagain/fd.h>

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

/* Descriptors per page. A page is an array of pointers. */
#define PER_PAGE 512

void ea_fd_table_init(struct ea_fd_table *table) {
    *table = (struct ea_fd_table){0};
}

void ea_fd_table_term(struct ea_fd_table *table) {
    for (size_t i = 0; i < table->page_count; i++) {
        struct ea_fd **page = table->pages[i];
        if (!page)
            continue;
        for (size_t j = 0; j < PER_PAGE; j++)
            free(page[j]);
        free(page);
    }
    free(table->pages);
    ea_fd_table_init(table);
}

/* Makes the directory long enough for page `index`. Twice as long as before at least, so that
 * descriptors that come one by one cost O(1) each. */
static bool grow(struct ea_fd_table *table, size_t index) {
    if (index < table->page_count)
        return true;
    size_t count = table->page_count * 2;
    if (count <= index)
        count = index + 1;
    struct ea_fd ***pages = calloc(count, sizeof(*pages));
    if (!pages)
        return false;
    if (table->page_count)
        memcpy(pages, table->pages, table->page_count * sizeof(*pages));
    free(table->pages);
    table->pages = pages;
    table->page_count = count;
    return true;
}

static struct ea_fd *make_entry(struct ea_fd_table *table, int number) {
    size_t index = (size_t)number / PER_PAGE;
    if (!grow(table, index))
        goto fail;
    struct ea_fd **page = table->pages[index];
    if (!page) {
        page = table->pages[index] = calloc(PER_PAGE, sizeof(struct ea_fd *));
        if (!page)
            goto fail;
    }
    struct ea_fd *fd = calloc(1, sizeof(*fd));
    if (!fd)
        goto fail;
    fd->fd = number;
    fd->generation = 1;
    ea_link_init(&fd->waiters);
    ea_link_init(&fd->pending);
    page[number % PER_PAGE] = fd;
    table->entry_count++;
    return fd;
fail:
    errno = ENOMEM;
    return NULL;
}

struct ea_fd *ea_fd_get(struct ea_fd_table *table, int number) {
    struct ea_fd *fd = ea_fd_find(table, number);
    if (EA_LIKELY(fd != NULL))
        return fd;
    if (number < 0) {
        errno = EBADF;
        return NULL;
    }
    return make_entry(table, number);
}

struct ea_fd *ea_fd_find(const struct ea_fd_table *table, int number) {
    if (EA_UNLIKELY(number < 0))
        return NULL;
    size_t index = (size_t)number / PER_PAGE;
    if (EA_UNLIKELY(index >= table->page_count || !table->pages[index]))
        return NULL;
    return table->pages[index][number % PER_PAGE];
}

void ea_fd_forget(struct ea_fd *fd) {
    fd->generation = ea_generation_after(fd->generation);
    fd->known = 0;
    fd->family = fd->type = fd->protocol = 0;
    fd->owner = 0;
    fd->registered = 0;
    fd->maybe_ready = 0;
    fd->level = 0;
    fd->armed = 0;
    fd->dry = 0;
}

static ea_result ask(const struct ea_fd *fd, int option, int *value) {
    socklen_t length = sizeof(*value);
    return getsockopt(fd->fd, SOL_SOCKET, option, value, &length) == 0 ? 0 : -errno;
}

static ea_result ask_family(const struct ea_fd *fd, int *family) {
#ifdef SO_DOMAIN
    return ask(fd, SO_DOMAIN, family);
#else
    struct sockaddr_storage name = {0};
    socklen_t length = sizeof(name);
    if (getsockname(fd->fd, (struct sockaddr *)&name, &length) != 0)
        return -errno;
    *family = name.ss_family;
    return 0;
#endif
}

static ea_result ask_protocol(const struct ea_fd *fd, int *protocol) {
#ifdef SO_PROTOCOL
    return ask(fd, SO_PROTOCOL, protocol);
#else
    (void)fd;
    *protocol = 0; /* what socket(2) was given nearly always: the default of family and type */
    return 0;
#endif
}

ea_result ea_fd_learn_socket(struct ea_fd *fd) {
    if (fd->known & EA_FD_SOCKET_FACTS)
        return 0;
    int family, type, protocol;
    ea_result r = ask(fd, SO_TYPE, &type);
    if (r == 0)
        r = ask_family(fd, &family);
    if (r == 0)
        r = ask_protocol(fd, &protocol);
    if (r != 0) {
        if (r == -ENOTSOCK) {
            fd->known &= ~(uint32_t)EA_FD_IS_SOCKET;
            fd->known |= EA_FD_NOT_SOCKET;
        }
        return r;
    }
    fd->family = family;
    fd->type = type;
    fd->protocol = protocol;
    fd->known &= ~(uint32_t)EA_FD_NOT_SOCKET;
    fd->known |= EA_FD_IS_SOCKET | EA_FD_SOCKET_FACTS;
    return 0;
}
