/* To connect a queue pair the kernel asks for its neighbour, which may not answer: the call waits,
 * NCCL's thread does not. In these tests it would for ever: `run_case` ends that.
 * test_neighbours LIBRARY PROVIDER CASE */
#include <dlfcn.h>
#include <errno.h>
#include <net/if.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "edge.h"

enum { SKIPPED = 77, PAIRS = 8 }; /* two of each rail, at both ends */

static atomic_int threads_left = 1000; /* that can still be made */

__attribute__((visibility("default")))
int pthread_create(pthread_t *thread, const pthread_attr_t *attr, void *(*run)(void *), void *argument)
{
    int (*create)(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *);
    *(void **)&create = dlsym(RTLD_NEXT, "pthread_create");
    return atomic_fetch_sub(&threads_left, 1) > 0 ? create(thread, attr, run, argument) : EAGAIN;
}

/* A port is back, its neighbour is not: queue pairs are being connected there. */
static void hold_return(int port)
{
    faults_hold_neighbour(port, 1);
    faults_port(port, 0);
    until_pairs(PAIRS / 2);
    faults_port(port, 1);
    while (faults_held_calls() == 0)
        exchange();
}

static void exchange_often(int times)
{
    for (int i = 0; i < times; i++)
        exchange();
}

/* Nothing that a connection had is left. */
static void until_gone(void)
{
    while (faults_queue_pairs())
        usleep(1000);
}

static void away_at_return(int port)
{
    begin();
    connect_both();
    exchange();
    until_pairs(PAIRS);
    hold_return(port);
    exchange_often(200);
    /* The port goes and comes once more meanwhile. */
    faults_port(port, 0);
    exchange_often(50);
    faults_port(port, 1);
    faults_hold_neighbour(port, 0);
    until_pairs(PAIRS);
    /* What returned carries, and is not given up at once. */
    faults_port(port ^ 1, 0);
    exchange_often(50);
    close_both(); /* what is left of the rail may be about to return: no thread outlives the connection */
    until_gone();
}

static void senders_at_return(void)
{
    away_at_return(0);
}

static void receivers_at_return(void)
{
    away_at_return(2);
}

/* The peer leaves the rail while it is being connected here. */
static void left_while_it_connects(void)
{
    begin();
    connect_both();
    exchange();
    for (int port = 0; port < 4; port += 2) {
        hold_return(port);
        faults_port(port ^ 2, 0);
        exchange_often(50);
        faults_port(port ^ 2, 1);
        exchange_for(2200); /* it is asked for once more, and longer than draining may take */
        faults_hold_neighbour(port, 0);
        until_pairs(PAIRS);
        exchange_for(2500); /* and drains, where it fails */
    }
    CHECK_EQUAL(drive_logged("does not end its work"), 0);
}

/* The peer asks anew meanwhile: what is connected to its queue pairs of before is of no use, and not offered. */
static void asked_anew_while_it_connects(void)
{
    setenv("SYNTONY_NCCL_TIMEOUT", "22", 1); /* 2 x 17 s: no rail is left by chance */
    begin();
    connect_both();
    until_both_up();
    hold_return(2);
    faults_port(0, 0);
    exchange_often(50);
    faults_port(0, 1);
    exchange_for(1200);
    faults_hold_neighbour(2, 0);
    while (drive_logged("is back") < 2) /* at both ends */
        exchange();
    close_sender();
    CHECK_EQUAL(drive_logged("rails left 3"), 0);
}

/* As above, several times in a row, and what has just been connected fails before NCCL calls: of all that
 * the receiver never looks at, nothing may take room in the completion queue of those that are made next. */
static void fails_whenever_it_connects(void)
{
    setenv("SYNTONY_NCCL_TIMEOUT", "20", 1); /* 2 x 4 s: no rail is left by chance */
    begin();
    connect_both();
    exchange();
    hold_return(2);
    for (int i = 0; i < 4; i++) {
        faults_port(0, 0); /* the sender gives it up, and asks anew */
        exchange_for(50);
        faults_port(0, 1);
        exchange_for(200);
        CHECK_EQUAL(faults_held_calls(), 1);
        faults_hold_neighbour(2, 0);
        usleep(50000);
        faults_error(2);
        faults_hold_neighbour(2, 1);
        while (faults_held_calls() == 0)
            exchange();
    }
    faults_hold_neighbour(2, 0);
    until_both_up();
}

