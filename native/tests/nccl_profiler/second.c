/* Another profiler, behind ours: writes a line for each call to the file that SECOND_LOG names.
 *
 *     init MASK COMM RANK RANKS NAME     start TYPE HANDLE PARENT GROUP CONTEXT     stop HANDLE
 *     record HANDLE STATE                finalize CONTEXT
 *
 * SECOND_MASK are the events that it wants, SECOND_LATER those that it wants after its first event;
 * SECOND_FAILS=1 makes it refuse. Its handles are numbers from
 * 1001 on. Descriptors are read by the offsets of NCCL's headers. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define EXPORT __attribute__((visibility("default")))
#define NAME_(version) ncclProfiler_v##version
#define NAME(version) NAME_(version)

static uintptr_t handles = 1000;
static int *wanted;

static void write_line(const char *line)
{
    FILE *to = fopen(getenv("SECOND_LOG"), "a");
    if (to == NULL)
        abort();
    fprintf(to, "%s\n", line);
    fclose(to);
}

#define LOG(...) (snprintf(line, sizeof line, __VA_ARGS__), write_line(line))

static int init_any(void **context, int *mask, uint64_t comm, const char *name, int ranks, int rank)
{
    char line[200];
    *mask = atoi(getenv("SECOND_MASK"));
    wanted = mask;
    *context = (void *)++handles;
    LOG("init %d %llx %d %d %s %lu", *mask, (unsigned long long)comm, rank, ranks,
        name ? name : "-", (unsigned long)handles);
    return getenv("SECOND_FAILS") ? 3 : 0;
}

#if VERSION == 2
static int init(void **context, int *mask) { return init_any(context, mask, 0, NULL, 0, 0); }
#elif VERSION == 4
static int init(void **context, int *mask, const char *name, uint64_t comm, int nodes, int ranks,
                int rank, void *log)
{
    (void)nodes, (void)log;
    return init_any(context, mask, comm, name, ranks, rank);
}
#else
static int init(void **context, uint64_t comm, int *mask, const char *name, int nodes, int ranks,
                int rank, void *log)
{
    (void)nodes, (void)log;
    return init_any(context, mask, comm, name, ranks, rank);
}
#endif

static int start(void *context, void **handle, const char *descriptor)
{
    char line[200];
    uint64_t type = VERSION < 5 ? (uint8_t)descriptor[0] : *(const uint64_t *)descriptor;
    void *parent, *group = NULL;
    memcpy(&parent, descriptor + 8, sizeof parent);
    if (VERSION >= 5 && type == 2)
        memcpy(&group, descriptor + 104, sizeof group);
    if (VERSION >= 5 && type == 4)
        memcpy(&group, descriptor + 64, sizeof group);
    *handle = (void *)++handles;
    if (getenv("SECOND_LATER"))
        *wanted = atoi(getenv("SECOND_LATER"));
    LOG("start %llu %lu %lu %lu %lu", (unsigned long long)type, (unsigned long)handles,
        (unsigned long)parent, (unsigned long)group, (unsigned long)context);
    return 0;
}

static int stop(void *handle)
{
    char line[200];
    LOG("stop %lu", (unsigned long)handle);
    return 0;
}

static int record(void *handle, int state, void *arguments)
{
    char line[200];
    (void)arguments;
    LOG("record %lu %d", (unsigned long)handle, state);
    return 0;
}

static int finalize(void *context)
{
    char line[200];
    LOG("finalize %lu", (unsigned long)context);
    return 0;
}

EXPORT const struct {
    const char *name;
    void *slots[5];
} NAME(VERSION) = {"second", {(void *)init, (void *)start, (void *)stop, (void *)record,
                              (void *)finalize}};
