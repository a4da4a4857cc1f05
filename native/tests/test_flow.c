/* A flow against a reflector that is a few lines here: every loss with its direction. */
#include <string.h>

#include "check.h"
#include "flow.h"
#include "session.h"

static const int64_t TIMEOUT = 1000000000, INTERVAL = 100000000;

static struct syn_flow flow;
static struct syn_ring ring;
static struct syn_probe_counters counters;
static struct syn_sink sink = {&ring, &counters};
static struct syn_stall stall;
static struct syn_sessions sessions;
static uint64_t evicted;

static void begin(void)
{
    struct syn_probe_flow config = {.flow_id = 9, .dst_nic_id = 2, .interval_ns = INTERVAL};
    CHECK(syn_flow_open(&flow, &config, 1, TIMEOUT));
    CHECK(syn_ring_open(&ring, 64));
    CHECK(syn_sessions_open(&sessions));
    memset(&counters, 0, sizeof counters);
    memset(&stall, 0, sizeof stall);
}

static void end(void)
{
    syn_flow_close(&flow);
    free(ring.records);
    syn_sessions_close(&sessions);
}

static void send(int64_t now_ns)
{
    uint32_t seq = flow.next_seq;
    syn_flow_sent(&flow, 2, now_ns, now_ns + 1, &stall, &sink);
    syn_flow_stamp(&flow, seq, now_ns + 2, &sink);
    syn_flow_stamp(&flow, seq + 1, now_ns + 3, &sink);
}

static struct syn_packet reflect(uint32_t seq)
{
    struct syn_packet request = {.type = SYN_PACKET_REQUEST, .src_nic = 1, .dst_nic = 2,
                                 .flow_id = 9, .epoch = 1, .seq = seq};
    struct syn_session *session = syn_sessions_accept(&sessions, &request, 0, 0, &evicted);
    CHECK(session != NULL);
    struct syn_packet reply;
    syn_session_reply(session, &request, &reply);
    syn_session_stamp(session, 9, seq, 5000 + seq);
    reply.t2_ns = 4000 + seq;
    return reply;
}

static enum syn_verdict deliver(struct syn_packet reply)
{
    return syn_flow_reply(&flow, &reply, 6000 + reply.seq, &stall, &sink);
}

static struct syn_probe_record take(void)
{
    struct syn_probe_record record;
    CHECK_EQUAL(syn_ring_take(&ring, &record, 1), 1);
    return record;
}

static void a_probe_is_complete_with_its_follow_up(void)
{
    begin();
    send(1);
    CHECK_EQUAL(deliver(reflect(0)), SYN_ACCEPTED);
    CHECK_EQUAL(syn_ring_pending(&ring), 0);
    CHECK_EQUAL(deliver(reflect(1)), SYN_ACCEPTED);
    struct syn_probe_record record = take();
    CHECK_EQUAL(record.seq, 0);
    CHECK_EQUAL(record.flags, 0);
    CHECK_EQUAL(record.sent_ns, 2);
    CHECK_EQUAL(record.t1_ns, 3);
    CHECK_EQUAL(record.t2_ns, 4000);
    CHECK_EQUAL(record.t3_ns, 5000);
    CHECK_EQUAL(record.t4_ns, 6000);
    end();
}

static void losses_have_a_direction(void)
{
    begin();
    send(0); /* 0: all is well, 1: request lost */
    CHECK_EQUAL(deliver(reflect(0)), SYN_ACCEPTED);
    send(INTERVAL); /* 2: reply lost, 3: all is well */
    (void)reflect(2);
    CHECK_EQUAL(deliver(reflect(3)), SYN_ACCEPTED);
    CHECK_EQUAL(take().seq, 0);
    syn_flow_sweep(&flow, TIMEOUT - 1, &stall, &sink);
    CHECK_EQUAL(syn_ring_pending(&ring), 0);
    syn_flow_sweep(&flow, TIMEOUT, &stall, &sink);
    CHECK_EQUAL(take().flags, SYN_LOST_FWD | SYN_NO_T2 | SYN_NO_T3 | SYN_NO_T4);
    syn_flow_sweep(&flow, TIMEOUT + INTERVAL, &stall, &sink);
    CHECK_EQUAL(take().flags, SYN_LOST_REV | SYN_NO_T2 | SYN_NO_T4);
    end();
}

/* A reflector that met the flow only now cannot say what it missed before. */
static void before_the_first_meeting_nothing_is_known(void)
{
    begin();
    send(0);
    CHECK_EQUAL(deliver(reflect(1)), SYN_ACCEPTED);
    syn_flow_sweep(&flow, TIMEOUT, &stall, &sink);
    CHECK(take().flags & SYN_LOST_UNKNOWN);
    end();
}

static void silence_has_no_direction(void)
{
    begin();
    for (int i = 0; i < 10; i++)
        send(i * INTERVAL);
    (void)reflect(4); /* the one request that arrived meanwhile */
    syn_flow_sweep(&flow, 10 * TIMEOUT, &stall, &sink);
    for (int i = 0; i < 20; i++)
        CHECK(take().flags & SYN_LOST_UNKNOWN);
    end();
}

