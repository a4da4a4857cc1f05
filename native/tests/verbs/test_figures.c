/* Figures of a program that watches itself, compared with those of one that is watched: the short
 * paths without stamps give the same. test_figures [SEED]. */
#include <string.h>
#include <time.h>

#include "check.h"
#include "figures.h"

enum { ROUNDS = 300000 };

static struct syn_qp_slot slots[2];
static struct syn_qp_stamp rings[2][SYN_QP_RINGS][SYN_QP_STAMPS];
static struct figures figures[2];

static uint64_t draw(uint64_t *random, uint64_t below)
{
    *random ^= *random << 13, *random ^= *random >> 7, *random ^= *random << 17;
    return *random % below;
}

static void compare(void)
{
    CHECK(memcmp(&slots[0], &slots[1], sizeof slots[0]) == 0);
    CHECK(memcmp(rings[0], rings[1], sizeof rings[0]) == 0);
}

static void send(uint64_t bytes, uint64_t written, bool is_behind, int64_t at_ns)
{
    struct message write = {.bytes = written}, record = {bytes, 0, 0, true, true};
    struct message both = {bytes, written, is_behind, true, true};
    if (is_behind)
        figures_sent(&figures[0], &write, at_ns);
    figures_sent(&figures[0], &record, at_ns);
    if (figures_stamps_sent(&figures[1], at_ns))
        figures_sent(&figures[1], &both, at_ns);
    else
        figures_sent_unstamped(&figures[1], &both, at_ns);
}

static void receive(uint64_t bytes, int64_t at_ns)
{
    figures_received(&figures[0], bytes, at_ns);
    if (figures_stamps_received(&figures[1], at_ns))
        figures_received(&figures[1], bytes, at_ns);
    else
        figures_received_unstamped(&figures[1], bytes, at_ns);
}

static void complete(int64_t at_ns)
{
    figures_completed(&figures[0], at_ns);
    figures_completed(&figures[1], at_ns);
}

static uint32_t last_stamped(void)
{
    uint64_t count = slots[0].stamped[SYN_QP_RECEIVED];
    return rings[0][SYN_QP_RECEIVED][(count - 1) % SYN_QP_STAMPS].number;
}

/* Of a fast stream every 1024th message is stamped; after a pause, soon one again, and of a slow stream each. */
static void test_sampling(int64_t at_ns)
{
    enum { FAST_NS = 4000, SLOW_NS = 20000000, SETTLED = 300000, LATER = 50000, HALVINGS = 11 };
    figures_begin(&figures[0], &(struct identity){.number = 1}, 2, at_ns);
    for (int i = 0; i < SETTLED + LATER; i++) {
        uint32_t before = i ? last_stamped() : 0;
        figures_received(&figures[0], 40, at_ns += FAST_NS);
        if (i > SETTLED && last_stamped() != before)
            CHECK_EQUAL(last_stamped() - before, 1024);
    }
    for (uint32_t i = SETTLED + LATER; i < SETTLED + LATER + 3 * HALVINGS; i++) {
        figures_received(&figures[0], 40, at_ns += SLOW_NS);
        CHECK(i < SETTLED + LATER + HALVINGS || last_stamped() == i);
    }
}

int main(int argc, char **argv)
{
    uint64_t random = argc > 1 ? strtoull(argv[1], NULL, 0) : (uint64_t)time(NULL) | 1;
    fprintf(stderr, "seed %" PRIu64 "\n", random);
    for (int i = 0; i < 2; i++)
        figures[i] = (struct figures){.slot = &slots[i], .rings = rings[i]};
    for (int i = 0; i < 2; i++)
        figures_begin(&figures[i], &(struct identity){.number = 1}, 1, 1);
    int64_t at_ns = INT64_C(1000000000);
    for (int round = 0; round < ROUNDS; round++) {
        at_ns += (int64_t)draw(&random, draw(&random, 1000) ? 4000 : 40000000);
        uint64_t written = draw(&random, 2) * draw(&random, 1 << 20);
        switch (draw(&random, 3)) {
        case 0: send(40, written, written > 0, at_ns); break;
        case 1: receive(40, at_ns); break;
        default: if (slots[0].completed < slots[0].signaled) complete(at_ns);
        }
        compare();
    }
    CHECK(slots[0].sent > ROUNDS / 4 && slots[0].stamped[SYN_QP_SENT] > 10 &&
          slots[0].stamped[SYN_QP_RECEIVED] > 10 && slots[0].stamped[SYN_QP_COMPLETED] > 10);
    test_sampling(at_ns);
    return 0;
}
