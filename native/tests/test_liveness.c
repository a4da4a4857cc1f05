/* One path's life as a table: what is sent and answered when, and what is concluded when. */
#include <string.h>

#include "check.h"
#include "liveness.h"

static const int64_t MS = 1000000;
static struct syn_liveness live;

/* Time is in ms in this file; probes go out each 5 ms unless said otherwise. */
static void begin(void)
{
    syn_liveness_open(&live, 5 * MS, 0);
}

/* Probes from `from` to `until`, answered after `rtt` ms. Counts transitions. */
static int run(int from, int until, int rtt)
{
    int revivals = 0;
    for (int now = from; now < until; now++) {
        uint32_t seq = live.next_seq;
        if (now % 5 == 0)
            syn_liveness_sent(&live, now * MS);
        else if (now % 5 == rtt)
            revivals += syn_liveness_reply(&live, seq - 1, now * MS);
        CHECK(!syn_liveness_check(&live, now * MS));
    }
    return revivals;
}

/* Probes into the void: the instant (ms) of death, or -1. */
static int silence(int from, int until)
{
    for (int now = from; now < until; now++) {
        if (syn_liveness_check(&live, now * MS))
            return now;
        if (now % 5 == 0)
            syn_liveness_sent(&live, now * MS);
    }
    return -1;
}

static void three_replies_make_a_life(void)
{
    begin();
    CHECK_EQUAL(live.life, SYN_LIFE_UNKNOWN);
    CHECK_EQUAL(run(0, 10, 1), 0);
    CHECK_EQUAL(live.life, SYN_LIFE_UNKNOWN);
    CHECK_EQUAL(run(10, 100, 1), 1);
    CHECK_EQUAL(live.life, SYN_LIFE_ALIVE);
}

static void four_misses_and_the_slack_make_a_death(void)
{
    begin();
    run(0, 100, 1); /* the last reply came at 96 */
    CHECK_EQUAL(silence(100, 1000), 96 + 4 * 5 + 12);
    CHECK_EQUAL(live.life, SYN_LIFE_DEAD);
    CHECK(syn_liveness_misses(&live) >= SYN_MISSES);
    CHECK_EQUAL(silence(140, 1000), -1); /* reported once */
}

static void a_path_that_never_answers_dies_too(void)
{
    begin();
    CHECK_EQUAL(silence(0, 1000), 4 * 5 + 12);
}

static void one_reply_is_no_life_after_death(void)
{
    begin();
    run(0, 100, 1);
    silence(100, 140);
    CHECK(!syn_liveness_reply(&live, live.next_seq - 1, 140 * MS));
    CHECK_EQUAL(live.life, SYN_LIFE_DEAD);
    CHECK_EQUAL(run(145, 200, 1), 1);
}

static void every_second_reply_missing_is_no_life_after_death(void)
{
    begin();
    run(0, 100, 1);
    silence(100, 140);
    for (int now = 140; now < 400; now += 10) {
        syn_liveness_sent(&live, now * MS);
        syn_liveness_sent(&live, (now + 5) * MS);
        CHECK(!syn_liveness_reply(&live, live.next_seq - 1, (now + 6) * MS));
    }
    CHECK_EQUAL(live.life, SYN_LIFE_DEAD);
}

static void a_late_reply_is_a_sign_of_life(void)
{
    begin();
    run(0, 100, 1);
    uint32_t old = live.next_seq;
    CHECK_EQUAL(silence(100, 127), -1);
    CHECK(!syn_liveness_reply(&live, old, 127 * MS));
    CHECK_EQUAL(silence(128, 128 + 4 * 5 + 12 - 1), -1);
}

