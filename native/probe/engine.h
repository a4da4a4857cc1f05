/* Inside of the engine, shared by its files: setup, plan, loop, transfer, readout. */
#ifndef SYN_ENGINE_H
#define SYN_ENGINE_H

#include <pthread.h>
#include <stdatomic.h>

#include "flow.h"
#include "pair_silence.h"
#include "liveness.h"
#include "priority.h"
#include "session.h"
#include "stamps.h"

enum {
    SYN_BATCH = 32,       /* packets per system call */
    SYN_SENT_RING = 512,  /* packets per socket whose stamp may be outstanding */
    SYN_HEARD_ROWS = 2048,
    SYN_PEER_KEYS = 2,
};

#define SYN_NO_SESSION UINT32_MAX

/* The keys shared with the host of a remote NIC. */
struct syn_peer {
    uint32_t nic_id;
    uint32_t key_count;
    struct syn_packet_key keys[SYN_PEER_KEYS]; /* the one to send with first */
};

/* Whose packet a transmit stamp belongs to: a flow by its id, or a reflector session by its place. */
struct syn_sent {
    uint32_t flow_id;
    uint32_t seq;
    uint32_t session; /* SYN_NO_SESSION: nobody's */
};

struct syn_verbs_port;
struct syn_verbs_clock;
struct syn_verbs_queue;
struct syn_verbs_routes;

struct syn_socket {
    int fd; /* -1: closed, as its NIC is not attached or another program has the port */
    struct syn_verbs_queue *queue; /* over verbs; fd is its completion channel's */
    uint32_t nic;
    int reflector;
    int wanted; /* by the flows being set */
    uint16_t port;
    uint32_t next_id;     /* of the next packet handed to the kernel */
    uint32_t stamped_ids; /* every id below has its stamp, or will never have one */
    int64_t unsure_until_ns; /* monotonic: stamps of before a re-arm may still come */
    uint32_t overflow;
    struct syn_sent sent[SYN_SENT_RING];
};

struct syn_engine_flow {
    struct syn_flow flow;
    struct sockaddr_storage destination;
    socklen_t destination_length;
    struct syn_socket *socket;
};

struct syn_nic {
    struct syn_probe_nic config;
    struct syn_verbs_port *port;        /* over verbs, while attached */
    struct syn_verbs_clock *clock;      /* of its device, once it has been attached */
    struct syn_verbs_endpoint endpoint; /* offered; over UDP */
    struct syn_probe_nic_status status;
    unsigned ifindex;
    int attached;  /* its reflector is open */
    uint64_t turn; /* of the loop in which it last sent a pair */
};

struct syn_inbox {
    uint8_t data[SYN_BATCH][SYN_PACKET_BYTES + 8]; /* longer packets show as truncated */
    uint8_t control[SYN_BATCH][SYN_CONTROL_BYTES] __attribute__((aligned(8)));
    struct sockaddr_storage from[SYN_BATCH];
    struct iovec vectors[SYN_BATCH];
    struct mmsghdr messages[SYN_BATCH];
};

struct syn_outbox {
    uint8_t data[SYN_BATCH][SYN_PACKET_BYTES];
    uint8_t control[SYN_BATCH][64] __attribute__((aligned(8)));
    struct iovec vectors[SYN_BATCH];
    struct mmsghdr messages[SYN_BATCH];
    struct syn_sent sent[SYN_BATCH];
};

struct syn_watch {
    struct syn_probe_flow config;
    uint32_t wire_id; /* of its packets: no flow's id; the low bits are its place in `slots` */
    uint64_t epoch;
    struct syn_socket *socket;
    struct sockaddr_storage destination;
    socklen_t destination_length;
    int64_t due_ns;   /* these three: monotonic */
    int64_t heard_ns;
    int64_t row_ns;   /* the first reply of those in a row */
    uint32_t pair;    /* its place in `pairs` */
    uint32_t rank;    /* among its pair's */
    uint32_t burst;   /* probes of a burst that are still to be sent */
    struct syn_liveness live;
};

/* All watched flows between two NICs. */
struct syn_watch_pair {
    uint32_t nic, dst_nic_id;
    uint32_t flows;
    struct syn_pair_silence silence;
};

struct syn_watches {
    struct syn_watch *set[SYN_MAX_WATCHES]; /* by socket */
    struct syn_watch *slots[SYN_MAX_WATCHES];
    size_t count;
    struct syn_watch_pair pairs[SYN_MAX_WATCHES];
    size_t pair_count;
    uint32_t tag;
    int event_fd;
    int64_t phase_ns;
    int64_t next_ns;  /* monotonic: nothing is to be done before */
    int64_t seen_ns;  /* monotonic instant of this turn of the loop */
    int64_t awake_ns; /* the awake clock then */
    struct syn_liveness_event events[SYN_LIVENESS_EVENTS];
    size_t reported, taken;
};

