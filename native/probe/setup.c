/* Opening and closing an engine, its sockets and its keys. */
#include <errno.h>
#include <net/if.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "engine.h"

enum { THREAD_STACK_BYTES = 256 << 10 };

void syn_engine_visit(struct syn_probe_engine *engine)
{
    pthread_mutex_lock(&engine->lock);
}

void syn_engine_leave(struct syn_probe_engine *engine)
{
    pthread_mutex_unlock(&engine->lock);
}

void syn_engine_wake(struct syn_probe_engine *engine)
{
    uint64_t one = 1;
    (void)!write(engine->wake_fd, &one, sizeof one);
}

struct syn_socket *syn_open_socket(struct syn_probe_engine *engine, uint32_t nic, uint16_t port,
                                      int reflector, char *message)
{
    struct syn_socket **more =
        realloc(engine->sockets, (engine->socket_count + 1) * sizeof *engine->sockets);
    struct syn_socket *added = calloc(1, sizeof *added);
    if (more != NULL)
        engine->sockets = more;
    if (more == NULL || added == NULL) {
        free(added);
        snprintf(message, SYN_MESSAGE_BYTES, "out of memory for probe sockets");
        return NULL;
    }
    *added = (struct syn_socket){
        .nic = nic, .port = port, .reflector = reflector, .wanted = 1};
    added->fd = syn_probe_socket(&engine->nics[nic].config, port,
                                 engine->nics[nic].status.hardware, message);
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = added};
    if (added->fd < 0 || epoll_ctl(engine->epoll_fd, EPOLL_CTL_ADD, added->fd, &event) < 0) {
        free(added);
        return NULL;
    }
    engine->sockets[engine->socket_count++] = added;
    return added;
}

void syn_probe_set_keys(struct syn_probe_engine *engine, uint32_t current_id,
                        const uint8_t *current, uint32_t previous_id, const uint8_t *previous)
{
    syn_engine_visit(engine);
    if (engine->key_count == 0)
        syn_begin_sending(engine);
    engine->keys[0].id = current_id;
    memcpy(engine->keys[0].bytes, current, sizeof engine->keys[0].bytes);
    engine->key_count = 1;
    if (previous != NULL) {
        engine->keys[1].id = previous_id;
        memcpy(engine->keys[1].bytes, previous, sizeof engine->keys[1].bytes);
        engine->key_count = 2;
    }
    syn_engine_leave(engine);
    syn_engine_wake(engine);
}

/* --- the engine ----------------------------------------------------------------------------- */

static int allocate(struct syn_probe_engine *engine, size_t nic_count)
{
    engine->nics = calloc(nic_count + 1, sizeof *engine->nics);
    engine->heard = calloc(SYN_HEARD_ROWS, sizeof *engine->heard);
    engine->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    engine->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = NULL};
    return engine->nics != NULL && engine->heard != NULL && engine->epoll_fd >= 0 &&
           engine->wake_fd >= 0 && syn_watches_open(&engine->watches) &&
           syn_sessions_open(&engine->sessions) &&
           syn_ring_open(&engine->ring, engine->options.ring_records) &&
           epoll_ctl(engine->epoll_fd, EPOLL_CTL_ADD, engine->wake_fd, &event) == 0;
}

static int open_nics(struct syn_probe_engine *engine, const struct syn_probe_nic *nics,
                     size_t count, char *message)
{
    for (size_t i = 0; i < count; i++) {
        struct syn_nic *nic = &engine->nics[i];
        nic->config = nics[i];
        nic->config.ifname[sizeof nic->config.ifname - 1] = '\0';
        nic->ifindex = if_nametoindex(nic->config.ifname);
        syn_stamps_prepare(&nic->config, &nic->status);
        engine->nic_count = i + 1;
        if (syn_open_socket(engine, (uint32_t)i, nics[i].port, 1, message) == NULL)
            return 0;
    }
    return 1;
}

static int options_fit(const struct syn_probe_options *options)
{
    uint32_t records = options->ring_records;
    return options->timeout_ns > 0 && options->min_gap_ns >= 0 && options->stall_ns > 0 &&
           records > 0 && (records & (records - 1)) == 0;
}

static void open_lock(pthread_mutex_t *lock)
{
    pthread_mutexattr_t attributes;
    pthread_mutexattr_init(&attributes);
    (void)pthread_mutexattr_setprotocol(&attributes, PTHREAD_PRIO_INHERIT);
    pthread_mutex_init(lock, &attributes);
    pthread_mutexattr_destroy(&attributes);
}

struct syn_probe_engine *syn_probe_open(const struct syn_probe_nic *nics, size_t count,
                                        const struct syn_probe_options *options,
                                        struct syn_clock *clock, int *error, char *message)
{
    *error = SYN_ERROR_USAGE;
    snprintf(message, SYN_MESSAGE_BYTES, "engine options out of range");
    if (!options_fit(options))
        return NULL;
    *error = SYN_ERROR_MISSING;
    snprintf(message, SYN_MESSAGE_BYTES, "out of memory or file descriptors for the probe engine");
    struct syn_probe_engine *engine = calloc(1, sizeof *engine);
    if (engine == NULL)
        return NULL;
    engine->options = *options;
    engine->clock = clock;
    engine->epoll_fd = engine->wake_fd = engine->watches.event_fd = -1;
    open_lock(&engine->lock);
    if (!allocate(engine, count) || !open_nics(engine, nics, count, message)) {
        syn_probe_close(engine);
        return NULL;
    }
    *error = SYN_OK;
    return engine;
}

int syn_probe_start(struct syn_probe_engine *engine, char *message)
{
    if (engine->running)
        return SYN_OK;
    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    pthread_attr_setstacksize(&attributes, THREAD_STACK_BYTES);
    int failed = pthread_create(&engine->thread, &attributes, syn_engine_run, engine);
    pthread_attr_destroy(&attributes);
    if (failed) {
        snprintf(message, SYN_MESSAGE_BYTES, "no thread for the probe engine: %s", strerror(failed));
        return SYN_ERROR_MISSING;
    }
    engine->running = 1;
    return SYN_OK;
}

static void join(struct syn_probe_engine *engine)
{
    if (!engine->running)
        return;
    syn_engine_visit(engine);
    engine->stop = 1;
    syn_engine_leave(engine);
    syn_engine_wake(engine);
    pthread_join(engine->thread, NULL);
}

void syn_probe_close(struct syn_probe_engine *engine)
{
    if (engine == NULL)
        return;
    join(engine);
    for (size_t i = 0; i < engine->flow_count; i++)
        syn_free_flow(engine->flows[i]);
    for (size_t i = 0; i < engine->socket_count; i++) {
        close(engine->sockets[i]->fd);
        free(engine->sockets[i]);
    }
    if (engine->epoll_fd >= 0)
        close(engine->epoll_fd);
    if (engine->wake_fd >= 0)
        close(engine->wake_fd);
    syn_watches_close(&engine->watches);
    syn_sessions_close(&engine->sessions);
    free(engine->flows);
    free(engine->flow_table);
    free(engine->sockets);
    free(engine->nics);
    free(engine->heard);
    free(engine->ring.records);
    pthread_mutex_destroy(&engine->lock);
    free(engine);
}
