/* Packets that are late: kept on their way until what they were sent for has completed otherwise, and its buffer has
 * other contents. */
#ifndef NCCL_LATE_H
#define NCCL_LATE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

/* Of a rail that a completion error, or a notice, tells the sender to leave. Acknowledgements: and clear-to-sends. */
enum late { LATE_DATA_ERROR, LATE_DATA_NOTICE, LATE_ACKS_ERROR, LATE_ACKS_NOTICE, LATE_KINDS };

struct progress {
    atomic_int *completed; /* messages, at the receiver */
    atomic_bool *ended;
    int again; /* so many messages after its own each buffer has other contents */
};

/* One of a kind, on a random rail, once both rails carry. Until its packets have arrived neither end's NIC lets go of
 * the queue pairs that they are for. */
void late_inject(enum late kind, uint64_t *random, const struct progress *progress);

#endif
