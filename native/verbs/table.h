/* What is watched. Entries are found without a lock and never freed, so that a call on its way when
 * one ends harms nothing. */
#ifndef VERBS_TABLE_H
#define VERBS_TABLE_H

#include "figures.h"
#include "watch.h"

enum { MAX_DEVICES = 64, MAX_QUEUES = 512, MAX_PENDING = 64 };

struct queue { /* a completion queue */
    uint32_t inside;
    uint32_t inexact; /* two threads polled it at once, ever */
    bool ending; /* it is being destroyed: another one may have its place at any time */
    uint64_t flags;   /* of every pair that receives there */
    /* Extended: what was there before. */
    int (*start_poll)(struct ibv_cq_ex *, struct ibv_poll_cq_attr *);
    int (*next_poll)(struct ibv_cq_ex *);
};

struct pair { /* a queue pair; its place is that of its slot */
    uint32_t inside;
    bool all_signaled;
    bool ending; /* it is being destroyed: another one may have its number at any time */
    struct figures figures;
    /* Extended: what was there before, and what was put together since wr_start. */
    struct ibv_qp_ex before;
    struct message pending[MAX_PENDING];
    uint32_t pending_count; /* may be more than there is room for */
};

struct device {
    struct ibv_context *context; /* NULL: free */
    struct ibv_context_ops before;
    struct ibv_cq_ex *(*create_cq_ex)(struct ibv_context *, struct ibv_cq_init_attr_ex *);
    struct watch_verbs verbs;
    char name[24];
};

int64_t table_now_ns(void);
struct device *table_device(const struct ibv_context *context);
struct pair *table_pair(const struct device *device, uint32_t number);
struct queue *table_queue(const void *cq);

/* Under the lock. NULL: no room. */
struct device *table_add_device(struct ibv_context *context);
struct pair *table_add_pair(const struct device *device, uint32_t number, struct syn_qp_page *page);
void table_remove_pair(const struct device *device, uint32_t number);
struct queue *table_add_queue(const void *cq);
void table_remove_queue(const void *cq);

/* Inline verbs of queue pairs and completion queues that have tables of their own. */
void extended_patch(struct pair *pair, struct ibv_qp_ex *qp);
void extended_patch_cq(struct queue *queue, struct ibv_cq_ex *cq);
struct ibv_cq_ex *extended_create_cq(struct ibv_context *, struct ibv_cq_init_attr_ex *);

/* An extended completion queue was made. */
void watch_extended_cq(struct ibv_cq_ex *cq, bool no_lengths);

struct completion {
    uint32_t number;
    enum ibv_wc_status status;
    enum ibv_wc_opcode opcode; /* void with an error */
    uint64_t bytes;
};
void watch_completion(const struct device *device, const struct queue *queue,
                      const struct completion *completion, int64_t at_ns);

/* Who goes in: true if nobody else is there. */
static inline bool enter(uint32_t *inside)
{
    return __atomic_exchange_n(inside, 1, __ATOMIC_ACQUIRE) == 0;
}

static inline void leave(uint32_t *inside)
{
    __atomic_store_n(inside, 0, __ATOMIC_RELEASE);
}

#endif
