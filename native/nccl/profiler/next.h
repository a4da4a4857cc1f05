/* Another profiler behind this one: NCCL loads one only. SYNTONY_NCCL_PROFILER_NEXT names it as
 * NCCL_PROFILER_PLUGIN would: it gets what it would get from NCCL, in the newest version that it and
 * this NCCL have in common. Events of version 2 go to a table of version 2 only, those of versions 4
 * to 7 to the same version or an older one of these. */
#ifndef PROFILER_NEXT_H
#define PROFILER_NEXT_H

#include <stdbool.h>

#include "abi.h"
#include "comm.h"
#include "parts.h"

/* Load it, once for a process. `version` is that of the table that NCCL uses. `alone`: nothing of this
 * profiler is wanted, and NCCL gets the other one's handles. Not for two threads at once. */
void next_load(int version, bool alone);
/* Initialise the communicator there; it may refuse. The events that it wants are in `*mask`, which
 * stays where it is. Not for two threads at once. */
void next_init(struct comm *comm, int *mask, const char *name, int nodes);
void next_finalize(struct comm *comm);
/* Whether it wants events of this type. */
bool next_wants(const struct comm *comm, uint64_t type);
/* Start the event there. Returns the handle for NCCL: `handle`, which keeps the other one's; alone, the
 * other one's itself. `descriptor` is as NCCL gave it. */
void *next_start(struct comm *comm, handle_t handle, const void *descriptor);
void next_stop(void *event);
void next_record(void *event, int state, void *arguments);

#endif
