/* Protection domains, memory, completion queues and queue pairs of the fake provider. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "fake_network.h"

#undef ibv_reg_mr
#pragma GCC visibility push(default)

_Noreturn void fake_misused(const char *how)
{
    fprintf(stderr, "the provider is misused: %s\n", how);
    abort();
}

/* One more of what there are so many. */
static bool take_one(int *left)
{
    if (*left == 0)
        return false;
    *left -= *left > 0;
    return true;
}

struct ibv_pd *ibv_alloc_pd(struct ibv_context *context)
{
    struct ibv_pd *pd = calloc(1, sizeof *pd);
    pd->context = context;
    fake_count(context, 1);
    return pd;
}

int ibv_dealloc_pd(struct ibv_pd *pd)
{
    fake_count(pd->context, -1);
    free(pd);
    return 0;
}

static uint64_t gpu_begin, gpu_end;

void fake_gpu_memory(const void *address, uint64_t size)
{
    pthread_mutex_lock(&lock);
    gpu_begin = (uint64_t)(uintptr_t)address;
    gpu_end = gpu_begin + size;
    pthread_mutex_unlock(&lock);
}

bool fake_is_gpu(uint64_t address)
{
    return address >= gpu_begin && address < gpu_end;
}

static struct ibv_mr *register_memory(struct ibv_pd *pd, void *address, size_t size)
{
    const struct device *device = fake_device_of(pd->context);
    pthread_mutex_lock(&lock);
    if (device->gone || device->machine.no_memory || !take_one(&limits.regions)) {
        errno = device->gone ? EIO : ENOMEM;
        pthread_mutex_unlock(&lock);
        return NULL;
    }
    uint32_t key;
    do
        key = region_count++ % MAX_REGIONS;
    while (key == 0 || (regions[key] && regions[key]->used));
    if (regions[key] == NULL)
        regions[key] = calloc(1, sizeof *regions[key]);
    regions[key]->used = true;
    regions[key]->mr = (struct ibv_mr){.context = pd->context, .pd = pd, .addr = address,
                                       .length = size, .lkey = key, .rkey = key};
    fake_count(pd->context, 1);
    pthread_mutex_unlock(&lock);
    return &regions[key]->mr;
}

struct ibv_mr *ibv_reg_mr(struct ibv_pd *pd, void *address, size_t size, int access)
{
    (void)access;
    if (fake_is_gpu((uint64_t)(uintptr_t)address) &&
        !fake_device_of(pd->context)->machine.reads_gpus) {
        errno = EFAULT;
        return NULL;
    }
    return register_memory(pd, address, size);
}

struct ibv_mr *ibv_reg_dmabuf_mr(struct ibv_pd *pd, uint64_t offset, size_t size, uint64_t address,
                                 int fd, int access)
{
    (void)offset, (void)access;
    errno = fake_device_of(pd->context)->machine.takes_dmabuf ? EBADF : EOPNOTSUPP;
    if (errno == EOPNOTSUPP || fcntl(fd, F_GETFD) < 0)
        return NULL;
    return register_memory(pd, (void *)(uintptr_t)address, size);
}

int ibv_dereg_mr(struct ibv_mr *mr)
{
    pthread_mutex_lock(&lock);
    regions[mr->rkey]->used = false;
    fake_count(mr->context, -1);
    pthread_mutex_unlock(&lock);
    return 0;
}

struct ibv_cq *ibv_create_cq(struct ibv_context *context, int depth, void *user,
                             struct ibv_comp_channel *channel, int vector)
{
    (void)vector;
    struct cq *cq = calloc(1, sizeof *cq);
    cq->depth = depth;
    cq->base.context = context;
    cq->base.channel = channel;
    cq->base.cq_context = user;
    cq->last = &cq->first;
    atomic_store(&cq->ready_ns, INT64_MAX);
    fake_count(context, 1);
    return &cq->base;
}

int ibv_destroy_cq(struct ibv_cq *base)
{
    struct cq *cq = (struct cq *)base;
    if (atomic_load(&cq->pairs))
        fake_misused("a completion queue is destroyed before a queue pair of it");
    if (atomic_load(&cq->events))
        fake_misused("events of a completion queue are not acknowledged");
    fake_count(base->context, -1);
    fake_forget_cq(cq);
    while (cq->first) {
        struct cqe *next = cq->first->next;
        free(cq->first);
        cq->first = next;
    }
    free(cq);
    return 0;
}

