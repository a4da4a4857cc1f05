/* A NIC's free-running counter as a clock: unwrapped, in ns, and checked against a clock of the host
 * that nobody sets. Pure: readings are arguments. */
#ifndef SYN_TICKS_H
#define SYN_TICKS_H

#include <stdint.h>

enum { SYN_TICKS_FAULT_BYTES = 96 };

/* The counter, and the host's CLOCK_MONOTONIC_RAW at that instant, which may be off by the doubt. */
struct syn_tick_reading {
    uint64_t ticks;
    int64_t raw_ns, doubt_ns;
};

struct syn_tick_clock {
    uint64_t mask; /* of the counter's bits; 0: there is no clock */
    int64_t khz;
    int64_t anchor_ns; /* what the clock says at its first reading; the name of its epoch */
    uint64_t anchor_ticks;
    struct syn_tick_reading newest, base; /* the rate is measured from `base` */
    int64_t total, base_total;            /* ticks since the first reading, at these two */
    double ticks_per_ns;
    int measured; /* whether that is more than what the device names */
};

/* 1, or 0 with why no clock follows from these, which a device names. */
int syn_ticks_usable(uint64_t mask, uint64_t khz, char fault[SYN_TICKS_FAULT_BYTES]);
/* Begin with a first reading. `usable` holds of mask and frequency. */
void syn_ticks_begin(struct syn_tick_clock *clock, uint64_t mask, uint64_t khz, int64_t anchor_ns,
                     const struct syn_tick_reading *first);
/* Take a further reading: 1, or 0 with what is wrong with the clock, which stays as it was. */
int syn_ticks_take(struct syn_tick_clock *clock, const struct syn_tick_reading *reading,
                   char fault[SYN_TICKS_FAULT_BYTES]);
/* What the clock said at its newest reading, ns. */
int64_t syn_ticks_newest_ns(const struct syn_tick_clock *clock);
/* What it said when the counter stood so, shortly before CLOCK_MONOTONIC_RAW was `raw_ns`; 0: it
 * cannot have stood so in the last two seconds. */
int64_t syn_ticks_stamp_ns(const struct syn_tick_clock *clock, uint64_t ticks, int64_t raw_ns);

#endif
