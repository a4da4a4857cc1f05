#include "conn.h"

#include <inttypes.h>
#include <string.h>

#include "config.h"
#include "log.h"

static const int64_t CLOSED_GRACE_NS = INT64_C(1000000000);
enum { LOOK_AT_LINK = 8 };

static const char *rail_name(const struct conn *conn, int r)
{
    return ports[conn->group.rail[r]].name;
}

static int living(const struct conn *conn)
{
    int count = 0;
    for (int r = 0; r < conn->rails; r++)
        count += conn->rail[r].state == RAIL_UP;
    return count;
}

static void end(struct conn *conn, const char *problem)
{
    if (conn->problem == NULL) {
        conn->problem = problem;
        WARN("connection ended: %s", problem);
    }
}

static void say(struct conn *conn, enum control_kind kind, int r, const void *payload, size_t size)
{
    struct control control = {.kind = (uint8_t)kind, .rail = (uint8_t)r,
                              .generation = conn->rail[r].generation, .length = (uint32_t)size,
                              .posted = conn->is_sender ? 0 : conn->receiver.next};
    link_send(&conn->link, &control, payload);
}

/* Our end is fenced: with it the receiver says what it has. */
static void say_fenced(struct conn *conn, int r)
{
    struct receipt receipts[SLOTS];
    size_t count = conn->is_sender ? 0 : receiver_report(&conn->receiver, receipts);
    say(conn, CONTROL_FENCED, r, receipts, count * sizeof *receipts);
}

/* The rail's state says that it is being left: stop its work. */
static void begin_fence(struct conn *conn, int r, const char *why, bool was_up)
{
    conn->fences++;
    conn->reported[r] = false;
    conn->rejoining[r] = false;
#ifndef NET_WITHOUT_FENCE
    queues_fail(&conn->queues[r]);
#endif
    if (conn->flow[r]) {
        atomic_fetch_add(&conn->flow[r]->errors, 1);
        atomic_store(&conn->flow[r]->failed, 1);
    }
    if (was_up)
        INFO("rail %s is left: %s; %d of %d rails live", rail_name(conn, r), why, living(conn),
             conn->rails);
}

static void fail_rail(struct conn *conn, int r, const char *why, int64_t now_ns)
{
    bool was_up = conn->rail[r].state == RAIL_UP;
    if (rail_fail(&conn->rail[r], now_ns))
        begin_fence(conn, r, why, was_up);
}

/* Completions of the generation that a fencing rail leaves carry the number before. */
static uint32_t queue_generation(const struct rail *rail)
{
    return rail->state == RAIL_FENCING ? rail->generation - 1 : rail->generation;
}

static void probe(struct conn *conn, int r, int queue)
{
    struct credit record = {.kind = RECORD_PROBE};
    queues_send(&conn->queues[r], queue, conn->rail[r].generation, &record, sizeof record, NULL,
                &(struct work){.kind = WORK_OTHER});
}

static void prove_if_done(struct conn *conn, int r, int64_t now_ns)
{
    struct rail *rail = &conn->rail[r];
    if (rail->state != RAIL_PROBE || conn->probes[r] < conn->queues[r].qps)
        return;
    for (int i = 0; i < conn->queues[r].qps; i++)
        if (conn->queues[r].queue[i].outstanding)
            return;
    rail_proved(rail, now_ns);
    if (conn->flow[r])
        atomic_store(&conn->flow[r]->failed, 0);
    INFO("rail %s is back; %d of %d rails live", rail_name(conn, r), living(conn), conn->rails);
}

static void give_credits(struct conn *conn, int r)
{
    struct queues *queues = &conn->queues[r];
    for (int i = 0; i < queues->qps && conn->rail[r].state == RAIL_UP; i++) {
        struct credit record = {.kind = RECORD_CREDIT,
                                .count = (uint16_t)queues->queue[i].consumed};
        if (record.count >= CREDIT_STEP &&
            queues_send(queues, i, conn->rail[r].generation, &record, sizeof record, NULL,
                        &(struct work){.kind = WORK_OTHER}) == 0)
            queues->queue[i].consumed = 0;
    }
}

