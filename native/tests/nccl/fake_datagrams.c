/* Unreliable datagrams, completion channels and stamps of completions. */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

#include "fake_network.h"

#pragma GCC visibility push(default)

enum { GRH_BYTES = 40, TICK_KHZ = 156250, LOOK_NS = 20000 };

struct address {
    struct ibv_ah base;
    struct ibv_ah_attr attr;
};

static struct cq *watched; /* completion queues with a channel */
static struct fake_datagrams datagrams[FAKE_PORTS];
static pthread_once_t once = PTHREAD_ONCE_INIT;

static int64_t real_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

static int64_t loaded_ns;

__attribute__((constructor)) static void note_loading(void) { loaded_ns = real_ns(); }

static int64_t ticks_at(const struct device *device, int64_t at_ns)
{
    double rate = (1 + (double)device->machine.drift_ppb * 1e-9) * TICK_KHZ * 1e-6;
    return (int64_t)((double)(at_ns - loaded_ns) * rate) + device->machine.offset;
}

int64_t fake_ticks_at(int port, int64_t at_ns)
{
    pthread_mutex_lock(&lock);
    int64_t ticks = ticks_at(&devices[port], at_ns);
    pthread_mutex_unlock(&lock);
    return ticks;
}

static uint64_t mask_of(const struct device *device)
{
    int bits = device->machine.bits;
    return bits && bits < 64 ? (UINT64_C(1) << bits) - 1 : UINT64_MAX;
}

int64_t fake_stamp(const struct device *device)
{
    return (int64_t)((uint64_t)ticks_at(device, real_ns()) & mask_of(device));
}

static void *tell(void *unused)
{
    for (;;) {
        nanosleep(&(struct timespec){0, LOOK_NS}, NULL);
        pthread_mutex_lock(&lock);
        fake_step();
        int64_t now_ns = fake_now();
        for (struct cq *cq = watched; cq; cq = cq->next) {
            uint64_t one = 1;
            if (!cq->armed || cq->first == NULL || cq->first->due_ns > now_ns)
                continue;
            cq->armed = false;
            if (write(cq->base.channel->fd, &one, sizeof one) != sizeof one)
                abort();
        }
        pthread_mutex_unlock(&lock);
    }
    return unused;
}

static void start_telling(void)
{
    pthread_t thread;
    if (pthread_create(&thread, NULL, tell, NULL))
        abort();
    pthread_detach(thread);
}

static int arm(struct ibv_cq *base, int solicited)
{
    (void)solicited;
    struct cq *cq = (struct cq *)base;
    pthread_mutex_lock(&lock);
    struct cq *at = watched;
    while (at && at != cq)
        at = at->next;
    if (at == NULL) {
        cq->next = watched;
        watched = cq;
    }
    cq->armed = true;
    pthread_mutex_unlock(&lock);
    return 0;
}

void fake_forget_cq(struct cq *cq)
{
    pthread_mutex_lock(&lock);
    for (struct cq **at = &watched; *at; at = &(*at)->next)
        if (*at == cq) {
            *at = cq->next;
            break;
        }
    pthread_mutex_unlock(&lock);
}

int fake_send_datagram(struct pair *pair, const struct ibv_send_wr *wr)
{
    const struct address *to = (const struct address *)wr->wr.ud.ah;
    if (devices[pair->port].machine.refusing || to->base.context != pair->base.context)
        return EIO;
    struct packet *packet = calloc(1, sizeof *packet + wr->sg_list->length);
    packet->size = wr->sg_list->length;
    packet->datagram = (struct fake_datagram){
        .qpn = wr->wr.ud.remote_qpn, .qkey = wr->wr.ud.remote_qkey,
        .label = to->attr.grh.flow_label, .traffic_class = to->attr.grh.traffic_class,
        .sl = to->attr.sl};
    memcpy(packet->datagram.gid, to->attr.grh.dgid.raw, sizeof packet->datagram.gid);
    if (!to->attr.is_global)
        packet->datagram.gid[15] = (uint8_t)to->attr.dlid;
    memcpy(packet->data, (const void *)(uintptr_t)wr->sg_list->addr, packet->size);
    datagrams[pair->port].sent++;
    struct ibv_wc wc = {.wr_id = wr->wr_id, .opcode = IBV_WC_SEND};
    if (wr->send_flags & IBV_SEND_SIGNALED)
        fake_complete(pair->base.send_cq, pair, &wc, 0);
    fake_transmit(pair, packet);
    return 0;
}

