/* What the plug-in does where the host, the peer or the agent is not as it should be.
 * test_hostile LIBRARY PROVIDER CASE */
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "edge.h"
#include "syn_job_page.h"

/* Numbers of enum ibv_gid_type (the oldest RoCE) and enum ibv_mtu. */
enum { ROCE_V1 = 1, MTU_1024 = 3, MTU_2048 = 4 };
/* Of enum ibv_event_type. */
enum { CQ_ERR = 0, QP_FATAL, QP_REQ_ERR, QP_ACCESS_ERR, DEVICE_FATAL = 8 };
static const struct fake_limits NONE = {-1, -1, -1, -1, {-1, -1, -1, -1}, -1};

static void no_device(void)
{
    struct fake_limits limits = NONE;
    limits.ports = 0;
    faults_limit(&limits);
    CHECK_EQUAL(drive_init(&net), 2);
}

/* Until one end says no; the other one waits. */
static int connecting_fails(void)
{
    for (int64_t begun = now_ms(); now_ms() - begun < 20000;) {
        int result = drive_connect(&net, 0, handle, &sender);
        if (result == 0)
            result = drive_accept(&net, listener, &receiver);
        if (result)
            return result;
        CHECK(sender == NULL || receiver == NULL);
    }
    return -1;
}

static void wrong_gid_type(void)
{
    struct fake_limits limits = NONE;
    limits.gid_type = ROCE_V1;
    faults_limit(&limits);
    begin();
    CHECK_EQUAL(connecting_fails(), 2);
}

/* The GID that the variable names is of RoCE v2, or there is a line; the sender's ports have two. */
static void gid_index(void)
{
    static const struct { const char *index; int result; const char *line; } CASES[] = {
        {"0", 2, "a GID of RoCE v1 has the index in SYNTONY_NCCL_GID_INDEX"},
        {"1", 0, NULL},
        {"2", 2, "no GID has the index in SYNTONY_NCCL_GID_INDEX"}};
    for (size_t i = 0; i < sizeof CASES / sizeof *CASES; i++) {
        pid_t child = fork();
        if (child == 0) {
            for (int port = 0; port < FAKE_PORTS; port++)
                faults_machine(port, &(struct fake_machine){.old_gid = 1, .new_gid = 1});
            setenv("SYNTONY_NCCL_GID_INDEX", CASES[i].index, 1);
            begin();
            if (CASES[i].result == 0) {
                connect_both();
                exchange();
            } else {
                CHECK_EQUAL(connecting_fails(), CASES[i].result);
                CHECK_EQUAL(drive_logged(CASES[i].line), 3); /* of each rail, and why it failed */
            }
            _exit(0);
        }
        int status = 0;
        CHECK_EQUAL(waitpid(child, &status, 0), child);
        CHECK_EQUAL(status, 0);
    }
}

/* The receiver's ports have no GID of RoCE v2: the sender learns of it, too. */
static void peers_gid_is_old(void)
{
    for (int port = 2; port < 4; port++)
        faults_machine(port, &(struct fake_machine){.old_gid = 1});
    begin();
    int results[2] = {0};
    for (int64_t begun = now_ms(); (!results[0] || !results[1]) && now_ms() - begun < 20000;) {
        if (results[0] == 0)
            results[0] = drive_connect(&net, 0, handle, &sender);
        if (results[1] == 0)
            results[1] = drive_accept(&net, listener, &receiver);
    }
    CHECK_EQUAL(results[0], 2);
    CHECK_EQUAL(results[1], 2);
    CHECK_EQUAL(drive_logged("no usable GID: the port has no RoCE v2 address"), 3);
    CHECK_EQUAL(drive_logged("its port at the peer has no usable GID"), 3);
}

/* Of one rail the two ends' GIDs are of different kinds: it is left out with a line at both ends, and
 * comes when they agree. The same of all rails is an error, at both ends. */
