/* The fake provider's NICs and the packets between them. One lock for all; callers hold it. */
#ifndef FAKE_NETWORK_H
#define FAKE_NETWORK_H

#include <infiniband/verbs.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>

#include "fake_verbs.h"

enum { MAX_PAIRS = 1 << 16, MAX_REGIONS = 1 << 14, BASE_DELAY_NS = 5000 };

struct fake_datagram {
    uint32_t qpn, qkey, label;
    uint8_t gid[16], traffic_class, sl;
};

struct packet {
    struct packet *next;
    int64_t due_ns;
    uint32_t psn;
    bool is_ack, is_send, is_read, has_immediate;
    struct fake_datagram datagram; /* qpn 0: it is none */
    uint64_t address;
    uint32_t rkey, size, immediate;
    unsigned char data[];
};

struct entry { /* of a send queue */
    struct entry *next;
    uint32_t psn;
    uint64_t wr_id, address;
    uint32_t rkey, size, lkey;
    void *from; /* of a read: where it goes */
    void *own; /* inline: a copy of it */
    uint32_t immediate;
    bool is_send, is_read, signaled, has_immediate;
};

struct receive { struct receive *next; uint64_t wr_id; void *to; uint32_t size; };
struct cqe { struct cqe *next; struct pair *pair; uint32_t psn; int64_t due_ns, stamp; struct ibv_wc wc; };

struct cq { /* `ready_ns`: when the first is due */
    union {
        struct ibv_cq base;
        struct ibv_cq_ex extended;
    };
    struct cqe *first, **last;
    atomic_int_least64_t ready_ns;
    int depth, waiting; /* completions; depth 0: not known */
    atomic_int pairs, events; /* that use it; that were read and not acknowledged */
    bool armed;
    struct cq *next; /* of those with a channel */
};

struct pair {
    struct ibv_qp base;
    int mtu; /* of its path: enum ibv_mtu */
    int port, peer_port; /* a NIC looks at where a packet is from, not at the number of its sender */
    bool gone;
    uint32_t peer, label, next_psn, expected_psn;
    uint32_t freed_psn; /* work requests before it have no place in the queue any more */
    unsigned send_room, receive_room, receive_count; /* rooms of 0: not known */
    uint8_t timeout, retry_count;
    int retries;
    int64_t progress_ns, last_due_ns;
    int64_t completed_ns[2]; /* when the last send, and receive, completes */
    int64_t closing_ns; /* in error, and until then still writing what arrives */
    struct entry *sends, **last_send;
    struct receive *receives, **last_receive;
    struct packet *out, **last_out, *kept;
};

struct device {
    struct ibv_device base;
    struct fake_fault fault;
    struct fake_machine machine;
    bool active, known, held, alone;
    int class; /* as fake_class tells */
    atomic_bool gone;
    struct opened *opened;
    uint32_t ended[64]; /* numbers of queue pairs, the last one last */
    int ended_count;
    struct packet *written, **last_written; /* to a GPU, which does not see it yet */
};

/* Once for each time that the device was opened. */
struct opened {
    struct opened *next;
    struct device *device;
    int events[8], event_count;
    atomic_int objects; /* made and not destroyed */
    struct verbs_context extended; /* last, as the library has it */
};

struct region { struct ibv_mr mr; bool used; };

extern pthread_mutex_t lock;
extern struct device devices[FAKE_PORTS];
extern struct pair *pairs[MAX_PAIRS];
extern struct region *regions[MAX_REGIONS];
extern uint32_t pair_count, region_count;
extern struct fake_counts counts;
extern struct fake_limits limits;
extern struct fake_vendor vendor;
extern uint64_t random_state;

int64_t fake_now(void);
void fake_free_entry(struct entry *entry);
/* The pair is in error: everything outstanding completes, the oldest send with `first`. */
void fake_flush(struct pair *pair, enum ibv_wc_status first);
/* The NIC reads memory when it sends, also when it sends again. */
void fake_send_entry(struct pair *pair, const struct entry *entry);
void fake_step(void); /* everything that is due */
/* Without the lock: whether `fake_step` would do anything. A poll of a real queue that is empty reads
 * a word. */
bool fake_is_due(int64_t now_ns);
struct cqe *fake_complete(struct ibv_cq *base, struct pair *pair, const struct ibv_wc *wc,
                          int64_t due_ns);
/* Of one that is read: the work requests up to it give their places back. */
void fake_drop_first(struct cq *cq);
void fake_transmit(struct pair *pair, struct packet *packet);

bool fake_knows(int port, uint32_t key); /* memory that is registered with this port's device */

/* fake_objects.c */
bool fake_is_gpu(uint64_t address);
/* What kernel and library refuse, or wait for without end. */
_Noreturn void fake_misused(const char *how);
/* fake_verbs.c */
int fake_post_send(struct ibv_qp *qp, struct ibv_send_wr *wr, struct ibv_send_wr **bad);
int fake_post_recv(struct ibv_qp *qp, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad);
int fake_poll_cq(struct ibv_cq *cq, int room, struct ibv_wc *wc);
/* fake_devices.c */
struct device *fake_device_of(struct ibv_context *context);
void fake_count(struct ibv_context *context, int more); /* objects */

/* fake_datagrams.c */
void fake_extend(struct opened *opened);
int fake_send_datagram(struct pair *pair, const struct ibv_send_wr *wr);
void fake_deliver_datagram(struct pair *from, const struct packet *packet);
int64_t fake_stamp(const struct device *device);
void fake_forget_cq(struct cq *cq);

#endif
