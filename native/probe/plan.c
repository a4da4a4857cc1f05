/* The set of flows: checked and opened whole, then adopted at once or dropped. */
#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine.h"

enum {
    MAX_DSCP = 63,
    MAX_LABEL = 0xfffff,
    MIN_INTERVAL_NS = 100000, /* 10,000 pairs/s on one path is beyond any use */
};

/* --- sockets -------------------------------------------------------------------------------- */

static struct syn_socket *find_socket(struct syn_probe_engine *engine,
                                      const struct syn_probe_flow *flow)
{
    for (size_t i = 0; i < engine->socket_count; i++) {
        struct syn_socket *at = engine->sockets[i];
        if (!at->reflector && at->nic == flow->nic && at->port == flow->src_port)
            return at;
    }
    return NULL;
}

static void close_unwanted(struct syn_probe_engine *engine)
{
    size_t kept = 0;
    for (size_t i = 0; i < engine->socket_count; i++) {
        struct syn_socket *at = engine->sockets[i];
        if (at->wanted || at->reflector) {
            engine->sockets[kept++] = at;
            continue;
        }
        syn_close_socket(at);
        free(at);
        engine->generation++;
    }
    engine->socket_count = kept;
}

void syn_keep_wanted_sockets(struct syn_probe_engine *engine)
{
    for (size_t i = 0; i < engine->socket_count; i++)
        engine->sockets[i]->wanted = 0;
    for (size_t i = 0; i < engine->flow_count; i++)
        engine->flows[i]->socket->wanted = 1;
    syn_watches_want_sockets(&engine->watches);
    close_unwanted(engine);
}

/* --- flows ---------------------------------------------------------------------------------- */

struct syn_engine_flow *syn_find_flow(const struct syn_probe_engine *engine, uint32_t flow_id)
{
    if (engine->flow_table == NULL)
        return NULL;
    for (size_t i = syn_flow_hash(flow_id);; i++) {
        struct syn_engine_flow *at = engine->flow_table[i & engine->flow_table_mask];
        if (at == NULL || at->flow.config.flow_id == flow_id)
            return at;
    }
}

struct plan {
    struct syn_engine_flow **flows;
    struct syn_engine_flow **table;
    size_t mask;
    size_t count;
};

static int plan_open(struct plan *plan, size_t count)
{
    size_t slots = 4;
    while (slots < 2 * count)
        slots *= 2;
    plan->mask = slots - 1;
    plan->flows = calloc(count + 1, sizeof *plan->flows);
    plan->table = calloc(slots, sizeof *plan->table);
    return plan->flows != NULL && plan->table != NULL;
}

/* 0 if the id is taken. */
static int plan_add(struct plan *plan, struct syn_engine_flow *flow)
{
    size_t at = syn_flow_hash(flow->flow.config.flow_id);
    for (; plan->table[at & plan->mask] != NULL; at++)
        if (plan->table[at & plan->mask]->flow.config.flow_id == flow->flow.config.flow_id)
            return 0;
    plan->table[at & plan->mask] = flow;
    plan->flows[plan->count++] = flow;
    return 1;
}

static int is_kept(const struct syn_probe_engine *engine, const struct syn_engine_flow *flow)
{
    return syn_find_flow(engine, flow->flow.config.flow_id) == flow;
}

void syn_free_flow(struct syn_engine_flow *flow)
{
    syn_flow_close(&flow->flow);
    free(flow);
}

int syn_flow_fits(const struct syn_probe_engine *engine, const struct syn_probe_flow *flow,
                  char *message)
{
    const char *wrong = NULL;
    if (flow->nic >= engine->nic_count)
        wrong = "its source is none of this engine's NICs";
    else if (flow->family != engine->nics[flow->nic].config.family &&
             engine->nics[flow->nic].config.family != 0)
        wrong = "source and destination are of different IP versions";
    else if (flow->interval_ns < MIN_INTERVAL_NS)
        wrong = "its interval is below 100 us";
    else if (flow->dscp > MAX_DSCP || flow->flow_label > MAX_LABEL)
        wrong = "its DSCP is above 63 or its flow label above 20 bits";
    else if (flow->src_port == 0 || flow->dst_port == 0)
        wrong = "a port is 0";
    if (wrong != NULL)
        snprintf(message, SYN_MESSAGE_BYTES, "flow %u: %s", flow->flow_id, wrong);
    return wrong == NULL;
}

uint64_t syn_new_epoch(struct syn_probe_engine *engine)
{
    int64_t real_ns = syn_clock_read(CLOCK_REALTIME);
    uint64_t now = (uint64_t)(engine->clock ? syn_clock_map(engine->clock, real_ns) : real_ns);
    engine->last_epoch = now > engine->last_epoch ? now : engine->last_epoch + 1;
    return engine->last_epoch;
}

