/* Liveness of watched paths: their own single probes in addition to the plan's pairs, no records.
 *
 * The flows of a pair of NICs take turns, so that the pair is asked as evenly as it can be; all pairs
 * at the same instants, so that the thread wakes once for all of them. Their packets carry no
 * transmit stamp: it would cost as much as the packet. */
#include <unistd.h>

#include "engine.h"
#include "order.h"

enum {
    TOGETHER_NS = 200000,         /* what falls due so soon is sent now */
    AWAKE_TOLERANCE_NS = 1000000, /* lateness of a wake-up that is still counted as being awake */
    TURN_NS = 2000000,            /* a pair's turns are no shorter: each is a wake-up */
    LOOK_AGAIN_NS = 1000000,      /* at a silent pair whose probes have not had their time yet */
};

/* --- the awake clock ------------------------------------------------------------------------ */

void syn_watches_wake(struct syn_watches *watches, int64_t deadline_ns, int64_t now_ns)
{
    int64_t expected_ns = deadline_ns > watches->seen_ns ? deadline_ns - watches->seen_ns : 0;
    int64_t passed_ns = now_ns - watches->seen_ns;
    int64_t most_ns = expected_ns + AWAKE_TOLERANCE_NS;
    if (watches->seen_ns != 0)
        watches->awake_ns += syn_lesser(passed_ns, most_ns);
    watches->seen_ns = now_ns;
}

/* --- events --------------------------------------------------------------------------------- */

static void ring(const struct syn_watches *watches)
{
    uint64_t one = 1;
    (void)!write(watches->event_fd, &one, sizeof one);
}

static void tell(struct syn_probe_engine *engine, struct syn_watch *watch, int alive,
                 int64_t since_ns)
{
    struct syn_watches *watches = &engine->watches;
    if (watches->reported - watches->taken == SYN_LIVENESS_EVENTS) {
        watches->taken++; /* the oldest goes: newer ones tell more */
        engine->counters.liveness_dropped++;
    }
    watches->events[watches->reported++ % SYN_LIVENESS_EVENTS] = (struct syn_liveness_event){
        .at_ns = watches->seen_ns,
        .since_ns = since_ns,
        .flow_id = watch->config.flow_id,
        .alive = (uint32_t)alive,
        .misses = alive ? watch->live.hits : syn_liveness_misses(&watch->live),
    };
    ring(watches);
}

/* --- pairs as a whole ----------------------------------------------------------------------- */

static struct syn_watch_pair *pair_of(struct syn_watches *watches, const struct syn_watch *watch)
{
    return &watches->pairs[watch->pair];
}

/* Between two probes of the pair that a watch is of. */
static int64_t spacing_ns(const struct syn_watches *watches, const struct syn_watch *watch)
{
    return watch->config.interval_ns / watches->pairs[watch->pair].flows;
}

/* Whether enough probes of a pair have had their time, or none of its flows is alive: their
 * deaths were reported one by one. Watches are sorted by socket, so a pair's are found by a scan,
 * which is done in silence only. */
static int is_proven(const struct syn_watches *watches, uint32_t pair)
{
    uint32_t overdue = 0, alive = 0;
    for (size_t i = 0; i < watches->count; i++) {
        const struct syn_watch *watch = watches->set[i];
        if (watch->pair != pair || watch->live.life != SYN_LIFE_ALIVE)
            continue;
        alive++;
        overdue += syn_liveness_overdue(&watch->live, watches->awake_ns);
    }
    return alive == 0 || overdue >= SYN_SILENCE_MISSES;
}

static void burst(struct syn_watches *watches, uint32_t pair)
{
    syn_pair_silence_burst(&watches->pairs[pair].silence, watches->awake_ns);
    for (size_t i = 0; i < watches->count; i++) {
        struct syn_watch *watch = watches->set[i];
        if (watch->pair != pair)
            continue;
        watch->burst = SYN_BURST_ROUNDS;
        watch->due_ns = watches->seen_ns;
    }
}

