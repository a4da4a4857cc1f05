#include "queue.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "port.h"
#include "syn_packet.h"

enum {
    QKEY = 0x53594e50, /* the same everywhere: packets are authenticated by their tag */
    GRH_BYTES = 40,
    REFLECTOR_DEPTH = 512,
    DEPTH = 128,
    SEND_STRIDE = 128,
    RECEIVED = 1 << 16, /* of a work request's id; the rest is its slot */
    POLL_BATCH = 32,
};

_Static_assert((int)SEND_STRIDE >= (int)SYN_PACKET_BYTES, "a slot holds a packet");

struct syn_verbs_queue {
    struct syn_verbs_port *port;
    struct ibv_comp_channel *channel;
    struct ibv_cq *cq;
    struct ibv_cq_ex *stamped; /* the same one, where its completions have stamps */
    struct ibv_qp *qp;
    struct ibv_mr *mr;
    uint8_t *memory; /* slots to receive into, then slots to send from */
    size_t bytes, stride;
    unsigned depth;
    unsigned *idle; /* slots that nothing is sent from */
    unsigned idle_count;
};

static int fail(char *message, const struct syn_verbs_queue *queue, const char *what)
{
    const char *why = errno == ENOMEM ? ": is `ulimit -l` large enough?" : "";
    snprintf(message, SYN_MESSAGE_BYTES_VERBS, "%s: no %s (%s)%s", queue->port->name, what,
             strerror(errno), why);
    return 0;
}

/* --- opening -------------------------------------------------------------------------------- */

static int open_memory(struct syn_verbs_queue *queue, char *message)
{
    /* Whatever a datagram's length, it fits: an error of length would end the queue pair. */
    queue->stride = (queue->port->mtu_bytes + GRH_BYTES + 63) & ~(size_t)63;
    queue->bytes = queue->depth * (queue->stride + SEND_STRIDE);
    queue->memory = mmap(NULL, queue->bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS,
                         -1, 0);
    queue->idle = calloc(queue->depth, sizeof *queue->idle);
    if (queue->memory == MAP_FAILED || queue->idle == NULL)
        return fail(message, queue, "memory for probes");
    queue->mr = verbs.reg_mr(queue->port->pd, queue->memory, queue->bytes, IBV_ACCESS_LOCAL_WRITE);
    for (unsigned slot = 0; slot < queue->depth; slot++)
        queue->idle[queue->idle_count++] = slot;
    return queue->mr != NULL ? 1 : fail(message, queue, "memory registered for probes");
}

static int open_completions(struct syn_verbs_queue *queue, char *message)
{
    struct ibv_context *context = queue->port->context;
    queue->channel = verbs.create_comp_channel(context);
    if (queue->channel == NULL)
        return fail(message, queue, "completion channel");
    int flags = fcntl(queue->channel->fd, F_GETFL);
    (void)fcntl(queue->channel->fd, F_SETFL, flags | O_NONBLOCK);
    if (queue->port->clock->in_force) {
        struct ibv_cq_init_attr_ex attr = {
            .cqe = 2 * queue->depth,
            .channel = queue->channel,
            .wc_flags = IBV_WC_EX_WITH_BYTE_LEN | IBV_WC_EX_WITH_SRC_QP |
                        IBV_WC_EX_WITH_COMPLETION_TIMESTAMP,
        };
        queue->stamped = ibv_create_cq_ex(context, &attr);
        queue->cq = queue->stamped ? ibv_cq_ex_to_cq(queue->stamped) : NULL;
        if (queue->cq == NULL) /* nothing is stamped until the NIC is attached again */
            snprintf(queue->port->clock->fault, sizeof queue->port->clock->fault,
                     "completions cannot be stamped by its clock (%s)", strerror(errno));
    }
    if (queue->cq == NULL)
        queue->cq = verbs.create_cq(context, (int)(2 * queue->depth), NULL, queue->channel, 0);
    return queue->cq != NULL ? 1 : fail(message, queue, "completion queue");
}

