/* A hierarchical timing wheel that never wakes anybody up to turn itself.
 *
 * Time is cut into ticks. A tick is a number of 48 bits, eight digits of six bits, and level L has
 * a slot for each value of digit L. A timer lives on the level of the highest digit in which its
 * tick differs from `current`, in the slot of its own digit there. Hence
 *
 *   - all int64_t fits; there is no "too far" and no overflow list;
 *   - every timer of a level is due before every timer of the levels above, and every timer of a
 *     slot before those of the slots to its right: the earliest is found by two bit scans;
 *   - slot current % 64 of level 0 holds what is due at once (armed for a time that has passed).
 *
 * When `current` moves into the span of a slot above level 0, the slot's timers are placed anew,
 * one level or more below, which keeps their order; that happens only as part of
 * ea_timers_expire(), which is called anyway, and at most seven times in a timer's life. `current`
 * jumps from one occupied slot to the next, so idle hours cost as much as idle ticks.
 *
 * `earliest` of a slot is a lower bound that arming keeps exact and cancelling may leave behind;
 * a wake-up for a cancelled timer places the slot anew and thereby makes it exact. */
#include <eagain/timer.h>

#include <time.h>

#define NS_PER_SECOND 1000000000LL
#define SLOT_MASK (EA_TIMER_SLOTS - 1)

int64_t ea_now(void) {
    struct timespec ts;
    clock_gettime(CLOCK_MONOTONIC, &ts);
    return ts.tv_sec * NS_PER_SECOND + ts.tv_nsec;
}

int64_t ea_deadline_after(double seconds) {
    int64_t now = ea_now();
    if (!(seconds > 0)) { /* NaN too */
        return now;
    }
    double span = seconds * (double)NS_PER_SECOND;
    /* Compared as doubles, since the cast of what does not fit is undefined; INT64_MAX - now rounds
     * up by at most 512 ns at this magnitude, so equality does not fit either. */
    if (span >= (double)(EA_TIME_NEVER - now)) {
        return EA_TIME_NEVER;
    }
    int64_t ns = (int64_t)span;
    if ((double)ns < span) {
        ns++; /* never early */
    }
    return now + ns;
}

/* The first tick that is not before ns. What lies before the clock's zero is due at its zero. */
static int64_t tick_not_before(int64_t ns) {
    if (ns <= 0) {
        return 0;
    }
    return ((ns - 1) >> EA_TIMER_TICK_BITS) + 1;
}

/* The last tick that has come at ns. The end of time completes the tick that it cuts short. */
static int64_t tick_reached(int64_t ns) {
    if (ns <= 0) {
        return 0;
    }
    return ns == INT64_MAX ? tick_not_before(INT64_MAX) : ns >> EA_TIMER_TICK_BITS;
}

static int64_t tick_to_ns(int64_t tick) {
    return tick > INT64_MAX >> EA_TIMER_TICK_BITS ? INT64_MAX : tick << EA_TIMER_TICK_BITS;
}

/* The lowest level with an occupied slot, or -1. */
static int lowest_level(const struct ea_timers *timers) {
    for (int level = 0; level < EA_TIMER_LEVELS; level++) {
        if (timers->occupied[level]) {
            return level;
        }
    }
    return -1;
}

/* The first tick of a slot's span: current with digit `level` replaced and zeros below. */
static int64_t slot_start(const struct ea_timers *timers, int level, int slot) {
    int shift = level * EA_TIMER_SLOT_BITS;
    int64_t above = timers->current >> (shift + EA_TIMER_SLOT_BITS);
    return (above << EA_TIMER_SLOT_BITS | slot) << shift;
}

static void place(struct ea_timers *timers, struct ea_timer *timer) {
    int64_t tick = tick_not_before(timer->deadline);
    if (tick < timers->current) {
        tick = timers->current;
    }
    uint64_t differs = (uint64_t)(tick ^ timers->current);
    int level = differs ? (63 - __builtin_clzll(differs)) / EA_TIMER_SLOT_BITS : 0;
    int slot = (int)(tick >> (level * EA_TIMER_SLOT_BITS)) & SLOT_MASK;
    uint64_t bit = UINT64_C(1) << slot;
    int64_t *earliest = &timers->earliest[level][slot];
    if (!(timers->occupied[level] & bit) || timer->deadline < *earliest) {
        *earliest = timer->deadline;
    }
    timers->occupied[level] |= bit;
    timer->slot = (uint16_t)(level * EA_TIMER_SLOTS + slot);
    ea_link_insert_before(&timers->slots[level][slot], &timer->link);
}

