/* What the kernel says of TCP connections and MPTCP subflows, by sock_diag (linux/inet_diag.h).
 * A dump walks the whole hash table of the kernel and is for finding flows; the flows found are then
 * asked for one by one, in batches (docs/decisions/0066).
 * Everything between the two markers is read by Python's cffi. */
#ifndef SYN_FLOWS_H
#define SYN_FLOWS_H

#include <stddef.h>
#include <stdint.h>

#pragma GCC visibility push(default)

/* --- declarations --- */
struct syn_flow_sample {
    uint64_t cookie;         /* of the socket: never used twice */
    uint64_t bytes_acked;
    uint64_t bytes_received;
    uint64_t pacing_rate;    /* bytes/s */
    uint64_t delivery_rate;  /* bytes/s */
    uint64_t busy_us;        /* with data under way or waiting to be, since the flow began; in ticks */
    uint64_t window_limited_us; /* of that, waiting for the peer to open its window; in ticks */
    uint32_t ifindex;
    uint32_t inode;          /* 0: no process holds it */
    uint32_t token;          /* of its MPTCP connection, local; 0: plain TCP */
    uint32_t unacked;        /* segments */
    uint32_t notsent_bytes;
    uint32_t retransmits;    /* since the flow began */
    uint32_t last_ack_ms;    /* since the newest acknowledgement came */
    uint32_t last_sent_ms;   /* since data were sent */
    uint32_t rtt_us;
    uint32_t rttvar_us;
    uint32_t rto_us;
    uint32_t snd_wnd;        /* the peer's window, bytes; 0 on kernels before 5.4 */
    uint8_t local[16];
    uint8_t remote[16];
    uint16_t local_port;
    uint16_t remote_port;
    uint8_t family;          /* 4 or 6, of the socket */
    uint8_t state;           /* TCP_ESTABLISHED is 1; 0: gone */
    uint8_t backoff;         /* retransmission timeouts in a row, now */
    uint8_t window_probes;   /* probes of a closed window, unanswered */
    uint8_t local_id;        /* MPTCP's id of the local address; 0: the connection's first */
    int8_t dscp;             /* of what it sends, 0 to 63; -1: the kernel does not say */
    uint8_t unused[6];       /* numpy's copies have no padding */
};

struct syn_flow_owner {
    uint64_t cookie;
    uint32_t token;
    uint32_t inode;
};

struct syn_flows;

/* Asks the namespace of the calling thread. NULL with errno set. */
struct syn_flows *syn_flows_open(void);
void syn_flows_close(struct syn_flows *flows);
/* All sockets of a family (4 or 6) in one of the states (a bit each) that pass the kernel's filter
 * (INET_DIAG_BC_...; may be NULL). Fills at most `room` and returns how many there are, or -errno. */
int64_t syn_flows_find(struct syn_flows *flows, uint8_t family, uint32_t states,
                       const uint8_t *filter, size_t filter_bytes, struct syn_flow_sample *out,
                       size_t room);
/* Sample those in `samples` anew, in place; one that is gone has state 0 and keeps its last numbers.
 * 0 or -errno. */
int syn_flows_sample(struct syn_flows *flows, struct syn_flow_sample *samples, size_t count);
/* MPTCP connections: whose socket a token is. As syn_flows_find. */
int64_t syn_flows_owners(struct syn_flows *flows, uint8_t family, struct syn_flow_owner *out,
                         size_t room);
/* One message's payload, without its netlink header; 1, or 0 if it is malformed. */
int syn_flow_parse(const uint8_t *data, size_t length, struct syn_flow_sample *out);
int syn_flow_parse_owner(const uint8_t *data, size_t length, struct syn_flow_owner *out);
/* --- end of declarations --- */

#pragma GCC visibility pop

#endif
