/* Inside of this folder. */
#ifndef SYN_VERBS_PORT_H
#define SYN_VERBS_PORT_H

#include "queue.h"
#include "ticks.h"
#include "verbs.h"

/* Of the RDMA device. It outlives the port: a NIC that is attached again is still on its time. */
struct syn_verbs_clock {
    struct syn_tick_clock ticks;
    int64_t began_raw_ns;
    int in_force; /* queue pairs were opened to be stamped by it */
    char device[80];
    char fault[SYN_TICKS_FAULT_BYTES]; /* what was last found wrong with it; empty: nothing */
};

struct syn_verbs_port {
    struct ibv_context *context;
    struct ibv_pd *pd;
    struct syn_verbs_clock *clock;
    union ibv_gid gid;
    uint8_t number, gid_index;
    uint16_t lid;
    int infiniband;
    size_t mtu_bytes;
    char name[80];
};

/* clock.c */
/* A clock that has failed is used again when nothing was found wrong with it for so long. */
extern int64_t syn_verbs_probation_ns;
/* Find out whether the port's completions can be stamped by the device. */
void syn_verbs_clock_open(struct syn_verbs_port *port);
/* Of a completion of which this is the counter, just polled; 0: there is none. */
int64_t syn_verbs_clock_stamp_ns(const struct syn_verbs_clock *clock, uint64_t ticks);
/* Why the NIC must be attached again for its clock's sake; NULL: it need not. */
const char *syn_verbs_clock_change(const struct syn_verbs_clock *clock);

#endif
