#include "watch.h"

#include <errno.h>
#include <pthread.h>
#include <string.h>
#include <time.h>

#include "door.h"
#include "table.h"

const struct door_kind door_kind = {.suffix = "-qp", .memory = "syntony-qp",
                                    .magic = SYN_QP_MAGIC, .version = SYN_QP_PAGE_VERSION,
                                    .size = sizeof(struct syn_qp_page)};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* of everything that begins and ends */
static uint64_t generations;

static bool takes_receive(enum ibv_wr_opcode opcode)
{
    return opcode == IBV_WR_SEND || opcode == IBV_WR_SEND_WITH_IMM ||
           opcode == IBV_WR_SEND_WITH_INV || opcode == IBV_WR_RDMA_WRITE_WITH_IMM;
}

/* From `wr` to before `end` (NULL: all) was posted. */
static void watch_posted(struct pair *pair, const struct ibv_send_wr *wr, const struct ibv_send_wr *end,
                  int64_t at_ns)
{
    for (; wr != NULL && wr != end; wr = wr->next) {
        struct message message = {.takes_receive = takes_receive(wr->opcode),
                                  .signaled = pair->all_signaled ||
                                              (wr->send_flags & IBV_SEND_SIGNALED)};
        for (int i = 0; i < wr->num_sge; i++)
            message.bytes += wr->sg_list[i].length;
        if (wr->opcode == IBV_WR_TSO)
            message.bytes += wr->tso.hdr_sz;
        figures_sent(&pair->figures, &message, at_ns);
    }
}

static int post_send(struct ibv_qp *qp, struct ibv_send_wr *wr, struct ibv_send_wr **bad)
{
    struct device *device = table_device(qp->context);
    struct pair *pair = door_is_mine() ? table_pair(device, qp->qp_num) : NULL;
    if (pair == NULL)
        return device->before.post_send(qp, wr, bad);
    bool alone = enter(&pair->inside);
    int64_t at_ns = table_now_ns();
    int error = device->before.post_send(qp, wr, bad);
    watch_posted(pair, wr, error ? *bad : NULL, at_ns);
    if (alone)
        leave(&pair->inside);
    else
        figures_flag(&pair->figures, SYN_QP_SENDS_INEXACT);
    door_look(at_ns);
    return error;
}

static int post_recv(struct ibv_qp *qp, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad)
{
    struct device *device = table_device(qp->context);
    struct pair *pair = door_is_mine() ? table_pair(device, qp->qp_num) : NULL;
    int error = device->before.post_recv(qp, wr, bad);
    if (pair == NULL)
        return error;
    uint64_t count = 0;
    for (const struct ibv_recv_wr *each = wr; each && !(error && each == *bad); each = each->next)
        count++;
    figures_posted_receives(&pair->figures, count);
    return error;
}

void watch_completion(const struct device *device, const struct queue *queue,
                      const struct completion *completion, int64_t at_ns)
{
    struct pair *pair = table_pair(device, completion->number);
    if (pair == NULL)
        return;
    bool receives = completion->opcode == IBV_WC_RECV ||
                    completion->opcode == IBV_WC_RECV_RDMA_WITH_IMM;
    if (completion->status != IBV_WC_SUCCESS)
        figures_error(&pair->figures, completion->status);
    else if (receives) {
        figures_received(&pair->figures, completion->bytes, at_ns);
        if (queue == NULL || __atomic_load_n(&queue->inexact, __ATOMIC_RELAXED))
            figures_flag(&pair->figures, SYN_QP_RECEIVES_INEXACT);
        else if (queue->flags)
            figures_flag(&pair->figures, queue->flags);
    } else if (completion->opcode < IBV_WC_RECV)
        figures_completed(&pair->figures, at_ns);
}

static int poll_cq(struct ibv_cq *cq, int room, struct ibv_wc *wc)
{
    struct device *device = table_device(cq->context);
    if (!door_is_mine())
        return device->before.poll_cq(cq, room, wc);
    struct queue *queue = table_queue(cq);
    bool alone = queue != NULL && enter(&queue->inside);
    int got = device->before.poll_cq(cq, room, wc);
    if (queue != NULL && !alone)
        __atomic_store_n(&queue->inexact, 1, __ATOMIC_RELAXED);
    if (got > 0) {
        int64_t at_ns = table_now_ns();
        for (int i = 0; i < got; i++) {
            struct completion completion = {wc[i].qp_num, wc[i].status, wc[i].opcode,
                                            wc[i].byte_len};
            watch_completion(device, queue, &completion, at_ns);
        }
        door_look(at_ns);
    }
    if (alone)
        leave(&queue->inside);
    return got;
}