static int back_before;
static atomic_int_least64_t back_ms; /* when it was; 0: it is not */

static int times_back(void)
{
    return drive_logged("rail fake0 is back") + drive_logged("rail fake2 is back");
}

static void *watch_return(void *unused)
{
    (void)unused;
    while (times_back() == back_before)
        usleep(500);
    atomic_store(&back_ms, now_ms());
    return NULL;
}

/* A rail is up at an end when a record has come each way on each queue pair, not before. The receiver's
 * side of it fails in between: what has arrived is not answered any more. */
static void proved_by_probes(void)
{
    setenv("SYNTONY_NCCL_TIMEOUT", "20", 1); /* 2 x 4 s: no rail is left by chance */
    begin();
    connect_both();
    for (int i = 0; i < 2; i++) {
        until_both_up();
        pthread_t thread;
        back_before = times_back();
        atomic_store(&back_ms, 0);
        hold_return(0);
        exchange_for(100);
        CHECK_EQUAL(times_back(), back_before);
        CHECK_EQUAL(pthread_create(&thread, NULL, watch_return, NULL), 0);
        /* Its answers are late, or its host learns late of what its NIC has acknowledged. */
        faults_slow_completions(2, i ? 1500000000 : 0, i ? 0 : 1500000000);
        int64_t begun = now_ms();
        faults_hold_neighbour(0, 0);
        exchange_for(200);
        CHECK(atomic_load(&back_ms) == 0 || atomic_load(&back_ms) - begun > 1400); /* as on a busy machine */
        faults_slow_completions(2, 0, 0);
        while (times_back() < back_before + 2)
            exchange();
        CHECK_EQUAL(pthread_join(thread, NULL), 0);
    }
    faults_port(2, 0);
    exchange_for(50);
    faults_port(2, 1);
    until_both_up();
}

/* Memory that cannot be registered with a rail that is about to return: it does not. */
static void given_up_while_it_connects(void)
{
    setenv("SYNTONY_NCCL_TIMEOUT", "20", 1); /* 2 x 4 s: no rail is left by chance */
    begin();
    for (int port = 0; port < 4; port += 2) {
        char line[40];
        listen_again();
        connect_both();
        exchange();
        until_both_up();
        hold_return(port);
        faults_machine(port, &(struct fake_machine){.no_memory = 1});
        CHECK_EQUAL(port ? drive_reg(&net, receiver, to, sizeof to, &receive_memory)
                         : drive_reg(&net, sender, from, sizeof from, &send_memory), 0);
        faults_machine(port, &(struct fake_machine){.few_queues = 1});
        snprintf(line, sizeof line, "rail fake%d is back", port);
        int before = drive_logged(line);
        faults_hold_neighbour(port, 0);
        exchange_for(500);
        CHECK_EQUAL(drive_logged(line), before);
        CHECK_EQUAL(drive_logged("does not return"), 0); /* nor are queue pairs made for it */
        faults_machine(port, &(struct fake_machine){0});
        CHECK(faults_provider_is_clean());
        close_both();
        until_gone();
    }
}

/* To close waits for nobody; what cannot end yet ends later, everything else at once. */
static void closed_while_it_connects(void)
{
    setenv("SYNTONY_NCCL_TIMEOUT", "18", 1); /* 2 x 1 s: no rail is left by chance */
    begin();
    connect_both();
    exchange();
    hold_return(0);
    close_both();
    CHECK_EQUAL(faults_held_calls(), 1);
    CHECK_EQUAL(faults_queue_pairs(), 2); /* of the one rail of the sender */
    faults_hold_neighbour(0, 0);
    until_gone();
}

static void *let_go_later(void *unused)
{
    (void)unused;
    usleep(200000);
    faults_hold_neighbour(0, 0);
    return NULL;
}

/* No thread can be made to connect in: not at first, and not for a rail's return, whichever step of it is
 * the next. It returns when there are some. To close waits then. */
