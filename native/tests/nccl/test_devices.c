/* What the plug-in does where a NIC is not as it should be. test_devices LIBRARY PROVIDER CASE */
#include <pthread.h>
#include <string.h>
#include <unistd.h>

#include "edge.h"

/* Of enum ibv_event_type. */
enum { CQ_ERR = 0, QP_FATAL, QP_REQ_ERR, QP_ACCESS_ERR, DEVICE_FATAL = 8 };

/* A rail for whose return there are no queue pairs stays away, and returns when there are. */
static void none_to_return_with(void)
{
    setenv("SYNTONY_NCCL_TIMEOUT", "18", 1); /* 2 x 1 s: the other rail is not left by chance */
    begin();
    connect_both();
    struct fake_limits limits = NO_LIMITS;
    limits.queue_pairs = 0;
    faults_limit(&limits);
    faults_error(0);
    for (int i = 0; i < 100; i++)
        exchange();
    faults_limit(&NO_LIMITS);
    int64_t begun = now_ms();
    while (faults_flow_labels((uint32_t[16]){0}, 16) < 8 && now_ms() - begun < HANG_MS)
        exchange();
    CHECK_EQUAL(faults_flow_labels((uint32_t[16]){0}, 16), 8);
}

/* Of a sender's device that is gone nothing completes any more, and it writes nothing any more. */
static void senders_device_vanishes(void)
{
    begin();
    connect_both();
    for (int i = 0; i < 10; i++)
        exchange();
    faults_vanish(0);
    for (int i = 0; i < 100; i++)
        exchange();
    void *memory = NULL; /* of which the device that is gone knows nothing */
    CHECK_EQUAL(drive_reg(&net, sender, from, sizeof from, &memory), 0);
    CHECK_EQUAL(drive_dereg(&net, sender, memory), 0);
    for (int i = 0; i < 20; i++)
        exchange();
}

/* The receiver's: what it acknowledged and did not tell of is lost, which is an error at once. */
static void receivers_device_vanishes(void)
{
    begin();
    connect_both();
    exchange();
    void *request = post_receive(sizeof to);
    faults_vanish(2);
    int64_t begun = ran_ms();
    CHECK_EQUAL(result_of(request, NULL), 6);
    CHECK(ran_ms() - begun < 2000); /* not only when it should have drained */
}

/* At either end, of a rail that is left already: nothing is lost with it. */
static void idle_device_vanishes(void)
{
    setenv("SYNTONY_NCCL_TIMEOUT", "22", 1); /* 2 x 17 s: no rail is left by chance */
    begin();
    connect_both();
    exchange();
    for (int port = 0; port < 4; port += 2)
        faults_port(port, 0);
    until_pairs(4);
    exchange_for(100); /* both are drained */
    for (int port = 0; port < 4; port += 2)
        faults_vanish(port);
    for (int i = 0; i < 100; i++)
        exchange();
    CHECK_EQUAL(drive_logged("does not end its work"), 0);
}

/* A NIC that hangs does not end its work: its queue pairs are taken away, and it may return. */
static void work_never_ends(void)
{
    setenv("SYNTONY_NCCL_TIMEOUT", "22", 1); /* 2 x 17 s: no rail is left by chance */
    begin();
    connect_both();
    exchange();
    faults_slow_completions(0, INT64_C(1000000000000), 0);
    faults_port(0, 0);
    exchange_for(2500);
    faults_slow_completions(0, 0, 0);
    faults_port(0, 1);
    for (int64_t begun = now_ms(); faults_flow_labels((uint32_t[16]){0}, 16) < 8;) {
        CHECK(now_ms() - begun < HANG_MS);
        exchange();
    }
    until_both_up();
    both_rails_carry();
}

/* And takes seconds to destroy them, in which those of the other rail are made: the peer has as long to
 * answer as ever. */
static void work_never_ends_for_long(void)
{
    setenv("SYNTONY_NCCL_TIMEOUT", "22", 1);
    begin();
    connect_both();
    until_both_up();
    void *request = post_receive(sizeof to);
    for (int port = 0; port < 2; port++)
        faults_machine(port, &(struct fake_machine){.destroying_ns = INT64_C(1900000000)});
    faults_slow_completions(0, INT64_C(1000000000000), 0);
    faults_port(0, 0);
    faults_error(1);
    for (int64_t begun = now_ms(); drive_logged("is back") < 2;) { /* at both ends */
        CHECK(now_ms() - begun < HANG_MS);
        pump(request, 100);
    }
    for (int port = 0; port < 2; port++)
        faults_machine(port, &(struct fake_machine){0});
    close_sender();
    CHECK_EQUAL(drive_logged("rails left 2 times"), 1);
}

/* It ends its work while the thread that polls for it is paused, for longer than it may take: that is read
 * before its queue pairs are taken away. */
