/* What packets do to flows and sessions, whatever they came over. */
#include <string.h>

#include "engine.h"

enum {
    /* Replies stay prompt for so long after the last request of anyone who watches a path. */
    HASTE_NS = 1000000000,
};

struct syn_packet syn_request(const struct syn_flow *flow)
{
    return (struct syn_packet){
        .type = SYN_PACKET_REQUEST,
        .dscp = flow->config.dscp,
        .src_nic = flow->nic_id,
        .dst_nic = flow->config.dst_nic_id,
        .flow_id = flow->config.flow_id,
        .epoch = flow->epoch,
        .flow_label = flow->config.flow_label,
    };
}

void syn_stamp_sent(struct syn_probe_engine *engine, const struct syn_socket *socket,
                    const struct syn_sent *sent, int64_t stamp_ns)
{
    if (sent->session == SYN_NO_SESSION)
        return;
    if (socket->reflector) {
        syn_session_stamp(&engine->sessions.table[sent->session], sent->flow_id, sent->seq,
                          stamp_ns);
        return;
    }
    struct syn_engine_flow *flow = syn_find_flow(engine, sent->flow_id);
    struct syn_sink sink = syn_sink_of(engine);
    if (flow != NULL && flow->socket == socket)
        syn_flow_stamp(&flow->flow, sent->seq, stamp_ns, &sink);
}

int syn_admit(struct syn_probe_engine *engine, uint32_t nic, const uint8_t *data, size_t length,
              struct syn_arrival *arrival)
{
    struct syn_packet *packet = &arrival->packet;
    arrival->peer = syn_find_peer(engine, syn_packet_remote(data, length));
    const struct syn_peer none = {0}, *peer = arrival->peer != NULL ? arrival->peer : &none;
    int worth = syn_packet_decode(data, length, peer->keys, peer->key_count, packet);
    engine->counters.malformed += worth == SYN_PACKET_MALFORMED;
    engine->counters.foreign += worth == SYN_PACKET_FOREIGN;
    if (worth != SYN_PACKET_OK)
        return 0;
    uint32_t own = engine->nics[nic].config.nic_id;
    uint32_t addressee = syn_packet_is_answer(packet->type) ? packet->src_nic : packet->dst_nic;
    engine->counters.misdelivered += addressee != own;
    return addressee == own;
}

static void count_heard(struct syn_probe_engine *engine, const struct syn_packet *request)
{
    size_t at = syn_flow_hash(request->src_nic ^ request->dst_nic * 31u);
    for (size_t i = 0; i < SYN_HEARD_ROWS; i++) {
        struct syn_probe_heard *row = &engine->heard[(at + i) % SYN_HEARD_ROWS];
        if (row->requests == 0) {
            row->src_nic_id = request->src_nic;
            row->dst_nic_id = request->dst_nic;
        } else if (row->src_nic_id != request->src_nic || row->dst_nic_id != request->dst_nic) {
            continue;
        }
        row->requests++;
        return;
    }
    engine->counters.evicted++;
}

const struct syn_packet_key *syn_key_of(const struct syn_peer *peer, uint32_t id)
{
    return peer->keys[0].id == id ? &peer->keys[0] : &peer->keys[1];
}

int syn_reflect(struct syn_probe_engine *engine, uint32_t nic, const struct syn_arrival *arrival,
                uint8_t *out, struct syn_sent *sent)
{
    struct syn_probe_counters *counters = &engine->counters;
    const struct syn_packet *request = &arrival->packet;
    if (request->type != SYN_PACKET_REQUEST) {
        counters->unsolicited++;
        return 0;
    }
    int64_t now_ns = syn_clock_read(CLOCK_MONOTONIC_COARSE);
    struct syn_session *session = syn_sessions_accept(
        &engine->sessions, request, arrival->peer->keys[0].id, now_ns, &counters->evicted);
    if (session == NULL) {
        counters->replayed++;
        return 0;
    }
    if (syn_session_is_hasty(session))
        engine->hasty_until_ns = now_ns + HASTE_NS;
    counters->received++;
    count_heard(engine, request);
    struct syn_packet reply;
    counters->tx_stamp_missing += (uint64_t)syn_session_reply(session, request, &reply);
    reply.t2_ns = arrival->stamp_ns;
    reply.flags = (arrival->late ? SYN_PACKET_LATE : 0) |
                  (engine->nics[nic].status.hardware ? SYN_PACKET_HARDWARE : 0);
    syn_packet_encode(&reply, syn_key_of(arrival->peer, request->key_id), out);
    *sent = (struct syn_sent){request->flow_id, request->seq,
                              (uint32_t)(session - engine->sessions.table)};
    return 1;
}

void syn_accept_reply(struct syn_probe_engine *engine, const struct syn_arrival *arrival)
{
    struct syn_probe_counters *counters = &engine->counters;
    const struct syn_packet *reply = &arrival->packet;
    struct syn_engine_flow *flow = syn_find_flow(engine, reply->flow_id);
    if (reply->type != SYN_PACKET_REPLY || flow == NULL || reply->epoch != flow->flow.epoch) {
        if (reply->type != SYN_PACKET_REPLY || !syn_watches_reply(engine, reply))
            counters->unsolicited++;
        return;
    }
    if (reply->src_nic != flow->flow.nic_id || reply->dst_nic != flow->flow.config.dst_nic_id) {
        counters->misdelivered++;
        return;
    }
    struct syn_sink sink = syn_sink_of(engine);
    switch (syn_flow_reply(&flow->flow, reply, arrival->stamp_ns, &engine->stall, &sink)) {
    case SYN_ACCEPTED:
        counters->received++;
        break;
    case SYN_LATE:
        counters->late++;
        break;
    case SYN_DUPLICATE:
        counters->replayed++;
        break;
    case SYN_UNSOLICITED:
        counters->unsolicited++;
        break;
    }
}
