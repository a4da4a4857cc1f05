/* What the plug-in does at the agent's word, told by the agent's own page.
 * test_orders LIBRARY PROVIDER CASE */
#include <string.h>
#include <unistd.h>

#include "edge.h"
#include "syn_job_page.h"

enum { LABELS = 8, CLASS = 104 };
static const int64_t FOR_EVER_NS = 0, LONG_NS = INT64_C(600000000000);
static const uint64_t NEARLY_NOTHING_BPS = 8; /* a byte a second */

static int labels(uint32_t *to)
{
    return faults_flow_labels(to, LABELS);
}

static void begin_with_agent(void)
{
    setenv("SYNTONY_NCCL_TC", "104", 1);
    setenv("SYNTONY_NCCL_TIMEOUT", "18", 1); /* 2 x 1 s: no rail is left by chance */
    faults_start_agent();
    begin();
    connect_both();
    for (int64_t begun = now_ms(); faults_page() == NULL && now_ms() - begun < 10000;)
        usleep(1000);
    CHECK(faults_page() != NULL);
    for (int64_t begun = now_ms(); now_ms() - begun < 100;)
        exchange();
}

static void leave_and_return(void)
{
    begin_with_agent();
    until_pairs(8);
    faults_order(SYN_JOB_PATH_DEAD, 0, 2, LONG_NS, 0, 0);
    until_pairs(4);
    for (int64_t begun = now_ms(); now_ms() - begun < 300;)
        exchange();
    until_pairs(4); /* it stays away */
    faults_order(SYN_JOB_PATH_ALIVE, 0, 2, FOR_EVER_NS, 0, 0);
    until_pairs(8);
}

static void receivers_agent_says_so(void)
{
    begin_with_agent();
    until_pairs(8);
    faults_order(SYN_JOB_PATH_DEAD, 3, 1, LONG_NS, 0, 0);
    until_pairs(4);
    faults_order(SYN_JOB_STOPPED, 0, 0, FOR_EVER_NS, 0, 0);
    until_pairs(8);
}

static void order_both(int subject, uint64_t rate_bps, uint32_t only_class, int64_t for_ns)
{
    for (int rail = 0; rail < 2; rail++)
        faults_order(subject, rail, rail + 2, for_ns, rate_bps, only_class);
    usleep(20000); /* the background thread's look */
}

static void exchange_for(int64_t for_ms)
{
    for (int64_t begun = now_ms(); now_ms() - begun < for_ms;)
        exchange();
}

static void hold_and_return(void)
{
    begin_with_agent();
    until_pairs(8);
    faults_order(SYN_JOB_PATH_HOLD, 0, 2, LONG_NS, 0, 0);
    until_pairs(4);
    faults_order(SYN_JOB_PATH_ALIVE, 0, 2, FOR_EVER_NS, 0, 0); /* failover's word is another one */
    exchange_for(300);
    until_pairs(4);
    faults_order(SYN_JOB_PATH_HOLD, 0, 2, -1, 0, 0);
    until_pairs(8);
    faults_order(SYN_JOB_PATH_HOLD, 0, 2, LONG_NS, 0, 0);
    until_pairs(4);
    faults_order(SYN_JOB_STOPPED, 0, 0, FOR_EVER_NS, 0, 0);
    until_pairs(8);
    faults_order(SYN_JOB_PATH_DEAD, 0, 2, LONG_NS, 0, 0);
    faults_order(SYN_JOB_PATH_HOLD, 0, 2, -1, 0, 0); /* an order that ends is no sign of life */
    until_pairs(4);
    exchange_for(300);
    until_pairs(4);
}

static void hold_expires(void)
{
    begin_with_agent();
    until_pairs(8);
    faults_order(SYN_JOB_PATH_HOLD, 0, 2, INT64_C(2000000000), 0, 0);
    until_pairs(4);
    until_pairs(8);
}

static int count_old(const uint32_t *before, const uint32_t *after, int labels)
{
    int count = 0;
    for (int i = 0; i < labels; i++)
        for (int j = 0; j < labels; j++)
            count += after[i] == before[j];
    return count;
}

