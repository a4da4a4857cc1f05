#include "liveness.h"

#include "order.h"

enum {
    RTT_WEIGHT = 16, /* of the old value: a few tens of milliseconds at usual intervals */
    /* What a path has shown once it may show again; forgotten by half every 8 s. */
    PEAK_HALF_LIFE_S = 8,
};

static const int64_t HALF_LIFE_NS = INT64_C(1000000000) * PEAK_HALF_LIFE_S;

void syn_liveness_open(struct syn_liveness *live, int64_t interval_ns, int64_t now_ns)
{
    *live = (struct syn_liveness){
        .interval_ns = interval_ns, .heard_ns = now_ns, .peak_at_ns = now_ns};
}

void syn_liveness_pace(struct syn_liveness *live, int64_t interval_ns)
{
    live->interval_ns = interval_ns;
}

void syn_liveness_sent(struct syn_liveness *live, int64_t now_ns)
{
    live->sent_ns[live->next_seq++ % SYN_LIVENESS_SENT] = now_ns;
}

/* Halving by whole half-lives, linear in between. */
static int64_t peak_now(const struct syn_liveness *live, int64_t now_ns)
{
    int64_t age_ns = now_ns - live->peak_at_ns;
    int64_t halvings = age_ns / HALF_LIFE_NS;
    if (halvings >= 40)
        return 0;
    int64_t peak_ns = live->peak_ns >> halvings;
    return peak_ns - peak_ns / 2 * ((age_ns % HALF_LIFE_NS) / 1000000) / (HALF_LIFE_NS / 1000000);
}

int64_t syn_liveness_slack_ns(const struct syn_liveness *live, int64_t now_ns)
{
    int64_t peak_ns = peak_now(live, now_ns);
    int64_t slack_ns = syn_greater(SYN_MIN_SLACK_NS, peak_ns + peak_ns / 2);
    return slack_ns < SYN_MAX_SLACK_NS ? slack_ns : SYN_MAX_SLACK_NS;
}

static void learn_delay(struct syn_liveness *live, uint32_t seq, int64_t now_ns)
{
    if (live->next_seq - seq > SYN_LIVENESS_SENT)
        return; /* its send instant is forgotten */
    int64_t rtt_ns = now_ns - live->sent_ns[seq % SYN_LIVENESS_SENT];
    if (live->rtt_ns == 0)
        live->rtt_ns = syn_greater(rtt_ns, 1);
    int64_t excess_ns = rtt_ns - live->rtt_ns;
    if (excess_ns > peak_now(live, now_ns)) {
        live->peak_ns = excess_ns;
        live->peak_at_ns = now_ns;
    }
    live->rtt_ns = syn_greater(live->rtt_ns + excess_ns / RTT_WEIGHT, 1);
}

int syn_liveness_reply(struct syn_liveness *live, uint32_t seq, int64_t now_ns)
{
    if (live->next_seq - seq - 1 >= INT32_MAX)
        return 0; /* never sent */
    learn_delay(live, seq, now_ns);
    live->heard_ns = now_ns;
    if ((int32_t)(seq + 1 - live->answered) > 0) {
        live->hits = seq == live->answered ? live->hits + 1 : 1;
        live->answered = seq + 1;
    }
    int revived = live->life != SYN_LIFE_ALIVE && live->hits >= SYN_HITS;
    if (revived)
        live->life = SYN_LIFE_ALIVE;
    return revived;
}

uint32_t syn_liveness_misses(const struct syn_liveness *live)
{
    return live->next_seq - live->answered;
}

uint32_t syn_liveness_overdue(const struct syn_liveness *live, int64_t now_ns)
{
    uint32_t misses = syn_liveness_misses(live);
    uint32_t seq = misses < SYN_LIVENESS_SENT ? live->answered : live->next_seq - SYN_LIVENESS_SENT;
    uint32_t count = 0;
    while (seq + count != live->next_seq &&
           live->sent_ns[(seq + count) % SYN_LIVENESS_SENT] + live->rtt_ns <= now_ns)
        count++;
    return count;
}

int64_t syn_liveness_verdict_ns(const struct syn_liveness *live, int64_t now_ns)
{
    if (live->life == SYN_LIFE_DEAD || syn_liveness_misses(live) < SYN_MISSES)
        return INT64_MAX;
    int64_t slack_ns = syn_liveness_slack_ns(live, now_ns);
    uint32_t decisive = live->answered + SYN_MISSES - 1;
    int64_t silence_ns = live->heard_ns + SYN_MISSES * live->interval_ns + slack_ns;
    if (live->next_seq - decisive > SYN_LIVENESS_SENT)
        return silence_ns;
    int64_t waited_ns = live->sent_ns[decisive % SYN_LIVENESS_SENT] + live->rtt_ns + slack_ns;
    return syn_greater(silence_ns, waited_ns);
}

int syn_liveness_check(struct syn_liveness *live, int64_t now_ns)
{
    if (now_ns < syn_liveness_verdict_ns(live, now_ns))
        return 0;
    live->life = SYN_LIFE_DEAD;
    live->hits = 0;
    return 1;
}
