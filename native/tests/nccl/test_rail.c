/* The states of a rail at one end: pure. */
#include "check.h"
#include "rail.h"

static void a_notice_spares_the_last_rail(void)
{
    struct rail rail;
    rail_begin(&rail, 0);
    rail.held_until_ns = 100;
    CHECK(rail_leaves(&rail, 2, 99));
    CHECK(!rail_leaves(&rail, 1, 99));
    CHECK(!rail_leaves(&rail, 2, 100));
    rail.move = true; /* and an order to move */
    CHECK(rail_leaves(&rail, 2, 100));
    CHECK(!rail_leaves(&rail, 1, 100));
    CHECK(rail_fail(&rail, 101)); /* which is done with that */
    CHECK(!rail.move);
    rail.held_until_ns = 200;
    CHECK(!rail_leaves(&rail, 2, 102)); /* it is left already */
    rail_begin(&rail, 0);
    rail.held_until_ns = 100;
    rail.agent_held_until_ns = 200; /* of either agent's notices the longer one counts */
    CHECK(rail_leaves(&rail, 2, 199));
    CHECK(!rail_leaves(&rail, 2, 200));
    rail.held_until_ns = 300;
    CHECK(rail_leaves(&rail, 2, 299));
}

static void a_rail_goes_round(void)
{
    struct rail rail;
    rail_begin(&rail, 0);
    CHECK(rail_fail(&rail, 10));
    CHECK(!rail_fail(&rail, 11)); /* once */
    CHECK(!rail_overdue(&rail, 10 + RAIL_DRAIN_NS - 1));
    CHECK(rail_overdue(&rail, 10 + RAIL_DRAIN_NS));
    CHECK_EQUAL(rail.state, RAIL_FENCING);
    CHECK_EQUAL(rail.generation, 2);
    CHECK_EQUAL(rail_peer_fenced(&rail, 2, 12), RAIL_AGREED);
    CHECK(!rail_is_fenced(&rail)); /* the peer is, we are not yet */
    rail_drained(&rail, 13);
    CHECK(rail_is_fenced(&rail));
    CHECK(!rail_rebuilds(&rail, 1, 13));
    int64_t due_ns = rail.due_ns;
    CHECK(rail_rebuilds(&rail, 1, due_ns));
    rail.held_until_ns = due_ns + 1;
    CHECK(!rail_rebuilds(&rail, 1, due_ns));
    CHECK(rail_rebuilds(&rail, 0, due_ns)); /* no other lives: a notice does not count */
    CHECK(!rail_overdue(&rail, due_ns + RAIL_ANSWER_NS));
    rail_asked(&rail, due_ns);
    CHECK(!rail_overdue(&rail, due_ns + RAIL_ANSWER_NS - 1));
    CHECK(rail_overdue(&rail, due_ns + RAIL_ANSWER_NS));
    rail_connected(&rail, due_ns);
    CHECK(!rail_overdue(&rail, due_ns + RAIL_ANSWER_NS - 1));
    CHECK(rail_overdue(&rail, due_ns + RAIL_ANSWER_NS));
    rail_proved(&rail, due_ns + 5);
    CHECK_EQUAL(rail.state, RAIL_UP);
    CHECK_EQUAL(rail.generation, 2);
    /* The peer's word about the last time says nothing about this one. */
    rail.held_until_ns = 0;
    CHECK(rail_fail(&rail, due_ns + 6));
    rail_drained(&rail, due_ns + 7);
    CHECK(!rail_is_fenced(&rail));
    for (int living = 0; living < 2; living++)
        CHECK(!rail_rebuilds(&rail, living, rail.due_ns + RAIL_BACKOFF_MAX_NS));
    CHECK_EQUAL(rail_peer_fenced(&rail, 3, due_ns + 8), RAIL_AGREED);
    rail.due_ns = INT64_MAX; /* without any other rail only the shortest pause counts */
    CHECK(!rail_rebuilds(&rail, 0, due_ns + 7 + RAIL_BACKOFF_NS - 1));
    CHECK(rail_rebuilds(&rail, 0, due_ns + 7 + RAIL_BACKOFF_NS));
    CHECK(!rail_rebuilds(&rail, 1, due_ns + 7 + RAIL_BACKOFF_NS));
}

/* Of the time between two looks no more than RAIL_LOOK_NS is its time to drain: there is as much left after a
 * pause as before it, and never more than there was. */
