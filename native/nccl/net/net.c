#include "net.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "abi.h"
#include "config.h"
#include "flush.h"
#include "link.h"
#include "setup.h"
#include "watched.h"

log_function *nccl_log;

static const uint64_t MAX_BYTES = UINT64_C(1) << 36; /* 64 chunks of 1 GiB */

enum request_kind { REQUEST_FREE, REQUEST_SEND, REQUEST_RECEIVE, REQUEST_FLUSH };

struct request {
    enum request_kind kind;
    struct comm *comm;
    union {
        struct request *next; /* of those that are free */
        struct send *send;
        struct receive *receive;
        struct flush flush;
    };
};

struct comm {
    struct conn *conn;
    struct readers readers; /* receiver: made with its first GPU memory */
    struct request *free;
    struct request request[REQUESTS];
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static atomic_bool forked; /* this is a child of the process that called init: nothing is its own */

static void after_fork(void)
{
    atomic_store(&forked, true);
}

static bool is_child(void)
{
    static atomic_bool said;
    if (!atomic_load_explicit(&forked, memory_order_relaxed))
        return false;
    if (!atomic_exchange(&said, true))
        WARN("a child of fork cannot use its parent's connections: start it by exec");
    return true;
}

int net_init(log_function *log)
{
    static enum { NEW, WORKS, FAILED } state;
    pthread_mutex_lock(&lock);
    nccl_log = log;
    if (state == NEW) {
        const char *problem = pthread_atfork(NULL, NULL, after_fork) || link_leave_at_fork()
                                  ? "no memory" : config_read();
        if (problem == NULL)
            problem = verbs_load(getenv("SYNTONY_NCCL_IBVERBS"));
        if (problem == NULL) {
            watched_verbs();
            problem = devices_open();
        }
        state = problem ? FAILED : WORKS;
        if (problem)
            WARN("not used, NCCL's own transport is: %s", problem);
        else
            for (int i = 0; i < group_count; i++)
                INFO("device %d: %s, %d rail%s", i, groups[i].name, groups[i].rails,
                     groups[i].rails > 1 ? "s" : "; a failure of it cannot be survived");
    }
    pthread_mutex_unlock(&lock);
    return state == WORKS && !is_child() ? NCCL_OK : NCCL_SYSTEM;
}

int net_devices(int *count)
{
    *count = group_count;
    return NCCL_OK;
}

static int supported_pointers(const struct group *group)
{
    int pointers = POINTER_HOST | POINTER_DMABUF;
    for (int r = 0; r < group->rails; r++)
        if (!ports[group->rail[r]].takes_dmabuf)
            pointers = POINTER_HOST;
    return pointers | (devices_read_gpus() ? POINTER_CUDA : 0);
}

int net_get_properties(int device, struct net_properties *properties)
{
    if (device < 0 || device >= group_count)
        return NCCL_ARGUMENT;
    struct group *group = &groups[device];
    struct port *port = &ports[group->rail[0]];
    *properties = (struct net_properties){
        .name = group->name, .pci_path = port->pci_path[0] ? port->pci_path : NULL,
        .guid = port->guid, .pointers = supported_pointers(group), .port = port->number,
        .members = group->members, .member = group->member, .max_bytes = MAX_BYTES};
    for (int r = 0; r < group->rails; r++)
        properties->speed += ports[group->rail[r]].speed_mbps;
    return NCCL_OK;
}

int net_listen(int device, int traffic_class, void *handle, void **listener)
{
    struct handle own;
    if (device < 0 || device >= group_count)
        return NCCL_ARGUMENT;
    if (is_child())
        return NCCL_SYSTEM;
    const char *problem = setup_listen(device, traffic_class, &own, (struct listener **)listener);
    if (problem) {
        WARN("%s: %s", groups[device].name, problem);
        return NCCL_SYSTEM;
    }
    memcpy(handle, &own, sizeof own);
    return NCCL_OK;
}

static void give_back(struct comm *comm, struct request *request)
{
    request->kind = REQUEST_FREE;
    request->comm = comm;
    request->next = comm->free;
    comm->free = request;
}

/* The next free one, if there is any, is something's now. */
static struct request *take_free(struct comm *comm, enum request_kind kind)
{
    struct request *request = comm->free;
    comm->free = request->next;
    request->kind = kind;
    return request;
}

static int hand_over(int device, struct conn *conn, const char *problem, void **comm)
{
    *comm = NULL;
    if (problem) {
        WARN("%s: %s", groups[device].name, problem);
        return NCCL_SYSTEM;
    }
    if (conn == NULL)
        return NCCL_OK;
    struct comm *made = calloc(1, sizeof *made);
    if (made == NULL) {
        conn_end(conn);
        return NCCL_SYSTEM;
    }
    made->conn = conn;
    for (int i = 0; i < REQUESTS; i++)
        give_back(made, &made->request[i]);
    *comm = made;
    return NCCL_OK;
}

int net_connect(int device, int traffic_class, void *handle, void **comm)
{
    struct conn *conn = NULL;
    struct handle own;
    if (device < 0 || device >= group_count)
        return NCCL_ARGUMENT;
    if (is_child())
        return NCCL_SYSTEM;
    memcpy(&own, handle, sizeof own);
    const char *problem = setup_connect(device, traffic_class, &own, &conn);
    memcpy(handle, &own, sizeof own);
    return hand_over(device, conn, problem, comm);
}

int net_accept(void *listener, void **comm, void **device_handle)
{
    struct conn *conn = NULL;
    if (device_handle)
        *device_handle = NULL;
    if (is_child())
        return NCCL_SYSTEM;
    const char *problem = setup_accept(listener, &conn);
    return hand_over(((struct listener *)listener)->group, conn, problem, comm);
}

static void deregister(struct memory *memory)
{
    for (int r = 0; r < MAX_RAILS; r++)
        if (memory->mr[r])
            verbs.dereg_mr(memory->mr[r]);
    free(memory);
}

/* With each rail of the group. `fd` of a DMA-BUF, or -1. */
static struct memory *register_with_rails(struct conn *conn, void *data, size_t size, int type,
                                          uint64_t offset, int fd)
{
    const int access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ;
    struct memory *memory = calloc(1, sizeof *memory);
    if (memory == NULL)
        return NULL;
    memory->is_device = type == POINTER_CUDA;
    for (int r = 0; r < conn->rails; r++) {
        struct ibv_pd *pd = conn->queues[r].port->pd;
        memory->mr[r] = fd < 0 ? verbs.reg_mr(pd, data, size, access)
                               : verbs.reg_dmabuf_mr(pd, offset, size, (uint64_t)(uintptr_t)data,
                                                     fd, access);
        if (memory->mr[r])
            continue;
        WARN("%s: %zu bytes cannot be registered: %s (ulimit -l?)", conn->queues[r].port->name, size,
             strerror(errno));
        if (conn_give_up_rail(conn, r))
            continue;
        deregister(memory);
        return NULL;
    }
    return memory;
}

static int register_with(struct comm *own, void *data, size_t size, int type, uint64_t offset, int fd,
                         void **memory)
{
    if (is_child())
        return NCCL_SYSTEM;
    const char *problem = type == POINTER_CUDA && !own->conn->is_sender
                              ? readers_make(&own->readers, own->conn) : NULL;
    if (problem) {
        WARN("GPU memory could not be flushed: %s", problem);
        return NCCL_SYSTEM;
    }
    *memory = register_with_rails(own->conn, data, size, type, offset, fd);
    return *memory ? NCCL_OK : NCCL_SYSTEM;
}

int net_reg_mr(void *comm, void *data, size_t size, int type, void **memory)
{
    struct comm *own = comm;
    if (type != POINTER_HOST && (type != POINTER_CUDA || !devices_read_gpus()))
        return NCCL_ARGUMENT;
    return register_with(own, data, size, type, 0, -1, memory);
}

int net_reg_mr_dmabuf(void *comm, void *data, size_t size, int type, uint64_t offset, int fd,
                      void **memory)
{
    struct comm *own = comm;
    if (fd < 0 || type != POINTER_CUDA ||
        !(supported_pointers(&own->conn->group) & POINTER_DMABUF))
        return NCCL_ARGUMENT;
    return register_with(own, data, size, type, offset, fd, memory);
}

int net_dereg_mr(void *comm, void *memory)
{
    (void)comm;
    if (memory && !is_child())
        deregister(memory);
    return NCCL_OK;
}

int net_isend(void *comm, void *data, size_t size, int tag, void *memory, void **request)
{
    struct comm *own = comm;
    struct send *send = NULL;
    *request = NULL;
    if (size > MAX_BYTES)
        return NCCL_ARGUMENT;
    if (is_child())
        return NCCL_SYSTEM;
    bool free = own->free != NULL;
    if (!conn_works(own->conn))
        return NCCL_REMOTE;
    if (free && !conn_send(own->conn, data, size, tag, memory, &send))
        return NCCL_USAGE;
    /* `test` looks at the NIC, too: twice for a small message would cost a good part of it. */
    if ((send == NULL || size > config.least_chunk) && !conn_progress(own->conn) && send == NULL)
        return NCCL_REMOTE;
    if (free && send == NULL && !conn_send(own->conn, data, size, tag, memory, &send))
        return NCCL_USAGE;
    if (send) {
        struct request *taken = take_free(own, REQUEST_SEND);
        taken->send = send;
        *request = taken;
    }
    return NCCL_OK;
}

int net_irecv(void *comm, int count, void **data, const size_t *sizes, int *tags, void **memories,
              void **request)
{
    struct comm *own = comm;
    *request = NULL;
    if (count < 1 || count > MAX_GROUP)
        return NCCL_ARGUMENT;
    if (is_child())
        return NCCL_SYSTEM;
    if (!conn_works(own->conn))
        return NCCL_REMOTE;
    struct receive *receive =
        own->free ? conn_receive(own->conn, count, data, sizes, tags, memories) : NULL;
    if (receive == NULL && !conn_progress(own->conn))
        return NCCL_REMOTE;
    if (receive) {
        struct request *taken = take_free(own, REQUEST_RECEIVE);
        taken->receive = receive;
        *request = taken;
    }
    return NCCL_OK;
}

/* One read per rail comes after all that the rail wrote before, so of a group the last one will do.
 * Host memory needs none. */
int net_iflush(void *comm, int count, void **data, int *sizes, void **memories, void **request)
{
    struct comm *own = comm;
    int last = -1;
    *request = NULL;
    if (is_child())
        return NCCL_SYSTEM;
    for (int i = 0; i < count; i++)
        if (sizes[i] && ((const struct memory *)memories[i])->is_device)
            last = i;
    if (last < 0)
        return NCCL_OK;
    if (own->free == NULL)
        return NCCL_INTERNAL; /* as many receives as NCCL may have, and their flushes, have room */
    struct request *taken = take_free(own, REQUEST_FLUSH);
    taken->flush = (struct flush){.address = (uint64_t)(uintptr_t)data[last],
                                  .memory = memories[last]};
    flush_begin(&own->readers, own->conn, &taken->flush);
    *request = taken;
    return NCCL_OK;
}

static int as_int(uint64_t size)
{
    return size > INT32_MAX ? INT32_MAX : (int)size;
}

static bool finish(struct request *request, int *sizes)
{
    if (request->kind == REQUEST_SEND && send_is_done(request->send)) {
        if (sizes)
            sizes[0] = as_int(request->send->size);
        request->send->used = false;
    } else if (request->kind == REQUEST_RECEIVE && request->receive->complete) {
        for (int i = 0; sizes && i < request->receive->count; i++)
            sizes[i] = as_int(request->receive->place[i].size);
        request->receive->used = false;
    } else if (request->kind != REQUEST_FLUSH ||
               !flush_is_done(&request->comm->readers, request->comm->conn, &request->flush))
        return false;
    give_back(request->comm, request);
    return true;
}

int net_test(void *request, int *done, int *sizes)
{
    struct request *own = request;
    *done = 0;
    if (is_child())
        return NCCL_SYSTEM;
    /* One that is complete costs no look at the NIC: others have brought it about. */
    bool works = true;
    *done = finish(own, sizes) ||
            ((works = conn_progress(own->comm->conn)), finish(own, sizes));
    return *done || works ? NCCL_OK : NCCL_REMOTE;
}

int net_close(void *comm)
{
    struct comm *own = comm;
    if (own && !is_child()) { /* the parent's are still in use */
        readers_end(&own->readers, own->conn);
        conn_end(own->conn);
        free(own);
    }
    return NCCL_OK;
}

int net_close_listen(void *listener)
{
    if (listener && !is_child())
        setup_close_listener(listener);
    return NCCL_OK;
}

int net_make_virtual(int *device, const int *members, int count)
{
    pthread_mutex_lock(&lock);
    *device = devices_merge(members, count);
    pthread_mutex_unlock(&lock);
    return *device < 0 ? NCCL_ARGUMENT : NCCL_OK;
}