static void gids_differ(void)
{
    static const char *const KINDS[] = {"of IPv4", "of IPv6", "link-local"};
    setenv("SYNTONY_NCCL_TIMEOUT", "18", 1); /* 2 x 1 s: no rail is left by chance */
    begin();
    for (int here = 0; here < 3; here++)
        for (int there = 0; there < 3; there++) {
            char line[80];
            faults_machine(0, &(struct fake_machine){.gid_kind = here});
            faults_machine(2, &(struct fake_machine){.gid_kind = there});
            sender = receiver = NULL;
            CHECK_EQUAL(drive_listen(&net, 1, handle, &listener), 0);
            connect_both();
            snprintf(line, sizeof line, "rail fake0: its GID is %s here, and %s at the peer",
                     KINDS[here], KINDS[there]);
            CHECK_EQUAL(drive_logged(line), here != there);
            snprintf(line, sizeof line, "rail fake2: its GID is %s here, and %s at the peer",
                     KINDS[there], KINDS[here]);
            CHECK_EQUAL(drive_logged(line), here != there);
            exchange();
            if (here == 0 && there == 2) { /* and it takes as long as a peer is waited for */
                for (int64_t begun = now_ms(); now_ms() - begun < 3500;)
                    exchange();
                CHECK_EQUAL(drive_logged("rail fake2 does not return: its GID is link-local"), 1);
                faults_machine(0, &(struct fake_machine){.gid_kind = there});
                until_both_up();
            }
            CHECK_EQUAL(drive_close(&net, SLOT_CLOSE_SEND, sender), 0);
            CHECK_EQUAL(drive_close(&net, SLOT_CLOSE_RECEIVE, receiver), 0);
        }
    for (int port = 0; port < 2; port++)
        faults_machine(port, &(struct fake_machine){.gid_kind = 2});
    for (int port = 2; port < 4; port++)
        faults_machine(port, &(struct fake_machine){0});
    sender = receiver = NULL;
    CHECK_EQUAL(drive_listen(&net, 1, handle, &listener), 0);
    CHECK_EQUAL(connecting_fails(), 2);
}

static void other_mtu(void)
{
    struct fake_limits limits = NONE;
    limits.mtu[0] = MTU_1024;
    limits.mtu[3] = MTU_2048;
    faults_limit(&limits);
    begin();
    connect_both();
    exchange();
}

static void no_queue_pairs(void)
{
    begin();
    struct fake_limits limits = NONE;
    limits.queue_pairs = 5; /* of 8 */
    faults_limit(&limits);
    CHECK_EQUAL(connecting_fails(), 2);
    sender = receiver = NULL;
    faults_limit(&NONE); /* and later there are some, for another connection */
    CHECK_EQUAL(drive_listen(&net, 1, handle, &listener), 0);
    connect_both();
    exchange();
}

static void no_locked_memory_to_connect(void)
{
    begin();
    struct fake_limits limits = NONE;
    limits.regions = 3; /* of 4: one for each rail and end */
    faults_limit(&limits);
    CHECK_EQUAL(connecting_fails(), 2);
    sender = receiver = NULL;
    faults_limit(&NONE);
    CHECK_EQUAL(drive_listen(&net, 1, handle, &listener), 0);
    connect_both();
    exchange();
}

static void no_locked_memory(void)
{
    begin();
    connect_both();
    struct fake_limits limits = NONE;
    void *memory = NULL;
    limits.regions = 1; /* of 2: one for each rail */
    faults_limit(&limits);
    CHECK_EQUAL(drive_reg(&net, sender, from, sizeof from, &memory), 2);
    CHECK(memory == NULL);
    faults_limit(&NONE);
    exchange();
}

/* A rail for whose return there are no queue pairs stays away, and returns when there are. */
static void none_to_return_with(void)
{
    setenv("SYNTONY_NCCL_TIMEOUT", "18", 1); /* 2 x 1 s: the other rail is not left by chance */
    begin();
    connect_both();
    struct fake_limits limits = NONE;
    limits.queue_pairs = 0;
    faults_limit(&limits);
    faults_error(0);
    for (int i = 0; i < 100; i++)
        exchange();
    faults_limit(&NONE);
    int64_t begun = now_ms();
    while (faults_flow_labels((uint32_t[16]){0}, 16) < 8 && now_ms() - begun < 10000)
        exchange();
    CHECK_EQUAL(faults_flow_labels((uint32_t[16]){0}, 16), 8);
}

