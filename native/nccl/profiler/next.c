#include "next.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ANY_VERSION_4 = 4, NEWEST = 7, KNOWN_TYPES = 16 };

static union {
    const void *table;
    const struct profiler_v2 *v2;
    const struct profiler_v4 *v4;
    const struct profiler_v5 *v5;
} next;
static int next_version, caller_version;
static bool looked, alone;

#define PARTS_OF_OPERATIONS (EVENT_PROXY_OP | EVENT_PROXY_STEP | EVENT_KERNEL | EVENT_NET)
#define COPY_ENGINE (EVENT_CE_COLLECTIVE | EVENT_CE_SYNC | EVENT_CE_BATCH)

/* NCCL reports an event if it is wanted, or any event inside it. */
static const uint32_t WANTED_FOR[KNOWN_TYPES] = {
    EVENT_GROUP | EVENT_COLLECTIVE | EVENT_P2P | PARTS_OF_OPERATIONS,
    EVENT_COLLECTIVE | PARTS_OF_OPERATIONS,
    EVENT_P2P | PARTS_OF_OPERATIONS,
    EVENT_PROXY_OP | EVENT_PROXY_STEP | EVENT_NET,
    EVENT_PROXY_STEP | EVENT_NET,
    EVENT_PROXY_CONTROL,
    EVENT_KERNEL | EVENT_KERNEL_PHASE,
    EVENT_NET,
    EVENT_GROUP_API | EVENT_COLLECTIVE_API | EVENT_P2P_API | EVENT_LAUNCH | EVENT_GROUP |
        EVENT_COLLECTIVE | EVENT_P2P | PARTS_OF_OPERATIONS | COPY_ENGINE,
    EVENT_COLLECTIVE_API | EVENT_COLLECTIVE | PARTS_OF_OPERATIONS | COPY_ENGINE,
    EVENT_P2P_API | EVENT_P2P | PARTS_OF_OPERATIONS,
    EVENT_LAUNCH,
    COPY_ENGINE,
    EVENT_CE_SYNC,
    EVENT_CE_BATCH,
    EVENT_KERNEL_PHASE,
};

/* Types that a version knows: bits below this one. */
static int types_of(int version)
{
    return version >= 7 ? 16 : version == 6 ? 15 : version == 5 ? 12 : version == 4 ? 8 : 6;
}

static void *open_library(const char *name)
{
    void *library = dlopen(name, RTLD_NOW | RTLD_LOCAL);
    size_t length = strlen(name);
    if (library || strchr(name, '/') || (length > 3 && strcmp(name + length - 3, ".so") == 0))
        return library;
    char file[256];
    snprintf(file, sizeof file, "libnccl-profiler-%s.so", name);
    return dlopen(file, RTLD_NOW | RTLD_LOCAL);
}

/* Its newest table that takes what the caller's version passes. */
static const void *find_table(void *library, int version, int *found)
{
    for (*found = version; *found == 2 || *found >= ANY_VERSION_4; --*found) {
        char symbol[32];
        snprintf(symbol, sizeof symbol, "ncclProfiler_v%d", *found);
        const void *table = dlsym(library, symbol);
        if (table != NULL)
            return table;
    }
    return NULL;
}

void next_load(int version, bool it_is_alone)
{
    const char *name = getenv("SYNTONY_NCCL_PROFILER_NEXT");
    if (looked || name == NULL || name[0] == 0)
        return;
    looked = true;
    alone = it_is_alone;
    void *library = open_library(name);
    if (library == NULL) {
        WARN("SYNTONY_NCCL_PROFILER_NEXT is left out: %s", dlerror());
        return;
    }
    Dl_info ours, its;
    int found;
    const void *table = find_table(library, version, &found);
    if (table == NULL)
        WARN("SYNTONY_NCCL_PROFILER_NEXT is left out: %s has no ncclProfiler_v%d%s", name, version,
             version > ANY_VERSION_4 ? ", and none from v4 on that is older" : "");
    else if (dladdr((void *)next_load, &ours) && dladdr(table, &its) &&
             ours.dli_fbase == its.dli_fbase)
        WARN("SYNTONY_NCCL_PROFILER_NEXT is left out: %s is this profiler itself", name);
    else {
        next.table = table;
        next_version = found;
        caller_version = version;
        INFO("passes events on to %s (v%d)", next.v2->name ? next.v2->name : name, found);
        return;
    }
    dlclose(library);
}

void next_init(struct comm *comm, int *mask, const char *name, int nodes)
{
    if (next.table == NULL)
        return;
    comm->next_wanted = mask;
    int result = next_version == 2 ? next.v2->init(&comm->next, mask)
                 : next_version == 4
                     ? next.v4->init(&comm->next, mask, name, comm->id, nodes, comm->ranks,
                                     comm->rank, nccl_log)
                     : next.v5->init(&comm->next, comm->id, mask, name, nodes, comm->ranks,
                                     comm->rank, nccl_log);
    comm->has_next = result == 0;
    if (result != 0) {
        *mask = 0;
        WARN("the profiler behind this one refuses a communicator: error %d", result);
    }
}

void next_finalize(struct comm *comm)
{
    if (comm->has_next)
        next.v2->finalize(comm->next);
}

bool next_wants(const struct comm *comm, uint64_t type)
{
    if (!comm->has_next)
        return false;
    int bit = __builtin_ffsll((long long)type) - 1;
    uint32_t wanted = bit < 0 ? 0 : bit < KNOWN_TYPES ? WANTED_FOR[bit] : (uint32_t)type;
    return bit < types_of(next_version) && ((uint32_t)GET(*comm->next_wanted) & wanted);
}

static void *its_handle(void *ours)
{
    return alone ? ours : event_next((handle_t)(uintptr_t)ours);
}

void *next_start(struct comm *comm, handle_t handle, const void *descriptor)
{
    if (!alone && handle == 0 && (handle = other_begin()) == 0)
        return NULL;
    union {
        struct event_v2 v2;
        struct event_v4 v4;
        char bytes[EVENT_V7_BYTES];
    } copy;
    size_t size = caller_version == 2   ? sizeof copy.v2
                  : caller_version == 4 ? EVENT_V4_BYTES
                  : caller_version < 7  ? EVENT_V5_BYTES
                                        : EVENT_V7_BYTES;
    memcpy(copy.bytes, descriptor, size);
    copy.v4.parent = its_handle(copy.v4.parent); /* at one place in all versions */
    if (caller_version >= 5) {
        void **group = copy.v4.type == EVENT_COLLECTIVE ? &copy.v4.collective.group
                       : copy.v4.type == EVENT_P2P      ? &copy.v4.p2p.group
                                                        : NULL;
        if (group != NULL) {
            *group = its_handle(*group);
            if (next_version == 4) /* the group is the parent there */
                copy.v4.parent = *group;
        }
    }
    void *its = NULL;
    next.v2->start_event(comm->next, &its, copy.bytes);
    if (alone)
        return its;
    event_set_next(handle, its);
    return (void *)(uintptr_t)handle;
}

void next_stop(void *event)
{
    void *its = next.table ? its_handle(event) : NULL;
    if (its != NULL)
        next.v2->stop_event(its);
}

void next_record(void *event, int state, void *arguments)
{
    void *its = next.table ? its_handle(event) : NULL;
    if (its != NULL)
        next.v2->record_state(its, state, arguments);
}
