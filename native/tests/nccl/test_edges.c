/* What the plug-in does with single events that should not be. test_edges LIBRARY PROVIDER CASE */
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "edge.h"

enum { RECEIVES = 32 }; /* at once */

static void foreign_handle(void)
{
    begin();
    char foreign[128];
    memset(foreign, 0x5a, sizeof foreign);
    CHECK_EQUAL(drive_connect(&net, 0, foreign, &sender), 2);
    CHECK(sender == NULL);
    CHECK_EQUAL(drive_listen(&net, 9, handle, &listener), 4);
    CHECK_EQUAL(drive_connect(&net, -1, handle, &sender), 4);
}

static void too_large(void)
{
    begin();
    connect_both();
    void *request = post_receive(64);
    int result = 0;
    CHECK(post_send(128, request, &result) == NULL);
    CHECK_EQUAL(result, 5);
}

static void peer_gone(void)
{
    begin();
    connect_both();
    void *request = post_receive(64);
    close_sender();
    CHECK_EQUAL(result_of(request, NULL), 6);
    CHECK_EQUAL(drive_logged("connection ended: the peer closed it"), 1);
}

/* One fault and no other: what was lost goes on at once, not with the next fault. The receiver
 * leaves the rail while acknowledgements, and perhaps chunks, are under way. */
static void receiver_leaves(void)
{
    setenv("SYNTONY_NCCL_CHUNK", "4096", 1);
    begin();
    connect_both();
    void *request = post_receive(sizeof to);
    int result = 0;
    faults_delay(0, 50000000); /* chunks arrive after the receiver has left */
    memset(from, 9, sizeof from);
    void *sent = post_send(sizeof from, request, &result);
    faults_delay(0, 0);
    faults_error(2);
    CHECK_EQUAL(result_of(request, sent), 0);
    CHECK_EQUAL(result_of(sent, NULL), 0);
    CHECK_EQUAL(memcmp(from, to, sizeof to), 0);
}

/* The receiver has everything and closes; no acknowledgement ever arrives. */
static void last_acknowledgements(void)
{
    begin();
    connect_both();
    void *request = post_receive(sizeof to);
    int result = 0;
    void *sent = post_send(sizeof from, request, &result);
    for (int port = 2; port < 4; port++)
        faults_delay(port, INT64_C(100000000000));
    CHECK_EQUAL(result_of(request, NULL), 0);
    close_receiver();
    CHECK_EQUAL(result_of(sent, NULL), 0);
}

/* The receiver has one message, asks for another one in its place, and closes. That the first one was
 * acknowledged, which comes after all that, says nothing of the other one. */
static void acknowledged_late(void)
{
    void *requests[RECEIVES], *first = NULL, *sent = NULL;
    setenv("SYNTONY_NCCL_TIMEOUT", "22", 1); /* 2 x 17 s: no rail is left by chance */
    begin();
    connect_both();
    for (int i = 0; i < RECEIVES; i++) {
        if (i == RECEIVES - 2) { /* the receiver asks for the last one by the queue pair that is not late */
            pump(requests[0], 20);
            faults_lose(1, 1000);
        }
        requests[i] = post_receive(0);
    }
    pump(requests[0], 20);
    faults_lose(1, 0);
    faults_delay(3, 600000000);
    CHECK_EQUAL(drive_send(&net, sender, from, 0, 0, send_memory, &first), 0);
    CHECK(first != NULL);
    CHECK_EQUAL(result_of(requests[0], NULL), 0);
    faults_delay(3, 0);
    for (int i = 1; i < RECEIVES; i++) {
        CHECK_EQUAL(drive_send(&net, sender, from, 0, 0, send_memory, &sent), 0);
        CHECK(sent != NULL);
        CHECK_EQUAL(result_of(requests[i], NULL), 0);
    }
    post_receive(0);
    pump_sender(20);
    close_receiver();
    CHECK_EQUAL(result_of(first, NULL), 0); /* the receiver's last word says so */
    CHECK_EQUAL(drive_send(&net, sender, from, 0, 0, send_memory, &sent), 0);
    CHECK(sent != NULL);
    CHECK_EQUAL(result_of(sent, NULL), 6);
}

/* What has arrived is told of late, after the sender has closed: it is waited for. */
static void sender_leaves(void)
{
    begin();
    connect_both();
    void *request = post_receive(sizeof to);
    pump(request, 20);
    for (int port = 2; port < 4; port++)
        faults_slow_completions(port, 300000000, 0);
    int result = 0;
    memset(from, 5, sizeof from);
    void *sent = post_send(sizeof from, request, &result);
    CHECK_EQUAL(result_of(sent, NULL), 0);
    close_sender();
    CHECK_EQUAL(result_of(request, NULL), 0);
    CHECK_EQUAL(memcmp(from, to, sizeof to), 0);
}

