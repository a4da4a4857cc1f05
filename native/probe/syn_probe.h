/* The probe engine: one thread per agent that sends probe pairs, reflects those of others and turns
 * kernel or hardware stamps into one record per probe (docs/decisions/0010).
 * Everything between the two markers is read by Python's cffi. */
#ifndef SYN_PROBE_H
#define SYN_PROBE_H

#include "syn_clock.h"

#pragma GCC visibility push(default)

/* --- declarations --- */
/* What an engine probes over. Over verbs a source port is a queue pair (docs/decisions/0228). */
enum { SYN_PLANE_UDP = 0, SYN_PLANE_VERBS = 1 };

enum { SYN_STAMP_AUTO = 0, SYN_STAMP_HARDWARE = 1, SYN_STAMP_KERNEL = 2 };

/* What went wrong; a sentence comes with it. */
enum {
    SYN_OK = 0,
    SYN_ERROR_USAGE = 1,   /* a value that does not fit */
    SYN_ERROR_MISSING = 2, /* the machine lacks something, or it is taken */
    SYN_ERROR_ABSENT = 3,  /* over verbs: the NIC has no RDMA port */
};

/* What is known about one probe. A lost probe with a STALL flag says nothing about the network. */
enum {
    SYN_LOST_FWD = 1,      /* the request did not arrive */
    SYN_LOST_REV = 2,      /* the request arrived, the reply did not */
    SYN_LOST_UNKNOWN = 4,  /* no reply, and no later packet shows the direction */
    SYN_STALL_LOCAL = 8,   /* this engine was late while the probe was in flight */
    SYN_STALL_REMOTE = 16, /* the reflector was late while the probe was in flight */
    SYN_NO_T1 = 32,
    SYN_NO_T2 = 64,
    SYN_NO_T3 = 128,
    SYN_NO_T4 = 256,
    SYN_HW_LOCAL = 512,   /* t1 and t4 are in the NIC's own clock */
    SYN_HW_REMOTE = 1024, /* t2 and t3 are in the remote NIC's own clock */
    SYN_NOT_SENT = 2048,  /* the kernel refused the request: it says nothing about the network */
};

struct syn_probe_nic {
    uint32_t nic_id;
    uint16_t port;      /* UDP port of its reflector */
    uint8_t family;     /* 4 or 6 */
    uint8_t stamping;   /* SYN_STAMP_... */
    uint8_t address[16];
    char ifname[16];
};

/* What authenticates packets to and from one remote NIC: of its host and this one alone. */
struct syn_probe_peer {
    uint32_t nic_id;
    uint32_t key_id;   /* sent with, and accepted */
    uint32_t other_id; /* accepted as well, while keys are rotated; 0: none */
    uint8_t key[16];
    uint8_t other[16];
};

struct syn_probe_flow {
    uint32_t flow_id;
    uint32_t nic;       /* index of the local NIC */
    uint32_t dst_nic_id;
    uint32_t flow_label;
    uint16_t src_port;
    uint16_t dst_port;
    uint8_t dscp;
    uint8_t family;     /* 4 or 6 */
    uint8_t reserved[2];
    int64_t interval_ns;
    uint8_t dst_address[16];
};

struct syn_probe_options {
    int64_t timeout_ns; /* a probe unanswered for so long is lost */
    int64_t min_gap_ns; /* between two pairs of this engine, whatever the flows ask for */
    int64_t stall_ns;   /* the engine counts itself late beyond this */
    uint32_t ring_records; /* power of two */
    uint32_t plane;        /* SYN_PLANE_... */
};

struct syn_probe_record {
    uint32_t flow_id;
    uint32_t seq;      /* pair id = seq >> 1 */
    uint32_t flags;
    uint32_t nic_id;   /* local NIC */
    uint32_t dst_nic_id;
    uint32_t reserved;
    int64_t sent_ns;   /* host clock when the request was handed to the kernel; never 0 */
    int64_t t1_ns;     /* request sent, local clock; every stamp is 0 if missing */
    int64_t t2_ns;     /* request received, remote clock */
    int64_t t3_ns;     /* reply sent, remote clock */
    int64_t t4_ns;     /* reply received, local clock */
};