/* Gone before the connection: it does without that rail. */
static void device_vanishes_before_connecting(void)
{
    begin();
    faults_vanish(0);
    while (sender == NULL || receiver == NULL) {
        if (sender == NULL)
            CHECK_EQUAL(drive_connect(&net, 0, handle, &sender), 0);
        if (receiver == NULL)
            CHECK_EQUAL(drive_accept(&net, listener, &receiver), 0);
    }
    void *none;
    for (int64_t begun = now_ms(); now_ms() - begun < 50;) /* it is not tried again */
        CHECK_EQUAL(drive_send(&net, sender, from, 8, 0, NULL, &none), 0);
    CHECK_EQUAL(drive_logged("rail fake0 does not return"), 0);
    connect_both();
    for (int i = 0; i < 20; i++)
        exchange();
    faults_vanish(3); /* the receiver's, of the other rail */
    sender = receiver = NULL;
    CHECK_EQUAL(drive_listen(&net, 1, handle, &listener), 0);
    CHECK_EQUAL(connecting_fails(), 2);
}

/* A rail that cannot be connected is left out, at both ends, and comes when it can. */
static void begins_without(void (*leave_out)(int port, int now))
{
    setenv("SYNTONY_NCCL_TIMEOUT", "18", 1); /* 2 x 1 s: no rail is left by chance */
    begin();
    for (int port = 0; port < 4; port++) {
        sender = receiver = NULL;
        CHECK_EQUAL(drive_listen(&net, 1, handle, &listener), 0);
        leave_out(port, 1);
        connect_both();
        for (int i = 0; i < 20; i++)
            exchange();
        leave_out(port, 0);
        until_both_up();
        faults_port(port ^ 1, 0); /* and it carries all */
        for (int i = 0; i < 20; i++)
            exchange();
        faults_port(port ^ 1, 1);
        CHECK_EQUAL(drive_close(&net, SLOT_CLOSE_SEND, sender), 0);
        CHECK_EQUAL(drive_close(&net, SLOT_CLOSE_RECEIVE, receiver), 0);
    }
    leave_out(0, 1);
    leave_out(3, 1);
    sender = receiver = NULL;
    CHECK_EQUAL(drive_listen(&net, 1, handle, &listener), 0);
    CHECK_EQUAL(connecting_fails(), 2);
}

static void have_old_gid(int port, int now)
{
    faults_machine(port, &(struct fake_machine){.old_gid = now});
}

static void begins_without_an_address(void)
{
    begins_without(have_old_gid);
    have_old_gid(3, 0);
    int before = drive_logged("rail fake0 does not return: no usable GID");
    int pairs = faults_queue_pairs(); /* of what could not connect */
    sender = receiver = NULL;
    CHECK_EQUAL(drive_listen(&net, 1, handle, &listener), 0);
    connect_both();
    for (int64_t begun = now_ms(); now_ms() - begun < 200;)
        exchange();
    CHECK_EQUAL(drive_logged("rail fake0 does not return: no usable GID"), before + 1);
    CHECK_EQUAL(drive_close(&net, SLOT_CLOSE_SEND, sender), 0);
    CHECK_EQUAL(drive_close(&net, SLOT_CLOSE_RECEIVE, receiver), 0);
    while (faults_queue_pairs() > pairs)
        usleep(1000);
}

static void begins_without_a_neighbour(void)
{
    begins_without(faults_hide_neighbour);
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
    int64_t begun = now_ms();
    CHECK_EQUAL(result_of(request, NULL), 6);
    CHECK(now_ms() - begun < 2000); /* not only when it should have drained */
}

