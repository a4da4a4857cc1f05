/* The local agent: what it says about paths, and what it is reported ours. Only the background thread
 * talks to it; NCCL's threads read and write words here. */
#ifndef NET_AGENT_H
#define NET_AGENT_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "pacer.h"

struct agent_flow { /* one rail of one connection */
    atomic_uint_least64_t bytes_done, bytes_outstanding;
    atomic_int_least64_t last_done_ns;
    atomic_uint outstanding, errors, last_error, failed;
    int place; /* the background thread's */
};

/* The background thread: read notices, tell of flows. Returns how many ms it may sleep. */
int agent_look(void);
/* Changes whenever `agent_word` may have changed. */
uint32_t agent_version(void);
struct agent_word { /* about the path between two GIDs: what is in force */
    int64_t held_until_ns; /* CLOCK_MONOTONIC: it is to be left until then; 0: it may be used */
    int64_t avoided_until_ns; /* others are to be used instead until then; 0: it may be used */
    uint32_t moves;        /* how often another way was ordered */
    struct pacer *pacer;   /* the lowest rate for this traffic class; NULL: none */
    int64_t expires_ns;    /* the first of it */
};
struct agent_word agent_word(const uint8_t local[16], const uint8_t remote[16], int traffic_class,
                             int64_t now_ns);
/* NULL: all places are taken; every use of it does nothing then. */
struct agent_flow *agent_open_flow(uint32_t qpn, const uint8_t local[16], const uint8_t remote[16],
                                   const char *nic);
void agent_close_flow(struct agent_flow *flow);

#endif
