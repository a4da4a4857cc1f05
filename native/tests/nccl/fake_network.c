#include "fake_network.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
struct device devices[FAKE_PORTS];
struct pair *pairs[MAX_PAIRS];
struct region *regions[MAX_REGIONS];
uint32_t pair_count = 1, region_count = 1;
struct fake_counts counts;
uint64_t random_state = 88172645463325252u;

static atomic_int_least64_t due_ns; /* nothing is due before */

bool fake_is_due(int64_t now_ns)
{
    return now_ns >= atomic_load_explicit(&due_ns, memory_order_relaxed);
}

static void soon(int64_t at_ns)
{
    if (at_ns < atomic_load(&due_ns))
        atomic_store(&due_ns, at_ns);
}

static uint64_t draw(void)
{
    random_state ^= random_state << 13;
    random_state ^= random_state >> 7;
    random_state ^= random_state << 17;
    return random_state;
}

int64_t fake_now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * INT64_C(1000000000) + t.tv_nsec;
}

void fake_free_entry(struct entry *entry)
{
    free(entry->own);
    free(entry);
}

/* Behind the one before of its queue, and before others that come later. */
static struct cqe **place_of(struct cq *cq, struct pair *pair, struct cqe *cqe)
{
    int64_t *before_ns = &pair->completed_ns[(cqe->wc.opcode & IBV_WC_RECV) != 0];
    struct cqe **to = &cq->first;
    cqe->due_ns += (int64_t)(draw() % (uint64_t)vendor.scrambled_ns);
    *before_ns = cqe->due_ns = cqe->due_ns > *before_ns ? cqe->due_ns : *before_ns;
    while (*to && (*to)->due_ns <= cqe->due_ns)
        to = &(*to)->next;
    return to;
}

struct cqe *fake_complete(struct ibv_cq *base, struct pair *pair, const struct ibv_wc *wc,
                          int64_t due_ns)
{
    struct cq *cq = (struct cq *)base;
    const struct device *device = &devices[pair->port];
    struct cqe *cqe = calloc(1, sizeof *cqe);
    cqe->due_ns = due_ns ? due_ns : fake_now() + device->fault.completion_delay_ns;
    cqe->stamp = fake_stamp(device);
    cqe->wc = *wc;
    cqe->pair = pair;
    cqe->psn = pair->sends ? pair->sends->psn : 0;
    cqe->wc.qp_num = pair->base.qp_num;
    if (++cq->waiting > cq->depth && cq->depth)
        fake_misused("a completion queue overruns");
    struct cqe **to = vendor.scrambled_ns ? place_of(cq, pair, cqe) : cq->last;
    cqe->next = *to;
    *to = cqe;
    if (cqe->next == NULL)
        cq->last = &cqe->next;
    if (cq->first == cqe)
        atomic_store(&cq->ready_ns, cqe->due_ns);
    return cqe;
}

void fake_drop_first(struct cq *cq)
{
    struct cqe *cqe = cq->first;
    struct pair *pair = pairs[cqe->wc.qp_num];
    cq->first = cqe->next;
    cq->waiting--;
    if (cq->first == NULL)
        cq->last = &cq->first;
    if (pair == cqe->pair && cqe->wc.opcode & IBV_WC_RECV)
        pair->receive_count--;
    else if (pair == cqe->pair)
        pair->freed_psn = cqe->psn + 1;
    free(cqe);
}

static struct cqe *complete(struct ibv_cq *base, struct pair *pair, uint64_t wr_id,
                            enum ibv_wc_status status, enum ibv_wc_opcode opcode, uint32_t size,
                            int64_t due_ns)
{
    struct ibv_wc wc = {.wr_id = wr_id, .status = status, .opcode = opcode, .byte_len = size};
    return fake_complete(base, pair, &wc, due_ns);
}

static enum ibv_wc_opcode opcode_of(const struct entry *entry)
{
    return entry->is_send ? IBV_WC_SEND : entry->is_read ? IBV_WC_RDMA_READ : IBV_WC_RDMA_WRITE;
}

void fake_flush(struct pair *pair, enum ibv_wc_status first)
{
    int64_t due_ns = fake_now() + devices[pair->port].fault.completion_delay_ns;
    if (pair->base.state != IBV_QPS_ERR)
        pair->closing_ns = due_ns;
    pair->base.state = IBV_QPS_ERR;
    while (pair->sends) {
        struct entry *entry = pair->sends;
        complete(pair->base.send_cq, pair, entry->wr_id, first, opcode_of(entry), 0, due_ns);
        first = IBV_WC_WR_FLUSH_ERR;
        pair->sends = entry->next;
        fake_free_entry(entry);
    }
    pair->last_send = &pair->sends;
    while (pair->receives) {
        struct receive *receive = pair->receives;
        complete(pair->base.recv_cq, pair, receive->wr_id, IBV_WC_WR_FLUSH_ERR, IBV_WC_RECV, 0,
                 due_ns);
        pair->receives = receive->next;
        free(receive);
    }
    pair->last_receive = &pair->receives;
}