static void late_and_repeated_replies_count_once(void)
{
    begin();
    send(0);
    struct syn_packet first = reflect(0), second = reflect(1);
    CHECK_EQUAL(deliver(first), SYN_ACCEPTED);
    CHECK_EQUAL(deliver(first), SYN_DUPLICATE);
    syn_flow_sweep(&flow, TIMEOUT, &stall, &sink);
    CHECK_EQUAL(take().flags, SYN_NO_T3);
    CHECK(take().flags & SYN_LOST_UNKNOWN);
    CHECK_EQUAL(deliver(second), SYN_LATE);
    CHECK_EQUAL(deliver(second), SYN_DUPLICATE);
    second.seq = 1000;
    CHECK_EQUAL(deliver(second), SYN_UNSOLICITED);
    CHECK_EQUAL(syn_ring_pending(&ring), 0);
    end();
}

static void our_own_stall_is_no_loss(void)
{
    begin();
    send(0);
    stall.mark++;
    stall.total_ns += 5 * TIMEOUT;
    syn_flow_sweep(&flow, 5 * TIMEOUT, &stall, &sink);
    CHECK_EQUAL(syn_ring_pending(&ring), 0); /* patience grows by the stall */
    CHECK_EQUAL(deliver(reflect(0)), SYN_ACCEPTED);
    syn_flow_sweep(&flow, 6 * TIMEOUT, &stall, &sink);
    CHECK(take().flags & SYN_STALL_LOCAL);
    CHECK_EQUAL(take().flags & (SYN_LOST_UNKNOWN | SYN_STALL_LOCAL),
                SYN_LOST_UNKNOWN | SYN_STALL_LOCAL);
    end();
}

static void a_late_reflector_is_no_loss(void)
{
    begin();
    send(0);
    struct syn_packet reply = reflect(1);
    reply.flags |= SYN_PACKET_LATE;
    CHECK_EQUAL(deliver(reply), SYN_ACCEPTED);
    syn_flow_sweep(&flow, TIMEOUT, &stall, &sink);
    uint32_t asked = SYN_LOST_UNKNOWN | SYN_STALL_REMOTE;
    CHECK_EQUAL(take().flags & asked, asked);
    end();
}

/* A reflector with the key may still say anything at all: it costs no time and moves nothing. */
static void a_lying_reflector_is_bounded(void)
{
    begin();
    send(0);
    struct syn_packet lie = reflect(0);
    lie.high_seq = 0x7fffffff;
    lie.first_seq = 0x40;
    lie.bitmap = UINT64_MAX;
    CHECK_EQUAL(deliver(lie), SYN_ACCEPTED);
    syn_flow_sweep(&flow, TIMEOUT, &stall, &sink);
    (void)take();
    CHECK(take().flags & SYN_LOST_UNKNOWN);
    end();
}

static void what_the_kernel_refused_is_said(void)
{
    begin();
    syn_flow_sent(&flow, 1, 0, 1, &stall, &sink);
    CHECK(take().flags & SYN_NOT_SENT);
    CHECK_EQUAL(counters.tx_stamp_missing, 0);
    end();
}

static void flight_and_ring_are_bounded(void)
{
    begin();
    int pairs = 0;
    for (; syn_flow_has_room(&flow); pairs++)
        send(pairs);
    CHECK(pairs >= TIMEOUT / INTERVAL && pairs <= 64);
    syn_flow_sweep(&flow, 2 * TIMEOUT, &stall, &sink);
    CHECK(syn_flow_has_room(&flow));
    CHECK(counters.ring_dropped == 0 || syn_ring_pending(&ring) == 64);
    CHECK_EQUAL(syn_ring_pending(&ring) + counters.ring_dropped, 2 * pairs);
    end();
}

static void numbers_wrap(void)
{
    begin();
    flow.next_seq = flow.tail_seq = 0xfffffffe;
    send(0);
    send(INTERVAL);
    for (uint32_t seq = 0xfffffffe; seq != 2; seq++)
        CHECK_EQUAL(deliver(reflect(seq)), SYN_ACCEPTED);
    CHECK_EQUAL(syn_ring_pending(&ring), 3);
    end();
}

/* The NIC was attached again while they were under way, and is stamped by another clock now. */
static void a_probe_keeps_the_clock_it_was_sent_by(void)
{
    begin();
    for (int by_nic = 1; by_nic >= 0; by_nic--) {
        uint32_t first = flow.next_seq;
        flow.hardware = by_nic;
        send(1 + first);
        flow.hardware = !by_nic;
        for (uint32_t seq = first; seq < first + 2; seq++)
            CHECK_EQUAL(deliver(reflect(seq)), SYN_ACCEPTED);
    }
    while (syn_ring_pending(&ring) > 0) {
        struct syn_probe_record record = take();
        CHECK_EQUAL((record.flags & SYN_HW_LOCAL) != 0, record.seq < 2);
    }
    end();
}

int main(void)
{
    a_probe_keeps_the_clock_it_was_sent_by();
    a_probe_is_complete_with_its_follow_up();
    losses_have_a_direction();
    before_the_first_meeting_nothing_is_known();
    silence_has_no_direction();
    late_and_repeated_replies_count_once();
    our_own_stall_is_no_loss();
    a_late_reflector_is_no_loss();
    a_lying_reflector_is_bounded();
    what_the_kernel_refused_is_said();
    flight_and_ring_are_bounded();
    numbers_wrap();
    return 0;
}
