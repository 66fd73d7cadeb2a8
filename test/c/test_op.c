/* Operations, on each backend: what those that have them do, and that the others say so. */
#include "support.h"

#include "core/poll_internal.h"

#include <eagain/try.h>

#include <fcntl.h>
#include <sys/wait.h>
#ifdef EA_HAVE_LIBURING
#include <liburing.h>
#include <linux/openat2.h>
#endif

#define MS INT64_C(1000000)
#define FOREVER (20000 * MS)

static struct ea_poll poll_;
#define P (&poll_)

struct sleeper {
    struct ea_waiter waiter;
    struct ea_op op;
    int wakes;
};

static void woken(struct ea_waiter *waiter) {
    EA_CONTAINER(waiter, struct sleeper, waiter)->wakes++;
}

static struct sleeper *init(struct sleeper *s, enum ea_op_kind kind, int fd) {
    memset(s, 0, sizeof *s);
    ea_waiter_init(&s->waiter, P, woken);
    ea_op_init(&s->op, kind, fd);
    return s;
}

static int park_until(struct sleeper *s, int fd, int64_t deadline) {
    init(s, EA_OP_RECEIVE, fd);
    s->op.len = 4096;
    return ea_op_park(P, &s->waiter, &s->op, deadline);
}

static void park(struct sleeper *s, int fd) {
    assert_int_equal(park_until(s, fd, EA_TIME_NEVER), 0);
    assert_true(ea_waiter_parked(&s->waiter));
}

static void await(struct sleeper *s, int reason) {
    int64_t end = ea_now() + FOREVER;
    while (ea_waiter_parked(&s->waiter) && ea_now() < end)
        ea_poll_turn(P, 100 * MS);
    assert_int_equal(s->wakes, 1);
    assert_int_equal(s->waiter.reason, reason);
}

/* A pair whose first end is known to be what it is. */
static void pair_of(int pair[2], bool pipes) {
    if (pipes)
        test_ok(pipe2(pair, O_NONBLOCK));
    else
        test_ok(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, pair));
    char c;
    struct ea_fd *fd = ea_fd_get(&P->fds, pair[0]);
    ea_fd_forget(fd);
    assert_int_equal(ea_try_read(fd, &c, 1), EA_WAIT_READABLE);
    assert_true(ea_op_receives(fd));
}

static void close_pair(int pair[2]) {
    ea_poll_forget(P, pair[0]);
    close(pair[0]);
    if (pair[1] >= 0)
        close(pair[1]);
}

static void put(int fd, const char *text) {
    assert_int_equal(write(fd, text, strlen(text)), (int)strlen(text));
}

static void expect(struct sleeper *s, const char *text) {
    assert_int_equal(s->op.result, (int)strlen(text));
    assert_memory_equal(ea_op_take(P, &s->op), text, strlen(text));
    assert_null(ea_op_take(P, &s->op));
}

static const struct ea_poll_backend *backend;

static int in_turn(void **state) {
    (void)state;
    test_limit(60);
    return -ea_poll_init(P, backend);
}

static int out_turn(void **state) {
    (void)state;
    if (P->backend && P->waiting == 0 && P->timers.armed == 0)
        ea_poll_term(P);
    alarm(0);
    return 0;
}

/* --- Where there are none. */

static void none_offered(void **state) {
    (void)state;
    struct sleeper s;
    int pair[2];
    pair_of(pair, false);
    for (int kind = 0; kind < EA_OP_KINDS; kind++)
        assert_false(ea_op_offered(P, (enum ea_op_kind)kind));
    assert_int_equal(park_until(&s, pair[0], EA_TIME_NEVER), -ENOSYS);
    assert_false(ea_waiter_parked(&s.waiter));
    assert_int_equal(P->waiting, 0);
    assert_int_equal(ea_op_start(P, &s.op), -ENOSYS);
    ea_op_end(P, &s.op); /* harmless */
    ea_op_abandon_all(P);
    close_pair(pair);
}

#ifdef EA_HAVE_LIBURING
/* --- Receives. */

static void received(bool pipes) {
    struct sleeper s;
    int pair[2];
    pair_of(pair, pipes);
    for (int i = 0; i < 3; i++) {
        park(&s, pair[0]);
        ea_poll_turn(P, 0);
        assert_int_equal(s.wakes, 0);
        put(pair[1], "hello");
        await(&s, EA_WAKE_READY);
        expect(&s, "hello");
    }
    put(pair[1], "early");
    park(&s, pair[0]);
    await(&s, EA_WAKE_READY);
    expect(&s, "early");
    close(pair[1]);
    pair[1] = -1;
    park(&s, pair[0]);
    await(&s, EA_WAKE_READY);
    assert_int_equal(s.op.result, EA_EOF);
    assert_null(ea_op_take(P, &s.op));
    close_pair(pair);
}