/* A NIC that hangs does not end its work: its queue pairs are taken away, and it may return. */
static void work_never_ends(void)
{
    begin();
    connect_both();
    exchange();
    faults_slow_completions(0, INT64_C(1000000000000), 0);
    faults_port(0, 0);
    for (int64_t begun = now_ms(); now_ms() - begun < 2500;)
        exchange();
    faults_slow_completions(0, 0, 0);
    faults_port(0, 1);
    for (int64_t begun = now_ms(); faults_flow_labels((uint32_t[16]){0}, 16) < 8;) {
        CHECK(now_ms() - begun < 15000);
        exchange();
    }
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
        for (int64_t begun = now_ms(); now_ms() - begun < 200;)
            exchange();
        CHECK(drive_logged("is left: Cannot allocate memory") > port);
        faults_machine(port, &(struct fake_machine){0});
    }
    until_both_up();
}

/* Memory that cannot be registered with a rail that is not in use: it is not used again. Without any rail
 * that would be the end, so it is an error. */
static void memory_for_some_rails(void)
{
    setenv("SYNTONY_NCCL_TIMEOUT", "22", 1); /* 2 x 17 s: no rail is left by chance */
    begin();
    for (int port = 0; port < 4; port += 2) {
        void *comm, *memory = NULL;
        sender = receiver = NULL;
        CHECK_EQUAL(drive_listen(&net, 1, handle, &listener), 0);
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
        CHECK_EQUAL(drive_close(&net, SLOT_CLOSE_SEND, sender), 0);
        CHECK_EQUAL(drive_close(&net, SLOT_CLOSE_RECEIVE, receiver), 0);
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
        faults_lose(0, 1000);
        CHECK_EQUAL(pthread_create(&thread, NULL, event_later, &EVENTS[kind]), 0);
        for (int i = 0; i < 4; i++)
            exchange();
        CHECK_EQUAL(pthread_join(thread, NULL), 0);
        faults_lose(0, 0);
    }
}

/* A NIC gives the number of a queue pair that has ended to the next one. A late packet of the one before
 * is none of the next one's, even if as many were sent by both. */
static void numbers_again(void)
{
    setenv("SYNTONY_NCCL_TIMEOUT", "18", 1); /* 2 x 1 s: no rail is left by chance */
    struct fake_limits limits = NONE;
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
            CHECK(now_ms() - begun < 10000);
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

static void other_version(void)
{
    begin();
    char changed[128];
    memcpy(changed, handle, sizeof changed);
    changed[44]++; /* struct handle's version */
    CHECK_EQUAL(drive_connect(&net, 0, changed, &sender), 2);
    CHECK(sender == NULL);
}

static void agent_is_absent(void)
{
    setenv("SYNTONY_AGENT", "/tmp/no-such-agent", 1);
    begin();
    connect_both();
    exchange();
}

static int liar;

static void *answer_nonsense(void *unused)
{
    static const char NOISE[64] = "\xff\xfe no page is in this";
    (void)unused;
    for (int i = 0;; i++) {
        int fd = accept(liar, NULL, NULL);
        if (fd < 0)
            return NULL;
        if (i % 2)
            (void)!send(fd, NOISE, sizeof NOISE, MSG_NOSIGNAL); /* and otherwise it never answers */
    }
}

static void agent_talks_nonsense(void)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    snprintf(address.sun_path, sizeof address.sun_path, "/tmp/syntony-test-liar.%d", getpid());
    unlink(address.sun_path);
    liar = socket(AF_UNIX, SOCK_SEQPACKET, 0);
    pthread_t thread;
    CHECK_EQUAL(bind(liar, (void *)&address, sizeof address), 0);
    CHECK_EQUAL(listen(liar, 4), 0);
    CHECK_EQUAL(pthread_create(&thread, NULL, answer_nonsense, NULL), 0);
    setenv("SYNTONY_AGENT", address.sun_path, 1);
    begin();
    connect_both();
    void *request = post_receive(sizeof to);
    faults_port(0, 0); /* port events are heard nonetheless */
    for (int64_t begun = now_ms(); now_ms() - begun < 1500; nap()) {
        int done, sizes[8];
        CHECK_EQUAL(drive_test(&net, request, &done, sizes), 0);
    }
    int result = 0;
    void *sent = post_send(sizeof from, request, &result);
    CHECK_EQUAL(result_of(request, sent), 0);
    unlink(address.sun_path);
}

static atomic_bool scribbling;

