/* The engine's flows and sessions over queue pairs: what transfer.c is over sockets. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "engine.h"
#include "queue.h"

enum { MAKING_NS = 2000000000 /* spent on new routes in one call, or one more of them */ };

struct row {
    struct syn_verbs_route route;
    struct syn_verbs_address *address;
};

struct syn_verbs_routes {
    struct row *rows; /* in order */
    size_t count;
    struct row *retired; /* what may still be sent to these is under way */
    size_t retired_count;
    size_t turn;
};

/* --- routes --------------------------------------------------------------------------------- */

static int64_t order(int64_t a, int64_t b)
{
    return (a > b) - (a < b);
}

static int by_place(const void *left, const void *right)
{
    const struct syn_verbs_route *a = &((const struct row *)left)->route;
    const struct syn_verbs_route *b = &((const struct row *)right)->route;
    int64_t found = order(a->nic, b->nic);
    found = found ? found : order(a->dst_nic_id, b->dst_nic_id);
    found = found ? found : order(a->dscp, b->dscp);
    return (int)(found ? found : order(a->flow_label, b->flow_label));
}

static const struct row *find(const struct syn_verbs_routes *routes, uint32_t nic,
                              uint32_t dst_nic_id, uint8_t dscp, uint32_t flow_label)
{
    struct row wanted = {.route = {.nic = nic, .dst_nic_id = dst_nic_id, .dscp = dscp,
                                   .flow_label = flow_label}};
    if (routes == NULL || routes->count == 0)
        return NULL;
    return bsearch(&wanted, routes->rows, routes->count, sizeof wanted, by_place);
}

static void free_rows(struct row *rows, size_t count)
{
    for (size_t i = 0; i < count; i++)
        syn_verbs_address_free(rows[i].address);
    free(rows);
}

static size_t sorted(struct row *rows, const struct syn_verbs_route *routes, size_t count)
{
    size_t kept = 0;
    for (size_t i = 0; i < count; i++)
        rows[i].route = routes[i];
    qsort(rows, count, sizeof *rows, by_place);
    for (size_t i = 0; i < count; i++)
        if (kept == 0 || by_place(&rows[kept - 1], &rows[i]) != 0)
            rows[kept++] = rows[i];
    return kept;
}

/* Without the lock: only the callers of this function and of detach take addresses away. */
static void make_addresses(struct syn_probe_engine *engine, struct syn_verbs_routes *routes,
                           struct row *rows, size_t count, char *message)
{
    int64_t until_ns = syn_clock_read(CLOCK_MONOTONIC) + MAKING_NS;
    for (size_t i = 0; i < count; i++) {
        struct row *row = &rows[i];
        const struct row *known = find(routes, row->route.nic, row->route.dst_nic_id,
                                       row->route.dscp, row->route.flow_label);
        if (known && memcmp(&known->route, &row->route, sizeof row->route) == 0)
            row->address = known->address;
    }
    size_t turn = routes->turn;
    for (size_t i = 0; i < count && syn_clock_read(CLOCK_MONOTONIC) < until_ns; i++) {
        struct row *row = &rows[(turn + i) % count];
        if (row->address || row->route.nic >= engine->nic_count)
            continue;
        struct syn_verbs_port *port = engine->nics[row->route.nic].port;
        row->address = port ? syn_verbs_address_make(port, &row->route, message) : NULL;
        routes->turn = turn + i + 1;
    }
}

/* Those of `before` that are no longer used; the others stay where they were taken over. */
static size_t left_over(struct row *before, size_t count, const struct syn_verbs_routes *now)
{
    size_t kept = 0;
    for (size_t i = 0; i < count; i++) {
        const struct syn_verbs_route *route = &before[i].route;
        const struct row *same = find(now, route->nic, route->dst_nic_id, route->dscp,
                                      route->flow_label);
        if (same == NULL || same->address != before[i].address)
            before[kept++] = before[i];
    }
    return kept;
}