static void receives_from_a_socket(void **state) {
    (void)state;
    received(false);
}

static void receives_from_a_pipe(void **state) {
    (void)state;
    received(true);
}

static void receives_no_more_than_asked_for(void **state) {
    (void)state;
    struct sleeper s;
    int pair[2];
    pair_of(pair, false);
    init(&s, EA_OP_RECEIVE, pair[0]);
    s.op.len = 3;
    assert_int_equal(ea_op_park(P, &s.waiter, &s.op, EA_TIME_NEVER), 0);
    put(pair[1], "hello");
    await(&s, EA_WAKE_READY);
    expect(&s, "hel");
    char big[2 * EA_OP_RECEIVE_MAX];
    memset(big, 'b', sizeof big);
    assert_int_equal(write(pair[1], big, sizeof big), sizeof big);
    park(&s, pair[0]);
    await(&s, EA_WAKE_READY);
    assert_int_equal(s.op.result, EA_OP_RECEIVE_MAX);
    assert_non_null(ea_op_take(P, &s.op));
    close_pair(pair);
}

static void a_reset_is_an_error(void **state) {
    (void)state;
    struct sleeper s;
    int pair[2];
    pair_of(pair, false);
    put(pair[0], "unread");
    park(&s, pair[0]);
    ea_poll_turn(P, 0);
    close(pair[1]);
    pair[1] = -1;
    await(&s, EA_WAKE_READY);
    assert_int_equal(s.op.result, -ECONNRESET);
    close_pair(pair);
}

static void what_is_no_stream_is_not_received_from(void **state) {
    (void)state;
    int pair[2];
    test_ok(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, pair));
    struct ea_fd *fd = ea_fd_get(&P->fds, pair[0]);
    char c;
    assert_int_equal(ea_try_read(fd, &c, 1), EA_WAIT_READABLE);
    assert_false(ea_op_receives(fd));
    assert_true(fd->dry < 0);
    close_pair(pair);
}

/* As long as reads find nothing, but for one in 32. */
static void learns_when_not_to_try(void **state) {
    (void)state;
    struct ea_fd fd = {0};
    assert_false(ea_fd_expects_dry(&fd));
    ea_fd_tried(&fd, true);
    assert_false(ea_fd_expects_dry(&fd));
    ea_fd_tried(&fd, true);
    int row = 0;
    while (ea_fd_expects_dry(&fd) && row < 1000)
        row++;
    assert_int_equal(row, 32);
    ea_fd_tried(&fd, true);
    assert_true(ea_fd_expects_dry(&fd));
    for (row = 0; ea_fd_expects_dry(&fd); row++)
        ;
    ea_fd_tried(&fd, false);
    ea_fd_tried(&fd, true);
    assert_false(ea_fd_expects_dry(&fd));
}

enum { MANY = 600 };
static struct sleeper sleepers[MANY];
static int many[MANY][2];

/* More than there are buffers: who gets none is told to try. */
static void receives_of_one_turn_share_a_call(void **state) {
    (void)state;
    assert_true(test_want_descriptors(2 * MANY + 100));
    for (int i = 0; i < MANY; i++) {
        pair_of(many[i], i & 1);
        park(&sleepers[i], many[i][0]);
    }
    uint64_t before = ea_uring_enters(P);
    ea_poll_turn(P, 0);
    assert_int_equal(ea_uring_enters(P), before + 1);
    for (int i = 0; i < MANY; i++)
        put(many[i][1], "x");
    int came = 0;
    for (int i = 0; i < MANY; i++)
        await(&sleepers[i], EA_WAKE_READY);
    for (int i = 0; i < MANY; i++) {
        char c;
        if (sleepers[i].op.result == 1) {
            assert_non_null(ea_op_take(P, &sleepers[i].op));
            came++;
        } else {
            assert_int_equal(sleepers[i].op.result, EA_WAIT_READABLE);
            assert_int_equal(read(many[i][0], &c, 1), 1);
        }
    }
    assert_in_range(came, 256, MANY);
    /* The buffers are there again. */
    struct sleeper s;
    park(&s, many[0][0]);
    put(many[0][1], "again");
    await(&s, EA_WAKE_READY);
    expect(&s, "again");
    for (int i = 0; i < MANY; i++)
        close_pair(many[i]);
}

/* --- Ends. */

