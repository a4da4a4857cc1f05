/* Communicators that NCCL has initialised. */
#ifndef PROFILER_COMM_H
#define PROFILER_COMM_H

#include <stdint.h>

struct comm {
    uint32_t used;
    uint64_t id;
    uint64_t collectives, p2p; /* begun: sequence numbers of the next ones */
    int32_t rank, ranks;       /* ranks 0: not known, ABI version 2 */
    char name[28];             /* as in struct syn_nccl_operation */
    /* Of the other profiler, if that has the communicator, too. */
    uint32_t has_next;
    void *next;
    int *next_wanted; /* its mask: it may change it at any time */
    int next_mask, next_seen;
};

#endif
