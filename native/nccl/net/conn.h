/* One connection: messages in one direction over the rails of a group. Owned by NCCL's thread. */
#ifndef NET_CONN_H
#define NET_CONN_H

#include "agent.h"
#include "build.h"
#include "device.h"
#include "link.h"
#include "messages.h"
#include "queues.h"
#include "rail.h"

struct memory { /* registered with each rail of a group */
    struct ibv_mr *mr[MAX_RAILS];
    bool is_device; /* of a GPU */
};

struct conn {
    bool is_sender;
    const char *problem; /* it ended; NULL: it works */
    struct group group;  /* of this many rails are used: */
    int rails;
    uint32_t seed;
    int traffic_class;
    struct link link;
    struct rail rail[MAX_RAILS];
    struct queues queues[MAX_RAILS];
    struct build build[MAX_RAILS]; /* while one runs, its queues are not touched */
    struct way { uint8_t local[16], remote[16]; } way[MAX_RAILS]; /* GIDs, as last connected */
    struct agent_flow *flow[MAX_RAILS];
    unsigned given_up; /* a bit for each rail that is not used any more */
    unsigned failures[MAX_RAILS]; /* of the rail's port, as last looked at */
    uint64_t bytes_done[MAX_RAILS];
    bool finished[MAX_RAILS]; /* something, since the flow last reported */
    int probes[MAX_RAILS]; /* arrived in this generation */
    bool owes_credit[MAX_RAILS]; /* receiver: as much as is worth a record */
    uint64_t report_posted[MAX_RAILS]; /* of the peer, which comes with its word that it is fenced */
    uint32_t report_bits[MAX_RAILS]; /* of a sender */
    size_t reports[MAX_RAILS];       /* of a receiver */
    struct receipt report[MAX_RAILS][SLOTS];
    bool rejoining[MAX_RAILS]; /* receiver: asked for by `rejoin`, not yet done */
    struct endpoint rejoin[MAX_RAILS];
    union {
        struct sender sender;
        struct receiver receiver;
    };
    uint32_t agent_seen;
    int64_t agent_expires_ns; /* the first of what the agent has said */
    uint32_t moves[MAX_RAILS]; /* orders to move, of the agent, that are known */
    bool is_ordered; /* how to send: one of the next two says something */
    struct pacer *pacer[MAX_RAILS]; /* or NULL */
    int64_t avoided_until_ns[MAX_RAILS]; /* an order to send by other rails until then */
    bool looked_at_agent;
    bool peer_ended;
    int64_t closed_ns, dark_ns; /* since when the control connection, or every rail, is gone; 0 */
    int64_t watched_ns; /* when rails were last looked at */
    uint64_t ticks;
    int64_t about_ns;  /* the time, as last looked at, right to some milliseconds */
    int64_t looked_ns; /* the same when the control connection was looked at */
    uint64_t fences, replayed; /* for the last line of the log */
    const char *said[MAX_RAILS]; /* in the log: why the rail does not return; NULL: nothing */
};

/* Rails and link are set up; `connected`: a bit for each rail that is, at both ends. */
void conn_begin(struct conn *conn, unsigned connected);
/* Memory cannot be registered with this rail: it is not used any more. False: it is in use. */
bool conn_give_up_rail(struct conn *conn, int r);
bool conn_works(const struct conn *conn);
/* Do what there is to do; false: the connection has ended, and `problem` says why. */
bool conn_progress(struct conn *conn);
/* Of the sender: false if the size is more than the receive offers. NULL in `send`: later. */
bool conn_send(struct conn *conn, const void *data, uint64_t size, int tag, struct memory *memory,
               struct send **send);
/* Of the receiver: NULL: later. */
struct receive *conn_receive(struct conn *conn, int count, void **data, const size_t *sizes,
                             const int *tags, void **memories);
/* Close it, and free it. */
void conn_end(struct conn *conn);
/* Its queue pairs end before this returns, but for those that the kernel may be long in: of rails that are being
 * connected, or are left. They end, and it is freed, in a thread. They write nothing of NCCL's: no sender has a
 * receiver's before they are connected, and those of a rail that a receiver has left are drained. */
void conn_free(struct conn *conn);

#endif
