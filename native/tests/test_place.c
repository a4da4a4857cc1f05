#include "check.h"
#include "syn_place.h"

#include <errno.h>
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

static uint64_t seed = 1;

static int32_t below(int32_t count)
{
    seed = seed * 6364136223846793005u + 1442695040888963407u;
    return (int32_t)((seed >> 33) % (uint64_t)count);
}

enum { LEAVES = 7, SPINES = 5, FLOWS = 400 };

struct ends {
    int32_t up[FLOWS], down[FLOWS];
};

/* No link has more flows than the fullest leaf needs. */
static void check_loads(const struct syn_colouring *c, const struct ends *e, const char *there)
{
    const int32_t *colour = syn_colouring_colours(c);
    int load[2][LEAVES][SPINES] = {{{0}}}, degree[2][LEAVES] = {{0}};
    for (int f = 0; f < FLOWS; f++) {
        if (!there[f]) {
            CHECK_EQUAL(colour[f], -1);
            continue;
        }
        CHECK(colour[f] >= 0 && colour[f] < SPINES);
        load[0][e->up[f]][colour[f]]++, degree[0][e->up[f]]++;
        load[1][e->down[f]][colour[f]]++, degree[1][e->down[f]]++;
    }
    for (int side = 0; side < 2; side++)
        for (int leaf = 0; leaf < LEAVES; leaf++)
            for (int spine = 0; spine < SPINES; spine++)
                CHECK(load[side][leaf][spine] <= (degree[side][leaf] + SPINES - 1) / SPINES);
}

static void test_any_flows_fit(void)
{
    for (int round = 0; round < 200; round++) {
        struct syn_colouring *c = syn_colouring_new(LEAVES, SPINES, FLOWS);
        struct ends e;
        char there[FLOWS] = {0};
        int32_t count = 1 + below(FLOWS);
        CHECK(c);
        for (int32_t f = 0; f < count; f++) {
            e.up[f] = below(LEAVES), e.down[f] = below(LEAVES);
            CHECK(syn_colouring_add(c, &f, &e.up[f], &e.down[f], 1, INT32_MAX) >= 0);
            there[f] = 1;
        }
        check_loads(c, &e, there);
        syn_colouring_free(c);
    }
}

static void test_flows_come_and_go(void)
{
    struct syn_colouring *c = syn_colouring_new(LEAVES, SPINES, FLOWS);
    char there[FLOWS] = {0};
    struct ends e;
    CHECK(c);
    for (int step = 0; step < 20000; step++) {
        int32_t f = below(FLOWS);
        if (there[f]) {
            CHECK_EQUAL(syn_colouring_remove(c, &f, 1), 0);
        } else {
            e.up[f] = below(LEAVES), e.down[f] = below(LEAVES);
            CHECK(syn_colouring_add(c, &f, &e.up[f], &e.down[f], 1, INT32_MAX) >= 0);
        }
        there[f] = !there[f];
        const int32_t *colour = syn_colouring_colours(c);
        CHECK((colour[f] >= 0) == there[f]);
    }
    syn_colouring_free(c);
}

static void test_no_chain_is_longer_than_allowed(void)
{
    for (int32_t reach = 0; reach < 4; reach++) {
        struct syn_colouring *c = syn_colouring_new(LEAVES, SPINES, FLOWS);
        int left = 0;
        CHECK(c);
        for (int32_t f = 0; f < LEAVES * SPINES; f++) {
            int32_t up = f / SPINES, down = below(LEAVES);
            int64_t moved = syn_colouring_add(c, &f, &up, &down, 1, reach);
            CHECK(moved >= 0 && moved <= reach);
            left += syn_colouring_colours(c)[f] < 0;
        }
        CHECK(reach || left);
        syn_colouring_free(c);
    }
}