static int begin(const struct syn_verbs_queue *queue)
{
    struct ibv_qp_attr attr = {.qp_state = IBV_QPS_INIT, .port_num = queue->port->number,
                               .qkey = QKEY};
    int failed = verbs.modify_qp(queue->qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT |
                                                       IBV_QP_QKEY);
    attr.qp_state = IBV_QPS_RTR;
    failed = failed ? failed : verbs.modify_qp(queue->qp, &attr, IBV_QP_STATE);
    attr.qp_state = IBV_QPS_RTS;
    failed = failed ? failed : verbs.modify_qp(queue->qp, &attr, IBV_QP_STATE | IBV_QP_SQ_PSN);
    if (failed > 0)
        errno = failed;
    return failed == 0;
}

static int receive_into(struct syn_verbs_queue *queue, unsigned slot)
{
    struct ibv_sge sge = {.addr = (uintptr_t)(queue->memory + slot * queue->stride),
                          .length = (uint32_t)queue->stride, .lkey = queue->mr->lkey};
    struct ibv_recv_wr wr = {.wr_id = RECEIVED | slot, .sg_list = &sge, .num_sge = 1}, *bad;
    return ibv_post_recv(queue->qp, &wr, &bad) == 0;
}

static int open_pair(struct syn_verbs_queue *queue, char *message)
{
    struct ibv_qp_init_attr attr = {
        .send_cq = queue->cq,
        .recv_cq = queue->cq,
        .cap = {.max_send_wr = queue->depth, .max_recv_wr = queue->depth, .max_send_sge = 1,
                .max_recv_sge = 1},
        .qp_type = IBV_QPT_UD,
        .sq_sig_all = 1,
    };
    queue->qp = verbs.create_qp(queue->port->pd, &attr);
    if (queue->qp == NULL)
        return fail(message, queue, "queue pair");
    if (!begin(queue))
        return fail(message, queue, "queue pair that sends");
    for (unsigned slot = 0; slot < queue->depth; slot++)
        if (!receive_into(queue, slot))
            return fail(message, queue, "queue pair that receives");
    return syn_verbs_queue_arm(queue) ? 1 : fail(message, queue, "notice of completions");
}

struct syn_verbs_queue *syn_verbs_queue_open(struct syn_verbs_port *port, int reflector,
                                             char *message)
{
    struct syn_verbs_queue *queue = calloc(1, sizeof *queue);
    if (queue == NULL)
        return NULL;
    *queue = (struct syn_verbs_queue){
        .port = port, .depth = reflector ? REFLECTOR_DEPTH : DEPTH, .memory = MAP_FAILED};
    if (open_memory(queue, message) && open_completions(queue, message) &&
        open_pair(queue, message))
        return queue;
    syn_verbs_queue_close(queue);
    return NULL;
}

void syn_verbs_queue_close(struct syn_verbs_queue *queue)
{
    if (queue->qp)
        verbs.destroy_qp(queue->qp);
    if (queue->cq)
        verbs.destroy_cq(queue->cq);
    if (queue->channel)
        verbs.destroy_comp_channel(queue->channel);
    if (queue->mr)
        verbs.dereg_mr(queue->mr);
    if (queue->memory != MAP_FAILED)
        munmap(queue->memory, queue->bytes);
    free(queue->idle);
    free(queue);
}

int syn_verbs_queue_fd(const struct syn_verbs_queue *queue)
{
    return queue->channel->fd;
}

unsigned syn_verbs_queue_depth(const struct syn_verbs_queue *queue)
{
    return queue->depth;
}

uint32_t syn_verbs_queue_number(const struct syn_verbs_queue *queue)
{
    return queue->qp->qp_num;
}

/* --- completions ---------------------------------------------------------------------------- */

int syn_verbs_queue_arm(struct syn_verbs_queue *queue)
{
    struct ibv_cq *cq;
    void *context;
    while (verbs.get_cq_event(queue->channel, &cq, &context) == 0)
        verbs.ack_cq_events(cq, 1);
    return ibv_req_notify_cq(queue->cq, 0) == 0;
}

