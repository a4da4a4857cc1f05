#include "port.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_GIDS = 256, HOP_LIMIT = 64, IPOIB_GROUPS = 20 };

static pthread_mutex_t loading = PTHREAD_MUTEX_INITIALIZER;
static bool loaded;

static void say(char *message, const char *what, const char *name)
{
    snprintf(message, SYN_MESSAGE_BYTES_VERBS, "%s: %s (%s)", name, what, strerror(errno));
}

/* Once; a library that came later is found. */
static int load(char *message)
{
    pthread_mutex_lock(&loading);
    const char *problem = loaded ? NULL : verbs_load(getenv("SYNTONY_IBVERBS"));
    if (problem)
        snprintf(message, SYN_MESSAGE_BYTES_VERBS, "no verbs: %.200s", problem);
    else
        loaded = true;
    pthread_mutex_unlock(&loading);
    return problem == NULL;
}

/* What a port's GID is compared with: the probed address, and for IPoIB the port's own GID, which is
 * the end of the interface's hardware address. */
struct wanted {
    union ibv_gid gids[2];
    int count;
};

static void want_address(struct wanted *wanted, const struct syn_probe_nic *nic)
{
    union ibv_gid *gid = &wanted->gids[wanted->count++];
    memset(gid, 0, sizeof *gid);
    if (nic->family == 6) {
        memcpy(gid->raw, nic->address, sizeof gid->raw);
        return;
    }
    gid->raw[10] = gid->raw[11] = 0xff;
    memcpy(gid->raw + 12, nic->address, 4);
}

static void want_ipoib(struct wanted *wanted, const char *ifname)
{
    char path[64], text[IPOIB_GROUPS * 3 + 1] = "";
    snprintf(path, sizeof path, "/sys/class/net/%.15s/address", ifname);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    FILE *file = fd >= 0 ? fdopen(fd, "r") : NULL;
    if (file == NULL)
        return;
    size_t length = fread(text, 1, sizeof text - 1, file);
    fclose(file);
    if (length < IPOIB_GROUPS * 3 - 1)
        return;
    union ibv_gid *gid = &wanted->gids[wanted->count++];
    for (int i = 0; i < 16; i++)
        gid->raw[i] = (uint8_t)strtoul(text + (4 + i) * 3, NULL, 16);
}

static int is_wanted(const struct wanted *wanted, const union ibv_gid *gid)
{
    for (int i = 0; i < wanted->count; i++)
        if (memcmp(wanted->gids[i].raw, gid->raw, sizeof gid->raw) == 0)
            return 1;
    return 0;
}

/* Whether this port has one of the GIDs; `*old` if only as one of RoCE v1. */
static int find_gid(struct syn_verbs_port *port, const struct wanted *wanted, int *old)
{
    static _Thread_local struct ibv_gid_entry entries[MAX_GIDS];
    ssize_t count = verbs.query_gid_table == NULL ? 0 :
        verbs.query_gid_table(port->context, entries, MAX_GIDS, 0, sizeof *entries);
    for (ssize_t i = 0; i < count; i++) {
        if (entries[i].port_num != port->number || !is_wanted(wanted, &entries[i].gid))
            continue;
        if (!port->infiniband && entries[i].gid_type != IBV_GID_TYPE_ROCE_V2) {
            *old = 1;
            continue;
        }
        port->gid = entries[i].gid;
        port->gid_index = (uint8_t)entries[i].gid_index;
        return 1;
    }
    return 0;
}

static int find_port(struct syn_verbs_port *port, const struct wanted *wanted, int *old)
{
    struct ibv_port_attr attr = {0};
    for (port->number = 1; verbs.query_port(port->context, port->number, (void *)&attr) == 0;
         port->number++) {
        port->infiniband = attr.link_layer == IBV_LINK_LAYER_INFINIBAND;
        port->lid = attr.lid;
        port->mtu_bytes = (size_t)128 << attr.active_mtu;
        if (find_gid(port, wanted, old))
            return 1;
    }
    return 0;
}

/* Of the devices, the one that has such a port stays open. */
static int find_device(struct syn_verbs_port *port, const struct wanted *wanted, int *count,
                       int *old)
{
    struct ibv_device **list = verbs.get_device_list(count);
    int found = 0;
    for (int i = 0; list && i < *count && !found; i++) {
        port->context = verbs.open_device(list[i]);
        if (port->context == NULL)
            continue;
        found = find_port(port, wanted, old);
        if (found)
            snprintf(port->name, sizeof port->name, "%.64s/%u", verbs.get_device_name(list[i]),
                     port->number);
        else
            verbs.close_device(port->context);
    }
    if (list)
        verbs.free_device_list(list);
    return found;
}

static void set_status(const struct syn_verbs_port *port, struct syn_probe_nic_status *status)
{
    status->hardware = (uint8_t)port->clock->in_force;
    snprintf(status->reason, sizeof status->reason, "%.70s, %s, stamped by the %s", port->name,
             port->infiniband ? "InfiniBand" : "RoCE v2", status->hardware ? "NIC" : "engine");
}

