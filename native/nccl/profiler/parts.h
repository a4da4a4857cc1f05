/* Proxy operations, their steps, and kernels on a channel: what of them waits for what. NCCL drives
 * each from one thread; whatever else comes, in any order, breaks nothing.
 *
 * A handle is what NCCL keeps of an event. It is a number, never followed: one that is stale, of
 * another process or nonsense names nothing, and 0 is none. */
#ifndef PROFILER_PARTS_H
#define PROFILER_PARTS_H

#include "operations.h"

typedef uint64_t handle_t;

/* Of an operation that was begun; 0: no place, or NO_OPERATION and nothing to remember. */
handle_t handle_of_operation(uint64_t number);

/* A part of the operation `parent`; 0: that one has gone, or there is no place. */
handle_t part_begin(handle_t parent, enum part_kind kind);
/* A step of a proxy operation; 0: as above. */
handle_t step_begin(handle_t part);
/* An event that only the chained profiler wants; 0: no place. */
handle_t other_begin(void);
/* The step waits for that from now on. */
void step_waits(handle_t step, enum syn_nccl_wait wait);
/* The oldest step of the proxy operation that waits for the GPU waits for credit from now on: NCCL
 * before 2.27 reports this state of the operation, not of the step. */
void part_waits_for_credit(handle_t part);
/* The event is over, whatever it is; `handle` names nothing any more. */
void event_end(handle_t handle);

/* What another profiler calls the event; NULL: nothing, or there is no such event. */
void *event_next(handle_t handle);
void event_set_next(handle_t handle, void *next);

#endif
