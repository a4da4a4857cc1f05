#include "fake_verbs.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "fake_network.h"

#undef ibv_reg_mr
#undef ibv_query_port
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

static int post_send(struct ibv_qp *qp, struct ibv_send_wr *wr, struct ibv_send_wr **bad)
{
    int64_t begun_ns = fake_now();
    int result = do_post_send(qp, wr, bad);
    account(begun_ns, &cost.posting_ns, &cost.posts);
    return result;
}

static int post_recv(struct ibv_qp *qp, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad)
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

static int poll_cq(struct ibv_cq *cq, int room, struct ibv_wc *wc)
{
    int64_t begun_ns = fake_now();
    int got = do_poll_cq(cq, room, wc);
    account(begun_ns, &cost.polling_ns, &cost.polls);
    if (got == 0 && atomic_load_explicit(&pauses, memory_order_relaxed))
        pause_once(cq);
    return got;
}

struct ibv_device **ibv_get_device_list(int *count)
{
    struct ibv_device **list = calloc(FAKE_PORTS + 1, sizeof *list);
    int ports = limits.ports < 0 ? FAKE_PORTS : limits.ports;
    for (int i = 0; i < ports; i++) {
        snprintf(devices[i].base.name, sizeof devices[i].base.name, "fake%d", i);
        list[i] = &devices[i].base;
    }
    *count = ports;
    return list;
}

void ibv_free_device_list(struct ibv_device **list) { free(list); }
const char *ibv_get_device_name(struct ibv_device *device) { return device->name; }

static struct opened *opened_of(struct ibv_context *context)
{
    return (struct opened *)((char *)context - offsetof(struct opened, extended.context));
}

struct device *fake_device_of(struct ibv_context *context)
{
    return opened_of(context)->device;
}

void fake_count(struct ibv_context *context, int more)
{
    atomic_fetch_add(&opened_of(context)->objects, more);
}

int fake_objects(void)
{
    int count = 0;
    pthread_mutex_lock(&lock);
    for (int i = 0; i < FAKE_PORTS; i++)
        for (struct opened *opened = devices[i].opened; opened; opened = opened->next)
            count += 1 + atomic_load(&opened->objects);
    pthread_mutex_unlock(&lock);
    return count;
}

struct ibv_context *ibv_open_device(struct ibv_device *base)
{
    if (((struct device *)base)->machine.closed)
        return NULL;
    struct opened *opened = calloc(1, sizeof *opened);
    struct ibv_context *context = &opened->extended.context;
    context->device = base;
    context->async_fd = eventfd(0, EFD_SEMAPHORE | EFD_CLOEXEC);
    context->ops.post_send = post_send;
    context->ops.post_recv = post_recv;
    context->ops.poll_cq = poll_cq;
    pthread_mutex_lock(&lock);
    struct device *device = opened->device = (struct device *)base;
    device->active |= !device->known;
    device->known = true;
    fake_extend(opened);
    opened->next = device->opened;
    device->opened = opened;
    pthread_mutex_unlock(&lock);
    return context;
}

int ibv_close_device(struct ibv_context *context)
{
    struct opened *opened = opened_of(context);
    if (atomic_load(&opened->objects))
        fake_misused("objects of a device that is closed are left");
    pthread_mutex_lock(&lock);
    struct opened **at = &opened->device->opened;
    while (*at != opened)
        at = &(*at)->next;
    *at = opened->next;
    pthread_mutex_unlock(&lock);
    close(context->async_fd);
    free(opened);
    return 0;
}

/* With the lock held. */
static void happen(struct device *device, int event)
{
    uint64_t one = 1;
    for (struct opened *at = device->opened; at; at = at->next)
        for (int times = vendor.twice ? 2 : 1; times > 0 && at->event_count < 8; times--) {
            at->events[at->event_count++] = event;
            if (write(at->extended.context.async_fd, &one, sizeof one) != sizeof one)
                abort();
        }
}

int ibv_query_port(struct ibv_context *context, uint8_t number, struct _compat_ibv_port_attr *to)
{
    if (number != 1)
        return EINVAL;
    if (fake_device_of(context)->gone)
        return ENODEV;
    pthread_mutex_lock(&lock);
    struct ibv_port_attr *attr = (struct ibv_port_attr *)to;
    attr->state = fake_device_of(context)->active ? IBV_PORT_ACTIVE : IBV_PORT_DOWN;
    int mtu = limits.mtu[fake_device_of(context) - devices];
    attr->active_mtu = mtu < 0 ? IBV_MTU_4096 : (enum ibv_mtu)mtu;
    const struct fake_machine *machine = &fake_device_of(context)->machine;
    attr->active_speed = (uint8_t)(machine->speed ? machine->speed : 32);
    attr->active_width = (uint8_t)(machine->width ? machine->width : 2);
    attr->link_layer = machine->infiniband ? IBV_LINK_LAYER_INFINIBAND : IBV_LINK_LAYER_ETHERNET;
    attr->lid = (uint16_t)(fake_device_of(context) - devices + 1);
    pthread_mutex_unlock(&lock);
    return 0;
}