void fake_deliver_datagram(struct pair *from, const struct packet *packet)
{
    const struct fake_datagram *datagram = &packet->datagram;
    struct pair *to = datagram->qpn < pair_count ? pairs[datagram->qpn] : NULL;
    struct fake_datagrams *count = &datagrams[from->port];
    if (to == NULL || to->gone || to->base.qp_type != IBV_QPT_UD ||
        datagram->gid[15] != to->port + 1 || !devices[to->port].active) {
        count->astray++;
        return;
    }
    struct receive *receive = to->receives;
    count->wrong_qkey += datagram->qkey != to->label;
    count->no_room += receive == NULL;
    if (receive == NULL || datagram->qkey != to->label)
        return;
    size_t room = receive->size - GRH_BYTES, length = packet->size < room ? packet->size : room;
    memset(receive->to, 0xa5, GRH_BYTES);
    memcpy((char *)receive->to + GRH_BYTES, packet->data, length);
    struct ibv_wc wc = {
        .wr_id = receive->wr_id, .opcode = IBV_WC_RECV, .byte_len = packet->size + GRH_BYTES,
        .src_qp = from->base.qp_num, .wc_flags = IBV_WC_GRH,
        .status = packet->size > room ? IBV_WC_LOC_LEN_ERR : IBV_WC_SUCCESS};
    fake_complete(to->base.recv_cq, to, &wc, 0);
    to->receives = receive->next;
    if (to->receives == NULL)
        to->last_receive = &to->receives;
    free(receive);
    count->arrived++;
    count->label = datagram->label;
    count->traffic_class = datagram->traffic_class;
    count->sl = datagram->sl;
}

struct ibv_ah *ibv_create_ah(struct ibv_pd *pd, struct ibv_ah_attr *attr)
{
    int64_t unanswered_ns = fake_device_of(pd->context)->machine.unanswered_ns;
    if (unanswered_ns && attr->is_global && attr->grh.dgid.raw[15] > FAKE_PORTS) {
        nanosleep(&(struct timespec){unanswered_ns / 1000000000, unanswered_ns % 1000000000}, NULL);
        errno = ETIMEDOUT;
        return NULL;
    }
    struct address *address = calloc(1, sizeof *address);
    address->base.context = pd->context;
    address->base.pd = pd;
    address->attr = *attr;
    fake_count(pd->context, 1);
    return &address->base;
}

int ibv_destroy_ah(struct ibv_ah *ah)
{
    fake_count(ah->context, -1);
    free(ah);
    return 0;
}

struct ibv_comp_channel *ibv_create_comp_channel(struct ibv_context *context)
{
    pthread_once(&once, start_telling);
    struct ibv_comp_channel *channel = calloc(1, sizeof *channel);
    channel->context = context;
    channel->fd = eventfd(0, EFD_SEMAPHORE | EFD_CLOEXEC);
    fake_count(context, 1);
    return channel;
}

int ibv_destroy_comp_channel(struct ibv_comp_channel *channel)
{
    fake_count(channel->context, -1);
    close(channel->fd);
    free(channel);
    return 0;
}

/* A channel is of one completion queue here. */
int ibv_get_cq_event(struct ibv_comp_channel *channel, struct ibv_cq **base, void **context)
{
    uint64_t one;
    if (read(channel->fd, &one, sizeof one) != sizeof one)
        return -1;
    pthread_mutex_lock(&lock);
    struct cq *cq = watched;
    while (cq && cq->base.channel != channel)
        cq = cq->next;
    pthread_mutex_unlock(&lock);
    if (cq == NULL)
        abort();
    atomic_fetch_add(&cq->events, 1);
    *base = &cq->base;
    *context = cq->base.cq_context;
    return 0;
}

void ibv_ack_cq_events(struct ibv_cq *cq, unsigned int events)
{
    atomic_fetch_sub(&((struct cq *)cq)->events, (int)events);
}

