/* The structures of NCCL's profiler ABI, versions 2 and 4 to 7. Versions 5 to 7 begin as version 4
 * does, and their descriptors only grow at the end. */
#ifndef PROFILER_ABI_H
#define PROFILER_ABI_H

#include <stddef.h>
#include <stdint.h>

#include "log.h"

/* Bits of the event mask, which are the types of events. */
enum {
    EVENT_GROUP = 1 << 0, EVENT_COLLECTIVE = 1 << 1, EVENT_P2P = 1 << 2, EVENT_PROXY_OP = 1 << 3,
    EVENT_PROXY_STEP = 1 << 4, EVENT_PROXY_CONTROL = 1 << 5, EVENT_KERNEL = 1 << 6,
    EVENT_NET = 1 << 7, EVENT_GROUP_API = 1 << 8, EVENT_COLLECTIVE_API = 1 << 9,
    EVENT_P2P_API = 1 << 10, EVENT_LAUNCH = 1 << 11, EVENT_CE_COLLECTIVE = 1 << 12,
    EVENT_CE_SYNC = 1 << 13, EVENT_CE_BATCH = 1 << 14, EVENT_KERNEL_PHASE = 1 << 15,
};

/* States. */
enum {
    STATE_SEND_CREDIT_V2 = 1, /* of a proxy operation, before version 4 */
    STATE_SEND_GPU = 8, STATE_SEND_NET = 9, STATE_RECEIVE = 10, STATE_RECEIVE_FLUSH = 11,
    STATE_RECEIVE_GPU = 12, STATE_SEND_CREDIT = 20,
};

#define DESCRIPTOR_HEAD \
    void *parent;       \
    int rank;

struct proxy_op { int pid; uint8_t channel; int peer, steps, chunk, is_send; };

struct event_v2 {
    uint8_t type;
    DESCRIPTOR_HEAD
    union {
        struct {
            const char *name;
            uint64_t comm, sequence;
            const char *op;
            const void *send, *receive;
            size_t count;
            int root;
            const char *datatype;
            size_t bytes;
            uint8_t channels, warps;
            const char *algorithm, *protocol;
        } collective;
        struct {
            const char *name;
            uint64_t comm;
            const char *op;
            void *buffer;
            const char *datatype;
            size_t count;
            int peer;
        } p2p;
        struct proxy_op proxy_op;
    };
};

/* What versions 4 to 7 have in common. Of version 4 `type` is one byte, the others undefined, and
 * there are no groups. */
struct event_v4 {
    union { uint8_t type_v4; uint64_t type; };
    DESCRIPTOR_HEAD
    union {
        struct {
            uint64_t sequence;
            const char *op;
            const void *send, *receive;
            size_t count;
            int root;
            const char *datatype;
            uint8_t channels, warps;
            const char *algorithm, *protocol;
            void *group;
        } collective;
        struct {
            const char *op;
            void *buffer;
            const char *datatype;
            size_t count;
            int peer;
            uint8_t channels;
            void *group;
        } p2p;
        struct proxy_op proxy_op;
    };
};

_Static_assert(offsetof(struct event_v2, rank) == 16 && sizeof(struct event_v2) == 128, "v2");
_Static_assert(offsetof(struct event_v2, collective.protocol) == 120, "v2");
_Static_assert(offsetof(struct event_v2, p2p.peer) == 72, "v2");
_Static_assert(offsetof(struct event_v4, collective.sequence) == 24, "v4");
_Static_assert(offsetof(struct event_v4, collective.protocol) == 96, "v4");
_Static_assert(offsetof(struct event_v4, p2p.peer) == 56, "v4");
_Static_assert(offsetof(struct event_v4, p2p.group) == 64, "v5");
_Static_assert(offsetof(struct event_v4, proxy_op.is_send) == 44, "v4");
_Static_assert(sizeof(struct event_v4) == 112, "v5");

/* Sizes of the descriptors that NCCL passes. */
enum { EVENT_V4_BYTES = 104, EVENT_V5_BYTES = 112, EVENT_V7_BYTES = 136 };

#define PROFILER_TABLE(init_arguments)                       \
    const char *name;                                        \
    int (*init) init_arguments;                              \
    int (*start_event)(void *context, void **handle, void *descriptor); \
    int (*stop_event)(void *handle);                         \
    int (*record_state)(void *handle, int state, void *arguments);      \
    int (*finalize)(void *context);

struct profiler_v2 { PROFILER_TABLE((void **context, int *mask)) };
struct profiler_v4 {
    PROFILER_TABLE((void **context, int *mask, const char *name, uint64_t comm, int nodes,
                    int ranks, int rank, log_function *log))
};
struct profiler_v5 { /* and v6, v7 */
    PROFILER_TABLE((void **context, uint64_t comm, int *mask, const char *name, int nodes,
                    int ranks, int rank, log_function *log))
};
_Static_assert(sizeof(struct profiler_v2) == 48 && sizeof(struct profiler_v5) == 48, "tables");

#endif