static void drains_while_we_are_paused(void)
{
    setenv("SYNTONY_NCCL_TIMEOUT", "22", 1); /* 2 x 17 s: no rail is left by chance */
    begin();
    connect_both();
    for (int port = 0; port < 4; port += 2) {
        until_both_up();
        faults_slow_completions(port, 200000000, 0);
        faults_machine(port, &(struct fake_machine){.pausing_ns = INT64_C(2500000000)});
        int64_t begun = now_ms();
        faults_port(port, 0);
        while (now_ms() - begun < 2500)
            exchange();
        faults_slow_completions(port, 0, 0);
        faults_port(port, 1);
    }
    until_both_up();
    CHECK_EQUAL(drive_logged("does not end its work"), 0);
}

/* What the receiver waits for arrives, both rails return, and neither was given up. */
static void is_received_and_drained(void *request)
{
    int result = 0;
    void *sent = post_send(sizeof from, request, &result);
    CHECK_EQUAL(results_of(request, sent, NULL), 0);
    until_both_up();
    CHECK_EQUAL(drive_logged("does not end its work"), 0);
}

/* A pause in which a NIC drains a rail is not its time: what it says is read after it. */
static void drains_while_nobody_calls(void)
{
    setenv("SYNTONY_NCCL_TIMEOUT", "22", 1); /* 2 x 17 s: no rail is left by chance */
    begin();
    connect_both();
    void *request = post_receive(sizeof to);
    pump(request, 50);
    faults_slow_completions(2, INT64_C(4000000000), 0);
    faults_port(2, 0);
    while (drive_logged("rail fake2 is left") == 0)
        pump(request, 1);
    usleep(3000000);
    pump(request, 50);
    faults_slow_completions(2, 0, 0);
    faults_port(2, 1);
    is_received_and_drained(request);
}

/* It takes seconds to put queue pairs in error, and only then begins to drain them: so does the thread that asked
 * for it, as after a pause within a look. Both rails of a receiver, one after the other. */
static void drains_after_slow_calls(void)
{
    setenv("SYNTONY_NCCL_TIMEOUT", "22", 1); /* 2 x 17 s: no rail is left by chance */
    begin();
    connect_both();
    void *request = post_receive(sizeof to);
    pump(request, 50);
    faults_slow_completions(2, 200000000, 0);
    faults_machine(2, &(struct fake_machine){.failing_ns = 1100000000}); /* of two */
    for (int port = 3; port >= 2; port--) {
        faults_port(port, 0);
        while (drive_logged(port == 3 ? "rail fake3 is left" : "rail fake2 is left") == 0)
            pump(request, 1);
    }
    pump(request, 400);
    faults_slow_completions(2, 0, 0);
    faults_machine(2, &(struct fake_machine){0});
    for (int port = 2; port < 4; port++)
        faults_port(port, 1);
    is_received_and_drained(request);
}

/* Queue pairs that cannot be destroyed for a while, at either end: their rail stays away so long, and returns. */
static void destroys_later(void)
{
    setenv("SYNTONY_NCCL_TIMEOUT", "22", 1); /* 2 x 17 s: no rail is left by chance */
    begin();
    connect_both();
    for (int port = 0; port < 4; port += 2) {
        until_both_up();
        faults_machine(port, &(struct fake_machine){.undying = 4}); /* the first, and the second, of two */
        faults_error(port);
        while (drive_logged("does not return: old queue pairs cannot be destroyed") < 1 + port / 2)
            exchange();
    }
    until_both_up();
    both_rails_carry();
}

/* A NIC takes no work requests for a while, at either end: its rail is left, and returns. */
static void work_is_refused(void)
{
    setenv("SYNTONY_NCCL_TIMEOUT", "22", 1); /* 2 x 17 s: no rail is left by chance */
    begin();
    connect_both();
    for (int port = 0; port < 4; port++) {
        until_both_up();
        faults_machine(port, &(struct fake_machine){.refusing = 1});
        exchange_for(200);
        CHECK(drive_logged("is left: Cannot allocate memory") > port);
        faults_machine(port, &(struct fake_machine){0});
    }
    until_both_up();
}

/* The NIC takes the write of a chunk, and not the record behind it. It is not sent by the other rail before it
 * can no longer be written by this one: its buffer may be another message's by then. */
