/* Opening and closing an engine, its keys and its flows. */
#include <arpa/inet.h>
#include <errno.h>
#include <net/if.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "engine.h"

enum {
    MESSAGE_BYTES = 256,
    THREAD_STACK_BYTES = 256 << 10,
    MAX_DSCP = 63,
    MAX_LABEL = 0xfffff,
    MIN_INTERVAL_NS = 100000, /* 10,000 pairs/s on one path is beyond any use */
};

void syn_engine_visit(struct syn_probe_engine *engine)
{
    atomic_fetch_add(&engine->visitors, 1);
    pthread_mutex_lock(&engine->lock);
    atomic_fetch_sub(&engine->visitors, 1);
}

void syn_engine_leave(struct syn_probe_engine *engine)
{
    pthread_mutex_unlock(&engine->lock);
}

static void wake(struct syn_probe_engine *engine)
{
    uint64_t one = 1;
    (void)!write(engine->wake_fd, &one, sizeof one);
}

/* --- sockets -------------------------------------------------------------------------------- */

static struct syn_socket *open_socket(struct syn_probe_engine *engine, uint32_t nic, uint16_t port,
                                      uint8_t dscp, int reflector, char *message)
{
    struct syn_socket **more =
        realloc(engine->sockets, (engine->socket_count + 1) * sizeof *engine->sockets);
    struct syn_socket *added = calloc(1, sizeof *added);
    if (more != NULL)
        engine->sockets = more;
    if (more == NULL || added == NULL) {
        free(added);
        snprintf(message, MESSAGE_BYTES, "out of memory for probe sockets");
        return NULL;
    }
    *added = (struct syn_socket){
        .nic = nic, .port = port, .dscp = dscp, .reflector = reflector, .wanted = 1};
    added->fd = syn_probe_socket(&engine->nics[nic].config, port, dscp,
                                 engine->nics[nic].status.hardware, message);
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = added};
    if (added->fd < 0 || epoll_ctl(engine->epoll_fd, EPOLL_CTL_ADD, added->fd, &event) < 0) {
        free(added);
        return NULL;
    }
    engine->sockets[engine->socket_count++] = added;
    return added;
}

