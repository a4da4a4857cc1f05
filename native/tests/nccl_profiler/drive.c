#include "drive.h"

#include <dlfcn.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "check.h"

#define SLOT(plugin, index, type) (*(type)((void **)(plugin)->table)[index])
typedef int start_function(void *, void **, void *);

static void log_line(int level, unsigned long subsystems, const char *file, int line,
                     const char *format, ...)
{
    (void)subsystems, (void)file, (void)line;
    if (level <= 2)
        fprintf(stderr, "WARN %s\n", format);
}

int agent_listen(void)
{
    static char directory[] = "/tmp/syn-nccl-XXXXXX";
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    CHECK(mkdtemp(directory) != NULL);
    snprintf(address.sun_path, sizeof address.sun_path, "%s/agent-nccl", directory);
    int listener = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    CHECK(bind(listener, (struct sockaddr *)&address, sizeof address) == 0);
    CHECK(listen(listener, 8) == 0);
    *strrchr(address.sun_path, '-') = 0;
    setenv("SYNTONY_AGENT", address.sun_path, 1);
    return listener;
}

int agent_take(int listener)
{
    struct pollfd wanted = {.fd = listener, .events = POLLIN};
    CHECK(poll(&wanted, 1, 10000) == 1);
    int fd = accept(listener, NULL, NULL), memory; /* stays open: the plug-in looks whether it is */
    CHECK(fd >= 0);
    union {
        char bytes[CMSG_SPACE(sizeof(int))];
        struct cmsghdr align;
    } control;
    char version = 0;
    struct iovec vector = {&version, 1};
    struct msghdr message = {.msg_iov = &vector, .msg_iovlen = 1,
                             .msg_control = control.bytes, .msg_controllen = sizeof control.bytes};
    CHECK(recvmsg(fd, &message, 0) == 1);
    CHECK_EQUAL(version, SYN_NCCL_PAGE_VERSION);
    memcpy(&memory, CMSG_DATA(CMSG_FIRSTHDR(&message)), sizeof memory);
    struct sockaddr_un address;
    socklen_t length = sizeof address;
    getsockname(listener, (struct sockaddr *)&address, &length);
    unlink(address.sun_path);
    *strrchr(address.sun_path, '/') = 0;
    rmdir(address.sun_path);
    return memory;
}

struct syn_nccl_page *map_page(int memory)
{
    struct syn_nccl_page *page =
        mmap(NULL, sizeof *page, PROT_READ, MAP_SHARED, memory, 0);
    CHECK(page != MAP_FAILED);
    CHECK(page->magic == SYN_NCCL_MAGIC && page->size == sizeof *page);
    return page;
}

struct plugin plugin_load(const char *path, int version)
{
    char symbol[32];
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (library == NULL)
        fprintf(stderr, "%s\n", dlerror());
    CHECK(library != NULL);
    snprintf(symbol, sizeof symbol, "ncclProfiler_v%d", version);
    struct plugin plugin = {version, dlsym(library, symbol)};
    CHECK(plugin.table != NULL);
    return plugin;
}

void *plugin_init(const struct plugin *plugin, uint64_t comm, int *mask)
{
    void *context = NULL;
    int result =
        plugin->version == 2 ? SLOT(plugin, 1, int (*)(void **, int *))(&context, mask)
        : plugin->version == 4
            ? SLOT(plugin, 1, int (*)(void **, int *, const char *, uint64_t, int, int, int, void *))(
                  &context, mask, "dp", comm, 2, 8, 3, (void *)log_line)
            : SLOT(plugin, 1, int (*)(void **, uint64_t, int *, const char *, int, int, int, void *))(
                  &context, comm, mask, "dp", 2, 8, 3, (void *)log_line);
    CHECK_EQUAL(result, 0);
    return context;
}

void plugin_finalize(const struct plugin *plugin, void *context)
{
    CHECK_EQUAL(SLOT(plugin, 5, int (*)(void *))(context), 0);
}

struct descriptor { char bytes[136]; };