/* Serve a silent pair; returns when to serve it next, on the awake clock. A subscriber is notified
 * when the pair becomes suspect as well, so that it can watch its own data from then on. */
static int64_t attend(struct syn_watches *watches, uint32_t at, int64_t spacing)
{
    struct syn_pair_silence *silence = &watches->pairs[at].silence;
    int64_t now_ns = watches->awake_ns;
    if (syn_pair_suspect_ns(silence, spacing) <= now_ns) {
        burst(watches, at);
        ring(watches);
    }
    int64_t due_ns = syn_pair_unresponsive_ns(silence);
    if (due_ns <= now_ns) {
        if (!is_proven(watches, at))
            return now_ns + LOOK_AGAIN_NS;
        silence->reported = 1;
        ring(watches);
        return INT64_MAX;
    }
    return syn_lesser(due_ns, syn_pair_suspect_ns(silence, spacing));
}

/* When any pair needs something again: monotonic. */
static int64_t attend_pairs(struct syn_watches *watches)
{
    int64_t next_ns = INT64_MAX;
    for (size_t i = 0; i < watches->count; i++) {
        const struct syn_watch *watch = watches->set[i];
        if (watch->rank == 0)
            next_ns = syn_lesser(next_ns, attend(watches, watch->pair, spacing_ns(watches, watch)));
    }
    return next_ns == INT64_MAX ? next_ns : watches->seen_ns + (next_ns - watches->awake_ns);
}

/* --- the loop's part ------------------------------------------------------------------------ */

int64_t syn_watches_next_ns(const struct syn_probe_engine *engine)
{
    const struct syn_watches *watches = &engine->watches;
    if (watches->count == 0 || engine->peer_count == 0)
        return INT64_MAX;
    return watches->next_ns;
}

/* No key, or another program has its source port: nothing can be asked, and silence says nothing. On
 * a NIC that is gone, it does. */
static int is_blocked(const struct syn_probe_engine *engine, const struct syn_watch *watch)
{
    if (syn_find_peer(engine, watch->config.dst_nic_id) == NULL)
        return 1;
    return watch->socket->fd < 0 && engine->nics[watch->config.nic].attached;
}

static int64_t next_of(const struct syn_probe_engine *engine, const struct syn_watch *watch)
{
    const struct syn_watches *watches = &engine->watches;
    int64_t verdict_ns = syn_liveness_verdict_ns(&watch->live, watches->awake_ns);
    if (verdict_ns == INT64_MAX || is_blocked(engine, watch))
        return watch->due_ns;
    int64_t at_ns = watches->seen_ns + (verdict_ns - watches->awake_ns);
    return syn_lesser(at_ns, watch->due_ns);
}

static void judge(struct syn_probe_engine *engine, struct syn_watch *watch)
{
    if (!is_blocked(engine, watch) && syn_liveness_check(&watch->live, engine->watches.awake_ns))
        tell(engine, watch, 0, watch->heard_ns);
}

/* The kernel may refuse one (no route, say): that one only. */
static void flush(struct syn_probe_engine *engine, struct syn_socket *socket, unsigned count)
{
    struct mmsghdr *messages = engine->outbox.messages;
    for (unsigned at = 0; at < count;) {
        int taken = sendmmsg(socket->fd, messages + at, count - at, 0);
        unsigned sent = taken > 0 ? (unsigned)taken : 0;
        engine->counters.sent += sent;
        at += sent;
        if (at < count) {
            engine->counters.send_errors++;
            at++;
        }
    }
}