static const char *take_record(struct conn *conn, int r, const struct completion *found)
{
    const struct credit *record = found->record;
    struct queue *queue = &conn->queues[r].queue[found->queue];
    switch (record->kind) {
    case RECORD_PROBE:
        conn->probes[r]++;
        if (!conn->is_sender && conn->rail[r].state == RAIL_PROBE)
            probe(conn, r, found->queue);
        return NULL;
    case RECORD_CREDIT:
        queue->credits += record->count;
        return conn->is_sender && queue->credits <= CREDITS ? NULL : "invalid credit";
    case RECORD_CTS:
        return conn->is_sender && sender_cleared(&conn->sender, found->record) ? NULL
                                                                  : "invalid clear-to-send";
    case RECORD_HEADER:
        if (conn->is_sender || !receiver_arrived(&conn->receiver, found->record, r))
            return "invalid chunk";
        return NULL;
    default:
        return "invalid record";
    }
}

static void take_work(struct conn *conn, int r, const struct work *work)
{
    if (work->kind == WORK_CHUNK) {
        struct send *send = work->send;
        if (send->sequence == work->sequence)
            sender_acknowledged(send, work->chunk, r);
    } else if (work->kind == WORK_CTS) {
        struct receive *receive = &conn->receiver.receive[work->sequence % SLOTS];
        if (receive->sequence == work->sequence && receive->cts_rail == r)
            receive->cts_rail = CTS_DONE;
    }
    if (conn->flow[r]) {
        atomic_fetch_add_explicit(&conn->flow[r]->bytes_done, work->bytes, memory_order_relaxed);
        atomic_store_explicit(&conn->flow[r]->last_done_ns, clock_ns(), memory_order_relaxed);
    }
}

static void take(struct conn *conn, int r, const struct completion *found, int64_t now_ns)
{
    bool fencing = conn->rail[r].state == RAIL_FENCING;
    if (found->status != IBV_WC_SUCCESS) {
        if (conn->flow[r])
            atomic_store(&conn->flow[r]->last_error, found->status);
        if (!fencing)
            fail_rail(conn, r, verbs.wc_status_str(found->status), now_ns);
        return;
    }
    if (!found->is_receive) {
        if (!found->is_write)
            take_work(conn, r, &found->work);
        return;
    }
    bool is_header = ((const struct credit *)found->record)->kind == RECORD_HEADER;
    const char *problem = take_record(conn, r, found);
    if (problem)
        end(conn, problem);
    if (fencing)
        return;
    if (queues_receive_again(&conn->queues[r], found->queue, conn->rail[r].generation, found->slot))
        fail_rail(conn, r, "a receive cannot be posted", now_ns);
    else
        conn->queues[r].queue[found->queue].consumed += is_header;
}

static void replay(struct conn *conn, int r)
{
    if (!conn->is_sender || !conn->reported[r] || !rail_is_fenced(&conn->rail[r]))
        return;
    conn->reported[r] = false;
    conn->replayed += sender_replay(&conn->sender, r, conn->report[r], conn->reports[r],
                                    conn->report_posted[r]);
}

static void finish_fence(struct conn *conn, int r, int64_t now_ns)
{
    rail_drained(&conn->rail[r], now_ns);
    if (conn->is_sender)
        sender_lost(&conn->sender, r);
    else
        receiver_lost(&conn->receiver, r);
    say_fenced(conn, r);
    replay(conn, r);
}

static void poll_rail(struct conn *conn, int r, int64_t now_ns)
{
    struct completion found[16];
    int count;
    do {
        uint32_t generation = queue_generation(&conn->rail[r]);
        count = queues_poll(&conn->queues[r], generation, found, 16);
        if (count < 0) {
            fail_rail(conn, r, "its completion queue failed", now_ns);
            return;
        }
        for (int i = 0; i < count; i++)
            take(conn, r, &found[i], now_ns);
    } while (count == 16 && conn->problem == NULL);
    prove_if_done(conn, r, now_ns);
#ifdef NET_WITHOUT_FENCE /* a test shows what the fence prevents */
    if (conn->rail[r].state == RAIL_FENCING)
        finish_fence(conn, r, now_ns);
#endif
    if (conn->rail[r].state == RAIL_FENCING && queues_drained(&conn->queues[r]))
        finish_fence(conn, r, now_ns);
}

