#include <time.h>

#include "port.h"

enum {
    KEEP_NS = 100000000,  /* between two readings: 10 ppm of error in the rate are 1 us then */
    BASE_NS = 1000000000, /* the rate is measured over this */
    TRIES = 3,            /* of which the shortest counts */
};

static int64_t real_now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

/* Both clocks at one instant; whether the NIC's could be read. */
static int read_both(const struct syn_verbs_port *port, uint64_t *ticks, int64_t *real_ns)
{
    int64_t shortest_ns = INT64_MAX;
    for (int i = 0; i < TRIES; i++) {
        struct ibv_values_ex values = {.comp_mask = IBV_VALUES_MASK_RAW_CLOCK};
        int64_t before_ns = real_now_ns();
        if (ibv_query_rt_values_ex(port->context, &values) ||
            !(values.comp_mask & IBV_VALUES_MASK_RAW_CLOCK))
            return 0;
        int64_t took_ns = real_now_ns() - before_ns;
        if (took_ns < 0 || took_ns >= shortest_ns)
            continue;
        shortest_ns = took_ns;
        *real_ns = before_ns + took_ns / 2;
        *ticks = (uint64_t)values.raw_clock.tv_sec * 1000000000 + (uint64_t)values.raw_clock.tv_nsec;
    }
    return shortest_ns != INT64_MAX;
}

void syn_ticks_open(struct syn_verbs_port *port)
{
    struct syn_tick_clock *clock = &port->ticks;
    struct verbs_context *extended = verbs_get_ctx_op(port->context, query_device_ex);
    struct ibv_device_attr_ex attr = {.comp_mask = 0};
    *clock = (struct syn_tick_clock){0};
    if (extended == NULL || extended->query_device_ex(port->context, NULL, &attr, sizeof attr) ||
        attr.hca_core_clock == 0 || attr.completion_timestamp_mask == 0 ||
        !read_both(port, &clock->ticks, &clock->real_ns))
        return;
    clock->mask = attr.completion_timestamp_mask;
    clock->ns_per_tick = 1e6 / (double)attr.hca_core_clock; /* kHz */
    clock->old_ticks = clock->ticks;
    clock->old_real_ns = clock->real_ns;
}

static int64_t since(const struct syn_tick_clock *clock, uint64_t ticks, uint64_t from)
{
    uint64_t ahead = (ticks - from) & clock->mask;
    return ahead > clock->mask / 2 ? -(int64_t)((from - ticks) & clock->mask) : (int64_t)ahead;
}

int64_t syn_ticks_to_real_ns(const struct syn_tick_clock *clock, uint64_t ticks)
{
    return clock->real_ns +
           (int64_t)((double)since(clock, ticks, clock->ticks) * clock->ns_per_tick);
}

void syn_ticks_keep(struct syn_verbs_port *port)
{
    struct syn_tick_clock *clock = &port->ticks;
    int64_t waited_ns = clock->mask ? real_now_ns() - clock->real_ns : 0;
    if (waited_ns >= 0 && waited_ns < KEEP_NS)
        return;
    if (!read_both(port, &clock->ticks, &clock->real_ns))
        return;
    int64_t base_ns = clock->real_ns - clock->old_real_ns;
    int64_t base_ticks = since(clock, clock->ticks, clock->old_ticks);
    if (base_ns >= 0 && base_ns < BASE_NS)
        return;
    double rate = base_ticks > 0 ? (double)base_ns / (double)base_ticks : 0;
    /* A host clock that was stepped says nothing of the rate. */
    if (rate > clock->ns_per_tick * 0.999 && rate < clock->ns_per_tick * 1.001)
        clock->ns_per_tick = rate;
    clock->old_ticks = clock->ticks;
    clock->old_real_ns = clock->real_ns;
}