static struct syn_socket *find_socket(struct syn_probe_engine *engine,
                                      const struct syn_probe_flow *flow)
{
    for (size_t i = 0; i < engine->socket_count; i++) {
        struct syn_socket *at = engine->sockets[i];
        if (!at->reflector && at->nic == flow->nic && at->port == flow->src_port &&
            at->dscp == flow->dscp)
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
        close(at->fd);
        free(at);
        engine->generation++;
    }
    engine->socket_count = kept;
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

static void free_flow(struct syn_engine_flow *flow)
{
    syn_flow_close(&flow->flow);
    free(flow);
}

static int flow_fits(const struct syn_probe_engine *engine, const struct syn_probe_flow *flow,
                     char *message)
{
    const char *wrong = NULL;
    if (flow->nic >= engine->nic_count)
        wrong = "its source is none of this engine's NICs";
    else if (flow->family != engine->nics[flow->nic].config.family)
        wrong = "source and destination are of different IP versions";
    else if (flow->interval_ns < MIN_INTERVAL_NS)
        wrong = "its interval is below 100 us";
    else if (flow->dscp > MAX_DSCP || flow->flow_label > MAX_LABEL)
        wrong = "its DSCP is above 63 or its flow label above 20 bits";
    else if (flow->src_port == 0 || flow->dst_port == 0)
        wrong = "a port is 0";
    if (wrong != NULL)
        snprintf(message, MESSAGE_BYTES, "flow %u: %s", flow->flow_id, wrong);
    return wrong == NULL;
}

static uint64_t new_epoch(struct syn_probe_engine *engine)
{
    int64_t real_ns = syn_clock_read(CLOCK_REALTIME);
    uint64_t now = (uint64_t)(engine->clock ? syn_clock_map(engine->clock, real_ns) : real_ns);
    engine->last_epoch = now > engine->last_epoch ? now : engine->last_epoch + 1;
    return engine->last_epoch;
}

static struct syn_engine_flow *new_flow(struct syn_probe_engine *engine,
                                        const struct syn_probe_flow *config, char *message)
{
    struct syn_socket *socket = find_socket(engine, config);
    if (socket == NULL)
        socket = open_socket(engine, config->nic, config->src_port, config->dscp, 0, message);
    if (socket == NULL)
        return NULL;
    struct syn_engine_flow *flow = calloc(1, sizeof *flow);
    if (flow == NULL ||
        !syn_flow_open(&flow->flow, config, new_epoch(engine), engine->options.timeout_ns)) {
        free(flow);
        snprintf(message, MESSAGE_BYTES, "out of memory for probe flows");
        return NULL;
    }
    const struct syn_nic *nic = &engine->nics[config->nic];
    flow->socket = socket;
    flow->flow.nic_id = nic->config.nic_id;
    flow->flow.hardware = nic->status.hardware;
    flow->flow.due_ns = syn_clock_read(CLOCK_MONOTONIC) + syn_phase_ns(config);
    flow->destination_length = syn_sockaddr(&flow->destination, config->family,
                                            config->dst_address, config->dst_port, nic->ifindex);
    if (config->family == 6)
        ((struct sockaddr_in6 *)&flow->destination)->sin6_flowinfo = htonl(config->flow_label);
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
    if (!flow_fits(engine, config, message))
        return SYN_ERROR_USAGE;
    struct syn_engine_flow *flow = known_flow(engine, config);
    int known = flow != NULL;
    if (!known)
        flow = new_flow(engine, config, message);
    if (flow == NULL)
        return SYN_ERROR_MISSING;
    flow->socket->wanted = 1;
    if (plan_add(plan, flow))
        return SYN_OK;
    if (!known)
        free_flow(flow);
    snprintf(message, MESSAGE_BYTES, "flow %u is listed twice", config->flow_id);
    return SYN_ERROR_USAGE;
}

static void plan_drop(struct syn_probe_engine *engine, struct plan *plan)
{
    for (size_t i = 0; i < plan->count; i++)
        if (!is_kept(engine, plan->flows[i]))
            free_flow(plan->flows[i]);
    free(plan->flows);
    free(plan->table);
    for (size_t i = 0; i < engine->socket_count; i++)
        engine->sockets[i]->wanted = 0;
    for (size_t i = 0; i < engine->flow_count; i++)
        engine->flows[i]->socket->wanted = 1;
    close_unwanted(engine);
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
            free_flow(old[i]);
    free(old);
    close_unwanted(engine);
    syn_heap_build(engine);
}

int syn_probe_set_flows(struct syn_probe_engine *engine, const struct syn_probe_flow *flows,
                        size_t count, char *message)
{
    struct plan plan = {0};
    snprintf(message, MESSAGE_BYTES, "out of memory for probe flows");
    int failed = plan_open(&plan, count) ? SYN_OK : SYN_ERROR_MISSING;
    syn_engine_visit(engine);
    for (size_t i = 0; i < engine->socket_count; i++)
        engine->sockets[i]->wanted = 0;
    for (size_t i = 0; i < count && !failed; i++)
        failed = plan_flow(engine, &plan, &flows[i], message);
    if (failed)
        plan_drop(engine, &plan);
    else
        plan_adopt(engine, &plan);
    syn_engine_leave(engine);
    wake(engine);
    return failed;
}

void syn_probe_set_keys(struct syn_probe_engine *engine, uint32_t current_id,
                        const uint8_t *current, uint32_t previous_id, const uint8_t *previous)
{
    syn_engine_visit(engine);
    if (engine->key_count == 0)
        syn_begin_sending(engine);
    engine->keys[0].id = current_id;
    memcpy(engine->keys[0].bytes, current, sizeof engine->keys[0].bytes);
    engine->key_count = 1;
    if (previous != NULL) {
        engine->keys[1].id = previous_id;
        memcpy(engine->keys[1].bytes, previous, sizeof engine->keys[1].bytes);
        engine->key_count = 2;
    }
    syn_engine_leave(engine);
    wake(engine);
}

/* --- the engine ----------------------------------------------------------------------------- */

static int allocate(struct syn_probe_engine *engine, size_t nic_count)
{
    engine->nics = calloc(nic_count + 1, sizeof *engine->nics);
    engine->heard = calloc(SYN_HEARD_ROWS, sizeof *engine->heard);
    engine->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    engine->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = NULL};
    return engine->nics != NULL && engine->heard != NULL && engine->epoll_fd >= 0 &&
           engine->wake_fd >= 0 && syn_sessions_open(&engine->sessions) &&
           syn_ring_open(&engine->ring, engine->options.ring_records) &&
           epoll_ctl(engine->epoll_fd, EPOLL_CTL_ADD, engine->wake_fd, &event) == 0;
}