/* The receiver makes new queue pairs, as soon as its port allows. */
static void accept_rejoin(struct conn *conn, int r, int64_t now_ns)
{
    struct rail *rail = &conn->rail[r];
    if (!conn->rejoining[r] || !rail_is_fenced(rail) ||
        atomic_load(&conn->queues[r].port->down) || now_ns < rail->due_ns)
        return;
    conn->probes[r] = 0;
    const char *problem = queues_remake(&conn->queues[r]);
    if (problem == NULL)
        problem = queues_connect(&conn->queues[r], &conn->rejoin[r], rail->generation, conn->seed,
                                 conn->traffic_class);
    if (problem) {
        rail_retry_later(rail, now_ns);
        return;
    }
    conn->rejoining[r] = false;
    rail_connected(rail, now_ns);
    say(conn, CONTROL_ACCEPT, r, &conn->queues[r].local, sizeof conn->queues[r].local);
}

/* The sender asks for the rail again. */
static void rebuild(struct conn *conn, int r, int64_t now_ns)
{
    struct rail *rail = &conn->rail[r];
    if (!rail_rebuilds(rail, living(conn), now_ns))
        return;
    rail->state = RAIL_REBUILD;
    if (atomic_load(&conn->queues[r].port->down) || queues_remake(&conn->queues[r])) {
        rail_retry_later(rail, now_ns);
        return;
    }
    rail_asked(rail, now_ns);
    say(conn, CONTROL_REJOIN, r, &conn->queues[r].local, sizeof conn->queues[r].local);
}

static void accepted(struct conn *conn, int r, const struct endpoint *remote, int64_t now_ns)
{
    struct rail *rail = &conn->rail[r];
    const char *problem = queues_connect(&conn->queues[r], remote, rail->generation, conn->seed,
                                         conn->traffic_class);
    rail_connected(rail, now_ns);
    conn->probes[r] = 0;
    if (problem) {
        fail_rail(conn, r, problem, now_ns);
        return;
    }
    for (int i = 0; i < conn->queues[r].qps; i++)
        probe(conn, r, i);
}

static void peer_fenced(struct conn *conn, const struct control *control, const void *payload,
                        int64_t now_ns)
{
    int r = control->rail;
    bool was_up = conn->rail[r].state == RAIL_UP;
    enum rail_order order = rail_peer_fenced(&conn->rail[r], control->generation, now_ns);
    if (order == RAIL_NOTHING)
        return;
    if (order == RAIL_FENCE)
        begin_fence(conn, r, "the peer left it", was_up);
    conn->rejoining[r] = false;
    if (order == RAIL_ANSWER)
        say_fenced(conn, r);
    conn->reports[r] = control->length / sizeof(struct receipt);
    memcpy(conn->report[r], payload, conn->reports[r] * sizeof(struct receipt));
    conn->report_posted[r] = control->posted;
    conn->reported[r] = true;
    replay(conn, r);
}

static void peer_ended(struct conn *conn, const struct control *control, const void *payload)
{
    struct receipt receipts[SLOTS];
    size_t count = control->length / sizeof *receipts;
    memcpy(receipts, payload, count * sizeof *receipts);
    conn->peer_ended = true;
    if (conn->is_sender)
        sender_concluded(&conn->sender, receipts, count, control->posted);
}

static void take_control(struct conn *conn, const struct control *control, const void *payload,
                         int64_t now_ns)
{
    int r = control->rail;
    struct rail *rail = &conn->rail[r];
    struct endpoint remote;
    if (r >= conn->rails) {
        end(conn, "the peer named a rail that is none");
        return;
    }
    bool has_endpoint = control->length == sizeof remote;
    if (has_endpoint)
        memcpy(&remote, payload, sizeof remote);
    if (control->kind == CONTROL_FENCED)
        peer_fenced(conn, control, payload, now_ns);
    else if (control->kind == CONTROL_REJOIN && has_endpoint && !conn->is_sender) {
        conn->rejoining[r] = control->generation == rail->generation;
        conn->rejoin[r] = remote;
        rail->due_ns = rail->state == RAIL_DOWN ? now_ns : rail->due_ns;
    } else if (control->kind == CONTROL_ACCEPT && has_endpoint && conn->is_sender) {
        if (rail->state == RAIL_WAIT_ACK && control->generation == rail->generation)
            accepted(conn, r, &remote, now_ns);
    } else if (control->kind == CONTROL_LEAVE && conn->is_sender)
        rail->held_until_ns = control->hold_ns > INT64_MAX / 2 ? INT64_MAX
                                                               : now_ns + control->hold_ns;
    else if (control->kind == CONTROL_RETURN && conn->is_sender)
        rail->held_until_ns = 0;
    else if (control->kind == CONTROL_BYE)
        peer_ended(conn, control, payload);
    else
        end(conn, "the peer sent what is no message");
}

