/* Packets in and out of the engine's sockets, and the stamps of those that went out. */
#include <errno.h>
#include <string.h>

#include "engine.h"

enum {
    /* Longest that a packet can wait in a host's queues and still be stamped. */
    STALE_STAMPS_NS = 100000000,
    /* Replies stay prompt for so long after the last request of whoever watches a path. */
    HASTE_NS = 1000000000,
};

static int64_t local_stamp(const struct syn_probe_engine *engine, const struct syn_socket *socket,
                           const struct syn_stamps *stamps)
{
    if (engine->nics[socket->nic].status.hardware)
        return stamps->hardware_ns;
    if (stamps->software_ns == 0 || engine->clock == NULL)
        return stamps->software_ns;
    return syn_clock_map(engine->clock, stamps->software_ns);
}

static void open_inbox(struct syn_inbox *box, unsigned count, int with_sender)
{
    for (unsigned i = 0; i < count; i++) {
        box->vectors[i] = (struct iovec){box->data[i], sizeof box->data[i]};
        box->messages[i].msg_hdr = (struct msghdr){
            .msg_iov = &box->vectors[i],
            .msg_iovlen = 1,
            .msg_control = box->control[i],
            .msg_controllen = sizeof box->control[i],
            .msg_name = with_sender ? &box->from[i] : NULL,
            .msg_namelen = with_sender ? sizeof box->from[i] : 0,
        };
    }
}

/* --- transmit stamps ------------------------------------------------------------------------ */

