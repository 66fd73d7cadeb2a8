/* The table of descriptors. It is compiled into the test, with an allocator that can fail. */
#include "support.h"

static long allocations_left = -1; /* how many succeed before one fails; negative: all */

static void *failing_calloc(size_t count, size_t size) {
    if (allocations_left == 0)
        return NULL;
    if (allocations_left > 0)
        allocations_left--;
    return calloc(count, size);
}

#define calloc failing_calloc
#include "core/fd.c"
#undef calloc

#include <netinet/in.h>

static void starts_empty(void **state) {
    (void)state;
    struct ea_fd_table table;
    ea_fd_table_init(&table);
    assert_null(ea_fd_find(&table, 0));
    assert_null(ea_fd_find(&table, INT32_MAX));
    assert_null(ea_fd_find(&table, -1));
    assert_null(ea_fd_find(&table, INT32_MIN));
    ea_fd_table_term(&table);
    ea_fd_table_term(&table); /* harmless */
}

static void negative_numbers(void **state) {
    (void)state;
    struct ea_fd_table table;
    ea_fd_table_init(&table);
    errno = 0;
    assert_null(ea_fd_get(&table, -1));
    assert_int_equal(errno, EBADF);
    errno = 0;
    assert_null(ea_fd_get(&table, INT32_MIN));
    assert_int_equal(errno, EBADF);
    assert_int_equal(table.entry_count, 0);
    ea_fd_table_term(&table);
}

static void entries_begin_unknown(void **state) {
    (void)state;
    struct ea_fd_table table;
    ea_fd_table_init(&table);
    struct ea_fd *fd = ea_fd_get(&table, 7);
    assert_non_null(fd);
    assert_int_equal(fd->fd, 7);
    assert_int_equal(fd->generation, 1);
    assert_int_equal(fd->known, 0);
    assert_int_equal(fd->owner, 0);
    assert_int_equal(fd->registered, 0);
    assert_true(ea_link_alone(&fd->waiters));
    assert_true(ea_link_alone(&fd->pending));
    assert_ptr_equal(ea_fd_get(&table, 7), fd);
    assert_ptr_equal(ea_fd_find(&table, 7), fd);
    assert_null(ea_fd_find(&table, 8));
    assert_int_equal(table.entry_count, 1);
    ea_fd_table_term(&table);
}

/* Whatever the order in which numbers come, pointers stay valid. */
static void entries_never_move(void **state) {
    (void)state;
    enum { COUNT = 5000 };
    static struct ea_fd *seen[COUNT];
    struct ea_fd_table table;
    ea_fd_table_init(&table);
    for (int i = 0; i < COUNT; i++) {
        int number = i * 7919 % COUNT; /* each once, scattered */
        seen[number] = ea_fd_get(&table, number);
        assert_non_null(seen[number]);
    }
    assert_non_null(ea_fd_get(&table, 1 << 20));
    assert_int_equal(table.entry_count, COUNT + 1);
    for (int i = 0; i < COUNT; i++) {
        assert_ptr_equal(ea_fd_find(&table, i), seen[i]);
        assert_int_equal(seen[i]->fd, i);
    }
    ea_fd_table_term(&table);
    assert_int_equal(table.entry_count, 0);
    assert_null(ea_fd_find(&table, 3));
}

static void forgets_everything(void **state) {
    (void)state;
    struct ea_fd_table table;
    ea_fd_table_init(&table);
    struct ea_fd *fd = ea_fd_get(&table, 3);
    assert_non_null(fd);
    fd->known = ~0u;
    fd->family = fd->type = fd->protocol = 5;
    fd->owner = 99;
    fd->registered = fd->maybe_ready = 7;
    fd->level = 1;
    ea_fd_forget(fd);
    assert_int_equal(fd->fd, 3);
    assert_int_equal(fd->generation, 2);
    assert_int_equal(fd->known, 0);
    assert_int_equal(fd->owner, 0);
    assert_int_equal(fd->registered, 0);
    assert_int_equal(fd->maybe_ready, 0);
    assert_int_equal(fd->level, 0);

    fd->generation = UINT32_MAX;
    ea_fd_forget(fd);
    assert_int_equal(fd->generation, 1); /* never 0 */
    ea_fd_table_term(&table);
}