void fake_transmit(struct pair *pair, struct packet *packet)
{
    const struct fake_fault *fault = &devices[pair->port].fault;
    int64_t at_ns = fake_now() + BASE_DELAY_NS + fault->delay_ns;
    if (!devices[pair->port].active || (int)(draw() % 1000) < fault->lost_permille) {
        free(packet);
        return;
    }
    if (fault->kept == (packet->is_ack ? FAKE_ACKS : FAKE_DATA)) {
        struct packet **last = &pair->kept;
        while (*last)
            last = &(*last)->next;
        *last = packet;
        return;
    }
    packet->due_ns = at_ns > pair->last_due_ns ? at_ns : pair->last_due_ns;
    pair->last_due_ns = packet->due_ns;
    soon(packet->due_ns);
    *pair->last_out = packet;
    pair->last_out = &packet->next;
    if ((int)(draw() % 1000) < fault->duplicated_permille) {
        struct packet *twin = malloc(sizeof *twin + packet->size);
        memcpy(twin, packet, sizeof *twin + packet->size);
        twin->next = NULL;
        *pair->last_out = twin;
        pair->last_out = &twin->next;
    }
}

static int64_t timeout_ns(const struct pair *pair)
{
    return pair->progress_ns + (INT64_C(4096) << pair->timeout);
}

void fake_send_entry(struct pair *pair, const struct entry *entry)
{
    struct packet *packet = malloc(sizeof *packet + entry->size);
    *packet = (struct packet){.psn = entry->psn, .is_send = entry->is_send,
                              .is_read = entry->is_read,
                              .has_immediate = entry->has_immediate, .immediate = entry->immediate,
                              .address = entry->address, .rkey = entry->rkey, .size = entry->size};
    if (entry->size && !entry->is_read)
        memcpy(packet->data, entry->from, entry->size);
    soon(timeout_ns(pair));
    fake_transmit(pair, packet);
}

static void acknowledge(struct pair *pair)
{
    struct packet *ack = calloc(1, sizeof *ack);
    ack->is_ack = true;
    ack->psn = pair->expected_psn;
    fake_transmit(pair, ack);
}

static void take_ack(struct pair *pair, uint32_t psn)
{
    if (pair->sends && psn - pair->sends->psn > pair->next_psn - pair->sends->psn)
        return; /* of nothing that is outstanding */
    while (pair->sends && (int32_t)(psn - pair->sends->psn) > 0) {
        struct entry *entry = pair->sends;
        if (entry->signaled)
            complete(pair->base.send_cq, pair, entry->wr_id, IBV_WC_SUCCESS, opcode_of(entry), 0, 0);
        pair->sends = entry->next;
        if (pair->sends == NULL)
            pair->last_send = &pair->sends;
        fake_free_entry(entry);
        pair->retries = 0;
        pair->progress_ns = fake_now();
    }
}

bool fake_knows(int port, uint32_t key)
{
    return key < region_count && regions[key] && regions[key]->used &&
           fake_device_of(regions[key]->mr.context) == &devices[port];
}

static bool may_write(const struct pair *to, const struct packet *packet)
{
    if (!fake_knows(to->port, packet->rkey))
        return false;
    const struct ibv_mr *mr = &regions[packet->rkey]->mr;
    uint64_t start = (uint64_t)(uintptr_t)mr->addr;
    return packet->address >= start && packet->size <= mr->length &&
           packet->address - start <= mr->length - packet->size;
}

/* The oldest receive completes: with the data of a SEND, or the immediate of a WRITE. */
static void take_receive(struct pair *to, const struct packet *packet)
{
    struct receive *receive = to->receives;
    if (packet->is_send)
        memcpy(receive->to, packet->data, packet->size < receive->size ? packet->size
                                                                       : receive->size);
    struct cqe *cqe = complete(to->base.recv_cq, to, receive->wr_id, IBV_WC_SUCCESS,
                               packet->is_send ? IBV_WC_RECV : IBV_WC_RECV_RDMA_WITH_IMM,
                               packet->size, 0);
    cqe->wc.imm_data = packet->immediate;
    cqe->wc.wc_flags = packet->has_immediate ? IBV_WC_WITH_IMM : 0;
    to->receives = receive->next;
    if (to->receives == NULL)
        to->last_receive = &to->receives;
    free(receive);
}

static void write_memory(struct device *device, const struct packet *packet)
{
    counts.writes++;
    counts.writes_at[device - devices]++;
    if (!fake_is_gpu(packet->address)) {
        memcpy((void *)(uintptr_t)packet->address, packet->data, packet->size);
        return;
    }
    struct packet *later = malloc(sizeof *later + packet->size);
    memcpy(later, packet, sizeof *later + packet->size);
    later->next = NULL;
    if (device->written == NULL)
        device->last_written = &device->written;
    *device->last_written = later;
    device->last_written = &later->next;
}