static void assign_stamp(struct syn_probe_engine *engine, struct syn_socket *socket,
                         const struct syn_stamps *stamps)
{
    uint32_t age = socket->next_id - stamps->id;
    if (age == 0 || age > SYN_SENT_RING)
        return; /* of before a re-arm */
    if ((int32_t)(stamps->id + 1 - socket->stamped_ids) > 0)
        socket->stamped_ids = stamps->id + 1;
    int64_t stamp_ns = local_stamp(engine, socket, stamps);
    if (stamp_ns == 0)
        return;
    const struct syn_sent *sent = &socket->sent[stamps->id % SYN_SENT_RING];
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

static int read_error_queue(struct syn_probe_engine *engine, struct syn_socket *socket,
                            unsigned room)
{
    struct syn_inbox *box = &engine->inbox;
    open_inbox(box, room, 0);
    int count = recvmmsg(socket->fd, box->messages, room, MSG_ERRQUEUE | MSG_DONTWAIT, NULL);
    int unsure = socket->unsure_until_ns != 0 &&
                 syn_clock_read(CLOCK_MONOTONIC) < socket->unsure_until_ns;
    for (int i = 0; i < count; i++) {
        struct syn_stamps stamps;
        syn_stamps_read(&box->messages[i].msg_hdr, &stamps);
        if (stamps.has_id && !unsure)
            assign_stamp(engine, socket, &stamps);
    }
    return count > 0 ? count : 0;
}

int syn_read_sent_stamps(struct syn_probe_engine *engine, struct syn_socket *socket)
{
    int total = 0;
    int count;
    do {
        count = read_error_queue(engine, socket, SYN_BATCH);
        total += count;
    } while (count == SYN_BATCH);
    return total;
}

/* Right after sending: on most links the stamps are already there, and exactly so many. */
static void read_fresh_stamps(struct syn_probe_engine *engine, struct syn_socket *socket)
{
    uint32_t waiting = socket->next_id - socket->stamped_ids;
    if (waiting > 0)
        read_error_queue(engine, socket, waiting < SYN_BATCH ? waiting : SYN_BATCH);
}

/* The kernel may or may not have numbered a packet it then refused: count from 0 again, and trust
 * no stamp while those of the old count can still come in. */
static void recount(struct syn_probe_engine *engine, struct syn_socket *socket)
{
    syn_read_sent_stamps(engine, socket);
    int outstanding = socket->next_id != socket->stamped_ids;
    if (syn_stamps_arm(socket->fd, engine->nics[socket->nic].status.hardware) < 0)
        return;
    socket->next_id = 0;
    socket->stamped_ids = 0;
    if (outstanding)
        socket->unsure_until_ns = syn_clock_read(CLOCK_MONOTONIC) + STALE_STAMPS_NS;
}

/* --- sending -------------------------------------------------------------------------------- */

/* Messages `first` to `end` of the outbox; the number that the kernel took before it refused one. */
static unsigned transmit(struct syn_probe_engine *engine, struct syn_socket *socket,
                         unsigned first, unsigned end)
{
    struct syn_outbox *box = &engine->outbox;
    int taken = sendmmsg(socket->fd, &box->messages[first], end - first, 0);
    unsigned sent = taken > 0 ? (unsigned)taken : 0;
    for (unsigned i = 0; i < sent; i++)
        socket->sent[socket->next_id++ % SYN_SENT_RING] = box->sent[first + i];
    if (first + sent < end)
        recount(engine, socket);
    return sent;
}

/* The class goes with each message: one socket serves all classes of its port. */
static void classify(struct syn_outbox *box, unsigned at, int family, uint8_t dscp)
{
    if (dscp == 0)
        return;
    struct msghdr *header = &box->messages[at].msg_hdr;
    header->msg_control = box->control[at];
    header->msg_controllen = CMSG_SPACE(sizeof(int));
    struct cmsghdr *control = CMSG_FIRSTHDR(header);
    control->cmsg_level = family == AF_INET6 ? IPPROTO_IPV6 : IPPROTO_IP;
    control->cmsg_type = family == AF_INET6 ? IPV6_TCLASS : IP_TOS;
    control->cmsg_len = CMSG_LEN(sizeof(int));
    int value = dscp << 2;
    memcpy(CMSG_DATA(control), &value, sizeof value);
}

void syn_address_message(struct syn_outbox *box, unsigned at, struct sockaddr_storage *to,
                         socklen_t length, const struct syn_packet *packet)
{
    box->vectors[at] = (struct iovec){box->data[at], SYN_PACKET_BYTES};
    box->messages[at].msg_hdr = (struct msghdr){
        .msg_name = to,
        .msg_namelen = length,
        .msg_iov = &box->vectors[at],
        .msg_iovlen = 1,
    };
    if (to->ss_family == AF_INET6)
        ((struct sockaddr_in6 *)to)->sin6_flowinfo = htonl(packet->flow_label);
    classify(box, at, to->ss_family, packet->dscp);
}

void syn_without_stamp(struct syn_outbox *box, unsigned at)
{
    struct msghdr *header = &box->messages[at].msg_hdr;
    uint8_t *place = box->control[at] + header->msg_controllen;
    header->msg_control = box->control[at];
    header->msg_controllen += CMSG_SPACE(sizeof(uint32_t));
    struct cmsghdr *control = (struct cmsghdr *)place;
    control->cmsg_level = SOL_SOCKET;
    control->cmsg_type = SO_TIMESTAMPING;
    control->cmsg_len = CMSG_LEN(sizeof(uint32_t));
    memset(CMSG_DATA(control), 0, sizeof(uint32_t));
}

void syn_send_pair(struct syn_probe_engine *engine, struct syn_engine_flow *flow, int64_t now_ns)
{
    const struct syn_probe_flow *config = &flow->flow.config;
    struct syn_packet packet = {
        .type = SYN_PACKET_REQUEST,
        .dscp = config->dscp,
        .src_nic = flow->flow.nic_id,
        .dst_nic = config->dst_nic_id,
        .flow_id = config->flow_id,
        .epoch = flow->flow.epoch,
        .flow_label = config->flow_label,
    };
    const struct syn_peer *peer = syn_find_peer(engine, packet.dst_nic);
    for (unsigned i = 0; i < 2 && peer != NULL; i++) {
        packet.seq = flow->flow.next_seq + i;
        syn_packet_encode(&packet, &peer->keys[0], engine->outbox.data[i]);
        syn_address_message(&engine->outbox, i, &flow->destination, flow->destination_length,
                            &packet);
        engine->outbox.sent[i] = (struct syn_sent){config->flow_id, packet.seq, 0};
    }
    int64_t real_ns = syn_clock_read(CLOCK_REALTIME);
    int64_t local_ns = engine->clock ? syn_clock_map(engine->clock, real_ns) : real_ns;
    unsigned sent = peer != NULL ? transmit(engine, flow->socket, 0, 2) : 0;
    struct syn_sink sink = syn_sink_of(engine);
    syn_flow_sent(&flow->flow, sent, now_ns, local_ns, &engine->stall, &sink);
    engine->counters.sent += sent;
    engine->counters.send_errors += 2 - sent;
    read_fresh_stamps(engine, flow->socket);
}

/* --- reflecting ----------------------------------------------------------------------------- */

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

static const struct syn_packet_key *key_of(const struct syn_peer *peer, uint32_t id)
{
    return peer->keys[0].id == id ? &peer->keys[0] : &peer->keys[1];
}

struct arrival {
    const struct syn_peer *peer;
    struct syn_packet packet;
    int64_t stamp_ns;
    int late; /* this engine came to read it late */
    struct sockaddr_storage *from;
    socklen_t from_length;
};

/* Whether message `at` of the outbox now holds a reply. */
static int reflect(struct syn_probe_engine *engine, const struct syn_socket *socket,
                   struct arrival *arrival, unsigned at)
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
                  (engine->nics[socket->nic].status.hardware ? SYN_PACKET_HARDWARE : 0);
    struct syn_outbox *box = &engine->outbox;
    syn_packet_encode(&reply, key_of(arrival->peer, request->key_id), box->data[at]);
    syn_address_message(box, at, arrival->from, arrival->from_length, request);
    box->sent[at] = (struct syn_sent){request->flow_id, request->seq,
                                      (uint32_t)(session - engine->sessions.table)};
    return 1;
}

