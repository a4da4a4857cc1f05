/* Work requests and completions of the fake provider, and what tests set and ask. */
#include <errno.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "fake_network.h"

#pragma GCC visibility push(default)

struct fake_limits limits = {-1, -1, -1, -1, {-1, -1, -1, -1}, -1};
struct fake_vendor vendor;

void fake_be(const struct fake_vendor *to)
{
    pthread_mutex_lock(&lock);
    vendor = *to;
    pthread_mutex_unlock(&lock);
}

void fake_limit(const struct fake_limits *to)
{
    pthread_mutex_lock(&lock);
    limits = *to;
    pthread_mutex_unlock(&lock);
}

static int do_post_send(struct ibv_qp *qp, struct ibv_send_wr *wr, struct ibv_send_wr **bad)
{
    struct pair *pair = (struct pair *)qp;
    const struct ibv_send_wr *first = wr;
    pthread_mutex_lock(&lock);
    for (; wr; wr = wr->next) {
        *bad = wr;
        if ((qp->state != IBV_QPS_RTS && qp->state != IBV_QPS_ERR) ||
            fake_device_of(qp->context)->gone) {
            pthread_mutex_unlock(&lock);
            return EINVAL;
        }
        int refusing = fake_device_of(qp->context)->machine.refusing;
        if ((refusing == 1 || (refusing == 2 && wr != first)) && qp->qp_type == IBV_QPT_RC) {
            pthread_mutex_unlock(&lock);
            return ENOMEM;
        }
        if (qp->qp_type == IBV_QPT_UD) {
            int failed = fake_send_datagram(pair, wr);
            if (failed) {
                pthread_mutex_unlock(&lock);
                return failed;
            }
            continue;
        }
        if (wr->num_sge && !(wr->send_flags & IBV_SEND_INLINE) &&
            !fake_knows(pair->port, wr->sg_list->lkey)) {
            counts.wrong_key++;
            pthread_mutex_unlock(&lock);
            return EINVAL;
        }
        if (pair->send_room && pair->next_psn - pair->freed_psn >= pair->send_room)
            fake_misused("a send queue overruns");
        struct entry *entry = calloc(1, sizeof *entry);
        *entry = (struct entry){.psn = pair->next_psn++, .wr_id = wr->wr_id,
                                .address = wr->wr.rdma.remote_addr, .rkey = wr->wr.rdma.rkey,
                                .is_send = wr->opcode == IBV_WR_SEND,
                                .is_read = wr->opcode == IBV_WR_RDMA_READ,
                                .has_immediate = wr->opcode == IBV_WR_RDMA_WRITE_WITH_IMM,
                                .immediate = wr->imm_data,
                                .signaled = wr->send_flags & IBV_SEND_SIGNALED};
        if (wr->num_sge) {
            entry->from = (void *)(uintptr_t)wr->sg_list->addr;
            entry->size = wr->sg_list->length;
            entry->lkey = wr->sg_list->lkey;
        }
        if (wr->send_flags & IBV_SEND_INLINE && entry->size)
            entry->from = entry->own = memcpy(malloc(entry->size), entry->from, entry->size);
        if (pair->sends == NULL)
            pair->progress_ns = fake_now();
        *pair->last_send = entry;
        pair->last_send = &entry->next;
        if (qp->state == IBV_QPS_ERR)
            fake_flush(pair, IBV_WC_WR_FLUSH_ERR);
        else
            fake_send_entry(pair, entry);
    }
    pthread_mutex_unlock(&lock);
    return 0;
}

static int do_post_recv(struct ibv_qp *qp, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad)
{
    struct pair *pair = (struct pair *)qp;
    pthread_mutex_lock(&lock);
    for (; wr; wr = wr->next) {
        *bad = wr;
        if (++pair->receive_count > pair->receive_room && pair->receive_room)
            fake_misused("a receive queue overruns");
        struct receive *receive = calloc(1, sizeof *receive);
        receive->wr_id = wr->wr_id;
        if (wr->num_sge) {
            receive->to = (void *)(uintptr_t)wr->sg_list->addr;
            receive->size = wr->sg_list->length;
        }
        *pair->last_receive = receive;
        pair->last_receive = &receive->next;
    }
    if (qp->state == IBV_QPS_ERR)
        fake_flush(pair, IBV_WC_WR_FLUSH_ERR);
    pthread_mutex_unlock(&lock);
    return 0;
}

static int do_poll_cq(struct ibv_cq *base, int room, struct ibv_wc *wc)
{
    struct cq *cq = (struct cq *)base;
    int got = 0;
    int64_t now_ns = fake_now();
    if (fake_device_of(base->context)->gone)
        return -1;
    if (!fake_is_due(now_ns) && now_ns < atomic_load(&cq->ready_ns))
        return 0;
    pthread_mutex_lock(&lock);
    fake_step();
    now_ns = fake_now();
    struct fake_machine *machine = &fake_device_of(base->context)->machine;
    if (machine->failing_polls && cq->first && cq->first->due_ns <= now_ns) {
        machine->failing_polls--;
        pthread_mutex_unlock(&lock);
        return -1;
    }
    while (got < room && cq->first && cq->first->due_ns <= now_ns) {
        wc[got++] = cq->first->wc;
        fake_drop_first(cq);
    }
    atomic_store(&cq->ready_ns, cq->first ? cq->first->due_ns : INT64_MAX);
    pthread_mutex_unlock(&lock);
    return got;
}

static struct { atomic_uint_least64_t posting_ns, posts, polling_ns, polls; } cost;

