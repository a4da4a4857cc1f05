/* Whether one path answers. Pure.
 *
 * A path is dead when nothing has come back over it for `SYN_MISSES` intervals and its slack, and the
 * last `SYN_MISSES` probes have each waited for their usual round trip and the slack. The slack
 * follows the delays that the path has shown before it answered again: queues, and a peer that is
 * not scheduled. All instants are of the awake clock, which stands still while this engine is not
 * scheduled itself: such silence proves nothing (docs/decisions/0065). */
#ifndef SYN_LIVENESS_H
#define SYN_LIVENESS_H

#include <stdint.h>

enum {
    SYN_MISSES = 4,           /* in a row, and a path is dead */
    SYN_HITS = 3,             /* replies in a row, and it is alive */
    SYN_LIVENESS_SENT = 256,  /* probes whose send instant is remembered */
    SYN_MIN_SLACK_NS = 12000000,  /* a busy scheduler's usual delay */
    SYN_MAX_SLACK_NS = 150000000, /* beyond it a path is of no use to a job, whatever the cause */
};

enum syn_life { SYN_LIFE_UNKNOWN, SYN_LIFE_ALIVE, SYN_LIFE_DEAD };

struct syn_liveness {
    int64_t interval_ns;
    int64_t heard_ns;     /* the newest reply, or the beginning */
    int64_t rtt_ns;       /* smoothed; 0 before the first reply */
    int64_t peak_ns;      /* the worst excess over it recently, as of peak_at_ns; it decays */
    int64_t peak_at_ns;
    uint32_t next_seq;
    uint32_t answered;    /* one beyond the newest probe answered */
    uint32_t hits;        /* in a row */
    enum syn_life life;
    int64_t sent_ns[SYN_LIVENESS_SENT];
};

void syn_liveness_open(struct syn_liveness *live, int64_t interval_ns, int64_t now_ns);
/* Another interval; what is known of the path stays. */
void syn_liveness_pace(struct syn_liveness *live, int64_t interval_ns);
/* One probe was sent, or refused by this host's kernel: either way it needs an answer. */
void syn_liveness_sent(struct syn_liveness *live, int64_t now_ns);
/* A reply came. Whether the path has thereby come to life. */
int syn_liveness_reply(struct syn_liveness *live, uint32_t seq, int64_t now_ns);
/* The instant at which the path is dead if nothing comes; INT64_MAX if none is foreseen. */
int64_t syn_liveness_verdict_ns(const struct syn_liveness *live, int64_t now_ns);
/* Whether the path has died by now. */
int syn_liveness_check(struct syn_liveness *live, int64_t now_ns);
uint32_t syn_liveness_misses(const struct syn_liveness *live);
/* Those of them that have had their usual round trip. */
uint32_t syn_liveness_overdue(const struct syn_liveness *live, int64_t now_ns);
int64_t syn_liveness_slack_ns(const struct syn_liveness *live, int64_t now_ns);

#endif