static int open_nics(struct syn_probe_engine *engine, const struct syn_probe_nic *nics,
                     size_t count, char *message)
{
    for (size_t i = 0; i < count; i++) {
        struct syn_nic *nic = &engine->nics[i];
        nic->config = nics[i];
        nic->config.ifname[sizeof nic->config.ifname - 1] = '\0';
        nic->ifindex = if_nametoindex(nic->config.ifname);
        syn_stamps_prepare(&nic->config, &nic->status);
        engine->nic_count = i + 1;
        if (open_socket(engine, (uint32_t)i, nics[i].port, 0, 1, message) == NULL)
            return 0;
    }
    return 1;
}

static int options_fit(const struct syn_probe_options *options)
{
    uint32_t records = options->ring_records;
    return options->timeout_ns > 0 && options->min_gap_ns >= 0 && options->stall_ns > 0 &&
           records > 0 && (records & (records - 1)) == 0;
}

struct syn_probe_engine *syn_probe_open(const struct syn_probe_nic *nics, size_t count,
                                        const struct syn_probe_options *options,
                                        struct syn_clock *clock, int *error, char *message)
{
    *error = SYN_ERROR_USAGE;
    snprintf(message, MESSAGE_BYTES, "engine options out of range");
    if (!options_fit(options))
        return NULL;
    *error = SYN_ERROR_MISSING;
    snprintf(message, MESSAGE_BYTES, "out of memory or file descriptors for the probe engine");
    struct syn_probe_engine *engine = calloc(1, sizeof *engine);
    if (engine == NULL)
        return NULL;
    engine->options = *options;
    engine->clock = clock;
    engine->epoll_fd = engine->wake_fd = -1;
    pthread_mutex_init(&engine->lock, NULL);
    if (!allocate(engine, count) || !open_nics(engine, nics, count, message)) {
        syn_probe_close(engine);
        return NULL;
    }
    *error = SYN_OK;
    return engine;
}

int syn_probe_start(struct syn_probe_engine *engine, char *message)
{
    if (engine->running)
        return SYN_OK;
    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    pthread_attr_setstacksize(&attributes, THREAD_STACK_BYTES);
    int failed = pthread_create(&engine->thread, &attributes, syn_engine_run, engine);
    pthread_attr_destroy(&attributes);
    if (failed) {
        snprintf(message, MESSAGE_BYTES, "no thread for the probe engine: %s", strerror(failed));
        return SYN_ERROR_MISSING;
    }
    engine->running = 1;
    return SYN_OK;
}

static void join(struct syn_probe_engine *engine)
{
    if (!engine->running)
        return;
    syn_engine_visit(engine);
    engine->stop = 1;
    syn_engine_leave(engine);
    wake(engine);
    pthread_join(engine->thread, NULL);
}

void syn_probe_close(struct syn_probe_engine *engine)
{
    if (engine == NULL)
        return;
    join(engine);
    for (size_t i = 0; i < engine->flow_count; i++)
        free_flow(engine->flows[i]);
    for (size_t i = 0; i < engine->socket_count; i++) {
        close(engine->sockets[i]->fd);
        free(engine->sockets[i]);
    }
    if (engine->epoll_fd >= 0)
        close(engine->epoll_fd);
    if (engine->wake_fd >= 0)
        close(engine->wake_fd);
    syn_sessions_close(&engine->sessions);
    free(engine->flows);
    free(engine->flow_table);
    free(engine->sockets);
    free(engine->nics);
    free(engine->heard);
    free(engine->ring.records);
    pthread_mutex_destroy(&engine->lock);
    free(engine);
}