static void no_threads(void)
{
    setenv("SYNTONY_NCCL_TIMEOUT", "22", 1); /* 2 x 17 s: no rail is left by chance */
    begin();
    int sends = 0, receives = 0;
    atomic_store(&threads_left, 0);
    for (; sends == 0 || receives == 0; nap()) {
        sends = sends ? sends : drive_connect(&net, 0, handle, &sender);
        receives = receives ? receives : drive_accept(&net, listener, &receiver);
        CHECK(sender == NULL && receiver == NULL);
    }
    CHECK(sends == 2 && receives == 2);
    CHECK_EQUAL(drive_logged("no thread"), 1);
    for (int steps = 0; steps < 3; steps++) { /* of the sender, the receiver, the sender */
        atomic_store(&threads_left, 1000);
        listen_again();
        connect_both();
        exchange();
        until_both_up();
        faults_port(0, 0);
        until_pairs(4);
        atomic_store(&threads_left, steps);
        faults_port(0, 1);
        for (int64_t begun = now_ms(); atomic_load(&threads_left) >= 0; exchange())
            CHECK(now_ms() - begun < 15000);
        exchange_for(200); /* one was asked for in vain, and not with each call */
        CHECK(atomic_load(&threads_left) > -20);
        atomic_store(&threads_left, 1000);
        until_both_up();
        close_both();
        until_gone();
    }
    listen_again();
    connect_both();
    exchange();
    hold_return(0);
    pthread_t thread;
    CHECK_EQUAL(pthread_create(&thread, NULL, let_go_later, NULL), 0);
    atomic_store(&threads_left, 0);
    close_both();
    CHECK_EQUAL(faults_queue_pairs(), 0);
    CHECK_EQUAL(pthread_join(thread, NULL), 0);
}

/* Both ends go on for so long, and are not connected. */
static void connect_in_vain(int64_t for_ms)
{
    for (int64_t begun = now_ms(); faults_held_calls() == 0 || now_ms() - begun < for_ms;) {
        CHECK_EQUAL(drive_connect(&net, 0, handle, &sender), 0);
        CHECK_EQUAL(drive_accept(&net, listener, &receiver), 0);
        CHECK(sender == NULL || receiver == NULL);
        nap();
    }
}

static void away_at_connecting(int port, int64_t for_ms)
{
    begin();
    faults_hold_neighbour(port, 1);
    connect_in_vain(for_ms);
    faults_hold_neighbour(port, 0);
    connect_both();
    until_pairs(PAIRS);
    exchange_often(50);
}

static void senders_at_connecting(void)
{
    away_at_connecting(0, 100);
}

static void receivers_at_connecting(void)
{
    away_at_connecting(3, 10500); /* for longer than its peer may take when that is done */
}

/* The receiver gives up: its peer learns of it, and nothing stays. */
static void not_accepted(void)
{
    int result = 0;
    begin();
    faults_hold_neighbour(2, 1);
    connect_in_vain(100);
    CHECK_EQUAL(drive_close(&net, SLOT_CLOSE_LISTEN, listener), 0);
    CHECK_EQUAL(faults_held_calls(), 1);
    for (; result == 0; nap())
        result = drive_connect(&net, 0, handle, &sender);
    CHECK_EQUAL(result, 2);
    CHECK(sender == NULL);
    faults_hold_neighbour(2, 0);
    until_gone();
}

/* The one interface of a network namespace of our own. */
static void set_loopback(bool up)
{
    struct ifreq request = {.ifr_name = "lo", .ifr_flags = up ? IFF_UP | IFF_RUNNING : 0};
    int fd = socket(AF_INET, SOCK_DGRAM, 0);
    CHECK(fd >= 0);
    CHECK_EQUAL(ioctl(fd, SIOCSIFFLAGS, &request), 0);
    close(fd);
}

static void begin_alone(const char *survive_ms)
{
    if (unshare(CLONE_NEWNET))
        _exit(SKIPPED);
    set_loopback(true);
    setenv("SYNTONY_NCCL_SURVIVE_MS", survive_ms, 1);
    begin();
}

/* 0: it still connects after so long. */
static int connect_for(int64_t for_ms)
{
    int result = 0;
    for (int64_t begun = now_ms(); result == 0 && now_ms() - begun < for_ms; usleep(1000))
        result = drive_connect(&net, 0, handle, &sender);
    CHECK(sender == NULL);
    return result;
}