static void take_controls(struct conn *conn, int64_t now_ns)
{
    struct control control;
    const void *payload = NULL;
    int got = 0;
    while (conn->problem == NULL && (got = link_receive(&conn->link, &control, &payload)) > 0)
        take_control(conn, &control, payload, now_ns);
    if (got < 0)
        end(conn, "the peer sent what is no message");
    link_flush(&conn->link);
}

/* The agent's notices: the sender decides, so that two ends never leave two rails at once. */
static void obey_agent(struct conn *conn, int64_t now_ns)
{
    uint32_t version = agent_version();
    if (conn->looked_at_agent && version == conn->agent_seen)
        return;
    conn->agent_seen = version;
    conn->looked_at_agent = true;
    for (int r = 0; r < conn->rails; r++) {
        const struct queues *queues = &conn->queues[r];
        int64_t until_ns = agent_held_until(queues->local.gid, queues->remote.gid);
        struct rail *rail = &conn->rail[r];
        if (until_ns == rail->agent_held_until_ns)
            continue;
        rail->agent_held_until_ns = until_ns;
        if (conn->is_sender) {
            rail->held_until_ns = until_ns;
            continue;
        }
        struct control control = {.kind = until_ns > now_ns ? CONTROL_LEAVE : CONTROL_RETURN,
                                  .rail = (uint8_t)r, .hold_ns = until_ns - now_ns};
        link_send(&conn->link, &control, NULL);
    }
}

static void post_chunks(struct conn *conn, int64_t now_ns)
{
    struct send *send;
    unsigned chunk;
    while (sender_next_chunk(&conn->sender, &send, &chunk)) {
        int best = -1, pair = -1;
        for (int r = 0; r < conn->rails; r++) {
            int i = conn->rail[r].state == RAIL_UP ? queues_pick(&conn->queues[r], true) : -1;
            if (i >= 0 && (best < 0 || conn->queues[r].bytes_outstanding <
                                           conn->queues[best].bytes_outstanding)) {
                best = r;
                pair = i;
            }
        }
        if (best < 0)
            return;
        uint64_t offset = chunk_offset(send, chunk), length = chunk_length(send, chunk);
        const struct memory *memory = send->memory;
        struct header header = {.kind = RECORD_HEADER, .place = send->place, .chunk = (uint8_t)chunk,
                                .chunks = send->chunks, .sequence = send->sequence,
                                .size = send->size, .posted_ns = now_ns};
        struct ibv_sge sge = {(uint64_t)(uintptr_t)send->data + offset, (uint32_t)length,
                              memory->mr[best]->lkey};
        struct ibv_send_wr payload = {
            .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_RDMA_WRITE,
            .wr.rdma = {send->offer.address + offset, send->offer.rkey[best]}};
        struct work work = {WORK_CHUNK, chunk, send->sequence, length, send};
        int error = queues_send(&conn->queues[best], pair, conn->rail[best].generation, &header,
                                sizeof header, length ? &payload : NULL, &work);
        sender_posted(send, chunk, best);
        conn->queues[best].queue[pair].credits--;
        if (error)
            fail_rail(conn, best, strerror(error), now_ns);
    }
}

static void post_cts(struct conn *conn, int64_t now_ns)
{
    struct receive *receive;
    while ((receive = receiver_next_cts(&conn->receiver)) != NULL) {
        int best = -1, pair = -1;
        for (int i = 0; i < conn->rails && best < 0; i++) {
            int r = (int)((receive->sequence + (uint64_t)i) % (uint64_t)conn->rails);
            if (conn->rail[r].state == RAIL_UP &&
                (pair = queues_pick(&conn->queues[r], false)) >= 0)
                best = r;
        }
        if (best < 0)
            return;
        struct cts cts;
        receiver_fill_cts(receive, &cts);
        for (int i = 0; i < receive->count; i++) {
            const struct memory *memory = receive->place[i].memory;
            for (int r = 0; r < conn->rails; r++)
                cts.offer[i].rkey[r] = memory->mr[r]->rkey;
        }
        size_t size = offsetof(struct cts, offer) + receive->count * sizeof(struct offer);
        int error = queues_send(&conn->queues[best], pair, conn->rail[best].generation, &cts, size,
                                NULL, &(struct work){.kind = WORK_CTS,
                                                     .sequence = receive->sequence});
        receive->cts_rail = (int8_t)best;
        if (error)
            fail_rail(conn, best, strerror(error), now_ns);
    }
}

