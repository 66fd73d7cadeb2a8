/* For the rows of file reads: a file of numbered blocks that nobody else sees. */
#ifndef EAGAIN_BENCH_FILE_H
#define EAGAIN_BENCH_FILE_H

#include <string.h>

#include "calls.h"

/* Returns the descriptor. Each block begins with its number. */
static int file_of_blocks(uint64_t blocks, size_t size) {
    char *block = malloc(size);
    FILE *file = tmpfile();
    if (block == NULL || file == NULL)
        limit_fail("tmpfile");
    memset(block, '.', size);
    for (uint64_t i = 0; i < blocks; i++) {
        memcpy(block, &i, sizeof i);
        if (fwrite(block, size, 1, file) != 1)
            limit_fail("fwrite");
    }
    if (fflush(file) != 0)
        limit_fail("fflush");
    free(block);
    return fileno(file);
}

static bool file_right(const char *block, uint64_t number) {
    return memcmp(block, &number, sizeof number) == 0;
}

#endif
