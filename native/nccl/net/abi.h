/* The structures of NCCL's net plug-in ABI, versions 8 to 12, as docs/reference/nccl-net.md says. */
#ifndef NET_ABI_H
#define NET_ABI_H

#include <stddef.h>
#include <stdint.h>

#include "log.h"

enum { NCCL_OK = 0, NCCL_SYSTEM = 2, NCCL_INTERNAL = 3, NCCL_ARGUMENT = 4, NCCL_USAGE = 5,
       NCCL_REMOTE = 6 };
enum { POINTER_HOST = 1, POINTER_CUDA = 2, POINTER_DMABUF = 4 };

struct properties_v8 {
    char *name, *pci_path;
    uint64_t guid;
    int pointers, global_registration, speed, port;
    float latency;
    int max_comms, max_receives, device_type, device_version;
};

struct virtual_v9 { int count, device[4]; };
struct virtual_v12 { int count, device[8]; };

#define PROPERTIES_V9                                            \
    char *name, *pci_path;                                       \
    uint64_t guid;                                               \
    int pointers, global_registration, force_flush, speed, port; \
    float latency;                                               \
    int max_comms, max_receives, device_type, device_version;

struct properties_v9 { /* and v10 */
    PROPERTIES_V9
    struct virtual_v9 virtual;
    size_t max_p2p, max_collective;
};

struct properties_v11 {
    PROPERTIES_V9
    struct virtual_v9 virtual;
    size_t max_p2p, max_collective;
    int max_multi_request;
};

struct properties_v12 {
    PROPERTIES_V9
    struct virtual_v12 virtual;
    size_t max_p2p, max_collective;
    int max_multi_request;
    int16_t rail_id, plane_id;
};

_Static_assert(offsetof(struct properties_v8, max_receives) == 48, "v8");
_Static_assert(offsetof(struct properties_v9, max_p2p) == 88, "v9");
_Static_assert(offsetof(struct properties_v11, max_multi_request) == 104, "v11");
_Static_assert(offsetof(struct properties_v12, plane_id) == 126, "v12");

struct comm_config { int traffic_class; /* -1: not defined */ };
typedef int profiler_callback(void **, int, void *, int64_t, void *);

/* The slots from `accept` on that all versions share stand between those that differ. */
#define NET_TABLE(init_arguments, listen_arguments, connect_arguments, properties, size_type,   \
                  handle_argument, handles_argument)                                            \
    const char *name;                                                                           \
    int (*init) init_arguments;                                                                 \
    int (*devices)(int *);                                                                      \
    int (*get_properties)(int, struct properties *);                                            \
    int (*listen) listen_arguments;                                                             \
    int (*connect) connect_arguments;                                                           \
    int (*accept)(void *, void **, void **);                                                    \
    int (*reg_mr)(void *, void *, size_t, int, void **);                                        \
    int (*reg_mr_dmabuf)(void *, void *, size_t, int, uint64_t, int, void **);                  \
    int (*dereg_mr)(void *, void *);                                                            \
    int (*isend)(void *, void *, size_type, int, void *, handle_argument void **);              \
    int (*irecv)(void *, int, void **, size_type *, int *, void **, handles_argument void **);  \
    int (*iflush)(void *, int, void **, int *, void **, void **);                               \
    int (*test)(void *, int *, int *);                                                          \
    int (*close_send)(void *);                                                                  \
    int (*close_receive)(void *);                                                               \
    int (*close_listen)(void *);                                                                \
    int (*get_device_mr)(void *, void *, void **);                                              \
    int (*receive_consumed)(void *, int, void *);

#define NOTHING
#define HANDLE void *,
#define HANDLES void **,

struct net_v8 {
    NET_TABLE((log_function *), (int, void *, void **), (int, void *, void **, void **),
              properties_v8, int, NOTHING, NOTHING)
};
struct net_v9 {
    NET_TABLE((log_function *), (int, void *, void **), (int, void *, void **, void **),
              properties_v9, size_t, NOTHING, NOTHING)
    int (*make_virtual)(int *, struct virtual_v9 *);
};
struct net_v10 {
    NET_TABLE((log_function *, profiler_callback *), (int, void *, void **),
              (int, struct comm_config *, void *, void **, void **), properties_v9, size_t, HANDLE,
              HANDLES)
    int (*make_virtual)(int *, struct virtual_v9 *);
};
struct net_v11 {
    NET_TABLE((void **, uint64_t, struct comm_config *, log_function *, profiler_callback *),
              (void *, int, void *, void **), (void *, int, void *, void **, void **),
              properties_v11, size_t, HANDLE, HANDLES)
    int (*make_virtual)(int *, struct virtual_v9 *);
    int (*finalize)(void *);
    int (*set_attributes)(void *, void *);
};
struct net_v12 {
    NET_TABLE((void **, uint64_t, struct comm_config *, log_function *, profiler_callback *),
              (void *, int, void *, void **), (void *, int, void *, void **, void **),
              properties_v12, size_t, HANDLE, HANDLES)
    int (*make_virtual)(int *, struct virtual_v12 *);
    int (*finalize)(void *);
    int (*set_attributes)(void *, void *);
};

_Static_assert(sizeof(struct net_v8) == 152, "v8");
_Static_assert(sizeof(struct net_v9) == 160 && sizeof(struct net_v10) == 160, "v9, v10");
_Static_assert(sizeof(struct net_v11) == 176 && sizeof(struct net_v12) == 176, "v11, v12");

#endif
