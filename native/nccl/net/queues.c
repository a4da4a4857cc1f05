#include "queues.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "config.h"

enum { DATA_SLOT = 64, CTS_SLOT = (sizeof(struct cts) + 63) / 64 * 64 };
_Static_assert(sizeof(struct header) <= DATA_SLOT, "fits");

/* Of a work request's number: the slot, the queue, and what it is; the generation is above. */
enum { QUEUE_SHIFT = 16, RECEIVE_BIT = 1 << 24, WRITE_BIT = 1 << 25 };

static unsigned send_depth(const struct queues *q) { return q->is_sender ? DATA_DEPTH : CTS_DEPTH; }
static unsigned send_slot(const struct queues *q) { return q->is_sender ? DATA_SLOT : CTS_SLOT; }
static unsigned receive_depth(const struct queues *q) { return q->is_sender ? CTS_DEPTH : DATA_DEPTH; }
static unsigned receive_slot(const struct queues *q) { return q->is_sender ? CTS_SLOT : DATA_SLOT; }

static size_t memory_of_queue(const struct queues *q)
{
    return (size_t)send_depth(q) * send_slot(q) + (size_t)receive_depth(q) * receive_slot(q);
}

static unsigned char *send_memory(const struct queues *q, int queue, unsigned slot)
{
    return q->memory + memory_of_queue(q) * (size_t)queue + (size_t)slot * send_slot(q);
}

static unsigned char *receive_memory(const struct queues *q, int queue, unsigned slot)
{
    return send_memory(q, queue, send_depth(q)) + (size_t)slot * receive_slot(q);
}

static uint64_t number(uint32_t generation, int queue, unsigned slot, unsigned bits)
{
    return (uint64_t)generation << 32 | (unsigned)queue << QUEUE_SHIFT | slot | bits;
}

static const char *make_pairs(struct queues *queues)
{
    static const struct queue NEW = {.credits = CREDITS};
    int depth = queues->qps * (int)(2 * send_depth(queues) + receive_depth(queues));
    if (queues->cq == NULL)
        queues->cq = verbs.create_cq(queues->port->context, depth, NULL, NULL, 0);
    if (queues->cq == NULL)
        return "no completion queue";
    for (int i = 0; i < queues->qps; i++) {
        queues->queue[i] = NEW;
        struct ibv_qp_init_attr attr = {
            .send_cq = queues->cq, .recv_cq = queues->cq, .qp_type = IBV_QPT_RC,
            .cap = {.max_send_wr = 2 * send_depth(queues), .max_recv_wr = receive_depth(queues),
                    .max_send_sge = 1, .max_recv_sge = 1},
        };
        struct ibv_qp *qp = verbs.create_qp(queues->port->pd, &attr);
        if (qp == NULL)
            return "no queue pair";
        struct ibv_qp_attr init = {
            .qp_state = IBV_QPS_INIT, .port_num = queues->port->number,
            .qp_access_flags = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE,
        };
        queues->queue[i].qp = qp;
        queues->local.qpn[i] = qp->qp_num;
        if (verbs.modify_qp(qp, &init, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT |
                                           IBV_QP_ACCESS_FLAGS))
            return "a queue pair cannot be initialised";
        queues->queue[i].watched = watch_pair(qp);
    }
    queues->local.qps = (uint32_t)queues->qps;
    queues->bytes_outstanding = 0;
    return port_address(queues->port, &queues->local, &queues->gid_index) ? NULL
                                                                          : "no usable GID";
}

const char *queues_make(struct queues *queues, struct port *port, int qps, bool is_sender)
{
    *queues = (struct queues){.port = port, .qps = qps, .is_sender = is_sender};
    size_t size = memory_of_queue(queues) * (size_t)qps;
    void *memory = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED)
        return "no memory";
    queues->memory = memory;
    queues->memory_size = size;
    queues->mr = verbs.reg_mr(port->pd, memory, size, IBV_ACCESS_LOCAL_WRITE);
    if (queues->mr == NULL)
        return "memory cannot be registered (ulimit -l?)";
    return make_pairs(queues);
}

static bool destroy_pairs(struct queues *queues, int first)
{
    bool gone = true;
    for (int i = first; i < queues->qps; i++)
        if (queues->queue[i].qp) {
            gone &= verbs.destroy_qp(queues->queue[i].qp) == 0;
            queues->queue[i].qp = NULL;
        }
    return gone;
}

