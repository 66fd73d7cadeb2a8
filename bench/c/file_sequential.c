/* rows/file_sequential.rb as plain C. */
#define CALLS_SCALED 10
#define CALLS_TIMES (8 * 32)

#include "file.h"

enum { SIZE = 1 << 20, BLOCKS = 32 };

static bool once(const int fds[2]) {
    static uint64_t number;
    static char block[SIZE];
    ssize_t got = read(fds[0], block, SIZE);
    if (got == 0 && number == BLOCKS && lseek(fds[0], 0, SEEK_SET) == 0) {
        number = 0;
        got = read(fds[0], block, SIZE);
    }
    return got == SIZE && file_right(block, number++);
}

int main(int argc, char **argv) {
    int file = file_of_blocks(BLOCKS, SIZE);
    if (lseek(file, 0, SEEK_SET) != 0)
        limit_fail("lseek");
    return calls_run(argc, argv, (int[]){file, file});
}
