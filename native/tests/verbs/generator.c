/* verbs_generator SEED MILLISECONDS DELAY_FORTH_US DELAY_BACK_US
 *
 * Random programs over a provider that this file alone knows: batches, unsignalled and inline sends,
 * posts that fail half way, shared receive queues, completions of several queue pairs mixed in one
 * queue, queue pairs that fail, are reset and get the same or other numbers. What is watched of them
 * goes to the agent that SYNTONY_AGENT names; what truly happened is printed, a line for each message
 * that was received:
 *
 *     BYTES FORTH SENT_AFTER SENT_BEFORE RECEIVED_AFTER RECEIVED_BEFORE     (CLOCK_MONOTONIC, ns)
 *
 * No two messages have the same length, so a length says which message it was. */
#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "check.h"
#include "watch.h"

enum { LINKS = 5, MAX_MESSAGES = 1 << 12, MAX_WR = 12 };

struct message { uint32_t bytes; int64_t after_ns, before_ns, due_ns; bool takes, signaled; };

struct end { /* one queue pair and what is on its way from it */
    struct ibv_qp qp;
    struct end *peer;
    bool forth, ready;
    struct message wire[MAX_MESSAGES];
    unsigned first, count;
    unsigned receives;
    int64_t last_due_ns;
};

struct entry { struct ibv_wc wc; struct message message; bool forth; };
struct queue { struct ibv_cq cq; struct entry entries[4 * MAX_MESSAGES]; unsigned first, last; };

static struct ibv_context contexts[2];
static struct queue queues[4]; /* of receives, and on some queue pairs of sends; then of sends */
static struct end ends[LINKS][2];
static struct ibv_srq shared;
static int64_t delays_ns[2];
static uint32_t next_number = 17, next_bytes = 100;
static uint64_t state;

static uint64_t draw(uint64_t below)
{
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return state % below;
}

static int64_t now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * INT64_C(1000000000) + t.tv_nsec;
}

static void complete(struct end *end, struct ibv_wc wc, const struct message *message, bool receive)
{
    struct queue *queue = (struct queue *)(receive ? end->qp.recv_cq : end->qp.send_cq);
    wc.qp_num = end->qp.qp_num;
    struct entry entry = {.wc = wc, .forth = end->peer->forth};
    if (receive)
        entry.message = *message;
    CHECK(queue->last - queue->first < 4 * MAX_MESSAGES);
    queue->entries[queue->last++ % (4 * MAX_MESSAGES)] = entry;
}

static void poll(struct queue *queue);

static int posts(struct ibv_qp *qp, struct ibv_send_wr *wr, struct ibv_send_wr **bad)
{
    struct end *end = (struct end *)qp;
    int64_t before_ns = now();
    for (; wr; wr = wr->next) {
        *bad = wr;
        if (end->count == MAX_MESSAGES || !end->ready || draw(40) == 0)
            return ENOMEM;
        struct message message = {.after_ns = (int64_t)wr->wr_id, .before_ns = before_ns,
                                  .signaled = wr->send_flags & IBV_SEND_SIGNALED,
                                  .takes = wr->opcode != IBV_WR_RDMA_WRITE &&
                                           wr->opcode != IBV_WR_RDMA_READ};
        for (int i = 0; i < wr->num_sge; i++)
            message.bytes += wr->sg_list[i].length;
        message.due_ns = now() + delays_ns[end->forth] + (int64_t)draw(50000);
        if (message.due_ns < end->last_due_ns)
            message.due_ns = end->last_due_ns;
        end->last_due_ns = message.due_ns;
        end->wire[(end->first + end->count++) % MAX_MESSAGES] = message;
    }
    return 0;
}

static int receives(struct ibv_qp *qp, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad)
{
    (void)bad;
    for (; wr; wr = wr->next)
        ((struct end *)qp)->receives++;
    return 0;
}

static int polls(struct ibv_cq *cq, int room, struct ibv_wc *wc)
{
    struct queue *queue = (struct queue *)cq;
    int got = 0;
    while (got < room && queue->first != queue->last)
        wc[got++] = queue->entries[queue->first++ % (4 * MAX_MESSAGES)].wc;
    return got;
}