static void ended_before_the_turn_is_never_heard_of(void **state) {
    (void)state;
    struct sleeper s;
    int pair[2];
    pair_of(pair, false);
    park(&s, pair[0]);
    uint64_t before = ea_uring_enters(P);
    assert_true(ea_waiter_wake(&s.waiter, EA_WAKE_CANCEL, 0));
    ea_op_end(P, &s.op);
    assert_int_equal(s.op.result, -ECANCELED);
    assert_int_equal(ea_uring_enters(P), before);
    close_pair(pair);
}

static void after_a_deadline_nothing_is_taken(void **state) {
    (void)state;
    struct sleeper s;
    int pair[2];
    for (int pipes = 0; pipes < 2; pipes++) {
        pair_of(pair, pipes);
        assert_int_equal(park_until(&s, pair[0], ea_now() + 2 * MS), 0);
        await(&s, EA_WAKE_TIMEOUT);
        uint64_t before = ea_uring_enters(P);
        ea_op_end(P, &s.op);
        assert_int_equal(ea_uring_enters(P), before + 1);
        assert_int_equal(s.op.result, -ECANCELED);
        put(pair[1], "x");
        ea_poll_turn(P, 0);
        char c;
        assert_int_equal(read(pair[0], &c, 1), 1);
        close_pair(pair);
    }
}

/* Whatever the moment: a byte is the operation's, or still there. */
static void no_byte_is_lost_to_an_end(void **state) {
    (void)state;
    struct sleeper s;
    int pair[2], came = 0, left = 0;
    for (int i = 0; i < 400; i++) {
        pair_of(pair, i & 1);
        bool before = i & 2, turns = i & 4;
        if (before)
            put(pair[1], "x");
        park(&s, pair[0]);
        if (turns && !before)
            ea_poll_turn(P, 0);
        else
            P->backend->prepare(P, false);
        if (!before)
            put(pair[1], "x");
        assert_true(ea_waiter_wake(&s.waiter, EA_WAKE_CANCEL, 0));
        ea_op_end(P, &s.op);
        char c;
        ssize_t rest = read(pair[0], &c, 1);
        if (s.op.result == 1) {
            came++;
            assert_non_null(ea_op_take(P, &s.op));
            assert_int_equal(rest, -1);
        } else {
            left++;
            assert_int_equal(s.op.result, -ECANCELED);
            assert_int_equal(rest, 1);
        }
        close_pair(pair);
    }
    print_message("%d came, %d left\n", came, left);
}

/* What is collected meanwhile is not lost. */
static void others_are_told_after_an_end(void **state) {
    (void)state;
    struct sleeper mine, other, waiting;
    int a[2], b[2], c[2];
    pair_of(a, false);
    pair_of(b, true);
    pair_of(c, false);
    park(&mine, a[0]);
    park(&other, b[0]);
    init(&waiting, EA_OP_RECEIVE, c[0]);
    assert_int_equal(ea_poll_park(P, &waiting.waiter, c[0], EA_READABLE, EA_TIME_NEVER, 0), 0);
    ea_poll_turn(P, 0);
    put(b[1], "b");
    put(c[1], "c");
    assert_true(ea_waiter_wake(&mine.waiter, EA_WAKE_CANCEL, 0));
    ea_op_end(P, &mine.op);
    assert_int_equal(mine.op.result, -ECANCELED);
    assert_int_equal(other.wakes, 0);
    await(&other, EA_WAKE_READY);
    expect(&other, "b");
    await(&waiting, EA_WAKE_READY);
    close_pair(a);
    close_pair(b);
    close_pair(c);
}

static void forgotten_means_closed(void **state) {
    (void)state;
    struct sleeper s;
    int pair[2];
    pair_of(pair, false);
    park(&s, pair[0]);
    ea_poll_turn(P, 0);
    ea_poll_forget(P, pair[0]);
    assert_int_equal(s.waiter.reason, EA_WAKE_CLOSED);
    ea_op_end(P, &s.op);
    assert_int_equal(s.op.result, -ECANCELED);
    close(pair[0]);
    char c;
    assert_int_equal(read(pair[1], &c, 1), 0); /* nothing holds the file */
    close(pair[1]);
}

/* A number that is something else by now: the sleeper is told to try. */
static void a_replaced_number_is_found_out(void **state) {
    (void)state;
    struct sleeper s;
    int pair[2], other[2];
    pair_of(pair, false);
    pair_of(other, false);
    park(&s, pair[0]);
    ea_poll_turn(P, 0);
    test_ok(dup2(other[0], pair[0]));
    put(other[1], "x");
    await(&s, EA_WAKE_READY);
    ea_op_end(P, &s.op);
    assert_int_equal(s.op.result, -ECANCELED);
    close_pair(pair);
    close_pair(other);
}

