/* Devices, ports, addresses and events of the fake provider. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "fake_network.h"

#undef ibv_query_port
#pragma GCC visibility push(default)

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
    context->ops.post_send = fake_post_send;
    context->ops.post_recv = fake_post_recv;
    context->ops.poll_cq = fake_poll_cq;
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
    if (room < 4)
        return -EINVAL;
    pthread_mutex_lock(&lock);
    bool has_link_local = !machine->old_gid && limits.gid_type < 0 && machine->gid_kind != 2;
    if (has_link_local)
        *entries++ = (struct ibv_gid_entry){.port_num = 1, .gid_index = 6, .gid.raw = {0xfe, 0x80, [15] = 9},
                                            .gid_type = IBV_GID_TYPE_ROCE_V2};
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
    int count = (machine->new_gid ? 3 : 2) + has_link_local;
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
