/* The queue pairs of one rail of one connection, with the memory of the records that they carry. */
#ifndef NET_QUEUES_H
#define NET_QUEUES_H

#include "device.h"
#include "watch.h"
#include "wire.h"

enum { DATA_DEPTH = 128, CTS_DEPTH = 48, MAX_DEPTH = DATA_DEPTH, CREDIT_STEP = DATA_DEPTH / 2,
       CREDITS = DATA_DEPTH - 1 /* one receive is for a probe */,
       DATA_SLOT = 64, CTS_SLOT = (sizeof(struct cts) + 63) / 64 * 64 };
_Static_assert(sizeof(struct header) <= DATA_SLOT, "fits");
/* Of a receiver's records not read: clear-to-sends of different receives, a probe, and credits of CREDIT_STEP
 * headers each. */
_Static_assert(CTS_DEPTH >= SLOTS + 1 + CREDITS / CREDIT_STEP, "a sender has room");

struct work { /* posted, and not completed */
    void *send; /* the struct send of a chunk; NULL: of another record */
    uint64_t sequence;
    uint32_t bytes;
    uint8_t chunk;
};

struct queue {
    struct ibv_qp *qp;
    struct pair *watched; /* or NULL: what it carries is not reported */
    unsigned char *send_memory, *receive_memory;
    /* Work requests and their memory, of which only what differs is set with each post. */
    struct ibv_send_wr record, write;
    struct ibv_recv_wr receive;
    struct ibv_sge record_sge, write_sge, receive_sge;
    unsigned slot;        /* of the next send */
    unsigned outstanding; /* sends not completed */
    unsigned receives;    /* posted and not completed */
    unsigned credits;     /* headers that the peer can take */
    unsigned consumed;    /* headers taken, not yet given back as credits */
    struct work work[MAX_DEPTH];
};

struct queues {
    struct port *port;
    struct ibv_cq *cq; /* of these queue pairs alone */
    struct ibv_mr *mr;
    unsigned char *memory;
    size_t memory_size;
    bool is_sender;
    int qps;
    uint8_t gid_index;
    const char *no_address; /* why the port had none when the queue pairs were made; NULL: it had */
    struct endpoint local, remote;
    uint64_t bytes_outstanding;
    struct queue queue[MAX_QPS];
};

struct completion {
    int queue;
    bool is_receive;
    enum ibv_wc_status status;
    const struct work *work; /* NULL: a receive, or the write of a chunk whose header follows: that
                                completes only if it failed */
    const void *record; /* received; gone with `queues_receive_again` */
    unsigned slot;
};

/* NULL, or what is wrong. That the port has no address is not: later it may. */
const char *queues_make(struct queues *queues, struct port *port, int qps, bool is_sender);
/* New queue pairs instead of the old ones, and a new completion queue: whether completions of queue pairs
 * that are destroyed stay in theirs, and take its room, differs between providers. Without an address they
 * are of no use. */
const char *queues_remake(struct queues *queues);
/* Connect them, ready to send, with receives posted. `seed` spreads them over the fabric's paths. */
const char *queues_connect(struct queues *queues, const struct endpoint *remote, uint32_t generation,
                           uint32_t seed, int traffic_class);
/* No work is taken any more, in either direction; what is outstanding will complete. */
void queues_fail(struct queues *queues);
bool queues_drained(const struct queues *queues);
void queues_end(struct queues *queues);

static inline unsigned send_depth(const struct queues *queues)
{
    return queues->is_sender ? DATA_DEPTH : CTS_DEPTH;
}

static inline unsigned send_slot(const struct queues *queues)
{
    return queues->is_sender ? DATA_SLOT : CTS_SLOT;
}

/* The queue with the least outstanding that takes another record; -1: none. */
static inline int queues_pick(const struct queues *queues, bool needs_credit)
{
    int best = -1;
    unsigned least = send_depth(queues);
    for (int i = 0; i < queues->qps; i++) {
        const struct queue *queue = &queues->queue[i];
        if (queue->outstanding < least && (queue->credits || !needs_credit)) {
            least = queue->outstanding;
            best = i;
        }
    }
    return best;
}

/* Memory of the record that a queue sends next; NULL: it takes none now. */
static inline void *queues_record(const struct queues *queues, int queue)
{
    const struct queue *one = &queues->queue[queue];
    return one->outstanding < send_depth(queues)
               ? one->send_memory + one->slot * (size_t)send_slot(queues) : NULL;
}

/* What is written to the peer ahead of a record. */
struct payload {
    const void *data;
    uint32_t size, lkey, rkey;
    uint64_t address;
};

/* That record, behind `payload` if that is not NULL; `about_ns` is the time, right to some
 * milliseconds. An errno; the payload may have been posted even so: the rail has to be left. */
int queues_send(struct queues *queues, int queue, size_t size, const struct payload *payload,
                const struct work *work, int64_t about_ns);
/* Up to `room` completions. Negative: the completion queue failed. */
int queues_poll(struct queues *queues, struct ibv_wc *wc, int room);
/* Decode one of them. */
void queues_completed(struct queues *queues, const struct ibv_wc *wc, int64_t about_ns,
                      struct completion *completion);
int queues_receive_again(struct queues *queues, int queue, unsigned slot);
/* The one of packets, if a communicator wants this one or (negative) none. */
int queues_class(int traffic_class);

#endif
