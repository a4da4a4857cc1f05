/* Which paths are watched, and what the thread that asked for it sees of them; watch.c watches. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "engine.h"

enum {
    MIN_WATCH_INTERVAL_NS = 1000000,
    WATCH_TAG_SHIFT = 10,
};
_Static_assert(SYN_MAX_WATCHES == 1 << WATCH_TAG_SHIFT, "a wire id holds the place of its watch");

int syn_watches_open(struct syn_watches *watches)
{
    watches->event_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    watches->phase_ns = (int64_t)((uint64_t)syn_clock_read(CLOCK_MONOTONIC) * 2654435761u >> 32);
    return watches->event_fd >= 0;
}

void syn_watches_close(struct syn_watches *watches)
{
    for (size_t i = 0; i < watches->count; i++)
        free(watches->set[i]);
    if (watches->event_fd >= 0)
        close(watches->event_fd);
}

void syn_watches_want_sockets(struct syn_watches *watches)
{
    for (size_t i = 0; i < watches->count; i++)
        watches->set[i]->socket->wanted = 1;
}

/* --- the set -------------------------------------------------------------------------------- */

static struct syn_watch *find_watch(const struct syn_watches *watches, uint32_t flow_id)
{
    for (size_t i = 0; i < watches->count; i++)
        if (watches->set[i]->config.flow_id == flow_id)
            return watches->set[i];
    return NULL;
}

/* The same but for its interval. */
static struct syn_watch *known_watch(const struct syn_watches *watches,
                                     const struct syn_probe_flow *config)
{
    struct syn_watch *watch = find_watch(watches, config->flow_id);
    if (watch == NULL)
        return NULL;
    struct syn_probe_flow before = watch->config;
    before.interval_ns = config->interval_ns;
    return memcmp(&before, config, sizeof before) == 0 ? watch : NULL;
}

/* A name on the wire that no flow of the plan has; its low bits are the place. */
static void name_watch(struct syn_probe_engine *engine, struct syn_watch *watch, uint32_t slot)
{
    do
        watch->wire_id = ++engine->watches.tag << WATCH_TAG_SHIFT | slot;
    while (syn_find_flow(engine, watch->wire_id) != NULL);
    watch->epoch = syn_new_epoch(engine);
    engine->watches.slots[slot] = watch;
}

void syn_watches_rename(struct syn_probe_engine *engine)
{
    for (size_t i = 0; i < engine->watches.count; i++) {
        struct syn_watch *watch = engine->watches.set[i];
        if (syn_find_flow(engine, watch->wire_id) != NULL)
            name_watch(engine, watch, watch->wire_id % SYN_MAX_WATCHES);
    }
}

static uint32_t free_slot(const struct syn_watches *watches)
{
    uint32_t slot = 0;
    while (watches->slots[slot] != NULL)
        slot++;
    return slot;
}

static struct syn_watch *new_watch(struct syn_probe_engine *engine,
                                   const struct syn_probe_flow *config, char *message)
{
    struct syn_socket *socket = syn_flow_socket(engine, config, message);
    struct syn_watch *watch = socket ? calloc(1, sizeof *watch) : NULL;
    if (watch == NULL)
        return NULL;
    int64_t now_ns = syn_clock_read(CLOCK_MONOTONIC);
    watch->config = *config;
    watch->socket = socket;
    watch->heard_ns = now_ns;
    watch->destination_length =
        syn_sockaddr(&watch->destination, config->family, config->dst_address, config->dst_port,
                     engine->nics[config->nic].ifindex);
    syn_liveness_open(&watch->live, config->interval_ns, engine->watches.awake_ns);
    return watch;
}

static int by_socket(const void *a, const void *b)
{
    const struct syn_watch *left = *(struct syn_watch *const *)a;
    const struct syn_watch *right = *(struct syn_watch *const *)b;
    uint32_t left_key = left->config.nic << 16 | left->config.src_port;
    uint32_t right_key = right->config.nic << 16 | right->config.src_port;
    return (left_key > right_key) - (left_key < right_key);
}