static void a_path_that_was_late_gets_more_slack_and_loses_it_again(void)
{
    begin();
    run(0, 100, 1);
    uint32_t old = live.next_seq;
    CHECK_EQUAL(silence(100, 125), -1);
    syn_liveness_reply(&live, old, 125 * MS); /* 24 ms late */
    CHECK_EQUAL(syn_liveness_slack_ns(&live, 125 * MS), 36 * MS);
    CHECK(syn_liveness_slack_ns(&live, 8125 * MS) == 18 * MS);
    CHECK_EQUAL(syn_liveness_slack_ns(&live, 90125 * MS), 12 * MS);
    CHECK_EQUAL(syn_liveness_slack_ns(&live, 9000000 * MS), 12 * MS);
}

static void slack_has_a_limit(void)
{
    begin();
    run(0, 100, 1);
    uint32_t old = live.next_seq;
    syn_liveness_sent(&live, 100 * MS);
    syn_liveness_reply(&live, old, 5000 * MS);
    CHECK_EQUAL(syn_liveness_slack_ns(&live, 5000 * MS), SYN_MAX_SLACK_NS);
}

/* A standing queue: replies come each 5 ms, 60 ms old. Nothing was in flight while we were stopped
 * (the awake clock stood still), so after the backlog nothing comes for a round trip. */
static void a_long_round_trip_after_a_pause_of_ours_is_no_death(void)
{
    begin();
    for (int now = 0; now < 2000; now += 5) {
        syn_liveness_sent(&live, now * MS);
        if (now >= 60)
            syn_liveness_reply(&live, live.next_seq - 1 - 12, now * MS);
        CHECK(now < 60 || !syn_liveness_check(&live, now * MS));
        if (live.life == SYN_LIFE_DEAD)
            live.life = SYN_LIFE_ALIVE; /* before it first answered */
    }
    for (uint32_t seq = live.next_seq - 12; seq != live.next_seq; seq++)
        syn_liveness_reply(&live, seq, 2000 * MS);
    CHECK_EQUAL(silence(2000, 2059), -1);
}

static void a_new_interval_keeps_what_is_known(void)
{
    begin();
    run(0, 100, 1);
    syn_liveness_pace(&live, 2 * MS);
    for (int now = 100; now <= 108; now += 2)
        syn_liveness_sent(&live, now * MS);
    CHECK(!syn_liveness_check(&live, (96 + 4 * 2 + 12 - 1) * MS));
    CHECK(syn_liveness_check(&live, (102 + 12 + 5) * MS));
}

static void without_probes_no_verdict(void)
{
    begin();
    run(0, 100, 1);
    CHECK(!syn_liveness_check(&live, 100000 * MS));
    CHECK_EQUAL(syn_liveness_verdict_ns(&live, 100000 * MS), INT64_MAX);
}

static void a_reply_to_nothing_is_nothing(void)
{
    begin();
    CHECK(!syn_liveness_reply(&live, 7, 1));
    run(0, 100, 1);
    uint32_t answered = live.answered;
    CHECK(!syn_liveness_reply(&live, live.next_seq, 101 * MS));
    CHECK(!syn_liveness_reply(&live, live.next_seq + 1000, 101 * MS));
    CHECK_EQUAL(live.answered, answered);
}

static void sequence_numbers_wrap(void)
{
    begin();
    live.next_seq = live.answered = UINT32_MAX - 7;
    run(0, 200, 1);
    CHECK_EQUAL(live.life, SYN_LIFE_ALIVE);
    CHECK(live.next_seq < 100);
    CHECK_EQUAL(silence(200, 1000), 196 + 4 * 5 + 12);
}

int main(void)
{
    three_replies_make_a_life();
    four_misses_and_the_slack_make_a_death();
    a_path_that_never_answers_dies_too();
    one_reply_is_no_life_after_death();
    every_second_reply_missing_is_no_life_after_death();
    a_late_reply_is_a_sign_of_life();
    a_path_that_was_late_gets_more_slack_and_loses_it_again();
    slack_has_a_limit();
    a_long_round_trip_after_a_pause_of_ours_is_no_death();
    a_new_interval_keeps_what_is_known();
    without_probes_no_verdict();
    a_reply_to_nothing_is_nothing();
    sequence_numbers_wrap();
    return 0;
}
