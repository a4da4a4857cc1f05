/* NCCL's net ABI, versions 8 to 12, from one core. */
#include "abi.h"

#include <stdlib.h>
#include <string.h>

#include "net.h"
#include "wire.h"

static const char NAME[] = "Syntony";

static int init_v8(log_function *log) { return net_init(log); }

static int init_v10(log_function *log, profiler_callback *profiler)
{
    (void)profiler;
    return net_init(log);
}

/* A communicator's context is its traffic class. */
static int init_v11(void **context, uint64_t comm_id, struct comm_config *config, log_function *log,
                    profiler_callback *profiler)
{
    (void)comm_id, (void)profiler;
    int result = net_init(log);
    if (result)
        return result;
    struct comm_config *own = malloc(sizeof *own);
    if (own == NULL)
        return NCCL_SYSTEM;
    own->traffic_class = config ? config->traffic_class : -1;
    *context = own;
    return NCCL_OK;
}

static int finalize(void *context)
{
    free(context);
    return NCCL_OK;
}

static int class_of(const struct comm_config *config)
{
    return config && config->traffic_class >= 0 && config->traffic_class <= 255
               ? config->traffic_class : -1;
}

static int listen_v8(int device, void *handle, void **listener)
{
    return net_listen(device, -1, handle, listener);
}

static int listen_v11(void *context, int device, void *handle, void **listener)
{
    return net_listen(device, class_of(context), handle, listener);
}

static int connect_v8(int device, void *handle, void **comm, void **device_handle)
{
    if (device_handle)
        *device_handle = NULL;
    return net_connect(device, -1, handle, comm);
}

static int connect_v10(int device, struct comm_config *config, void *handle, void **comm,
                       void **device_handle)
{
    if (device_handle)
        *device_handle = NULL;
    return net_connect(device, class_of(config), handle, comm);
}

static int connect_v11(void *context, int device, void *handle, void **comm, void **device_handle)
{
    return connect_v10(device, context, handle, comm, device_handle);
}

/* What all versions have, and v9 added. */
#define FILL(own, to)                                                                         \
    do {                                                                                      \
        memset(to, 0, sizeof *(to));                                                          \
        (to)->name = (own).name, (to)->pci_path = (own).pci_path, (to)->guid = (own).guid;    \
        (to)->pointers = (own).pointers, (to)->speed = (own).speed, (to)->port = (own).port;  \
        (to)->global_registration = 1, (to)->max_comms = 65536, (to)->max_receives = MAX_GROUP; \
    } while (0)
#define FILL_V9(own, to)                                                                       \
    do {                                                                                       \
        FILL(own, to);                                                                         \
        (to)->virtual.count = (own).members;                                                   \
        for (int i_ = 0; i_ < (own).members; i_++)                                             \
            (to)->virtual.device[i_] = (own).member[i_];                                       \
        (to)->max_p2p = (to)->max_collective = (own).max_bytes;                                \
    } while (0)

static int properties_v8(int device, struct properties_v8 *properties)
{
    struct net_properties own;
    int result = net_get_properties(device, &own);
    if (result == NCCL_OK)
        FILL(own, properties);
    return result;
}

static int properties_v9(int device, struct properties_v9 *properties)
{
    struct net_properties own;
    int result = net_get_properties(device, &own);
    if (result == NCCL_OK)
        FILL_V9(own, properties);
    return result;
}

static int properties_v11(int device, struct properties_v11 *properties)
{
    struct net_properties own;
    int result = net_get_properties(device, &own);
    if (result)
        return result;
    FILL_V9(own, properties);
    properties->max_multi_request = 1;
    return NCCL_OK;
}

static int properties_v12(int device, struct properties_v12 *properties)
{
    struct net_properties own;
    int result = net_get_properties(device, &own);
    if (result)
        return result;
    FILL_V9(own, properties);
    properties->max_multi_request = 1;
    properties->rail_id = properties->plane_id = -1;
    return NCCL_OK;
}

static int isend_v8(void *comm, void *data, int size, int tag, void *memory, void **request)
{
    return size < 0 ? NCCL_ARGUMENT : net_isend(comm, data, (size_t)size, tag, memory, request);
}

static int isend_v10(void *comm, void *data, size_t size, int tag, void *memory, void *profiler,
                     void **request)
{
    (void)profiler;
    return net_isend(comm, data, size, tag, memory, request);
}

static int irecv_v8(void *comm, int count, void **data, int *sizes, int *tags, void **memories,
                    void **request)
{
    size_t whole[MAX_GROUP] = {0};
    for (int i = 0; i < count && i < MAX_GROUP; i++) {
        if (sizes[i] < 0)
            return NCCL_ARGUMENT;
        whole[i] = (size_t)sizes[i];
    }
    return net_irecv(comm, count, data, whole, tags, memories, request);
}

static int irecv_v9(void *comm, int count, void **data, size_t *sizes, int *tags, void **memories,
                    void **request)
{
    return net_irecv(comm, count, data, sizes, tags, memories, request);
}

static int irecv_v10(void *comm, int count, void **data, size_t *sizes, int *tags, void **memories,
                     void **profiler, void **request)
{
    (void)profiler;
    return net_irecv(comm, count, data, sizes, tags, memories, request);
}

static int make_virtual_v9(int *device, struct virtual_v9 *virtual)
{
    return virtual->count > 4 ? NCCL_ARGUMENT
                              : net_make_virtual(device, virtual->device, virtual->count);
}

static int make_virtual_v12(int *device, struct virtual_v12 *virtual)
{
    return virtual->count > 8 ? NCCL_ARGUMENT
                              : net_make_virtual(device, virtual->device, virtual->count);
}

#define SAME                                                                                \
    .name = NAME, .devices = net_devices, .accept = net_accept, .reg_mr = net_reg_mr,       \
    .reg_mr_dmabuf = net_reg_mr_dmabuf, .dereg_mr = net_dereg_mr, .iflush = net_iflush,     \
    .test = net_test, .close_send = net_close, .close_receive = net_close,                  \
    .close_listen = net_close_listen
#define EXPORT __attribute__((visibility("default"))) const

EXPORT struct net_v8 ncclNetPlugin_v8 = {
    SAME, .init = init_v8, .get_properties = properties_v8, .listen = listen_v8,
    .connect = connect_v8, .isend = isend_v8, .irecv = irecv_v8,
};
EXPORT struct net_v9 ncclNetPlugin_v9 = {
    SAME, .init = init_v8, .get_properties = properties_v9, .listen = listen_v8,
    .connect = connect_v8, .isend = net_isend, .irecv = irecv_v9, .make_virtual = make_virtual_v9,
};
EXPORT struct net_v10 ncclNetPlugin_v10 = {
    SAME, .init = init_v10, .get_properties = properties_v9, .listen = listen_v8,
    .connect = connect_v10, .isend = isend_v10, .irecv = irecv_v10,
    .make_virtual = make_virtual_v9,
};
EXPORT struct net_v11 ncclNetPlugin_v11 = {
    SAME, .init = init_v11, .get_properties = properties_v11, .listen = listen_v11,
    .connect = connect_v11, .isend = isend_v10, .irecv = irecv_v10,
    .make_virtual = make_virtual_v9, .finalize = finalize,
};
EXPORT struct net_v12 ncclNetPlugin_v12 = {
    SAME, .init = init_v11, .get_properties = properties_v12, .listen = listen_v11,
    .connect = connect_v11, .isend = isend_v10, .irecv = irecv_v10,
    .make_virtual = make_virtual_v12, .finalize = finalize,
};
