/* What NCCL does for a process, operation by operation, in memory that the process owns and its
 * host's agent reads (docs/reference/nccl-profiler.md). The agent copies it with pread and checks
 * every field; a process that writes anything else harms only what is said of itself. */
#ifndef SYN_NCCL_PAGE_H
#define SYN_NCCL_PAGE_H

#include <stdint.h>

/* --- declarations --- */
enum { SYN_NCCL_OPERATIONS = 8192, SYN_NCCL_WAITS = 6, SYN_NCCL_PAGE_VERSION = 1 };

enum syn_nccl_kind { SYN_NCCL_COLLECTIVE = 1, SYN_NCCL_P2P = 2 };

/* What a proxy waits for: the first three send, the others receive. */
enum syn_nccl_wait {
    SYN_NCCL_GPU = 0,     /* the GPU to produce the data */
    SYN_NCCL_CREDIT = 1,  /* the peer to give credit */
    SYN_NCCL_NET = 2,     /* the network to send */
    SYN_NCCL_RECV = 3,    /* data to arrive */
    SYN_NCCL_FLUSH = 4,   /* the flush over PCIe */
    SYN_NCCL_CONSUME = 5, /* the GPU to consume */
};

/* One collective, send or receive of one communicator of this process. Instants are
 * CLOCK_MONOTONIC, 0: not yet. A *part* is a proxy operation (one channel, one direction) or the
 * operation's kernel on one channel. */
struct syn_nccl_operation {
    uint64_t number; /* operations of this process, from 0; all ones while it is being written */
    uint64_t gate;   /* low 16 bits: what is not ended of it, its call and its parts; then 16 bits:
                        threads that write; then the low 32 bits of the number */
    uint64_t comm;   /* NCCL's hash of the communicator, the same on all ranks */
    uint64_t sequence;      /* of this kind in its communicator, from 0 */
    uint64_t nccl_sequence; /* as NCCL counts: each function by itself; 0 of sends and receives */
    uint64_t count;         /* elements */
    int64_t enqueue_ns;
    int64_t started_ns; /* when the first part did */
    int64_t done_ns;    /* when the newest part ended; final once nothing is left */
    int64_t changed_ns; /* when a part last made progress */
    int64_t wait_ns[6]; /* of all proxy operations together: what the oldest step of each was
                           waiting for */
    uint16_t waiting[6]; /* how many proxy operations wait for it now */
    uint16_t sends;      /* proxy operations ever */
    uint16_t receives;
    uint16_t kernels;
    uint16_t kind;
    uint32_t steps; /* transfers that ended */
    int32_t rank;
    int32_t ranks; /* 0: not known, ABI version 2 */
    int32_t peer;  /* of a send or receive; the root of a collective */
    char op[16]; /* as NCCL calls it. All texts end in 0 */
    char datatype[16];
    char algorithm[8];
    char protocol[8];
    char name[28]; /* of the communicator, by the program; may be empty */
    uint64_t reserved[2];
};

struct syn_nccl_page {
    uint64_t magic;
    uint32_t version;
    uint32_t size;
    uint64_t begun;     /* operations ever; number k is at k % 8192 until it is overwritten */
    uint64_t left_out;  /* parts and steps for which there was no place: waits are incomplete */
    uint32_t abi;       /* version of the table that NCCL uses */
    uint32_t reserved;
    uint64_t reserved2[3];
    struct syn_nccl_operation operations[8192];
};
/* --- end of declarations --- */

static const uint64_t SYN_NCCL_MAGIC = UINT64_C(0x31304c434e4e5953); /* "SYNNCL01" */

_Static_assert(sizeof(struct syn_nccl_operation) == 256, "layout");
_Static_assert(sizeof(struct syn_nccl_page) == 64 + 256 * SYN_NCCL_OPERATIONS, "layout");

#endif
