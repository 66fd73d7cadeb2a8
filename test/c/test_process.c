/* A child's end, by descriptor and by waiting; the child is left to be reaped. */
#include <eagain/process.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

/* A child that ends with status when a byte or the end of file comes through *release. own_group:
 * in a process group of its own. */
static pid_t child_new(int status, int *release, bool own_group) {
    int fds[2];
    assert_int_equal(pipe(fds), 0);
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        char byte;
        close(fds[1]);
        if (own_group) {
            setpgid(0, 0);
        }
        _exit(read(fds[0], &byte, 1) < 0 ? 99 : status);
    }
    if (own_group) {
        setpgid(pid, pid); /* in both, so that it is done whoever runs first */
    }
    close(fds[0]);
    *release = fds[1];
    return pid;
}

static void assert_reaps(pid_t pid, int status) {
    int got;
    assert_int_equal(waitpid(pid, &got, 0), pid);
    assert_true(WIFEXITED(got));
    assert_int_equal(WEXITSTATUS(got), status);
}

static bool readable(int fd, int timeout) {
    struct pollfd pfd = {.fd = fd, .events = POLLIN};
    return poll(&pfd, 1, timeout) == 1 && (pfd.revents & POLLIN);
}

static int need_pidfd(void) {
    ea_result fd = ea_process_open(getpid());
    if (fd == -ENOSYS) {
        print_message("this kernel has no pidfd_open(2)\n");
        skip();
    }
    assert_true(fd >= 0);
    return (int)fd;
}

static void descriptor_turns_readable_at_the_end(void **state) {
    (void)state;
    close(need_pidfd());
    int release;
    pid_t pid = child_new(3, &release, false);
    ea_result fd = ea_process_open(pid);
    assert_true(fd >= 0);
    assert_false(readable((int)fd, 0));
    close(release);
    assert_true(readable((int)fd, 60 * 1000));
    assert_true(readable((int)fd, 0)); /* and stays so */
    close((int)fd);
    assert_reaps(pid, 3);
}

static void descriptor_of_a_child_that_has_ended(void **state) {
    (void)state;
    close(need_pidfd());
    int release;
    pid_t pid = child_new(4, &release, false);
    close(release);
    assert_int_equal(ea_process_wait_blocking(pid), 0);
    ea_result fd = ea_process_open(pid);
    assert_true(fd >= 0);
    assert_true(readable((int)fd, 0));
    close((int)fd);
    assert_reaps(pid, 4);
}

static void descriptor_is_nonblocking_and_close_on_exec(void **state) {
    (void)state;
    int fd = need_pidfd();
    assert_true(fcntl(fd, F_GETFD) & FD_CLOEXEC);
    assert_true(fcntl(fd, F_GETFL) & O_NONBLOCK);
    close(fd);
}

static void open_says_what_is_wrong(void **state) {
    (void)state;
    assert_int_equal(ea_process_open(0), -EINVAL);
    assert_int_equal(ea_process_open(-1), -EINVAL);
    close(need_pidfd());
    int release;
    pid_t pid = child_new(0, &release, false);
    close(release);
    assert_reaps(pid, 0);
    assert_int_equal(ea_process_open(pid), -ESRCH);

    struct rlimit old;
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &old), 0);
    struct rlimit none = {.rlim_cur = 0, .rlim_max = old.rlim_max};
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &none), 0);
    ea_result result = ea_process_open(getpid());
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &old), 0);
    assert_int_equal(result, -EMFILE);
}

static void wait_leaves_the_child_to_be_reaped(void **state) {
    (void)state;
    int release;
    pid_t pid = child_new(5, &release, false);
    close(release);
    assert_int_equal(ea_process_wait_blocking(pid), 0);
    assert_int_equal(ea_process_wait_blocking(pid), 0);
    assert_int_equal(ea_process_wait_blocking(-1), 0);
    assert_int_equal(ea_process_wait_blocking(0), 0); /* it is in our group */
    assert_reaps(pid, 5);
    assert_int_equal(ea_process_wait_blocking(pid), -ECHILD);
    assert_int_equal(ea_process_wait_blocking(-1), -ECHILD);
    assert_int_equal(ea_process_wait_blocking(0), -ECHILD);
    assert_int_equal(ea_process_wait_blocking(INT_MIN), -ESRCH);
}

static void wait_for_a_group(void **state) {
    (void)state;
    int release;
    pid_t pid = child_new(6, &release, true);
    assert_int_equal(ea_process_wait_blocking(0), -ECHILD);
    close(release);
    assert_int_equal(ea_process_wait_blocking(-pid), 0);
    assert_reaps(pid, 6);
    assert_int_equal(ea_process_wait_blocking(-pid), -ECHILD);
}

static int interrupt_release;
static int interruptions;

static void on_alarm(int signo) {
    (void)signo;
    /* The third interruption lets the child go. */
    if (++interruptions == 3) {
        close(interrupt_release);
        setitimer(ITIMER_REAL, &(struct itimerval){0}, NULL);
    }
}

static void wait_survives_signals(void **state) {
    (void)state;
    struct sigaction action = {.sa_handler = on_alarm}; /* no SA_RESTART: the call returns EINTR */
    struct sigaction old;
    pid_t pid = child_new(7, &interrupt_release, false);
    interruptions = 0;
    assert_int_equal(sigaction(SIGALRM, &action, &old), 0);
    struct itimerval often = {.it_interval = {.tv_usec = 20000}, .it_value = {.tv_usec = 20000}};
    assert_int_equal(setitimer(ITIMER_REAL, &often, NULL), 0);
    assert_int_equal(ea_process_wait_blocking(pid), 0);
    assert_int_equal(interruptions, 3);
    sigaction(SIGALRM, &old, NULL);
    assert_reaps(pid, 7);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(descriptor_turns_readable_at_the_end),
        cmocka_unit_test(descriptor_of_a_child_that_has_ended),
        cmocka_unit_test(descriptor_is_nonblocking_and_close_on_exec),
        cmocka_unit_test(open_says_what_is_wrong),
        cmocka_unit_test(wait_leaves_the_child_to_be_reaped),
        cmocka_unit_test(wait_for_a_group),
        cmocka_unit_test(wait_survives_signals),
    };
    return cmocka_run_group_tests_name("process", tests, NULL, NULL);
}
