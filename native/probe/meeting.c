/* Endpoints of NICs for probes over verbs: exchanged over UDP between hosts that share a key, since
 * queue pairs change with each start (docs/decisions/0228). */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine.h"

void syn_probe_offer(struct syn_probe_engine *engine, const struct syn_verbs_endpoint *own,
                     size_t count)
{
    syn_engine_visit(engine);
    for (size_t i = 0; i < engine->nic_count; i++) {
        struct syn_nic *nic = &engine->nics[i];
        nic->endpoint = (struct syn_verbs_endpoint){0};
        for (size_t j = 0; j < count; j++)
            if (own[j].nic_id == nic->config.nic_id)
                nic->endpoint = own[j];
    }
    syn_engine_leave(engine);
}

/* As fresh as a request has to be: a recorded question is not answered again. Sessions of questions
 * have both NICs' places swapped, so that none is a probed flow's. */
static int is_fresh(struct syn_probe_engine *engine, const struct syn_arrival *arrival)
{
    struct syn_packet question = arrival->packet;
    question.src_nic = arrival->packet.dst_nic;
    question.dst_nic = arrival->packet.src_nic;
    int64_t now_ns = syn_clock_read(CLOCK_MONOTONIC_COARSE);
    return syn_sessions_accept(&engine->sessions, &question, arrival->peer->keys[0].id, now_ns,
                               &engine->counters.evicted) != NULL;
}

int syn_tell(struct syn_probe_engine *engine, uint32_t nic, const struct syn_arrival *arrival,
             uint8_t *out, struct syn_sent *sent)
{
    if (!is_fresh(engine, arrival)) {
        engine->counters.replayed++;
        return 0;
    }
    engine->counters.received++;
    const struct syn_verbs_endpoint *own = &engine->nics[nic].endpoint;
    struct syn_packet answer = arrival->packet;
    answer.type = SYN_PACKET_TELL;
    answer.qpn = own->qpn;
    answer.lid = own->lid;
    memcpy(answer.gid, own->gid, sizeof answer.gid);
    syn_packet_encode(&answer, syn_key_of(arrival->peer, answer.key_id), out);
    *sent = (struct syn_sent){.session = SYN_NO_SESSION};
    return 1;
}

void syn_be_told(struct syn_probe_engine *engine, uint32_t nic, const struct syn_arrival *arrival)
{
    const struct syn_packet *answer = &arrival->packet;
    for (size_t i = 0; i < engine->meeting_count; i++) {
        struct syn_meeting *at = &engine->meetings[i];
        if (at->nic != nic || at->dst_nic_id != answer->dst_nic || at->seq == 0 ||
            at->seq != answer->seq || answer->epoch != engine->asked_epoch)
            continue;
        at->seq = 0;
        at->answer = (struct syn_verbs_endpoint){
            .nic_id = answer->dst_nic, .qpn = answer->qpn, .lid = answer->lid, .known = 1};
        memcpy(at->answer.gid, answer->gid, sizeof at->answer.gid);
        engine->counters.received++;
        return;
    }
    engine->counters.unsolicited++;
}

static struct syn_socket *reflector_of(const struct syn_probe_engine *engine, uint32_t nic)
{
    for (size_t i = 0; i < engine->socket_count; i++)
        if (engine->sockets[i]->reflector && engine->sockets[i]->nic == nic)
            return engine->sockets[i];
    return NULL;
}

/* From the reflector's own port, to which the answer comes. */
static void ask(struct syn_probe_engine *engine, struct syn_meeting *meeting,
                const struct syn_probe_flow *flow)
{
    const struct syn_socket *socket = reflector_of(engine, flow->nic);
    const struct syn_peer *peer = syn_find_peer(engine, flow->dst_nic_id);
    if (socket == NULL || socket->fd < 0 || peer == NULL)
        return;
    if (++engine->asked == 0)
        engine->asked = 1;
    meeting->seq = engine->asked;
    struct syn_packet question = {
        .type = SYN_PACKET_ASK,
        .src_nic = engine->nics[flow->nic].config.nic_id,
        .dst_nic = flow->dst_nic_id,
        .seq = meeting->seq,
        .epoch = engine->asked_epoch,
    };
    uint8_t data[SYN_PACKET_BYTES];
    syn_packet_encode(&question, &peer->keys[0], data);
    struct sockaddr_storage to;
    socklen_t length = syn_sockaddr(&to, flow->family, flow->dst_address, flow->dst_port,
                                    engine->nics[flow->nic].ifindex);
    syn_send_unstamped(engine, socket, data, &to, length);
}

int syn_probe_ask(struct syn_probe_engine *engine, const struct syn_probe_flow *flows, size_t count,
                  char *message)
{
    struct syn_meeting *meetings = calloc(count + 1, sizeof *meetings);
    if (meetings == NULL) {
        snprintf(message, SYN_MESSAGE_BYTES, "out of memory for %zu peers", count);
        return SYN_ERROR_MISSING;
    }
    syn_engine_visit(engine);
    int failed = SYN_OK;
    for (size_t i = 0; i < count && !failed; i++)
        failed = syn_flow_fits(engine, &flows[i], message) ? SYN_OK : SYN_ERROR_USAGE;
    if (!failed) {
        if (engine->asked_epoch == 0)
            engine->asked_epoch = syn_new_epoch(engine);
        for (size_t i = 0; i < count; i++) {
            meetings[i] = (struct syn_meeting){.nic = flows[i].nic,
                                               .dst_nic_id = flows[i].dst_nic_id};
            for (size_t j = 0; j < engine->meeting_count; j++)
                if (engine->meetings[j].nic == meetings[i].nic &&
                    engine->meetings[j].dst_nic_id == meetings[i].dst_nic_id)
                    meetings[i].answer = engine->meetings[j].answer;
            ask(engine, &meetings[i], &flows[i]);
        }
        struct syn_meeting *before = engine->meetings;
        engine->meetings = meetings;
        engine->meeting_count = count;
        meetings = before;
    }
    syn_engine_leave(engine);
    free(meetings);
    return failed;
}

size_t syn_probe_read_answers(struct syn_probe_engine *engine, struct syn_verbs_endpoint *out,
                              size_t room)
{
    syn_engine_visit(engine);
    size_t count = engine->meeting_count;
    for (size_t i = 0; i < count && i < room; i++) {
        out[i] = engine->meetings[i].answer;
        out[i].nic_id = engine->meetings[i].dst_nic_id;
    }
    syn_engine_leave(engine);
    return count;
}