/* Held, and the rail that stands in is dead: what is held carries again, and the dead one is left. */
static void hold_ends_with_a_notice(void)
{
    uint32_t before[LABELS], after[LABELS];
    begin_with_agent();
    until_pairs(8);
    faults_order(SYN_JOB_PATH_HOLD, 0, 2, LONG_NS, 0, 0);
    until_pairs(4);
    CHECK_EQUAL(labels(before), 4);
    faults_order(SYN_JOB_PATH_DEAD, 1, 3, LONG_NS, 0, 0);
    for (int64_t begun = now_ms(); labels(after) != 4 || count_old(before, after, 4);) {
        CHECK(now_ms() - begun < 15000);
        exchange();
    }
    exchange_for(300);
    CHECK_EQUAL(labels(after), 4);
}

/* Whatever is ordered, one rail that works goes on. */
static void hold_of_everything(void)
{
    begin_with_agent();
    until_pairs(8);
    order_both(SYN_JOB_PATH_HOLD, 0, 0, LONG_NS);
    until_pairs(8);
    exchange_for(300);
    until_pairs(8);
    faults_port(1, 0);
    until_pairs(4);
    exchange_for(300);
    until_pairs(4);
}

static int count_new(const uint32_t *before, const uint32_t *after)
{
    int count = LABELS;
    for (int i = 0; i < LABELS; i++)
        for (int j = 0; j < LABELS; j++)
            if (after[i] == before[j]) {
                count--;
                break;
            }
    return count;
}

/* Another way is other flow labels, of the two queue pairs at each end of that rail. */
static void move(void)
{
    uint32_t before[LABELS], after[LABELS];
    begin_with_agent();
    until_pairs(8);
    for (int i = 0; i < 3; i++) {
        CHECK_EQUAL(labels(before), 8);
        faults_order(SYN_JOB_PATH_MOVE, 0, 2, FOR_EVER_NS, 0, 0);
        for (int64_t begun = now_ms(); labels(after) != 8 || count_new(before, after) == 0;) {
            CHECK(now_ms() - begun < 15000);
            exchange();
        }
        CHECK_EQUAL(count_new(before, after), 4);
        for (int64_t begun = now_ms(); now_ms() - begun < 50;) /* both ends know that it is back */
            exchange();
    }
}

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

static void pace(void)
{
    begin_with_agent();
    takes(200, 500, 6000000, 0, LONG_NS); /* 4 KiB each, over two rails: 0.54 s */
    order_both(SYN_JOB_PATH_PACE, NEARLY_NOTHING_BPS, 0, LONG_NS);
    order_both(SYN_JOB_PATH_PACE, 0, 0, FOR_EVER_NS);
    for (int i = 0; i < 60; i++) /* at that rate they would take days */
        exchange();
}

static void pace_ends(void)
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

static void pace_of_a_class(void)
{
    begin_with_agent();
    order_both(SYN_JOB_PATH_PACE, NEARLY_NOTHING_BPS, CLASS + 4 + 1, LONG_NS); /* another one */
    for (int i = 0; i < 5; i++)
        exchange();
    takes(5, 990, NEARLY_NOTHING_BPS, CLASS + 1, 1000000000);
}

static void observe_only(void)
{
    setenv("SYNTONY_NCCL_OBSERVE", "1", 1);
    faults_start_agent();
    begin();
    connect_both();
    for (int64_t begun = now_ms(); now_ms() - begun < 1500;)
        exchange();
    CHECK(faults_page() == NULL); /* it never asked for one */
}

int main(int argc, char **argv)
{
    static const struct edge_case CASES[] = {
        {"leave_and_return", leave_and_return}, {"receivers_agent_says_so", receivers_agent_says_so},
        {"hold_and_return", hold_and_return}, {"hold_expires", hold_expires},
        {"hold_ends_with_a_notice", hold_ends_with_a_notice},
        {"hold_of_everything", hold_of_everything}, {"move", move}, {"pace", pace}, {"pace_ends", pace_ends},
        {"pace_of_a_class", pace_of_a_class}, {"observe_only", observe_only}};
    return run_case(argc, argv, CASES, sizeof CASES / sizeof *CASES);
}
