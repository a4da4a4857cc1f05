/* A NIC's counter as a clock: what is usable, how it is unwrapped, measured, and found to be wrong. */
#include <string.h>

#include "../../probe/verbs/ticks.h"
#include "check.h"

enum { KHZ = 156250, DOUBT_NS = 100 };
static const uint64_t MASK = (UINT64_C(1) << 31) - 1; /* it wraps every 13.7 s */
static const int64_t S = 1000000000, ANCHOR_NS = 5000;
static char fault[SYN_TICKS_FAULT_BYTES];

static void some_are_usable(void)
{
    static const struct { uint64_t mask, khz; const char *fault; } CASES[] = {
        {UINT64_MAX, 1000, NULL}, {UINT64_MAX, 10000000, NULL},
        {UINT64_MAX, 999, "a frequency of 999 kHz"}, {UINT64_MAX, 10000001, "a frequency of 10000001 kHz"},
        {UINT64_MAX, 0, "a frequency of 0 kHz"}, {UINT64_MAX - 1, KHZ, "gaps"}, {UINT64_MAX >> 1 ^ 4, KHZ, "gaps"},
        {MASK, KHZ, NULL}, {MASK >> 1, KHZ, "wraps every 6871 ms"},
        {(1 << 26) - 1, 8388, NULL}, {(1 << 26) - 1, 8389, "wraps every 7999 ms"}};
    for (size_t i = 0; i < sizeof CASES / sizeof *CASES; i++) {
        CHECK_EQUAL(syn_ticks_usable(CASES[i].mask, CASES[i].khz, fault), CASES[i].fault == NULL);
        CHECK(CASES[i].fault == NULL || strstr(fault, CASES[i].fault));
    }
}

/* The host's clock reads so at one second after another; the counter began anywhere. */
static struct syn_tick_reading at(int64_t ns, int64_t ppm, int64_t doubt_ns)
{
    int64_t ticks = ns / S * KHZ * 1000 + ns % S * KHZ / 1000000;
    ticks += ticks * ppm / 1000000;
    return (struct syn_tick_reading){.ticks = (MASK - 1000 + (uint64_t)ticks) & MASK,
                                     .raw_ns = 7 * S + ns, .doubt_ns = doubt_ns};
}

static struct syn_tick_clock begun(int64_t doubt_ns)
{
    struct syn_tick_clock clock;
    struct syn_tick_reading first = at(0, 0, doubt_ns);
    syn_ticks_begin(&clock, MASK, KHZ, ANCHOR_NS, &first);
    CHECK_EQUAL(syn_ticks_newest_ns(&clock), ANCHOR_NS);
    return clock;
}

static int take(struct syn_tick_clock *clock, int64_t ns, int64_t ppm, int64_t doubt_ns)
{
    struct syn_tick_reading reading = at(ns, ppm, doubt_ns);
    fault[0] = '\0';
    return syn_ticks_take(clock, &reading, fault);
}

static void it_goes_on_when_it_wraps(void)
{
    struct syn_tick_clock clock = begun(DOUBT_NS);
    for (int i = 1; i < 100; i++) {
        CHECK(take(&clock, i * S, 0, DOUBT_NS));
        CHECK_EQUAL(syn_ticks_newest_ns(&clock), ANCHOR_NS + i * S);
    }
    CHECK(take(&clock, 5000 * S, 0, DOUBT_NS)); /* also after many turns */
    CHECK_EQUAL(syn_ticks_newest_ns(&clock), ANCHOR_NS + 5000 * S);
}

