/* Watches the queue pairs of RDMA devices that a process opens, by the inline verbs that rdma-core
 * keeps in tables of each device, queue pair and completion queue: every call goes on to what was
 * there before, with the same arguments, and returns what that returned.
 *
 * Used by the interposer and by the NCCL plug-in. Opening, changing and ending are reported by anyone who
 * does them; they may be done by any thread, and take a lock. Posting and polling take none. */
#ifndef VERBS_WATCH_H
#define VERBS_WATCH_H

#include <infiniband/verbs.h>

struct watch_verbs { /* what is asked of rdma-core; NULL but for the first where it is missing */
    int (*query_gid)(struct ibv_context *, uint8_t, int, union ibv_gid *);
    struct ibv_qp_ex *(*qp_to_qp_ex)(struct ibv_qp *);
    int (*query_qp)(struct ibv_qp *, struct ibv_qp_attr *, int, struct ibv_qp_init_attr *);
};

/* A device was opened. Nothing happens without an agent to tell (door.h). */
void watch_opened(struct ibv_context *context, const char *name, const struct watch_verbs *verbs);
/* A device is about to be closed. */
void watch_closing(struct ibv_context *context);
/* A queue pair was changed by ibv_modify_qp, without error. */
void watch_modified(struct ibv_qp *qp, const struct ibv_qp_attr *attr, int mask);
/* Destroy it by `destroy`, and watch it no longer if that succeeds: within the lock, so that nobody
 * is given its number meanwhile. */
int watch_destroy_qp(struct ibv_qp *qp, int (*destroy)(struct ibv_qp *));
int watch_destroy_cq(struct ibv_cq *cq, int (*destroy)(struct ibv_cq *));

#endif
