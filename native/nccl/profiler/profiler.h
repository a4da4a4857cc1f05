/* What all versions of the ABI do. */
#ifndef PROFILER_PROFILER_H
#define PROFILER_PROFILER_H

#include <stdbool.h>

#include "abi.h"
#include "comm.h"
#include "parts.h"

struct comm_info {
    const char *name;
    uint64_t id;
    int nodes, ranks, rank;
    log_function *log;
};

/* A communicator begins. `*context` names it, NULL: there is no room for it, and NCCL reports none of
 * its events. `*mask` are the events wanted. */
int profiler_init(int version, void **context, int *mask, const struct comm_info *info);
int profiler_finalize(void *context);
/* The communicator; NULL: none of ours. */
struct comm *profiler_comm(void *context);
/* Whether a proxy operation's parent is of this process. With PXN it may be another one's. */
bool profiler_is_here(const struct proxy_op *proxy_op);
/* A collective, send or receive begins: `operation` but for its sequence. */
handle_t profiler_operation(struct comm *comm, struct operation *operation);
/* Pass the event on to the chained profiler, if that wants it. Returns the handle for NCCL. `handle`
 * 0: this profiler does not record the event. */
void *profiler_forward(struct comm *comm, handle_t handle, uint64_t type, const void *descriptor);
int profiler_stop(void *handle);
int profiler_record(void *handle, int state, void *arguments);

#endif
