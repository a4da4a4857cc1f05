#include "config.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct config config;

static char problem[160];

/* The first of these variables that is set, as a number in a range. */
static int64_t number(const char *ours, const char *nccls, int64_t low, int64_t high,
                      int64_t otherwise)
{
    const char *names[] = {ours, nccls};
    for (int i = 0; i < 2; i++) {
        const char *text = names[i] ? getenv(names[i]) : NULL;
        if (text == NULL || *text == 0)
            continue;
        char *end;
        long long value = strtoll(text, &end, 0);
        if (i == 1 && value == -1 && *end == 0) /* NCCL's "not set" */
            continue;
        if (end != text && *end == 0 && value >= low && value <= high)
            return value;
        snprintf(problem, sizeof problem, "%s=%.40s: a number from %lld to %lld is wanted", names[i],
                 text, (long long)low, (long long)high);
        return otherwise;
    }
    return otherwise;
}

static const char *text(const char *ours, const char *nccls)
{
    const char *value = getenv(ours);
    if ((value == NULL || *value == 0) && nccls)
        value = getenv(nccls);
    return value && *value ? value : NULL;
}

const char *config_read(void)
{
    problem[0] = 0;
    uint64_t chunk = (uint64_t)number("SYNTONY_NCCL_CHUNK", NULL, 4096, 1 << 30, 0);
    config = (struct config){
        .qps = (uint32_t)number("SYNTONY_NCCL_QPS", NULL, 1, 8, 2),
        .least_chunk = chunk ? chunk : 1 << 18,
        .most_chunk = chunk ? chunk : 1 << 20,
        .timeout = (uint8_t)number("SYNTONY_NCCL_TIMEOUT", NULL, 1, 31, 14),
        .retries = (uint8_t)number("SYNTONY_NCCL_RETRIES", NULL, 0, 7, 3),
        .traffic_class = (uint8_t)number("SYNTONY_NCCL_TC", "NCCL_IB_TC", 0, 255, 0),
        .service_level = (uint8_t)number("SYNTONY_NCCL_SL", "NCCL_IB_SL", 0, 15, 0),
        .gid_index = (int)number("SYNTONY_NCCL_GID_INDEX", "NCCL_IB_GID_INDEX", 0, 255, -1),
        .survive_ns = number("SYNTONY_NCCL_SURVIVE_MS", NULL, 0, 86400000, 60000) * 1000000,
        .observe = number("SYNTONY_NCCL_OBSERVE", NULL, 0, 1, 0) != 0,
        .gpu_memory = (int)number("SYNTONY_NCCL_GPU_MEMORY", NULL, 0, 1, -1),
        .devices = text("SYNTONY_NCCL_HCA", "NCCL_IB_HCA"),
        .rails = text("SYNTONY_NCCL_RAILS", NULL),
        .agent = text("SYNTONY_AGENT", NULL),
        .interface = text("SYNTONY_NCCL_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME"),
    };
    return problem[0] ? problem : NULL;
}

bool config_is_listed(const char *list, const char *name, int number)
{
    bool without = *list == '^';
    list += without;
    bool exact = *list == '=';
    list += exact;
    bool found = false;
    while (*list && !found) {
        size_t length = strcspn(list, ",");
        const char *colon = memchr(list, ':', length);
        size_t name_length = colon ? (size_t)(colon - list) : length;
        found = name_length > 0 && strncmp(name, list, name_length) == 0 &&
                (!exact || name[name_length] == 0) &&
                (colon == NULL || number == 0 || atoi(colon + 1) == number);
        list += length + (list[length] == ',');
    }
    return found != without;
}