size_t syn_probe_set_routes(struct syn_probe_engine *engine, const struct syn_verbs_route *wanted,
                            size_t count, char *message)
{
    struct row *rows = calloc(count + 1, sizeof *rows);
    message[0] = '\0';
    if (rows == NULL)
        return 0;
    if (engine->routes == NULL)
        engine->routes = calloc(1, sizeof *engine->routes);
    struct syn_verbs_routes *routes = engine->routes;
    if (routes == NULL) {
        free(rows);
        return 0;
    }
    free_rows(routes->retired, routes->retired_count);
    count = sorted(rows, wanted, count);
    make_addresses(engine, routes, rows, count, message);
    size_t made = 0;
    for (size_t i = 0; i < count; i++)
        if (rows[i].address)
            rows[made++] = rows[i];
    syn_engine_visit(engine);
    struct row *before = routes->rows;
    size_t before_count = routes->count;
    routes->rows = rows;
    routes->count = made;
    syn_engine_leave(engine);
    routes->retired = before;
    routes->retired_count = left_over(before, before_count, routes);
    return made;
}

/* With the lock held, and nothing of that NIC under way any more. */
static void drop_routes(struct syn_verbs_routes *routes, uint32_t nic)
{
    size_t kept = 0;
    if (routes == NULL)
        return;
    for (size_t i = 0; i < routes->count; i++) {
        if (routes->rows[i].route.nic == nic)
            syn_verbs_address_free(routes->rows[i].address);
        else
            routes->rows[kept++] = routes->rows[i];
    }
    routes->count = kept;
    free_rows(routes->retired, routes->retired_count);
    routes->retired = NULL;
    routes->retired_count = 0;
}

/* --- NICs and queue pairs ------------------------------------------------------------------- */

int syn_verbs_attach(struct syn_probe_engine *engine, uint32_t at, char *message)
{
    struct syn_nic *nic = &engine->nics[at];
    int error = SYN_ERROR_MISSING;
    snprintf(message, SYN_MESSAGE_BYTES, "out of memory for an RDMA port");
    nic->port = syn_verbs_port_open(&nic->config, &nic->clock, &nic->status, &error, message);
    return nic->port != NULL ? SYN_OK : error;
}

void syn_verbs_detach(struct syn_probe_engine *engine, uint32_t at)
{
    struct syn_nic *nic = &engine->nics[at];
    if (nic->port == NULL)
        return;
    drop_routes(engine->routes, at);
    syn_verbs_port_close(nic->port);
    nic->port = NULL;
}

void syn_verbs_close(struct syn_probe_engine *engine)
{
    for (uint32_t i = 0; i < engine->nic_count; i++) {
        syn_verbs_detach(engine, i);
        free(engine->nics[i].clock);
    }
    if (engine->routes)
        free(engine->routes->rows);
    free(engine->routes);
}

static int64_t local_ns(const struct syn_probe_engine *engine, int64_t real_ns)
{
    return engine->clock ? syn_clock_map(engine->clock, real_ns) : real_ns;
}

int syn_verbs_reopen_socket(struct syn_probe_engine *engine, struct syn_socket *socket,
                            char *message)
{
    struct syn_verbs_port *port = engine->nics[socket->nic].port;
    snprintf(message, SYN_MESSAGE_BYTES, "out of memory for a queue pair");
    socket->queue = port ? syn_verbs_queue_open(port, socket->reflector, message) : NULL;
    if (socket->queue == NULL)
        return 0;
    int fd = syn_verbs_queue_fd(socket->queue);
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = socket};
    if (epoll_ctl(engine->epoll_fd, EPOLL_CTL_ADD, fd, &event) < 0) {
        snprintf(message, SYN_MESSAGE_BYTES, "no more queue pairs: %s", strerror(errno));
        syn_verbs_close_socket(socket);
        return 0;
    }
    socket->fd = fd;
    return 1;
}

void syn_verbs_close_socket(struct syn_socket *socket)
{
    syn_verbs_queue_close(socket->queue);
    socket->queue = NULL;
    socket->fd = -1;
}