struct syn_probe_counters {
    uint64_t sent;         /* requests put on the wire */
    uint64_t replies;      /* replies put on the wire */
    uint64_t received;     /* authentic requests and replies accepted */
    uint64_t malformed;    /* truncated, overlong or not of this protocol */
    uint64_t foreign;      /* unknown key or wrong tag */
    uint64_t replayed;     /* seen before, or of a past epoch */
    uint64_t misdelivered; /* authentic, but for another NIC or flow */
    uint64_t unsolicited;  /* replies nobody waits for */
    uint64_t late;         /* replies to probes already counted lost */
    uint64_t send_errors;  /* packets the kernel refused */
    uint64_t skipped;      /* pairs not sent because their time had passed */
    uint64_t stalls;       /* times the engine itself was late */
    uint64_t stall_ns;     /* by how much, together */
    uint64_t rx_overflow;  /* packets the kernel dropped at a full receive buffer */
    uint64_t ring_dropped; /* records nobody drained in time */
    uint64_t tx_stamp_missing; /* packets sent whose transmit stamp never came */
    uint64_t evicted;      /* reflector sessions or heard rows pushed out by newer ones */
    uint64_t liveness_dropped; /* events of watched paths that nobody took in time */
};

enum { SYN_MAX_WATCHES = 1024, SYN_LIVENESS_EVENTS = 2048 };

/* A watched path died or came to life. Instants are CLOCK_MONOTONIC. */
struct syn_liveness_event {
    int64_t at_ns;
    int64_t since_ns; /* dead: when it last answered; alive: the first reply of the row */
    uint32_t flow_id;
    uint32_t alive;
    uint32_t misses;  /* probes in a row unanswered, or answered */
    uint32_t reserved;
};

struct syn_watch_status {
    uint32_t flow_id;
    uint32_t life;    /* 0: not yet known, 1: alive, 2: dead */
    int64_t heard_ns; /* CLOCK_MONOTONIC of the newest reply */
    int64_t rtt_ns;   /* smoothed */
    int64_t slack_ns; /* silence allowed beyond the probes missed */
    uint32_t suspect; /* all watches between these two NICs are silent: they were asked once more */
    uint32_t unresponsive; /* and have been for 20 ms and six probes (pair_silence.h) */
    int64_t steady_ns; /* monotonic: since when they have not been silent for long; 0: ever */
    int64_t gap_ns;    /* how long they were before */
};

struct syn_probe_heard {
    uint32_t src_nic_id;
    uint32_t dst_nic_id;
    uint64_t requests; /* authentic, since the engine started */
};

struct syn_probe_nic_status {
    uint32_t nic_id;
    int32_t phc_index;  /* -1: none */
    uint8_t hardware;   /* whether hardware stamps are in force */
    char reason[119];   /* one phrase for a person */
};

/* Where a NIC takes probes over verbs. */
struct syn_verbs_endpoint {
    uint32_t nic_id;
    uint32_t qpn; /* of its reflector; 0: there is none */
    uint8_t gid[16];
    uint16_t lid;
    uint8_t known; /* whether its host has answered */
    uint8_t infiniband;
    uint8_t reserved[4];
};

/* How packets of one class and flow label get to a remote NIC. */
struct syn_verbs_route {
    uint32_t nic; /* index of the local NIC */
    uint32_t dst_nic_id;
    uint32_t flow_label;
    uint32_t qpn;
    uint8_t gid[16];
    uint16_t lid;
    uint8_t dscp;
    uint8_t sl;
};

/* The clock of a NIC's RDMA device, read with the host's. It is never set: it runs at the frequency
 * that the device names, from the host's time at its first reading on. */
struct syn_verbs_clock_reading {
    int64_t epoch_ns;       /* that first instant: another one names another epoch; 0: completions
                               are not stamped by the device, all below are 0 */
    int64_t host_ns;        /* host clock, */
    int64_t device_ns;      /* the device's at that instant, */
    int64_t uncertainty_ns; /* to within so much */
    char fault[96];         /* why such a clock is not used, in a phrase; empty: the device has none */
};

struct syn_probe_engine;

/* An engine for `count` NICs, none attached, or NULL with *error and a sentence in message[256].
 * The clock may be NULL (the kernel's own); it must outlive the engine. */
struct syn_probe_engine *syn_probe_open(size_t count, const struct syn_probe_options *options,
                                        struct syn_clock *clock, int *error, char *message);
/* Open NIC `at` (below count) as it is now, or again: its reflector and every source port in use.
 * On an error it is detached. */
int syn_probe_attach(struct syn_probe_engine *engine, size_t at,
                     const struct syn_probe_nic *config, char *message);
