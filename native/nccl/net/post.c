#include <string.h>

#include "conn_parts.h"

/* An order to send by other rails counts only while one of them lives of which neither an order nor a
 * notice says to stay away. */
static bool is_avoided(const struct conn *conn, int r, int64_t now_ns)
{
    for (int q = 0; q < conn->rails && now_ns < conn->avoided_until_ns[r]; q++)
        if (conn->rail[q].state == RAIL_UP && now_ns >= conn->rail[q].held_until_ns &&
            now_ns >= conn->avoided_until_ns[q])
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

void conn_post_chunks(struct conn *conn)
{
    struct send *send;
    unsigned chunk;
    int64_t now_ns = 0;
    while (sender_next_chunk(&conn->sender, &send, &chunk)) {
        int best = -1, pair = -1;
        if (conn->is_ordered && now_ns == 0)
            now_ns = clock_ns();
        unsigned first = (unsigned)send->sequence % (unsigned)conn->rails; /* of rails as empty */
        for (int k = 0; k < conn->rails; k++) {
            int r = ((int)first + k) % conn->rails;
            int i = may_send(conn, r, now_ns) ? queues_pick(&conn->queues[r], true) : -1;
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
                                .size = send->size};
        struct ibv_sge sge = {(uint64_t)(uintptr_t)send->data + offset, (uint32_t)length,
                              memory->mr[best]->lkey};
        struct ibv_send_wr payload = {
            .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_RDMA_WRITE,
            .wr.rdma = {send->offer.address + offset, send->offer.rkey[best]}};
        struct work work = {WORK_CHUNK, chunk, send->sequence, length, send};
        int error = queues_send(&conn->queues[best], pair, conn->rail[best].generation, &header,
                                sizeof header, length ? &payload : NULL, &work);
        sender_posted(send, chunk, best);
        if (conn->pacer[best])
            pacer_sent(conn->pacer[best], length, now_ns);
        conn->queues[best].queue[pair].credits--;
        if (error)
            conn_fail_rail(conn, best, strerror(error));
    }
}

void conn_post_cts(struct conn *conn)
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
                                NULL, &(struct work){.kind = WORK_OTHER});
        receive->cts_rail = (int8_t)best;
        if (error)
            conn_fail_rail(conn, best, strerror(error));
    }
}

void conn_give_credits(struct conn *conn, int r)
{
    struct queues *queues = &conn->queues[r];
    if (!conn->owes_credit[r] || conn->rail[r].state != RAIL_UP)
        return;
    conn->owes_credit[r] = false;
    for (int i = 0; i < queues->qps; i++) {
        struct credit record = {.kind = RECORD_CREDIT,
                                .count = (uint16_t)queues->queue[i].consumed};
        if (record.count < CREDIT_STEP)
            continue;
        if (queues_send(queues, i, conn->rail[r].generation, &record, sizeof record, NULL,
                        &(struct work){.kind = WORK_OTHER}) == 0)
            queues->queue[i].consumed = 0;
        else
            conn->owes_credit[r] = true;
    }
}
