/* A clock whose error against the machine's CLOCK_REALTIME is known exactly (see
 * docs/decisions/0011). Everything between the two markers is read by Python's cffi. */
#ifndef SYN_CLOCK_H
#define SYN_CLOCK_H

#include <stddef.h>
#include <stdint.h>

#pragma GCC visibility push(default)

/* --- declarations --- */
/* Bumped with every change of a declaration in an installed header. */
enum { SYN_ABI = 8 };

/* The number the library was built with. */
uint32_t syn_abi(void);

struct syn_clock_step {
    int64_t at_ns;    /* machine instant from which the step counts */
    int64_t phase_ns; /* added to the reading */
};

struct syn_clock_spec {
    int64_t base_ns;         /* machine instant at which the clock reads base + offset */
    int64_t offset_ns;
    double drift_ppb;        /* constant frequency error */
    double wander_ppb;       /* random walk of the frequency, per square root of a second */
    uint64_t seed;           /* of the random walk */
    double swing_ppb;        /* amplitude of a sinusoidal frequency error */
    int64_t swing_period_ns;
};

struct syn_clock;

/* Adjustments while the clock runs, in a file that every process with this clock maps: each line is
 * in force from at_ns until the next one. Lines are appended, never changed. */
struct syn_clock_line {
    int64_t at_ns;    /* machine instant */
    int64_t phase_ns; /* added to the reading at at_ns */
    double rate_ppb;  /* and growing by this */
};

struct syn_clock_tape {
    uint64_t magic;
    uint64_t count; /* stored last, with release order */
    struct syn_clock_line lines[65536];
};

/* Follow the tape in an existing file of that size, zeros at first. 0 or an errno. Before the clock
 * is used by other threads. */
int syn_clock_follow(struct syn_clock *clock, const char *path);
/* Append a line: phase jumps by `step_ns` and rate becomes `rate_ppb` (NaN: stays) from at_ns, which
 * is put after the last line if it is not. One caller at a time among all processes (flock). ENOSPC
 * when the tape is full, EINVAL without one or for a rate beyond 1 %. */
int syn_clock_adjust(struct syn_clock *clock, int64_t at_ns, int64_t step_ns, double rate_ppb);
/* The line in force at a machine instant; zeros if none. */
struct syn_clock_line syn_clock_line_at(struct syn_clock *clock, int64_t real_ns);

/* A clock, or NULL if memory is short or the spec is out of range (see syn_clock_spec_ok). Steps
 * must ascend; those at or before base_ns are already part of offset_ns and are ignored. */
struct syn_clock *syn_clock_open(const struct syn_clock_spec *spec,
                                 const struct syn_clock_step *steps, size_t count);
void syn_clock_close(struct syn_clock *clock);

/* Whether the rates keep the clock running forwards and the arithmetic exact. */
int syn_clock_spec_ok(const struct syn_clock_spec *spec, const struct syn_clock_step *steps,
                      size_t count);

/* Machine time to this clock. Thread-safe, as everything below. */
int64_t syn_clock_map(struct syn_clock *clock, int64_t real_ns);
void syn_clock_map_many(struct syn_clock *clock, const int64_t *real_ns, int64_t *local_ns,
                        size_t count);
/* The latest machine instant at which this clock read local_ns; the instant of the step where a
 * step skipped that reading. */
int64_t syn_clock_unmap(struct syn_clock *clock, int64_t local_ns);
/* Frequency error at a machine instant. */
double syn_clock_rate_ppb(struct syn_clock *clock, int64_t real_ns);
/* This clock now. */
int64_t syn_clock_now(struct syn_clock *clock);

/* The other clocks of a host with this one, as Linux has them: CLOCK_MONOTONIC runs at this clock's
 * rate but takes no step, CLOCK_MONOTONIC_RAW takes no adjustment of the rate either. */
int64_t syn_clock_steady(struct syn_clock *clock, int64_t real_ns);
int64_t syn_clock_raw(struct syn_clock *clock, int64_t real_ns);
int64_t syn_clock_steady_now(struct syn_clock *clock);
int64_t syn_clock_raw_now(struct syn_clock *clock);

/* Wait until the tape steps the clock, as a timerfd with TFD_TIMER_CANCEL_ON_SET waits for a step of
 * CLOCK_REALTIME. `seen` is the number of lines known to the caller, and is brought up to date. 1: the
 * clock has stepped; 0: not in time. */
int syn_clock_wait(struct syn_clock *clock, uint64_t *seen, int timeout_ms);
/* --- end of declarations --- */

#pragma GCC visibility pop

#endif
