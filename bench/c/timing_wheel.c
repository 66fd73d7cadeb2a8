/* The timing wheel against the usual alternative, a 4-ary heap: arm a million deadlines, cancel
 * nine of ten (as timeouts do), let the rest expire in steps of a millisecond.
 *
 *   cc -std=gnu17 -O2 -Iinclude bench/c/timing_wheel.c src/core/timer.c -o timing_wheel && ./timing_wheel [COUNT]
 *
 * Prints nanoseconds per operation, the best of five rounds. */
#include <eagain/timer.h>

#include <stdio.h>
#include <stdlib.h>

enum { ROUNDS = 5 };
#define SPREAD (INT64_C(30) * 1000000000) /* deadlines lie within half a minute */
#define STEP INT64_C(1000000)

/* The heap: an array of pointers, each item knows its index, so that it can be cancelled. */
struct item {
    int64_t deadline;
    size_t index; /* + 1 while in the heap, else 0 */
};

static struct item **heap;
static size_t heap_size;

static void heap_put(size_t i, struct item *item) {
    heap[i] = item;
    item->index = i + 1;
}

static void heap_up(size_t i, struct item *item) {
    while (i > 0 && heap[(i - 1) / 4]->deadline > item->deadline) {
        heap_put(i, heap[(i - 1) / 4]);
        i = (i - 1) / 4;
    }
    heap_put(i, item);
}

static void heap_down(size_t i, struct item *item) {
    for (;;) {
        size_t first = i * 4 + 1;
        if (first >= heap_size) {
            break;
        }
        size_t end = first + 4 < heap_size ? first + 4 : heap_size;
        size_t least = first;
        for (size_t c = first + 1; c < end; c++) {
            if (heap[c]->deadline < heap[least]->deadline) {
                least = c;
            }
        }
        if (heap[least]->deadline >= item->deadline) {
            break;
        }
        heap_put(i, heap[least]);
        i = least;
    }
    heap_put(i, item);
}

static void heap_arm(struct item *item, int64_t deadline) {
    item->deadline = deadline;
    heap_up(heap_size++, item);
}

static void heap_cancel(struct item *item) {
    size_t i = item->index - 1;
    struct item *last = heap[--heap_size];
    item->index = 0;
    if (last == item) {
        return;
    }
    if (i > 0 && heap[(i - 1) / 4]->deadline > last->deadline) {
        heap_up(i, last);
    } else {
        heap_down(i, last);
    }
}

static size_t heap_expire(int64_t now) {
    size_t fired = 0;
    while (heap_size > 0 && heap[0]->deadline <= now) {
        heap_cancel(heap[0]);
        fired++;
    }
    return fired;
}

static void nothing(struct ea_timer *timer) {
    (void)timer;
}

static void *allocate(size_t count, size_t size) {
    void *p = calloc(count, size);
    if (!p) {
        perror("calloc");
        exit(1);
    }
    return p;
}

static void keep_best(double *best, int64_t since, size_t count) {
    double ns = (double)(ea_now() - since) / (double)count;
    if (*best == 0 || ns < *best) {
        *best = ns;
    }
}

int main(int argc, char **argv) {
    size_t count = argc > 1 ? strtoul(argv[1], NULL, 10) : 1000000;
    if (count < 10) {
        fprintf(stderr, "usage: %s [COUNT]   at least 10\n", argv[0]);
        return 2;
    }
    static struct ea_timers wheel;
    struct ea_timer *timers = allocate(count, sizeof *timers);
    struct item *items = allocate(count, sizeof *items);
    int64_t *deadlines = allocate(count, sizeof *deadlines);
    heap = allocate(count, sizeof *heap);
    double best[2][3] = {{0}};
    srand48(1);
    for (size_t i = 0; i < count; i++) {
        deadlines[i] = 1 + (int64_t)(drand48() * (double)SPREAD);
        ea_timer_init(&timers[i], nothing);
    }
    for (int round = 0; round < ROUNDS; round++) {
        int64_t end = SPREAD + STEP;
        size_t left = (count + 9) / 10;
        size_t fired = 0;
        ea_timers_init(&wheel, 0);
        int64_t t = ea_now();
        for (size_t i = 0; i < count; i++) {
            ea_timer_arm(&wheel, &timers[i], deadlines[i]);
        }
        keep_best(&best[0][0], t, count);
        t = ea_now();
        for (size_t i = 0; i < count; i++) {
            if (i % 10 != 0) {
                ea_timer_cancel(&wheel, &timers[i]);
            }
        }
        keep_best(&best[0][1], t, count - left);
        t = ea_now();
        for (int64_t now = 0; now <= end; now += STEP) {
            fired += ea_timers_expire(&wheel, now);
        }
        keep_best(&best[0][2], t, left);

        t = ea_now();
        for (size_t i = 0; i < count; i++) {
            heap_arm(&items[i], deadlines[i]);
        }
        keep_best(&best[1][0], t, count);
        t = ea_now();
        for (size_t i = 0; i < count; i++) {
            if (i % 10 != 0) {
                heap_cancel(&items[i]);
            }
        }
        keep_best(&best[1][1], t, count - left);
        t = ea_now();
        for (int64_t now = 0; now <= end; now += STEP) {
            fired += heap_expire(now);
        }
        keep_best(&best[1][2], t, left);
        if (fired != 2 * left) {
            fprintf(stderr, "%zu fired, not %zu\n", fired, 2 * left);
            return 1;
        }
    }
    printf("%-12s %10s %10s %10s   ns per timer, %zu timers\n", "", "arm", "cancel", "expire",
           count);
    printf("%-12s %10.1f %10.1f %10.1f\n", "wheel", best[0][0], best[0][1], best[0][2]);
    printf("%-12s %10.1f %10.1f %10.1f\n", "4-ary heap", best[1][0], best[1][1], best[1][2]);
    free(timers);
    free(items);
    free(deadlines);
    free(heap);
    return 0;
}
