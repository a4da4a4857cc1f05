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

static int is_over_verbs(const struct syn_probe_engine *engine)
{
    return engine->options.plane == SYN_PLANE_VERBS;
}

void syn_close_socket(struct syn_socket *socket)
{
    if (socket->queue)
        syn_verbs_close_socket(socket);
    else if (socket->fd >= 0)
        close(socket->fd);
    socket->fd = -1;
}

int syn_reopen_socket(struct syn_probe_engine *engine, struct syn_socket *socket, char *message)
{
    const struct syn_nic *nic = &engine->nics[socket->nic];
    syn_close_socket(socket);
    if (is_over_verbs(engine))
        return syn_verbs_reopen_socket(engine, socket, message);
    int fd = syn_probe_socket(&nic->config, socket->port, nic->status.hardware, message);
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = socket};
    if (fd >= 0 && epoll_ctl(engine->epoll_fd, EPOLL_CTL_ADD, fd, &event) < 0) {
        snprintf(message, SYN_MESSAGE_BYTES, "no more probe sockets: %s", strerror(errno));
        close(fd);
        fd = -1;
    }
    if (fd < 0)
        return 0;
    socket->fd = fd;
    socket->next_id = socket->stamped_ids = socket->overflow = 0;
    return 1;
}

struct syn_socket *syn_add_socket(struct syn_probe_engine *engine, uint32_t nic, uint16_t port,
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
        .fd = -1, .nic = nic, .port = port, .reflector = reflector, .wanted = 1};
    engine->sockets[engine->socket_count++] = added;
    return added;
}

/* --- peers ---------------------------------------------------------------------------------- */

static int by_nic(const void *a, const void *b)
{
    uint32_t left = ((const struct syn_peer *)a)->nic_id;
    uint32_t right = ((const struct syn_peer *)b)->nic_id;
    return (left > right) - (left < right);
}

const struct syn_peer *syn_find_peer(const struct syn_probe_engine *engine, uint32_t nic_id)
{
    struct syn_peer wanted = {.nic_id = nic_id};
    if (engine->peer_count == 0)
        return NULL;
    return bsearch(&wanted, engine->peers, engine->peer_count, sizeof wanted, by_nic);
}

static struct syn_peer peer_of(const struct syn_probe_peer *given)
{
    struct syn_peer peer = {.nic_id = given->nic_id, .key_count = 1 + (given->other_id != 0)};
    peer.keys[0].id = given->key_id;
    peer.keys[1].id = given->other_id;
    memcpy(peer.keys[0].bytes, given->key, sizeof peer.keys[0].bytes);
    memcpy(peer.keys[1].bytes, given->other, sizeof peer.keys[1].bytes);
    return peer;
}

int syn_probe_set_peers(struct syn_probe_engine *engine, const struct syn_probe_peer *given,
                        size_t count, char *message)
{
    struct syn_peer *peers = calloc(count + 1, sizeof *peers);
    if (peers == NULL) {
        snprintf(message, SYN_MESSAGE_BYTES, "out of memory for the keys of %zu peers", count);
        return SYN_ERROR_MISSING;
    }
    for (size_t i = 0; i < count; i++)
        peers[i] = peer_of(&given[i]);
    qsort(peers, count, sizeof *peers, by_nic);
    syn_engine_visit(engine);
    if (engine->peer_count == 0 && count > 0)
        syn_begin_sending(engine);
    struct syn_peer *before = engine->peers;
    engine->peers = peers;
    engine->peer_count = count;
    syn_engine_leave(engine);
    syn_engine_wake(engine);
    free(before);
    return SYN_OK;
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

static struct syn_socket *reflector_of(struct syn_probe_engine *engine, uint32_t nic,
                                       char *message)
{
    for (size_t i = 0; i < engine->socket_count; i++)
        if (engine->sockets[i]->reflector && engine->sockets[i]->nic == nic)
            return engine->sockets[i];
    return syn_add_socket(engine, nic, engine->nics[nic].config.port, 1, message);
}

static void detach(struct syn_probe_engine *engine, uint32_t nic)
{
    engine->nics[nic].attached = 0;
    for (size_t i = 0; i < engine->socket_count; i++)
        if (engine->sockets[i]->nic == nic)
            syn_close_socket(engine->sockets[i]);
    if (is_over_verbs(engine))
        syn_verbs_detach(engine, nic);
}

static int attach(struct syn_probe_engine *engine, uint32_t at, const struct syn_probe_nic *config,
                  char *message)
{
    struct syn_nic *nic = &engine->nics[at];
    detach(engine, at);
    nic->config = *config;
    nic->config.ifname[sizeof nic->config.ifname - 1] = '\0';
    nic->ifindex = if_nametoindex(nic->config.ifname);
    if (!is_over_verbs(engine))
        syn_stamps_prepare(&nic->config, &nic->status);
    int failed = is_over_verbs(engine) ? syn_verbs_attach(engine, at, message) : SYN_OK;
    if (failed)
        return failed;
    struct syn_socket *reflector = reflector_of(engine, at, message);
    if (reflector == NULL || !syn_reopen_socket(engine, reflector, message)) {
        detach(engine, at);
        return SYN_ERROR_MISSING;
    }
    nic->attached = 1;
    for (size_t i = 0; i < engine->flow_count; i++)
        if (engine->flows[i]->flow.config.nic == at)
            engine->flows[i]->flow.hardware = nic->status.hardware;
    char ignored[SYN_MESSAGE_BYTES]; /* who needs the socket of a source port tries it again */
    for (size_t i = 0; i < engine->socket_count; i++)
        if (engine->sockets[i]->nic == at && engine->sockets[i]->fd < 0)
            (void)syn_reopen_socket(engine, engine->sockets[i], ignored);
    return SYN_OK;
}

int syn_probe_attach(struct syn_probe_engine *engine, size_t at,
                     const struct syn_probe_nic *config, char *message)
{
    syn_engine_visit(engine);
    int failed = attach(engine, (uint32_t)at, config, message);
    syn_engine_leave(engine);
    syn_engine_wake(engine);
    return failed;
}

void syn_probe_detach(struct syn_probe_engine *engine, size_t at)
{
    syn_engine_visit(engine);
    detach(engine, (uint32_t)at);
    syn_engine_leave(engine);
}

static int options_fit(const struct syn_probe_options *options)
{
    uint32_t records = options->ring_records;
    return options->timeout_ns > 0 && options->min_gap_ns >= 0 && options->stall_ns > 0 &&
           records > 0 && (records & (records - 1)) == 0 &&
           options->plane <= SYN_PLANE_VERBS;
}

static void open_lock(pthread_mutex_t *lock)
{
    pthread_mutexattr_t attributes;
    pthread_mutexattr_init(&attributes);
    (void)pthread_mutexattr_setprotocol(&attributes, PTHREAD_PRIO_INHERIT);
    pthread_mutex_init(lock, &attributes);
    pthread_mutexattr_destroy(&attributes);
}

struct syn_probe_engine *syn_probe_open(size_t count, const struct syn_probe_options *options,
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
    if (!allocate(engine, count)) {
        syn_probe_close(engine);
        return NULL;
    }
    engine->nic_count = count;
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
        syn_close_socket(engine->sockets[i]);
        free(engine->sockets[i]);
    }
    engine->socket_count = 0;
    if (is_over_verbs(engine))
        syn_verbs_close(engine);
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
    free(engine->peers);
    free(engine->heard);
    free(engine->meetings);
    free(engine->ring.records);
    pthread_mutex_destroy(&engine->lock);
    free(engine);
}