static void the_end_of_the_poller_ends_all(void **state) {
    (void)state;
    struct sleeper flying, queued;
    int a[2], b[2];
    pair_of(a, false);
    pair_of(b, true);
    park(&flying, a[0]);
    ea_poll_turn(P, 0);
    park(&queued, b[0]);
    ea_poll_term(P);
    assert_int_equal(flying.waiter.reason, EA_WAKE_CANCEL);
    assert_int_equal(flying.op.state, EA_OP_OVER);
    assert_int_equal(queued.op.state, EA_OP_OVER);
    close(a[0]);
    char c;
    assert_int_equal(read(a[1], &c, 1), 0);
    close(a[1]);
    close(b[0]);
    close(b[1]);
    assert_int_equal(ea_poll_init(P, backend), 0);
}

static void abandoned_ones_are_not_touched(void **state) {
    (void)state;
    struct sleeper *s = malloc(sizeof *s);
    struct sleeper next;
    int pair[2];
    pair_of(pair, false);
    park(s, pair[0]);
    ea_poll_turn(P, 0);
    assert_true(ea_waiter_wake(&s->waiter, EA_WAKE_CANCEL, 0));
    ea_op_abandon_all(P);
    free(s);
    park(&next, pair[0]); /* in the same slot */
    put(pair[1], "x");
    await(&next, EA_WAKE_READY);
    close_pair(pair);
}

static void a_child_has_none_of_them(void **state) {
    (void)state;
    struct sleeper s;
    int pair[2], status;
    pair_of(pair, false);
    park(&s, pair[0]);
    ea_poll_turn(P, 0);
    pid_t pid = test_ok(fork());
    if (pid == 0) {
        /* It is worth another try. */
        int rc = ea_poll_after_fork(P);
        bool right = rc == 0 && s.wakes == 1 && s.waiter.reason == EA_WAKE_READY &&
                     s.op.result == EA_WAIT_READABLE;
        ea_op_end(P, &s.op);
        ea_poll_term(P);
        _exit(right ? 0 : 1);
    }
    test_ok(waitpid(pid, &status, 0));
    assert_int_equal(status, 0);
    put(pair[1], "mine");
    await(&s, EA_WAKE_READY);
    expect(&s, "mine");
    close_pair(pair);
}

static void none_where_the_ring_is_plain(void **state) {
    ea_poll_term(P);
    ea_uring_limits.refused = IORING_SETUP_DEFER_TASKRUN;
    assert_int_equal(ea_poll_init(P, backend), 0);
    ea_uring_limits.refused = 0;
    none_offered(state);
    ea_poll_term(P);
    assert_int_equal(ea_poll_init(P, backend), 0);
    P->no_operations = true;
    none_offered(state);
    P->no_operations = false;
}

/* --- Files, and children. */

static void done(struct ea_op *op) {
    EA_CONTAINER(op, struct sleeper, op)->wakes++;
}

static ea_result run(struct sleeper *s) {
    s->op.done = done;
    assert_int_equal(ea_op_start(P, &s->op), 0);
    int64_t end = ea_now() + FOREVER;
    while (s->wakes == 0 && ea_now() < end)
        ea_poll_turn(P, 100 * MS);
    assert_int_equal(s->wakes, 1);
    assert_int_equal(s->op.state, EA_OP_OVER);
    return s->op.result;
}

static ea_result transfer(enum ea_op_kind kind, int fd, void *buf, size_t len, int64_t offset) {
    struct sleeper s;
    init(&s, kind, fd);
    s.op.buf = buf;
    s.op.len = len;
    s.op.offset = offset;
    return run(&s);
}

