/* Figures of each queue pair of a process, in memory that the process owns and its host's agent
 * reads (docs/reference/verbs-telemetry.md). The agent copies it with pread and checks every field;
 * a process that writes anything else harms only what is said of itself. */
#ifndef SYN_QP_PAGE_H
#define SYN_QP_PAGE_H

#include <stdint.h>

/* --- declarations --- */
enum { SYN_QP_SLOTS = 256, SYN_QP_STAMPS = 128, SYN_QP_RINGS = 3, SYN_QP_PAGE_VERSION = 1 };

/* Rings of a slot. */
enum syn_qp_ring {
    SYN_QP_SENT = 0,      /* a message is about to be posted; value: its bytes */
    SYN_QP_RECEIVED = 1,  /* a message's receive completion was polled; value: its bytes */
    SYN_QP_COMPLETED = 2, /* a send completion was polled; value: ns since it was posted, at most
                             2^32 - 1 */
};

enum syn_qp_state { SYN_QP_FREE = 0, SYN_QP_READY = 1, SYN_QP_FAILED = 2 };

/* What makes a slot's figures incomplete, or unfit for pairing. */
enum syn_qp_flag {
    SYN_QP_SENDS_INEXACT = 1,    /* two threads posted at once, or more than 64 in one go */
    SYN_QP_RECEIVES_INEXACT = 2, /* two threads polled the receives' completion queue at once */
    SYN_QP_SHARED_RECEIVES = 4,  /* receives come from a shared receive queue: not counted */
    SYN_QP_NO_LENGTHS = 8,       /* the completion queue does not tell lengths of receives */
};

/* One message of a ring. `number` counts the ring's kind of messages since the generation began,
 * from 0, its low 32 bits. Both ends of a queue pair stamp message k only if k is a multiple of a
 * power of two that each adapts to its rate, so that they have most of them in common. */
struct syn_qp_stamp {
    int64_t at_ns; /* CLOCK_MONOTONIC */
    uint32_t number;
    uint32_t value;
};

/* One queue pair since it last became ready to receive. Counts only grow, and begin at 0 with each
 * generation. */
struct syn_qp_slot {
    uint32_t sequence; /* odd while what is up to `device` changes */
    uint16_t state;
    uint16_t type;       /* enum ibv_qp_type */
    uint64_t generation; /* another one, never 0, each time a queue pair becomes ready to receive */
    int64_t began_ns;    /* CLOCK_MONOTONIC */
    uint32_t number;     /* of the queue pair, and of its peer; 0: it has none */
    uint32_t peer_number;
    uint32_t send_psn; /* first packet numbers: both ends agree on them */
    uint32_t receive_psn;
    uint8_t local[16]; /* GIDs; 0 without a global route */
    uint8_t remote[16];
    char device[24]; /* ends in 0 */
    uint64_t flags;
    uint64_t reserved[3];

    uint64_t sent;       /* messages that take a receive at the peer: sends, writes with immediate */
    uint64_t unannounced; /* writes, reads, atomics: the peer's process does not see their end */
    uint64_t bytes_posted; /* of both */
    uint64_t signaled;     /* work requests that will have a completion */
    int64_t posted_ns;     /* CLOCK_MONOTONIC, the newest; 0: none yet */
    int64_t first_sent_ns; /* of message 0; 0: none yet */
    uint64_t reserved2[2];

    uint64_t received; /* messages */
    uint64_t bytes_received;
    uint64_t receives_posted; /* what is not received yet of them is the peer's credit */
    int64_t received_ns;
    uint64_t completed; /* send completions without error */
    int64_t completed_ns;
    uint32_t errors; /* completions with one, flushed ones included */
    uint32_t first_error; /* enum ibv_wc_status */
    uint64_t reserved4;

    uint64_t stamped[3]; /* entries ever written to each ring; the newest is at (stamped - 1) % 128 */
    uint64_t reserved3[5];
};

struct syn_qp_page {
    uint64_t magic;
    uint32_t version;
    uint32_t size;
    uint32_t used;     /* no slot is in use at or after this */
    uint32_t left_out; /* queue pairs for which there was no slot, ever */
    uint64_t reserved[5];
    struct syn_qp_slot slots[256];
    struct syn_qp_stamp rings[256][3][128];
};
/* --- end of declarations --- */

static const uint64_t SYN_QP_MAGIC = UINT64_C(0x31304750514e5953); /* "SYNQPG01" */

_Static_assert(sizeof(struct syn_qp_slot) == 320, "layout");
_Static_assert(sizeof(struct syn_qp_page) == 64 + 320 * SYN_QP_SLOTS + 16 * SYN_QP_SLOTS *
                                                 SYN_QP_RINGS * SYN_QP_STAMPS, "layout");

#endif
