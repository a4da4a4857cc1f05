#include "bytes.h"
#include "siphash.h"
#include "syn_packet.h"

/* Offsets; see docs/reference/probe-packet.md. */
enum {
    AT_MAGIC = 0,
    AT_VERSION = 4,
    AT_TYPE = 5,
    AT_FLAGS = 6,
    AT_DSCP = 7,
    AT_KEY = 8,
    AT_SRC = 12,
    AT_DST = 16,
    AT_FLOW = 20,
    AT_EPOCH = 24,
    AT_SEQ = 32,
    AT_LABEL = 36,
    AT_T2 = 40,
    AT_GID = 40,
    AT_QPN = 56,
    AT_LID = 60,
    AT_TOLD = 62, /* end of what a tell has */
    AT_FOLLOW_SEQ = 48,
    AT_FOLLOW_T3 = 56,
    AT_COUNT = 72,
    AT_HIGH = 76,
    AT_BITMAP = 80,
    AT_FIRST = 88,
    AT_RESERVED = 92,
    AT_TAG = 96,
    REPLY_PART = AT_T2,
    MAX_DSCP = 63,
    MAX_LABEL = 0xfffff,
};

static void write_reply_part(const struct syn_packet *packet, uint8_t *out)
{
    syn_store_be64(out + AT_T2, (uint64_t)packet->t2_ns);
    for (int i = 0; i < 2; i++) {
        syn_store_be32(out + AT_FOLLOW_SEQ + 4 * i, packet->follow_seq[i]);
        syn_store_be64(out + AT_FOLLOW_T3 + 8 * i, (uint64_t)packet->follow_t3_ns[i]);
    }
    syn_store_be32(out + AT_COUNT, packet->count);
    syn_store_be32(out + AT_HIGH, packet->high_seq);
    syn_store_be64(out + AT_BITMAP, packet->bitmap);
    syn_store_be32(out + AT_FIRST, packet->first_seq);
}

static void write_address(const struct syn_packet *packet, uint8_t *out)
{
    memcpy(out + AT_GID, packet->gid, sizeof packet->gid);
    syn_store_be32(out + AT_QPN, packet->qpn);
    out[AT_LID] = (uint8_t)(packet->lid >> 8);
    out[AT_LID + 1] = (uint8_t)packet->lid;
}

void syn_packet_encode(const struct syn_packet *packet, const struct syn_packet_key *key,
                       uint8_t *out)
{
    memset(out, 0, SYN_PACKET_BYTES);
    syn_store_be32(out + AT_MAGIC, SYN_PACKET_MAGIC);
    out[AT_VERSION] = SYN_PACKET_VERSION;
    out[AT_TYPE] = packet->type;
    out[AT_FLAGS] = packet->flags;
    out[AT_DSCP] = packet->dscp;
    syn_store_be32(out + AT_KEY, key->id);
    syn_store_be32(out + AT_SRC, packet->src_nic);
    syn_store_be32(out + AT_DST, packet->dst_nic);
    syn_store_be32(out + AT_FLOW, packet->flow_id);
    syn_store_be64(out + AT_EPOCH, packet->epoch);
    syn_store_be32(out + AT_SEQ, packet->seq);
    syn_store_be32(out + AT_LABEL, packet->flow_label);
    if (packet->type == SYN_PACKET_REPLY)
        write_reply_part(packet, out);
    else if (packet->type == SYN_PACKET_TELL)
        write_address(packet, out);
    syn_store_be64(out + AT_TAG, syn_siphash24(key->bytes, out, AT_TAG));
}

static int is_zero(const uint8_t *data, size_t length)
{
    uint8_t any = 0;
    for (size_t i = 0; i < length; i++)
        any |= data[i];
    return any == 0;
}