/* Until its rate is measured it may be off what it names by 1000 ppm, after that by 20 ppm. */
static void its_rate_is_measured(void)
{
    struct syn_tick_clock clock = begun(DOUBT_NS);
    CHECK(!take(&clock, S, 1001, DOUBT_NS));
    CHECK(strstr(fault, "does not run at the 156250 kHz"));
    CHECK(!take(&clock, S, -1001, DOUBT_NS));
    CHECK(take(&clock, S, 999, DOUBT_NS) && clock.measured);
    CHECK(clock.ticks_per_ns > 0.15625 * 1.000998 && clock.ticks_per_ns < 0.15625 * 1.001);
    clock = begun(DOUBT_NS);
    CHECK(take(&clock, S / 2, 500, DOUBT_NS)); /* too soon */
    CHECK(!clock.measured);
    CHECK(take(&clock, S, 500, DOUBT_NS) && clock.measured);
    CHECK(take(&clock, 2 * S, 509, DOUBT_NS)); /* 18 ppm more from one second to the next */
    clock = begun(DOUBT_NS);
    CHECK(take(&clock, S, 500, DOUBT_NS) && clock.measured);
    CHECK(!take(&clock, 2 * S, 511, DOUBT_NS)); /* 22 ppm */
    clock = begun(DOUBT_NS);
    CHECK(take(&clock, S, 500, 4900) && clock.measured); /* both doubts are 5 ppm of the time */
    clock = begun(DOUBT_NS);
    CHECK(take(&clock, S, 500, 5000) && !clock.measured);
    clock = begun(1000000); /* one that is doubted so much is measured from a later one */
    CHECK(take(&clock, S, 500, DOUBT_NS) && !clock.measured);
    CHECK(take(&clock, 2 * S, 500, DOUBT_NS) && clock.measured);
    clock = begun(4 * DOUBT_NS); /* but not from one that is little better */
    CHECK(take(&clock, S, 500, DOUBT_NS) && clock.measured);
}

/* What is refused changes nothing. */
static void jumps_are_found(void)
{
    struct syn_tick_clock clock = begun(DOUBT_NS), before;
    CHECK(take(&clock, S, 0, DOUBT_NS) && take(&clock, 2 * S, 0, DOUBT_NS));
    before = clock;
    struct syn_tick_reading reading = at(3 * S, 0, DOUBT_NS);
    reading.ticks = (reading.ticks + KHZ) & MASK; /* 1 ms */
    CHECK(!syn_ticks_take(&clock, &reading, fault));
    CHECK(strstr(fault, "jumped by +1000 us"));
    reading.ticks = (reading.ticks - 2 * KHZ) & MASK;
    CHECK(!syn_ticks_take(&clock, &reading, fault));
    CHECK(strstr(fault, "jumped by -1000 us"));
    CHECK_EQUAL(memcmp(&clock, &before, sizeof clock), 0);
    reading.doubt_ns = 1000000; /* it is doubted as much */
    CHECK(syn_ticks_take(&clock, &reading, fault));
    clock = before;
    CHECK(take(&clock, 160000 * S, 0, DOUBT_NS)); /* 20 ppm of it are a quarter of a turn */
    clock = before;
    CHECK(!take(&clock, 180000 * S, 0, DOUBT_NS));
    CHECK(strstr(fault, "not read for too long"));
}

/* Stamps are of the last two seconds. */
static void stamps_are_recent(void)
{
    struct syn_tick_clock clock = begun(DOUBT_NS);
    for (int i = 1; i <= 20; i++)
        CHECK(take(&clock, i * S, 0, DOUBT_NS));
    int64_t now_ns = 21 * S;
    static const struct { int64_t ago_ns; int known; } CASES[] = {
        {0, 1}, {1600000, 1}, {1900000000, 1}, {1999900000, 1}, {2000100000, 0}, {6000000000, 0}, {-12800, 1},
        {-32000, 0}, {-3000000000, 0}};
    for (size_t i = 0; i < sizeof CASES / sizeof *CASES; i++) {
        int64_t of_ns = now_ns - CASES[i].ago_ns;
        int64_t stamp_ns = syn_ticks_stamp_ns(&clock, at(of_ns, 0, 0).ticks, 7 * S + now_ns);
        int64_t off_ns = stamp_ns - (ANCHOR_NS + of_ns);
        CHECK_EQUAL(stamp_ns != 0, CASES[i].known);
        CHECK(!CASES[i].known || (off_ns > -10 && off_ns < 10));
    }
}

int main(void)
{
    some_are_usable();
    it_goes_on_when_it_wraps();
    its_rate_is_measured();
    jumps_are_found();
    stamps_are_recent();
    return 0;
}