/* The peer's host dies without a word, after it took the connection. */
static void host_dies_at_connecting(void)
{
    begin_alone("0");
    CHECK_EQUAL(connect_for(200), 0);
    CHECK(faults_queue_pairs() > 0);
    set_loopback(false);
    CHECK_EQUAL(connect_for(HANG_MS), 2);
    until_gone();
}

/* A peer that is late, on a host that lives, is waited for. */
static void peer_is_late_at_connecting(void)
{
    begin_alone("2000");
    CHECK_EQUAL(connect_for(8000), 0);
    connect_both();
    exchange_often(50);
}

/* What is connected does not end with the network of its control connection. */
static void network_breaks_after_connecting(void)
{
    setenv("SYNTONY_NCCL_TIMEOUT", "22", 1); /* 2 x 17 s: no rail is left by chance */
    begin_alone("2000");
    connect_both();
    exchange();
    set_loopback(false);
    exchange_for(8000);
}

/* Both rails of the sender are left, and wait for the peer's word. */
static void leave_both(void)
{
    setenv("SYNTONY_NCCL_TIMEOUT", "22", 1); /* 2 x 17 s: no rail is left by chance */
    begin_alone("2000");
    connect_both();
    exchange();
    for (int up = 0; up < 2; up++) {
        for (int port = 0; port < 2; port++)
            faults_port(port, up);
        for (int64_t begun = ran_ms(); ran_ms() - begun < 100 || drive_logged("is left") < 2; nap()) {
            void *none;
            CHECK_EQUAL(drive_send(&net, sender, from, 8, 12345, send_memory, &none), 0);
        }
    }
}

/* The peer's host, for whose NCCL a sender without rails waits, dies. */
static void host_dies_without_rails(void)
{
    leave_both();
    set_loopback(false);
    int result = 0;
    for (int64_t begun = now_ms(); result == 0 && now_ms() - begun < HANG_MS; usleep(1000)) {
        void *none;
        result = drive_send(&net, sender, from, 8, 12345, send_memory, &none);
    }
    CHECK_EQUAL(result, 6);
}

/* With rails the network of the control connection does not matter again. */
static void network_breaks_after_rails_returned(void)
{
    leave_both();
    until_pairs(PAIRS);
    exchange_for(200);
    set_loopback(false);
    exchange_for(8000);
}

static void *back_after_3s(void *unused)
{
    (void)unused;
    sleep(3);
    set_loopback(true);
    return NULL;
}

/* Both ends agree on a rail's loss over the control connection: what is missing waits for it. */
static void rail_fails_while_network_is_away(void)
{
    pthread_t thread;
    setenv("SYNTONY_NCCL_TIMEOUT", "22", 1); /* 2 x 17 s: no rail is left by chance */
    begin_alone("2000");
    connect_both();
    exchange_often(20);
    set_loopback(false);
    faults_port(0, 0);
    CHECK_EQUAL(pthread_create(&thread, NULL, back_after_3s, NULL), 0);
    exchange_often(50);
    faults_port(0, 1);
    until_pairs(PAIRS);
    exchange_often(50);
    CHECK_EQUAL(pthread_join(thread, NULL), 0);
}

int main(int argc, char **argv)
{
    static const struct edge_case CASES[] = {
        {"senders_at_return", senders_at_return}, {"receivers_at_return", receivers_at_return},
        {"left_while_it_connects", left_while_it_connects},
        {"asked_anew_while_it_connects", asked_anew_while_it_connects},
        {"fails_whenever_it_connects", fails_whenever_it_connects},
        {"proved_by_probes", proved_by_probes},
        {"given_up_while_it_connects", given_up_while_it_connects},
        {"closed_while_it_connects", closed_while_it_connects}, {"no_threads", no_threads},
        {"senders_at_connecting", senders_at_connecting},
        {"receivers_at_connecting", receivers_at_connecting}, {"not_accepted", not_accepted},
        {"host_dies_at_connecting", host_dies_at_connecting},
        {"peer_is_late_at_connecting", peer_is_late_at_connecting},
        {"network_breaks_after_connecting", network_breaks_after_connecting},
        {"host_dies_without_rails", host_dies_without_rails},
        {"network_breaks_after_rails_returned", network_breaks_after_rails_returned},
        {"rail_fails_while_network_is_away", rail_fails_while_network_is_away}};
    return run_case(argc, argv, CASES, sizeof CASES / sizeof *CASES);
}