static void work_is_half_refused(void)
{
    setenv("SYNTONY_NCCL_TIMEOUT", "22", 1); /* 2 x 17 s: no rail is left by chance */
    begin();
    for (int i = 1; i <= 10; i++) {
        int result = 0, done, sizes[8];
        listen_again();
        connect_both();
        void *request = post_receive(sizeof to), *next = post_receive(sizeof to);
        pump(request, 2); /* they are asked for */
        memset(from, i, sizeof from);
        for (int port = 0; port < 2; port++)
            faults_delay(port, port == 1 ? 20000000 : 0); /* by which the first message goes */
        faults_machine(1, &(struct fake_machine){.refusing = 2});
        void *sent = post_send(sizeof from, request, &result);
        CHECK(sent != NULL);
        CHECK_EQUAL(result_of(request, sent), 0);
        CHECK_EQUAL(memcmp(from, to, sizeof to), 0);
        CHECK_EQUAL(drive_logged("rail fake1 is left: Cannot allocate memory"), i);
        memset(to, 0xee, sizeof to);
        pump_sender(30); /* the receiver's NCCL does not call */
        for (size_t j = 0; j < sizeof to; j++)
            CHECK_EQUAL(to[j], (char)0xee);
        faults_delay(1, 0);
        faults_machine(1, &(struct fake_machine){0});
        CHECK_EQUAL(drive_test(&net, next, &done, sizes), 0);
        close_both();
    }
}

/* A receiver's NIC takes no work for a while, in which it could give credits: it gives them later. */
static void credits_are_refused(void)
{
    enum { COUNT = 32, SIZE = 1 << 16 }; /* of chunks two times more than the credits of both rails */
    static char source[COUNT][SIZE], target[COUNT][SIZE];
    void *requests[COUNT], *sent[COUNT] = {0}, *there, *here;
    setenv("SYNTONY_NCCL_TIMEOUT", "22", 1); /* 2 x 17 s: no rail is left by chance */
    setenv("SYNTONY_NCCL_CHUNK", "4096", 1);
    setenv("SYNTONY_NCCL_QPS", "1", 1);
    begin();
    connect_both();
    memset(source, 7, sizeof source);
    CHECK_EQUAL(drive_reg(&net, sender, source, sizeof source, &here), 0);
    CHECK_EQUAL(drive_reg(&net, receiver, target, sizeof target, &there), 0);
    for (int i = 0; i < COUNT; i++) {
        void *data = target[i];
        size_t size = SIZE;
        int tag = 0;
        CHECK_EQUAL(drive_receive(&net, receiver, 1, &data, &size, &tag, &there, &requests[i]), 0);
        CHECK(requests[i] != NULL);
    }
    for (int i = 0, done, sizes[8]; i < COUNT;) {
        CHECK_EQUAL(drive_send(&net, sender, source[i], SIZE, 0, here, &sent[i]), 0);
        i += sent[i] != NULL;
        if (i == COUNT) /* all are asked for */
            for (int port = 2; port < 4; port++)
                faults_machine(port, &(struct fake_machine){.refusing = 1});
        else if (i == 0)
            CHECK_EQUAL(drive_test(&net, requests[COUNT - 1], &done, sizes), 0);
    }
    for (int64_t begun = now_ms(); now_ms() - begun < 100; nap()) {
        int done, sizes[8];
        CHECK_EQUAL(drive_test(&net, requests[COUNT - 1], &done, sizes), 0);
        CHECK(!done);
        CHECK_EQUAL(drive_test(&net, sent[COUNT - 1], &done, sizes), 0);
    }
    for (int port = 2; port < 4; port++)
        faults_machine(port, &(struct fake_machine){0});
    for (int i = 0; i < COUNT; i++)
        CHECK_EQUAL(results_of(requests[i], sent[i], NULL), 0);
    CHECK_EQUAL(memcmp(source, target, sizeof source), 0);
    CHECK_EQUAL(drive_logged("is left"), 0);
}

/* Memory that cannot be registered with a rail that is not in use: it is not used again. Without any rail
 * that would be the end, so it is an error. */
static void memory_for_some_rails(void)
{
    setenv("SYNTONY_NCCL_TIMEOUT", "22", 1); /* 2 x 17 s: no rail is left by chance */
    begin();
    for (int port = 0; port < 4; port += 2) {
        void *comm, *memory = NULL;
        listen_again();
        connect_both();
        until_both_up();
        comm = port ? receiver : sender;
        faults_machine(port, &(struct fake_machine){.no_memory = 1});
        CHECK_EQUAL(drive_reg(&net, comm, from, sizeof from, &memory), 2); /* it is in use */
        faults_port(port, 0);
        until_pairs(4);
        CHECK_EQUAL(drive_reg(&net, comm, from, sizeof from, &memory), 0);
        faults_machine(port, &(struct fake_machine){0});
        faults_port(port, 1);
        for (int64_t begun = now_ms(); now_ms() - begun < 300;) {
            exchange();
            CHECK_EQUAL(faults_flow_labels((uint32_t[16]){0}, 16), 4);
        }
        void *request = post_receive(sizeof to);
        faults_port(port + 1, 0);
        pump(request, 50);
        for (int rail = 0; rail < 2; rail++)
            faults_machine(port + rail, &(struct fake_machine){.no_memory = 1});
        CHECK_EQUAL(drive_reg(&net, comm, from, sizeof from, &memory), 2);
        for (int rail = 0; rail < 2; rail++)
            faults_machine(port + rail, &(struct fake_machine){0});
        faults_port(port + 1, 1);
        exchange();
        close_both();
    }
}

