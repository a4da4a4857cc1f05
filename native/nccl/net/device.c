#include "device.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "agent.h"
#include "config.h"
#include "log.h"

struct port ports[MAX_PORTS];
struct group groups[MAX_GROUPS];
int port_count, group_count;

static const int64_t ASK_NS = INT64_C(1000000000); /* between two questions about ports that are down */

static int64_t clock_read(clockid_t clock)
{
    struct timespec now;
    clock_gettime(clock, &now);
    return now.tv_sec * INT64_C(1000000000) + now.tv_nsec;
}

int64_t clock_ns(void)
{
    return clock_read(CLOCK_MONOTONIC);
}

int64_t clock_about_ns(void)
{
    return clock_read(CLOCK_MONOTONIC_COARSE);
}

/* Mbit/s for each lane, by enum ibv_active_speed's numbers. */
static int port_speed(const struct ibv_port_attr *attr)
{
    static const struct { int code, mbps; } SPEEDS[] = {
        {1, 2500}, {2, 5000}, {4, 10000}, {8, 10000}, {16, 14000}, {32, 25000}, {64, 50000},
        {128, 100000}};
    static const struct { int code, lanes; } WIDTHS[] = {{1, 1}, {2, 4}, {4, 8}, {8, 12}, {16, 2}};
    int mbps = 10000, lanes = 1;
    for (size_t i = 0; i < sizeof SPEEDS / sizeof *SPEEDS; i++)
        if (SPEEDS[i].code == attr->active_speed)
            mbps = SPEEDS[i].mbps;
    for (size_t i = 0; i < sizeof WIDTHS / sizeof *WIDTHS; i++)
        if (WIDTHS[i].code == attr->active_width)
            lanes = WIDTHS[i].lanes;
    return mbps * lanes;
}

/* Asked with a descriptor that is none: a driver that takes DMA-BUFs looks at it, and says so. */
static bool takes_dmabuf(struct ibv_pd *pd)
{
    if (verbs.reg_dmabuf_mr == NULL || config.gpu_memory == 0)
        return false;
    errno = 0;
    struct ibv_mr *mr = verbs.reg_dmabuf_mr(pd, 0, 0, 0, -1, 0);
    if (mr)
        verbs.dereg_mr(mr);
    return mr == NULL && errno == EBADF;
}

bool devices_read_gpus(void)
{
    static const char *const MODULES[] = {
        "/sys/kernel/mm/memory_peers/nv_mem/version", "/sys/module/nvidia_peermem/version",
        "/sys/kernel/mm/memory_peers/nv_mem_nc/version",
        "/sys/kernel/mm/memory_peers/amdkfd/version"};
    bool found = config.gpu_memory > 0;
    for (size_t i = 0; config.gpu_memory < 0 && i < sizeof MODULES / sizeof *MODULES; i++)
        found |= access(MODULES[i], F_OK) == 0;
    return found;
}

static void add_port(struct ibv_device *device)
{
    const char *name = verbs.get_device_name(device);
    struct ibv_context *context = verbs.open_device(device);
    struct ibv_port_attr attr = {0};
    for (uint8_t number = 1; context && port_count < MAX_PORTS; number++) {
        if (verbs.query_port(context, number, &attr))
            break;
        if (config.devices && !config_is_listed(config.devices, name, number))
            continue;
        struct port *port = &ports[port_count];
        struct ibv_pd *pd = verbs.alloc_pd(context);
        if (pd == NULL) {
            WARN("%s: no protection domain: %m; the port is left out", name);
            continue;
        }
        char link[160], *path = NULL;
        snprintf(port->name, sizeof port->name, number == 1 ? "%s" : "%s:%d", name, number);
        snprintf(link, sizeof link, "/sys/class/infiniband/%.100s/device", name);
        if ((path = realpath(link, NULL)) != NULL)
            snprintf(port->pci_path, sizeof port->pci_path, "%s", path);
        free(path);
        union ibv_gid gid = {0};
        verbs.query_gid(context, number, 0, &gid);
        port->guid = gid.global.interface_id + number - 1;
        port->context = context;
        port->pd = pd;
        port->takes_dmabuf = takes_dmabuf(pd);
        port->number = number;
        port->link_layer = attr.link_layer;
        port->speed_mbps = port_speed(&attr);
        atomic_store(&port->down, attr.state != IBV_PORT_ACTIVE);
        port_count++;
        return; /* events are read for one port of a context; the next port gets its own */
    }
    if (context)
        verbs.close_device(context);
}

bool port_is_there(const struct port *port)
{
    struct ibv_port_attr attr = {0};
    return verbs.query_port(port->context, port->number, &attr) == 0;
}

enum gid_kind { GID_IPV4, GID_IPV6, GID_LINK_LOCAL, GID_KINDS };