struct syn_socket *syn_flow_socket(struct syn_probe_engine *engine,
                                   const struct syn_probe_flow *flow, char *message)
{
    struct syn_socket *socket = find_socket(engine, flow);
    if (socket == NULL)
        socket = syn_add_socket(engine, flow->nic, flow->src_port, 0, message);
    if (socket != NULL && socket->fd < 0 && engine->nics[flow->nic].attached)
        (void)syn_reopen_socket(engine, socket, message);
    return socket;
}

static struct syn_engine_flow *new_flow(struct syn_probe_engine *engine,
                                        const struct syn_probe_flow *config, char *message)
{
    snprintf(message, SYN_MESSAGE_BYTES, "NIC %s is not attached",
             engine->nics[config->nic].config.ifname);
    struct syn_socket *socket = syn_flow_socket(engine, config, message);
    if (socket == NULL || socket->fd < 0)
        return NULL;
    struct syn_engine_flow *flow = calloc(1, sizeof *flow);
    if (flow == NULL ||
        !syn_flow_open(&flow->flow, config, syn_new_epoch(engine), engine->options.timeout_ns)) {
        free(flow);
        snprintf(message, SYN_MESSAGE_BYTES, "out of memory for probe flows");
        return NULL;
    }
    const struct syn_nic *nic = &engine->nics[config->nic];
    flow->socket = socket;
    flow->flow.nic_id = nic->config.nic_id;
    flow->flow.hardware = nic->status.hardware;
    flow->flow.due_ns = syn_clock_read(CLOCK_MONOTONIC) + syn_phase_ns(config);
    flow->destination_length = syn_sockaddr(&flow->destination, config->family,
                                            config->dst_address, config->dst_port, nic->ifindex);
    return flow;
}

static struct syn_engine_flow *known_flow(const struct syn_probe_engine *engine,
                                          const struct syn_probe_flow *config)
{
    struct syn_engine_flow *flow = syn_find_flow(engine, config->flow_id);
    return flow != NULL && memcmp(&flow->flow.config, config, sizeof *config) == 0 ? flow : NULL;
}

static int plan_flow(struct syn_probe_engine *engine, struct plan *plan,
                     const struct syn_probe_flow *config, char *message)
{
    if (!syn_flow_fits(engine, config, message))
        return SYN_ERROR_USAGE;
    struct syn_engine_flow *flow = known_flow(engine, config);
    int known = flow != NULL;
    if (!known)
        flow = new_flow(engine, config, message);
    if (flow == NULL)
        return SYN_ERROR_MISSING;
    if (plan_add(plan, flow))
        return SYN_OK;
    if (!known)
        syn_free_flow(flow);
    snprintf(message, SYN_MESSAGE_BYTES, "flow %u is listed twice", config->flow_id);
    return SYN_ERROR_USAGE;
}

static void plan_drop(struct syn_probe_engine *engine, struct plan *plan)
{
    for (size_t i = 0; i < plan->count; i++)
        if (!is_kept(engine, plan->flows[i]))
            syn_free_flow(plan->flows[i]);
    free(plan->flows);
    free(plan->table);
    syn_keep_wanted_sockets(engine);
}

static void plan_adopt(struct syn_probe_engine *engine, struct plan *plan)
{
    struct syn_engine_flow **old = engine->flows;
    size_t old_count = engine->flow_count;
    free(engine->flow_table);
    engine->flows = plan->flows;
    engine->flow_table = plan->table;
    engine->flow_table_mask = plan->mask;
    engine->flow_count = plan->count;
    for (size_t i = 0; i < old_count; i++)
        if (!is_kept(engine, old[i]))
            syn_free_flow(old[i]);
    free(old);
    syn_keep_wanted_sockets(engine);
    syn_watches_rename(engine);
    syn_heap_build(engine);
}

int syn_probe_set_flows(struct syn_probe_engine *engine, const struct syn_probe_flow *flows,
                        size_t count, char *message)
{
    struct plan plan = {0};
    snprintf(message, SYN_MESSAGE_BYTES, "out of memory for probe flows");
    int failed = plan_open(&plan, count) ? SYN_OK : SYN_ERROR_MISSING;
    syn_engine_visit(engine);
    for (size_t i = 0; i < count && !failed; i++)
        failed = plan_flow(engine, &plan, &flows[i], message);
    if (failed)
        plan_drop(engine, &plan);
    else
        plan_adopt(engine, &plan);
    syn_engine_leave(engine);
    syn_engine_wake(engine);
    return failed;
}