/* Anyone who is at the other end of the page writes what it likes, all the time. */
static void *scribble(void *unused)
{
    uint64_t random = (uint64_t)now_ms() | 1;
    (void)unused;
    fprintf(stderr, "seed %llu\n", (unsigned long long)random);
    struct syn_job_page *page = faults_page();
    while (atomic_load(&scribbling)) {
        for (int i = 0; i < SYN_JOB_NOTICES; i++) {
            uint64_t *words = (uint64_t *)&page->notices[i];
            for (size_t j = 0; j < sizeof page->notices[i] / sizeof *words; j++)
                __atomic_store_n(&words[j], faults_draw(&random) % 3 ? faults_draw(&random)
                                                                     : faults_draw(&random) % 8,
                                 __ATOMIC_RELAXED);
            __atomic_fetch_add(&page->noticed, 8, __ATOMIC_RELEASE); /* more and more */
        }
        if (faults_draw(&random) % 64 == 0)
            __atomic_store_n(&page->noticed, faults_draw(&random), __ATOMIC_RELEASE);
    }
    return NULL;
}

static void page_is_scribbled_on(void)
{
    setenv("SYNTONY_NCCL_TIMEOUT", "22", 1); /* 17 s: only its event says that a port is down */
    faults_start_agent();
    begin();
    connect_both();
    for (int64_t begun = now_ms(); faults_page() == NULL && now_ms() - begun < 10000;)
        usleep(1000);
    pthread_t thread;
    atomic_store(&scribbling, true);
    CHECK_EQUAL(pthread_create(&thread, NULL, scribble, NULL), 0);
    for (int64_t begun = now_ms(); now_ms() - begun < 500;)
        exchange();
    faults_port(0, 0); /* the thread that reads the page still reads events */
    for (int64_t begun = now_ms(); faults_flow_labels((uint32_t[16]){0}, 16) == 8;) {
        CHECK(now_ms() - begun < 10000);
        exchange();
    }
    atomic_store(&scribbling, false);
    pthread_join(thread, NULL);
}

/* NCCL's process forks a helper (a data loader) while messages are under way. The child can use
 * nothing of it; the parent notices nothing. */
static void fork_after_init(void)
{
    begin();
    connect_both();
    void *request = post_receive(sizeof to);
    pid_t child = fork();
    if (child == 0) {
        int result = 0, done = 0, sizes[8];
        void *other = NULL;
        alarm(5);
        CHECK(post_send(sizeof from, request, &result) == NULL);
        CHECK_EQUAL(result, 2);
        CHECK_EQUAL(drive_test(&net, request, &done, sizes), 2);
        CHECK_EQUAL(drive_listen(&net, 0, handle, &other), 2);
        CHECK_EQUAL(drive_close(&net, SLOT_CLOSE_SEND, sender), 0);
        CHECK_EQUAL(drive_close(&net, SLOT_CLOSE_RECEIVE, receiver), 0);
        CHECK_EQUAL(drive_finalize(&net), 0);
        _exit(0);
    }
    int status = 0, result = 0;
    CHECK_EQUAL(waitpid(child, &status, 0), child);
    CHECK_EQUAL(status, 0);
    void *sent = post_send(sizeof from, request, &result);
    CHECK_EQUAL(result_of(request, sent), 0);
    for (int i = 0; i < 10; i++)
        exchange();
}

/* A helper that was forked lives on as the process ends its connection: the peer learns of that. */
static void fork_outlives_connection(void)
{
    begin();
    connect_both();
    void *request = post_receive(sizeof to);
    pid_t child = fork();
    if (child == 0) {
        sleep(40);
        _exit(0);
    }
    CHECK_EQUAL(drive_close(&net, SLOT_CLOSE_SEND, sender), 0);
    int result = result_of(request, NULL);
    CHECK_EQUAL(kill(child, SIGKILL), 0);
    CHECK_EQUAL(waitpid(child, NULL, 0), child);
    CHECK_EQUAL(result, 6);
}

