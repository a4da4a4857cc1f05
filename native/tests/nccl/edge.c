#include "edge.h"

#include <signal.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

struct net net;
const char *plug_in;
void *sender, *receiver, *listener, *send_memory, *receive_memory;
char handle[128], from[4096], to[4096];

int64_t now_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

static int64_t ran, napped_ms;

int64_t ran_ms(void)
{
    return ran;
}

void nap(void)
{
    nap_for(20);
}

void nap_for(unsigned us)
{
    int64_t at_ms = now_ms();
    int64_t since_ms = napped_ms ? at_ms - napped_ms : 0;
    ran += since_ms < LONGEST_MS ? since_ms : LONGEST_MS;
    napped_ms = at_ms;
    usleep(us);
}

void begin(void)
{
    setenv("SYNTONY_NCCL_RAILS", "fake0+fake1,fake2+fake3", 1);
    setenv("SYNTONY_NCCL_TIMEOUT", "9", 0);
    setenv("SYNTONY_NCCL_RETRIES", "1", 1);
    CHECK_EQUAL(drive_init(&net), 0);
    CHECK_EQUAL(drive_listen(&net, 1, handle, &listener), 0);
}

void connect_both(void)
{
    connect_both_by(0);
}

static int connections;

void begin_with_agent(void)
{
    setenv("SYNTONY_NCCL_TC", "104", 1);
    setenv("SYNTONY_NCCL_TIMEOUT", "18", 0); /* 2 x 1 s: no rail is left by chance */
    faults_start_agent();
    begin();
    connect_both();
    for (int64_t begun = now_ms(); faults_page() == NULL && now_ms() - begun < HANG_MS;)
        usleep(1000);
    CHECK(faults_page() != NULL);
    exchange_for(100);
}

void connect_both_by(int device)
{
    connections++;
    while (sender == NULL || receiver == NULL) {
        if (sender == NULL)
            CHECK_EQUAL(drive_connect(&net, device, handle, &sender), 0);
        if (receiver == NULL)
            CHECK_EQUAL(drive_accept(&net, listener, &receiver), 0);
        nap();
    }
    CHECK_EQUAL(drive_reg(&net, sender, from, sizeof from, &send_memory), 0);
    CHECK_EQUAL(drive_reg(&net, receiver, to, sizeof to, &receive_memory), 0);
}

void listen_again(void)
{
    sender = receiver = NULL;
    CHECK_EQUAL(drive_listen(&net, 1, handle, &listener), 0);
}

void close_sender(void)
{
    CHECK_EQUAL(drive_close(&net, SLOT_CLOSE_SEND, sender), 0);
    sender = NULL;
}

void close_receiver(void)
{
    CHECK_EQUAL(drive_close(&net, SLOT_CLOSE_RECEIVE, receiver), 0);
    receiver = NULL;
}

void close_both(void)
{
    close_sender();
    close_receiver();
}

void *post_receive(size_t size)
{
    void *data = to, *request = NULL;
    int tag = 0;
    for (; request == NULL; nap())
        CHECK_EQUAL(drive_receive(&net, receiver, 1, &data, &size, &tag, &receive_memory, &request),
                    0);
    return request;
}

int result_of(void *request, void *other)
{
    int done = 0, sizes[8], result = 0;
    for (int64_t begun = now_ms(); now_ms() - begun < HANG_MS;) {
        result = drive_test(&net, request, &done, sizes);
        if (result || done)
            return result;
        if (other)
            drive_test(&net, other, &done, sizes);
        nap();
    }
    return -1;
}

void *post_send(size_t size, void *other, int *result)
{
    void *request = NULL;
    int done, sizes[8];
    for (int64_t begun = now_ms(); request == NULL && now_ms() - begun < HANG_MS;) {
        *result = drive_send(&net, sender, from, size, 0, send_memory, &request);
        if (*result)
            break;
        if (request == NULL) { /* else `other` may complete, and be gone */
            drive_test(&net, other, &done, sizes);
            nap();
        }
    }
    return request;
}

int results_of(void *request, void *sent, void *other)
{
    void *left[] = {request, sent};
    for (int64_t begun = now_ms(); now_ms() - begun < HANG_MS;) {
        for (int i = 0; i < 2; i++) {
            int done = 0, sizes[8], result = left[i] ? drive_test(&net, left[i], &done, sizes) : 0;
            if (result)
                return result;
            if (done)
                left[i] = NULL;
        }
        if (left[0] == NULL && left[1] == NULL)
            return 0;
        int done = 0, sizes[8];
        if (other)
            drive_test(&net, other, &done, sizes);
        nap();
    }
    return -1;
}

