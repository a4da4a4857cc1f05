/* Whether a pair of NICs answers: all its watched flows together. Pure.
 *
 * A pair is doubted when it has been silent for a little longer than it takes to ask it once more,
 * and then asked by a burst of probes. It is hushed when it has been silent for 20 ms, and six probes
 * of it have had their usual round trip and were not answered. Hushed is not dead: whose data wait,
 * for how long the pair is silent at times, and whether anybody else answers, the engine does not
 * know (docs/decisions/0140). Instants are of the awake clock.
 *
 * A silence that ends, of 20 ms and three turns of the pair, is kept: the peer may have been without
 * processor time, and reads what came to its other NICs later (docs/decisions/0263). */
#ifndef SYN_HUSH_H
#define SYN_HUSH_H

#include <stdint.h>

enum {
    SYN_HUSH_MISSES = 6,
    SYN_HUSH_NS = 20000000,         /* a full queue's worth */
    SYN_GAP_TURNS = 3,              /* one of them, or two, may have been lost */
    SYN_MIN_DOUBT_NS = 8000000,
    SYN_BURST_ROUNDS = 2,           /* probes of each flow in a burst */
    SYN_BURST_GAP_NS = 3000000,     /* between them */
    SYN_BURST_PAUSE_NS = 100000000, /* from one burst to the next: a third more probes at most */
};

struct syn_hush {
    int64_t heard_ns; /* the newest answer; 0 before the first */
    int64_t burst_ns; /* when the last burst began */
    int reported;      /* that it is hushed */
    int64_t steady_ns; /* since then there has been no long silence; 0: there never was one */
    int64_t gap_ns;    /* how long the last one was */
};

void syn_hush_open(struct syn_hush *hush, int64_t now_ns);
/* `spacing_ns`: between two probes of the pair. */
void syn_hush_answered(struct syn_hush *hush, int64_t spacing_ns, int64_t now_ns);
/* When it may be hushed if nothing comes; INT64_MAX before the first answer. */
int64_t syn_hush_due_ns(const struct syn_hush *hush);
/* When a burst of probes should begin if nothing comes; INT64_MAX if one has in this silence. */
int64_t syn_hush_doubt_ns(const struct syn_hush *hush, int64_t spacing_ns);
void syn_hush_burst(struct syn_hush *hush, int64_t now_ns);
/* Whether nothing has been answered since the last burst began. */
int syn_hush_bursting(const struct syn_hush *hush);

#endif