/* A rail that could not return at first returns, and carries what the other one no longer can. */
static void returns_late(void)
{
    setenv("SYNTONY_NCCL_SURVIVE_MS", "15000", 1);
    begin();
    connect_both();
    void *request = post_receive(sizeof to);
    int result = 0;
    faults_port(2, 0);
    pump(request, 3500); /* longer than the sender waits for an answer */
    faults_port(2, 1);
    pump(request, 2500);
    faults_port(1, 0);
    void *sent = post_send(sizeof from, request, &result);
    CHECK(sent != NULL);
    CHECK_EQUAL(result_of(request, sent), 0);
}

/* A port that is down is not tried again and again. */
static void not_tried_while_down(void)
{
    setenv("SYNTONY_NCCL_TIMEOUT", "22", 1); /* 2 x 17 s: no rail is left by chance */
    begin();
    for (int port = 0; port < 4; port += 2) { /* each with the shortest pauses */
        listen_again();
        connect_both();
        exchange();
        until_both_up();
        faults_port(port, 0);
        until_pairs(4);
        for (int end = 0; end < 4; end += 2)
            faults_hold_neighbour(end, 1); /* who tries to connect waits there */
        for (int64_t begun = now_ms(); now_ms() - begun < 300;) {
            exchange();
            CHECK_EQUAL(faults_flow_labels((uint32_t[16]){0}, 16), 4);
        }
        CHECK_EQUAL(faults_held_calls(), 0);
        for (int end = 0; end < 4; end += 2)
            faults_hold_neighbour(end, 0);
        faults_port(port, 1);
        close_both();
    }
}

/* What went by the other rail meanwhile is none of its load: one that returns has its part at once. */
static void carries_at_return(void)
{
    setenv("SYNTONY_NCCL_TIMEOUT", "22", 1); /* 2 x 17 s: no rail is left by chance */
    begin();
    connect_both();
    exchange();
    faults_port(0, 0);
    until_pairs(4);
    for (int i = 0; i < 1000; i++)
        exchange();
    faults_port(0, 1);
    while (drive_logged("rail fake0 is back") == 0 || drive_logged("rail fake2 is back") == 0)
        exchange();
    both_rails_carry();
}

/* The sender asked for a rail and gave that up before the receiver could do anything: what it asked with is void,
 * and the receiver waits until it is asked again. */
static void asked_no_more(void)
{
    setenv("SYNTONY_NCCL_TIMEOUT", "22", 1); /* 2 x 17 s: no rail is left by chance */
    begin();
    connect_both();
    until_both_up();
    faults_port(2, 0);
    until_pairs(4);
    exchange_for(100);
    faults_port(0, 0);
    exchange_for(100);
    faults_port(2, 1);
    for (int64_t begun = now_ms(); now_ms() - begun < 200;) {
        exchange();
        CHECK_EQUAL(faults_flow_labels((uint32_t[16]){0}, 16), 4);
    }
    faults_port(0, 1);
    until_both_up();
}

/* The receiver's host is busy, its NIC takes what comes: never more than it posted receives for. */
static void slow_receiver(void)
{
    enum { COUNT = RECEIVES, SIZE = 1 << 16 };
    setenv("SYNTONY_NCCL_CHUNK", "4096", 1);
    setenv("SYNTONY_NCCL_QPS", "1", 1);
    begin();
    connect_both();
    char *source = calloc(COUNT, SIZE), *target = calloc(COUNT, SIZE);
    void *requests[COUNT], *sent[COUNT] = {0}, *there, *here;
    CHECK_EQUAL(drive_reg(&net, sender, source, (size_t)COUNT * SIZE, &here), 0);
    CHECK_EQUAL(drive_reg(&net, receiver, target, (size_t)COUNT * SIZE, &there), 0);
    for (size_t i = 0; i < (size_t)COUNT * SIZE; i++)
        source[i] = (char)(i * 2654435761u >> 13);
    for (int i = 0; i < COUNT; i++) {
        void *data = target + (size_t)i * SIZE;
        size_t size = SIZE;
        int tag = 0;
        CHECK_EQUAL(drive_receive(&net, receiver, 1, &data, &size, &tag, &there, &requests[i]), 0);
        CHECK(requests[i] != NULL);
    }
    int posted = 0, done = 0, sizes[8];
    while (posted < COUNT) {
        CHECK_EQUAL(drive_send(&net, sender, source + (size_t)posted * SIZE, SIZE, 0, here,
                               &sent[posted]), 0);
        posted += sent[posted] != NULL;
    }
    for (int64_t begun = now_ms(); now_ms() - begun < 100;)
        CHECK_EQUAL(drive_test(&net, sent[COUNT - 1], &done, sizes), 0);
    CHECK(!done); /* not without credits */
    CHECK(faults_provider_is_clean());
    for (int i = 0; i < COUNT; i++)
        CHECK_EQUAL(result_of(requests[i], sent[COUNT - 1]), 0);
    CHECK_EQUAL(memcmp(source, target, (size_t)COUNT * SIZE), 0);
}

