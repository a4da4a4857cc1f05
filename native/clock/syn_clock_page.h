/* The shared-memory page that carries the fleet timeline to every process of a host, its reader and
 * its writer (see docs/reference/clock-page.md). A program needs this header, syn_clock_reader.c and
 * nothing else; libsyntony has all of it. */
#ifndef SYN_CLOCK_PAGE_H
#define SYN_CLOCK_PAGE_H

#include <stddef.h>
#include <stdint.h>

#pragma GCC visibility push(default)

/* --- declarations --- */
enum { SYN_CLOCK_PIECES = 4096, SYN_CLOCK_PAGE_VERSION = 1 };

enum syn_clock_status {
    SYN_CLOCK_UNKNOWN = 0,
    SYN_CLOCK_SYNCHRONIZED = 1,
    SYN_CLOCK_HOLDOVER = 2,
    SYN_CLOCK_DISRUPTED = 3,
};

/* What the stamps of this host are in. */
enum syn_clock_local { SYN_CLOCK_REALTIME = 0, SYN_CLOCK_SYNTHETIC = 1 };

/* One piece of the served timeline, in force from local instant from_ns until the next piece:
 * fleet = local + offset + drift*(local - ref) + residual, where |residual| shrinks at slew_ppb. */
struct syn_clock_piece {
    int64_t from_ns;
    int64_t ref_ns;
    double offset_ns;
    double drift_ppb;
    double residual_ns; /* at from_ns */
    double slew_ppb;
    double sigma_ns;
    double drift_sigma_ppb;
    double asymmetry_ns;
    int32_t status;
    uint32_t steps; /* a different number than in another piece: not one continuous timeline */
};

/* In the place of the piece that will be written next: shows a reader that the clock's rate has
 * changed since the writer looked. To readers that do not know it, it is a piece that never begins. */
struct syn_clock_pace {
    int64_t never;       /* INT64_MAX, where a piece has from_ns */
    int64_t raw_ns;      /* CLOCK_MONOTONIC_RAW at local_ns and mono_ns */
    int64_t width_ns;    /* those three were read within this */
    double rate_ppb;     /* how much faster than CLOCK_MONOTONIC_RAW the clock has run recently */
    double rate_tolerance_ppb; /* give or take */
    int64_t epoch;       /* names the clock's last disruption */
    int64_t reserved[4];
};

struct syn_clock_page {
    uint64_t magic;
    uint32_t size;
    uint16_t version;
    uint16_t local_clock; /* enum syn_clock_local */
    uint32_t generation;  /* odd while being written, 0 before the first time */
    uint32_t reserved;
    uint64_t written;     /* pieces ever; the newest is pieces[(written - 1) % SYN_CLOCK_PIECES] */
    /* One instant in two clocks; anyone who reads them further apart has seen a step. */
    int64_t local_ns;
    int64_t mono_ns;
    int64_t void_after_ns; /* CLOCK_MONOTONIC: the writer is dead */
    /* How the bound grows with the distance from ref_ns, see docs/reference/clock.md. */
    double bound_sigmas;
    double walk_ppb;
    double ramp_ppb_per_s;
    double swing_ppb;
    struct syn_clock_piece pieces[4096];
};

/* Fleet time lies between earliest and latest, unless status is UNKNOWN or DISRUPTED: then they are
 * INT64_MIN and INT64_MAX, and fleet_ns is the best guess or 0. A bound beyond a millisecond is
 * reported as DISRUPTED. */
struct syn_clock_reading {
    int64_t earliest_ns;
    int64_t latest_ns;
    int64_t fleet_ns;
    int32_t status;
    uint32_t steps;
};

struct syn_clock_reader {
    const struct syn_clock_page *page;
    int64_t (*local)(void *context); /* the host's clock; CLOCK_REALTIME unless set */
    void *context;
    /* Where `local` is set: that host's CLOCK_MONOTONIC and CLOCK_MONOTONIC_RAW. Without them steps
     * and slews are known only once the writer has seen them. */
    int64_t (*steady)(void *context);
    int64_t (*raw)(void *context);
};

/* One instant in the three clocks of a host, all read within width_ns around it. */
struct syn_clock_moment {
    int64_t local_ns, mono_ns, raw_ns, width_ns;
};

/* 0, or an errno: EPROTO for a file that is no such page. Any number of threads may read. */
int syn_clock_reader_open(struct syn_clock_reader *reader, const char *path);
void syn_clock_reader_close(struct syn_clock_reader *reader);
/* Fleet time now, and that of a past or present local instant. 0; EAGAIN if the writer died inside
 * an update; ENODATA for an instant before everything that is remembered; ENOTSUP for `now` where
 * the host's clock is a lab's synthetic one and `local` was not set. */
int syn_clock_reader_now(const struct syn_clock_reader *reader, struct syn_clock_reading *out);
int syn_clock_reader_to_fleet(const struct syn_clock_reader *reader, int64_t local_ns,
                              struct syn_clock_reading *out);

/* The clocks of `reader` (its page is not used) at one instant: the tightest of some tries. */
void syn_clock_look(const struct syn_clock_reader *reader, struct syn_clock_moment *out);

/* A descriptor that reports steps of CLOCK_REALTIME (timerfd, TFD_TIMER_CANCEL_ON_SET), or -errno.
 * `wait` says 1 if there was one, 0 if not in time. */
int syn_set_watch_open(void);
int syn_set_watch_wait(int fd, int timeout_ms);

/* The writer's side; one process. `open` makes the file, or goes on with what a predecessor left. */
struct syn_clock_page *syn_clock_page_open(const char *path, uint16_t local_clock, int *error);
void syn_clock_page_close(struct syn_clock_page *page);
/* A new piece (or none, NULL), the present moment and pace (its raw_ns and width_ns are the moment's),
 * and until when readers may take the writer to live. */
void syn_clock_page_write(struct syn_clock_page *page, const struct syn_clock_piece *piece,
                          const struct syn_clock_moment *now, const struct syn_clock_pace *pace,
                          int64_t void_after_ns);

/* A segment in ClockBound's layout, protocol version 1 or 2 (github.com/aws/clock-bound,
 * docs/PROTOCOL.md). The status words are ClockBound's. */
struct syn_bound {
    int64_t as_of_ns;      /* CLOCK_MONOTONIC_COARSE */
    int64_t void_after_ns;
    int64_t bound_ns;      /* of CLOCK_REALTIME */
    uint64_t disruptions;
    uint32_t max_drift_ppb;
    int32_t status;
};
void *syn_bound_open(const char *path, uint16_t version, int *error);
void syn_bound_close(void *segment);
void syn_bound_write(void *segment, const struct syn_bound *bound);
/* --- end of declarations --- */

static const uint64_t SYN_CLOCK_MAGIC = UINT64_C(0x31304b4c434e5953); /* "SYNCLK01" */

_Static_assert(sizeof(struct syn_clock_piece) == 80, "layout");
_Static_assert(sizeof(struct syn_clock_pace) == sizeof(struct syn_clock_piece), "layout");
_Static_assert(sizeof(struct syn_clock_page) == 88 + 80 * SYN_CLOCK_PIECES, "layout");

#pragma GCC visibility pop

#endif
