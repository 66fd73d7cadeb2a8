/* Prints what comes on standard input, each piece as it comes, and gives up after two silent seconds.
 *
 *   cc examples/wait.c $(PKG_CONFIG_PATH=build pkg-config --cflags --libs eagain) -o wait
 *   (echo one; sleep 1; echo two; sleep 3; echo late) | ./wait */
#include <eagain.h>
#include <stdio.h>
#include <unistd.h>

/* Whoever sleeps embeds a waiter; this makes its owner runnable. Here the owner looks by itself. */
static void woken(struct ea_waiter *waiter) {
    (void)waiter;
}

int main(void) {
    struct ea_poll poll;
    struct ea_waiter waiter;
    char buffer[4096];
    if (ea_poll_init(&poll, NULL) < 0)
        return 1;
    ea_waiter_init(&waiter, &poll, woken);
    struct ea_fd *input = ea_fd_get(&poll.fds, STDIN_FILENO);
    for (;;) {
        ea_result r = ea_try_read(input, buffer, sizeof buffer); /* try first */
        if (r > 0) {
            fwrite(buffer, 1, (size_t)r, stdout);
            fflush(stdout);
            continue;
        }
        if (!ea_is_wait(r)) {
            printf("%s\n", ea_result_text(r)); /* end of file, or an error */
            break;
        }
        if (ea_poll_park(&poll, &waiter, STDIN_FILENO, EA_READABLE, ea_deadline_after(2),
                         EA_PARK_DRY) != 0)
            break;
        while (ea_waiter_parked(&waiter))
            ea_poll_turn(&poll, -1);
        if (waiter.reason == EA_WAKE_TIMEOUT) {
            puts("silence");
            break;
        }
    }
    ea_poll_term(&poll);
    return 0;
}