/* A refused reply (no route back, say) does not hold up the others. */
static void send_replies(struct syn_probe_engine *engine, struct syn_socket *socket, unsigned count)
{
    for (unsigned at = 0; at < count; at++) {
        unsigned sent = transmit(engine, socket, at, count);
        engine->counters.replies += sent;
        at += sent;
        engine->counters.send_errors += at < count;
    }
    if (count > 0)
        read_fresh_stamps(engine, socket);
}

/* --- receiving ------------------------------------------------------------------------------ */

static void accept_reply(struct syn_probe_engine *engine, const struct arrival *arrival)
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

static void note_overflow(struct syn_probe_engine *engine, struct syn_socket *socket,
                          const struct syn_stamps *stamps)
{
    if (!stamps->has_overflow || stamps->overflow == socket->overflow)
        return;
    engine->counters.rx_overflow += stamps->overflow - socket->overflow;
    socket->overflow = stamps->overflow;
    engine->stall.mark++;
}

/* Whether message `i` of the inbox is an authentic packet for this socket's NIC. */
static int admit(struct syn_probe_engine *engine, const struct syn_socket *socket, int i,
                 struct arrival *arrival)
{
    struct syn_packet *packet = &arrival->packet;
    const struct mmsghdr *message = &engine->inbox.messages[i];
    size_t length = message->msg_hdr.msg_flags & MSG_TRUNC ? 0 : message->msg_len;
    const uint8_t *data = engine->inbox.data[i];
    arrival->peer = syn_find_peer(engine, syn_packet_remote(data, length));
    const struct syn_peer none = {0}, *peer = arrival->peer != NULL ? arrival->peer : &none;
    int worth = syn_packet_decode(data, length, peer->keys, peer->key_count, packet);
    engine->counters.malformed += worth == SYN_PACKET_MALFORMED;
    engine->counters.foreign += worth == SYN_PACKET_FOREIGN;
    if (worth != SYN_PACKET_OK)
        return 0;
    uint32_t own = engine->nics[socket->nic].config.nic_id;
    uint32_t addressee = packet->type == SYN_PACKET_REQUEST ? packet->dst_nic : packet->src_nic;
    engine->counters.misdelivered += addressee != own;
    return addressee == own;
}

static unsigned take_in(struct syn_probe_engine *engine, struct syn_socket *socket, int count)
{
    unsigned replies = 0;
    int64_t now_ns = syn_clock_read(CLOCK_REALTIME);
    for (int i = 0; i < count; i++) {
        struct msghdr *header = &engine->inbox.messages[i].msg_hdr;
        struct syn_stamps stamps;
        syn_stamps_read(header, &stamps);
        int overflowed = stamps.has_overflow && stamps.overflow != socket->overflow;
        note_overflow(engine, socket, &stamps);
        struct arrival arrival = {.from = header->msg_name, .from_length = header->msg_namelen};
        if (!admit(engine, socket, i, &arrival))
            continue;
        arrival.stamp_ns = local_stamp(engine, socket, &stamps);
        arrival.late = overflowed || (stamps.software_ns != 0 &&
                                      now_ns - stamps.software_ns > syn_grave_stall_ns(engine));
        if (socket->reflector)
            replies += (unsigned)reflect(engine, socket, &arrival, replies);
        else
            accept_reply(engine, &arrival);
    }
    return replies;
}

void syn_receive(struct syn_probe_engine *engine, struct syn_socket *socket)
{
    int count;
    do {
        open_inbox(&engine->inbox, SYN_BATCH, socket->reflector);
        count = recvmmsg(socket->fd, engine->inbox.messages, SYN_BATCH, MSG_DONTWAIT, NULL);
        if (count <= 0)
            return;
        engine->taken_in += (unsigned)count;
        send_replies(engine, socket, take_in(engine, socket, count));
    } while (count == SYN_BATCH);
}
