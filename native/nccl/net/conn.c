#include "conn.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "config.h"
#include "conn_parts.h"
#include "log.h"

static const int64_t CLOSED_GRACE_NS = INT64_C(1000000000);
enum { LOOK = 16, LOOK_AT_LINK = 256, COMPLETIONS = 16 };

/* A flow of the agent is of the path between two addresses. */
static void report_flow(struct conn *conn, int r)
{
    const struct queues *queues = &conn->queues[r];
    struct way way;
    memcpy(way.local, queues->local.gid, sizeof way.local);
    memcpy(way.remote, queues->remote.gid, sizeof way.remote);
    if (conn->flow[r] && memcmp(&way, &conn->way[r], sizeof way) == 0)
        return;
    agent_close_flow(conn->flow[r]);
    conn->way[r] = way;
    conn->bytes_done[r] = 0;
    conn->looked_at_agent = false;
    conn->flow[r] = agent_open_flow(queues->local.qpn[0], way.local, way.remote,
                                    conn_rail_name(conn, r));
}

static void prove_if_done(struct conn *conn, int r)
{
    struct rail *rail = &conn->rail[r];
    if (rail->state != RAIL_PROBE || conn->probes[r] < conn->queues[r].qps)
        return;
    for (int i = 0; i < conn->queues[r].qps; i++)
        if (conn->queues[r].queue[i].outstanding)
            return;
    rail_proved(rail, clock_ns());
    conn->said[r] = NULL;
    report_flow(conn, r);
    if (conn->flow[r])
        atomic_store(&conn->flow[r]->failed, 0);
    INFO("rail %s is back; %d of %d rails live", conn_rail_name(conn, r), conn_living(conn), conn->rails);
}

static const char *take_record(struct conn *conn, int r, const struct completion *found)
{
    const struct credit *record = found->record;
    struct queue *queue = &conn->queues[r].queue[found->queue];
    switch (record->kind) {
    case RECORD_PROBE:
        conn->probes[r]++;
        if (!conn->is_sender && conn->rail[r].state == RAIL_PROBE)
            conn_probe(conn, r, found->queue);
        return NULL;
    case RECORD_CREDIT:
        queue->credits += record->count;
        return conn->is_sender && queue->credits <= CREDITS ? NULL : "invalid credit";
    case RECORD_CTS:
        return conn->is_sender && sender_cleared(&conn->sender, found->record) ? NULL
                                                                  : "invalid clear-to-send";
    case RECORD_HEADER:
        if (conn->is_sender || !receiver_arrived(&conn->receiver, found->record))
            return "invalid chunk";
        return NULL;
    default:
        return "invalid record";
    }
}

static void take_work(struct conn *conn, int r, const struct work *work)
{
    struct send *send = work->send;
    if (send && send->sequence == work->sequence)
        sender_acknowledged(send, work->chunk, r);
    conn->bytes_done[r] += work->bytes;
    conn->finished[r] = true;
}

static void take(struct conn *conn, int r, const struct completion *found)
{
    bool fencing = conn->rail[r].state == RAIL_FENCING;
    if (found->status != IBV_WC_SUCCESS) {
        if (fencing) /* it is flushed */
            return;
        if (conn->flow[r])
            atomic_store(&conn->flow[r]->last_error, found->status);
        conn_fail_rail(conn, r, verbs.wc_status_str(found->status));
        return;
    }
    if (!found->is_receive) {
        if (found->work)
            take_work(conn, r, found->work);
        return;
    }
    bool is_header = ((const struct credit *)found->record)->kind == RECORD_HEADER;
    const char *problem = take_record(conn, r, found);
    if (problem)
        conn_stop(conn, problem);
    if (fencing)
        return;
    if (queues_receive_again(&conn->queues[r], found->queue, found->slot))
        conn_fail_rail(conn, r, "a receive cannot be posted");
    else if (is_header && ++conn->queues[r].queue[found->queue].consumed >= CREDIT_STEP)
        conn->owes_credit[r] = true;
}

/* Its work does not end. To a sender the receiver's fence is enough: whatever this NIC still sends, at the other
 * end nothing is taken any more before the receiver asks again for what it wants, and says what it has. The
 * receiver itself cannot do so: of a chunk that its NIC acknowledged and did not tell of, the sender may have
 * given the buffer back. */
static void abandon(struct conn *conn, int r)
{
    if (conn->rail[r].state != RAIL_FENCING)
        return;
    WARN("%s does not end its work", conn_rail_name(conn, r));
    if (conn->is_sender)
        conn_fenced(conn, r);
    else
        conn_stop(conn, "a NIC does not end its work: its rail cannot be fenced");
}

static void take_all(struct conn *conn, int r, const struct ibv_wc *wc, int count)
{
    struct completion found;
    conn->about_ns = clock_about_ns();
    for (int i = 0; i < count; i++) {
        queues_completed(&conn->queues[r], &wc[i], conn->about_ns, &found);
        take(conn, r, &found);
    }
}