static void patch_device(struct device *device, struct ibv_context *context)
{
    struct verbs_context *extended = verbs_get_ctx(context);
    if (extended != NULL && extended->sz >= sizeof *extended -
                                offsetof(struct verbs_context, create_cq_ex)) {
        device->create_cq_ex = extended->create_cq_ex;
        if (extended->create_cq_ex)
            extended->create_cq_ex = extended_create_cq;
    }
    context->ops.post_send = post_send;
    context->ops.post_recv = post_recv;
    context->ops.poll_cq = poll_cq;
}

void watch_opened(struct ibv_context *context, const char *name, const struct watch_verbs *verbs,
                  bool patch)
{
    if (door_is_child())
        return;
    pthread_mutex_lock(&lock);
    struct device *device = NULL;
    if (context->ops.post_send && context->ops.poll_cq && context->ops.post_recv && door_page() != NULL)
        device = table_add_device(context);
    if (device != NULL) {
        device->verbs = *verbs;
        strncpy(device->name, name, sizeof device->name - 1);
        __atomic_store_n(&device->context, context, __ATOMIC_RELEASE);
        if (patch)
            patch_device(device, context);
        door_look(table_now_ns());
    }
    pthread_mutex_unlock(&lock);
}

void watch_closing(struct ibv_context *context)
{
    if (!door_is_mine())
        return;
    pthread_mutex_lock(&lock);
    struct device *device = table_device(context);
    if (device != NULL) {
        context->ops.post_send = device->before.post_send;
        context->ops.post_recv = device->before.post_recv;
        context->ops.poll_cq = device->before.poll_cq;
        if (device->create_cq_ex)
            verbs_get_ctx(context)->create_cq_ex = device->create_cq_ex;
        __atomic_store_n(&device->context, NULL, __ATOMIC_RELEASE);
    }
    pthread_mutex_unlock(&lock);
}

void watch_extended_cq(struct ibv_cq_ex *cq, bool no_lengths)
{
    pthread_mutex_lock(&lock);
    struct queue *queue = table_add_queue(cq);
    if (queue != NULL) {
        queue->flags = no_lengths ? SYN_QP_NO_LENGTHS : 0;
        extended_patch_cq(queue, cq);
    }
    pthread_mutex_unlock(&lock);
}

struct pair *watch_pair(struct ibv_qp *qp)
{
    struct device *device = door_is_mine() ? table_device(qp->context) : NULL;
    return device ? table_pair(device, qp->qp_num) : NULL;
}

int64_t watch_time(const struct pair *pair, int64_t about_ns)
{
    return figures_stamps_sent(&pair->figures, about_ns) ? table_now_ns() : 0;
}

void watch_sent(struct pair *pair, uint64_t bytes, uint64_t written, bool is_behind,
                int64_t about_ns, int64_t exact_ns)
{
    struct message message = {bytes, written, is_behind, true, true};
    if (exact_ns == 0)
        figures_sent_unstamped(&pair->figures, &message, about_ns);
    else
        figures_sent(&pair->figures, &message, exact_ns);
}

void watch_posted_receives(struct pair *pair, uint64_t count)
{
    figures_posted_receives(&pair->figures, count);
}

void watch_completed(struct pair *pair, const struct ibv_wc *wc, int64_t about_ns)
{
    struct figures *figures = &pair->figures;
    if (wc->status != IBV_WC_SUCCESS)
        figures_error(figures, wc->status);
    else if (wc->opcode & IBV_WC_RECV && figures_stamps_received(figures, about_ns))
        figures_received(figures, wc->byte_len, table_now_ns());
    else if (wc->opcode & IBV_WC_RECV)
        figures_received_unstamped(figures, wc->byte_len, about_ns);
    else
        figures_completed(figures, figures_stamps_completed(figures) ? table_now_ns() : about_ns);
}

void watch_agent(int64_t now_ns)
{
    door_look(now_ns);
}

static bool signals_all(const struct device *device, struct ibv_qp *qp)
{
    struct ibv_qp_attr attr;
    struct ibv_qp_init_attr init = {0};
    int before = errno;
    bool all = device->verbs.query_qp && device->verbs.query_qp(qp, &attr, IBV_QP_CAP, &init) == 0 &&
               init.sq_sig_all;
    errno = before;
    return all;
}