static void test_what_is_refused(void)
{
    int32_t zero = 0, many = LEAVES, flow = FLOWS, none = -1;
    CHECK(!syn_colouring_new(0, 1, 1) && !syn_colouring_new(1, 0, 1) && !syn_colouring_new(1, 1, 0));
    CHECK(!syn_colouring_new(INT32_MAX, 4096, 1) && !syn_colouring_new(1, 1 << 20, 1));
    struct syn_colouring *c = syn_colouring_new(LEAVES, SPINES, FLOWS);
    CHECK(c);
    CHECK_EQUAL(syn_colouring_remove(c, &zero, 1), EINVAL);
    CHECK_EQUAL(syn_colouring_add(c, &zero, &zero, &many, 1, INT32_MAX), -EINVAL);
    CHECK_EQUAL(syn_colouring_add(c, &flow, &zero, &zero, 1, INT32_MAX), -EINVAL);
    CHECK_EQUAL(syn_colouring_add(c, &none, &zero, &zero, 1, INT32_MAX), -EINVAL);
    CHECK_EQUAL(syn_colouring_add(c, &zero, &zero, &zero, 1, INT32_MAX), 0);
    CHECK_EQUAL(syn_colouring_add(c, &zero, &zero, &zero, 1, INT32_MAX), -EINVAL);
    syn_colouring_free(c);
    syn_colouring_free(NULL);
}

static void test_rates_by_hand(void)
{
    /* Three flows, links of 10 and 2: the one on both gets 2, the others share what is left. */
    const int32_t links[] = {0, -1, 0, 1, 0, -1};
    const double capacity[] = {10, 2}, weight[] = {1, 1, 3}, demand[] = {0.5, INFINITY, INFINITY};
    double rate[3];
    CHECK_EQUAL(syn_max_min(links, 3, 2, capacity, 2, NULL, NULL, rate), 0);
    CHECK(fabs(rate[0] - 4) < 1e-9 && fabs(rate[1] - 2) < 1e-9 && fabs(rate[2] - 4) < 1e-9);
    CHECK_EQUAL(syn_max_min(links, 3, 2, capacity, 2, weight, NULL, rate), 0);
    CHECK(fabs(rate[0] - 2) < 1e-9 && fabs(rate[1] - 2) < 1e-9 && fabs(rate[2] - 6) < 1e-9);
    CHECK_EQUAL(syn_max_min(links, 3, 2, capacity, 2, NULL, demand, rate), 0);
    CHECK(fabs(rate[0] - 0.5) < 1e-9 && fabs(rate[2] - 7.5) < 1e-9);
}

/* No link carries more than it can, and every flow is held back by a full link on which nobody
 * has more. */
static void test_rates_are_max_min(void)
{
    enum { N = 60, HOPS = 3, LINKS = 20 };
    for (int round = 0; round < 500; round++) {
        int32_t links[N * HOPS];
        double capacity[LINKS], rate[N], load[LINKS] = {0}, most[LINKS] = {0};
        for (int i = 0; i < N * HOPS; i++)
            links[i] = (i % HOPS) * 6 + below(7) - (i % HOPS ? 0 : 1);
        for (int i = 0; i < LINKS; i++)
            capacity[i] = below(5);
        CHECK_EQUAL(syn_max_min(links, N, HOPS, capacity, LINKS, NULL, NULL, rate), 0);
        for (int i = 0; i < N * HOPS; i++)
            if (links[i] >= 0) {
                load[links[i]] += rate[i / HOPS];
                most[links[i]] = fmax(most[links[i]], rate[i / HOPS]);
            }
        for (int link = 0; link < LINKS; link++)
            CHECK(load[link] <= capacity[link] + 1e-6);
        for (int f = 0; f < N; f++) {
            int held = 0;
            for (int hop = 0; hop < HOPS; hop++) {
                int32_t link = links[f * HOPS + hop];
                held |= link >= 0 && load[link] >= capacity[link] - 1e-6 &&
                        rate[f] >= most[link] - 1e-6;
            }
            CHECK(held);
        }
    }
}

static void test_rates_refused(void)
{
    int32_t link = 3, below_none = -2;
    double capacity[] = {1}, weight = 0, rate;
    CHECK_EQUAL(syn_max_min(&link, 1, 1, capacity, 1, NULL, NULL, &rate), EINVAL);
    CHECK_EQUAL(syn_max_min(&below_none, 1, 1, capacity, 1, NULL, NULL, &rate), EINVAL);
    link = 0;
    CHECK_EQUAL(syn_max_min(&link, 1, 1, capacity, 1, &weight, NULL, &rate), EINVAL);
    CHECK_EQUAL(syn_max_min(&link, 0, 1, capacity, 1, NULL, NULL, &rate), 0);
}

int main(void)
{
    test_any_flows_fit();
    test_flows_come_and_go();
    test_no_chain_is_longer_than_allowed();
    test_what_is_refused();
    test_rates_by_hand();
    test_rates_are_max_min();
    test_rates_refused();
    return 0;
}