/* Another job on the same ports ends badly. */
static void two_jobs(void)
{
    begin();
    connect_both();
    void *first_sender = sender, *first_receiver = receiver, *first_memory = send_memory,
         *second_memory = receive_memory;
    sender = receiver = NULL;
    CHECK_EQUAL(drive_listen(&net, 1, handle, &listener), 0);
    connect_both();
    exchange();
    void *request = post_receive(sizeof to);
    CHECK_EQUAL(drive_close(&net, SLOT_CLOSE_SEND, sender), 0);
    CHECK_EQUAL(result_of(request, NULL), 6);
    CHECK_EQUAL(drive_close(&net, SLOT_CLOSE_RECEIVE, receiver), 0);
    sender = first_sender;
    receiver = first_receiver;
    send_memory = first_memory;
    receive_memory = second_memory;
    for (int i = 0; i < 10; i++)
        exchange();
}

/* What was executed and not yet polled when the receiver's rail was left is in its report: without
 * the drain it would be sent again, into a buffer that may be another message's by then. */
static void drain(void)
{
    begin();
    connect_both();
    void *request = post_receive(sizeof to);
    for (int i = 1; i <= 5; i++) {
        void *next = post_receive(sizeof to); /* so that the receiver goes on */
        int result = 0, done = 0, sizes[8], turns = 0;
        void *sent = post_send(sizeof from, request, &result);
        CHECK_EQUAL(results_of(request, sent, next), 0); /* a rail is up, at both ends */
        request = next;
        next = post_receive(sizeof to);
        pump(request, 5); /* it is asked for */
        uint64_t writes = faults_writes();
        memset(from, i, sizeof from);
        for (int port = 2; port < 4; port++) /* nothing comes back, and completions come late */
            faults_slow_completions(port, 40000000, INT64_C(1000000000000));
        sent = post_send(sizeof from, request, &result);
        CHECK(sent != NULL);
        while (faults_writes() == writes)
            CHECK_EQUAL(drive_test(&net, sent, &done, sizes), 0);
        /* and the record behind it */
        for (int64_t begun = now_ms(); now_ms() - begun < 2 || turns < 10; turns++)
            CHECK_EQUAL(drive_test(&net, sent, &done, sizes), 0);
        faults_error(0); /* the receiver leaves because the sender has */
        faults_error(1);
        for (int port = 2; port < 4; port++)
            faults_slow_completions(port, 40000000, 0);
        CHECK_EQUAL(results_of(request, sent, next), 0);
        CHECK_EQUAL(memcmp(from, to, sizeof to), 0);
        CHECK_EQUAL(faults_writes(), writes + 1); /* once */
        request = next;
        for (int port = 2; port < 4; port++)
            faults_slow_completions(port, 0, 0);
    }
}

int main(int argc, char **argv)
{
    static const struct edge_case CASES[] = {
        {"no_device", no_device}, {"wrong_gid_type", wrong_gid_type},
        {"gid_index", gid_index}, {"peers_gid_is_old", peers_gid_is_old},
        {"gids_differ", gids_differ}, {"other_mtu", other_mtu},
        {"no_queue_pairs", no_queue_pairs}, {"no_locked_memory", no_locked_memory},
        {"none_to_return_with", none_to_return_with}, {"senders_device_vanishes", senders_device_vanishes},
        {"receivers_device_vanishes", receivers_device_vanishes}, {"work_never_ends", work_never_ends},
        {"work_is_refused", work_is_refused}, {"memory_for_some_rails", memory_for_some_rails},
        {"device_vanishes_before_connecting", device_vanishes_before_connecting},
        {"begins_without_an_address", begins_without_an_address},
        {"begins_without_a_neighbour", begins_without_a_neighbour},
        {"no_locked_memory_to_connect", no_locked_memory_to_connect},
        {"other_version", other_version}, 
        {"agent_is_absent", agent_is_absent}, {"agent_talks_nonsense", agent_talks_nonsense},
        {"page_is_scribbled_on", page_is_scribbled_on}, {"fork_after_init", fork_after_init},
        {"fork_outlives_connection", fork_outlives_connection},
        {"queues_fail_silently", queues_fail_silently}, {"numbers_again", numbers_again},
        {"two_jobs", two_jobs}, {"drain", drain}};
    return run_case(argc, argv, CASES, sizeof CASES / sizeof *CASES);
}
