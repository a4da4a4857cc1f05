#include "drive.h"

#include <dlfcn.h>
#include <link.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static pthread_mutex_t lines_lock = PTHREAD_MUTEX_INITIALIZER;
static char lines[256][256];
static unsigned line_count;

int drive_logged(const char *text)
{
    int found = 0;
    pthread_mutex_lock(&lines_lock);
    for (unsigned i = 0; i < 256; i++)
        found += strstr(lines[i], text) != NULL;
    pthread_mutex_unlock(&lines_lock);
    return found;
}

void drive_forget_log(void)
{
    pthread_mutex_lock(&lines_lock);
    memset(lines, 0, sizeof lines);
    pthread_mutex_unlock(&lines_lock);
}

static void log_line(int level, unsigned long subsystems, const char *file, int line,
                     const char *format, ...)
{
    (void)subsystems, (void)file, (void)line;
    va_list arguments;
    va_start(arguments, format);
    char text[512];
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    pthread_mutex_lock(&lines_lock);
    snprintf(lines[line_count++ % 256], sizeof *lines, "%s%.250s", level == 2 ? "WARN " : "", text);
    pthread_mutex_unlock(&lines_lock);
    if (level > (getenv("DRIVE_LOG") ? 3 : 2))
        return;
    fprintf(stderr, "  %s\n", text);
}

static int profile(void **event, int kind, void *handle, int64_t id, void *data)
{
    (void)event, (void)kind, (void)handle, (void)id, (void)data;
    return 0;
}

/* NCCL's own transport is no symbol of the dynamic table: its place in the file, and its library
 * has to have read its environment before. */
static void *internal_table(void *loaded, const char *offset)
{
    char id[128];
    struct link_map *map;
    int (*prepare)(void *) = loaded ? (int (*)(void *))dlsym(loaded, "ncclGetUniqueId") : NULL;
    if (prepare == NULL || prepare(id) || dlinfo(loaded, RTLD_DI_LINKMAP, &map))
        return NULL;
    return (char *)map->l_addr + strtoull(offset, NULL, 0);
}

struct net drive_load(const char *library, int version)
{
    char symbol[32], path[4096];
    snprintf(symbol, sizeof symbol, "ncclNetPlugin_v%d", version);
    snprintf(path, sizeof path, "%s", library);
    char *offset = strchr(path, '@');
    if (offset)
        *offset++ = 0;
    void *loaded = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    void *table = loaded == NULL ? NULL : offset ? internal_table(loaded, offset)
                                                 : dlsym(loaded, symbol);
    if (table == NULL) {
        fprintf(stderr, "%s\n", dlerror());
        exit(1);
    }
    return (struct net){.table = table, .version = version};
}

#define CALL(type, slot) ((type)net->table[slot])

int drive_init(struct net *net)
{
    struct { int traffic_class; char more[60]; } config = {.traffic_class = -1};
    if (net->version <= 9)
        return CALL(int (*)(void *), SLOT_INIT)(log_line);
    if (net->version == 10)
        return CALL(int (*)(void *, void *), SLOT_INIT)(log_line, profile);
    return CALL(int (*)(void **, uint64_t, void *, void *, void *), SLOT_INIT)(
        &net->context, 7, &config, log_line, profile);
}

int drive_properties(const struct net *net, int device, struct drive_properties *to)
{
    union { unsigned char bytes[256]; uint64_t align; } raw;
    memset(&raw, 0xee, sizeof raw);
    int result = CALL(int (*)(int, void *), SLOT_PROPERTIES)(device, &raw);
    const unsigned char *at = raw.bytes;
    int old = net->version == 8;
#define FIELD(offset, field) memcpy(&to->field, at + (offset), sizeof to->field)
    FIELD(0, name);
    FIELD(16, guid);
    FIELD(24, pointers);
    FIELD(old ? 32 : 36, speed);
    FIELD(old ? 44 : 48, max_comms);
    FIELD(old ? 48 : 52, max_receives);
    to->virtual_count = 1;
    to->max_bytes = -1;
    if (!old) {
        FIELD(64, virtual_count);
        FIELD(net->version == 12 ? 104 : 88, max_bytes);
    }
    return result;
}

