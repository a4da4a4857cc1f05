#include "hush.h"

#include "order.h"

void syn_hush_open(struct syn_hush *hush, int64_t now_ns)
{
    *hush = (struct syn_hush){.burst_ns = now_ns - SYN_BURST_PAUSE_NS};
}

void syn_hush_answered(struct syn_hush *hush, int64_t spacing_ns, int64_t now_ns)
{
    int64_t silent_ns = hush->heard_ns != 0 ? now_ns - hush->heard_ns : 0;
    if (silent_ns > syn_greater(SYN_HUSH_NS, SYN_GAP_TURNS * spacing_ns)) {
        hush->steady_ns = now_ns;
        hush->gap_ns = silent_ns;
    }
    hush->heard_ns = now_ns;
    hush->reported = 0;
}

int64_t syn_hush_due_ns(const struct syn_hush *hush)
{
    if (hush->heard_ns == 0 || hush->reported)
        return INT64_MAX;
    return hush->heard_ns + SYN_HUSH_NS;
}

int64_t syn_hush_doubt_ns(const struct syn_hush *hush, int64_t spacing_ns)
{
    if (hush->heard_ns == 0 || hush->reported || syn_hush_bursting(hush))
        return INT64_MAX;
    int64_t silence_ns = syn_greater(SYN_MIN_DOUBT_NS, spacing_ns + spacing_ns / 2);
    return syn_greater(hush->heard_ns + silence_ns, hush->burst_ns + SYN_BURST_PAUSE_NS);
}

void syn_hush_burst(struct syn_hush *hush, int64_t now_ns)
{
    hush->burst_ns = now_ns;
}

int syn_hush_bursting(const struct syn_hush *hush)
{
    return hush->burst_ns > hush->heard_ns;
}