/* What a read brings along. The byte that is read itself is of no interest. */
static void show_written(struct device *device)
{
    while (device->written) {
        struct packet *first = device->written;
        memcpy((void *)(uintptr_t)first->address, first->data, first->size);
        device->written = first->next;
        free(first);
    }
}

/* A request arrives at its responder. */
static void execute(struct pair *from, struct pair *to, const struct packet *packet)
{
    if (packet->psn != to->expected_psn) {
        if ((int32_t)(packet->psn - to->expected_psn) < 0) {
            counts.duplicates++;
            acknowledge(to);
        }
        return;
    }
    if ((packet->is_send || packet->has_immediate) && to->receives == NULL) {
        counts.not_ready++;
        return;
    }
    if (!packet->is_send && packet->size) {
        if (!may_write(to, packet)) {
            counts.wrong_key++;
            fake_flush(from, IBV_WC_REM_ACCESS_ERR);
            return;
        }
        if (packet->is_read)
            show_written(&devices[to->port]);
        else
            write_memory(&devices[to->port], packet);
    }
    if (packet->is_send || packet->has_immediate)
        take_receive(to, packet);
    counts.after_end += from->base.state != IBV_QPS_RTS;
    to->expected_psn++;
    acknowledge(to);
}

static void deliver(struct pair *from, const struct packet *packet)
{
    if (packet->datagram.qpn) {
        fake_deliver_datagram(from, packet);
        return;
    }
    struct pair *to = from->peer < pair_count ? pairs[from->peer] : NULL;
    if (to == NULL || to->gone || !devices[to->port].active || to->peer_port != from->port)
        return;
    if (packet->is_ack) {
        if (to->base.state == IBV_QPS_RTS)
            take_ack(to, packet->psn);
    } else if (limits.mtu[to->port] >= 0 && from->mtu > limits.mtu[to->port]) {
        return; /* too long for the peer's port */
    } else if (to->base.state == IBV_QPS_RTR || to->base.state == IBV_QPS_RTS ||
               (to->base.state == IBV_QPS_ERR && fake_now() < to->closing_ns && !packet->is_send))
        execute(from, to, packet);
}

static void retransmit(struct pair *pair, int64_t now_ns)
{
    if (pair->base.state != IBV_QPS_RTS || pair->sends == NULL || now_ns < timeout_ns(pair))
        return;
    if (pair->retries++ >= pair->retry_count) {
        fake_flush(pair, IBV_WC_RETRY_EXC_ERR);
        return;
    }
    pair->progress_ns = now_ns;
    for (struct entry *entry = pair->sends; entry; entry = entry->next)
        if (entry->size && !entry->own && !fake_knows(pair->port, entry->lkey)) {
            fake_flush(pair, IBV_WC_LOC_PROT_ERR); /* its memory is not registered any more */
            return;
        }
    for (struct entry *entry = pair->sends; entry; entry = entry->next) {
        counts.retransmitted++;
        fake_send_entry(pair, entry);
    }
}

void fake_step(void)
{
    int64_t now_ns = fake_now();
    atomic_store(&due_ns, INT64_MAX);
    for (uint32_t i = 1; i < pair_count; i++) {
        struct pair *pair = pairs[i];
        if (pair == NULL)
            continue;
        while (pair->out && pair->out->due_ns <= now_ns) {
            struct packet *packet = pair->out;
            pair->out = packet->next;
            if (pair->out == NULL)
                pair->last_out = &pair->out;
            deliver(pair, packet);
            free(packet);
        }
        retransmit(pair, now_ns);
        if (pair->out)
            soon(pair->out->due_ns);
        if (pair->sends)
            soon(timeout_ns(pair));
        if (pair->gone && pair->out == NULL && pair->kept == NULL) {
            pairs[i] = NULL;
            free(pair);
        }
    }
}

#pragma GCC visibility push(default)

int fake_kept(int port)
{
    int count = 0;
    pthread_mutex_lock(&lock);
    for (uint32_t i = 1; i < pair_count; i++)
        for (const struct packet *each = pairs[i] ? pairs[i]->kept : NULL; each; each = each->next)
            count += pairs[i]->port == port;
    pthread_mutex_unlock(&lock);
    return count;
}

void fake_let_go(int port)
{
    pthread_mutex_lock(&lock);
    devices[port].fault.kept = 0;
    for (uint32_t i = 1; i < pair_count; i++)
        while (pairs[i] && pairs[i]->port == port && pairs[i]->kept) {
            struct packet *first = pairs[i]->kept;
            pairs[i]->kept = first->next;
            deliver(pairs[i], first);
            free(first);
        }
    pthread_mutex_unlock(&lock);
}
