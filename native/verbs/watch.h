/* Watches the queue pairs of RDMA devices that a process opens, by the inline verbs that rdma-core
 * keeps in tables of each device, queue pair and completion queue: every call goes on to what was
 * there before, with the same arguments, and returns what that returned.
 *
 * Used by the interposer and by the NCCL plug-in. Opening, changing and ending are reported by anyone who
 * does them; they may be done by any thread, and take a lock. Posting and polling take none. */
#ifndef VERBS_WATCH_H
#define VERBS_WATCH_H

#include <infiniband/verbs.h>
#include <stdbool.h>

struct watch_verbs { /* what is asked of rdma-core; NULL but for the first where it is missing */
    int (*query_gid)(struct ibv_context *, uint8_t, int, union ibv_gid *);
    struct ibv_qp_ex *(*qp_to_qp_ex)(struct ibv_qp *);
    int (*query_qp)(struct ibv_qp *, struct ibv_qp_attr *, int, struct ibv_qp_init_attr *);
};

/* A device was opened. Nothing happens without an agent to tell (door.h). `patch`: its inline verbs are
 * to be watched; otherwise who posts and polls says so (below). */
void watch_opened(struct ibv_context *context, const char *name, const struct watch_verbs *verbs,
                  bool patch);
/* A device is about to be closed. */
void watch_closing(struct ibv_context *context);
/* A queue pair was changed by ibv_modify_qp, without error. */
void watch_modified(struct ibv_qp *qp, const struct ibv_qp_attr *attr, int mask);
/* Destroy it by `destroy`, which may take long, and watch it no longer if that succeeds. */
int watch_destroy_qp(struct ibv_qp *qp, int (*destroy)(struct ibv_qp *));
int watch_destroy_cq(struct ibv_cq *cq, int (*destroy)(struct ibv_cq *));

/* From a program that watches itself, with one thread at a time for a queue pair and its completion
 * queue, and not in a child of fork. Of a queue pair once it is initialised, until it is destroyed;
 * NULL: it is not watched. */
struct pair *watch_pair(struct ibv_qp *qp);
/* `about_ns`: of a clock that is right to some milliseconds, and never ahead.
 * Just before a post: the exact time, if that is wanted; or 0. */
int64_t watch_time(const struct pair *pair, int64_t about_ns);
/* A send with a completion was posted, behind a write of so many bytes without one if `is_behind`.
 * `exact_ns` is of `watch_time`. */
void watch_sent(struct pair *pair, uint64_t bytes, uint64_t written, bool is_behind,
                int64_t about_ns, int64_t exact_ns);
void watch_posted_receives(struct pair *pair, uint64_t count);
/* Just after a poll. */
void watch_completed(struct pair *pair, const struct ibv_wc *wc, int64_t about_ns);
/* Now and then, several times a second. */
void watch_agent(int64_t now_ns);

#endif