/* An allocation that fails leaves the table usable, whichever it is. */
static void out_of_memory(void **state) {
    (void)state;
    struct ea_fd_table table;
    for (long good = 0; good < 3; good++) {
        ea_fd_table_init(&table);
        allocations_left = -1;
        struct ea_fd *old = ea_fd_get(&table, 1);
        assert_non_null(old);
        allocations_left = good; /* directory, page, entry */
        errno = 0;
        assert_null(ea_fd_get(&table, 100000));
        assert_int_equal(errno, ENOMEM);
        assert_int_equal(table.entry_count, 1);
        assert_ptr_equal(ea_fd_find(&table, 1), old);
        assert_null(ea_fd_find(&table, 100000));
        allocations_left = -1;
        assert_non_null(ea_fd_get(&table, 100000));
        assert_ptr_equal(ea_fd_find(&table, 1), old);
        assert_int_equal(table.entry_count, 2);
        ea_fd_table_term(&table);
    }
    ea_fd_table_init(&table);
    allocations_left = 0;
    assert_null(ea_fd_get(&table, 0));
    allocations_left = -1;
    ea_fd_table_term(&table);
}

static void learns_sockets(void **state) {
    (void)state;
    static const struct {
        int family, type, protocol, learnt;
    } cases[] = {
        {AF_INET, SOCK_STREAM, 0, IPPROTO_TCP},
        {AF_INET, SOCK_DGRAM, 0, IPPROTO_UDP},
        {AF_UNIX, SOCK_STREAM, 0, 0},
        {AF_UNIX, SOCK_SEQPACKET, 0, 0},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        struct ea_fd_table table;
        ea_fd_table_init(&table);
        int number = test_ok(socket(cases[i].family, cases[i].type, cases[i].protocol));
        struct ea_fd *fd = ea_fd_get(&table, number);
        assert_non_null(fd);
        assert_int_equal(ea_fd_learn_socket(fd), 0);
        assert_int_equal(fd->known, EA_FD_IS_SOCKET | EA_FD_SOCKET_FACTS);
        assert_int_equal(fd->family, cases[i].family);
        assert_int_equal(fd->type, cases[i].type);
#ifdef SO_PROTOCOL
        assert_int_equal(fd->protocol, cases[i].learnt);
#endif
        close(number);
        assert_int_equal(ea_fd_learn_socket(fd), 0); /* remembered: nobody is asked */
        ea_fd_forget(fd);
        assert_int_equal(ea_fd_learn_socket(fd), -EBADF);
        assert_int_equal(fd->known, 0);
        ea_fd_table_term(&table);
    }
}

static void learns_what_is_no_socket(void **state) {
    (void)state;
    int pair[2];
    struct ea_fd_table table;
    ea_fd_table_init(&table);
    test_ok(pipe(pair));
    struct ea_fd *fd = ea_fd_get(&table, pair[0]);
    assert_non_null(fd);
    fd->known = EA_FD_IS_SOCKET;
    assert_int_equal(ea_fd_learn_socket(fd), -ENOTSOCK);
    assert_int_equal(fd->known, EA_FD_NOT_SOCKET);
    close(pair[0]);
    close(pair[1]);
    ea_fd_table_term(&table);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(starts_empty),          cmocka_unit_test(negative_numbers),
        cmocka_unit_test(entries_begin_unknown), cmocka_unit_test(entries_never_move),
        cmocka_unit_test(forgets_everything),    cmocka_unit_test(out_of_memory),
        cmocka_unit_test(learns_sockets),        cmocka_unit_test(learns_what_is_no_socket),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
