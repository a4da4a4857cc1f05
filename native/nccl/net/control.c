#include <string.h>

#include "conn_parts.h"
#include "log.h"

const char *conn_rail_name(const struct conn *conn, int r)
{
    return ports[conn->group.rail[r]].name;
}

int conn_living(const struct conn *conn)
{
    int count = 0;
    for (int r = 0; r < conn->rails; r++)
        count += conn->rail[r].state == RAIL_UP;
    return count;
}

void conn_stop(struct conn *conn, const char *problem)
{
    if (conn->problem == NULL) {
        conn->problem = problem;
        link_shut(&conn->link);
        WARN("connection ended: %s", problem);
    }
}

void conn_say(struct conn *conn, enum control_kind kind, int r, const void *payload, size_t size)
{
    struct control control = {.kind = (uint8_t)kind, .rail = (uint8_t)r,
                              .generation = conn->rail[r].generation, .length = (uint32_t)size,
                              .posted = conn->is_sender ? conn->sender.next : conn->receiver.next};
    if (conn->is_sender)
        control.bits = sender_cleared_after_next(&conn->sender);
    link_send(&conn->link, &control, payload);
}

/* Our end is fenced: with it the receiver says what chunks it has, and the sender what clear-to-sends. */
static void say_fenced(struct conn *conn, int r)
{
    struct receipt receipts[SLOTS];
    size_t count = conn->is_sender ? 0 : receiver_report(&conn->receiver, receipts);
    conn_say(conn, CONTROL_FENCED, r, receipts, count * sizeof *receipts);
}

/* The rail's state says that it is being left: stop its work. */
static void begin_fence(struct conn *conn, int r, const char *why, bool was_up)
{
    conn->fences++;
#ifndef NET_WITHOUT_FENCE
    if (!conn->build[r].running) /* else as soon as that has ended */
        queues_fail(&conn->queues[r]);
#endif
    if (conn->flow[r]) {
        atomic_fetch_add(&conn->flow[r]->errors, 1);
        atomic_store(&conn->flow[r]->failed, 1);
    }
    if (was_up)
        INFO("rail %s is left: %s; %d of %d rails live", conn_rail_name(conn, r), why, conn_living(conn),
             conn->rails);
}

void conn_fail_rail(struct conn *conn, int r, const char *why)
{
    bool was_up = conn->rail[r].state == RAIL_UP;
    if (rail_fail(&conn->rail[r], clock_ns()))
        begin_fence(conn, r, why, was_up);
}

bool conn_give_up_rail(struct conn *conn, int r)
{
    if (conn->rail[r].state == RAIL_UP || conn_living(conn) == 0)
        return false;
    conn->given_up |= 1U << r;
    INFO("rail %s is given up", conn_rail_name(conn, r));
    conn_fail_rail(conn, r, "memory cannot be registered with it"); /* if it is about to return */
    return true;
}

void conn_probe(struct conn *conn, int r, int queue)
{
    struct credit *record = queues_record(&conn->queues[r], queue);
    if (record == NULL)
        return;
    *record = (struct credit){.kind = RECORD_PROBE};
    queues_send(&conn->queues[r], queue, sizeof *record, NULL,
                &(struct work){0}, conn->about_ns);
}

/* What the peer lacks is to be sent again, once both ends are fenced: its report is there then. */
static void replay(struct conn *conn, int r)
{
    if (!rail_is_fenced(&conn->rail[r]))
        return;
    if (conn->is_sender)
        conn->replayed += sender_replay(&conn->sender, r, conn->report[r], conn->reports[r],
                                        conn->report_posted[r]);
    else
        receiver_replay(&conn->receiver, r, conn->report_posted[r], conn->report_bits[r]);
}

void conn_fenced(struct conn *conn, int r)
{
    rail_drained(&conn->rail[r], clock_ns());
    if (conn->is_sender)
        sender_lost(&conn->sender, r);
    say_fenced(conn, r);
    replay(conn, r);
}

static const char *begin_build(struct conn *conn, int r, bool make, const struct endpoint *remote)
{
    struct build_order order = {.make = make, .connect = remote != NULL, .seed = conn->seed,
                                .generation = conn->rail[r].generation,
                                .traffic_class = conn->traffic_class};
    if (remote)
        order.remote = *remote;
    return build_begin(&conn->build[r], &conn->queues[r], &order);
}

/* The receiver makes new queue pairs, as soon as its port allows. */
void conn_accept_rejoin(struct conn *conn, int r, int64_t now_ns)
{
    struct rail *rail = &conn->rail[r];
    if (!conn->rejoining[r] || !rail_is_fenced(rail) || conn->given_up >> r & 1 ||
        atomic_load(&conn->queues[r].port->down) || now_ns < rail->due_ns)
        return;
    conn->probes[r] = 0;
    if (begin_build(conn, r, true, &conn->rejoin[r]))
        rail_retry_later(rail, now_ns);
}

/* The sender asks for the rail again. */
void conn_rebuild(struct conn *conn, int r, int64_t now_ns)
{
    struct rail *rail = &conn->rail[r];
    if (!rail_rebuilds(rail, conn_living(conn), now_ns) || conn->given_up >> r & 1)
        return;
    if (atomic_load(&conn->queues[r].port->down) || begin_build(conn, r, true, NULL))
        rail_retry_later(rail, now_ns);
}