struct ibv_qp *ibv_create_qp(struct ibv_pd *pd, struct ibv_qp_init_attr *attr)
{
    struct pair *pair = calloc(1, sizeof *pair);
    pthread_mutex_lock(&lock);
    struct fake_machine *machine = &fake_device_of(pd->context)->machine;
    if (pair_count == MAX_PAIRS || !take_one(&limits.queue_pairs) ||
        (machine->few_queues && machine->queues_left-- <= 0)) {
        pthread_mutex_unlock(&lock);
        free(pair);
        errno = ENOMEM;
        return NULL;
    }
    struct device *device = fake_device_of(pd->context);
    uint32_t number = pair_count++;
    if (limits.numbers_again >= 0 && device->ended_count) {
        uint32_t last = device->ended[--device->ended_count];
        pairs[number] = pairs[last]; /* it may still have packets on their way */
        number = last;
    }
    pairs[number] = pair;
    pair->base = (struct ibv_qp){.context = pd->context, .pd = pd, .send_cq = attr->send_cq,
                                 .recv_cq = attr->recv_cq, .qp_num = number, .qp_type = attr->qp_type,
                                 .state = IBV_QPS_RESET};
    pair->port = (int)(device - devices);
    pair->send_room = attr->cap.max_send_wr;
    pair->receive_room = attr->cap.max_recv_wr;
    pair->last_send = &pair->sends;
    pair->last_receive = &pair->receives;
    pair->last_out = &pair->out;
    atomic_fetch_add(&((struct cq *)attr->send_cq)->pairs, 1);
    fake_count(pd->context, 1);
    pthread_mutex_unlock(&lock);
    return &pair->base;
}

static pthread_cond_t let_go = PTHREAD_COND_INITIALIZER;
static int held_calls;

void fake_hold_neighbour(int port, int hold)
{
    pthread_mutex_lock(&lock);
    devices[port].held = hold;
    pthread_cond_broadcast(&let_go);
    pthread_mutex_unlock(&lock);
}

void fake_hide_neighbour(int port, int hide)
{
    pthread_mutex_lock(&lock);
    devices[port].alone = hide;
    pthread_mutex_unlock(&lock);
}

int fake_held_calls(void)
{
    pthread_mutex_lock(&lock);
    int count = held_calls;
    pthread_mutex_unlock(&lock);
    return count;
}

static void sleep_ns(int64_t for_ns)
{
    nanosleep(&(struct timespec){for_ns / 1000000000, for_ns % 1000000000}, NULL);
}

