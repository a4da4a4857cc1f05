#include <string.h>

#include "check.h"
#include "syn_packet.h"

static const struct syn_packet_key KEYS[2] = {{7, "sixteen byte key"}, {6, "an older one key"}};

static const struct syn_packet REQUEST = {
    .type = SYN_PACKET_REQUEST,
    .dscp = 46,
    .key_id = 7,
    .src_nic = 0x01020304,
    .dst_nic = 0xfffefdfc,
    .flow_id = 77,
    .seq = 0x80000001,
    .epoch = UINT64_C(0xf00000000000000f),
    .flow_label = 0xfffff,
};

static struct syn_packet reply(void)
{
    struct syn_packet packet = REQUEST;
    packet.type = SYN_PACKET_REPLY;
    packet.flags = SYN_PACKET_LATE;
    packet.count = 5;
    packet.high_seq = 0x80000002;
    packet.first_seq = 3;
    packet.bitmap = UINT64_C(0x8000000000000003);
    packet.t2_ns = -1;
    packet.follow_seq[0] = 11;
    packet.follow_seq[1] = 12;
    packet.follow_t3_ns[0] = INT64_MAX;
    packet.follow_t3_ns[1] = INT64_MIN;
    return packet;
}

static int decode(const uint8_t *data, size_t length, struct syn_packet *packet)
{
    return syn_packet_decode(data, length, KEYS, 2, packet);
}

static void comes_back_as_it_went(struct syn_packet packet)
{
    uint8_t data[SYN_PACKET_BYTES];
    struct syn_packet back;
    syn_packet_encode(&packet, &KEYS[0], data);
    CHECK_EQUAL(decode(data, sizeof data, &back), SYN_PACKET_OK);
    CHECK(memcmp(&packet, &back, sizeof packet) == 0);
    syn_packet_encode(&packet, &KEYS[1], data);
    CHECK_EQUAL(decode(data, sizeof data, &back), SYN_PACKET_OK);
    CHECK_EQUAL(back.key_id, 6);
    CHECK_EQUAL(syn_packet_decode(data, sizeof data, KEYS, 1, &back), SYN_PACKET_FOREIGN);
}

/* Every single flipped bit is noticed, every other length refused. */
static void nothing_altered_passes(struct syn_packet packet)
{
    uint8_t data[SYN_PACKET_BYTES + 1] = {0};
    struct syn_packet back;
    syn_packet_encode(&packet, &KEYS[0], data);
    for (int bit = 0; bit < 8 * SYN_PACKET_BYTES; bit++) {
        data[bit / 8] ^= (uint8_t)(1 << bit % 8);
        CHECK(decode(data, SYN_PACKET_BYTES, &back) != SYN_PACKET_OK);
        data[bit / 8] ^= (uint8_t)(1 << bit % 8);
    }
    for (size_t length = 0; length <= sizeof data; length++)
        CHECK_EQUAL(decode(data, length, &back),
                    length == SYN_PACKET_BYTES ? SYN_PACKET_OK : SYN_PACKET_MALFORMED);
}

static void a_request_carries_nothing_of_a_reply(void)
{
    struct syn_packet packet = reply(), back;
    packet.type = SYN_PACKET_REQUEST;
    packet.flags = 0;
    uint8_t data[SYN_PACKET_BYTES];
    syn_packet_encode(&packet, &KEYS[0], data);
    CHECK_EQUAL(decode(data, sizeof data, &back), SYN_PACKET_OK);
    CHECK(memcmp(&back, &REQUEST, sizeof back) == 0);
}

static void the_layout_is_the_documented_one(void)
{
    struct syn_packet packet = reply();
    uint8_t data[SYN_PACKET_BYTES];
    syn_packet_encode(&packet, &KEYS[0], data);
    static const uint8_t HEAD[] = {'S', 'Y', 'N', 'P', 1, 2, 1, 46, 0, 0, 0, 7,
                                   1, 2, 3, 4, 0xff, 0xfe, 0xfd, 0xfc, 0, 0, 0, 77};
    CHECK(memcmp(data, HEAD, sizeof HEAD) == 0);
    CHECK(data[24] == 0xf0 && data[31] == 0x0f); /* epoch */
    CHECK(data[32] == 0x80 && data[35] == 1);    /* sequence */
    CHECK(data[51] == 11 && data[55] == 12);     /* follow-ups */
    CHECK(data[75] == 5 && data[79] == 2);       /* count, highest */
    CHECK(data[80] == 0x80 && data[87] == 3);    /* bitmap */
    CHECK(data[91] == 3);                        /* first */
}

int main(void)
{
    comes_back_as_it_went(REQUEST);
    comes_back_as_it_went(reply());
    nothing_altered_passes(REQUEST);
    nothing_altered_passes(reply());
    a_request_carries_nothing_of_a_reply();
    the_layout_is_the_documented_one();
    return 0;
}
