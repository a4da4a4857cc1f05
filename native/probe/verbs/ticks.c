#include "ticks.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>

enum {
    MIN_KHZ = 1000,
    MAX_KHZ = 10000000,
    MIN_WRAP_MS = 8000,   /* distinguishes a stamp of up to LATE_NS ago from the next turn's */
    NAMED_PPM = 1000,     /* a device's frequency is off the one it names by less */
    MEASURED_PPM = 20,    /* by less from one reading to the next */
    RATE_PPM = 5,         /* error at which the rate counts as measured */
};

static const int64_t RATE_NS = 1000000000; /* and it is measured over so long at least */
static const int64_t LATE_NS = 2000000000; /* no probe waits for its stamp so long */

int syn_ticks_usable(uint64_t mask, uint64_t khz, char fault[SYN_TICKS_FAULT_BYTES])
{
    if (khz < MIN_KHZ || khz > MAX_KHZ)
        snprintf(fault, SYN_TICKS_FAULT_BYTES, "its clock names a frequency of %" PRIu64 " kHz", khz);
    else if (mask & (mask + 1))
        snprintf(fault, SYN_TICKS_FAULT_BYTES, "its clock has gaps among its bits (%#" PRIx64 ")",
                 mask);
    else if (mask / khz < MIN_WRAP_MS)
        snprintf(fault, SYN_TICKS_FAULT_BYTES, "its clock wraps every %" PRIu64 " ms", mask / khz);
    else
        return 1;
    return 0;
}

void syn_ticks_begin(struct syn_tick_clock *clock, uint64_t mask, uint64_t khz, int64_t anchor_ns,
                     const struct syn_tick_reading *first)
{
    *clock = (struct syn_tick_clock){
        .mask = mask,
        .khz = (int64_t)khz,
        .anchor_ns = anchor_ns,
        .anchor_ticks = first->ticks,
        .newest = *first,
        .base = *first,
        .ticks_per_ns = (double)khz * 1e-6,
    };
}

static int64_t expected_at(const struct syn_tick_clock *clock, int64_t raw_ns)
{
    return clock->total + llround((double)(raw_ns - clock->newest.raw_ns) * clock->ticks_per_ns);
}

/* Of all totals at which the counter stands so, the one nearest to what is expected. */
static int64_t unwrapped(const struct syn_tick_clock *clock, uint64_t ticks, int64_t expected)
{
    uint64_t ahead = (ticks - clock->anchor_ticks - (uint64_t)expected) & clock->mask;
    uint64_t behind = clock->mask - ahead; /* less one */
    return ahead <= behind ? expected + (int64_t)ahead : expected - (int64_t)behind - 1;
}

/* How far the clock may be from what is expected, in ticks. */
static double tolerance(const struct syn_tick_clock *clock, int64_t raw_ns, int64_t doubt_ns)
{
    double ppm = clock->measured ? MEASURED_PPM : NAMED_PPM;
    double away_ns = fabs((double)(raw_ns - clock->newest.raw_ns));
    double ns = (double)(clock->newest.doubt_ns + doubt_ns) + away_ns * ppm * 1e-6;
    return ns * clock->ticks_per_ns + 2;
}

/* Measure the rate, where enough time has passed for the doubts of both readings. */
static void measure(struct syn_tick_clock *clock)
{
    double doubt_ns = (double)(clock->newest.doubt_ns + clock->base.doubt_ns);
    int64_t span_ns = clock->newest.raw_ns - clock->base.raw_ns;
    if (!clock->measured && clock->newest.doubt_ns < clock->base.doubt_ns / 4) {
        clock->base = clock->newest; /* the first one would take long to measure from */
        clock->base_total = clock->total;
        return;
    }
    if (span_ns < RATE_NS || doubt_ns > (double)span_ns * RATE_PPM * 1e-6)
        return;
    clock->ticks_per_ns = (double)(clock->total - clock->base_total) / (double)span_ns;
    clock->measured = 1;
    clock->base = clock->newest;
    clock->base_total = clock->total;
}

int syn_ticks_take(struct syn_tick_clock *clock, const struct syn_tick_reading *reading,
                   char fault[SYN_TICKS_FAULT_BYTES])
{
    int64_t expected = expected_at(clock, reading->raw_ns);
    double may = tolerance(clock, reading->raw_ns, reading->doubt_ns);
    if (may > (double)clock->mask / 4) {
        snprintf(fault, SYN_TICKS_FAULT_BYTES, "its clock was not read for too long");
        return 0;
    }
    int64_t total = unwrapped(clock, reading->ticks, expected);
    double off = (double)(total - expected);
    if (fabs(off) > may && clock->total == 0)
        snprintf(fault, SYN_TICKS_FAULT_BYTES, "its clock does not run at the %" PRId64
                 " kHz it names", clock->khz);
    else if (fabs(off) > may)
        snprintf(fault, SYN_TICKS_FAULT_BYTES, "its clock jumped by %+.0f us",
                 off / clock->ticks_per_ns * 1e-3);
    if (fabs(off) > may)
        return 0;
    clock->newest = *reading;
    clock->total = total;
    measure(clock);
    return 1;
}

/* Whole milliseconds and the rest: neither product can overflow. */
static int64_t ns_of(const struct syn_tick_clock *clock, int64_t total)
{
    return clock->anchor_ns + total / clock->khz * 1000000 +
           total % clock->khz * 1000000 / clock->khz;
}

int64_t syn_ticks_newest_ns(const struct syn_tick_clock *clock)
{
    return ns_of(clock, clock->total);
}

int64_t syn_ticks_stamp_ns(const struct syn_tick_clock *clock, uint64_t ticks, int64_t raw_ns)
{
    int64_t expected = expected_at(clock, raw_ns);
    int64_t total = unwrapped(clock, ticks, expected);
    double late = (double)(expected - total);
    double may = tolerance(clock, raw_ns, 0);
    return late < -may || late > (double)LATE_NS * clock->ticks_per_ns ? 0 : ns_of(clock, total);
}
