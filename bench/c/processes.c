/* rows/processes.rb as plain C: one program after the other. */
#define CALLS_SCALED 20
#define CALLS_TIMES 20

#include <spawn.h>
#include <string.h>
#include <sys/wait.h>

#include "calls.h"

static bool once(const int fds[2]) {
    (void)fds;
    int ends[2], status;
    pid_t pid;
    char text[16];
    char *const argv[] = {"/bin/echo", "1", NULL};
    posix_spawn_file_actions_t actions;
    if (pipe2(ends, O_CLOEXEC) != 0)
        limit_fail("pipe2");
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, ends[1], 1);
    bool right = posix_spawn(&pid, argv[0], &actions, NULL, argv, NULL) == 0;
    posix_spawn_file_actions_destroy(&actions);
    close(ends[1]);
    right = right && read(ends[0], text, sizeof text) == 2 && memcmp(text, "1\n", 2) == 0 &&
            read(ends[0], text, sizeof text) == 0;
    close(ends[0]);
    return right && waitpid(pid, &status, 0) == pid && status == 0;
}

int main(int argc, char **argv) {
    return calls_run(argc, argv, (int[]){-1, -1});
}
