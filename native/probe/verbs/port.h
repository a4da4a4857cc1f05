/* Inside of this folder. */
#ifndef SYN_VERBS_PORT_H
#define SYN_VERBS_PORT_H

#include "queue.h"
#include "verbs.h"

/* The NIC's own clock in the host's: completions are stamped in its ticks. */
struct syn_tick_clock {
    uint64_t mask; /* 0: it stamps nothing */
    double ns_per_tick;
    uint64_t ticks, old_ticks;
    int64_t real_ns, old_real_ns; /* when they were read; the older pair tells the rate */
};

struct syn_verbs_port {
    struct ibv_context *context;
    struct ibv_pd *pd;
    struct syn_tick_clock ticks;
    union ibv_gid gid;
    uint8_t number, gid_index;
    uint16_t lid;
    int infiniband;
    size_t mtu_bytes;
    char name[80];
};

/* ticks.c */
void syn_ticks_open(struct syn_verbs_port *port);
/* Read both clocks again, if that was long ago. */
void syn_ticks_keep(struct syn_verbs_port *port);
int64_t syn_ticks_to_real_ns(const struct syn_tick_clock *clock, uint64_t ticks);

#endif
