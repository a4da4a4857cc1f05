/* Queue pairs that neither end their work nor go. test_stuck LIBRARY PROVIDER CASE */
#include <stdlib.h>
#include <string.h>

#include "edge.h"

enum { QP_FATAL = 1 }; /* of enum ibv_event_type */

/* A sender's NIC neither ends its work nor lets go of its queue pairs: what it sent goes by the other rail, once
 * the receiver has fenced its own end. What the NIC sends later than that is written nowhere. */
static void sender_is_stuck(void)
{
    setenv("SYNTONY_NCCL_TIMEOUT", "22", 1); /* 2 x 17 s: no rail is left by chance */
    begin();
    connect_both();
    int64_t begun = now_ms();
    void *requests[2], *sent[2], *next;
    int result = 0;
    for (int i = 0; i < 2; i++)
        requests[i] = post_receive(sizeof to);
    next = post_receive(sizeof to);
    pump(next, 20); /* they are asked for */
    memset(from, 3, sizeof from);
    faults_delay(0, INT64_C(5000000000));
    for (int i = 0; i < 2; i++) /* by either rail */
        sent[i] = post_send(sizeof from, next, &result);
    faults_delay(0, 0);
    faults_machine(0, &(struct fake_machine){.unfailing = 1, .undying = 1 << 20});
    faults_event(0, QP_FATAL);
    for (int i = 0; i < 2; i++)
        CHECK_EQUAL(results_of(requests[i], sent[i], next), 0);
    CHECK_EQUAL(memcmp(from, to, sizeof to), 0);
    uint64_t writes = faults_writes_at(2);
    memset(from, 4, sizeof from);
    memset(to, 0xee, sizeof to);
    while (now_ms() - begun < 6000)
        pump(next, 100);
    CHECK_EQUAL(faults_writes_at(2), writes);
    for (size_t i = 0; i < sizeof to; i++)
        CHECK_EQUAL(to[i], (char)0xee);
    sent[0] = post_send(sizeof from, next, &result);
    CHECK_EQUAL(results_of(next, sent[0], NULL), 0);
    CHECK_EQUAL(memcmp(from, to, sizeof to), 0);
    CHECK_EQUAL(faults_flow_labels((uint32_t[16]){0}, 16), 4 + 2); /* the old ones are there */
    CHECK_EQUAL(drive_logged("fake0 does not end its work"), 1);
    faults_machine(0, &(struct fake_machine){0});
    until_both_up();
    both_rails_carry();
}

/* A driver that hangs as it destroys a queue pair, whose traffic an agent is to be told of (SYNTONY_AGENT), holds up
 * nothing else. */
static void destroying_hangs(void)
{
    CHECK(getenv("SYNTONY_AGENT") != NULL);
    setenv("SYNTONY_NCCL_TIMEOUT", "22", 1); /* 2 x 17 s: no rail is left by chance */
    begin();
    connect_both();
    until_both_up();
    faults_machine(0, &(struct fake_machine){.destroying_ns = INT64_C(1000000) * HANG_MS});
    faults_error(0);
    while (faults_held_calls() == 0) /* in the thread of the rail's return */
        exchange();
    listen_again();
    connect_both();
    exchange();
    CHECK_EQUAL(faults_held_calls(), 1);
    faults_machine(0, &(struct fake_machine){0});
}

/* Nor the end of a connection of which a rail is left, at either end. */
static void closing_hangs(void)
{
    setenv("SYNTONY_NCCL_TIMEOUT", "22", 1); /* 2 x 17 s: no rail is left by chance */
    begin();
    connect_both();
    until_both_up();
    faults_port(0, 0);
    until_pairs(4);
    exchange_for(100); /* both ends are drained */
    for (int port = 0; port < 4; port += 2)
        faults_machine(port, &(struct fake_machine){.destroying_ns = INT64_C(1000000) * HANG_MS});
    close_both();
    while (faults_held_calls() < 2)
        nap();
    listen_again();
    connect_both();
    exchange();
    CHECK_EQUAL(faults_held_calls(), 2);
    for (int port = 0; port < 4; port += 2)
        faults_machine(port, &(struct fake_machine){0});
}

/* Nor that of a sender whose NIC still does not end its work. */
static void closing_hangs_at_once(void)
{
    setenv("SYNTONY_NCCL_TIMEOUT", "22", 1); /* 2 x 17 s: no rail is left by chance */
    begin();
    connect_both();
    until_both_up();
    faults_machine(0, &(struct fake_machine){.unfailing = 1,
                                             .destroying_ns = INT64_C(1000000) * HANG_MS});
    faults_event(0, QP_FATAL);
    while (!drive_logged("rail fake0 is left"))
        exchange();
    close_sender();
    while (faults_held_calls() < 1)
        nap();
    faults_machine(0, &(struct fake_machine){0});
}

/* A receiver's NIC that does not end its work: what it acknowledged is not known, so that the connection ends. */
static void receiver_is_stuck(void)
{
    setenv("SYNTONY_NCCL_TIMEOUT", "22", 1); /* 2 x 17 s: no rail is left by chance */
    begin();
    connect_both();
    void *request = post_receive(sizeof to);
    faults_machine(2, &(struct fake_machine){.unfailing = 1});
    faults_event(2, QP_FATAL);
    CHECK_EQUAL(result_of(request, NULL), 6);
    CHECK_EQUAL(drive_logged("its rail cannot be fenced"), 1);
}

int main(int argc, char **argv)
{
    static const struct edge_case CASES[] = {{"sender_is_stuck", sender_is_stuck},
                                             {"receiver_is_stuck", receiver_is_stuck},
                                             {"destroying_hangs", destroying_hangs},
                                             {"closing_hangs", closing_hangs},
                                             {"closing_hangs_at_once", closing_hangs_at_once}};
    return run_case(argc, argv, CASES, sizeof CASES / sizeof *CASES);
}
