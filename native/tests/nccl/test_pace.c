/* What the plug-in does on the agent's orders to keep a rate. test_pace LIBRARY PROVIDER CASE */
#include "edge.h"
#include "syn_job_page.h"

enum { CLASS = 104 };
static const int64_t FOR_EVER_NS = 0, LONG_NS = INT64_C(600000000000);
static const uint64_t NEARLY_NOTHING_BPS = 8; /* a byte a second */

/* Messages take so long at a rate: at one of many tries, for the order may come late. */
static void takes(int messages, int64_t least_ms, uint64_t rate_bps, uint32_t only_class,
                  int64_t for_ns)
{
    for (int tries = 0; tries < 20; tries++) {
        int64_t begun = now_ms();
        order_both(SYN_JOB_PATH_PACE, rate_bps, only_class, for_ns);
        for (int i = 0; i < messages; i++)
            exchange();
        if (now_ms() - begun >= least_ms)
            return;
    }
    CHECK(!"the rate is kept");
}

static void kept(void)
{
    begin_with_agent();
    takes(200, 500, 6000000, 0, LONG_NS); /* 4 KiB each, over two rails: 0.54 s */
    order_both(SYN_JOB_PATH_PACE, NEARLY_NOTHING_BPS, 0, LONG_NS);
    order_both(SYN_JOB_PATH_PACE, 0, 0, FOR_EVER_NS);
    for (int i = 0; i < 60; i++) /* at that rate they would take days */
        exchange();
}

static void ends(void)
{
    begin_with_agent();
    takes(5, 990, NEARLY_NOTHING_BPS, 0, 1000000000);
    order_both(SYN_JOB_PATH_PACE, NEARLY_NOTHING_BPS, 0, LONG_NS);
    exchange(); /* each rail's first */
    exchange();
    faults_order(SYN_JOB_STOPPED, 0, 0, FOR_EVER_NS, 0, 0);
    for (int i = 0; i < 5; i++)
        exchange();
}

static void of_a_class(void)
{
    begin_with_agent();
    order_both(SYN_JOB_PATH_PACE, NEARLY_NOTHING_BPS, CLASS + 4 + 1, LONG_NS); /* another one */
    for (int i = 0; i < 5; i++)
        exchange();
    takes(5, 990, NEARLY_NOTHING_BPS, CLASS + 1, 1000000000);
}

/* An order for the traffic class and one for all: both hold, whichever was the first. */
static void the_lowest(void)
{
    static const uint64_t FAST_BPS = UINT64_C(1000000000000);
    static const uint32_t CLASSES[] = {CLASS + 1, 0};
    begin_with_agent();
    order_both(SYN_JOB_PATH_PACE, FAST_BPS, CLASSES[0], LONG_NS); /* it has the first place */
    for (int slow = 0; slow < 2; slow++) {
        order_both(SYN_JOB_PATH_PACE, FAST_BPS, CLASSES[1 - slow], LONG_NS);
        takes(5, 990, NEARLY_NOTHING_BPS, CLASSES[slow], 1000000000);
        order_both(SYN_JOB_PATH_PACE, FAST_BPS, CLASSES[slow], LONG_NS);
        for (int i = 0; i < 20; i++)
            exchange();
    }
}

int main(int argc, char **argv)
{
    static const struct edge_case CASES[] = {
        {"kept", kept}, {"ends", ends}, {"of_a_class", of_a_class}, {"the_lowest", the_lowest}};
    return run_case(argc, argv, CASES, sizeof CASES / sizeof *CASES);
}
