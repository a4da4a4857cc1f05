/* Messages between the two ends of a connection, in host byte order (shown by HELLO's magic). */
#ifndef NET_WIRE_H
#define NET_WIRE_H

#include <stdint.h>

enum {
    MAX_RAILS = 4,
    MAX_QPS = 8,      /* queue pairs of a rail */
    MAX_GROUP = 8,    /* receives in one grouped receive */
    SLOTS = 32,       /* receives outstanding at once */
    MAX_CHUNKS = 64,  /* of a message: a bit each */
    WIRE_VERSION = 2,
};
static const uint64_t WIRE_MAGIC = UINT64_C(0x31304c43434e5953); /* "SYNCCL01" */

/* Records that are sent over queue pairs. */
enum record_kind { RECORD_HEADER = 1, RECORD_CTS, RECORD_CREDIT, RECORD_PROBE };

struct header { /* a chunk is in place */
    uint16_t kind;
    uint8_t place; /* in the group */
    uint8_t chunk;
    uint8_t chunks; /* of this message */
    uint8_t reserved[3];
    uint64_t sequence; /* of the receive */
    uint64_t size;     /* of the message, bytes */
    int64_t reserved2;
};

struct offer { /* one receive */
    uint64_t address;
    uint64_t size;
    int32_t tag;
    uint32_t rkey[MAX_RAILS];
    uint32_t reserved;
};

struct cts { /* clear to send */
    uint16_t kind;
    uint8_t count; /* in the group */
    uint8_t reserved[5];
    uint64_t sequence;
    struct offer offer[MAX_GROUP];
};

struct credit {
    uint16_t kind;
    uint16_t count; /* receives posted anew on this queue pair */
    uint32_t reserved;
};

/* Over the control connection: this, then `length` bytes. */
enum control_kind { CONTROL_HELLO = 1, CONTROL_READY, CONTROL_FENCED, CONTROL_REJOIN,
                    CONTROL_ACCEPT, CONTROL_LEAVE, CONTROL_RETURN, CONTROL_BYE };

struct control {
    uint8_t kind;
    uint8_t rail;
    uint16_t reserved;
    uint32_t generation;
    uint32_t length;
    uint32_t bits; /* READY: one for each rail that is connected here. FENCED of a sender: one for each of
                      the SLOTS receives after `posted` whose clear-to-send is here */
    int64_t hold_ns;     /* LEAVE: how long from now */
    uint64_t posted; /* FENCED, BYE of a receiver: its newest receive. FENCED of a sender: the newest one
                        up to which it has all clear-to-sends */
};

_Static_assert(SLOTS <= 32, "a bit each");

struct endpoint { /* one rail: payload of HELLO (one for each rail), REJOIN, ACCEPT */
    uint8_t gid[16];
    uint32_t qpn[MAX_QPS];
    uint16_t lid;
    uint8_t mtu;        /* enum ibv_mtu */
    uint8_t link_layer; /* IBV_LINK_LAYER_… */
    uint32_t qps; /* 0: it has no address now */
    uint32_t psn; /* of the first packet that each of them sends */
};

struct hello {
    uint64_t magic;
    uint64_t cookie; /* of the listener's handle */
    uint32_t version;
    uint32_t rails;
    struct endpoint rail[MAX_RAILS];
};

struct receipt { /* payload of FENCED and BYE: receives that are not complete, and what came of each */
    uint64_t sequence;
    uint64_t got[MAX_GROUP]; /* chunks */
};

#endif