static int query_gid(struct ibv_context *context, uint8_t port, int index, union ibv_gid *gid)
{
    (void)port, (void)index;
    memset(gid, 0, sizeof *gid);
    gid->raw[10] = gid->raw[11] = 0xff;
    gid->raw[12] = 10;
    gid->raw[15] = (uint8_t)(1 + (context - contexts));
    return 0;
}

static void modify(struct end *end, enum ibv_qp_state to, uint32_t psn)
{
    struct ibv_qp_attr attr = {.qp_state = to, .dest_qp_num = end->peer->qp.qp_num, .rq_psn = psn,
                               .sq_psn = psn, .ah_attr = {.is_global = 1, .port_num = 1}};
    int mask = IBV_QP_STATE;
    if (to == IBV_QPS_RTR) {
        query_gid(end->peer->qp.context, 1, 0, &attr.ah_attr.grh.dgid);
        mask |= IBV_QP_AV | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN;
    } else if (to == IBV_QPS_RTS)
        mask |= IBV_QP_SQ_PSN;
    end->ready = to == IBV_QPS_RTS;
    watch_modified(&end->qp, &attr, mask);
}

/* A provider takes completions of a queue pair that is reset or destroyed out of its queue. */
static void purge(const struct end *end, struct queue *queue)
{
    for (unsigned at = queue->first; at != queue->last; at++) {
        struct entry *entry = &queue->entries[at % (4 * MAX_MESSAGES)];
        if (entry->wc.qp_num == end->qp.qp_num)
            *entry = (struct entry){.wc = {.qp_num = 1}};
    }
}

static int destroyed(struct ibv_qp *qp) { (void)qp; return 0; }

/* Both ends, in either order; between them messages are lost, as on a wire. */
static void reconnect(struct end *a, struct end *b, bool anew)
{
    struct end *both[] = {a, b};
    uint32_t psn = draw(2) ? 0 : (uint32_t)draw(1 << 24);
    for (int i = 0; i < 2; i++) {
        struct end *end = both[i];
        while (end->count) { /* flushed */
            struct message *message = &end->wire[end->first++ % MAX_MESSAGES];
            end->count--;
            if (draw(2))
                complete(end, (struct ibv_wc){.status = IBV_WC_WR_FLUSH_ERR, .opcode = 77}, message,
                         false);
        }
        end->receives = 0;
        end->last_due_ns = 0;
        if (draw(2))
            poll((struct queue *)end->qp.send_cq); /* some see how it failed */
        for (int each = 0; each < 4; each++)
            purge(end, &queues[each]);
        if (anew) {
            watch_destroy_qp(&end->qp, destroyed);
            end->qp.qp_num = next_number++;
            end->qp.srq = draw(4) ? NULL : &shared;
        } else
            modify(end, IBV_QPS_RESET, 0);
    }
    for (int i = 0; i < 2; i++)
        modify(both[i], IBV_QPS_INIT, 0);
    for (int i = 0; i < 2; i++)
        modify(both[i], IBV_QPS_RTR, psn);
    for (int i = 0; i < 2; i++)
        modify(both[i], IBV_QPS_RTS, psn);
}

static void post(struct end *end)
{
    struct ibv_send_wr work[MAX_WR], *bad;
    struct ibv_sge parts[MAX_WR][3];
    static const enum ibv_wr_opcode KINDS[] = {IBV_WR_SEND, IBV_WR_SEND_WITH_IMM, IBV_WR_RDMA_WRITE,
                                               IBV_WR_RDMA_WRITE_WITH_IMM, IBV_WR_SEND_WITH_INV,
                                               IBV_WR_RDMA_READ};
    int count = 1 + (int)draw(MAX_WR);
    int64_t after_ns = now();
    for (int i = 0; i < count; i++) {
        uint32_t bytes = next_bytes++, first = (uint32_t)draw(bytes);
        parts[i][0] = (struct ibv_sge){.length = first};
        parts[i][1] = (struct ibv_sge){.length = bytes - first};
        work[i] = (struct ibv_send_wr){
            .next = i + 1 < count ? &work[i + 1] : NULL, .sg_list = parts[i], .num_sge = 2,
            .wr_id = (uint64_t)after_ns, .opcode = KINDS[draw(6)],
            .send_flags = (draw(3) ? IBV_SEND_SIGNALED : 0) | (draw(2) ? IBV_SEND_INLINE : 0)};
    }
    ibv_post_send(&end->qp, work, &bad);
}

