/* Deadlines: cheap to arm, cheaper to cancel.
 *
 * Times are nanoseconds of CLOCK_MONOTONIC as int64_t. A timer never fires
 * early; it fires in the first ea_timers_expire() whose `now` has reached its
 * deadline rounded up to EA_TIMER_TICK. Arming and cancelling are O(1).
 *
 * A set and its timers belong to one thread. No call allocates: the struct is
 * embedded in whoever sleeps and must stay put while armed. */
#ifndef EAGAIN_TIMER_H
#define EAGAIN_TIMER_H

#include <eagain/base.h>

EA_BEGIN

#define EA_TIMER_TICK_BITS 16
#define EA_TIMER_TICK ((int64_t)1 << EA_TIMER_TICK_BITS) /* 65.5 µs */
#define EA_TIMER_SLOT_BITS 6
#define EA_TIMER_SLOTS (1 << EA_TIMER_SLOT_BITS)
#define EA_TIMER_LEVELS 8
#define EA_TIME_NEVER INT64_MAX

struct ea_timer {
    struct ea_link link; /* in a slot while armed, alone otherwise */
    int64_t deadline;    /* ns; means something while armed */
    uint16_t slot;       /* level * EA_TIMER_SLOTS + slot, while armed */
    void (*fire)(struct ea_timer *timer);
};

struct ea_timers {
    int64_t current; /* in ticks: everything due up to and including it has fired */
    size_t armed;    /* how many timers are armed */
    uint64_t occupied[EA_TIMER_LEVELS]; /* bit s: slot s of the level is not empty */
    struct ea_link slots[EA_TIMER_LEVELS][EA_TIMER_SLOTS];
    int64_t earliest[EA_TIMER_LEVELS][EA_TIMER_SLOTS]; /* ns: no timer of the slot is due before */
};

/* The clock: clock_gettime(CLOCK_MONOTONIC), in ns. No system call (vDSO). */
EA_API int64_t ea_now(void);

/* now + a span in seconds, saturating: negative and NaN give now, huge and infinite give
 * EA_TIME_NEVER. */
EA_API int64_t ea_deadline_after(double seconds);

EA_API void ea_timers_init(struct ea_timers *timers, int64_t now);

/* Prepares a timer that is not armed. fire is called from ea_timers_expire(), after the timer
 * was disarmed: it may arm and cancel any timer of the set, this one included, or free it. It must
 * return: others that are due wait on ea_timers_expire()'s stack. */
EA_API void ea_timer_init(struct ea_timer *timer, void (*fire)(struct ea_timer *));

/* Arms (or re-arms) for an absolute deadline. A deadline in the past fires at the next
 * ea_timers_expire(). EA_TIME_NEVER leaves it disarmed. */
EA_API void ea_timer_arm(struct ea_timers *timers, struct ea_timer *timer, int64_t deadline);

/* Disarms; harmless when not armed. Returns whether it was armed. */
EA_API bool ea_timer_cancel(struct ea_timers *timers, struct ea_timer *timer);

static inline bool ea_timer_armed(const struct ea_timer *timer) {
    return !ea_link_alone(&timer->link);
}

/* The earliest time, in ns, at which ea_timers_expire() may have something to fire: exact when
 * nothing was cancelled, else possibly earlier (one idle wake-up, after which it is exact again).
 * EA_TIME_NEVER when nothing is armed. */
EA_API int64_t ea_timers_next(struct ea_timers *timers);

/* Fires what is due at now, in order of ticks and, within a tick, in order of arming; what was armed
 * for the past counts as due in the tick in which it was armed. What fire arms for the past waits
 * for the next call. Returns how many fired. */
EA_API size_t ea_timers_expire(struct ea_timers *timers, int64_t now);

EA_END

#endif