static void a_pause_is_not_its_time(void)
{
    struct rail rail;
    int64_t now_ns = 9 * RAIL_DRAIN_NS;
    rail_begin(&rail, 0);
    CHECK(rail_fail(&rail, now_ns)); /* after a pause: it has all its time */
    rail_looked_at(&rail, now_ns + 1);
    CHECK(rail_overdue(&rail, now_ns + 1 + RAIL_DRAIN_NS));
    rail_looked_at(&rail, now_ns += RAIL_LOOK_NS + 1);
    CHECK(!rail_overdue(&rail, now_ns + RAIL_DRAIN_NS - RAIL_LOOK_NS - 1));
    CHECK(rail_overdue(&rail, now_ns + RAIL_DRAIN_NS - RAIL_LOOK_NS));
    rail_looked_at(&rail, now_ns += 20 * RAIL_DRAIN_NS);
    CHECK(!rail_overdue(&rail, now_ns + RAIL_DRAIN_NS - 2 * RAIL_LOOK_NS - 1));
    CHECK(rail_overdue(&rail, now_ns + RAIL_DRAIN_NS - 2 * RAIL_LOOK_NS));
    rail_drained(&rail, now_ns);
    int64_t due_ns = rail.due_ns;
    rail_looked_at(&rail, now_ns + 5 * RAIL_DRAIN_NS);
    CHECK_EQUAL(rail.due_ns, due_ns); /* of nothing else */
    rail_begin(&rail, 0);
    CHECK(rail_fail(&rail, RAIL_DRAIN_NS)); /* after a shorter one: no more than that either */
    rail_looked_at(&rail, RAIL_DRAIN_NS + 1);
    CHECK_EQUAL(rail.due_ns, 2 * RAIL_DRAIN_NS + 1);
}

static void peers_agree_on_generations(void)
{
    struct rail rail;
    rail_begin(&rail, 0);
    CHECK_EQUAL(rail_peer_fenced(&rail, 2, 1), RAIL_FENCE);
    CHECK_EQUAL(rail.state, RAIL_FENCING);
    rail_drained(&rail, 2);
    CHECK(rail_is_fenced(&rail));
    /* The peer's attempt to rejoin came to nothing: it waits for our word on the next one. */
    CHECK_EQUAL(rail_peer_fenced(&rail, 3, 3), RAIL_ANSWER);
    CHECK_EQUAL(rail.generation, 3);
    CHECK_EQUAL(rail_peer_fenced(&rail, 2, 4), RAIL_NOTHING);
}

static void what_was_never_connected_is_asked_for(void)
{
    struct rail rail;
    rail_begin_down(&rail, 0);
    CHECK(rail_is_fenced(&rail));
    CHECK_EQUAL(rail.generation, 2); /* at both ends, after what was not connected */
    CHECK(!rail_rebuilds(&rail, 1, RAIL_BACKOFF_NS - 1));
    CHECK(rail_rebuilds(&rail, 1, RAIL_BACKOFF_NS));
    CHECK_EQUAL(rail_peer_fenced(&rail, rail.generation, 1), RAIL_AGREED);
}

static void attempts_become_rarer(void)
{
    struct rail rail;
    rail_begin(&rail, 0);
    int64_t now_ns = 0, waits[14];
    for (int i = 0; i < 14; i++) {
        CHECK(rail_fail(&rail, now_ns));
        rail_drained(&rail, now_ns);
        waits[i] = rail.due_ns - now_ns;
        rail.peer_fenced = true;
        rail_asked(&rail, now_ns = rail.due_ns);
    }
    CHECK_EQUAL(waits[0], RAIL_BACKOFF_NS);
    CHECK_EQUAL(waits[3], 8 * RAIL_BACKOFF_NS);
    CHECK_EQUAL(waits[13], RAIL_BACKOFF_MAX_NS);
    rail_connected(&rail, now_ns);
    rail_proved(&rail, now_ns);
    CHECK(rail_fail(&rail, now_ns += INT64_C(5000000000))); /* not yet proven to last */
    rail_drained(&rail, now_ns);
    CHECK_EQUAL(rail.due_ns - now_ns, RAIL_BACKOFF_MAX_NS);
    rail_connected(&rail, now_ns);
    CHECK(rail_fail(&rail, now_ns += INT64_C(9000000000))); /* nor has it been up since */
    rail_drained(&rail, now_ns);
    CHECK_EQUAL(rail.due_ns - now_ns, RAIL_BACKOFF_MAX_NS);
    rail_connected(&rail, now_ns);
    rail_proved(&rail, now_ns);
    CHECK(rail_fail(&rail, now_ns += INT64_C(5000000001)));
    rail_drained(&rail, now_ns);
    CHECK_EQUAL(rail.due_ns - now_ns, RAIL_BACKOFF_NS);
}

int main(void)
{
    a_notice_spares_the_last_rail();
    a_rail_goes_round();
    a_pause_is_not_its_time();
    peers_agree_on_generations();
    what_was_never_connected_is_asked_for();
    attempts_become_rarer();
    return 0;
}