/* A packet that is authentic and for the NIC it came to. */
struct syn_arrival {
    const struct syn_peer *peer;
    struct syn_packet packet;
    int64_t stamp_ns;
    int late; /* this engine came to read it late */
};

/* A NIC that is asked where it takes probes over verbs. */
struct syn_meeting {
    uint32_t nic, dst_nic_id;
    uint32_t seq; /* of the question; 0: it has been answered */
    struct syn_verbs_endpoint answer;
};

struct syn_probe_engine {
    /* Held by the loop except while it waits. It passes on priority: who waits for it gets it when
     * it is released, even from a thread of higher priority that wants it back at once. */
    pthread_mutex_t lock;
    pthread_t thread;
    int running;
    int stop;
    int epoll_fd, wake_fd;
    int coarse_wait; /* kernel without epoll_pwait2 */

    struct syn_probe_options options;
    struct syn_clock *clock;
    struct syn_nic *nics;
    size_t nic_count;
    struct syn_socket **sockets;
    size_t socket_count;

    struct syn_peer *peers; /* by NIC */
    size_t peer_count;
    struct syn_engine_flow **flows; /* a binary heap, earliest due first */
    size_t flow_count;
    unsigned generation; /* of the sockets: events of an older one may point nowhere */
    struct syn_engine_flow **flow_table; /* by flow id, open addressing */
    size_t flow_table_mask;
    uint64_t last_epoch;

    struct syn_sessions sessions;
    struct syn_probe_heard *heard; /* open addressing; requests == 0: free */
    struct syn_watches watches;
    struct syn_priority priority;
    struct syn_ring ring;
    struct syn_probe_counters counters;
    struct syn_stall stall;
    int64_t deadline_ns;  /* when the loop next has something to do */
    int64_t turned_ns;    /* when it last was awake */
    int64_t allowed_ns;   /* earliest instant of the next pair */
    int64_t next_sweep_ns;
    int64_t window_end_ns; /* of the packet count that decides whether to gather */
    unsigned taken_in;
    int loaded;
    int64_t hasty_until_ns; /* somebody watches a path to us: replies are prompt */
    int calm; /* nobody waits for what is sent in this turn: no watch of ours, none of a peer's */
    uint64_t turns;

    struct syn_meeting *meetings;
    size_t meeting_count;
    uint32_t asked;
    uint64_t asked_epoch;
    struct syn_verbs_routes *routes;

    struct syn_inbox inbox;
    struct syn_outbox outbox;
};

