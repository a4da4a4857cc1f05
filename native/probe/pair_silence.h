/* Whether a pair of NICs answers: all its watched flows together. Pure.
 *
 * A pair is suspect when it has been silent for a little longer than one more probe takes; a burst of
 * probes is then sent. It is unresponsive when it has been silent for 20 ms, and six of its probes
 * have had their usual round trip without a reply. Unresponsive is not dead: that depends on jobs'
 * data that wait, on the pair's usual silences and on other peers, which the engine does not know
 * (docs/decisions/0140). Instants are of the awake clock.
 *
 * When a silence of 20 ms and three turns of the pair ends, its length is kept: the peer may have had
 * no processor time, and then reads what arrived at its other NICs later (docs/decisions/0263). */
#ifndef SYN_PAIR_SILENCE_H
#define SYN_PAIR_SILENCE_H

#include <stdint.h>

enum {
    SYN_SILENCE_MISSES = 6,
    SYN_SILENCE_NS = 20000000,      /* a full queue's worth */
    SYN_GAP_TURNS = 3,              /* one of them, or two, may have been lost */
    SYN_MIN_SUSPECT_NS = 8000000,
    SYN_BURST_ROUNDS = 2,           /* probes of each flow in a burst */
    SYN_BURST_GAP_NS = 3000000,     /* between them */
    SYN_BURST_PAUSE_NS = 100000000, /* from one burst to the next: a third more probes at most */
};

struct syn_pair_silence {
    int64_t heard_ns; /* the newest answer; 0 before the first */
    int64_t burst_ns; /* when the last burst began */
    int reported;      /* that it is unresponsive */
    int64_t steady_ns; /* since then there has been no long silence; 0: there never was one */
    int64_t gap_ns;    /* how long the last one was */
};

void syn_pair_silence_open(struct syn_pair_silence *silence, int64_t now_ns);
/* `spacing_ns`: between two probes of the pair. */
void syn_pair_silence_answered(struct syn_pair_silence *silence, int64_t spacing_ns, int64_t now_ns);
/* When it may be unresponsive if nothing comes; INT64_MAX before the first answer. */
int64_t syn_pair_unresponsive_ns(const struct syn_pair_silence *silence);
/* When a burst of probes should begin if nothing comes; INT64_MAX if one has in this silence. */
int64_t syn_pair_suspect_ns(const struct syn_pair_silence *silence, int64_t spacing_ns);
void syn_pair_silence_burst(struct syn_pair_silence *silence, int64_t now_ns);
/* Whether nothing has been answered since the last burst began. */
int syn_pair_silence_bursting(const struct syn_pair_silence *silence);

#endif
