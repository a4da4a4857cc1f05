/* test_threads PLUGIN VERSION OPERATIONS: threads that launch, proxies that carry out, and an agent
 * that reads meanwhile. Every step is counted where it belongs, whatever runs at once. */
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <unistd.h>

#include "check.h"
#include "drive.h"

enum { LAUNCHERS = 2, PROXIES = 3, ROOM = 64, STEPS = 4 };

static struct plugin plugin;
static void *context;
static int memory, operations;
static atomic_int launched, reading = 1;
static atomic_long parts_lost, steps_made;

static struct queue { /* of operations to carry out, from all launchers to one proxy */
    pthread_mutex_t lock;
    void *handles[ROOM];
    int first, count;
} queues[PROXIES];

static void put(struct queue *queue, void *handle)
{
    for (;;) {
        pthread_mutex_lock(&queue->lock);
        bool room = queue->count < ROOM;
        if (room)
            queue->handles[(queue->first + queue->count++) % ROOM] = handle;
        pthread_mutex_unlock(&queue->lock);
        if (room)
            return;
        usleep(50);
    }
}

static void *take(struct queue *queue)
{
    pthread_mutex_lock(&queue->lock);
    void *handle = queue->count ? queue->handles[queue->first % ROOM] : NULL;
    if (queue->count)
        queue->first++, queue->count--;
    pthread_mutex_unlock(&queue->lock);
    return handle;
}

static void *launch(void *unused)
{
    for (int i = 0; i < operations; i++) {
        void *handle = start_coll(&plugin, context, NULL, 0, "AllReduce", 1);
        CHECK(handle != NULL);
        for (int proxy = 0; proxy < PROXIES; proxy++)
            put(&queues[proxy], handle);
        stop(&plugin, handle);
    }
    launched++;
    return unused;
}

static void *carry_out(void *argument)
{
    struct queue *queue = argument;
    for (;;) {
        bool all = launched == LAUNCHERS;
        void *handle = take(queue);
        if (handle == NULL) {
            if (all)
                return NULL;
            usleep(20);
            continue;
        }
        void *part = start_proxy_op(&plugin, context, handle, getpid(), 0, true);
        if (part == NULL) {
            parts_lost++; /* its operation was overwritten */
            continue;
        }
        for (int i = 0; i < STEPS; i++) {
            void *step = start_step(&plugin, context, part, i);
            CHECK(step != NULL);
            state(&plugin, step, 8);
            state(&plugin, step, 9);
            stop(&plugin, step);
        }
        steps_made += STEPS;
        stop(&plugin, part);
    }
}

static void *read_along(void *unused)
{
    static char copy[sizeof(struct syn_nccl_page)];
    while (reading) {
        CHECK_EQUAL(pread(memory, copy, sizeof copy, 0), sizeof copy);
        usleep(1000);
    }
    return unused;
}

int main(int argc, char **words)
{
    CHECK(argc == 4);
    operations = atoi(words[3]);
    int listener = agent_listen(), mask = 0;
    plugin = plugin_load(words[1], atoi(words[2]));
    context = plugin_init(&plugin, 0xabc, &mask);
    memory = agent_take(listener);
    pthread_t threads[LAUNCHERS + PROXIES], reader;
    pthread_create(&reader, NULL, read_along, NULL);
    for (int i = 0; i < PROXIES; i++) {
        pthread_mutex_init(&queues[i].lock, NULL);
        pthread_create(&threads[i], NULL, carry_out, &queues[i]);
    }
    for (int i = 0; i < LAUNCHERS; i++)
        pthread_create(&threads[PROXIES + i], NULL, launch, NULL);
    for (int i = 0; i < LAUNCHERS + PROXIES; i++)
        pthread_join(threads[i], NULL);
    reading = 0;
    pthread_join(reader, NULL);
    const struct syn_nccl_page *page = map_page(memory);
    long steps = 0, sends = 0, places = LAUNCHERS * operations;
    CHECK(page->begun >= (uint64_t)places);
    for (long i = 0; i < places && i < SYN_NCCL_OPERATIONS; i++) {
        const struct syn_nccl_operation *record = &page->operations[i];
        if (places > SYN_NCCL_OPERATIONS && record->number < page->begun - SYN_NCCL_OPERATIONS)
            continue; /* somebody wrote there when it was to be overwritten */
        CHECK_EQUAL(record->gate, record->number << 32);
        steps += record->steps, sends += record->sends;
        CHECK_EQUAL(record->steps, record->sends * STEPS);
        for (int wait = 0; wait < SYN_NCCL_WAITS; wait++)
            CHECK_EQUAL(record->waiting[wait], 0);
        CHECK(record->wait_ns[0] >= 0 && record->wait_ns[1] >= 0);
    }
    if (places <= SYN_NCCL_OPERATIONS) {
        CHECK_EQUAL(page->begun, places);
        CHECK_EQUAL(parts_lost, 0);
        CHECK_EQUAL(steps, steps_made);
        CHECK_EQUAL(sends, places * PROXIES);
    }
    CHECK(page->left_out >= (uint64_t)parts_lost);
    plugin_finalize(&plugin, context);
    printf("%ld of %ld operations read, %ld parts lost\n", sends / PROXIES, places,
           (long)parts_lost);
}
