#include "pacer.h"

/* A poll that comes late may catch up so much. */
static const int64_t BURST_NS = INT64_C(200000);
static const int64_t LONGEST_NS = INT64_C(1000000000000);

void pacer_set(struct pacer *pacer, uint64_t rate_bps, int64_t until_ns, int64_t now_ns)
{
    bool was_void = now_ns >= atomic_exchange(&pacer->until_ns, until_ns > 0 ? until_ns : INT64_MAX);
    if (atomic_exchange(&pacer->rate_bps, rate_bps) != rate_bps || was_void)
        atomic_store(&pacer->next_ns, 0);
}

int64_t pacer_until_ns(const struct pacer *pacer)
{
    return atomic_load(&pacer->rate_bps) ? atomic_load(&pacer->until_ns) : 0;
}

static uint64_t rate_now(const struct pacer *pacer, int64_t now_ns)
{
    return now_ns < atomic_load_explicit(&pacer->until_ns, memory_order_relaxed)
               ? atomic_load_explicit(&pacer->rate_bps, memory_order_relaxed) : 0;
}

bool pacer_allows(const struct pacer *pacer, int64_t now_ns)
{
    return rate_now(pacer, now_ns) == 0 ||
           now_ns >= atomic_load_explicit(&pacer->next_ns, memory_order_relaxed);
}

void pacer_sent(struct pacer *pacer, uint64_t bytes, int64_t now_ns)
{
    uint64_t rate_bps = rate_now(pacer, now_ns);
    if (rate_bps == 0)
        return;
    double cost_ns = (double)bytes * 8e9 / (double)rate_bps;
    int64_t longer_ns = cost_ns < (double)LONGEST_NS ? (int64_t)cost_ns : LONGEST_NS;
    int64_t next_ns = atomic_load(&pacer->next_ns), from_ns;
    do
        from_ns = next_ns > now_ns - BURST_NS ? next_ns : now_ns - BURST_NS;
    while (!atomic_compare_exchange_weak(&pacer->next_ns, &next_ns, from_ns + longer_ns));
}