static void put(struct descriptor *to, size_t offset, uint64_t value, size_t size)
{
    memcpy(to->bytes + offset, &value, size);
}

static void put_pointer(struct descriptor *to, size_t offset, const void *value)
{
    memcpy(to->bytes + offset, &value, sizeof value);
}

static struct descriptor describe(const struct plugin *plugin, uint64_t type, void *parent, int rank)
{
    struct descriptor made;
    memset(&made, plugin->version < 5 ? 0xa5 : 0, sizeof made); /* bytes that mean nothing */
    put(&made, 0, type, plugin->version < 5 ? 1 : 8);
    put_pointer(&made, 8, parent);
    put(&made, 16, (uint64_t)rank, 4);
    return made;
}

void *api_event;

static void *parent_of_operation(const struct plugin *plugin, void *group)
{
    return plugin->version >= 5 ? api_event : group;
}

static void *begin(const struct plugin *plugin, void *context, struct descriptor *descriptor)
{
    void *handle = (void *)0x1234;
    CHECK_EQUAL(SLOT(plugin, 2, start_function *)(context, &handle, descriptor), 0);
    return handle;
}

void *start_coll(const struct plugin *plugin, void *context, void *group, uint64_t sequence,
                 const char *op, size_t count)
{
    struct descriptor made = describe(plugin, COLL, parent_of_operation(plugin, group), 3);
    bool old = plugin->version == 2;
    if (old) {
        put_pointer(&made, 24, "dp");
        put(&made, 32, 0xfeed, 8);
    }
    put(&made, old ? 40 : 24, sequence, 8);
    put_pointer(&made, old ? 48 : 32, op);
    put(&made, old ? 72 : 56, count, 8);
    put(&made, old ? 80 : 64, 0, 4);
    put_pointer(&made, old ? 88 : 72, "ncclBfloat16");
    put_pointer(&made, old ? 112 : 88, "RING");
    put_pointer(&made, old ? 120 : 96, "SIMPLE");
    if (plugin->version >= 5)
        put_pointer(&made, 104, group);
    return begin(plugin, context, &made);
}

void *start_p2p(const struct plugin *plugin, void *context, void *group, const char *op,
                size_t count, int peer)
{
    struct descriptor made = describe(plugin, P2P, parent_of_operation(plugin, group), 3);
    bool old = plugin->version == 2;
    if (old) {
        put_pointer(&made, 24, NULL);
        put(&made, 32, 0xfeed, 8);
    }
    put_pointer(&made, old ? 40 : 24, op);
    put_pointer(&made, old ? 56 : 40, "ncclInt8");
    put(&made, old ? 64 : 48, count, 8);
    put(&made, old ? 72 : 56, (uint64_t)peer, 4);
    if (plugin->version >= 5)
        put_pointer(&made, 64, group);
    return begin(plugin, context, &made);
}

void *start_proxy_op(const struct plugin *plugin, void *context, void *parent, int pid, int channel,
                     bool sends)
{
    struct descriptor made = describe(plugin, PROXY_OP, parent, 3);
    put(&made, 24, (uint64_t)pid, 4);
    put(&made, 28, (uint64_t)channel, 1);
    put(&made, 44, sends, 4);
    return begin(plugin, context, &made);
}

void *start_step(const struct plugin *plugin, void *context, void *parent, int step)
{
    struct descriptor made = describe(plugin, PROXY_STEP, parent, 3);
    put(&made, 24, (uint64_t)step, 4);
    return begin(plugin, context, &made);
}

void *start_type(const struct plugin *plugin, void *context, void *parent, uint64_t type)
{
    struct descriptor made = describe(plugin, type, parent, 3);
    return begin(plugin, context, &made);
}

void stop(const struct plugin *plugin, void *handle)
{
    CHECK_EQUAL(SLOT(plugin, 3, int (*)(void *))(handle), 0);
}

void state(const struct plugin *plugin, void *handle, int which)
{
    uint64_t arguments[2] = {0};
    CHECK_EQUAL(SLOT(plugin, 4, int (*)(void *, int, void *))(handle, which, arguments), 0);
}
