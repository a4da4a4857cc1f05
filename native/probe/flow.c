#include "flow.h"

#include <string.h>

#include "order.h"

enum { SLOT_FREE, SLOT_OUT, SLOT_REPLIED, SLOT_DONE, SLOT_LOST };
enum { FATE_UNKNOWN, FATE_ARRIVED, FATE_ABSENT };
/* 4096 probes of 72 bytes: 4 s of patience at 500 pairs/s on one flow. */
enum { MIN_SLOTS = 16, MAX_SLOTS = 4096, BITMAP_BITS = 64 };

static struct syn_slot *slot_of(const struct syn_flow *flow, uint32_t seq)
{
    return &flow->slots[seq & flow->mask];
}

int syn_flow_open(struct syn_flow *flow, const struct syn_probe_flow *config, uint64_t epoch,
                  int64_t timeout_ns)
{
    *flow = (struct syn_flow){.config = *config, .epoch = epoch, .timeout_ns = timeout_ns};
    /* The follow-up comes with the next pair. */
    flow->follow_ns = syn_greater(timeout_ns, config->interval_ns + timeout_ns / 2);
    int64_t wanted = 2 * (flow->follow_ns / config->interval_ns + 3);
    size_t slots = MIN_SLOTS;
    while ((int64_t)slots < wanted && slots < MAX_SLOTS)
        slots *= 2;
    flow->mask = (uint32_t)slots - 1;
    flow->slots = calloc(slots, sizeof *flow->slots);
    return flow->slots != NULL;
}

void syn_flow_close(struct syn_flow *flow)
{
    free(flow->slots);
    flow->slots = NULL;
}

int syn_flow_has_room(const struct syn_flow *flow)
{
    return flow->next_seq - flow->tail_seq + 2 <= flow->mask + 1;
}

static void advance_tail(struct syn_flow *flow)
{
    while (flow->tail_seq != flow->next_seq && slot_of(flow, flow->tail_seq)->state >= SLOT_DONE)
        flow->tail_seq++;
}

static uint32_t missing_stamps(const struct syn_slot *slot)
{
    uint32_t flags = slot->t1_ns ? 0 : SYN_NO_T1;
    flags |= slot->t2_ns ? 0 : SYN_NO_T2;
    flags |= slot->t3_ns ? 0 : SYN_NO_T3;
    return flags | (slot->t4_ns ? 0 : SYN_NO_T4);
}

static void emit(struct syn_flow *flow, struct syn_slot *slot, uint32_t flags,
                 struct syn_sink *sink)
{
    struct syn_probe_record record = {
        .flow_id = flow->config.flow_id,
        .seq = slot->seq,
        .flags = slot->flags | flags | missing_stamps(slot),
        .nic_id = flow->nic_id,
        .dst_nic_id = flow->config.dst_nic_id,
        .sent_ns = slot->sent_ns,
        .t1_ns = slot->t1_ns,
        .t2_ns = slot->t2_ns,
        .t3_ns = slot->t3_ns,
        .t4_ns = slot->t4_ns,
    };
    sink->counters->tx_stamp_missing += slot->t1_ns == 0 && !(flags & SYN_NOT_SENT);
    sink->counters->ring_dropped += !syn_ring_put(sink->ring, &record);
}

void syn_flow_sent(struct syn_flow *flow, unsigned sent, int64_t now_mono_ns, int64_t now_local_ns,
                   const struct syn_stall *stall, struct syn_sink *sink)
{
    for (unsigned i = 0; i < 2; i++) {
        struct syn_slot *slot = slot_of(flow, flow->next_seq);
        *slot = (struct syn_slot){
            .seq = flow->next_seq++,
            .stall_mark = stall->mark,
            .state = i < sent ? SLOT_OUT : SLOT_DONE,
            .flags = flow->hardware ? SYN_HW_LOCAL : 0,
            .sent_mono_ns = now_mono_ns,
            .stall_base_ns = stall->total_ns,
            .sent_ns = now_local_ns,
        };
        if (slot->state == SLOT_DONE)
            emit(flow, slot, SYN_NOT_SENT, sink);
    }
    advance_tail(flow);
}

static void finish(struct syn_flow *flow, struct syn_slot *slot, struct syn_sink *sink)
{
    slot->state = SLOT_DONE;
    emit(flow, slot, 0, sink);
    advance_tail(flow);
}

static void finish_if_complete(struct syn_flow *flow, struct syn_slot *slot, struct syn_sink *sink)
{
    if (slot->state == SLOT_REPLIED && slot->t1_ns != 0 && slot->t3_ns != 0)
        finish(flow, slot, sink);
}

void syn_flow_stamp(struct syn_flow *flow, uint32_t seq, int64_t t1_ns, struct syn_sink *sink)
{
    struct syn_slot *slot = slot_of(flow, seq);
    if (slot->seq != seq || slot->t1_ns != 0)
        return;
    slot->t1_ns = t1_ns;
    finish_if_complete(flow, slot, sink);
}