static int well_formed(const uint8_t *data, size_t length)
{
    if (length != SYN_PACKET_BYTES || syn_load_be32(data + AT_MAGIC) != SYN_PACKET_MAGIC ||
        data[AT_VERSION] != SYN_PACKET_VERSION || data[AT_DSCP] > MAX_DSCP ||
        syn_load_be32(data + AT_LABEL) > MAX_LABEL || !is_zero(data + AT_RESERVED, 4))
        return 0;
    if (data[AT_TYPE] == SYN_PACKET_REQUEST || data[AT_TYPE] == SYN_PACKET_ASK)
        return data[AT_FLAGS] == 0 && is_zero(data + REPLY_PART, AT_TAG - REPLY_PART);
    if (data[AT_TYPE] == SYN_PACKET_TELL)
        return data[AT_FLAGS] == 0 && is_zero(data + AT_TOLD, AT_TAG - AT_TOLD);
    return data[AT_TYPE] == SYN_PACKET_REPLY &&
           (data[AT_FLAGS] & ~(SYN_PACKET_LATE | SYN_PACKET_HARDWARE)) == 0;
}

static int authentic(const uint8_t *data, const struct syn_packet_key *keys, size_t key_count)
{
    uint32_t id = syn_load_be32(data + AT_KEY);
    for (size_t i = 0; i < key_count; i++)
        if (keys[i].id == id)
            return syn_siphash24(keys[i].bytes, data, AT_TAG) == syn_load_be64(data + AT_TAG);
    return 0;
}

static void read_reply_part(const uint8_t *data, struct syn_packet *packet)
{
    packet->t2_ns = (int64_t)syn_load_be64(data + AT_T2);
    for (int i = 0; i < 2; i++) {
        packet->follow_seq[i] = syn_load_be32(data + AT_FOLLOW_SEQ + 4 * i);
        packet->follow_t3_ns[i] = (int64_t)syn_load_be64(data + AT_FOLLOW_T3 + 8 * i);
    }
    packet->count = syn_load_be32(data + AT_COUNT);
    packet->high_seq = syn_load_be32(data + AT_HIGH);
    packet->bitmap = syn_load_be64(data + AT_BITMAP);
    packet->first_seq = syn_load_be32(data + AT_FIRST);
}

int syn_packet_is_answer(uint8_t type)
{
    return type == SYN_PACKET_REPLY || type == SYN_PACKET_TELL;
}

uint32_t syn_packet_remote(const uint8_t *data, size_t length)
{
    if (length != SYN_PACKET_BYTES)
        return 0;
    return syn_load_be32(data + (syn_packet_is_answer(data[AT_TYPE]) ? AT_DST : AT_SRC));
}

int syn_packet_decode(const uint8_t *data, size_t length, const struct syn_packet_key *keys,
                      size_t key_count, struct syn_packet *packet)
{
    if (!well_formed(data, length))
        return SYN_PACKET_MALFORMED;
    if (!authentic(data, keys, key_count))
        return SYN_PACKET_FOREIGN;
    *packet = (struct syn_packet){
        .type = data[AT_TYPE],
        .flags = data[AT_FLAGS],
        .dscp = data[AT_DSCP],
        .key_id = syn_load_be32(data + AT_KEY),
        .src_nic = syn_load_be32(data + AT_SRC),
        .dst_nic = syn_load_be32(data + AT_DST),
        .flow_id = syn_load_be32(data + AT_FLOW),
        .seq = syn_load_be32(data + AT_SEQ),
        .epoch = syn_load_be64(data + AT_EPOCH),
        .flow_label = syn_load_be32(data + AT_LABEL),
    };
    if (packet->type == SYN_PACKET_REPLY)
        read_reply_part(data, packet);
    else if (packet->type == SYN_PACKET_TELL) {
        memcpy(packet->gid, data + AT_GID, sizeof packet->gid);
        packet->qpn = syn_load_be32(data + AT_QPN);
        packet->lid = (uint16_t)(data[AT_LID] << 8 | data[AT_LID + 1]);
    }
    return SYN_PACKET_OK;
}
