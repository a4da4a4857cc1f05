#include "table.h"

#include <string.h>
#include <time.h>

/* Sets of 8 keys, one cache line each: a key is in its set or nowhere. */
enum { WAYS = 8, PAIR_KEYS = 1024, QUEUE_KEYS = MAX_QUEUES };

static struct device devices[MAX_DEVICES];
static uint32_t devices_used; /* no device is at or after this */
static struct pair pairs[SYN_QP_SLOTS];
static struct queue queues[MAX_QUEUES]; /* the place of a queue is that of its key */
static uint64_t pair_keys[PAIR_KEYS] __attribute__((aligned(64)));
static uint64_t queue_keys[QUEUE_KEYS] __attribute__((aligned(64)));
static bool taken[SYN_QP_SLOTS];

static const uint64_t USED = UINT64_C(1) << 63;

int64_t table_now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * INT64_C(1000000000) + t.tv_nsec;
}

static uint64_t *set_of(uint64_t *keys, unsigned count, uint64_t key)
{
    return &keys[(key * UINT64_C(0x9e3779b97f4a7c15) >> 32) % (count / WAYS) * WAYS];
}

/* The place of the key that is `key` under `mask`; -1: there is none. */
static int find(uint64_t *keys, unsigned count, uint64_t key, uint64_t mask)
{
    uint64_t *set = set_of(keys, count, key);
    for (int i = 0; i < WAYS; i++)
        if ((__atomic_load_n(&set[i], __ATOMIC_ACQUIRE) & mask) == key)
            return (int)(set - keys) + i;
    return -1;
}

static int free_place(uint64_t *keys, unsigned count, uint64_t key)
{
    uint64_t *set = set_of(keys, count, key);
    for (int i = 0; i < WAYS; i++)
        if (set[i] == 0)
            return (int)(set - keys) + i;
    return -1;
}

struct device *table_device(const struct ibv_context *context)
{
    uint32_t used = __atomic_load_n(&devices_used, __ATOMIC_ACQUIRE);
    for (uint32_t i = 0; i < used; i++)
        if (__atomic_load_n(&devices[i].context, __ATOMIC_ACQUIRE) == context)
            return &devices[i];
    return NULL;
}

struct device *table_add_device(struct ibv_context *context)
{
    struct device *device = table_device(NULL);
    if (device == NULL) {
        if (devices_used == MAX_DEVICES)
            return NULL;
        device = &devices[devices_used];
        __atomic_store_n(&devices_used, devices_used + 1, __ATOMIC_RELEASE);
    }
    *device = (struct device){.before = context->ops};
    return device;
}

/* Device and number, above the place. */
static uint64_t pair_key(const struct device *device, uint32_t number)
{
    return USED | (uint64_t)(device - devices) << 40 | (uint64_t)(number & 0xffffff) << 16;
}

struct pair *table_pair(const struct device *device, uint32_t number)
{
    int at = find(pair_keys, PAIR_KEYS, pair_key(device, number), ~UINT64_C(0xffff));
    if (at < 0)
        return NULL;
    uint64_t key = __atomic_load_n(&pair_keys[at], __ATOMIC_ACQUIRE);
    return &pairs[key & (SYN_QP_SLOTS - 1)];
}

struct pair *table_add_pair(const struct device *device, uint32_t number, struct syn_qp_page *page)
{
    uint64_t key = pair_key(device, number);
    int at = free_place(pair_keys, PAIR_KEYS, key), place = 0;
    while (place < SYN_QP_SLOTS && taken[place])
        place++;
    if (at < 0 || place == SYN_QP_SLOTS) {
        __atomic_fetch_add(&page->left_out, 1, __ATOMIC_RELAXED);
        return NULL;
    }
    struct pair *pair = &pairs[place];
    taken[place] = true;
    *pair = (struct pair){.figures = {.slot = &page->slots[place], .rings = page->rings[place]}};
    if (page->used <= (uint32_t)place)
        __atomic_store_n(&page->used, (uint32_t)place + 1, __ATOMIC_RELEASE);
    __atomic_store_n(&pair_keys[at], key | (uint64_t)place, __ATOMIC_RELEASE);
    return pair;
}

void table_remove_pair(const struct device *device, uint32_t number)
{
    int at = find(pair_keys, PAIR_KEYS, pair_key(device, number), ~UINT64_C(0xffff));
    if (at < 0)
        return;
    uint64_t place = pair_keys[at] & (SYN_QP_SLOTS - 1);
    __atomic_store_n(&pair_keys[at], 0, __ATOMIC_RELEASE);
    figures_end(&pairs[place].figures);
    taken[place] = false;
}

struct queue *table_queue(const void *cq)
{
    int at = find(queue_keys, QUEUE_KEYS, (uintptr_t)cq, ~UINT64_C(0));
    return at < 0 ? NULL : &queues[at];
}

struct queue *table_add_queue(const void *cq)
{
    struct queue *queue = table_queue(cq);
    if (queue != NULL && queue->ending)
        table_remove_queue(cq);
    else if (queue != NULL)
        return queue;
    int at = free_place(queue_keys, QUEUE_KEYS, (uintptr_t)cq);
    if (at < 0)
        return NULL;
    queues[at] = (struct queue){0};
    __atomic_store_n(&queue_keys[at], (uintptr_t)cq, __ATOMIC_RELEASE);
    return &queues[at];
}

void table_remove_queue(const void *cq)
{
    int at = find(queue_keys, QUEUE_KEYS, (uintptr_t)cq, ~UINT64_C(0));
    if (at >= 0)
        __atomic_store_n(&queue_keys[at], 0, __ATOMIC_RELEASE);
}