static void poll_rail(struct conn *conn, int r)
{
    struct ibv_wc wc[COMPLETIONS];
    int count;
    if (conn->build[r].running || conn->rail[r].state == RAIL_DOWN) /* then nothing is outstanding */
        return;
    do {
        count = queues_poll(&conn->queues[r], wc, COMPLETIONS);
        if (count < 0) {
            conn_fail_rail(conn, r, "its completion queue failed");
            abandon(conn, r);
            return;
        }
        if (count)
            take_all(conn, r, wc, count);
    } while (count == COMPLETIONS);
}

/* Whether a rail that is not up is drained, or proved. */
static void advance(struct conn *conn, int r)
{
    if (conn->build[r].running)
        return;
    prove_if_done(conn, r);
#if defined NET_WITHOUT_FENCE || defined NET_WITHOUT_DRAIN /* tests show what these prevent */
    if (conn->rail[r].state == RAIL_FENCING)
        conn_fenced(conn, r);
#endif
    if (conn->rail[r].state == RAIL_FENCING && queues_drained(&conn->queues[r]))
        conn_fenced(conn, r);
}

static void watch_rail(struct conn *conn, int r, int64_t now_ns)
{
    struct rail *rail = &conn->rail[r];
    rail_looked_at(rail, now_ns);
    if (atomic_load_explicit(&conn->queues[r].port->down, memory_order_relaxed))
        conn_fail_rail(conn, r, "its port is down");
    unsigned failures = atomic_load_explicit(&conn->queues[r].port->failures, memory_order_relaxed);
    if (failures != conn->failures[r]) {
        conn->failures[r] = failures;
        conn_fail_rail(conn, r, "its device told of a failed queue");
    }
    conn_take_build(conn, r, now_ns);
    if (conn->build[r].running)
        return;
    if (rail_overdue(rail, now_ns)) {
        if (rail->state == RAIL_FENCING)
            abandon(conn, r);
        else
            conn_fail_rail(conn, r, "no answer");
    }
    if (conn->is_sender && rail_leaves(rail, conn_living(conn), now_ns))
        conn_fail_rail(conn, r, rail->move ? "it is to take another way" : "a notice");
    if (conn->is_sender)
        conn_rebuild(conn, r, now_ns);
    else
        conn_accept_rejoin(conn, r, now_ns);
}

/* Whether every port is up, and the next step of its rail's return is the peer's, who takes it when its NCCL
 * calls. A receiver waits for its sender until that has asked for the rail. */
static bool waits_for_peer(const struct conn *conn)
{
    for (int r = 0; r < conn->rails; r++) {
        const struct rail *rail = &conn->rail[r];
        bool asks = rail->state == RAIL_WAIT_ACK || (rail->state == RAIL_DOWN && !rail->peer_fenced);
        if (atomic_load(&conn->queues[r].port->down) || !(conn->is_sender ? asks : !conn->rejoining[r]))
            return false;
    }
    return true;
}

/* How long there has been no rail, not counting what this end could do nothing in: NCCL did not call, or
 * the peer's does not. Its host answers meanwhile, or the control connection ends. */
static void watch_dark(struct conn *conn, int64_t now_ns)
{
    int64_t since_ns = now_ns - conn->watched_ns;
    conn->watched_ns = now_ns;
    if (conn_living(conn)) {
        if (conn->dark_ns)
            link_end_after(&conn->link, -1);
        conn->dark_ns = 0;
    } else if (conn->dark_ns == 0) {
        link_end_after(&conn->link, config.survive_ns);
        conn->dark_ns = now_ns;
    } else if (waits_for_peer(conn))
        conn->dark_ns += since_ns;
    else if (since_ns > RAIL_LOOK_NS)
        conn->dark_ns += since_ns - RAIL_LOOK_NS;
    if (conn->dark_ns && now_ns - conn->dark_ns > config.survive_ns)
        conn_stop(conn, "no rail lived for SYNTONY_NCCL_SURVIVE_MS");
}

/* Whether to give up: no rail for too long, or the peer has gone and something is still missing. */
static void watch_whole(struct conn *conn, int64_t now_ns)
{
    watch_dark(conn, now_ns);
    if (!conn->link.closed)
        return;
    if (conn->closed_ns == 0)
        conn->closed_ns = now_ns;
    else if (now_ns - conn->closed_ns > CLOSED_GRACE_NS)
        conn_stop(conn, conn->peer_ended ? "the peer closed it" : "the peer has gone");
}

void conn_begin(struct conn *conn, unsigned connected)
{
    int64_t now_ns = conn->about_ns = clock_ns();
    for (int r = 0; r < conn->rails; r++) {
        (connected >> r & 1 ? rail_begin : rail_begin_down)(&conn->rail[r], now_ns);
        report_flow(conn, r);
        if (conn->flow[r])
            atomic_store(&conn->flow[r]->failed, !(connected >> r & 1));
    }
    for (int r = 0; r < conn->rails; r++)
        if (conn->rail[r].state != RAIL_UP)
            INFO("rail %s is not connected yet; %d of %d rails live", conn_rail_name(conn, r),
                 conn_living(conn), conn->rails);
}

