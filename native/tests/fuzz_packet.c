/* Any bytes, as they come and again with a right tag: nothing crashes, what is accepted encodes to
 * the same bytes, and neither reflector nor initiator is led astray by it. */
#include <string.h>

#include "bytes.h"
#include "check.h"
#include "flow.h"
#include "session.h"
#include "siphash.h"

enum { TAG_AT = 96, KEY_AT = 8, RECORDS = 64 };

static const struct syn_packet_key KEY = {1, "key for fuzzing."};

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t length);

static void reflector_holds(const struct syn_packet *packet)
{
    static struct syn_sessions sessions;
    static int64_t now_ns;
    uint64_t evicted = 0;
    if (sessions.table == NULL)
        CHECK(syn_sessions_open(&sessions));
    struct syn_session *session = syn_sessions_accept(&sessions, packet, 1, ++now_ns, &evicted);
    if (session == NULL)
        return;
    CHECK(session->bitmap & 1);
    CHECK(session->high_seq - packet->seq < 64);
    CHECK(syn_sessions_accept(&sessions, packet, 1, now_ns, &evicted) == NULL);
    struct syn_packet reply;
    syn_session_reply(session, packet, &reply);
    syn_session_stamp(session, packet->flow_id, packet->seq, now_ns);
}

static void initiator_holds(const struct syn_packet *packet)
{
    struct syn_flow flow;
    struct syn_probe_counters counters = {0};
    struct syn_ring ring;
    struct syn_sink sink = {&ring, &counters};
    struct syn_stall stall = {0};
    struct syn_probe_flow config = {.flow_id = packet->flow_id, .interval_ns = 100000000};
    CHECK(syn_ring_open(&ring, RECORDS));
    CHECK(syn_flow_open(&flow, &config, 1, 1000000000));
    flow.next_seq = flow.tail_seq = packet->seq & ~(uint32_t)7;
    for (int pair = 0; pair < 6; pair++)
        syn_flow_sent(&flow, 2, pair, pair, &stall, &sink);
    CHECK_EQUAL(syn_flow_reply(&flow, packet, 1, &stall, &sink), SYN_ACCEPTED);
    CHECK_EQUAL(syn_flow_reply(&flow, packet, 1, &stall, &sink), SYN_DUPLICATE);
    syn_flow_sweep(&flow, INT64_C(10000000000), &stall, &sink);
    CHECK_EQUAL(syn_ring_pending(&ring), 12); /* every probe ends exactly once */
    syn_flow_close(&flow);
    free(ring.records);
}

static void try_packet(const uint8_t *data, size_t length)
{
    struct syn_packet packet;
    if (syn_packet_decode(data, length, &KEY, 1, &packet) != SYN_PACKET_OK)
        return;
    uint8_t again[SYN_PACKET_BYTES];
    syn_packet_encode(&packet, &KEY, again);
    CHECK(memcmp(data, again, sizeof again) == 0);
    if (packet.type == SYN_PACKET_REQUEST)
        reflector_holds(&packet);
    else
        initiator_holds(&packet);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t length)
{
    /* An exact-size copy, so that the sanitizer sees any read beyond it. */
    uint8_t *copy = malloc(length + 1);
    CHECK(copy != NULL);
    memcpy(copy, data, length);
    try_packet(copy, length);
    if (length == SYN_PACKET_BYTES) {
        syn_store_be32(copy, SYN_PACKET_MAGIC);
        syn_store_be32(copy + KEY_AT, KEY.id);
        syn_store_be64(copy + TAG_AT, syn_siphash24(KEY.bytes, copy, TAG_AT));
        try_packet(copy, length);
    }
    free(copy);
    return 0;
}