int drive_listen(const struct net *net, int device, void *handle, void **listener)
{
    if (net->version <= 10)
        return CALL(int (*)(int, void *, void **), SLOT_LISTEN)(device, handle, listener);
    return CALL(int (*)(void *, int, void *, void **), SLOT_LISTEN)(net->context, device, handle,
                                                                    listener);
}

int drive_connect(const struct net *net, int device, void *handle, void **comm)
{
    void *device_handle = NULL;
    int config = -1;
    if (net->version <= 9)
        return CALL(int (*)(int, void *, void **, void **), SLOT_CONNECT)(device, handle, comm,
                                                                          &device_handle);
    if (net->version == 10)
        return CALL(int (*)(int, void *, void *, void **, void **), SLOT_CONNECT)(
            device, &config, handle, comm, &device_handle);
    return CALL(int (*)(void *, int, void *, void **, void **), SLOT_CONNECT)(
        net->context, device, handle, comm, &device_handle);
}

int drive_accept(const struct net *net, void *listener, void **comm)
{
    void *device_handle = NULL;
    return CALL(int (*)(void *, void **, void **), SLOT_ACCEPT)(listener, comm, &device_handle);
}

int drive_reg(const struct net *net, void *comm, void *data, size_t size, void **memory)
{
    return CALL(int (*)(void *, void *, size_t, int, void **), SLOT_REG_MR)(comm, data, size, 1,
                                                                            memory);
}

int drive_dereg(const struct net *net, void *comm, void *memory)
{
    return CALL(int (*)(void *, void *), SLOT_DEREG_MR)(comm, memory);
}

int drive_send(const struct net *net, void *comm, void *data, size_t size, int tag, void *memory,
               void **request)
{
    if (net->version == 8)
        return CALL(int (*)(void *, void *, int, int, void *, void **), SLOT_ISEND)(
            comm, data, (int)size, tag, memory, request);
    if (net->version == 9)
        return CALL(int (*)(void *, void *, size_t, int, void *, void **), SLOT_ISEND)(
            comm, data, size, tag, memory, request);
    return CALL(int (*)(void *, void *, size_t, int, void *, void *, void **), SLOT_ISEND)(
        comm, data, size, tag, memory, NULL, request);
}

int drive_receive(const struct net *net, void *comm, int count, void **data, const size_t *sizes,
                  int *tags, void **memories, void **request)
{
    int small[8];
    size_t whole[8];
    void *events[8] = {0};
    for (int i = 0; i < count; i++) {
        small[i] = (int)sizes[i];
        whole[i] = sizes[i];
    }
    if (net->version == 8)
        return CALL(int (*)(void *, int, void **, int *, int *, void **, void **), SLOT_IRECV)(
            comm, count, data, small, tags, memories, request);
    if (net->version == 9)
        return CALL(int (*)(void *, int, void **, size_t *, int *, void **, void **), SLOT_IRECV)(
            comm, count, data, whole, tags, memories, request);
    return CALL(int (*)(void *, int, void **, size_t *, int *, void **, void **, void **),
                SLOT_IRECV)(comm, count, data, whole, tags, memories, events, request);
}

int drive_test(const struct net *net, void *request, int *done, int *sizes)
{
    return CALL(int (*)(void *, int *, int *), SLOT_TEST)(request, done, sizes);
}

int drive_close(const struct net *net, int slot, void *what)
{
    return CALL(int (*)(void *), slot)(what);
}

int drive_merge(const struct net *net, int count, const int *devices)
{
    struct { int count, device[8]; } members = {.count = count};
    memcpy(members.device, devices, sizeof *devices * (size_t)(count < 0 ? 0 : count > 8 ? 8 : count));
    int device = -1;
    return CALL(int (*)(int *, void *), SLOT_VIRTUAL)(&device, &members) ? -1 : device;
}

int drive_finalize(const struct net *net)
{
    return net->version < 11 ? 0 : CALL(int (*)(void *), SLOT_FINALIZE)(net->context);
}
