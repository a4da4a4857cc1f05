/* Packets in and out of the engine's sockets, and the stamps of those that went out. */
#include <errno.h>
#include <string.h>

#include "engine.h"

enum {
    /* Longest that a packet can wait in a host's queues and still be stamped. */
    STALE_STAMPS_NS = 100000000,
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
    syn_stamp_sent(engine, socket, &socket->sent[stamps->id % SYN_SENT_RING], stamp_ns);
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

void syn_send_unstamped(struct syn_probe_engine *engine, const struct syn_socket *socket,
                        const uint8_t *data, struct sockaddr_storage *to, socklen_t length)
{
    const struct syn_packet plain = {0};
    struct syn_outbox *box = &engine->outbox;
    memcpy(box->data[0], data, SYN_PACKET_BYTES);
    syn_address_message(box, 0, to, length, &plain);
    syn_without_stamp(box, 0);
    int sent = sendmmsg(socket->fd, box->messages, 1, 0) == 1;
    engine->counters.send_errors += !sent;
}

void syn_send_pair(struct syn_probe_engine *engine, struct syn_engine_flow *flow, int64_t now_ns)
{
    if (engine->options.plane == SYN_PLANE_VERBS) {
        syn_verbs_send_pair(engine, flow, now_ns);
        return;
    }
    const struct syn_probe_flow *config = &flow->flow.config;
    struct syn_packet packet = syn_request(&flow->flow);
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
    engine->counters.sent += sent; /* before there are records of them */
    engine->counters.send_errors += 2 - sent;
    syn_flow_sent(&flow->flow, sent, now_ns, local_ns, &engine->stall, &sink);
    read_fresh_stamps(engine, flow->socket);
}

/* --- reflecting ----------------------------------------------------------------------------- */

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

static void note_overflow(struct syn_probe_engine *engine, struct syn_socket *socket,
                          const struct syn_stamps *stamps)
{
    if (!stamps->has_overflow || stamps->overflow == socket->overflow)
        return;
    engine->counters.rx_overflow += stamps->overflow - socket->overflow;
    socket->overflow = stamps->overflow;
    engine->stall.mark++;
}

/* Whether message `at` of the outbox now holds an answer, but for its address. */
static int answer(struct syn_probe_engine *engine, uint32_t nic, const struct syn_arrival *arrival,
                  unsigned at)
{
    struct syn_outbox *box = &engine->outbox;
    switch (arrival->packet.type) {
    case SYN_PACKET_ASK:
        return syn_tell(engine, nic, arrival, box->data[at], &box->sent[at]);
    case SYN_PACKET_TELL:
        syn_be_told(engine, nic, arrival);
        return 0;
    default:
        return syn_reflect(engine, nic, arrival, box->data[at], &box->sent[at]);
    }
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
        size_t length = header->msg_flags & MSG_TRUNC ? 0 : engine->inbox.messages[i].msg_len;
        struct syn_arrival arrival;
        if (!syn_admit(engine, socket->nic, engine->inbox.data[i], length, &arrival))
            continue;
        arrival.stamp_ns = local_stamp(engine, socket, &stamps);
        arrival.late = overflowed || (stamps.software_ns != 0 &&
                                      now_ns - stamps.software_ns > syn_grave_stall_ns(engine));
        if (!socket->reflector)
            syn_accept_reply(engine, &arrival);
        else if (answer(engine, socket->nic, &arrival, replies)) {
            syn_address_message(&engine->outbox, replies++, header->msg_name, header->msg_namelen,
                                &arrival.packet);
        }
    }
    return replies;
}

int syn_receive(struct syn_probe_engine *engine, struct syn_socket *socket)
{
    if (engine->options.plane == SYN_PLANE_VERBS) {
        syn_verbs_receive(engine, socket);
        return 0;
    }
    open_inbox(&engine->inbox, SYN_BATCH, socket->reflector);
    int count = recvmmsg(socket->fd, engine->inbox.messages, SYN_BATCH, MSG_DONTWAIT, NULL);
    if (count <= 0)
        return 0;
    engine->taken_in += (unsigned)count;
    send_replies(engine, socket, take_in(engine, socket, count));
    return count == SYN_BATCH;
}