/* Moves all timers of a slot to the end of list. */
static void take_slot(struct ea_timers *timers, int level, int slot, struct ea_link *list) {
    struct ea_link *head = &timers->slots[level][slot];
    head->next->prev = list->prev;
    list->prev->next = head->next;
    head->prev->next = list;
    list->prev = head->prev;
    ea_link_init(head);
    timers->occupied[level] &= ~(UINT64_C(1) << slot);
}

/* Moves current to target and all that is due by then to the end of due, by tick and, within a
 * tick, by arming. */
static void advance(struct ea_timers *timers, int64_t target, struct ea_link *due) {
    int level;
    while ((level = lowest_level(timers)) >= 0) {
        int slot = __builtin_ctzll(timers->occupied[level]);
        int64_t start = slot_start(timers, level, slot);
        if (start > target) {
            break;
        }
        timers->current = start;
        if (level == 0) {
            take_slot(timers, level, slot, due);
            continue;
        }
        struct ea_link moved;
        ea_link_init(&moved);
        take_slot(timers, level, slot, &moved);
        while (!ea_link_alone(&moved)) {
            struct ea_timer *timer = EA_CONTAINER(moved.next, struct ea_timer, link);
            ea_link_remove(&timer->link);
            place(timers, timer);
        }
    }
    timers->current = target;
}

void ea_timers_init(struct ea_timers *timers, int64_t now) {
    timers->current = tick_reached(now);
    timers->armed = 0;
    for (int level = 0; level < EA_TIMER_LEVELS; level++) {
        timers->occupied[level] = 0;
        for (int slot = 0; slot < EA_TIMER_SLOTS; slot++) {
            ea_link_init(&timers->slots[level][slot]);
            timers->earliest[level][slot] = EA_TIME_NEVER;
        }
    }
}

void ea_timer_init(struct ea_timer *timer, void (*fire)(struct ea_timer *)) {
    ea_link_init(&timer->link);
    timer->deadline = EA_TIME_NEVER;
    timer->slot = 0;
    timer->fire = fire;
}

void ea_timer_arm(struct ea_timers *timers, struct ea_timer *timer, int64_t deadline) {
    ea_timer_cancel(timers, timer);
    if (deadline == EA_TIME_NEVER) {
        return;
    }
    timer->deadline = deadline;
    place(timers, timer);
    timers->armed++;
}

bool ea_timer_cancel(struct ea_timers *timers, struct ea_timer *timer) {
    if (!ea_timer_armed(timer)) {
        return false;
    }
    ea_link_remove(&timer->link);
    timers->armed--;
    /* A timer that waits in ea_timers_expire() to be fired is in no slot any more; the bit of the
     * slot that it came from is right all the same. */
    int level = timer->slot / EA_TIMER_SLOTS;
    int slot = timer->slot % EA_TIMER_SLOTS;
    if (ea_link_alone(&timers->slots[level][slot])) {
        timers->occupied[level] &= ~(UINT64_C(1) << slot);
    }
    return true;
}

int64_t ea_timers_next(struct ea_timers *timers) {
    int level = lowest_level(timers);
    if (level < 0) {
        return EA_TIME_NEVER;
    }
    int slot = __builtin_ctzll(timers->occupied[level]);
    return tick_to_ns(tick_not_before(timers->earliest[level][slot]));
}

size_t ea_timers_expire(struct ea_timers *timers, int64_t now) {
    int64_t target = tick_reached(now);
    struct ea_link due;
    ea_link_init(&due);
    /* The clock is monotonic, but a caller's `now` may be older than the last one. */
    advance(timers, target > timers->current ? target : timers->current, &due);
    /* Only what was due at the start: a timer that keeps re-arming itself for a time that has passed
     * waits for the next call. Whatever fire does, the list is whole at each turn. */
    size_t fired = 0;
    while (!ea_link_alone(&due)) {
        struct ea_timer *timer = EA_CONTAINER(due.next, struct ea_timer, link);
        ea_link_remove(&timer->link);
        timers->armed--;
        fired++;
        timer->fire(timer);
    }
    return fired;
}
