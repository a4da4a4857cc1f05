/* NCCL's profiler ABI, versions 2 and 4 to 7, from one core. */
#include "abi.h"

#include "profiler.h"

static const char NAME[] = "Syntony";

static int start_v2(void *context, void **handle, void *descriptor)
{
    const struct event_v2 *event = descriptor;
    struct comm *comm = profiler_comm(context);
    handle_t own = 0, parent = event ? (handle_t)(uintptr_t)event->parent : 0;
    if (handle == NULL)
        return 0;
    *handle = NULL;
    if (comm == NULL || event == NULL)
        return 0;
    switch (event->type) {
    case EVENT_COLLECTIVE:
        own = profiler_operation(comm, &(struct operation){
            .kind = SYN_NCCL_COLLECTIVE, .comm = event->collective.comm, .rank = event->rank,
            .nccl_sequence = event->collective.sequence, .count = event->collective.count,
            .peer = event->collective.root, .op = event->collective.op,
            .datatype = event->collective.datatype, .algorithm = event->collective.algorithm,
            .protocol = event->collective.protocol, .name = event->collective.name});
        break;
    case EVENT_P2P:
        own = profiler_operation(comm, &(struct operation){
            .kind = SYN_NCCL_P2P, .comm = event->p2p.comm, .rank = event->rank,
            .count = event->p2p.count, .peer = event->p2p.peer, .op = event->p2p.op,
            .datatype = event->p2p.datatype, .name = event->p2p.name});
        break;
    case EVENT_PROXY_OP:
        if (!profiler_is_here(&event->proxy_op))
            return 0;
        own = part_begin(parent, event->proxy_op.is_send ? PART_SEND : PART_RECEIVE);
        break;
    case EVENT_PROXY_STEP: own = step_begin(parent); break;
    }
    *handle = profiler_forward(comm, own, event->type, event);
    return 0;
}

static int start(void *context, void **handle, const struct event_v4 *event, uint64_t type)
{
    struct comm *comm = profiler_comm(context);
    handle_t own = 0, parent = (handle_t)(uintptr_t)event->parent;
    *handle = NULL;
    if (comm == NULL)
        return 0;
    switch (type) {
    case EVENT_COLLECTIVE:
        own = profiler_operation(comm, &(struct operation){
            .kind = SYN_NCCL_COLLECTIVE, .comm = comm->id, .rank = event->rank,
            .nccl_sequence = event->collective.sequence, .count = event->collective.count,
            .peer = event->collective.root, .op = event->collective.op,
            .datatype = event->collective.datatype, .algorithm = event->collective.algorithm,
            .protocol = event->collective.protocol, .name = comm->name});
        break;
    case EVENT_P2P:
        own = profiler_operation(comm, &(struct operation){
            .kind = SYN_NCCL_P2P, .comm = comm->id, .rank = event->rank,
            .count = event->p2p.count, .peer = event->p2p.peer, .op = event->p2p.op,
            .datatype = event->p2p.datatype, .name = comm->name});
        break;
    case EVENT_PROXY_OP:
        if (!profiler_is_here(&event->proxy_op))
            return 0;
        own = part_begin(parent, event->proxy_op.is_send ? PART_SEND : PART_RECEIVE);
        break;
    case EVENT_PROXY_STEP: own = step_begin(parent); break;
    case EVENT_KERNEL: own = part_begin(parent, PART_KERNEL); break;
    }
    *handle = profiler_forward(comm, own, type, event);
    return 0;
}

static int start_v4(void *context, void **handle, void *descriptor)
{
    const struct event_v4 *event = descriptor;
    return event && handle ? start(context, handle, event, event->type_v4) : 0;
}

static int start_v5(void *context, void **handle, void *descriptor)
{
    const struct event_v4 *event = descriptor;
    return event && handle ? start(context, handle, event, event->type) : 0;
}

static int init_v2(void **context, int *mask)
{
    return profiler_init(2, context, mask, &(struct comm_info){0});
}

static int init_v4(void **context, int *mask, const char *name, uint64_t comm, int nodes, int ranks,
                   int rank, log_function *log)
{
    return profiler_init(4, context, mask,
                         &(struct comm_info){name, comm, nodes, ranks, rank, log});
}

#define INIT_V5(version)                                                                        \
    static int init_v##version(void **context, uint64_t comm, int *mask, const char *name,      \
                               int nodes, int ranks, int rank, log_function *log)               \
    {                                                                                           \
        return profiler_init(version, context, mask,                                            \
                             &(struct comm_info){name, comm, nodes, ranks, rank, log});         \
    }
INIT_V5(5)
INIT_V5(6)
INIT_V5(7)

#define SAME                                                             \
    .name = NAME, .stop_event = profiler_stop, .record_state = profiler_record, \
    .finalize = profiler_finalize
#define EXPORT __attribute__((visibility("default"))) const

EXPORT struct profiler_v2 ncclProfiler_v2 = {SAME, .init = init_v2, .start_event = start_v2};
EXPORT struct profiler_v4 ncclProfiler_v4 = {SAME, .init = init_v4, .start_event = start_v4};
EXPORT struct profiler_v5 ncclProfiler_v5 = {SAME, .init = init_v5, .start_event = start_v5};
EXPORT struct profiler_v5 ncclProfiler_v6 = {SAME, .init = init_v6, .start_event = start_v5};
EXPORT struct profiler_v5 ncclProfiler_v7 = {SAME, .init = init_v7, .start_event = start_v5};