int ibv_modify_qp(struct ibv_qp *qp, struct ibv_qp_attr *attr, int mask)
{
    struct pair *pair = (struct pair *)qp;
    pthread_mutex_lock(&lock);
    int64_t takes_ns = attr->qp_state == IBV_QPS_ERR ? devices[pair->port].machine.failing_ns : 0;
    pthread_mutex_unlock(&lock);
    sleep_ns(takes_ns);
    pthread_mutex_lock(&lock);
    bool waits = attr->qp_state == IBV_QPS_RTR && devices[pair->port].held;
    held_calls += waits;
    while (waits && devices[pair->port].held)
        pthread_cond_wait(&let_go, &lock);
    held_calls -= waits;
    if (attr->qp_state == IBV_QPS_RTR && devices[pair->port].alone) {
        pthread_mutex_unlock(&lock);
        return ETIMEDOUT;
    }
    const struct fake_machine *machine = &devices[pair->port].machine;
    int index = attr->ah_attr.grh.sgid_index;
    bool has_gid = attr->ah_attr.is_global && (index ? index == machine->new_gid : !machine->old_gid);
    if ((attr->qp_state == IBV_QPS_RTS && machine->unready) ||
        (attr->qp_state == IBV_QPS_ERR && machine->unfailing) ||
        (mask & IBV_QP_AV && !has_gid && !machine->infiniband)) { /* Ethernet has no other addresses */
        pthread_mutex_unlock(&lock);
        return EINVAL;
    }
    int mtu = limits.mtu[pair->port];
    if (mask & IBV_QP_PATH_MTU && mtu >= 0 && (int)attr->path_mtu > mtu) {
        pthread_mutex_unlock(&lock);
        return EINVAL;
    }
    if (attr->qp_state == IBV_QPS_ERR)
        fake_flush(pair, IBV_WC_WR_FLUSH_ERR);
    qp->state = attr->qp_state;
    if (mask & IBV_QP_QKEY)
        pair->label = attr->qkey;
    if (mask & IBV_QP_DEST_QPN) {
        pair->peer = attr->dest_qp_num;
        pair->peer_port = (attr->ah_attr.is_global ? attr->ah_attr.grh.dgid.raw[15]
                                                   : attr->ah_attr.dlid) - 1;
        pair->label = attr->ah_attr.grh.flow_label;
        devices[pair->port].class = attr->ah_attr.sl << 8 | attr->ah_attr.grh.traffic_class;
    }
    if (mask & IBV_QP_PATH_MTU)
        pair->mtu = attr->path_mtu;
    if (mask & IBV_QP_RQ_PSN)
        pair->expected_psn = attr->rq_psn;
    if (mask & IBV_QP_SQ_PSN)
        pair->next_psn = pair->freed_psn = attr->sq_psn;
    if (mask & IBV_QP_TIMEOUT) {
        pair->timeout = attr->timeout;
        pair->retry_count = attr->retry_cnt;
    }
    pthread_mutex_unlock(&lock);
    return 0;
}

int fake_class(int port)
{
    pthread_mutex_lock(&lock);
    int class = devices[port].class;
    pthread_mutex_unlock(&lock);
    return class;
}

int ibv_query_qp(struct ibv_qp *qp, struct ibv_qp_attr *attr, int mask,
                 struct ibv_qp_init_attr *init)
{
    (void)mask;
    pthread_mutex_lock(&lock);
    *attr = (struct ibv_qp_attr){.qp_state = qp->state, .cur_qp_state = qp->state, .port_num = 1,
                                 .dest_qp_num = ((struct pair *)qp)->peer};
    *init = (struct ibv_qp_init_attr){.send_cq = qp->send_cq, .recv_cq = qp->recv_cq,
                                      .qp_type = IBV_QPT_RC};
    pthread_mutex_unlock(&lock);
    return 0;
}

/* Its packets in flight still arrive. */
int ibv_destroy_qp(struct ibv_qp *qp)
{
    struct pair *pair = (struct pair *)qp;
    pthread_mutex_lock(&lock);
    struct device *device = &devices[pair->port];
    int64_t takes_ns = device->machine.destroying_ns;
    if (device->machine.undying) {
        device->machine.undying--;
        pthread_mutex_unlock(&lock);
        return EBUSY;
    }
    held_calls += takes_ns > 0;
    pthread_mutex_unlock(&lock);
    sleep_ns(takes_ns);
    pthread_mutex_lock(&lock);
    held_calls -= takes_ns > 0;
    if (vendor.leftovers)
        fake_flush(pair, IBV_WC_WR_FLUSH_ERR);
    pair->base.state = IBV_QPS_RESET;
    pair->gone = true;
    atomic_fetch_sub(&((struct cq *)qp->send_cq)->pairs, 1);
    fake_count(qp->context, -1);
    if (device->ended_count < (int)(sizeof device->ended / sizeof *device->ended))
        device->ended[device->ended_count++] = qp->qp_num;
    while (pair->sends) {
        struct entry *next = pair->sends->next;
        fake_free_entry(pair->sends);
        pair->sends = next;
    }
    while (pair->receives) {
        struct receive *next = pair->receives->next;
        free(pair->receives);
        pair->receives = next;
    }
    pthread_mutex_unlock(&lock);
    return 0;
}

int fake_queue_pairs(void)
{
    int count = 0;
    pthread_mutex_lock(&lock);
    for (uint32_t i = 1; i < pair_count; i++)
        count += pairs[i] && !pairs[i]->gone;
    pthread_mutex_unlock(&lock);
    return count;
}