/* The sender's NIC tells late of what has arrived, so that nothing of it is read: there are as many receives
 * for clear-to-sends as can come meanwhile, also after the other rail, which brought others, is lost. */
static void sender_reads_late(void)
{
    void *requests[RECEIVES], *sent[RECEIVES];
    int done, sizes[8], result = 0;
    setenv("SYNTONY_NCCL_TIMEOUT", "22", 1); /* 2 x 17 s: no rail is left by chance */
    setenv("SYNTONY_NCCL_QPS", "1", 1);
    begin();
    connect_both();
    faults_port(1, 0);
    requests[0] = post_receive(sizeof to);
    pump(requests[0], 50);
    for (int i = 1; i < RECEIVES; i++)
        requests[i] = post_receive(sizeof to);
    pump(requests[0], 20); /* all are asked for by the one rail that lives */
    faults_port(1, 1);
    while (drive_logged("rail fake1 is back") == 0 || drive_logged("rail fake3 is back") == 0)
        pump(requests[0], 1);
    int64_t slow_since = now_ms();
    faults_slow_completions(1, INT64_C(3000000000), 0);
    faults_port(0, 0);
    pump(requests[0], 50);
    for (int i = 0; i < RECEIVES; i++) {
        CHECK_EQUAL(drive_send(&net, sender, from, sizeof from, 0, send_memory, &sent[i]), 0);
        CHECK(sent[i] != NULL);
    }
    for (int i = 0; i < RECEIVES; i++)
        CHECK_EQUAL(result_of(requests[i], NULL), 0);
    for (int i = 0; i < RECEIVES; i++)
        requests[i] = post_receive(sizeof to);
    pump(requests[0], 50);
    CHECK_EQUAL(drive_test(&net, sent[0], &done, sizes), 0);
    CHECK(!done || now_ms() - slow_since >= 3000); /* as on a machine that stopped */
    CHECK(faults_provider_is_clean());
    faults_slow_completions(1, 0, 0);
    for (int i = 0; i < RECEIVES; i++) {
        CHECK_EQUAL((i == 0 && done) ? 0 : result_of(sent[i], NULL), 0);
        sent[i] = post_send(sizeof from, requests[i], &result);
        CHECK_EQUAL(results_of(requests[i], sent[i], NULL), 0);
    }
}

/* NCCL may call rarely. What the peer says is read nevertheless at every 16th call, for that takes longer than a
 * tick of the clock. */
static void called_rarely(void)
{
    setenv("SYNTONY_NCCL_TIMEOUT", "22", 1); /* 2 x 17 s: no rail is left by chance */
    begin();
    connect_both();
    void *none, *request = post_receive(sizeof to);
    pump(request, 20);
    for (int i = 1; i <= 3; i++) {
        int done, sizes[8], calls = 0;
        faults_error(2);
        for (int64_t begun = now_ms(); drive_logged("rail fake2 is left") < i || now_ms() - begun < 20; nap())
            CHECK_EQUAL(drive_test(&net, request, &done, sizes), 0);
        for (; drive_logged("rail fake0 is left: the peer left it") < i; calls++) {
            CHECK_EQUAL(drive_send(&net, sender, from, 8, 12345, send_memory, &none), 0);
            usleep(2000);
        }
        CHECK(calls <= 17);
        while (drive_logged("rail fake0 is back") < i || drive_logged("rail fake2 is back") < i)
            pump(request, 1);
    }
}

