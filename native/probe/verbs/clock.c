/* The clock of a NIC's RDMA device: opened, read with the host's clock, rejected if unusable. */
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "port.h"

enum {
    TRIES = 5,          /* of which the shortest counts */
    TRIAL_NS = 2000000, /* a frequency that is off by far shows within */
};

int64_t syn_verbs_probation_ns = INT64_C(600000000000);

static int64_t read_ns(clockid_t id)
{
    struct timespec now;
    clock_gettime(id, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

/* All three clocks at one instant; whether they could be read. */
static int read_all(const struct syn_verbs_port *port, struct syn_tick_reading *out,
                    int64_t *real_ns)
{
    out->doubt_ns = INT64_MAX;
    for (int i = 0; i < TRIES; i++) {
        struct ibv_values_ex values = {.comp_mask = IBV_VALUES_MASK_RAW_CLOCK};
        int64_t raw_ns = read_ns(CLOCK_MONOTONIC_RAW), before_ns = read_ns(CLOCK_REALTIME);
        if (ibv_query_rt_values_ex(port->context, &values) ||
            !(values.comp_mask & IBV_VALUES_MASK_RAW_CLOCK))
            return 0;
        int64_t real_took_ns = read_ns(CLOCK_REALTIME) - before_ns;
        int64_t took_ns = read_ns(CLOCK_MONOTONIC_RAW) - raw_ns;
        /* chronyd slews by up to 8.3 % */
        int set_meanwhile = real_took_ns < 0 || real_took_ns > took_ns + took_ns / 8;
        if (set_meanwhile || took_ns / 2 + 1 >= out->doubt_ns)
            continue;
        *real_ns = before_ns + real_took_ns / 2;
        *out = (struct syn_tick_reading){
            .ticks = (uint64_t)values.raw_clock.tv_sec * 1000000000 +
                     (uint64_t)values.raw_clock.tv_nsec,
            .raw_ns = raw_ns + took_ns / 2,
            .doubt_ns = took_ns / 2 + 1,
        };
    }
    return out->doubt_ns != INT64_MAX;
}

static int cannot_be_read(struct syn_verbs_clock *clock)
{
    snprintf(clock->fault, sizeof clock->fault, "its clock cannot be read");
    clock->began_raw_ns = read_ns(CLOCK_MONOTONIC_RAW);
    return 0;
}

static void begin(struct syn_verbs_clock *clock, uint64_t mask, uint64_t khz, int64_t real_ns,
                  const struct syn_tick_reading *first)
{
    syn_ticks_begin(&clock->ticks, mask, khz, real_ns, first);
    clock->began_raw_ns = first->raw_ns;
}

/* A clock of which nothing is known yet runs as it says. */
static int passes_trial(const struct syn_verbs_port *port, struct syn_verbs_clock *clock)
{
    struct syn_tick_reading reading;
    int64_t real_ns;
    nanosleep(&(struct timespec){0, TRIAL_NS}, NULL);
    if (!read_all(port, &reading, &real_ns))
        return cannot_be_read(clock);
    return syn_ticks_take(&clock->ticks, &reading, clock->fault);
}

static int is_steady(const struct syn_verbs_clock *clock)
{
    return clock->ticks.newest.raw_ns - clock->began_raw_ns >= syn_verbs_probation_ns;
}

void syn_verbs_clock_open(struct syn_verbs_port *port)
{
    struct syn_verbs_clock *clock = port->clock;
    struct verbs_context *extended = verbs_get_ctx_op(port->context, query_device_ex);
    struct ibv_device_attr_ex attr = {.comp_mask = 0};
    clock->in_force = 0;
    if (extended == NULL || extended->query_device_ex(port->context, NULL, &attr, sizeof attr) ||
        attr.completion_timestamp_mask == 0) {
        *clock = (struct syn_verbs_clock){.in_force = 0};
        return;
    }
    uint64_t mask = attr.completion_timestamp_mask, khz = attr.hca_core_clock;
    struct syn_tick_reading reading;
    int64_t real_ns;
    int known = clock->ticks.mask == mask && clock->ticks.khz == (int64_t)khz &&
                strcmp(clock->device, port->name) == 0;
    if (!known)
        *clock = (struct syn_verbs_clock){.in_force = 0};
    snprintf(clock->device, sizeof clock->device, "%s", port->name);
    if (!syn_ticks_usable(mask, khz, clock->fault))
        return;
    if (!read_all(port, &reading, &real_ns)) {
        cannot_be_read(clock);
        return;
    }
    /* Its time goes on, unless the device was reset while it was closed. */
    char fault[SYN_TICKS_FAULT_BYTES];
    if (!known || !syn_ticks_take(&clock->ticks, &reading, fault)) {
        begin(clock, mask, khz, real_ns, &reading);
        if (!passes_trial(port, clock))
            return;
    }
    clock->in_force = clock->fault[0] == '\0' || is_steady(clock);
    if (clock->in_force)
        clock->fault[0] = '\0';
}

int syn_verbs_clock_read(const struct syn_verbs_port *port, struct syn_tick_reading *reading,
                         int64_t *real_ns)
{
    return port->clock->ticks.mask && read_all(port, reading, real_ns);
}

static int stamps(const struct syn_verbs_clock *clock)
{
    return clock->in_force && clock->fault[0] == '\0';
}

void syn_verbs_clock_take(struct syn_verbs_clock *clock, const struct syn_tick_reading *reading,
                          int64_t real_ns, struct syn_verbs_clock_reading *out)
{
    char again[SYN_TICKS_FAULT_BYTES]; /* what was first wrong says most */
    char *fault = clock->fault[0] ? again : clock->fault;
    if (reading == NULL && clock->ticks.mask)
        (void)cannot_be_read(clock);
    else if (reading != NULL && !syn_ticks_take(&clock->ticks, reading, fault))
        begin(clock, clock->ticks.mask, (uint64_t)clock->ticks.khz, real_ns, reading);
    *out = (struct syn_verbs_clock_reading){0};
    if (stamps(clock))
        *out = (struct syn_verbs_clock_reading){
            .epoch_ns = clock->ticks.anchor_ns,
            .host_ns = real_ns,
            .device_ns = syn_ticks_newest_ns(&clock->ticks),
            .uncertainty_ns = clock->ticks.newest.doubt_ns,
        };
    _Static_assert(sizeof out->fault == sizeof clock->fault, "a fault fits");
    memcpy(out->fault, clock->fault, sizeof out->fault);
}

int syn_verbs_clock_in_force(const struct syn_verbs_clock *clock)
{
    return clock->in_force;
}

int64_t syn_verbs_clock_stamp_ns(const struct syn_verbs_clock *clock, uint64_t ticks)
{
    if (!stamps(clock))
        return 0;
    return syn_ticks_stamp_ns(&clock->ticks, ticks, read_ns(CLOCK_MONOTONIC_RAW));
}

const char *syn_verbs_clock_change(const struct syn_verbs_clock *clock)
{
    if (clock->in_force)
        return clock->fault[0] ? clock->fault : NULL;
    return clock->fault[0] && clock->ticks.mask && is_steady(clock) ? "its clock is whole again"
                                                                    : NULL;
}