void fake_datagrams(int port, struct fake_datagrams *to)
{
    pthread_mutex_lock(&lock);
    *to = datagrams[port];
    pthread_mutex_unlock(&lock);
}

/* --- stamps --------------------------------------------------------------------------------- */

static int show(struct ibv_cq_ex *extended)
{
    struct cq *cq = (struct cq *)extended;
    fake_step();
    if (cq->first == NULL || cq->first->due_ns > fake_now())
        return ENOENT;
    extended->wr_id = cq->first->wc.wr_id;
    extended->status = cq->first->wc.status;
    return 0;
}

static int start_poll(struct ibv_cq_ex *extended, struct ibv_poll_cq_attr *attr)
{
    (void)attr;
    pthread_mutex_lock(&lock);
    int none = show(extended);
    if (none)
        pthread_mutex_unlock(&lock);
    return none;
}

static void drop_first(struct cq *cq)
{
    fake_drop_first(cq);
    atomic_store(&cq->ready_ns, cq->first ? cq->first->due_ns : INT64_MAX);
}

static int next_poll(struct ibv_cq_ex *extended)
{
    drop_first((struct cq *)extended);
    int none = show(extended);
    if (none)
        extended->comp_mask = 1; /* nothing is left to drop */
    return none;
}

static void end_poll(struct ibv_cq_ex *extended)
{
    if (!extended->comp_mask)
        drop_first((struct cq *)extended);
    extended->comp_mask = 0;
    pthread_mutex_unlock(&lock);
}

static const struct ibv_wc *shown(struct ibv_cq_ex *extended)
{
    return &((struct cq *)extended)->first->wc;
}

static enum ibv_wc_opcode read_opcode(struct ibv_cq_ex *cq) { return shown(cq)->opcode; }
static uint32_t read_byte_len(struct ibv_cq_ex *cq) { return shown(cq)->byte_len; }
static uint32_t read_src_qp(struct ibv_cq_ex *cq) { return shown(cq)->src_qp; }

static uint64_t read_stamp(struct ibv_cq_ex *cq)
{
    return (uint64_t)((struct cq *)cq)->first->stamp;
}

static struct ibv_cq_ex *create_cq_ex(struct ibv_context *context, struct ibv_cq_init_attr_ex *attr)
{
    struct cq *cq = (struct cq *)ibv_create_cq(context, (int)attr->cqe, attr->cq_context,
                                               attr->channel, 0);
    cq->extended.start_poll = start_poll;
    cq->extended.next_poll = next_poll;
    cq->extended.end_poll = end_poll;
    cq->extended.read_opcode = read_opcode;
    cq->extended.read_byte_len = read_byte_len;
    cq->extended.read_src_qp = read_src_qp;
    cq->extended.read_completion_ts = read_stamp;
    return &cq->extended;
}

static int query_rt_values(struct ibv_context *context, struct ibv_values_ex *values)
{
    const struct device *device = fake_device_of(context);
    values->comp_mask = IBV_VALUES_MASK_RAW_CLOCK;
    pthread_mutex_lock(&lock);
    values->raw_clock = (struct timespec){0, fake_stamp(device)};
    int unreadable = device->machine.unreadable;
    pthread_mutex_unlock(&lock);
    return unreadable ? EIO : 0;
}

static int query_device_ex(struct ibv_context *context,
                           const struct ibv_query_device_ex_input *input,
                           struct ibv_device_attr_ex *attr, size_t size)
{
    (void)input;
    const struct device *device = fake_device_of(context);
    int64_t named = device->machine.named_khz;
    memset(attr, 0, size);
    attr->completion_timestamp_mask = mask_of(device);
    attr->hca_core_clock = named ? (uint64_t)(named > 0 ? named : 0) : TICK_KHZ;
    return 0;
}

void fake_extend(struct opened *opened)
{
    struct verbs_context *extended = &opened->extended;
    extended->context.ops.req_notify_cq = arm;
    extended->context.abi_compat = opened->device->machine.stamps ? __VERBS_ABI_IS_EXTENDED : NULL;
    extended->sz = sizeof *extended;
    extended->create_cq_ex = create_cq_ex;
    extended->query_rt_values = query_rt_values;
    extended->query_device_ex = query_device_ex;
}
