#include "queues.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>

#include "config.h"

/* Of a work request's number: the slot, the queue, and what it is. */
enum { QUEUE_SHIFT = 16, RECEIVE_BIT = 1 << 24, WRITE_BIT = 1 << 25 };

/* The number of a queue pair's first packet is drawn anew each time. NICs use numbers of queue pairs
 * again, and a late packet of the one before would be taken as its own by one that expects its number. */
enum { PSN_MASK = 0xffffff };

static unsigned receive_depth(const struct queues *q) { return q->is_sender ? CTS_DEPTH : DATA_DEPTH; }
static unsigned receive_slot(const struct queues *q) { return q->is_sender ? CTS_SLOT : DATA_SLOT; }

static size_t memory_of_queue(const struct queues *q)
{
    return (size_t)send_depth(q) * send_slot(q) + (size_t)receive_depth(q) * receive_slot(q);
}

static unsigned char *receive_memory(const struct queues *queues, const struct queue *queue,
                                     unsigned slot)
{
    return queue->receive_memory + slot * (size_t)receive_slot(queues);
}

static uint64_t number(int queue, unsigned slot, unsigned bits)
{
    return (unsigned)queue << QUEUE_SHIFT | slot | bits;
}

static void prepare(struct queues *queues, struct queue *queue)
{
    queue->record_sge.lkey = queues->mr->lkey;
    queue->receive_sge = (struct ibv_sge){.length = receive_slot(queues), .lkey = queues->mr->lkey};
    queue->receive = (struct ibv_recv_wr){.sg_list = &queue->receive_sge, .num_sge = 1};
    queue->record = (struct ibv_send_wr){.sg_list = &queue->record_sge, .num_sge = 1,
                                         .opcode = IBV_WR_SEND, .send_flags = IBV_SEND_SIGNALED};
    queue->write = (struct ibv_send_wr){.sg_list = &queue->write_sge, .num_sge = 1,
                                        .opcode = IBV_WR_RDMA_WRITE, .next = &queue->record};
}

