/* What the plug-in does where the agent or the process that it runs in is not as it should be.
 * test_hostile LIBRARY PROVIDER CASE */
#include <poll.h>
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

/* The only other thread, the plug-in's, is in here nearly always, and can be kept here. It holds no lock then that
 * a child of fork would wait for: of the C library, or of a sanitizer. */
static atomic_int polls; /* 1: a thread is in `poll`; 2: it stays there */

__attribute__((visibility("default")))
int poll(struct pollfd *of, nfds_t count, int ms)
{
    struct timespec wait = {ms / 1000, ms % 1000 * 1000000};
    atomic_store(&polls, 1);
    int result = ppoll(of, count, ms < 0 ? NULL : &wait, NULL);
    for (int in = 1; !atomic_compare_exchange_strong(&polls, &in, 0); in = 1)
        usleep(1000);
    return result;
}

static pid_t fork_alone(void)
{
    for (int in = 1; !atomic_compare_exchange_strong(&polls, &in, 2); in = 1)
        usleep(1000);
    pid_t child = fork();
    if (child)
        atomic_store(&polls, 1);
    return child;
}

static void agent_is_absent(void)
{
    setenv("SYNTONY_AGENT", "/tmp/no-such-agent", 1);
    begin();
    connect_both();
    exchange_for(5500); /* it is tried again after 5 s, and said once */
    CHECK_EQUAL(drive_logged("no agent"), 1);
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
    begin_with_agent();
    pthread_t thread;
    atomic_store(&scribbling, true);
    CHECK_EQUAL(pthread_create(&thread, NULL, scribble, NULL), 0);
    exchange_for(500);
    faults_port(0, 0); /* the thread that reads the page still reads events */
    for (int64_t begun = now_ms(); faults_flow_labels((uint32_t[16]){0}, 16) == 8;) {
        CHECK(now_ms() - begun < HANG_MS);
        exchange();
    }
    atomic_store(&scribbling, false);
    pthread_join(thread, NULL);
}

/* NCCL's process forks a helper (a data loader) while messages are under way. The child can use
 * nothing of it; the parent notices nothing. */
static void fork_after_init(void)
{
    setenv("SYNTONY_NCCL_TIMEOUT", "22", 1); /* 2 x 17 s: no rail is left, and none returns in a thread */
    begin();
    connect_both();
    void *request = post_receive(sizeof to);
    pid_t child = fork_alone();
    if (child == 0) {
        int result = 0, done = 0, sizes[8];
        void *other = NULL;
        alarm(HANG_MS / 1000);
        CHECK(post_send(sizeof from, request, &result) == NULL);
        CHECK_EQUAL(result, 2);
        CHECK_EQUAL(drive_test(&net, request, &done, sizes), 2);
        CHECK_EQUAL(drive_listen(&net, 0, handle, &other), 2);
        close_both();
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
    setenv("SYNTONY_NCCL_TIMEOUT", "22", 1); /* 2 x 17 s: no rail is left, and none returns in a thread */
    begin();
    connect_both();
    void *request = post_receive(sizeof to);
    pid_t child = fork_alone();
    if (child == 0) {
        sleep(HANG_MS / 500);
        _exit(0);
    }
    close_sender();
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
    struct connection first = keep_connection();
    listen_again();
    connect_both();
    exchange();
    void *request = post_receive(sizeof to);
    close_sender();
    CHECK_EQUAL(result_of(request, NULL), 6);
    close_receiver();
    exchange_over(first);
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
        {"agent_is_absent", agent_is_absent}, {"agent_talks_nonsense", agent_talks_nonsense},
        {"page_is_scribbled_on", page_is_scribbled_on}, {"fork_after_init", fork_after_init},
        {"fork_outlives_connection", fork_outlives_connection}, {"two_jobs", two_jobs},
        {"drain", drain}};
    return run_case(argc, argv, CASES, sizeof CASES / sizeof *CASES);
}
