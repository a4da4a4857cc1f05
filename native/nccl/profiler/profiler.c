#include "profiler.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "next.h"

enum { COMMS = 4096 };

log_function *nccl_log;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* while a communicator begins or ends */
static struct comm comms[COMMS];
static int pid;
static int *nccl_mask; /* NCCL's own: one for all communicators */
static int wanted;     /* by us */
static bool initialised, open; /* whether there is a page: that stays so */

static int events_wanted(int version)
{
    const char *kernels = getenv("SYNTONY_NCCL_KERNELS");
    int events = EVENT_COLLECTIVE | EVENT_P2P | EVENT_PROXY_OP | EVENT_PROXY_STEP;
    return version >= 4 && kernels && strcmp(kernels, "1") == 0 ? events | EVENT_KERNEL : events;
}

static struct comm *take_comm(const struct comm_info *info)
{
    for (int i = 0; i < COMMS; i++) {
        struct comm *comm = &comms[i];
        if (GET(comm->used))
            continue;
        enum { AFTER_USED = offsetof(struct comm, id) };
        memset((char *)comm + AFTER_USED, 0, sizeof *comm - AFTER_USED);
        comm->id = info->id, comm->rank = info->rank, comm->ranks = info->ranks;
        if (info->name)
            strncpy(comm->name, info->name, sizeof comm->name - 1);
        return comm;
    }
    return NULL;
}

int profiler_init(int version, void **context, int *mask, const struct comm_info *info)
{
    pthread_mutex_lock(&lock);
    if (info->log)
        nccl_log = info->log;
    if (!initialised)
        open = operations_open((uint32_t)version);
    initialised = true;
    next_load(version, !open);
    struct comm *comm = take_comm(info);
    *context = comm;
    if (comm != NULL) {
        SET(pid, getpid());
        SET(nccl_mask, mask);
        SET(wanted, operations_are_open() ? events_wanted(version) : 0);
        if (open) {
            next_init(comm, &comm->next_mask, info->name, info->nodes);
            comm->next_seen = comm->next_mask;
            SET(*mask, wanted | comm->next_mask);
        } else {
            *mask = 0;
            next_init(comm, mask, info->name, info->nodes);
        }
        __atomic_store_n(&comm->used, 1, __ATOMIC_RELEASE);
    }
    pthread_mutex_unlock(&lock);
    return 0;
}

struct comm *profiler_comm(void *context)
{
    uintptr_t offset = (uintptr_t)context - (uintptr_t)comms;
    if (offset >= sizeof comms || offset % sizeof *comms)
        return NULL;
    struct comm *comm = &comms[offset / sizeof *comms];
    return __atomic_load_n(&comm->used, __ATOMIC_ACQUIRE) ? comm : NULL;
}

int profiler_finalize(void *context)
{
    pthread_mutex_lock(&lock);
    struct comm *comm = profiler_comm(context);
    if (comm != NULL) {
        next_finalize(comm);
        __atomic_store_n(&comm->used, 0, __ATOMIC_RELEASE);
    }
    pthread_mutex_unlock(&lock);
    return 0;
}

bool profiler_is_here(const struct proxy_op *proxy_op)
{
    return proxy_op->pid == GET(pid);
}

/* The chained profiler may change its mask at any time. If nothing is ours, NCCL's mask is its own. */
static void follow_next(struct comm *comm)
{
    if (!comm->has_next || comm->next_wanted != &comm->next_mask)
        return;
    int now = GET(comm->next_mask);
    if (now == GET(comm->next_seen))
        return;
    SET(comm->next_seen, now);
    __atomic_store_n(GET(nccl_mask), GET(wanted) | now, __ATOMIC_RELAXED);
}

handle_t profiler_operation(struct comm *comm, struct operation *operation)
{
    follow_next(comm);
    operation->sequence =
        ADD(*(operation->kind == SYN_NCCL_P2P ? &comm->p2p : &comm->collectives), 1);
    operation->rank = comm->ranks ? comm->rank : operation->rank;
    operation->ranks = comm->ranks;
    return handle_of_operation(operation_begin(operation));
}

void *profiler_forward(struct comm *comm, handle_t handle, uint64_t type, const void *descriptor)
{
    return next_wants(comm, type) ? next_start(comm, handle, descriptor)
                                  : (void *)(uintptr_t)handle;
}

int profiler_stop(void *event)
{
    next_stop(event);
    event_end((handle_t)(uintptr_t)event);
    return 0;
}

int profiler_record(void *event, int state, void *arguments)
{
    handle_t handle = (handle_t)(uintptr_t)event;
    switch (state) {
    case STATE_SEND_GPU: step_waits(handle, SYN_NCCL_GPU); break;
    case STATE_SEND_CREDIT: step_waits(handle, SYN_NCCL_CREDIT); break;
    case STATE_SEND_NET: step_waits(handle, SYN_NCCL_NET); break;
    case STATE_RECEIVE: step_waits(handle, SYN_NCCL_RECV); break;
    case STATE_RECEIVE_FLUSH: step_waits(handle, SYN_NCCL_FLUSH); break;
    case STATE_RECEIVE_GPU: step_waits(handle, SYN_NCCL_CONSUME); break;
    case STATE_SEND_CREDIT_V2: part_waits_for_credit(handle); break;
    }
    next_record(event, state, arguments);
    return 0;
}