/* A send that no receive asks for: it only makes the sender go on. */
static void *post_send_once(int *result)
{
    void *request = NULL;
    *result = drive_send(&net, sender, from, 8, 12345, send_memory, &request);
    return request;
}

void pump_sender(int64_t for_ms)
{
    int result = 0;
    for (int64_t begun = ran_ms(); ran_ms() - begun < for_ms; nap()) {
        void *none = post_send_once(&result);
        CHECK(none == NULL && result == 0);
    }
}

void pump(void *request, int64_t for_ms)
{
    int done, sizes[8], result = 0, turns = 0;
    for (int64_t begun = ran_ms(); ran_ms() - begun < for_ms || turns < 100; turns++) {
        void *none = post_send_once(&result);
        CHECK(none == NULL && result == 0);
        CHECK_EQUAL(drive_test(&net, request, &done, sizes), 0);
        CHECK(!done);
        nap();
    }
}

void exchange(void)
{
    static char next;
    static void *ahead, *of; /* a receiver, and of which connection: its memory is used again */
    static int of_connection;
    int result = 0;
    memset(from, ++next, sizeof from);
    bool is_ahead = of == receiver && of_connection == connections;
    void *request = is_ahead ? ahead : post_receive(sizeof to);
    ahead = post_receive(sizeof to);
    of = receiver;
    of_connection = connections;
    void *sent = post_send(sizeof from, ahead, &result);
    CHECK_EQUAL(result, 0);
    CHECK(sent != NULL); /* else not within HANG_MS */
    CHECK_EQUAL(results_of(request, sent, ahead), 0);
    CHECK_EQUAL(memcmp(from, to, sizeof to), 0);
}

struct connection keep_connection(void)
{
    return (struct connection){sender, receiver, send_memory, receive_memory};
}

void exchange_over(struct connection kept)
{
    sender = kept.sender;
    receiver = kept.receiver;
    send_memory = kept.send_memory;
    receive_memory = kept.receive_memory;
    for (int i = 0; i < 10; i++)
        exchange();
}

void exchange_for(int64_t for_ms)
{
    for (int64_t begun = ran_ms(); ran_ms() - begun < for_ms; nap())
        exchange();
}

void order_both(int subject, uint64_t rate_bps, uint32_t only_class, int64_t for_ns)
{
    for (int rail = 0; rail < 2; rail++)
        faults_order(subject, rail, rail + 2, for_ns, rate_bps, only_class);
    usleep(20000); /* the background thread's look */
}

void both_rails_carry(void)
{
    enum { MESSAGES = 40, LEAST = 10 };
    uint64_t before[] = {faults_writes_at(2), faults_writes_at(3)};
    for (int i = 0; i < MESSAGES; i++)
        exchange();
    for (int rail = 0; rail < 2; rail++)
        CHECK(faults_writes_at(2 + rail) - before[rail] >= LEAST);
}

void until_pairs(int wanted)
{
    uint32_t unused[16];
    while (faults_flow_labels(unused, 16) != wanted)
        exchange();
}

void until_both_up(void)
{
    until_pairs(8);
    exchange_for(100);
}

/* The sanitizer then prints where it waits. */
__attribute__((visibility("default"))) const char *__asan_default_options(void);
const char *__asan_default_options(void)
{
    return "handle_abort=1";
}

static void hangs(int signal_number)
{
    (void)signal_number;
    abort();
}

int run_case(int argc, char **argv, const struct edge_case *cases, size_t count)
{
    CHECK(argc >= 4);
    if (argc > 4) {
        pid_t child = fork();
        int status = 0;
        if (child) {
            waitpid(child, &status, 0);
            return status == 0;
        }
    }
    signal(SIGALRM, hangs);
    alarm(HANG_MS / 1000 + 30);
    setenv("SYNTONY_NCCL_IBVERBS", argv[2], 1);
    setenv("SYNTONY_NCCL_SOCKET_IFNAME", "=lo", 1);
    faults_load(argv[2]);
    plug_in = argv[1];
    net = drive_load(plug_in, 12);
    for (size_t i = 0; i < count; i++)
        if (strcmp(cases[i].name, argv[3]) == 0) {
            cases[i].run();
            close_both(); /* also if it ended badly, or is closed already: no thread outlives it */
            _exit(0);
        }
    return 2;
}