int syn_probe_check(struct syn_probe_engine *engine, size_t at, char *message)
{
    struct syn_nic *nic = &engine->nics[at];
    if (nic->port == NULL) {
        snprintf(message, SYN_MESSAGE_BYTES, "it is not attached");
        return 0;
    }
    if (!syn_verbs_port_check(nic->port, message))
        return 0;
    int whole = 1;
    syn_engine_visit(engine);
    for (size_t i = 0; i < engine->socket_count && whole; i++)
        if (engine->sockets[i]->nic == at)
            whole = engine->sockets[i]->fd >= 0;
    syn_engine_leave(engine);
    if (!whole)
        snprintf(message, SYN_MESSAGE_BYTES, "a queue pair of %s has failed", nic->config.ifname);
    return whole;
}

void syn_probe_read_clock(struct syn_probe_engine *engine, size_t at,
                          struct syn_verbs_clock_reading *out)
{
    struct syn_nic *nic = &engine->nics[at];
    struct syn_tick_reading reading;
    int64_t real_ns = 0;
    *out = (struct syn_verbs_clock_reading){0};
    if (nic->port == NULL)
        return;
    int is_read = syn_verbs_clock_read(nic->port, &reading, &real_ns);
    syn_engine_visit(engine);
    syn_verbs_clock_take(nic->clock, is_read ? &reading : NULL, real_ns, out);
    out->host_ns = out->epoch_ns ? local_ns(engine, real_ns) : 0;
    syn_engine_leave(engine);
}

size_t syn_probe_read_endpoints(struct syn_probe_engine *engine, struct syn_verbs_endpoint *out,
                                size_t room)
{
    syn_engine_visit(engine);
    for (size_t i = 0; i < engine->nic_count && i < room; i++) {
        out[i] = (struct syn_verbs_endpoint){.nic_id = engine->nics[i].config.nic_id, .known = 1};
        if (engine->nics[i].port)
            syn_verbs_port_address(engine->nics[i].port, &out[i]);
    }
    for (size_t i = 0; i < engine->socket_count; i++) {
        const struct syn_socket *socket = engine->sockets[i];
        if (socket->reflector && socket->queue && socket->nic < room)
            out[socket->nic].qpn = syn_verbs_queue_number(socket->queue);
    }
    syn_engine_leave(engine);
    return engine->nic_count;
}

/* --- packets -------------------------------------------------------------------------------- */

static int stamps_itself(const struct syn_probe_engine *engine, const struct syn_socket *socket)
{
    return !syn_verbs_clock_in_force(engine->nics[socket->nic].clock);
}

void syn_verbs_send_pair(struct syn_probe_engine *engine, struct syn_engine_flow *flow,
                         int64_t now_ns)
{
    const struct syn_probe_flow *config = &flow->flow.config;
    struct syn_socket *socket = flow->socket;
    const struct syn_peer *peer = syn_find_peer(engine, config->dst_nic_id);
    const struct row *row = find(engine->routes, config->nic, config->dst_nic_id, config->dscp,
                                 config->flow_label);
    if (peer == NULL || row == NULL || socket->queue == NULL) {
        engine->counters.skipped++; /* nothing is known of the path */
        return;
    }
    struct syn_packet packet = syn_request(&flow->flow);
    int64_t stamps_ns[2], began_ns = 0;
    unsigned sent = 0, slot;
    uint8_t *data;
    for (; sent < 2 && (data = syn_verbs_queue_room(socket->queue, &slot)) != NULL; sent++) {
        packet.seq = flow->flow.next_seq + sent;
        syn_packet_encode(&packet, &peer->keys[0], data);
        socket->sent[slot] = (struct syn_sent){config->flow_id, packet.seq, 0};
        stamps_ns[sent] = local_ns(engine, syn_clock_read(CLOCK_REALTIME));
        began_ns = began_ns ? began_ns : stamps_ns[sent];
        if (syn_verbs_queue_send(socket->queue, slot, row->address, row->route.qpn))
            break;
    }
    began_ns = began_ns ? began_ns : local_ns(engine, syn_clock_read(CLOCK_REALTIME));
    struct syn_sink sink = syn_sink_of(engine);
    uint32_t first_seq = flow->flow.next_seq;
    syn_flow_sent(&flow->flow, sent, now_ns, began_ns, &engine->stall, &sink);
    engine->counters.sent += sent;
    engine->counters.send_errors += 2 - sent;
    for (unsigned i = 0; i < sent && stamps_itself(engine, socket); i++)
        syn_flow_stamp(&flow->flow, first_seq + i, stamps_ns[i], &sink);
}

