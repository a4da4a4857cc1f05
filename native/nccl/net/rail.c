#include "rail.h"

/* A rail that lived this long starts again with the shortest backoff. */
static const int64_t PROVEN_NS = INT64_C(5000000000);

void rail_begin(struct rail *rail, int64_t now_ns)
{
    *rail = (struct rail){.state = RAIL_UP, .generation = 1, .backoff_ns = RAIL_BACKOFF_NS,
                          .up_since_ns = now_ns};
}

void rail_begin_down(struct rail *rail, int64_t now_ns)
{
    rail_begin(rail, now_ns);
    rail->generation = 2;
    rail->peer_fenced = true;
    rail_retry_later(rail, now_ns);
}

bool rail_fail(struct rail *rail, int64_t now_ns)
{
    if (rail->state == RAIL_FENCING || rail->state == RAIL_DOWN)
        return false;
    if (rail->state == RAIL_UP && now_ns - rail->up_since_ns > PROVEN_NS)
        rail->backoff_ns = RAIL_BACKOFF_NS;
    rail->state = RAIL_FENCING;
    rail->generation++; /* and with it, on the return, other flow labels */
    rail->move = false;
    rail->peer_fenced = false;
    rail->due_ns = now_ns + RAIL_DRAIN_NS;
    return true;
}

void rail_looked_at(struct rail *rail, int64_t now_ns)
{
    int64_t pause_ns = now_ns - rail->looked_ns - RAIL_LOOK_NS;
    rail->looked_ns = now_ns;
    if (rail->state != RAIL_FENCING || pause_ns <= 0)
        return;
    rail->due_ns += pause_ns;
    if (rail->due_ns > now_ns + RAIL_DRAIN_NS) /* it is left since the pause */
        rail->due_ns = now_ns + RAIL_DRAIN_NS;
}

void rail_retry_later(struct rail *rail, int64_t now_ns)
{
    rail->state = RAIL_DOWN;
    rail->down_ns = now_ns;
    rail->due_ns = now_ns + rail->backoff_ns;
    rail->backoff_ns = rail->backoff_ns * 2 < RAIL_BACKOFF_MAX_NS ? rail->backoff_ns * 2
                                                                  : RAIL_BACKOFF_MAX_NS;
}

void rail_drained(struct rail *rail, int64_t now_ns)
{
    rail_retry_later(rail, now_ns);
}

enum rail_order rail_peer_fenced(struct rail *rail, uint32_t generation, int64_t now_ns)
{
    if (generation < rail->generation)
        return RAIL_NOTHING;
    enum rail_order order = RAIL_AGREED;
    if (generation > rail->generation) {
        order = rail_fail(rail, now_ns) ? RAIL_FENCE : RAIL_ANSWER;
        rail->generation = generation;
    }
    rail->peer_fenced = true;
    return order;
}

bool rail_is_fenced(const struct rail *rail)
{
    return rail->state == RAIL_DOWN && rail->peer_fenced;
}

bool rail_is_held(const struct rail *rail, int64_t now_ns)
{
    return now_ns < rail->held_until_ns || now_ns < rail->agent_held_until_ns;
}

bool rail_leaves(const struct rail *rail, int living, int64_t now_ns)
{
    return rail->state == RAIL_UP && living > 1 && (rail->move || rail_is_held(rail, now_ns));
}

bool rail_rebuilds(const struct rail *rail, int living, int64_t now_ns)
{
    if (living == 0)
        return rail_is_fenced(rail) && now_ns - rail->down_ns >= RAIL_BACKOFF_NS;
    return rail_is_fenced(rail) && now_ns >= rail->due_ns && !rail_is_held(rail, now_ns);
}

void rail_asked(struct rail *rail, int64_t now_ns)
{
    rail->state = RAIL_WAIT_ACK;
    rail->due_ns = now_ns + RAIL_ANSWER_NS;
}

void rail_connected(struct rail *rail, int64_t now_ns)
{
    rail->state = RAIL_PROBE;
    rail->due_ns = now_ns + RAIL_ANSWER_NS;
}

void rail_proved(struct rail *rail, int64_t now_ns)
{
    rail->state = RAIL_UP;
    rail->up_since_ns = now_ns;
}

bool rail_overdue(const struct rail *rail, int64_t now_ns)
{
    return (rail->state == RAIL_FENCING || rail->state == RAIL_WAIT_ACK ||
            rail->state == RAIL_PROBE) && now_ns >= rail->due_ns;
}