static void prepare(struct syn_probe_engine *engine, struct syn_watch *watch, unsigned at)
{
    struct syn_packet packet = {
        .type = SYN_PACKET_REQUEST,
        .dscp = watch->config.dscp,
        .src_nic = engine->nics[watch->config.nic].config.nic_id,
        .dst_nic = watch->config.dst_nic_id,
        .flow_id = watch->wire_id,
        .seq = watch->live.next_seq,
        .epoch = watch->epoch,
        .flow_label = watch->config.flow_label,
    };
    struct syn_outbox *box = &engine->outbox;
    syn_packet_encode(&packet, &syn_find_peer(engine, packet.dst_nic)->keys[0], box->data[at]);
    syn_address_message(box, at, &watch->destination, watch->destination_length, &packet);
    syn_without_stamp(box, at);
}

/* The watch's next turn, or the next probe of its burst while nothing is answered. */
static int64_t following_due_ns(struct syn_watches *watches, struct syn_watch *watch)
{
    if (watch->burst > 0 && syn_pair_silence_bursting(&pair_of(watches, watch)->silence) &&
        --watch->burst > 0)
        return watches->seen_ns + SYN_BURST_GAP_NS;
    watch->burst = 0;
    int64_t interval_ns = watch->config.interval_ns;
    int64_t turn_ns = watch->rank * spacing_ns(watches, watch);
    turn_ns -= turn_ns % TURN_NS;
    int64_t phase_ns = (watches->phase_ns + turn_ns) % interval_ns;
    int64_t reached_ns = watches->seen_ns + TOGETHER_NS - phase_ns;
    return reached_ns - reached_ns % interval_ns + interval_ns + phase_ns;
}

static void send_due(struct syn_probe_engine *engine)
{
    struct syn_watches *watches = &engine->watches;
    struct syn_socket *socket = NULL;
    unsigned count = 0;
    for (size_t i = 0; i < watches->count; i++) {
        struct syn_watch *watch = watches->set[i];
        if (watch->due_ns > watches->seen_ns + TOGETHER_NS)
            continue;
        if (count == SYN_BATCH || (count > 0 && watch->socket != socket)) {
            flush(engine, socket, count);
            count = 0;
        }
        if (is_blocked(engine, watch)) {
            watch->due_ns = following_due_ns(watches, watch);
            continue;
        }
        socket = watch->socket;
        prepare(engine, watch, count++);
        syn_liveness_sent(&watch->live, watches->awake_ns);
        watch->due_ns = following_due_ns(watches, watch);
    }
    if (count > 0)
        flush(engine, socket, count);
}

void syn_watches_serve(struct syn_probe_engine *engine)
{
    struct syn_watches *watches = &engine->watches;
    if (syn_watches_next_ns(engine) > watches->seen_ns + TOGETHER_NS)
        return;
    for (size_t i = 0; i < watches->count; i++)
        judge(engine, watches->set[i]);
    watches->next_ns = attend_pairs(watches);
    send_due(engine);
    for (size_t i = 0; i < watches->count; i++) {
        int64_t next_ns = next_of(engine, watches->set[i]);
        watches->next_ns = syn_lesser(watches->next_ns, next_ns);
    }
}

/* Replies make verdicts later, never earlier: what was foreseen stays a bound. */
int syn_watches_reply(struct syn_probe_engine *engine, const struct syn_packet *reply)
{
    struct syn_watches *watches = &engine->watches;
    struct syn_watch *watch = watches->slots[reply->flow_id % SYN_MAX_WATCHES];
    if (watch == NULL || watch->wire_id != reply->flow_id || watch->epoch != reply->epoch)
        return 0;
    if (reply->src_nic != engine->nics[watch->config.nic].config.nic_id ||
        reply->dst_nic != watch->config.dst_nic_id) {
        engine->counters.misdelivered++;
        return 1;
    }
    engine->counters.received++;
    watch->heard_ns = watches->seen_ns;
    syn_pair_silence_answered(&pair_of(watches, watch)->silence, spacing_ns(watches, watch),
                      watches->awake_ns);
    int revived = syn_liveness_reply(&watch->live, reply->seq, watches->awake_ns);
    if (watch->live.hits == 1)
        watch->row_ns = watches->seen_ns;
    if (revived)
        tell(engine, watch, 1, watch->row_ns);
    return 1;
}
