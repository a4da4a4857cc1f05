/* The probe packet: one size for request and reply (docs/reference/probe-packet.md). Pure.
 * Everything between the two markers is read by Python's cffi. */
#ifndef SYN_PACKET_H
#define SYN_PACKET_H

#include <stddef.h>
#include <stdint.h>

#pragma GCC visibility push(default)

/* --- declarations --- */
enum {
    SYN_PACKET_BYTES = 104,
    SYN_PACKET_MAGIC = 0x53594e50, /* "SYNP" */
    SYN_PACKET_VERSION = 1,
};

enum {
    SYN_PACKET_REQUEST = 1,
    SYN_PACKET_REPLY = 2,
    SYN_PACKET_ASK = 3,  /* where a NIC takes probes over verbs; goes over UDP */
    SYN_PACKET_TELL = 4, /* there */
};

/* Packet flags; only replies carry any. */
enum {
    SYN_PACKET_LATE = 1,     /* the reflector itself was late: its stamps hold, losses may not */
    SYN_PACKET_HARDWARE = 2, /* t2 and t3 are hardware stamps */
};

/* What a packet is worth. */
enum {
    SYN_PACKET_OK = 0,
    SYN_PACKET_MALFORMED = 1, /* not a packet of this version */
    SYN_PACKET_FOREIGN = 2,   /* unknown key or wrong tag */
};

struct syn_packet {
    uint8_t type;
    uint8_t flags;
    uint8_t dscp;
    uint8_t reserved;
    uint32_t key_id;
    uint32_t src_nic; /* initiator, in requests and replies alike */
    uint32_t dst_nic; /* reflector */
    uint32_t flow_id;
    uint32_t seq;
    uint64_t epoch; /* instant the initiator created the flow, its clock */
    uint32_t flow_label;
    /* From here on: replies only, zero in requests. */
    uint32_t count;     /* authentic requests of this flow and epoch so far, modulo 2^32 */
    uint32_t high_seq;  /* highest sequence number received */
    uint32_t first_seq; /* first one this reflector ever saw of this epoch */
    uint64_t bitmap;    /* bit i: high_seq - i was received */
    int64_t t2_ns;      /* request's receive stamp, reflector's clock; 0 if it has none */
    uint32_t follow_seq[2];
    int64_t follow_t3_ns[2]; /* transmit stamps of earlier replies; 0 if unknown */
    /* Of SYN_PACKET_TELL only: the reflector's address. */
    uint8_t gid[16];
    uint32_t qpn; /* 0: it has none */
    uint16_t lid;
};

struct syn_packet_key {
    uint32_t id;
    uint8_t bytes[16];
};

/* Write the SYN_PACKET_BYTES bytes of a packet, tagged with `key` (whose id it takes). */
void syn_packet_encode(const struct syn_packet *packet, const struct syn_packet_key *key,
                       uint8_t *out);
/* The NIC at the other end of a packet that came off the wire, whose key it must have; 0: none. */
uint32_t syn_packet_remote(const uint8_t *data, size_t length);
/* Whether packets of this type come from the reflector. */
int syn_packet_is_answer(uint8_t type);
/* Read a packet that came off the wire; it is filled in only if SYN_PACKET_OK is returned. */
int syn_packet_decode(const uint8_t *data, size_t length, const struct syn_packet_key *keys,
                      size_t key_count, struct syn_packet *packet);
/* --- end of declarations --- */

#pragma GCC visibility pop

#endif
