#include <string.h>

#include "conn_parts.h"

/* An order to send by other rails counts only while one of them lives of which no order says so, too. One
 * that a notice says to leave does not live any more. */
static bool is_avoided(const struct conn *conn, int r, int64_t now_ns)
{
    for (int q = 0; q < conn->rails && now_ns < conn->avoided_until_ns[r]; q++)
        if (conn->rail[q].state == RAIL_UP && now_ns >= conn->avoided_until_ns[q])
            return true;
    return false;
}

static bool may_send(const struct conn *conn, int r, int64_t now_ns)
{
    return conn->rail[r].state == RAIL_UP &&
           (!conn->is_ordered ||
            (!is_avoided(conn, r, now_ns) &&
             (conn->pacer[r] == NULL || pacer_allows(conn->pacer[r], now_ns))));
}

/* The rail with the least outstanding of those that may send; of equals each in turn. -1: none. */
static int pick_rail(const struct conn *conn, uint64_t turn, int64_t now_ns, int *pair)
{
    int best = -1, r = (int)((unsigned)turn % (unsigned)conn->rails);
    for (int k = 0; k < conn->rails; k++, r = r + 1 == conn->rails ? 0 : r + 1) {
        if (!may_send(conn, r, now_ns) || (best >= 0 && conn->queues[r].bytes_outstanding >=
                                                            conn->queues[best].bytes_outstanding))
            continue;
        int i = queues_pick(&conn->queues[r], true);
        if (i >= 0) {
            best = r;
            *pair = i;
        }
    }
    return best;
}

void conn_post_chunks(struct conn *conn)
{
    struct send *send;
    unsigned chunk;
    int pair, r;
    int64_t now_ns = 0;
    if (conn->is_ordered)
        conn->about_ns = now_ns = clock_ns();
    while (sender_next_chunk(&conn->sender, &send, &chunk) &&
           (r = pick_rail(conn, send->sequence, now_ns, &pair)) >= 0) {
        struct queues *queues = &conn->queues[r];
        uint64_t offset = chunk_offset(send, chunk), length = chunk_length(send, chunk);
        const struct memory *memory = send->memory;
        *(struct header *)queues_record(queues, pair) =
            (struct header){.kind = RECORD_HEADER, .place = send->place, .chunk = (uint8_t)chunk,
                            .chunks = send->chunks, .sequence = send->sequence,
                            .size = send->size};
        struct payload payload = {send->data + offset, (uint32_t)length, memory->mr[r]->lkey,
                                  send->offer.rkey[r], send->offer.address + offset};
        struct work work = {send, send->sequence, (uint32_t)length, (uint8_t)chunk};
        int error = queues_send(queues, pair, sizeof(struct header),
                                length ? &payload : NULL, &work, conn->about_ns);
        sender_posted(&conn->sender, send, chunk, r);
        if (conn->pacer[r])
            pacer_sent(conn->pacer[r], length, now_ns);
        queues->queue[pair].credits--;
        if (error)
            conn_fail_rail(conn, r, strerror(error));
    }
}

void conn_post_cts(struct conn *conn)
{
    struct receive *receive;
    while ((receive = receiver_next_cts(&conn->receiver)) != NULL) {
        int best = -1, pair = -1, r = (int)((unsigned)receive->sequence % (unsigned)conn->rails);
        for (int k = 0; k < conn->rails && best < 0; k++, r = r + 1 == conn->rails ? 0 : r + 1)
            if (conn->rail[r].state == RAIL_UP &&
                (pair = queues_pick(&conn->queues[r], false)) >= 0)
                best = r;
        if (best < 0)
            return;
        struct cts *cts = queues_record(&conn->queues[best], pair);
        receiver_fill_cts(receive, cts);
        for (int i = 0; i < receive->count; i++) {
            const struct memory *memory = receive->place[i].memory;
            for (int q = 0; q < conn->rails; q++)
                cts->offer[i].rkey[q] = memory->mr[q] ? memory->mr[q]->rkey : 0;
        }
        size_t size = offsetof(struct cts, offer) + receive->count * sizeof(struct offer);
        int error = queues_send(&conn->queues[best], pair, size, NULL,
                                &(struct work){0}, conn->about_ns);
        receive->cts_rail = (int8_t)best;
        if (error)
            conn_fail_rail(conn, best, strerror(error));
    }
}

void conn_give_credits(struct conn *conn, int r)
{
    struct queues *queues = &conn->queues[r];
    if (conn->rail[r].state != RAIL_UP)
        return;
    conn->owes_credit[r] = false;
    for (int i = 0; i < queues->qps; i++) {
        struct credit *record = queues_record(queues, i);
        if (queues->queue[i].consumed < CREDIT_STEP)
            continue;
        if (record)
            *record = (struct credit){.kind = RECORD_CREDIT,
                                      .count = (uint16_t)queues->queue[i].consumed};
        if (record && queues_send(queues, i, sizeof *record, NULL,
                                  &(struct work){0}, conn->about_ns) == 0)
            queues->queue[i].consumed = 0;
        else
            conn->owes_credit[r] = true;
    }
}