static int is_listed(const struct syn_probe_flow *flows, size_t count, uint32_t flow_id)
{
    for (size_t i = 0; i < count; i++)
        if (flows[i].flow_id == flow_id)
            return 1;
    return 0;
}

static int watch_fits(const struct syn_probe_engine *engine, const struct syn_probe_flow *flows,
                      size_t at, char *message)
{
    if (!syn_flow_fits(engine, &flows[at], message))
        return 0;
    const char *wrong = NULL;
    if (flows[at].interval_ns < MIN_WATCH_INTERVAL_NS)
        wrong = "its interval is below 1 ms";
    else if (is_listed(flows, at, flows[at].flow_id))
        wrong = "it is listed twice";
    if (wrong != NULL)
        snprintf(message, SYN_MESSAGE_BYTES, "watched flow %u: %s", flows[at].flow_id, wrong);
    return wrong == NULL;
}

/* Watches kept or made for each of `flows`, or none made and a sentence. */
static int make_set(struct syn_probe_engine *engine, const struct syn_probe_flow *flows,
                    size_t count, struct syn_watch **set, char *message)
{
    for (size_t i = 0; i < count; i++) {
        int fits = watch_fits(engine, flows, i, message);
        set[i] = fits ? known_watch(&engine->watches, &flows[i]) : NULL;
        if (fits && set[i] == NULL)
            set[i] = new_watch(engine, &flows[i], message);
        else if (fits)
            (void)syn_flow_socket(engine, &flows[i], message); /* its port may be free by now */
        if (set[i] != NULL)
            continue;
        while (i-- > 0)
            if (known_watch(&engine->watches, &flows[i]) == NULL)
                free(set[i]);
        return fits ? SYN_ERROR_MISSING : SYN_ERROR_USAGE;
    }
    return SYN_OK;
}

static struct syn_pair_silence known_silence(const struct syn_watch_pair *pairs, size_t count,
                                  const struct syn_watch *watch, int64_t awake_ns)
{
    struct syn_pair_silence silence;
    for (size_t i = 0; i < count; i++)
        if (pairs[i].nic == watch->config.nic && pairs[i].dst_nic_id == watch->config.dst_nic_id)
            return pairs[i].silence;
    syn_pair_silence_open(&silence, awake_ns);
    return silence;
}

/* Which pair each watch is of, and its turn there; what is known of pairs that stay is kept. */
static void form_pairs(struct syn_watches *watches, struct syn_watch_pair *before)
{
    size_t old_count = watches->pair_count;
    memcpy(before, watches->pairs, old_count * sizeof *before);
    watches->pair_count = 0;
    for (size_t i = 0; i < watches->count; i++) {
        struct syn_watch *watch = watches->set[i];
        size_t at = 0;
        while (at < watches->pair_count &&
               (watches->pairs[at].nic != watch->config.nic ||
                watches->pairs[at].dst_nic_id != watch->config.dst_nic_id))
            at++;
        if (at == watches->pair_count)
            watches->pairs[watches->pair_count++] = (struct syn_watch_pair){
                watch->config.nic, watch->config.dst_nic_id, 0,
                known_silence(before, old_count, watch, watches->awake_ns)};
        watch->pair = (uint32_t)at;
        watch->rank = watches->pairs[at].flows++;
    }
}