static void files(void **state) {
    (void)state;
    char path[] = "test_op_XXXXXX", buf[16] = ""; /* valgrind does not see what io_uring writes */
    int fd = test_ok(mkstemp(path));
    assert_int_equal(transfer(EA_OP_WRITE, fd, "hello world", 11, -1), 11);
    assert_int_equal(transfer(EA_OP_WRITE, fd, "W", 1, 6), 1);
    assert_int_equal(transfer(EA_OP_READ, fd, buf, sizeof buf, -1), EA_EOF);
    assert_int_equal(lseek(fd, 1, SEEK_SET), 1);
    test_ok(posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED));
    assert_int_equal(transfer(EA_OP_READ, fd, buf, 4, -1), 4);
    assert_memory_equal(buf, "ello", 4);
    assert_int_equal(lseek(fd, 0, SEEK_CUR), 5);
    assert_int_equal(transfer(EA_OP_READ, fd, buf, sizeof buf, 6), 5);
    assert_memory_equal(buf, "World", 5);
    assert_int_equal(transfer(EA_OP_READ, fd, buf, sizeof buf, 11), EA_EOF);
    struct sleeper s;
    assert_int_equal(run(init(&s, EA_OP_FSYNC, fd)), 0);
    close(fd);
    assert_int_equal(transfer(EA_OP_READ, fd, buf, sizeof buf, 0), -EBADF);

    struct open_how how = {.flags = O_RDONLY | O_CLOEXEC};
    init(&s, EA_OP_OPENAT2, AT_FDCWD);
    s.op.buf = path;
    s.op.how = &how;
    fd = (int)run(&s);
    assert_true(fd >= 0);
    assert_int_equal(read(fd, buf, sizeof buf), 11);
    close(fd);
    unlink(path);
}

static void children(void **state) {
    (void)state;
    if (!ea_op_offered(P, EA_OP_WAITID))
        skip();
    int gate[2], status;
    test_ok(pipe(gate));
    pid_t pid = test_ok(fork());
    if (pid == 0) {
        char c;
        close(gate[1]);
        _exit(read(gate[0], &c, 1) == 0 ? 7 : 1);
    }
    struct sleeper s;
    for (int any = 0; any < 2; any++) {
        init(&s, EA_OP_WAITID, any ? 0 : pid);
        s.op.offset = any ? P_ALL : P_PID;
        s.op.flags = WEXITED | WNOWAIT;
        assert_int_equal(ea_op_park(P, &s.waiter, &s.op, EA_TIME_NEVER), 0);
        ea_poll_turn(P, 0);
        assert_true(ea_waiter_parked(&s.waiter));
        if (any)
            break;
        /* Given up, and again. */
        assert_true(ea_waiter_wake(&s.waiter, EA_WAKE_CANCEL, 0));
        ea_op_end(P, &s.op);
        assert_int_equal(s.op.result, -ECANCELED);
    }
    close(gate[0]);
    close(gate[1]);
    await(&s, EA_WAKE_READY);
    assert_int_equal(s.op.result, 0);
    assert_int_equal(waitpid(pid, &status, WNOHANG), pid);
    assert_int_equal(WEXITSTATUS(status), 7);

    init(&s, EA_OP_WAITID, pid);
    s.op.offset = P_PID;
    s.op.flags = WEXITED | WNOWAIT;
    assert_int_equal(ea_op_park(P, &s.waiter, &s.op, EA_TIME_NEVER), 0);
    await(&s, EA_WAKE_READY);
    assert_int_equal(s.op.result, -ECHILD);
}
#endif

#define TEST(name) cmocka_unit_test_setup_teardown(name, in_turn, out_turn)

int main(void) {
    const struct CMUnitTest without[] = {TEST(none_offered)};
#ifdef EA_HAVE_LIBURING
    const struct CMUnitTest with[] = {
        TEST(receives_from_a_socket),
        TEST(receives_from_a_pipe),
        TEST(receives_no_more_than_asked_for),
        TEST(a_reset_is_an_error),
        TEST(what_is_no_stream_is_not_received_from),
        TEST(learns_when_not_to_try),
        TEST(receives_of_one_turn_share_a_call),
        TEST(ended_before_the_turn_is_never_heard_of),
        TEST(after_a_deadline_nothing_is_taken),
        TEST(no_byte_is_lost_to_an_end),
        TEST(others_are_told_after_an_end),
        TEST(forgotten_means_closed),
        TEST(a_replaced_number_is_found_out),
        TEST(the_end_of_the_poller_ends_all),
        TEST(abandoned_ones_are_not_touched),
        TEST(a_child_has_none_of_them),
        TEST(none_where_the_ring_is_plain),
        TEST(files),
        TEST(children),
    };
#endif
    int failed = 0;
    for (const struct ea_poll_backend *const *b = ea_poll_backends(); *b; b++) {
        backend = *b;
        print_message("%s:\n", backend->name);
        if (ea_poll_init(P, backend) != 0)
            continue;
        bool offered = ea_op_offered(P, EA_OP_RECEIVE);
        ea_poll_term(P);
#ifdef EA_HAVE_LIBURING
        if (offered) {
            failed += cmocka_run_group_tests_name("operations", with, NULL, NULL);
            continue;
        }
#endif
        if (!offered && !backend->operations)
            failed += cmocka_run_group_tests_name("no operations", without, NULL, NULL);
    }
    return failed;
}