static inline int64_t syn_clock_read(clockid_t id)
{
    struct timespec now;
    clock_gettime(id, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

/* A short stall loses nothing: packets wait in the socket, their stamps are the kernel's, and the
 * patience with probes in flight grows by it. Only a stall that is long against the timeout makes
 * a loss doubtful; an overflowing socket reports itself. */
static inline int64_t syn_grave_stall_ns(const struct syn_probe_engine *engine)
{
    return engine->options.timeout_ns / 4;
}

static inline struct syn_sink syn_sink_of(struct syn_probe_engine *engine)
{
    return (struct syn_sink){&engine->ring, &engine->counters};
}

static inline size_t syn_flow_hash(uint32_t flow_id)
{
    return (size_t)((flow_id * UINT64_C(0x9e3779b97f4a7c15)) >> 32);
}

/* setup.c */
void syn_engine_visit(struct syn_probe_engine *engine);
void syn_engine_leave(struct syn_probe_engine *engine);
void syn_engine_wake(struct syn_probe_engine *engine);
/* NULL: no key is shared with that NIC's host. */
const struct syn_peer *syn_find_peer(const struct syn_probe_engine *engine, uint32_t nic_id);
/* A closed one; NULL with a sentence in message. */
struct syn_socket *syn_add_socket(struct syn_probe_engine *engine, uint32_t nic, uint16_t port,
                                  int reflector, char *message);
void syn_close_socket(struct syn_socket *socket);
/* 0 with a sentence: it stays closed. */
int syn_reopen_socket(struct syn_probe_engine *engine, struct syn_socket *socket, char *message);

/* watch.c */
int syn_watches_open(struct syn_watches *watches);
void syn_watches_close(struct syn_watches *watches);
void syn_watches_want_sockets(struct syn_watches *watches);
/* A turn of the loop begins that was to begin at `deadline_ns`. */
void syn_watches_wake(struct syn_watches *watches, int64_t deadline_ns, int64_t now_ns);
int64_t syn_watches_next_ns(const struct syn_probe_engine *engine);
void syn_watches_serve(struct syn_probe_engine *engine);
/* Whether the reply is to a watch. */
int syn_watches_reply(struct syn_probe_engine *engine, const struct syn_packet *reply);
/* The plan has changed: no two may have one name on the wire. */
void syn_watches_rename(struct syn_probe_engine *engine);

/* plan.c */
int syn_flow_fits(const struct syn_probe_engine *engine, const struct syn_probe_flow *flow,
                  char *message);
/* The socket of the flow's source port, opened if it can be; NULL for want of memory. Where it is
 * closed, a sentence says why, unless its NIC is not attached. */
struct syn_socket *syn_flow_socket(struct syn_probe_engine *engine,
                                   const struct syn_probe_flow *flow, char *message);
uint64_t syn_new_epoch(struct syn_probe_engine *engine);
/* Close the sockets that neither flows nor watches need. */
void syn_keep_wanted_sockets(struct syn_probe_engine *engine);
void syn_free_flow(struct syn_engine_flow *flow);
struct syn_engine_flow *syn_find_flow(const struct syn_probe_engine *engine, uint32_t flow_id);

/* loop.c */
void *syn_engine_run(void *engine);
void syn_heap_build(struct syn_probe_engine *engine);
int64_t syn_phase_ns(const struct syn_probe_flow *flow);
/* Every flow's first slot lies ahead: time without keys or thread was nobody's delay. */
void syn_begin_sending(struct syn_probe_engine *engine);

/* exchange.c */
struct syn_packet syn_request(const struct syn_flow *flow); /* all but its sequence number */
const struct syn_packet_key *syn_key_of(const struct syn_peer *peer, uint32_t id);
/* Whether this is an authentic packet for that NIC: then all but stamp and lateness is filled in. */
int syn_admit(struct syn_probe_engine *engine, uint32_t nic, const uint8_t *data, size_t length,
              struct syn_arrival *arrival);
/* Whether `out` now holds the reply, as a packet, and `sent` whose it is. */
int syn_reflect(struct syn_probe_engine *engine, uint32_t nic, const struct syn_arrival *arrival,
                uint8_t *out, struct syn_sent *sent);
void syn_accept_reply(struct syn_probe_engine *engine, const struct syn_arrival *arrival);
/* The transmit stamp of what was sent from that socket. */
void syn_stamp_sent(struct syn_probe_engine *engine, const struct syn_socket *socket,
                    const struct syn_sent *sent, int64_t stamp_ns);

/* meeting.c */
int syn_tell(struct syn_probe_engine *engine, uint32_t nic, const struct syn_arrival *arrival,
             uint8_t *out, struct syn_sent *sent);
void syn_be_told(struct syn_probe_engine *engine, uint32_t nic, const struct syn_arrival *arrival);

/* verbs/plane.c, or without_verbs.c; the engine is one over verbs */
/* SYN_OK, or an error with a sentence. */
int syn_verbs_attach(struct syn_probe_engine *engine, uint32_t nic, char *message);
void syn_verbs_detach(struct syn_probe_engine *engine, uint32_t nic);
int syn_verbs_reopen_socket(struct syn_probe_engine *engine, struct syn_socket *socket,
                            char *message);
void syn_verbs_close_socket(struct syn_socket *socket);
void syn_verbs_close(struct syn_probe_engine *engine);
void syn_verbs_send_pair(struct syn_probe_engine *engine, struct syn_engine_flow *flow,
                         int64_t now_ns);
void syn_verbs_receive(struct syn_probe_engine *engine, struct syn_socket *socket);

/* transfer.c */
void syn_address_message(struct syn_outbox *box, unsigned at, struct sockaddr_storage *to,
                         socklen_t length, const struct syn_packet *packet);
/* The kernel neither stamps nor numbers message `at`, which has been addressed. */
void syn_without_stamp(struct syn_outbox *box, unsigned at);
/* A packet that the kernel neither stamps nor numbers. */
void syn_send_unstamped(struct syn_probe_engine *engine, const struct syn_socket *socket,
                        const uint8_t *data, struct sockaddr_storage *to, socklen_t length);
void syn_send_pair(struct syn_probe_engine *engine, struct syn_engine_flow *flow, int64_t now_ns);
/* One batch; whether there may be more. */
int syn_receive(struct syn_probe_engine *engine, struct syn_socket *socket);
/* The number of messages taken off the socket's error queue. */
int syn_read_sent_stamps(struct syn_probe_engine *engine, struct syn_socket *socket);

#endif
