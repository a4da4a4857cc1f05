#include "pair_silence.h"

#include "order.h"

void syn_pair_silence_open(struct syn_pair_silence *silence, int64_t now_ns)
{
    *silence = (struct syn_pair_silence){.burst_ns = now_ns - SYN_BURST_PAUSE_NS};
}

void syn_pair_silence_answered(struct syn_pair_silence *silence, int64_t spacing_ns, int64_t now_ns)
{
    int64_t silent_ns = silence->heard_ns != 0 ? now_ns - silence->heard_ns : 0;
    if (silent_ns > syn_greater(SYN_SILENCE_NS, SYN_GAP_TURNS * spacing_ns)) {
        silence->steady_ns = now_ns;
        silence->gap_ns = silent_ns;
    }
    silence->heard_ns = now_ns;
    silence->reported = 0;
}

int64_t syn_pair_unresponsive_ns(const struct syn_pair_silence *silence)
{
    if (silence->heard_ns == 0 || silence->reported)
        return INT64_MAX;
    return silence->heard_ns + SYN_SILENCE_NS;
}

int64_t syn_pair_suspect_ns(const struct syn_pair_silence *silence, int64_t spacing_ns)
{
    if (silence->heard_ns == 0 || silence->reported || syn_pair_silence_bursting(silence))
        return INT64_MAX;
    int64_t silence_ns = syn_greater(SYN_MIN_SUSPECT_NS, spacing_ns + spacing_ns / 2);
    return syn_greater(silence->heard_ns + silence_ns, silence->burst_ns + SYN_BURST_PAUSE_NS);
}

void syn_pair_silence_burst(struct syn_pair_silence *silence, int64_t now_ns)
{
    silence->burst_ns = now_ns;
}

int syn_pair_silence_bursting(const struct syn_pair_silence *silence)
{
    return silence->burst_ns > silence->heard_ns;
}