/* Which requests in flight the reflector has seen. A request overtaken by a later one may still
 * come: the last word counts when the probe's time is up. */
static void learn_fates(struct syn_flow *flow, const struct syn_packet *reply)
{
    for (uint32_t back = 0; back < BITMAP_BITS; back++) {
        uint32_t seq = reply->high_seq - back;
        if ((int32_t)(seq - flow->tail_seq) < 0 || (int32_t)(seq - reply->first_seq) < 0)
            return;
        struct syn_slot *slot = slot_of(flow, seq);
        if (slot->state == SLOT_OUT && slot->seq == seq)
            slot->fate = reply->bitmap >> back & 1 ? FATE_ARRIVED : FATE_ABSENT;
    }
}

static void learn_follow_ups(struct syn_flow *flow, const struct syn_packet *reply,
                             struct syn_sink *sink)
{
    for (int i = 0; i < 2; i++) {
        struct syn_slot *slot = slot_of(flow, reply->follow_seq[i]);
        if (reply->follow_t3_ns[i] == 0 || slot->seq != reply->follow_seq[i])
            continue;
        if (slot->state != SLOT_OUT && slot->state != SLOT_REPLIED)
            continue;
        slot->t3_ns = reply->follow_t3_ns[i];
        finish_if_complete(flow, slot, sink);
    }
}

/* A late reflector may have lost any request that was in flight to it. */
static void mark_remote_stall(struct syn_flow *flow)
{
    for (uint32_t seq = flow->tail_seq; seq != flow->next_seq; seq++)
        if (slot_of(flow, seq)->state == SLOT_OUT)
            slot_of(flow, seq)->flags |= SYN_STALL_REMOTE;
}

static void accept(struct syn_slot *slot, const struct syn_packet *reply, int64_t t4_ns,
                   const struct syn_stall *stall)
{
    slot->state = SLOT_REPLIED;
    slot->t2_ns = reply->t2_ns;
    slot->t4_ns = t4_ns;
    slot->flags |= slot->stall_mark != stall->mark ? SYN_STALL_LOCAL : 0;
    slot->flags |= reply->flags & SYN_PACKET_HARDWARE ? SYN_HW_REMOTE : 0;
}

enum syn_verdict syn_flow_reply(struct syn_flow *flow, const struct syn_packet *reply,
                                int64_t t4_ns, const struct syn_stall *stall,
                                struct syn_sink *sink)
{
    struct syn_slot *slot = slot_of(flow, reply->seq);
    if (slot->seq != reply->seq || slot->state == SLOT_FREE)
        return SYN_UNSOLICITED;
    if (slot->state == SLOT_REPLIED || slot->state == SLOT_DONE)
        return SYN_DUPLICATE;
    if (reply->flags & SYN_PACKET_LATE)
        mark_remote_stall(flow);
    enum syn_verdict verdict = SYN_LATE;
    if (slot->state == SLOT_OUT) {
        accept(slot, reply, t4_ns, stall);
        verdict = SYN_ACCEPTED;
    } else {
        slot->state = SLOT_DONE;
    }
    learn_fates(flow, reply);
    learn_follow_ups(flow, reply, sink);
    finish_if_complete(flow, slot, sink);
    return verdict;
}

static uint32_t loss_direction(const struct syn_slot *slot)
{
    if (slot->fate == FATE_ARRIVED || slot->t3_ns != 0)
        return SYN_LOST_REV;
    return slot->fate == FATE_ABSENT ? SYN_LOST_FWD : SYN_LOST_UNKNOWN;
}

static void declare_lost(struct syn_flow *flow, struct syn_slot *slot,
                         const struct syn_stall *stall, struct syn_sink *sink)
{
    slot->state = SLOT_LOST;
    uint32_t flags = loss_direction(slot);
    flags |= slot->stall_mark != stall->mark ? SYN_STALL_LOCAL : 0;
    emit(flow, slot, flags, sink);
}

void syn_flow_sweep(struct syn_flow *flow, int64_t now_mono_ns, const struct syn_stall *stall,
                    struct syn_sink *sink)
{
    for (uint32_t seq = flow->tail_seq; seq != flow->next_seq; seq++) {
        struct syn_slot *slot = slot_of(flow, seq);
        int64_t waited_ns = now_mono_ns - slot->sent_mono_ns - (stall->total_ns - slot->stall_base_ns);
        if (waited_ns < flow->timeout_ns)
            break;
        if (slot->state == SLOT_OUT)
            declare_lost(flow, slot, stall, sink);
        else if (slot->state == SLOT_REPLIED && waited_ns >= flow->follow_ns) {
            slot->state = SLOT_DONE;
            emit(flow, slot, 0, sink);
        }
    }
    advance_tail(flow);
}