struct syn_verbs_port *syn_verbs_port_open(const struct syn_probe_nic *nic,
                                           struct syn_verbs_clock **clock,
                                           struct syn_probe_nic_status *status, int *error,
                                           char *message)
{
    struct wanted wanted = {.count = 0};
    int devices = 0, old = 0;
    *status = (struct syn_probe_nic_status){.nic_id = nic->nic_id, .phc_index = -1};
    *error = SYN_ERROR_ABSENT;
    if (!load(message))
        return NULL;
    *error = SYN_ERROR_MISSING;
    struct syn_verbs_port *port = calloc(1, sizeof *port);
    *clock = *clock ? *clock : calloc(1, sizeof **clock);
    if (port == NULL || *clock == NULL) {
        free(port);
        return NULL;
    }
    port->clock = *clock;
    want_address(&wanted, nic);
    want_ipoib(&wanted, nic->ifname);
    if (!find_device(port, &wanted, &devices, &old)) {
        snprintf(message, SYN_MESSAGE_BYTES_VERBS, devices <= 0 ? "no RDMA device here"
                 : old ? "the RDMA device of %s knows its address for RoCE v1 only, not v2"
                 : "no RDMA device has the address of %s among its GIDs", nic->ifname);
        free(port);
        *error = old ? SYN_ERROR_MISSING : SYN_ERROR_ABSENT;
        return NULL;
    }
    int flags = fcntl(port->context->async_fd, F_GETFL);
    port->pd = verbs.alloc_pd(port->context);
    if (port->pd == NULL || fcntl(port->context->async_fd, F_SETFL, flags | O_NONBLOCK) < 0) {
        say(message, "no protection domain", port->name);
        syn_verbs_port_close(port);
        return NULL;
    }
    if (nic->stamping != SYN_STAMP_KERNEL)
        syn_verbs_clock_open(port);
    else
        *port->clock = (struct syn_verbs_clock){.in_force = 0};
    set_status(port, status);
    return port;
}

void syn_verbs_port_close(struct syn_verbs_port *port)
{
    if (port->pd)
        verbs.dealloc_pd(port->pd);
    verbs.close_device(port->context);
    free(port);
}

static const char *fault_of(enum ibv_event_type event)
{
    switch (event) {
    case IBV_EVENT_DEVICE_FATAL:
        return "the device has failed or gone";
    case IBV_EVENT_GID_CHANGE:
    case IBV_EVENT_LID_CHANGE:
    case IBV_EVENT_PKEY_CHANGE:
        return "its addresses have changed";
    case IBV_EVENT_QP_FATAL:
    case IBV_EVENT_QP_REQ_ERR:
    case IBV_EVENT_QP_ACCESS_ERR:
    case IBV_EVENT_CQ_ERR:
        return "a queue of it has failed";
    default:
        return NULL; /* among them a port that is down: probes tell of that */
    }
}

int syn_verbs_port_check(struct syn_verbs_port *port, char *message)
{
    const char *fault = NULL;
    struct ibv_async_event event;
    struct ibv_port_attr attr;
    union ibv_gid gid;
    while (fault == NULL && verbs.get_async_event(port->context, &event) == 0) {
        fault = fault_of(event.event_type);
        verbs.ack_async_event(&event);
    }
    if (fault == NULL && verbs.query_port(port->context, port->number, (void *)&attr))
        fault = "the device does not answer";
    if (fault == NULL && (verbs.query_gid(port->context, port->number, port->gid_index, &gid) ||
                          memcmp(gid.raw, port->gid.raw, sizeof gid.raw) != 0 ||
                          (port->infiniband && attr.lid != port->lid)))
        fault = fault_of(IBV_EVENT_GID_CHANGE);
    if (fault == NULL)
        fault = syn_verbs_clock_change(port->clock);
    if (fault)
        snprintf(message, SYN_MESSAGE_BYTES_VERBS, "%s: %s", port->name, fault);
    return fault == NULL;
}

void syn_verbs_port_address(const struct syn_verbs_port *port, struct syn_verbs_endpoint *out)
{
    memcpy(out->gid, port->gid.raw, sizeof out->gid);
    out->lid = port->lid;
    out->infiniband = (uint8_t)port->infiniband;
}

/* --- addresses ------------------------------------------------------------------------------ */

struct syn_verbs_address *syn_verbs_address_make(struct syn_verbs_port *port,
                                                 const struct syn_verbs_route *route, char *message)
{
    struct ibv_ah_attr attr = {
        .dlid = route->lid,
        .sl = route->sl,
        .port_num = port->number,
        /* Within a subnet of InfiniBand the LID says it all. */
        .is_global = !port->infiniband || memcmp(route->gid, port->gid.raw, 8) != 0,
        .grh = {.sgid_index = port->gid_index, .flow_label = route->flow_label,
                .traffic_class = (uint8_t)(route->dscp << 2), .hop_limit = HOP_LIMIT},
    };
    memcpy(attr.grh.dgid.raw, route->gid, sizeof route->gid);
    struct ibv_ah *made = verbs.create_ah(port->pd, &attr);
    if (made == NULL)
        say(message, "no way to a peer", port->name);
    return (struct syn_verbs_address *)made;
}

void syn_verbs_address_free(struct syn_verbs_address *address)
{
    if (address)
        verbs.destroy_ah((struct ibv_ah *)address);
}
