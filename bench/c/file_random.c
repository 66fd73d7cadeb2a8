/* rows/file_random.rb as plain C. */
#define CALLS_SCALED 10000
#define CALLS_TIMES 32

#include "file.h"

enum { SIZE = 4096, BLOCKS = 8192 };

static bool once(const int fds[2]) {
    static uint64_t random = 88172645463325252;
    static char block[SIZE];
    random ^= random << 13;
    random ^= random >> 7;
    random ^= random << 17;
    uint64_t number = random % BLOCKS;
    return pread(fds[0], block, SIZE, (off_t)(number * SIZE)) == SIZE && file_right(block, number);
}

int main(int argc, char **argv) {
    int file = file_of_blocks(BLOCKS, SIZE);
    return calls_run(argc, argv, (int[]){file, file});
}