/* The sender's queue pairs are made: the peer is asked; or they are connected, too. */
static void sender_built(struct conn *conn, int r, int64_t now_ns)
{
    struct rail *rail = &conn->rail[r];
    if (!conn->build[r].order.connect) {
        rail_asked(rail, now_ns);
        conn_say(conn, CONTROL_REJOIN, r, &conn->queues[r].local, sizeof conn->queues[r].local);
        return;
    }
    rail_connected(rail, now_ns);
    for (int i = 0; i < conn->queues[r].qps; i++)
        conn_probe(conn, r, i);
}

/* The receiver's are: unless the sender has given this generation up meanwhile. */
static void receiver_built(struct conn *conn, int r, int64_t now_ns)
{
    if (conn->build[r].order.generation != conn->rail[r].generation)
        return;
    conn->rejoining[r] = false;
    rail_connected(&conn->rail[r], now_ns);
    conn_say(conn, CONTROL_ACCEPT, r, &conn->queues[r].local, sizeof conn->queues[r].local);
}

void conn_take_build(struct conn *conn, int r, int64_t now_ns)
{
    struct rail *rail = &conn->rail[r];
    const char *problem;
    if (!build_ended(&conn->build[r], &problem))
        return;
    if (problem && problem != conn->said[r])
        INFO("rail %s does not return: %s", conn_rail_name(conn, r), conn->said[r] = problem);
    if (rail->state == RAIL_FENCING) { /* it was left meanwhile */
        queues_fail(&conn->queues[r]);
        rail->due_ns = now_ns + RAIL_DRAIN_NS;
    } else if ((problem || conn->given_up >> r & 1) && rail->state == RAIL_DOWN)
        rail_retry_later(rail, now_ns);
    else if (problem)
        conn_fail_rail(conn, r, problem);
    else if (conn->is_sender)
        sender_built(conn, r, now_ns);
    else
        receiver_built(conn, r, now_ns);
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
    conn->report_bits[r] = control->bits;
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

/* What a peer says of a rail's return is of this generation: before it goes on to the next one each end waits
 * for the other one's word on that, and words come in order. */
static void take_control(struct conn *conn, const struct control *control, const void *payload,
                         int64_t now_ns)
{
    int r = control->rail;
    struct endpoint remote;
    if (r >= conn->rails) {
        conn_stop(conn, "the peer named a rail that is none");
        return;
    }
    struct rail *rail = &conn->rail[r];
    bool has_endpoint = control->length == sizeof remote;
    if (has_endpoint)
        memcpy(&remote, payload, sizeof remote);
    if (control->kind == CONTROL_FENCED)
        peer_fenced(conn, control, payload, now_ns);
    else if (control->kind == CONTROL_REJOIN && has_endpoint && !conn->is_sender) {
        conn->rejoining[r] = true;
        conn->rejoin[r] = remote;
        rail->due_ns = now_ns;
    } else if (control->kind == CONTROL_ACCEPT && has_endpoint && conn->is_sender) {
        if (rail->state == RAIL_WAIT_ACK && !conn->build[r].running) {
            conn->probes[r] = 0;
            begin_build(conn, r, false, &remote); /* if it cannot, "no answer" follows */
        }
    } else if (control->kind == CONTROL_LEAVE && conn->is_sender)
        rail->held_until_ns = control->hold_ns > INT64_MAX / 2 ? INT64_MAX
                                                               : now_ns + control->hold_ns;
    else if (control->kind == CONTROL_RETURN && conn->is_sender)
        rail->held_until_ns = 0;
    else if (control->kind == CONTROL_BYE)
        peer_ended(conn, control, payload);
    else
        conn_stop(conn, "the peer sent what is no message");
}

void conn_take_controls(struct conn *conn, int64_t now_ns)
{
    struct control control;
    const void *payload = NULL;
    int got = 0;
    while (conn->problem == NULL && (got = link_receive(&conn->link, &control, &payload)) > 0)
        take_control(conn, &control, payload, now_ns);
    if (got < 0)
        conn_stop(conn, "the peer sent what is no message");
    link_flush(&conn->link);
}

/* The agent's notices: the sender decides, so that two ends never leave two rails at once. */
void conn_obey_agent(struct conn *conn, int64_t now_ns)
{
    uint32_t version = agent_version();
    if (conn->looked_at_agent && version == conn->agent_seen && now_ns < conn->agent_expires_ns)
        return;
    bool first = !conn->looked_at_agent;
    conn->agent_seen = version;
    conn->looked_at_agent = true;
    conn->agent_expires_ns = INT64_MAX;
    conn->is_ordered = false;
    for (int r = 0; r < conn->rails; r++) {
        struct agent_word word = agent_word(conn->way[r].local, conn->way[r].remote,
                                            queues_class(conn->traffic_class), now_ns);
        int64_t until_ns = word.held_until_ns;
        struct rail *rail = &conn->rail[r];
        conn->pacer[r] = word.pacer;
        conn->avoided_until_ns[r] = word.avoided_until_ns;
        conn->is_ordered |= word.pacer != NULL || word.avoided_until_ns;
        if (word.expires_ns < conn->agent_expires_ns)
            conn->agent_expires_ns = word.expires_ns;
        rail->move |= !first && word.moves > conn->moves[r];
        conn->moves[r] = word.moves;
        if (until_ns == rail->agent_held_until_ns)
            continue;
        rail->agent_held_until_ns = until_ns;
        if (conn->is_sender)
            continue;
        struct control control = {.kind = until_ns ? CONTROL_LEAVE : CONTROL_RETURN,
                                  .rail = (uint8_t)r, .hold_ns = until_ns - now_ns};
        link_send(&conn->link, &control, NULL);
    }
}