int ibv_query_device(struct ibv_context *context, struct ibv_device_attr *attr)
{
    *attr = (struct ibv_device_attr){
        .sys_image_guid = (uint64_t)(fake_device_of(context) - devices + 1), .max_mr_size = UINT64_MAX,
        .max_qp = MAX_PAIRS, .max_qp_wr = 8192, .max_cq = MAX_PAIRS, .max_cqe = 1 << 20,
        .max_mr = MAX_REGIONS, .max_qp_rd_atom = 16, .phys_port_cnt = 1};
    attr->node_guid = attr->sys_image_guid;
    return 0;
}

/* With the lock held. */
static int query_gid(struct ibv_context *context, uint8_t number, int index, union ibv_gid *gid)
{
    static const uint8_t PREFIX[][13] = {{[10] = 0xff, [11] = 0xff, [12] = 10},
                                         {0x20, 0x01, 0x0d, 0xb8}, {0xfe, 0x80}};
    const struct device *device = fake_device_of(context);
    if (number != 1 || (index && index != device->machine.new_gid))
        return EINVAL;
    memset(gid, 0, sizeof *gid);
    memcpy(gid->raw, PREFIX[device->machine.gid_kind], sizeof *PREFIX);
    gid->raw[15] = (uint8_t)(device - devices + 1);
    return 0;
}

int ibv_query_gid(struct ibv_context *context, uint8_t number, int index, union ibv_gid *gid)
{
    pthread_mutex_lock(&lock);
    int error = query_gid(context, number, index, gid);
    pthread_mutex_unlock(&lock);
    return error;
}

ssize_t _ibv_query_gid_table(struct ibv_context *context, struct ibv_gid_entry *entries, size_t room,
                             uint32_t flags, size_t size)
{
    const struct fake_machine *machine = &fake_device_of(context)->machine;
    (void)flags, (void)size;
    if (room < 3)
        return -EINVAL;
    pthread_mutex_lock(&lock);
    entries[0] = (struct ibv_gid_entry){.port_num = 1, .gid_type = IBV_GID_TYPE_ROCE_V2};
    if (machine->old_gid)
        entries[0].gid_type = IBV_GID_TYPE_ROCE_V1;
    else if (limits.gid_type >= 0)
        entries[0].gid_type = (uint32_t)limits.gid_type;
    query_gid(context, 1, 0, &entries[0].gid);
    entries[1] = (struct ibv_gid_entry){ /* another port's */
        .port_num = 2, .gid_type = IBV_GID_TYPE_ROCE_V2, .gid.raw = {[10] = 0xff, [11] = 0xff, 10, 9}};
    entries[2] = (struct ibv_gid_entry){.port_num = 1, .gid_type = IBV_GID_TYPE_ROCE_V2,
                                        .gid_index = (uint32_t)machine->new_gid,
                                        .gid = entries[0].gid};
    int count = machine->new_gid ? 3 : 2;
    pthread_mutex_unlock(&lock);
    return count;
}

int ibv_get_async_event(struct ibv_context *context, struct ibv_async_event *event)
{
    uint64_t one;
    if (read(context->async_fd, &one, sizeof one) != sizeof one)
        return -1;
    pthread_mutex_lock(&lock);
    struct opened *opened = opened_of(context);
    event->event_type = (enum ibv_event_type)(opened->events[0] & 0xff);
    event->element.port_num = opened->events[0] >> 8 ? opened->events[0] >> 8 : 1;
    memmove(opened->events, opened->events + 1, sizeof opened->events - sizeof *opened->events);
    opened->event_count--;
    pthread_mutex_unlock(&lock);
    return 0;
}

void ibv_ack_async_event(struct ibv_async_event *event) { (void)event; }

int ibv_fork_init(void) { return 0; }
const char *ibv_event_type_str(enum ibv_event_type event) { return event ? "an event" : "CQ error"; }

int ibv_query_pkey(struct ibv_context *context, uint8_t number, int index, __be16 *pkey)
{
    (void)context, (void)number, (void)index;
    *pkey = 0xffff;
    return 0;
}

const char *ibv_wc_status_str(enum ibv_wc_status status)
{
    return status == IBV_WC_RETRY_EXC_ERR ? "transport retry counter exceeded" : "completion error";
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

void fake_set_active(int port, int active)
{
    pthread_mutex_lock(&lock);
    struct device *device = &devices[port];
    if (device->active != (active != 0)) {
        device->active = active;
        if (!active || !vendor.silent)
            happen(device, active ? IBV_EVENT_PORT_ACTIVE : IBV_EVENT_PORT_ERR);
    }
    pthread_mutex_unlock(&lock);
}

void fake_vanish(int port)
{
    pthread_mutex_lock(&lock);
    devices[port].active = false;
    atomic_store(&devices[port].gone, true);
    happen(&devices[port], IBV_EVENT_DEVICE_FATAL);
    pthread_mutex_unlock(&lock);
}

void fake_event(int port, int event)
{
    pthread_mutex_lock(&lock);
    happen(&devices[port], event);
    pthread_mutex_unlock(&lock);
}

void fake_fail_device(int port)
{
    fake_event(port, IBV_EVENT_DEVICE_FATAL);
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