const char *queues_remake(struct queues *queues)
{
    destroy_pairs(queues, 0);
    struct ibv_wc left[16];
    while (queues->cq && ibv_poll_cq(queues->cq, 16, left) > 0)
        ;
    return make_pairs(queues);
}

/* 14 bits: NICs and the kernel make the UDP source port of RoCE v2 of them without folding, so that
 * queue pairs of a connection have different ports, and paths. */
uint32_t flow_label(uint32_t seed, uint32_t generation, int queue)
{
    return (seed + (generation * MAX_QPS + (uint32_t)queue) * 0x9e37u) & 0x3fff;
}

int queues_class(int traffic_class)
{
    return traffic_class >= 0 ? traffic_class & 0xff : config.traffic_class;
}

static const char *connect_pair(struct queues *queues, int i, uint32_t generation, uint32_t seed,
                                int traffic_class)
{
    const struct endpoint *remote = &queues->remote;
    struct ibv_qp_attr attr = {
        .qp_state = IBV_QPS_RTR,
        .path_mtu = remote->mtu < queues->local.mtu ? remote->mtu : queues->local.mtu,
        .dest_qp_num = remote->qpn[i], .rq_psn = 0, .max_dest_rd_atomic = 1, .min_rnr_timer = 12,
        .ah_attr = {.port_num = queues->port->number, .sl = config.service_level,
                    .dlid = remote->lid},
    };
    if (queues->local.link_layer == IBV_LINK_LAYER_ETHERNET) {
        attr.ah_attr.is_global = 1;
        attr.ah_attr.grh = (struct ibv_global_route){
            .flow_label = flow_label(seed, generation, i), .sgid_index = queues->gid_index,
            .hop_limit = 255, .traffic_class = (uint8_t)queues_class(traffic_class)};
        memcpy(attr.ah_attr.grh.dgid.raw, remote->gid, 16);
    }
    if (verbs.modify_qp(queues->queue[i].qp, &attr,
                        IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
                            IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER))
        return "a queue pair cannot be made ready to receive";
    for (unsigned slot = 0; slot < receive_depth(queues); slot++)
        if (queues_receive_again(queues, i, generation, slot))
            return "a receive cannot be posted";
    struct ibv_qp_attr ready = {.qp_state = IBV_QPS_RTS, .timeout = config.timeout,
                                .retry_cnt = config.retries, .rnr_retry = 7, .max_rd_atomic = 1};
    if (verbs.modify_qp(queues->queue[i].qp, &ready,
                        IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
                            IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC))
        return "a queue pair cannot be made ready to send";
    return NULL;
}

const char *queues_connect(struct queues *queues, const struct endpoint *remote, uint32_t generation,
                           uint32_t seed, int traffic_class)
{
    if (remote->link_layer != queues->local.link_layer)
        return "one end is Ethernet, the other InfiniBand";
    if (remote->qps < 1 || remote->qps > MAX_QPS || remote->mtu < IBV_MTU_256 ||
        remote->mtu > IBV_MTU_4096)
        return "the peer sent no valid address";
    queues->remote = *remote;
    if (queues->qps > (int)remote->qps) {
        destroy_pairs(queues, (int)remote->qps);
        queues->qps = (int)remote->qps;
    }
    const char *problem = NULL;
    for (int i = 0; i < queues->qps && problem == NULL; i++)
        problem = connect_pair(queues, i, generation, seed, traffic_class);
    return problem;
}

void queues_fail(struct queues *queues)
{
    struct ibv_qp_attr attr = {.qp_state = IBV_QPS_ERR};
    for (int i = 0; i < queues->qps; i++)
        if (queues->queue[i].qp)
            verbs.modify_qp(queues->queue[i].qp, &attr, IBV_QP_STATE);
}

bool queues_drained(const struct queues *queues)
{
    for (int i = 0; i < queues->qps; i++)
        if (queues->queue[i].outstanding || queues->queue[i].receives)
            return false;
    return true;
}

bool queues_abandon(struct queues *queues)
{
    for (int i = 0; i < queues->qps; i++)
        queues->queue[i].outstanding = queues->queue[i].receives = 0;
    queues->bytes_outstanding = 0;
    if (!destroy_pairs(queues, 0) || verbs.destroy_cq(queues->cq))
        return false;
    queues->cq = NULL;
    return true;
}

