/* The initiator's side of one probed path: probes in flight, what becomes of each. Pure: time and
 * stamps are arguments, finished probes go to a sink. */
#ifndef SYN_FLOW_H
#define SYN_FLOW_H

#include "ring.h"
#include "syn_packet.h"
#include "syn_probe.h"

/* Where finished probes go. */
struct syn_sink {
    struct syn_ring *ring;
    struct syn_probe_counters *counters;
};

/* How late this engine has been: probes in flight across a change were disturbed by ourselves. */
struct syn_stall {
    uint32_t mark;    /* changes with every grave stall and every receive overflow */
    int64_t total_ns; /* extends the patience with probes in flight */
};

struct syn_slot {
    uint32_t seq;
    uint32_t stall_mark;
    uint16_t flags;
    uint8_t state;
    uint8_t fate; /* of the request, as far as the reflector's bitmap shows */
    int64_t sent_mono_ns;
    int64_t stall_base_ns;
    int64_t sent_ns, t1_ns, t2_ns, t3_ns, t4_ns;
};

struct syn_flow {
    struct syn_probe_flow config;
    uint32_t nic_id;
    int hardware; /* local stamps are the NIC's own */
    size_t socket;
    uint64_t epoch;
    int64_t timeout_ns;
    int64_t follow_ns; /* patience with the follow-up of an answered probe */
    int64_t due_ns;    /* monotonic instant of the next pair */
    uint32_t next_seq;
    uint32_t tail_seq; /* oldest probe not yet finished */
    uint32_t mask;
    struct syn_slot *slots;
};

enum syn_verdict { SYN_ACCEPTED, SYN_LATE, SYN_DUPLICATE, SYN_UNSOLICITED };

/* Room for `timeout_ns` of probes. Whether memory sufficed. */
int syn_flow_open(struct syn_flow *flow, const struct syn_probe_flow *config, uint64_t epoch,
                  int64_t timeout_ns);
void syn_flow_close(struct syn_flow *flow);

/* Whether another pair may be put in flight. */
int syn_flow_has_room(const struct syn_flow *flow);
/* Two sequence numbers were used, the first `sent` of them reached the wire. */
void syn_flow_sent(struct syn_flow *flow, unsigned sent, int64_t now_mono_ns, int64_t now_local_ns,
                   const struct syn_stall *stall, struct syn_sink *sink);
void syn_flow_stamp(struct syn_flow *flow, uint32_t seq, int64_t t1_ns, struct syn_sink *sink);
enum syn_verdict syn_flow_reply(struct syn_flow *flow, const struct syn_packet *reply,
                                int64_t t4_ns, const struct syn_stall *stall,
                                struct syn_sink *sink);
/* Finish probes whose time is up. */
void syn_flow_sweep(struct syn_flow *flow, int64_t now_mono_ns, const struct syn_stall *stall,
                    struct syn_sink *sink);

#endif