static void give_credits(struct end *end)
{
    struct ibv_recv_wr work[4] = {{0}}, *bad;
    int count = 1 + (int)draw(4);
    for (int i = 0; i + 1 < count; i++)
        work[i].next = &work[i + 1];
    if (end->qp.srq)
        end->receives += (unsigned)count;
    else if (end->receives < MAX_MESSAGES)
        ibv_post_recv(&end->qp, work, &bad);
}

static void deliver(struct end *end)
{
    while (end->count) {
        struct message *message = &end->wire[end->first % MAX_MESSAGES];
        if (message->due_ns > now() || (message->takes && end->peer->receives == 0))
            return;
        struct message whole = *message;
        end->first++;
        end->count--;
        if (whole.takes) {
            end->peer->receives--;
            complete(end->peer, (struct ibv_wc){.opcode = draw(2) ? IBV_WC_RECV
                                                                  : IBV_WC_RECV_RDMA_WITH_IMM,
                                                .byte_len = whole.bytes}, &whole, true);
        }
        if (whole.signaled)
            complete(end, (struct ibv_wc){.opcode = IBV_WC_SEND}, &whole, false);
    }
}

static void poll(struct queue *queue)
{
    struct ibv_wc wc[16];
    unsigned first = queue->first;
    int64_t after_ns = now();
    int got = ibv_poll_cq(&queue->cq, 1 + (int)draw(16), wc);
    int64_t before_ns = now();
    for (int i = 0; i < got; i++) {
        struct entry *entry = &queue->entries[(first + (unsigned)i) % (4 * MAX_MESSAGES)];
        if (entry->message.bytes)
            printf("%u %d %" PRId64 " %" PRId64 " %" PRId64 " %" PRId64 "\n", entry->message.bytes,
                   entry->forth, entry->message.after_ns, entry->message.before_ns, after_ns,
                   before_ns);
    }
}

static void open_device(int i)
{
    static const struct watch_verbs VERBS = {.query_gid = query_gid};
    contexts[i].ops = (struct ibv_context_ops){.post_send = posts, .post_recv = receives,
                                               .poll_cq = polls};
    watch_opened(&contexts[i], i ? "wire1" : "wire0", &VERBS, true);
    CHECK(contexts[i].ops.post_send != posts);
    queues[i].cq.context = queues[2 + i].cq.context = &contexts[i];
}

int main(int count, char **words)
{
    CHECK(count == 5);
    state = strtoull(words[1], NULL, 0) * UINT64_C(0x9e3779b97f4a7c15) | 1;
    int64_t end_ns = now() + atoll(words[2]) * 1000000;
    delays_ns[1] = atoll(words[3]) * 1000;
    delays_ns[0] = atoll(words[4]) * 1000;
    open_device(0);
    open_device(1);
    for (int link = 0; link < LINKS; link++)
        for (int i = 0; i < 2; i++) {
            struct end *end = &ends[link][i];
            end->peer = &ends[link][!i];
            end->forth = i == 0;
            end->qp = (struct ibv_qp){.context = &contexts[i], .qp_num = next_number++,
                                      .qp_type = IBV_QPT_RC,
                                      .send_cq = &queues[i + 2 * (link & 1)].cq,
                                      .recv_cq = &queues[i].cq};
        }
    for (int link = 0; link < LINKS; link++)
        reconnect(&ends[link][0], &ends[link][1], true);
    while (now() < end_ns) {
        struct end *end = &ends[draw(LINKS)][draw(2)];
        switch (draw(8)) {
        case 0: post(end); break;
        case 1: case 2: case 3: give_credits(end); break;
        case 4: deliver(end); break;
        case 5: case 6: poll(&queues[draw(4)]); break;
        default: break;
        }
        if (draw(60000) == 0)
            reconnect(end, end->peer, draw(2));
        if (draw(100) == 0)
            nanosleep(&(struct timespec){.tv_nsec = (long)draw(draw(50) ? 100000 : 8000000)}, NULL);
    }
    fflush(stdout);
    nanosleep(&(struct timespec){.tv_sec = 1, .tv_nsec = 500000000}, NULL); /* until it was read */
    return 0;
}
