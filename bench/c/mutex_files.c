/* rows/mutex_files.rb as plain C: with one thread there is nobody to lock out. */
#define CALLS_SCALED 3000
#define CALLS_TIMES (48 * 10)

#include "calls.h"

static bool once(const int fds[2]) {
    return write(fds[0], limit_buffer, 1024) == 1024;
}

int main(int argc, char **argv) {
    int null = open("/dev/null", O_WRONLY | O_CLOEXEC);
    if (null < 0)
        limit_fail("/dev/null");
    return calls_run(argc, argv, (int[]){null, null});
}