static void adopt_set(struct syn_probe_engine *engine, const struct syn_probe_flow *flows,
                      size_t count, struct syn_watch **set, struct syn_watch_pair *before)
{
    struct syn_watches *watches = &engine->watches;
    for (size_t i = 0; i < watches->count; i++) {
        struct syn_watch *old = watches->set[i];
        int kept = 0;
        for (size_t j = 0; j < count && !kept; j++)
            kept = set[j] == old;
        if (kept)
            continue;
        watches->slots[old->wire_id % SYN_MAX_WATCHES] = NULL;
        free(old);
    }
    for (size_t i = 0; i < count; i++) {
        set[i]->config.interval_ns = flows[i].interval_ns;
        syn_liveness_pace(&set[i]->live, flows[i].interval_ns);
        set[i]->due_ns = 0; /* now; afterwards in step with the others */
        if (set[i]->epoch == 0)
            name_watch(engine, set[i], free_slot(watches));
    }
    memcpy(watches->set, set, count * sizeof *set);
    qsort(watches->set, count, sizeof *watches->set, by_socket);
    watches->count = count;
    form_pairs(watches, before);
    watches->next_ns = 0;
}

int syn_probe_set_watches(struct syn_probe_engine *engine, const struct syn_probe_flow *flows,
                          size_t count, char *message)
{
    if (count > SYN_MAX_WATCHES) {
        snprintf(message, SYN_MESSAGE_BYTES, "at most %d paths can be watched", SYN_MAX_WATCHES);
        return SYN_ERROR_USAGE;
    }
    if (count > 0 && engine->options.plane != SYN_PLANE_UDP) {
        snprintf(message, SYN_MESSAGE_BYTES, "only paths over UDP can be watched");
        return SYN_ERROR_USAGE;
    }
    snprintf(message, SYN_MESSAGE_BYTES, "out of memory for watched paths");
    struct syn_watch **set = calloc(count + 1, sizeof *set);
    struct syn_watch_pair *before = calloc(SYN_MAX_WATCHES, sizeof *before);
    if (set == NULL || before == NULL) {
        free(set);
        free(before);
        return SYN_ERROR_MISSING;
    }
    syn_engine_visit(engine);
    int failed = make_set(engine, flows, count, set, message);
    if (!failed)
        adopt_set(engine, flows, count, set, before);
    syn_keep_wanted_sockets(engine);
    syn_engine_leave(engine);
    syn_engine_wake(engine);
    free(before);
    free(set);
    return failed;
}

/* --- what the asking thread sees ------------------------------------------------------------ */

int syn_probe_liveness_fd(const struct syn_probe_engine *engine)
{
    return engine->watches.event_fd;
}

size_t syn_probe_take_liveness(struct syn_probe_engine *engine, struct syn_liveness_event *out,
                               size_t room)
{
    struct syn_watches *watches = &engine->watches;
    syn_engine_visit(engine);
    uint64_t rung;
    (void)!read(watches->event_fd, &rung, sizeof rung);
    size_t count = 0;
    for (; count < room && watches->taken != watches->reported; count++)
        out[count] = watches->events[watches->taken++ % SYN_LIVENESS_EVENTS];
    syn_engine_leave(engine);
    return count;
}

size_t syn_probe_read_watches(struct syn_probe_engine *engine, struct syn_watch_status *out,
                              size_t room)
{
    const struct syn_watches *watches = &engine->watches;
    syn_engine_visit(engine);
    size_t count = watches->count;
    for (size_t i = 0; i < count && i < room; i++) {
        const struct syn_watch *watch = watches->set[i];
        const struct syn_pair_silence *silence = &watches->pairs[watch->pair].silence;
        out[i] = (struct syn_watch_status){
            .flow_id = watch->config.flow_id,
            .life = watch->live.life,
            .heard_ns = watch->heard_ns,
            .rtt_ns = watch->live.rtt_ns,
            .slack_ns = syn_liveness_slack_ns(&watch->live, watches->awake_ns),
            .suspect = (uint32_t)syn_pair_silence_bursting(silence),
            .unresponsive = (uint32_t)silence->reported,
            .steady_ns = silence->gap_ns != 0
                             ? watches->seen_ns - (watches->awake_ns - silence->steady_ns)
                             : 0,
            .gap_ns = silence->gap_ns,
        };
    }
    syn_engine_leave(engine);
    return count;
}