/* The end with fewer rails decides how many are used, whichever it is. */
static void fewer_rails(void)
{
    setenv("SYNTONY_NCCL_RAILS", "fake0+fake1,fake2", 1);
    CHECK_EQUAL(drive_init(&net), 0);
    for (int listens = 0; listens < 2; listens++) {
        sender = receiver = NULL;
        CHECK_EQUAL(drive_listen(&net, listens, handle, &listener), 0);
        connect_both_by(1 - listens);
        for (int i = 0; i < 20; i++)
            exchange();
        /* Of each connection two at each end, and none that is of no use. */
        CHECK_EQUAL(faults_queue_pairs(), 4 + 4 * listens);
    }
    void *memory;
    faults_machine(1, &(struct fake_machine){.no_memory = 1}); /* the rail that the other end does not have */
    CHECK_EQUAL(drive_reg(&net, sender, from, sizeof from, &memory), 0);
    CHECK_EQUAL(drive_reg(&net, receiver, to, sizeof to, &memory), 0);
    faults_vanish(1);
    exchange_for(100);
    CHECK_EQUAL(drive_logged("is left"), 0);
}

static void merged_beyond_four(void)
{
    setenv("SYNTONY_NCCL_RAILS", "fake0+fake1+fake2,fake3+fake0+fake1", 1);
    CHECK_EQUAL(drive_init(&net), 0);
    int device = drive_merge(&net, 2, (int[]){0, 1});
    struct drive_properties properties;
    CHECK_EQUAL(drive_properties(&net, device, &properties), 0);
    CHECK_EQUAL(properties.speed, 400000);
}

static void merged(void)
{
    begin();
    int device = drive_merge(&net, 2, (int[]){0, 1});
    struct drive_properties properties;
    CHECK_EQUAL(drive_properties(&net, device, &properties), 0);
    CHECK_EQUAL(properties.virtual_count, 2);
    CHECK_EQUAL(properties.speed, 400000);
    CHECK_EQUAL(drive_merge(&net, 2, (int[]){0, 77}), -1);
}

/* NCCL's list has room for four members, since v12 for eight: what is behind it is no member. */
static void merged_as_many_as_there_are_places(void)
{
    static const int DEVICES[8] = {0};
    CHECK_EQUAL(drive_init(&net), 0);
    for (int version = 9; version <= 12; version++) {
        int most = version < 12 ? 4 : 8;
        struct net other = drive_load(plug_in, version);
        for (int count = -1; count <= 9; count++)
            CHECK_EQUAL(drive_merge(&other, count, DEVICES) >= 0, count >= 1 && count <= most);
    }
}

static void not_usable(void)
{
    static const char *const WRONG[][2] = {
        {"SYNTONY_NCCL_QPS", "many"}, {"SYNTONY_NCCL_QPS", "9"}, {"SYNTONY_NCCL_TIMEOUT", "0"},
        {"SYNTONY_NCCL_CHUNK", "256K"}, {"SYNTONY_NCCL_CHUNK", "4095"}, {"NCCL_IB_TC", "256"},
        {"SYNTONY_NCCL_SURVIVE_MS", "99999999999999999999"}, {"SYNTONY_NCCL_RAILS", "fake0+fake9"},
        {"SYNTONY_NCCL_HCA", "=mlx5_0"}, {"SYNTONY_NCCL_IBVERBS", "/no/such.so"}};
    for (size_t i = 0; i < sizeof WRONG / sizeof *WRONG; i++) {
        pid_t child = fork();
        if (child == 0) {
            setenv(WRONG[i][0], WRONG[i][1], 1);
            _exit(drive_init(&net));
        }
        int status = 0;
        CHECK_EQUAL(waitpid(child, &status, 0), child);
        CHECK(WIFEXITED(status));
        CHECK_EQUAL(WEXITSTATUS(status), 2);
    }
}

int main(int argc, char **argv)
{
    static const struct edge_case CASES[] = {
        {"foreign_handle", foreign_handle}, {"too_large", too_large}, {"peer_gone", peer_gone},
        {"receiver_leaves", receiver_leaves}, {"last_acknowledgements", last_acknowledgements},
        {"sender_leaves", sender_leaves}, {"acknowledged_late", acknowledged_late},
        {"returns_late", returns_late}, {"not_tried_while_down", not_tried_while_down},
        {"carries_at_return", carries_at_return}, {"asked_no_more", asked_no_more},
        {"slow_receiver", slow_receiver}, {"sender_reads_late", sender_reads_late},
        {"called_rarely", called_rarely}, {"fewer_rails", fewer_rails}, {"merged", merged},
        {"merged_beyond_four", merged_beyond_four},
        {"merged_as_many_as_there_are_places", merged_as_many_as_there_are_places},
        {"not_usable", not_usable}};
    return run_case(argc, argv, CASES, sizeof CASES / sizeof *CASES);
}