static struct pair *find_or_add(const struct device *device, struct ibv_qp *qp)
{
    struct pair *pair = table_pair(device, qp->qp_num);
    if (pair && pair->ending) {
        table_remove_pair(device, qp->qp_num);
        pair = NULL;
    }
    struct syn_qp_page *page = pair ? NULL : door_page();
    if (page != NULL)
        pair = table_add_pair(device, qp->qp_num, page);
    if (page == NULL || pair == NULL)
        return pair;
    pair->all_signaled = signals_all(device, qp);
    table_add_queue(qp->recv_cq);
    struct ibv_qp_ex *extended = device->verbs.qp_to_qp_ex ? device->verbs.qp_to_qp_ex(qp) : NULL;
    if (extended != NULL)
        extended_patch(pair, extended);
    return pair;
}

static void begin(const struct device *device, struct pair *pair, const struct ibv_qp *qp,
                  const struct ibv_qp_attr *attr, int mask)
{
    struct identity identity = {.type = (uint16_t)qp->qp_type, .number = qp->qp_num,
                                .flags = qp->srq ? SYN_QP_SHARED_RECEIVES : 0};
    if (mask & IBV_QP_DEST_QPN)
        identity.peer_number = attr->dest_qp_num & 0xffffff;
    if (mask & IBV_QP_RQ_PSN)
        identity.receive_psn = attr->rq_psn & 0xffffff;
    if ((mask & IBV_QP_AV) && attr->ah_attr.is_global) {
        union ibv_gid gid;
        int before = errno;
        if (device->verbs.query_gid(qp->context, attr->ah_attr.port_num,
                                    attr->ah_attr.grh.sgid_index, &gid) == 0) {
            memcpy(identity.local, gid.raw, sizeof identity.local);
            memcpy(identity.remote, attr->ah_attr.grh.dgid.raw, sizeof identity.remote);
        }
        errno = before;
    }
    memcpy(identity.device, device->name, sizeof identity.device);
    figures_begin(&pair->figures, &identity, ++generations, table_now_ns());
}

void watch_modified(struct ibv_qp *qp, const struct ibv_qp_attr *attr, int mask)
{
    if (!door_is_mine())
        return;
    pthread_mutex_lock(&lock);
    struct device *device = table_device(qp->context);
    bool begins = attr->qp_state == IBV_QPS_INIT || attr->qp_state == IBV_QPS_RTR;
    struct pair *pair = device == NULL || !(mask & IBV_QP_STATE) ? NULL
                        : begins ? find_or_add(device, qp)
                                 : table_pair(device, qp->qp_num);
    if (pair != NULL) {
        if (attr->qp_state == IBV_QPS_RESET || attr->qp_state == IBV_QPS_INIT)
            figures_end(&pair->figures);
        else if (attr->qp_state == IBV_QPS_RTR)
            begin(device, pair, qp, attr, mask);
        else if (attr->qp_state == IBV_QPS_RTS && (mask & IBV_QP_SQ_PSN))
            figures_send_psn(&pair->figures, attr->sq_psn & 0xffffff);
        else if (attr->qp_state == IBV_QPS_ERR)
            figures_fail(&pair->figures);
    }
    pthread_mutex_unlock(&lock);
}

/* Without the lock while the kernel destroys: it may take long, and may have given the number, or the memory, to
 * the next one when it is done. */
int watch_destroy_qp(struct ibv_qp *qp, int (*destroy)(struct ibv_qp *))
{
    if (!door_is_mine())
        return destroy(qp);
    const struct device *device = table_device(qp->context);
    uint32_t number = qp->qp_num;
    pthread_mutex_lock(&lock);
    struct pair *pair = device ? table_pair(device, number) : NULL;
    if (pair)
        pair->ending = true;
    pthread_mutex_unlock(&lock);
    int error = destroy(qp);
    pthread_mutex_lock(&lock);
    pair = pair ? table_pair(device, number) : NULL;
    if (pair && pair->ending && error == 0)
        table_remove_pair(device, number);
    else if (pair && error)
        pair->ending = false;
    pthread_mutex_unlock(&lock);
    return error;
}

int watch_destroy_cq(struct ibv_cq *cq, int (*destroy)(struct ibv_cq *))
{
    if (!door_is_mine())
        return destroy(cq);
    pthread_mutex_lock(&lock);
    struct queue *queue = table_queue(cq);
    if (queue)
        queue->ending = true;
    pthread_mutex_unlock(&lock);
    int error = destroy(cq);
    pthread_mutex_lock(&lock);
    queue = queue ? table_queue(cq) : NULL;
    if (queue && queue->ending && error == 0)
        table_remove_queue(cq);
    else if (queue && error)
        queue->ending = false;
    pthread_mutex_unlock(&lock);
    return error;
}