/* Close its sockets: flows and watches on it stay, and nothing of theirs is sent. */
void syn_probe_detach(struct syn_probe_engine *engine, size_t at);
/* Whom to speak with, instead of before; each remote NIC once. Nothing is sent to another and
 * nothing of another is accepted. */
int syn_probe_set_peers(struct syn_probe_engine *engine, const struct syn_probe_peer *peers,
                        size_t count, char *message);
/* Replace all flows at once, or none of them on an error; known flow ids keep their state. */
int syn_probe_set_flows(struct syn_probe_engine *engine, const struct syn_probe_flow *flows,
                        size_t count, char *message);
/* Watch these paths for life, and no others, one probe per interval (1 ms at least) each. They are
 * apart from the flows above: other ids on the wire, no records. One that is the same but for its
 * interval keeps its state. One whose source port another program has stays unknown, until the port
 * is free when the set is given again. */
int syn_probe_set_watches(struct syn_probe_engine *engine, const struct syn_probe_flow *flows,
                          size_t count, char *message);
/* Readable while events wait, and when a pair of NICs is suspect or unresponsive as a whole
 * (pair_silence.h, and syn_watch_status); for epoll only. */
int syn_probe_liveness_fd(const struct syn_probe_engine *engine);
/* Move out at most `room` events; the number moved. */
size_t syn_probe_take_liveness(struct syn_probe_engine *engine, struct syn_liveness_event *out,
                               size_t room);
int syn_probe_start(struct syn_probe_engine *engine, char *message);
void syn_probe_close(struct syn_probe_engine *engine);

/* Move out at most `room` records; the number moved. One caller at a time. */
size_t syn_probe_drain(struct syn_probe_engine *engine, struct syn_probe_record *out, size_t room);
size_t syn_probe_pending(struct syn_probe_engine *engine);
void syn_probe_read_counters(struct syn_probe_engine *engine, struct syn_probe_counters *out);
/* These three fill at most `room` rows and return how many there are. */
size_t syn_probe_read_heard(struct syn_probe_engine *engine, struct syn_probe_heard *out,
                            size_t room);
size_t syn_probe_read_nic_status(struct syn_probe_engine *engine,
                                 struct syn_probe_nic_status *out, size_t room);
size_t syn_probe_read_watches(struct syn_probe_engine *engine, struct syn_watch_status *out,
                              size_t room);

/* Of an engine over verbs. One caller of these, of attach, detach and close at a time. */

/* Replace all routes; each is made once, and what is not made is made at the next call. Making one
 * may take a second (the kernel looks for the neighbour) and holds nothing up. Flows without a route
 * are not sent, and requests from where there is none are not answered. How many there are now. */
size_t syn_probe_set_routes(struct syn_probe_engine *engine, const struct syn_verbs_route *routes,
                            size_t count, char *message);
/* Whether NIC `at` is as it was when it was attached; if not, why. */
int syn_probe_check(struct syn_probe_engine *engine, size_t at, char *message);
/* Read the clock of NIC `at`'s device, at least every few seconds: it is watched by this. A clock that
 * fails stamps nothing any more, and `syn_probe_check` says that the NIC must be attached again:
 * without it. */
void syn_probe_read_clock(struct syn_probe_engine *engine, size_t at,
                          struct syn_verbs_clock_reading *out);
/* Fills at most `room` rows, one for each NIC; what is not attached has no queue pair. */
size_t syn_probe_read_endpoints(struct syn_probe_engine *engine, struct syn_verbs_endpoint *out,
                                size_t room);

/* Of an engine over UDP: it sends peers this host's NICs' endpoints for probes over verbs, and asks
 * for theirs. */

/* Of this host's NICs, instead of before; those not listed have none. */
void syn_probe_offer(struct syn_probe_engine *engine, const struct syn_verbs_endpoint *own,
                     size_t count);
/* Ask once for the endpoints of these flows' destinations; earlier answers are discarded. */
int syn_probe_ask(struct syn_probe_engine *engine, const struct syn_probe_flow *flows, size_t count,
                  char *message);
/* Their answers; rows in the order of `syn_probe_ask`'s flows. */
size_t syn_probe_read_answers(struct syn_probe_engine *engine, struct syn_verbs_endpoint *out,
                              size_t room);
/* --- end of declarations --- */

#pragma GCC visibility pop

#endif
