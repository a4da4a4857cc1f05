/* The queue pairs of one rail of one connection, with the memory of the records that they carry. */
#ifndef NET_QUEUES_H
#define NET_QUEUES_H

#include "device.h"
#include "watch.h"
#include "wire.h"

enum { DATA_DEPTH = 128, CTS_DEPTH = 48, MAX_DEPTH = DATA_DEPTH, CREDIT_STEP = DATA_DEPTH / 2,
       CREDITS = DATA_DEPTH - 1 /* one receive is for a probe */ };

enum work_kind { WORK_CHUNK, WORK_OTHER };

struct work { /* posted, and not completed */
    enum work_kind kind;
    unsigned chunk;
    uint64_t sequence;
    uint64_t bytes;
    void *send; /* the struct send of a chunk */
};

struct queue {
    struct ibv_qp *qp;
    struct pair *watched; /* or NULL: nobody is told what it carries */
    unsigned posted;      /* sends ever */
    unsigned outstanding; /* sends not completed */
    unsigned receives;    /* posted and not completed */
    unsigned credits;     /* headers that the peer can take */
    unsigned consumed;    /* headers taken, not yet given back as credits */
    struct work work[MAX_DEPTH];
};

struct queues {
    struct port *port;
    struct ibv_cq *cq; /* NULL after `queues_abandon` */
    struct ibv_mr *mr;
    unsigned char *memory;
    size_t memory_size;
    bool is_sender;
    int qps;
    uint8_t gid_index;
    struct endpoint local, remote;
    uint64_t bytes_outstanding;
    struct queue queue[MAX_QPS];
};

struct completion {
    int queue;
    bool is_receive;
    bool is_write; /* of a chunk whose header follows: completes only if it failed */
    enum ibv_wc_status status;
    struct work work;
    const void *record; /* received; gone with `queues_receive_again` */
    unsigned slot;
};

/* NULL, or what is wrong. */
const char *queues_make(struct queues *queues, struct port *port, int qps, bool is_sender);
/* New queue pairs instead of the old ones, of whose work nothing is outstanding. */
const char *queues_remake(struct queues *queues);
/* Connect them, ready to send, with receives posted. `seed` spreads them over the fabric's paths. */
const char *queues_connect(struct queues *queues, const struct endpoint *remote, uint32_t generation,
                           uint32_t seed, int traffic_class);
/* No work is taken any more, in either direction; what is outstanding will complete. */
void queues_fail(struct queues *queues);
bool queues_drained(const struct queues *queues);
/* Instead of draining: queue pairs that are destroyed write nothing more. False: they could not be. */
bool queues_abandon(struct queues *queues);
void queues_end(struct queues *queues);

/* The queue with the least outstanding that takes another record; -1: none. */
int queues_pick(const struct queues *queues, bool needs_credit);
/* A record, behind `payload` if that is not NULL. An errno; the payload may have been posted even
 * so: the rail has to be left. */
int queues_send(struct queues *queues, int queue, uint32_t generation, const void *record,
                size_t size, struct ibv_send_wr *payload, const struct work *work);
/* Up to `room` completions of this generation. Negative: the completion queue failed. */
int queues_poll(struct queues *queues, uint32_t generation, struct completion *found, int room);
int queues_receive_again(struct queues *queues, int queue, uint32_t generation, unsigned slot);
/* The one of packets, if a communicator wants this one or (negative) none. */
int queues_class(int traffic_class);
uint32_t flow_label(uint32_t seed, uint32_t generation, int queue);

#endif