static void account(int64_t begun_ns, atomic_uint_least64_t *ns, atomic_uint_least64_t *calls)
{
    atomic_fetch_add_explicit(ns, (uint64_t)(fake_now() - begun_ns), memory_order_relaxed);
    atomic_fetch_add_explicit(calls, 1, memory_order_relaxed);
}

double fake_cost_of_accounting(void)
{
    enum { TIMES = 100, TRIES = 200 };
    double least_ns = 1e9;
    for (int try = 0; try < TRIES; try++) { /* others use the cores, too */
        atomic_uint_least64_t ns = 0, calls = 0;
        int64_t begun_ns = fake_now();
        for (int i = 0; i < TIMES; i++)
            account(fake_now(), &ns, &calls);
        double one_ns = (double)(fake_now() - begun_ns - (int64_t)ns) / TIMES;
        least_ns = one_ns < least_ns ? one_ns : least_ns;
    }
    return least_ns;
}

int fake_post_send(struct ibv_qp *qp, struct ibv_send_wr *wr, struct ibv_send_wr **bad)
{
    int64_t begun_ns = fake_now();
    int result = do_post_send(qp, wr, bad);
    account(begun_ns, &cost.posting_ns, &cost.posts);
    return result;
}

int fake_post_recv(struct ibv_qp *qp, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad)
{
    int64_t begun_ns = fake_now();
    int result = do_post_recv(qp, wr, bad);
    account(begun_ns, &cost.posting_ns, &cost.posts);
    return result;
}

static atomic_bool pauses; /* a machine has `pausing_ns` */

static void pause_once(struct ibv_cq *cq)
{
    bool waits = false;
    pthread_mutex_lock(&lock);
    struct fake_machine *machine = &fake_device_of(cq->context)->machine;
    for (uint32_t i = 1; machine->pausing_ns && i < pair_count; i++)
        waits |= pairs[i] && !pairs[i]->gone && pairs[i]->base.send_cq == cq &&
                 pairs[i]->base.state == IBV_QPS_ERR;
    int64_t for_ns = waits ? machine->pausing_ns : 0;
    if (waits)
        machine->pausing_ns = 0;
    pthread_mutex_unlock(&lock);
    nanosleep(&(struct timespec){for_ns / 1000000000, for_ns % 1000000000}, NULL);
}

int fake_poll_cq(struct ibv_cq *cq, int room, struct ibv_wc *wc)
{
    int64_t begun_ns = fake_now();
    int got = do_poll_cq(cq, room, wc);
    account(begun_ns, &cost.polling_ns, &cost.polls);
    if (got == 0 && atomic_load_explicit(&pauses, memory_order_relaxed))
        pause_once(cq);
    return got;
}

void fake_set_fault(int port, const struct fake_fault *fault)
{
    pthread_mutex_lock(&lock);
    devices[port].fault = *fault;
    pthread_mutex_unlock(&lock);
}

void fake_set_machine(int port, const struct fake_machine *machine)
{
    pthread_mutex_lock(&lock);
    devices[port].machine = *machine;
    atomic_store(&pauses, atomic_load(&pauses) || machine->pausing_ns);
    pthread_mutex_unlock(&lock);
}

const char *ibv_wc_status_str(enum ibv_wc_status status)
{
    return status == IBV_WC_RETRY_EXC_ERR ? "transport retry counter exceeded" : "completion error";
}

void fake_fail_queues(int port)
{
    pthread_mutex_lock(&lock);
    for (uint32_t i = 1; i < pair_count; i++)
        if (pairs[i] && pairs[i]->port == port && pairs[i]->base.state == IBV_QPS_RTS)
            fake_flush(pairs[i], IBV_WC_LOC_PROT_ERR);
    pthread_mutex_unlock(&lock);
}

void fake_say(int port, const void *record, uint32_t size)
{
    pthread_mutex_lock(&lock);
    struct pair *pair = NULL;
    for (uint32_t i = 1; i < pair_count; i++)
        if (pairs[i] && pairs[i]->port == port && pairs[i]->base.state == IBV_QPS_RTS)
            pair = pairs[i]; /* the newest */
    if (pair) {
        struct entry *entry = calloc(1, sizeof *entry);
        *entry = (struct entry){.psn = pair->next_psn++, .is_send = true, .size = size};
        entry->from = entry->own = memcpy(malloc(size), record, size);
        if (pair->sends == NULL)
            pair->progress_ns = fake_now();
        *pair->last_send = entry;
        pair->last_send = &entry->next;
        fake_send_entry(pair, entry);
    }
    pthread_mutex_unlock(&lock);
}

void fake_counts(struct fake_counts *to)
{
    pthread_mutex_lock(&lock);
    *to = counts;
    pthread_mutex_unlock(&lock);
}

void fake_cost(struct fake_cost *to)
{
    *to = (struct fake_cost){cost.posting_ns, cost.posts, cost.polling_ns, cost.polls};
}

int fake_flow_labels(uint32_t *labels, int room)
{
    int count = 0;
    pthread_mutex_lock(&lock);
    for (uint32_t i = 1; i < pair_count && count < room; i++)
        if (pairs[i] && pairs[i]->base.state == IBV_QPS_RTS)
            labels[count++] = (uint32_t)pairs[i]->port << 20 | pairs[i]->label;
    pthread_mutex_unlock(&lock);
    return count;
}

void fake_seed(uint64_t seed)
{
    pthread_mutex_lock(&lock);
    random_state = seed * 0x9e3779b97f4a7c15u | 1;
    pthread_mutex_unlock(&lock);
}
