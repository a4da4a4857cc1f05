/* What the plug-in does as the agents of both ends speak, expire and die.
 * test_agents LIBRARY PROVIDER CASE */
#include <unistd.h>

#include "edge.h"
#include "syn_job_page.h"

static const int64_t FOR_EVER_NS = 0, LONG_NS = INT64_C(600000000000);

static void receivers_agent_says_so(void)
{
    begin_with_agent();
    until_pairs(8);
    for (int i = 0; i < 2; i++) {
        faults_order(SYN_JOB_PATH_DEAD, 3, 1, i ? FOR_EVER_NS : LONG_NS, 0, 0);
        until_pairs(4);
        faults_order(SYN_JOB_STOPPED, 0, 0, FOR_EVER_NS, 0, 0);
        until_both_up();
    }
}

/* It has expired before the sender learns of it. */
static void receivers_agent_said_so(void)
{
    int done, sizes[8];
    setenv("SYNTONY_NCCL_TIMEOUT", "22", 1); /* 2 x 17 s: no rail is left by chance */
    begin_with_agent();
    until_both_up();
    void *request = post_receive(sizeof to);
    faults_order(SYN_JOB_PATH_DEAD, 3, 1, 1000000000, 0, 0);
    for (int64_t begun = ran_ms(); ran_ms() - begun < 1500; nap())
        CHECK_EQUAL(drive_test(&net, request, &done, sizes), 0);
    pump(request, 300);
    CHECK_EQUAL(drive_logged("is left"), 0);
}

/* What one end's agent says does not end what the other one's has said. */
static void both_agents_count(void)
{
    begin_with_agent();
    until_both_up();
    faults_order(SYN_JOB_PATH_DEAD, 2, 0, LONG_NS, 0, 0);
    until_pairs(4);
    faults_order(SYN_JOB_PATH_DEAD, 0, 2, LONG_NS, 0, 0);
    usleep(20000);
    faults_order(SYN_JOB_PATH_ALIVE, 0, 2, FOR_EVER_NS, 0, 0);
    exchange_for(300);
    until_pairs(4);
    faults_order(SYN_JOB_PATH_DEAD, 0, 2, LONG_NS, 0, 0);
    faults_order(SYN_JOB_PATH_ALIVE, 2, 0, FOR_EVER_NS, 0, 0);
    exchange_for(300);
    until_pairs(4);
    faults_order(SYN_JOB_PATH_ALIVE, 0, 2, FOR_EVER_NS, 0, 0);
    until_pairs(8);
}

/* The agents of both ends speak of different rails at one moment: one is left, and one stays. */
static void ends_disagree(void)
{
    setenv("SYNTONY_NCCL_TIMEOUT", "22", 1); /* 2 x 17 s */
    setenv("SYNTONY_NCCL_SURVIVE_MS", "0", 1); /* without any rail it ends at once */
    begin_with_agent();
    for (int i = 0; i < 10; i++) {
        until_both_up();
        faults_order(SYN_JOB_PATH_DEAD, i % 2, i % 2 + 2, LONG_NS, 0, 0);
        faults_order(SYN_JOB_PATH_DEAD, 3 - i % 2, 1 - i % 2, LONG_NS, 0, 0);
        until_pairs(4);
        faults_order(SYN_JOB_STOPPED, 0, 0, FOR_EVER_NS, 0, 0);
    }
}

/* What an agent that has died said is void. */
static void agent_dies(void)
{
    begin_with_agent();
    until_both_up();
    faults_order(SYN_JOB_PATH_DEAD, 0, 2, LONG_NS, 0, 0);
    until_pairs(4);
    faults_end_agent();
    until_pairs(8);
}

/* The next one learns of all flows, and is obeyed. */
static void agent_begins_again(void)
{
    begin_with_agent();
    faults_end_agent();
    faults_start_agent();
    for (int64_t begun = now_ms(); faults_page() == NULL; exchange()) /* it is tried every 5 s */
        CHECK(now_ms() - begun < HANG_MS);
    const struct syn_job_page *page = faults_page();
    for (int flows = 0; flows < 4; exchange()) {
        flows = 0;
        for (int i = 0; i < SYN_JOB_FLOWS; i++)
            flows += page->flows[i].state == SYN_JOB_OPEN;
    }
    until_both_up();
    faults_order(SYN_JOB_PATH_DEAD, 0, 2, LONG_NS, 0, 0);
    until_pairs(4);
}

static void observe_only(void)
{
    setenv("SYNTONY_NCCL_OBSERVE", "1", 1);
    faults_start_agent();
    begin();
    connect_both();
    exchange_for(1500);
    CHECK(faults_page() == NULL); /* it never asked for one */
}

int main(int argc, char **argv)
{
    static const struct edge_case CASES[] = {
        {"receivers_agent_says_so", receivers_agent_says_so},
        {"receivers_agent_said_so", receivers_agent_said_so}, {"ends_disagree", ends_disagree},
        {"both_agents_count", both_agents_count}, {"agent_dies", agent_dies},
        {"agent_begins_again", agent_begins_again},
        {"observe_only", observe_only}};
    return run_case(argc, argv, CASES, sizeof CASES / sizeof *CASES);
}