static void *event_later(void *event)
{
    usleep(200000);
    faults_event(*(int *)event % 2 * 2, *(int *)event);
    return NULL;
}

/* Queues that failed at either end, of which only the device's event tells: nothing completes. After the
 * last of these events the device is not used any more. */
static void queues_fail_silently(void)
{
    static int EVENTS[] = {CQ_ERR, QP_FATAL, QP_REQ_ERR, QP_ACCESS_ERR, DEVICE_FATAL};
    pthread_t thread;
    setenv("SYNTONY_NCCL_TIMEOUT", "22", 1); /* 2 x 17 s: no rail is left by chance */
    begin();
    connect_both();
    exchange();
    for (int kind = 0; kind < 5; kind++) {
        until_both_up();
        int told = drive_logged("told of a failed queue");
        faults_lose(0, 1000);
        CHECK_EQUAL(pthread_create(&thread, NULL, event_later, &EVENTS[kind]), 0);
        for (int i = 0; i < 4; i++)
            exchange();
        CHECK_EQUAL(pthread_join(thread, NULL), 0);
        faults_lose(0, 0);
        /* a rail that was on its way back has nothing to leave */
        for (int64_t begun = now_ms(); now_ms() - begun < 2000 && drive_logged("told of a failed queue") == told;)
            exchange();
        if (kind == 3) { /* it is no reason to leave a rail of a connection that begins later */
            close_both();
            told = drive_logged("told of a failed queue");
            listen_again();
            connect_both();
            until_both_up();
            CHECK_EQUAL(drive_logged("told of a failed queue"), told);
        }
    }
}

/* A NIC gives the number of a queue pair that has ended to the next one. A late packet of the one before
 * is none of the next one's, even if as many were sent by both. */
static void numbers_again(void)
{
    setenv("SYNTONY_NCCL_TIMEOUT", "18", 1); /* 2 x 1 s: no rail is left by chance */
    struct fake_limits limits = NO_LIMITS;
    limits.numbers_again = 1;
    faults_limit(&limits);
    begin();
    connect_both();
    for (int i = 0; i < 4; i++) {
        void *request = post_receive(sizeof to), *next = post_receive(sizeof to);
        pump(request, 5); /* asked for */
        memset(from, i + 1, sizeof from);
        for (int port = 0; port < 2; port++)
            faults_delay(port, 80000000); /* whichever rail it takes */
        int result = 0;
        void *sent = post_send(sizeof from, request, &result);
        CHECK(sent != NULL);
        for (int port = 0; port < 2; port++) {
            faults_delay(port, 0);
            faults_error(port);
        }
        CHECK_EQUAL(results_of(request, sent, next), 0);
        CHECK_EQUAL(memcmp(from, to, sizeof to), 0);
        for (int64_t begun = now_ms(); faults_flow_labels((uint32_t[16]){0}, 16) < 8;) {
            CHECK(now_ms() - begun < HANG_MS);
            pump(next, 1);
        }
        memset(to, 0xee, sizeof to);
        uint64_t writes = faults_writes();
        pump(next, 120);
        CHECK_EQUAL(faults_writes(), writes);
        for (size_t j = 0; j < sizeof to; j++)
            CHECK_EQUAL(to[j], (char)0xee);
        sent = post_send(sizeof from, next, &result);
        CHECK_EQUAL(results_of(next, sent, NULL), 0);
    }
}
int main(int argc, char **argv)
{
    static const struct edge_case CASES[] = {
        {"none_to_return_with", none_to_return_with},
        {"senders_device_vanishes", senders_device_vanishes},
        {"receivers_device_vanishes", receivers_device_vanishes},
        {"idle_device_vanishes", idle_device_vanishes}, {"work_never_ends", work_never_ends},
        {"work_never_ends_for_long", work_never_ends_for_long},
        {"drains_while_we_are_paused", drains_while_we_are_paused},
        {"drains_while_nobody_calls", drains_while_nobody_calls},
        {"drains_after_slow_calls", drains_after_slow_calls}, {"destroys_later", destroys_later},
        {"work_is_refused", work_is_refused}, {"work_is_half_refused", work_is_half_refused},
        {"credits_are_refused", credits_are_refused},
        {"memory_for_some_rails", memory_for_some_rails},
        {"queues_fail_silently", queues_fail_silently}, {"numbers_again", numbers_again}};
    return run_case(argc, argv, CASES, sizeof CASES / sizeof *CASES);
}
