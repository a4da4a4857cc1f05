/* Messages through the plug-in, as NCCL drives it, under faults: every 8-byte word is checked when a
 * message completes, and again before its buffer is used anew.
 *
 * test_net LIBRARY PROVIDER VERSION SEED GROUPS [faults|none|FAULT-NUMBER] [corrupts]
 *
 * With `corrupts` it is an error if nothing goes wrong: for the build without a fence. */
#include <inttypes.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include "drive.h"
#include "faults.h"
#include "late.h"

enum { WINDOW = 6, KEEP = 2 * WINDOW, MAX_GROUP = 8, MAX_SIZE = 1 << 17, TRIES = 60, TRY_S = 3 };

static struct net net;
static uint64_t seed;
static int total;
static atomic_bool ended, wrong, calm; /* calm: no fault is under way any more */
static atomic_int completed; /* groups, at the receiver */

#define REQUIRE(condition)                                                     \
    do {                                                                       \
        if (!(condition)) {                                                    \
            fprintf(stderr, "%s:%d: does not hold: %s (seed %" PRIu64 ")\n",   \
                    __FILE__, __LINE__, #condition, seed);                     \
            atomic_store(&wrong, true);                                        \
            return NULL;                                                       \
        }                                                                      \
    } while (0)

/* What both ends know of a group of messages. */
struct plan { int count, order[MAX_GROUP]; size_t size[MAX_GROUP], offered[MAX_GROUP]; };

static size_t room_in(int count)
{
    return MAX_SIZE / 8 / (size_t)count * 8;
}

static struct plan plan_of(int group)
{
    uint64_t random = (seed + 1) * 0x9e3779b97f4a7c15u ^ (uint64_t)(group + 1) * 0xd1b54a32d192ed03u;
    struct plan plan = {.count = faults_draw(&random) % 3 ? 1 : 1 + (int)(faults_draw(&random) % 8)};
    for (int i = 0; i < plan.count; i++) {
        uint64_t kind = faults_draw(&random) % 8;
        size_t words = kind == 0 ? 0 : kind < 4 ? faults_draw(&random) % 64
                                               : faults_draw(&random) % (room_in(plan.count) / 8);
        plan.size[i] = words * 8;
        plan.offered[i] = faults_draw(&random) % 2 ? plan.size[i] : room_in(plan.count);
        plan.order[i] = i;
    }
    for (int i = plan.count - 1; i > 0; i--) {
        int j = (int)(faults_draw(&random) % (uint64_t)(i + 1)), other = plan.order[i];
        plan.order[i] = plan.order[j];
        plan.order[j] = other;
    }
    return plan;
}

static uint64_t word(int group, int place, size_t i)
{
    return ((uint64_t)group << 32 | (uint64_t)(place + 1) << 24) * 0x9e3779b97f4a7c15u + i * 0xd1b54a32d192ed03u;
}

static const uint64_t POISON = UINT64_C(0xeeeeeeeeeeeeeeee);

static char *place_in(char *memory, int group, int place, int kept, int count)
{
    return memory + (size_t)(group % kept) * MAX_SIZE + (size_t)place * room_in(count);
}

static bool is_whole(const char *memory, int group, const struct plan *plan, const char *when)
{
    for (int p = 0; p < plan->count; p++) {
        const uint64_t *words = (const uint64_t *)place_in((char *)memory, group, p, KEEP, plan->count);
        for (size_t i = 0; i < plan->offered[p] / 8; i++) {
            uint64_t expected = i < plan->size[p] / 8 ? word(group, p, i) : POISON;
            if (words[i] != expected) {
                fprintf(stderr, "group %d message %d of %d: word %zu of %zu is wrong %s (seed %"
                        PRIu64 ")\n", group, p, plan->count, i, plan->size[p] / 8, when, seed);
                return false;
            }
        }
    }
    return true;
}

/* Queue pairs that a NIC does not let go of cannot be closed. */
static void wait_until_calm(void)
{
    while (!atomic_load(&calm))
        usleep(1000);
}

static void *send_all(void *comm)
{
    char *memory = aligned_alloc(4096, (size_t)WINDOW * MAX_SIZE);
    void *handle, *requests[WINDOW][MAX_GROUP] = {{0}};
    int posted = 0, done = 0;
    REQUIRE(drive_reg(&net, comm, memory, (size_t)WINDOW * MAX_SIZE, &handle) == 0);
    int left[WINDOW] = {0}, next[WINDOW] = {0};
    while (done < total && !atomic_load(&wrong)) {
        if (posted < total && posted - done < WINDOW) {
            struct plan plan = plan_of(posted);
            int *at = &next[posted % WINDOW], p = plan.order[*at];
            char *data = place_in(memory, posted, p, WINDOW, plan.count);
            for (size_t i = 0; i < plan.size[p] / 8; i++)
                ((uint64_t *)data)[i] = word(posted, p, i);
            void *request = NULL;
            REQUIRE(drive_send(&net, comm, data, plan.size[p], 100 + p, handle, &request) == 0);
            if (request) {
                requests[posted % WINDOW][p] = request;
                left[posted % WINDOW]++;
                if (++*at == plan.count) {
                    *at = 0;
                    posted++;
                }
            }
        }
        for (int g = done; g < posted; g++)
            for (int p = 0; p < MAX_GROUP; p++) {
                void **request = &requests[g % WINDOW][p];
                int finished = 0, sizes[1];
                if (*request == NULL)
                    continue;
                REQUIRE(drive_test(&net, *request, &finished, sizes) == 0);
                if (!finished)
                    continue;
                struct plan plan = plan_of(g);
                REQUIRE(sizes[0] == (int)plan.size[p]);
                memset(place_in(memory, g, p, WINDOW, plan.count), 0xdd, plan.size[p]);
                *request = NULL;
                left[g % WINDOW]--;
            }
        while (done < posted && left[done % WINDOW] == 0)
            done++;
        sched_yield();
    }
    wait_until_calm();
    drive_dereg(&net, comm, handle);
    REQUIRE(drive_close(&net, SLOT_CLOSE_SEND, comm) == 0);
    free(memory);
    return NULL;
}

static void *receive_all(void *comm)
{
    char *memory = aligned_alloc(4096, (size_t)KEEP * MAX_SIZE);
    void *handle, *requests[WINDOW] = {0};
    int posted = 0, done = 0, cleared = 0;
    memset(memory, 0xee, (size_t)KEEP * MAX_SIZE);
    REQUIRE(drive_reg(&net, comm, memory, (size_t)KEEP * MAX_SIZE, &handle) == 0);
    while (done < total && !atomic_load(&wrong)) {
        if (posted < total && posted - done < WINDOW) {
            struct plan plan = plan_of(posted);
            void *data[MAX_GROUP], *handles[MAX_GROUP], *request = NULL;
            int tags[MAX_GROUP];
            if (posted >= KEEP && cleared < posted) {
                struct plan before = plan_of(posted - KEEP);
                REQUIRE(is_whole(memory, posted - KEEP, &before, "after it completed"));
                cleared = posted;
                memset(memory + (size_t)(posted % KEEP) * MAX_SIZE, 0xee, MAX_SIZE);
            }
            for (int p = 0; p < plan.count; p++) {
                data[p] = place_in(memory, posted, p, KEEP, plan.count);
                handles[p] = handle;
                tags[p] = 100 + p;
            }
            REQUIRE(drive_receive(&net, comm, plan.count, data, plan.offered, tags, handles,
                                  &request) == 0);
            if (request)
                requests[posted++ % WINDOW] = request;
        }
        int finished = 0, sizes[MAX_GROUP];
        if (done < posted) {
            REQUIRE(drive_test(&net, requests[done % WINDOW], &finished, sizes) == 0);
            if (finished) {
                struct plan plan = plan_of(done);
                for (int p = 0; p < plan.count; p++)
                    REQUIRE(sizes[p] == (int)plan.size[p]);
                REQUIRE(is_whole(memory, done, &plan, "as it completes"));
                atomic_store(&completed, ++done);
            }
        }
        sched_yield();
    }
    wait_until_calm();
    drive_dereg(&net, comm, handle);
    REQUIRE(drive_close(&net, SLOT_CLOSE_RECEIVE, comm) == 0);
    free(memory);
    return NULL;
}

/* Faults, each after something completed since the one before: however slow this machine is, a fault
 * that stops everything is reported from faults that come too fast. */
static void *inject(void *mode)
{
    enum { PATIENCE_MS = 60000 };
    uint64_t random = seed * 2 + 1;
    int kind = strcmp(mode, "faults") == 0 ? -1 : atoi(mode);
    const struct progress progress = {&completed, &ended, KEEP + WINDOW};
    for (uint64_t number = seed; !atomic_load(&ended); number++) {
        if (kind < 0 && number % 2)
            late_inject((enum late)(number / 2 % LATE_KINDS), &random, &progress);
        else
            faults_inject(kind, &random);
        int before = atomic_load(&completed), waited_ms = 0;
        do {
            struct timespec pause = {0, 1000000 + (long)(faults_draw(&random) % 4000000)};
            nanosleep(&pause, NULL);
            waited_ms++;
        } while (!atomic_load(&ended) && atomic_load(&completed) == before &&
                 waited_ms < PATIENCE_MS / 3);
        REQUIRE(atomic_load(&ended) || atomic_load(&completed) > before);
    }
    return NULL;
}

static void connect_both(void *comms[2])
{
    char handle[128];
    void *listener;
    if (drive_listen(&net, 1, handle, &listener))
        exit(1);
    comms[0] = comms[1] = NULL;
    while (comms[0] == NULL || comms[1] == NULL)
        if ((comms[0] == NULL && drive_connect(&net, 0, handle, &comms[0])) ||
            (comms[1] == NULL && drive_accept(&net, listener, &comms[1])))
            exit(1);
    if (drive_close(&net, SLOT_CLOSE_LISTEN, listener))
        exit(1);
}

static void check_properties(void)
{
    struct drive_properties properties;
    int count = 0;
    ((int (*)(int *))net.table[SLOT_DEVICES])(&count);
    if (count != 2 || drive_properties(&net, 0, &properties) ||
        strcmp(properties.name, "fake0+fake1") || properties.speed != 200000 ||
        properties.max_comms < 1024 || properties.max_receives != 8 || properties.virtual_count != 1 ||
        !(properties.pointers & 1) || properties.max_bytes == 0 ||
        drive_properties(&net, 2, &properties) == 0) {
        fprintf(stderr, "v%d: wrong properties\n", net.version);
        exit(1);
    }
}

/* No two queue pairs of a direction of a connection take the same path by design. */
static void check_entropy(void)
{
    uint32_t labels[64];
    int count = faults_flow_labels(labels, 64), same = 0;
    for (int i = 0; i < count; i++)
        for (int j = 0; j < i; j++)
            same += labels[i] == labels[j];
    int pairs = atoi(getenv("SYNTONY_NCCL_QPS"));
    if (count != 4 * pairs || same) { /* both ends, two rails; another port's may have the same label */
        fprintf(stderr, "%d queue pairs, %d pairs of them with one flow label\n", count, same);
        exit(1);
    }
}

/* Returns in each child, true; the parent ends when one of them saw something wrong. How soon that
 * is, or that a try hangs, is chance. */
static bool one_try_goes_wrong(void)
{
    for (int try = 0; try < TRIES; try++, seed++) {
        pid_t child = fork();
        if (child == 0) {
            /* Of processor time, for a busy machine gives little of it; and an end for a hang. */
            setitimer(ITIMER_PROF, &(struct itimerval){.it_value.tv_sec = 2 * TRY_S}, NULL);
            alarm(10 * TRY_S);
            return true;
        }
        int status = 1;
        waitpid(child, &status, 0);
        if (WIFEXITED(status) && WEXITSTATUS(status) == 0)
            exit(0);
    }
    return false;
}

int main(int argc, char **argv)
{
    if (argc < 7)
        return 2;
    bool corrupts = argc > 7 && strcmp(argv[7], "corrupts") == 0;
    seed = strtoull(argv[4], NULL, 0);
    if (seed == 0)
        seed = (uint64_t)getpid() * 2654435761u + (uint64_t)time(NULL);
    total = atoi(argv[5]);
    if (!corrupts)
        alarm(900);
    else if (!one_try_goes_wrong())
        return 1;
    fprintf(stderr, "seed %" PRIu64 "\n", seed);
    setenv("SYNTONY_NCCL_IBVERBS", argv[2], 1);
    setenv("SYNTONY_NCCL_RAILS", "fake0+fake1,fake2+fake3", 1);
    setenv("SYNTONY_NCCL_TIMEOUT", "9", 0);
    setenv("SYNTONY_NCCL_RETRIES", "2", 0);
    setenv("SYNTONY_NCCL_QPS", "2", 0);
    setenv("SYNTONY_NCCL_CHUNK", "8192", 0);
    faults_load(argv[2]);
    faults_start_agent();
    net = drive_load(argv[1], atoi(argv[3]));
    if (drive_init(&net))
        return 1;
    check_properties();
    static void *comms[2]; /* static: a debugger finds them */
    connect_both(comms);
    check_entropy();
    pthread_t sender, receiver, injector;
    bool faulty = strcmp(argv[6], "none") != 0;
    pthread_create(&sender, NULL, send_all, comms[0]);
    pthread_create(&receiver, NULL, receive_all, comms[1]);
    if (faulty)
        pthread_create(&injector, NULL, inject, argv[6]);
    while (atomic_load(&completed) < total && !atomic_load(&wrong))
        usleep(1000);
    atomic_store(&ended, true);
    if (faulty)
        pthread_join(injector, NULL);
    atomic_store(&calm, true);
    pthread_join(sender, NULL);
    pthread_join(receiver, NULL);
    drive_finalize(&net);
    printf("v%d, seed %" PRIu64 ", %d groups: ", net.version, seed, total);
    faults_print();
    fflush(NULL);
    if (atomic_load(&wrong)) /* and its memory is not given back */
        _exit(!corrupts);
    return corrupts || !faults_provider_is_clean();
}