static struct syn_verbs_done done_of(const struct syn_verbs_queue *queue, uint64_t wr_id,
                                     enum ibv_wc_status status)
{
    struct syn_verbs_done done = {.failed = status != IBV_WC_SUCCESS, .sent = !(wr_id & RECEIVED),
                                  .slot = (unsigned)(wr_id & (RECEIVED - 1)) % queue->depth};
    if (!done.sent)
        done.data = queue->memory + done.slot * queue->stride + GRH_BYTES;
    return done;
}

static void set_received(struct syn_verbs_done *done, uint32_t bytes, uint32_t qpn)
{
    done->length = bytes > GRH_BYTES ? bytes - GRH_BYTES : 0;
    done->qpn = qpn;
}

static unsigned poll_stamped(struct syn_verbs_queue *queue, struct syn_verbs_done *done,
                             unsigned room)
{
    struct ibv_cq_ex *cq = queue->stamped;
    struct ibv_poll_cq_attr attr = {0};
    unsigned count = 0;
    if (ibv_start_poll(cq, &attr))
        return 0;
    do {
        struct syn_verbs_done *at = &done[count++];
        *at = done_of(queue, cq->wr_id, cq->status);
        if (at->failed)
            continue;
        if (!at->sent)
            set_received(at, ibv_wc_read_byte_len(cq), ibv_wc_read_src_qp(cq));
        at->stamp_ns = syn_verbs_clock_stamp_ns(queue->port->clock, ibv_wc_read_completion_ts(cq));
    } while (count < room && ibv_next_poll(cq) == 0);
    ibv_end_poll(cq);
    return count;
}

unsigned syn_verbs_queue_poll(struct syn_verbs_queue *queue, struct syn_verbs_done *done,
                              unsigned room)
{
    if (queue->stamped)
        return poll_stamped(queue, done, room);
    struct ibv_wc completions[POLL_BATCH];
    int count = ibv_poll_cq(queue->cq, room < POLL_BATCH ? (int)room : POLL_BATCH, completions);
    for (int i = 0; i < count; i++) {
        done[i] = done_of(queue, completions[i].wr_id, completions[i].status);
        if (!done[i].failed && !done[i].sent)
            set_received(&done[i], completions[i].byte_len, completions[i].src_qp);
    }
    if (count < 0)
        done[0] = (struct syn_verbs_done){.failed = 1};
    return count < 0 ? 1 : (unsigned)count;
}

void syn_verbs_queue_give_back(struct syn_verbs_queue *queue, const struct syn_verbs_done *done)
{
    if (!done->sent)
        (void)receive_into(queue, done->slot);
    else if (queue->idle_count < queue->depth)
        queue->idle[queue->idle_count++] = done->slot;
}

/* --- sending -------------------------------------------------------------------------------- */

uint8_t *syn_verbs_queue_room(struct syn_verbs_queue *queue, unsigned *slot)
{
    if (queue->idle_count == 0)
        return NULL;
    *slot = queue->idle[queue->idle_count - 1];
    return queue->memory + queue->depth * queue->stride + *slot * SEND_STRIDE;
}

int syn_verbs_queue_send(struct syn_verbs_queue *queue, unsigned slot,
                         const struct syn_verbs_address *to, uint32_t qpn)
{
    struct ibv_sge sge = {
        .addr = (uintptr_t)(queue->memory + queue->depth * queue->stride + slot * SEND_STRIDE),
        .length = SYN_PACKET_BYTES, .lkey = queue->mr->lkey};
    struct ibv_send_wr wr = {
        .wr_id = slot, .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_SEND,
        .send_flags = IBV_SEND_SIGNALED,
        .wr.ud = {.ah = (struct ibv_ah *)(uintptr_t)to, .remote_qpn = qpn, .remote_qkey = QKEY}};
    struct ibv_send_wr *bad;
    int failed = ibv_post_send(queue->qp, &wr, &bad);
    queue->idle_count -= failed == 0;
    return failed;
}