static void watch_rail(struct conn *conn, int r, int64_t now_ns)
{
    struct rail *rail = &conn->rail[r];
    if (atomic_load_explicit(&conn->queues[r].port->down, memory_order_relaxed))
        fail_rail(conn, r, "its port is down", now_ns);
    if (rail_overdue(rail, now_ns)) {
        if (rail->state == RAIL_FENCING)
            end(conn, "a NIC does not end its work: its rail cannot be fenced");
        else
            fail_rail(conn, r, "no answer", now_ns);
    }
    if (conn->is_sender && rail_leaves(rail, living(conn), now_ns))
        fail_rail(conn, r, "a notice", now_ns);
    if (conn->is_sender)
        rebuild(conn, r, now_ns);
    else
        accept_rejoin(conn, r, now_ns);
}

/* Whether to give up: no rail for too long, or the peer has gone and something is still missing. */
static void watch_whole(struct conn *conn, int64_t now_ns)
{
    if (living(conn))
        conn->dark_ns = 0;
    else if (conn->dark_ns == 0)
        conn->dark_ns = now_ns;
    else if (now_ns - conn->dark_ns > config.survive_ns)
        end(conn, "no rail lived for SYNTONY_NCCL_SURVIVE_MS");
    if (!conn->link.closed)
        return;
    if (conn->closed_ns == 0)
        conn->closed_ns = now_ns;
    else if (now_ns - conn->closed_ns > CLOSED_GRACE_NS)
        end(conn, conn->peer_ended ? "the peer closed it" : "the peer has gone");
}

void conn_begin(struct conn *conn)
{
    int64_t now_ns = clock_ns();
    for (int r = 0; r < conn->rails; r++) {
        const struct queues *queues = &conn->queues[r];
        rail_begin(&conn->rail[r], now_ns);
        conn->flow[r] = agent_open_flow(queues->local.qpn[0], queues->local.gid,
                                        queues->remote.gid, rail_name(conn, r));
    }
}

bool conn_progress(struct conn *conn)
{
    int64_t now_ns = clock_ns();
    if (conn->problem)
        return false;
    for (int r = 0; r < conn->rails; r++)
        poll_rail(conn, r, now_ns);
    bool all_up = living(conn) == conn->rails;
    if (!all_up || conn->ticks++ % LOOK_AT_LINK == 0)
        take_controls(conn, now_ns);
    obey_agent(conn, now_ns);
    for (int r = 0; r < conn->rails; r++)
        watch_rail(conn, r, now_ns);
    if (conn->is_sender)
        post_chunks(conn, now_ns);
    else {
        post_cts(conn, now_ns);
        for (int r = 0; r < conn->rails; r++)
            give_credits(conn, r);
    }
    watch_whole(conn, now_ns);
    return conn->problem == NULL;
}

bool conn_send(struct conn *conn, const void *data, uint64_t size, int tag, struct memory *memory,
               struct send **send)
{
    *send = sender_match(&conn->sender, tag, data, size, memory, config.chunk);
    if (*send == NULL)
        return true;
    if (size > (*send)->offer.size) {
        end(conn, "a send is larger than its receive");
        return false;
    }
    post_chunks(conn, clock_ns());
    return true;
}

struct receive *conn_receive(struct conn *conn, int count, void **data, const size_t *sizes,
                             const int *tags, void **memories)
{
    struct receive *receive = receiver_post(&conn->receiver, count);
    if (receive == NULL)
        return NULL;
    for (int i = 0; i < count; i++)
        receive->place[i] = (struct place){.data = data[i], .offered = sizes[i], .tag = tags[i],
                                           .memory = memories[i]};
    post_cts(conn, clock_ns());
    return receive;
}

void conn_end(struct conn *conn)
{
    struct receipt receipts[SLOTS];
    size_t count = conn->is_sender ? 0 : receiver_report(&conn->receiver, receipts);
    if (!conn->link.closed)
        say(conn, CONTROL_BYE, 0, receipts, count * sizeof *receipts);
    link_end(&conn->link);
    for (int r = 0; r < conn->rails; r++) {
        agent_close_flow(conn->flow[r]);
        queues_end(&conn->queues[r]);
    }
    if (conn->fences)
        INFO("connection closed: rails left %" PRIu64 " times, chunks sent again %" PRIu64,
             conn->fences, conn->replayed);
}