void queues_end(struct queues *queues)
{
    destroy_pairs(queues, 0);
    if (queues->cq)
        verbs.destroy_cq(queues->cq);
    if (queues->mr)
        verbs.dereg_mr(queues->mr);
    if (queues->memory)
        munmap(queues->memory, queues->memory_size);
}

int queues_pick(const struct queues *queues, bool needs_credit)
{
    int best = -1;
    for (int i = 0; i < queues->qps; i++) {
        const struct queue *queue = &queues->queue[i];
        if (queue->outstanding < send_depth(queues) && (queue->credits || !needs_credit) &&
            (best < 0 || queue->outstanding < queues->queue[best].outstanding))
            best = i;
    }
    return best;
}

int queues_send(struct queues *queues, int i, uint32_t generation, const void *record, size_t size,
                struct ibv_send_wr *payload, const struct work *work)
{
    struct queue *queue = &queues->queue[i];
    unsigned slot = queue->posted % send_depth(queues);
    if (queue->outstanding >= send_depth(queues))
        return ENOBUFS;
    unsigned char *memory = send_memory(queues, i, slot);
    memcpy(memory, record, size);
    struct ibv_sge sge = {(uint64_t)(uintptr_t)memory, (uint32_t)size, queues->mr->lkey};
    struct ibv_send_wr announce = {.wr_id = number(generation, i, slot, 0), .sg_list = &sge,
                                   .num_sge = 1, .opcode = IBV_WR_SEND,
                                   .send_flags = IBV_SEND_SIGNALED}, *bad;
    if (payload) {
        payload->wr_id = number(generation, i, slot, WRITE_BIT);
        payload->next = &announce;
    }
    struct ibv_send_wr *first = payload ? payload : &announce;
    int64_t at_ns = queue->watched ? watch_time(queue->watched) : 0;
    int error = ibv_post_send(queue->qp, first, &bad);
    if (queue->watched)
        watch_posted(queue->watched, first, error ? bad : NULL, at_ns);
    if (error)
        return error;
    queue->work[slot] = *work;
    queue->posted++;
    queue->outstanding++;
    queues->bytes_outstanding += work->bytes;
    return 0;
}

int queues_receive_again(struct queues *queues, int i, uint32_t generation, unsigned slot)
{
    struct ibv_sge sge = {(uint64_t)(uintptr_t)receive_memory(queues, i, slot),
                          receive_slot(queues), queues->mr->lkey};
    struct ibv_recv_wr wr = {.wr_id = number(generation, i, slot, RECEIVE_BIT), .sg_list = &sge,
                             .num_sge = 1}, *bad;
    struct queue *queue = &queues->queue[i];
    int error = ibv_post_recv(queue->qp, &wr, &bad);
    if (error == 0) {
        queue->receives++;
        if (queue->watched)
            watch_posted_receives(queue->watched, 1);
    }
    return error;
}

int queues_poll(struct queues *queues, uint32_t generation, struct completion *found, int room)
{
    struct ibv_wc wc[16];
    if (queues->cq == NULL)
        return 0;
    int got = ibv_poll_cq(queues->cq, room < 16 ? room : 16, wc), used = 0;
    int64_t at_ns = 0;
    if (got < 0)
        return got;
    for (int i = 0; i < got; i++) {
        struct completion *one = &found[used];
        one->queue = (int)(wc[i].wr_id >> QUEUE_SHIFT & 0xff);
        if ((uint32_t)(wc[i].wr_id >> 32) != generation || one->queue >= queues->qps)
            continue;
        one->slot = wc[i].wr_id & 0xffff;
        one->is_receive = wc[i].wr_id & RECEIVE_BIT;
        one->is_write = wc[i].wr_id & WRITE_BIT;
        one->status = wc[i].status;
        struct queue *queue = &queues->queue[one->queue];
        if (queue->watched)
            watch_completed(queue->watched, &wc[i], &at_ns);
        if (one->is_receive) {
            queue->receives--;
            one->record = receive_memory(queues, one->queue, one->slot);
        } else if (!one->is_write) {
            one->work = queue->work[one->slot];
            queue->outstanding--;
            queues->bytes_outstanding -= one->work.bytes;
        }
        used++;
    }
    return used;
}
