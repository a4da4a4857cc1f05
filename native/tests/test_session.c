#include "check.h"
#include "session.h"

static struct syn_sessions sessions;
static uint64_t evicted;
static int64_t now_ns;

static struct syn_packet request(uint32_t flow_id, uint64_t epoch, uint32_t seq, uint32_t key_id)
{
    return (struct syn_packet){.type = SYN_PACKET_REQUEST, .src_nic = 1, .dst_nic = 2,
                               .flow_id = flow_id, .epoch = epoch, .seq = seq, .key_id = key_id};
}

static struct syn_session *accept(struct syn_packet packet)
{
    return syn_sessions_accept(&sessions, &packet, 7, ++now_ns, &evicted);
}

static void each_request_counts_once(void)
{
    CHECK(accept(request(1, 10, 0, 7)) != NULL);
    CHECK(accept(request(1, 10, 0, 7)) == NULL);
    struct syn_session *session = accept(request(1, 10, 5, 7));
    CHECK_EQUAL(session->bitmap, 0x21);
    CHECK(accept(request(1, 10, 3, 7)) != NULL); /* overtaken, not repeated */
    CHECK(accept(request(1, 10, 3, 7)) == NULL);
    CHECK_EQUAL(session->bitmap, 0x25);
    CHECK_EQUAL(session->count, 3);
    CHECK_EQUAL(session->first_seq, 0);
    CHECK_EQUAL(session->high_seq, 5);
}

static void beyond_the_window_is_a_replay(void)
{
    CHECK(accept(request(2, 10, 100, 7)) != NULL);
    CHECK(accept(request(2, 10, 37, 7)) != NULL);
    CHECK(accept(request(2, 10, 36, 7)) == NULL);
    CHECK(accept(request(2, 10, 1000, 7)) != NULL);
    CHECK(accept(request(2, 10, 100, 7)) == NULL);
}

static void sequence_numbers_wrap(void)
{
    CHECK(accept(request(3, 10, 0xffffffff, 7)) != NULL);
    struct syn_session *session = accept(request(3, 10, 0, 7));
    CHECK(session != NULL);
    CHECK_EQUAL(session->high_seq, 0);
    CHECK_EQUAL(session->bitmap, 3);
    CHECK(accept(request(3, 10, 0xffffffff, 7)) == NULL);
}

static void a_past_epoch_is_a_replay_unless_the_key_changed(void)
{
    CHECK(accept(request(4, 10, 8, 6)) != NULL);
    CHECK(accept(request(4, 11, 0, 6)) != NULL);
    CHECK(accept(request(4, 10, 9, 6)) == NULL);
    struct syn_session *session = accept(request(4, 5, 0, 7));
    CHECK(session != NULL);
    CHECK_EQUAL(session->count, 1);
    CHECK(accept(request(4, 4, 0, 7)) == NULL);
    CHECK(accept(request(4, 4, 0, 6)) == NULL);
}

static void stamps_follow_with_the_next_replies(void)
{
    struct syn_packet first = request(5, 10, 0, 7), second = request(5, 10, 1, 7);
    struct syn_packet third = request(5, 10, 2, 7), reply;
    CHECK_EQUAL(syn_session_reply(accept(first), &first, &reply), 0);
    CHECK_EQUAL(reply.follow_t3_ns[0], 0);
    CHECK_EQUAL(syn_session_reply(accept(second), &second, &reply), 0);
    struct syn_session *session = accept(third);
    syn_session_stamp(session, 5, 0, 1000);
    syn_session_stamp(session, 5, 1, 2000);
    syn_session_stamp(session, 99, 1, 3000);
    CHECK_EQUAL(syn_session_reply(session, &third, &reply), 0);
    CHECK_EQUAL(reply.type, SYN_PACKET_REPLY);
    CHECK_EQUAL(reply.count, 3);
    CHECK_EQUAL(reply.follow_seq[0], 1);
    CHECK_EQUAL(reply.follow_t3_ns[0], 2000);
    CHECK_EQUAL(reply.follow_seq[1], 0);
    CHECK_EQUAL(reply.follow_t3_ns[1], 1000);
}

static void a_stamp_that_never_comes_is_noticed(void)
{
    struct syn_packet reply;
    int given_up = 0;
    for (uint32_t seq = 0; seq < 4; seq++) {
        struct syn_packet packet = request(6, 10, seq, 7);
        given_up += syn_session_reply(accept(packet), &packet, &reply);
    }
    CHECK_EQUAL(given_up, 2); /* of four replies, two may still be stamped */
}

/* More flows than the table holds: old ones go, the newest is always there. */
static void the_table_is_bounded(void)
{
    evicted = 0;
    for (uint32_t flow = 100; flow < 20100; flow++) {
        CHECK(accept(request(flow, 10, 0, 7)) != NULL);
        CHECK(accept(request(flow, 10, 0, 7)) == NULL);
    }
    CHECK(evicted > 15000 && evicted < 20000);
}

static int hasty_after(uint32_t flow_id, int64_t interval_ns, uint32_t at_once, uint32_t times)
{
    struct syn_session *session = NULL;
    for (uint32_t i = 0; i < times; i++, now_ns += interval_ns)
        for (uint32_t j = 0; j < at_once; j++)
            session = accept(request(flow_id, 10, i * at_once + j, 7));
    return syn_session_is_hasty(session);
}

static void who_watches_a_path_is_told_from_who_probes_it(void)
{
    const int64_t ms = 1000000;
    CHECK(hasty_after(70, 50 * ms, 1, 3));
    CHECK(hasty_after(71, 2 * ms, 1, 3));
    CHECK(!hasty_after(72, 500 * ms, 2, 20));
    CHECK(hasty_after(73, 50 * ms, 1, 20));
    now_ns += 1000 * ms;
    CHECK(!syn_session_is_hasty(accept(request(73, 10, 20, 7)))); /* it no longer is */
}

int main(void)
{
    CHECK(syn_sessions_open(&sessions));
    each_request_counts_once();
    beyond_the_window_is_a_replay();
    sequence_numbers_wrap();
    a_past_epoch_is_a_replay_unless_the_key_changed();
    stamps_follow_with_the_next_replies();
    a_stamp_that_never_comes_is_noticed();
    the_table_is_bounded();
    who_watches_a_path_is_told_from_who_probes_it();
    syn_sessions_close(&sessions);
    return 0;
}
