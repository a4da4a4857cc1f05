/* The states of a rail at one end of a connection: pure, fed with events and the time. See
 * native/nccl/model/fence.pml for the protocol. */
#ifndef NET_RAIL_H
#define NET_RAIL_H

#include <stdbool.h>
#include <stdint.h>

enum rail_state {
    RAIL_UP,
    RAIL_FENCING,  /* queue pairs are in error and being drained */
    RAIL_DOWN,     /* drained here; also at the peer if `peer_fenced`; or being rebuilt */
    RAIL_WAIT_ACK, /* sender: the peer was asked to rejoin */
    RAIL_PROBE,    /* the queue pairs are connected, and prove themselves */
};

struct rail {
    enum rail_state state;
    uint32_t generation;
    bool peer_fenced;
    int64_t due_ns;     /* DOWN: when to rebuild; FENCING, WAIT_ACK, PROBE: when to give up */
    int64_t backoff_ns; /* between attempts to rebuild, while another rail lives */
    int64_t down_ns;    /* since when it is DOWN */
    int64_t looked_ns;  /* when it was last looked at */
    int64_t up_since_ns;
    int64_t held_until_ns; /* a notice that the peer forwards asks to stay away until then; 0: none */
    int64_t agent_held_until_ns; /* the same of our own agent */
    bool move; /* another way is ordered: new queue pairs, once another rail lives */
};

enum rail_order {
    RAIL_NOTHING, /* old news */
    RAIL_FENCE,   /* leave the rail, too; the peer has */
    RAIL_ANSWER,  /* it is left already, but the peer waits to be reported under its generation */
    RAIL_AGREED,  /* both know */
};

static const int64_t RAIL_DRAIN_NS = INT64_C(2000000000);
/* Between two looks. What is longer was a pause: of this thread, which did not poll meanwhile, or of the whole
 * machine, and an emulated NIC with it. */
static const int64_t RAIL_LOOK_NS = INT64_C(100000000);
/* The peer's kernel may wait for a second until it knows its neighbour. */
static const int64_t RAIL_ANSWER_NS = INT64_C(3000000000);
static const int64_t RAIL_BACKOFF_MAX_NS = INT64_C(1000000000);
#ifndef NET_WITHOUT_FENCE
static const int64_t RAIL_BACKOFF_NS = INT64_C(1000000);
#else /* new queue pairs end the old ones, which is a fence: not at once, to see what it prevents */
static const int64_t RAIL_BACKOFF_NS = INT64_C(200000000);
#endif

void rail_begin(struct rail *rail, int64_t now_ns);
/* It could not be connected, which both ends know. */
void rail_begin_down(struct rail *rail, int64_t now_ns);
/* The rail failed here: true if it now has to be fenced. */
bool rail_fail(struct rail *rail, int64_t now_ns);
/* Before it is judged. A pause since the last look is not its time to drain; nor is there more of that than
 * RAIL_DRAIN_NS. */
void rail_looked_at(struct rail *rail, int64_t now_ns);
/* No work of the old generation is left here. */
void rail_drained(struct rail *rail, int64_t now_ns);
/* The peer has left the generation before this one. */
enum rail_order rail_peer_fenced(struct rail *rail, uint32_t generation, int64_t now_ns);
/* Whether both ends are fenced, so that what is missing may be sent again. */
bool rail_is_fenced(const struct rail *rail);
/* Whether a notice of either agent asks to stay away. */
bool rail_is_held(const struct rail *rail, int64_t now_ns);
/* A notice, or an order to move, is obeyed now: never with the last living rail. */
bool rail_leaves(const struct rail *rail, int living, int64_t now_ns);
/* Whether the sender may rebuild it now: a notice counts only while another rail lives. */
bool rail_rebuilds(const struct rail *rail, int living, int64_t now_ns);
/* Rebuilding did not work, for now. */
void rail_retry_later(struct rail *rail, int64_t now_ns);
void rail_asked(struct rail *rail, int64_t now_ns);     /* sender: DOWN to WAIT_ACK */
void rail_connected(struct rail *rail, int64_t now_ns); /* to PROBE */
void rail_proved(struct rail *rail, int64_t now_ns);    /* to UP */
/* Whether something was waited for in vain. */
bool rail_overdue(const struct rail *rail, int64_t now_ns);

#endif