static enum gid_kind kind_of(const uint8_t gid[16])
{
    static const uint8_t MAPPED[12] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};
    if (memcmp(gid, MAPPED, sizeof MAPPED) == 0)
        return GID_IPV4;
    return gid[0] == 0xfe ? GID_LINK_LOCAL : GID_IPV6;
}

const char *gids_differ(const uint8_t ours[16], const uint8_t theirs[16])
{
#define DIFFER(here, there)                                                                     \
    "its GID is " here " here, and " there " at the peer: choose GIDs of one kind at both ends " \
    "(SYNTONY_NCCL_GID_INDEX), or give both ports IPv4 addresses"
    static const char *const PROBLEM[GID_KINDS][GID_KINDS] = {
        {NULL, DIFFER("of IPv4", "of IPv6"), DIFFER("of IPv4", "link-local")},
        {DIFFER("of IPv6", "of IPv4"), NULL, DIFFER("of IPv6", "link-local")},
        {DIFFER("link-local", "of IPv4"), DIFFER("link-local", "of IPv6"), NULL}};
    return PROBLEM[kind_of(ours)][kind_of(theirs)];
}

/* How much a GID is wanted; 0: not at all. */
static int gid_rank(const struct ibv_gid_entry *entry)
{
    return entry->gid_type == IBV_GID_TYPE_ROCE_V2 ? GID_KINDS - (int)kind_of(entry->gid.raw) : 0;
}

#define INDEX "SYNTONY_NCCL_GID_INDEX (or NCCL_IB_GID_INDEX)"
#define CHOOSE ": choose one of RoCE v2 (ibv_devinfo -v), or unset it"

static const char *find_gid(const struct port *port, union ibv_gid *gid, uint8_t *index)
{
    static const char NONE[] = "no usable GID: the port has no RoCE v2 address",
                      NO_SUCH[] = "no GID has the index in " INDEX CHOOSE,
                      OLD[] = "a GID of RoCE v1 has the index in " INDEX CHOOSE;
    struct ibv_gid_entry entries[256];
    bool is_chosen = config.gid_index >= 0, is_ib = port->link_layer == IBV_LINK_LAYER_INFINIBAND;
    ssize_t count = verbs.query_gid_table == NULL || is_ib ? -1 :
        verbs.query_gid_table(port->context, entries, 256, 0, sizeof *entries);
    if (is_ib || (is_chosen && count < 0)) { /* an old library or kernel: of whatever type */
        *index = is_chosen ? (uint8_t)config.gid_index : 0;
        return verbs.query_gid(port->context, port->number, *index, gid)
                   ? is_chosen ? NO_SUCH : NONE : NULL;
    }
    const char *problem = is_chosen ? NO_SUCH : NONE;
    int best = 0;
    for (ssize_t i = 0; i < count; i++) {
        if (entries[i].port_num != port->number ||
            (is_chosen && (int)entries[i].gid_index != config.gid_index))
            continue;
        if (gid_rank(&entries[i]) > best) {
            best = gid_rank(&entries[i]);
            *gid = entries[i].gid;
            *index = (uint8_t)entries[i].gid_index;
            problem = NULL;
        } else if (is_chosen)
            problem = OLD;
    }
    return problem;
}

const char *port_address(const struct port *port, struct endpoint *endpoint, uint8_t *gid_index)
{
    struct ibv_port_attr attr = {0};
    union ibv_gid gid = {0};
    if (verbs.query_port(port->context, port->number, &attr))
        return "its device has gone";
    const char *problem = find_gid(port, &gid, gid_index);
    if (problem)
        return problem;
    memcpy(endpoint->gid, gid.raw, sizeof endpoint->gid);
    endpoint->lid = attr.lid;
    endpoint->mtu = (uint8_t)attr.active_mtu;
    endpoint->link_layer = attr.link_layer;
    return NULL;
}

static void read_event(struct port *port)
{
    struct ibv_async_event event;
    if (verbs.get_async_event(port->context, &event))
        return;
    bool is_ports = event.event_type == IBV_EVENT_PORT_ACTIVE || event.event_type == IBV_EVENT_PORT_ERR;
    if (is_ports && event.element.port_num == port->number) /* others of the device are not used */
        atomic_store(&port->down, event.event_type == IBV_EVENT_PORT_ERR);
    else if (event.event_type == IBV_EVENT_DEVICE_FATAL) {
        port->failed = true;
        atomic_store(&port->down, true);
    } else if (event.event_type == IBV_EVENT_CQ_ERR || event.event_type == IBV_EVENT_QP_FATAL ||
             event.event_type == IBV_EVENT_QP_REQ_ERR ||
             event.event_type == IBV_EVENT_QP_ACCESS_ERR)
        atomic_fetch_add(&port->failures, 1); /* there may be no completion that tells of it */
    verbs.ack_async_event(&event);
}