/* A way back in the request's class over its own path, or over any. Requests do not make ways: who
 * sends them could have one made to anywhere. */
static const struct row *way_back(const struct syn_probe_engine *engine, uint32_t nic,
                                  const struct syn_packet *request)
{
    const struct syn_verbs_routes *routes = engine->routes;
    const struct row *row = find(routes, nic, request->src_nic, request->dscp, request->flow_label);
    for (size_t i = 0; row == NULL && routes && i < routes->count; i++)
        if (routes->rows[i].route.nic == nic &&
            routes->rows[i].route.dst_nic_id == request->src_nic &&
            routes->rows[i].route.dscp == request->dscp)
            row = &routes->rows[i];
    return row;
}

static void reflect(struct syn_probe_engine *engine, struct syn_socket *socket,
                    const struct syn_arrival *arrival, uint32_t qpn)
{
    unsigned slot;
    uint8_t packet[SYN_PACKET_BYTES];
    struct syn_sent sent;
    if (!syn_reflect(engine, socket->nic, arrival, packet, &sent))
        return;
    const struct row *row = way_back(engine, socket->nic, &arrival->packet);
    uint8_t *data = row ? syn_verbs_queue_room(socket->queue, &slot) : NULL;
    if (data) {
        memcpy(data, packet, sizeof packet);
        socket->sent[slot] = sent;
    }
    int64_t stamp_ns = local_ns(engine, syn_clock_read(CLOCK_REALTIME));
    if (data == NULL || syn_verbs_queue_send(socket->queue, slot, row->address, qpn)) {
        engine->counters.send_errors++;
        return;
    }
    engine->counters.replies++;
    if (stamps_itself(engine, socket))
        syn_stamp_sent(engine, socket, &sent, stamp_ns);
}

static void take_in(struct syn_probe_engine *engine, struct syn_socket *socket,
                    const struct syn_verbs_done *done, int64_t now_ns, int late)
{
    int itself = stamps_itself(engine, socket);
    int64_t stamp_ns = itself ? local_ns(engine, now_ns) : done->stamp_ns; /* 0: it is missing */
    if (done->sent) {
        if (!itself && stamp_ns)
            syn_stamp_sent(engine, socket, &socket->sent[done->slot], stamp_ns);
        return;
    }
    struct syn_arrival arrival;
    engine->taken_in++;
    if (!syn_admit(engine, socket->nic, done->data, done->length, &arrival))
        return;
    arrival.stamp_ns = stamp_ns;
    arrival.late = late;
    if (socket->reflector)
        reflect(engine, socket, &arrival, done->qpn);
    else
        syn_accept_reply(engine, &arrival);
}

/* Everything that is there was received into a full queue: what came after it was dropped here, not
 * by the network. */
static void note_full(struct syn_probe_engine *engine)
{
    engine->counters.rx_overflow++;
    engine->stall.mark++;
}

void syn_verbs_receive(struct syn_probe_engine *engine, struct syn_socket *socket)
{
    struct syn_verbs_done done[SYN_BATCH];
    unsigned count, received = 0;
    if (socket->queue == NULL)
        return;
    unsigned depth = syn_verbs_queue_depth(socket->queue);
    int failed = !syn_verbs_queue_arm(socket->queue);
    do {
        count = syn_verbs_queue_poll(socket->queue, done, SYN_BATCH);
        int64_t now_ns = syn_clock_read(CLOCK_REALTIME); /* not before what it stamps */
        for (unsigned i = 0; i < count && !failed; i++) {
            failed = done[i].failed;
            if (failed)
                break;
            received += !done[i].sent;
            if (received == depth)
                note_full(engine);
            take_in(engine, socket, &done[i], now_ns, received >= depth);
            syn_verbs_queue_give_back(socket->queue, &done[i]);
        }
    } while (count == SYN_BATCH && !failed);
    if (failed) /* it is opened again with its NIC, which is found not to be whole */
        syn_verbs_close_socket(socket);
}
