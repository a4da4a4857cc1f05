/* What the plug-in does while no rail works. test_dark LIBRARY PROVIDER CASE */
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "edge.h"

/* The time without any rail is bounded, and its end is an error, not a hang. */
static void dark(void)
{
    setenv("SYNTONY_NCCL_SURVIVE_MS", "300", 1);
    begin();
    connect_both();
    void *request = post_receive(sizeof to);
    for (int port = 0; port < 2; port++)
        faults_port(port, 0);
    int64_t begun = now_ms();
    int result = 0;
    CHECK(post_send(sizeof from, request, &result) == NULL);
    CHECK_EQUAL(result, 6);
    CHECK(now_ms() - begun >= 250);
    CHECK_EQUAL(result_of(request, NULL), 6);
}

/* The same if all ports are up and the network loses everything: attempts to return do not count as life,
 * and neither does that each end waits for the other one now and then. */
static void dark_hole(void)
{
    setenv("SYNTONY_NCCL_SURVIVE_MS", "300", 1);
    begin();
    connect_both();
    void *request = post_receive(sizeof to);
    for (int port = 0; port < 4; port++)
        faults_lose(port, 1000);
    int result = 0;
    void *sent = post_send(sizeof from, request, &result);
    CHECK_EQUAL(sent ? results_of(sent, request, NULL) : result, 6);
    CHECK_EQUAL(result_of(request, NULL), 6);
}

/* Neither end is down or away, and the receiver cannot connect. */
static void dark_neighbours(void)
{
    setenv("SYNTONY_NCCL_SURVIVE_MS", "300", 1);
    begin();
    connect_both();
    void *request = post_receive(sizeof to);
    for (int port = 2; port < 4; port++)
        faults_hide_neighbour(port, 1);
    for (int port = 2; port < 4; port++)
        faults_error(port);
    int result = 0;
    void *sent = post_send(sizeof from, request, &result);
    CHECK_EQUAL(sent ? results_of(sent, request, NULL) : result, 6);
    CHECK_EQUAL(result_of(request, NULL), 6);
}

/* Until then it only waits: the same ports, back in time. */
static void dark_for_a_while(void)
{
    setenv("SYNTONY_NCCL_SURVIVE_MS", "20000", 1);
    begin();
    connect_both();
    void *request = post_receive(sizeof to);
    for (int port = 0; port < 4; port++)
        faults_port(port, 0);
    for (int64_t begun = ran_ms(); ran_ms() - begun < 200; nap()) {
        int done = 0, sizes[8];
        CHECK_EQUAL(drive_test(&net, request, &done, sizes), 0);
        CHECK(!done);
    }
    for (int port = 0; port < 4; port++)
        faults_port(port, 1);
    int result = 0;
    memset(from, 7, sizeof from);
    void *sent = post_send(sizeof from, request, &result);
    CHECK(sent != NULL);
    CHECK_EQUAL(result_of(request, sent), 0);
    CHECK_EQUAL(memcmp(from, to, sizeof to), 0);
}

/* The time in which NCCL does not call does not count: nothing can return in it. */
static void dark_while_nobody_calls(void)
{
    setenv("SYNTONY_NCCL_SURVIVE_MS", "1000", 1);
    begin();
    connect_both();
    void *request = post_receive(sizeof to);
    for (int port = 0; port < 4; port++)
        faults_port(port, 0);
    pump(request, 100);
    usleep(1500000);
    for (int port = 0; port < 4; port++)
        faults_port(port, 1);
    usleep(20000); /* the background thread reads its events */
    int result = 0;
    void *sent = post_send(sizeof from, request, &result);
    CHECK(sent != NULL);
    CHECK_EQUAL(results_of(request, sent, NULL), 0);
}

/* Calls that are further apart than an end needs to look at its rails count, each as one look. */
static void dark_while_called_rarely(void)
{
    setenv("SYNTONY_NCCL_SURVIVE_MS", "1000", 1);
    begin();
    connect_both();
    void *request = post_receive(sizeof to);
    int calls = 0, result = 0, done, sizes[8];
    for (int port = 0; port < 4; port++)
        faults_port(port, 0);
    for (; result == 0 && calls < 40; calls++) {
        usleep(150000);
        result = drive_test(&net, request, &done, sizes);
    }
    CHECK_EQUAL(result, 6);
    CHECK(calls > 10);
}

/* Both ports of an end flap, and the peer's NCCL does not call, as in a checkpoint: when it does, the rails
 * return. Nothing says that the network is down meanwhile. It is not the first time that they do. */
static void dark_while_the_peer_does_not_call(bool senders)
{
    setenv("SYNTONY_NCCL_SURVIVE_MS", "2500", 1);
    setenv("SYNTONY_NCCL_TIMEOUT", "22", 1); /* 2 x 17 s: no rail is left by chance */
    begin();
    connect_both();
    void *request = post_receive(sizeof to), *sent = NULL;
    pump(request, 50);
    for (int rail = 0; rail < 2; rail++) {
        faults_error(rail);
        while (drive_logged("is back") < 2 * rail + 2)
            pump(request, 1);
    }
    for (int port = 0; port < 2; port++)
        faults_port(port + 2 * !senders, 0);
    usleep(20000);
    for (int64_t begun = ran_ms(); ran_ms() - begun < 3500; nap()) {
        int done = 0, sizes[8];
        if (senders)
            CHECK_EQUAL(drive_send(&net, sender, from, 8, 12345, send_memory, &sent), 0);
        else
            CHECK_EQUAL(drive_test(&net, request, &done, sizes), 0);
        if (ran_ms() - begun > 50)
            for (int port = 0; port < 4; port++)
                faults_port(port, 1);
    }
    int result = 0;
    sent = post_send(sizeof from, request, &result);
    CHECK(sent != NULL);
    CHECK_EQUAL(results_of(request, sent, NULL), 0);
}

static void dark_while_the_receiver_is_away(void)
{
    dark_while_the_peer_does_not_call(true);
}

/* The same after both ends have left the rails, and before the sender has asked for one. */
static void dark_before_the_sender_asks(void)
{
    setenv("SYNTONY_NCCL_SURVIVE_MS", "1000", 1);
    begin();
    connect_both();
    void *request = post_receive(sizeof to);
    int result = 0, done = 0, sizes[8];
    for (int port = 0; port < 2; port++)
        faults_port(port, 0);
    pump(request, 100);
    for (int64_t begun = ran_ms(); ran_ms() - begun < 2500; nap())
        CHECK_EQUAL(drive_test(&net, request, &done, sizes), 0);
    for (int port = 0; port < 2; port++)
        faults_port(port, 1);
    void *sent = post_send(sizeof from, request, &result);
    CHECK(sent != NULL);
    CHECK_EQUAL(results_of(request, sent, NULL), 0);
}

static void dark_while_the_sender_is_away(void)
{
    dark_while_the_peer_does_not_call(false);
}

int main(int argc, char **argv)
{
    static const struct edge_case CASES[] = {
        {"dark", dark}, {"dark_hole", dark_hole}, {"dark_neighbours", dark_neighbours},
        {"dark_for_a_while", dark_for_a_while},
        {"dark_while_nobody_calls", dark_while_nobody_calls},
        {"dark_while_called_rarely", dark_while_called_rarely},
        {"dark_while_the_receiver_is_away", dark_while_the_receiver_is_away},
        {"dark_before_the_sender_asks", dark_before_the_sender_asks},
        {"dark_while_the_sender_is_away", dark_while_the_sender_is_away}};
    return run_case(argc, argv, CASES, sizeof CASES / sizeof *CASES);
}