static const char *make_pairs(struct queues *queues)
{
    int depth = queues->qps * (int)(2 * send_depth(queues) + receive_depth(queues));
    uint32_t psn;
    if (getrandom(&psn, sizeof psn, 0) != sizeof psn)
        return "no random numbers";
    queues->local.psn = psn & PSN_MASK;
    queues->cq = verbs.create_cq(queues->port->context, depth, NULL, NULL, 0);
    if (queues->cq == NULL)
        return "no completion queue";
    for (int i = 0; i < queues->qps; i++) {
        unsigned char *memory = queues->memory + memory_of_queue(queues) * (size_t)i;
        queues->queue[i] = (struct queue){
            .credits = CREDITS, .send_memory = memory,
            .receive_memory = memory + (size_t)send_depth(queues) * send_slot(queues)};
        prepare(queues, &queues->queue[i]);
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
    queues->no_address = port_address(queues->port, &queues->local, &queues->gid_index);
    queues->local.qps = queues->no_address ? 0 : (uint32_t)queues->qps;
    return NULL;
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
        if (queues->queue[i].qp && verbs.destroy_qp(queues->queue[i].qp) == 0)
            queues->queue[i].qp = NULL;
        else
            gone &= queues->queue[i].qp == NULL;
    return gone;
}

const char *queues_remake(struct queues *queues)
{
    if (!destroy_pairs(queues, 0) || (queues->cq && verbs.destroy_cq(queues->cq)))
        return "old queue pairs cannot be destroyed";
    queues->cq = NULL;
    queues->bytes_outstanding = 0;
    const char *problem = make_pairs(queues);
    return problem ? problem : queues->no_address;
}

/* 14 bits: NICs and the kernel make the UDP source port of RoCE v2 of them without folding, so that
 * queue pairs of a connection have different ports, and paths. */
static uint32_t flow_label(uint32_t seed, uint32_t generation, int queue)
{
    return (seed + (generation * MAX_QPS + (uint32_t)queue) * 0x9e37u) & 0x3fff;
}

int queues_class(int traffic_class)
{
    return traffic_class >= 0 ? traffic_class & 0xff : config.traffic_class;
}

static int service_level(int traffic_class)
{
    return traffic_class >= 0 ? traffic_class & 0xf : config.service_level;
}

static const char *connect_pair(struct queues *queues, int i, uint32_t generation, uint32_t seed,
                                int traffic_class)
{
    const struct endpoint *remote = &queues->remote;
    struct ibv_qp_attr attr = {
        .qp_state = IBV_QPS_RTR,
        .path_mtu = remote->mtu < queues->local.mtu ? remote->mtu : queues->local.mtu,
        .dest_qp_num = remote->qpn[i], .rq_psn = remote->psn & PSN_MASK,
        .max_dest_rd_atomic = 1, .min_rnr_timer = 12,
        .ah_attr = {.port_num = queues->port->number, .dlid = remote->lid,
                    .sl = (uint8_t)service_level(traffic_class)},
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
        if (queues_receive_again(queues, i, slot))
            return "a receive cannot be posted";
    struct ibv_qp_attr ready = {.qp_state = IBV_QPS_RTS, .sq_psn = queues->local.psn,
                                .timeout = config.timeout,
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
    const char *problem = remote->link_layer == IBV_LINK_LAYER_ETHERNET
                              ? gids_differ(queues->local.gid, remote->gid) : NULL;
    if (problem)
        return problem;
    queues->remote = *remote;
    if (queues->qps > (int)remote->qps) {
        destroy_pairs(queues, (int)remote->qps);
        queues->qps = (int)remote->qps;
    }
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

int queues_send(struct queues *queues, int i, size_t size, const struct payload *payload,
                const struct work *work, int64_t about_ns)
{
    struct queue *queue = &queues->queue[i];
    struct ibv_send_wr *first = &queue->record, *bad;
    unsigned slot = queue->slot;
    queue->record_sge.addr = (uint64_t)(uintptr_t)queues_record(queues, i);
    queue->record_sge.length = (uint32_t)size;
    queue->record.wr_id = number(i, slot, 0);
    if (payload) {
        queue->write_sge = (struct ibv_sge){(uint64_t)(uintptr_t)payload->data, payload->size,
                                            payload->lkey};
        queue->write.wr_id = number(i, slot, WRITE_BIT);
        queue->write.wr.rdma.remote_addr = payload->address;
        queue->write.wr.rdma.rkey = payload->rkey;
        first = &queue->write;
    }
    int64_t exact_ns = queue->watched ? watch_time(queue->watched, about_ns) : 0;
    int error = ibv_post_send(queue->qp, first, &bad);
    if (error)
        return error;
    if (queue->watched)
        watch_sent(queue->watched, size, payload ? payload->size : 0, payload != NULL, about_ns,
                   exact_ns);
    queue->work[slot] = *work;
    queue->slot = slot + 1 == send_depth(queues) ? 0 : slot + 1;
    queue->outstanding++;
    queues->bytes_outstanding += work->bytes;
    return 0;
}

int queues_receive_again(struct queues *queues, int i, unsigned slot)
{
    struct queue *queue = &queues->queue[i];
    struct ibv_recv_wr *bad;
    queue->receive_sge.addr = (uint64_t)(uintptr_t)receive_memory(queues, queue, slot);
    queue->receive.wr_id = number(i, slot, RECEIVE_BIT);
    int error = ibv_post_recv(queue->qp, &queue->receive, &bad);
    if (error == 0) {
        queue->receives++;
        if (queue->watched)
            watch_posted_receives(queue->watched, 1);
    }
    return error;
}

int queues_poll(struct queues *queues, struct ibv_wc *wc, int room)
{
    return ibv_poll_cq(queues->cq, room, wc);
}

void queues_completed(struct queues *queues, const struct ibv_wc *wc, int64_t about_ns,
                      struct completion *completion)
{
    int i = (int)(wc->wr_id >> QUEUE_SHIFT & 0xff);
    struct queue *queue = &queues->queue[i];
    completion->queue = i;
    completion->slot = wc->wr_id & 0xffff;
    completion->is_receive = wc->wr_id & RECEIVE_BIT;
    completion->status = wc->status;
    completion->work = NULL;
    if (queue->watched)
        watch_completed(queue->watched, wc, about_ns);
    if (completion->is_receive) {
        queue->receives--;
        completion->record = receive_memory(queues, queue, completion->slot);
    } else if (!(wc->wr_id & WRITE_BIT)) {
        completion->work = &queue->work[completion->slot];
        --queue->outstanding;
        queues->bytes_outstanding -= completion->work->bytes;
    }
}