/* A port that is up again, of which no event told, or of which it was lost. */
static void ask_port(struct port *port)
{
    struct ibv_port_attr attr = {0};
    if (atomic_load(&port->down) && !port->failed &&
        verbs.query_port(port->context, port->number, &attr) == 0 && attr.state == IBV_PORT_ACTIVE)
        atomic_store(&port->down, false);
}

/* Sets flags and nothing else: NCCL's threads own all state of connections. */
static void *watch(void *unused)
{
    (void)unused;
    struct pollfd fds[MAX_PORTS];
    int64_t ask_ns = 0;
    for (int i = 0; i < port_count; i++)
        fds[i] = (struct pollfd){.fd = ports[i].context->async_fd, .events = POLLIN};
    for (;;) {
        int wait_ms = agent_look();
        int64_t now_ns = clock_ns();
        for (int i = 0; i < port_count && now_ns >= ask_ns; i++)
            ask_port(&ports[i]);
        if (now_ns >= ask_ns)
            ask_ns = now_ns + ASK_NS;
        if (poll(fds, (nfds_t)port_count, wait_ms) <= 0)
            continue;
        for (int i = 0; i < port_count; i++)
            if (fds[i].revents & POLLIN)
                read_event(&ports[i]);
            else if (fds[i].revents) {
                atomic_store(&ports[i].down, true); /* the device has gone */
                ports[i].failed = true;
                fds[i].fd = -1;
            }
    }
    return NULL;
}

static int find_port(const char *name, size_t length)
{
    for (int i = 0; i < port_count; i++)
        if (strlen(ports[i].name) == length && memcmp(ports[i].name, name, length) == 0)
            return i;
    return -1;
}

static const char *make_groups(void)
{
    static char problem[160];
    group_count = 0;
    if (config.rails == NULL) {
        for (int i = 0; i < port_count; i++) {
            struct group *group = &groups[group_count++];
            *group = (struct group){.rails = 1, .rail = {i}, .members = 1, .member = {i}};
            snprintf(group->name, sizeof group->name, "%.63s", ports[i].name);
        }
        return NULL;
    }
    for (const char *list = config.rails; *list;) {
        size_t length = strcspn(list, ",");
        struct group *group = &groups[group_count];
        *group = (struct group){.members = 1, .member = {group_count}};
        snprintf(group->name, sizeof group->name, "%.*s", (int)length, list);
        for (const char *name = list; name < list + length;) {
            size_t name_length = strcspn(name, "+,");
            int port = find_port(name, name_length);
            if (port < 0 || group->rails == MAX_RAILS || group_count == MAX_PORTS) {
                snprintf(problem, sizeof problem, port < 0 ? "SYNTONY_NCCL_RAILS: no port %.*s"
                         : "SYNTONY_NCCL_RAILS: too many at %.*s", (int)name_length, name);
                return problem;
            }
            group->rail[group->rails++] = port;
            name += name_length + (name[name_length] == '+');
        }
        group_count += group->rails > 0;
        list += length + (list[length] == ',');
    }
    return group_count ? NULL : "SYNTONY_NCCL_RAILS names no port";
}

int devices_merge(const int *members, int count)
{
    struct group merged = {0};
    size_t used = 0;
    for (int i = 0; i < count; i++) {
        if (members[i] < 0 || members[i] >= group_count)
            return -1;
        const struct group *member = &groups[members[i]];
        if (merged.members < MAX_RAILS)
            merged.member[merged.members++] = members[i];
        for (int j = 0; j < member->rails && merged.rails < MAX_RAILS; j++)
            merged.rail[merged.rails++] = member->rail[j];
        used += (size_t)snprintf(merged.name + used, sizeof merged.name - used, "%s%s",
                                 i ? "+" : "", member->name);
        if (used >= sizeof merged.name)
            used = sizeof merged.name - 1;
    }
    if (merged.rails == 0 || group_count == MAX_GROUPS)
        return -1;
    groups[group_count] = merged;
    return group_count++;
}

const char *devices_open(void)
{
    int count = 0;
    struct ibv_device **list = verbs.get_device_list(&count);
    for (int i = 0; list && i < count; i++)
        add_port(list[i]);
    if (list)
        verbs.free_device_list(list);
    if (port_count == 0)
        return config.devices ? "no RDMA port that SYNTONY_NCCL_HCA or NCCL_IB_HCA wants"
                              : "no RDMA device";
    const char *problem = make_groups();
    if (problem)
        return problem;
    for (int i = 0; i < port_count; i++) {
        int flags = fcntl(ports[i].context->async_fd, F_GETFL);
        fcntl(ports[i].context->async_fd, F_SETFL, flags | O_NONBLOCK);
    }
    pthread_t thread;
    if (pthread_create(&thread, NULL, watch, NULL))
        return "no thread";
    pthread_detach(thread);
    return NULL;
}