static void tell_finished(struct conn *conn, int r, int64_t now_ns)
{
    struct agent_flow *flow = conn->flow[r];
    atomic_store_explicit(&flow->bytes_done, conn->bytes_done[r], memory_order_relaxed);
    atomic_store_explicit(&flow->last_done_ns, now_ns, memory_order_relaxed);
    conn->finished[r] = false;
}

/* What is not looked at with each poll: NCCL polls far more often than any of it changes. */
static void look_around(struct conn *conn, bool calm)
{
    int64_t now_ns = calm ? clock_about_ns() : clock_ns();
    if (now_ns < conn->looked_ns) /* what has expired by the exact clock stays expired */
        now_ns = conn->looked_ns;
    conn->about_ns = now_ns;
    if (!calm || now_ns != conn->looked_ns || conn->ticks % LOOK_AT_LINK == 0) {
        conn->looked_ns = now_ns;
        conn_take_controls(conn, now_ns);
        watch_agent(now_ns);
    }
    conn_obey_agent(conn, now_ns);
    for (int r = 0; r < conn->rails; r++)
        if (conn->finished[r] && conn->flow[r])
            tell_finished(conn, r, now_ns);
    for (int r = 0; r < conn->rails; r++) {
        watch_rail(conn, r, now_ns);
        if (!calm) /* queue pairs that were put in error may have taken seconds */
            now_ns = clock_ns();
    }
    watch_whole(conn, now_ns);
}

bool conn_works(const struct conn *conn)
{
    return conn->problem == NULL;
}

bool conn_progress(struct conn *conn)
{
    if (conn->problem)
        return false;
    bool calm = !conn->link.closed;
    for (int r = 0; r < conn->rails; r++) {
        poll_rail(conn, r);
        if (conn->rail[r].state != RAIL_UP) {
            advance(conn, r);
            calm = false;
        }
    }
    if (!calm || ++conn->ticks % LOOK == 0)
        look_around(conn, calm);
    if (conn->is_sender && conn->sender.todo)
        conn_post_chunks(conn);
    if (!conn->is_sender && conn->receiver.waiting)
        conn_post_cts(conn);
    for (int r = 0; r < conn->rails; r++)
        if (conn->owes_credit[r]) /* only a receiver does */
            conn_give_credits(conn, r);
    return conn->problem == NULL;
}

bool conn_send(struct conn *conn, const void *data, uint64_t size, int tag, struct memory *memory,
               struct send **send)
{
    /* While rails are paced or avoided: small ones, which can be shared out. */
    uint64_t most = conn->is_ordered ? config.least_chunk : config.most_chunk;
    *send = sender_match(&conn->sender, tag, data, size, memory,
                         chunk_size_for(size, conn->rails, config.least_chunk, most));
    if (*send == NULL)
        return true;
    conn->about_ns = clock_about_ns();
    if (size > (*send)->offer.size) {
        conn_stop(conn, "a send is larger than its receive");
        return false;
    }
    conn_post_chunks(conn);
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
    conn->about_ns = clock_about_ns();
    conn_post_cts(conn);
    return receive;
}

void conn_end(struct conn *conn)
{
    struct receipt receipts[SLOTS];
    size_t count = conn->is_sender ? 0 : receiver_report(&conn->receiver, receipts);
    conn_say(conn, CONTROL_BYE, 0, receipts, count * sizeof *receipts);
    link_end(&conn->link);
    for (int r = 0; r < conn->rails; r++)
        agent_close_flow(conn->flow[r]);
    if (conn->fences)
        INFO("connection closed: rails left %" PRIu64 " times, chunks sent again %" PRIu64,
             conn->fences, conn->replayed);
    conn_free(conn);
}

static bool ends_later(const struct conn *conn, int r)
{
    enum rail_state state = conn->rail[r].state;
    return conn->build[r].running || state == RAIL_DOWN || (conn->is_sender && state == RAIL_FENCING);
}

static void *free_later(void *argument)
{
    struct conn *conn = argument;
    for (int r = 0; r < MAX_RAILS; r++)
        if (ends_later(conn, r)) {
            build_wait(&conn->build[r]);
            queues_end(&conn->queues[r]);
        }
    free(conn);
    return NULL;
}

void conn_free(struct conn *conn)
{
    bool later = false;
    pthread_t thread;
    for (int r = 0; r < MAX_RAILS; r++)
        if (ends_later(conn, r))
            later = true;
        else if (conn->queues[r].port)
            queues_end(&conn->queues[r]);
    if (later && pthread_create(&thread, NULL, free_later, conn) == 0)
        pthread_detach(thread);
    else
        free_later(conn);
}
