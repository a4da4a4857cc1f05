/* Two ends of a transport in one process, over the fake provider: for bench/nccl_net.py.
 *
 * bench_net LIBRARY VERSION PROVIDER SIZE WINDOW MESSAGES SEED CASE [FAULTS]
 *
 * LIBRARY may be NCCL's own with "@OFFSET" (drive.h). Devices 0 and 1 are merged to send, 2 and 3 to
 * receive. Every 8-byte word is checked when a message completes and before its buffer is used anew.
 * CASE is `cost` (both ends in one thread, no faults: throughput, and what the transport itself takes,
 * without the provider); `mixed` (every other fault a late one of late.h, the others random ones of
 * faults.h; both ends in threads of their own); or one kind of fault again and again, each followed by a
 * rest, with the longest time without a message after it: `hole`, `notice` (20 ms after a hole), `port`,
 * `return` (of the rail, after a port was down), `none` (what the machine itself does). Then both ends are
 * in one thread, which goes before all others of the machine while a fault is looked at (SCHED_FIFO, where
 * that is allowed), and sleeps mostly otherwise. Faults during which it was held up all the same are not
 * counted. After that many FAULTS it ends, `mixed` also not before 10,000 messages. `open` is `mixed`, and
 * ends with the first message that is wrong. One line of JSON. SYNTONY_AGENT: obey that agent, and not one
 * that lies. */
#include <inttypes.h>
#include <malloc.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "drive.h"
#include "faults.h"
#include "late.h"

enum { HANDLE = 128, MAX_WINDOW = 16, KEPT = 4, TAG = 3, MAX_STALLS = 512, BEFORE_MS = 5, REST_MS = 150,
       BACK_MS = 1500, LEAST_MESSAGES = 10000, HOLE_MS = 600, HANG_S = 40, OPEN_HANG_S = 20 };
enum { MAIN_PRIORITY = 2, DRIVER_PRIORITY = 1 };
static const int64_t HELD_UP_NS = 2000000;

static struct net net;
static size_t size;
static int window, messages;
static uint64_t seed;
static void *sender, *receiver, *send_memory, *receive_memory;
static char *from, *to; /* a window to send, KEPT to receive */
static atomic_int received, corrupt, fatal;
static atomic_bool stop, ended, looked_at;
static bool is_open; /* there is no fence: it ends as soon as that shows */
static _Atomic int64_t *at_ns; /* when each message was received */

static int64_t read_ns(clockid_t clock)
{
    struct timespec t;
    clock_gettime(clock, &t);
    return t.tv_sec * INT64_C(1000000000) + t.tv_nsec;
}

static int64_t now_ns(void)
{
    return read_ns(CLOCK_MONOTONIC);
}

/* Of this process, whose ends never sleep: a busy machine gives little of it. */
static int64_t cpu_ns(void)
{
    return read_ns(CLOCK_PROCESS_CPUTIME_ID);
}

static void rest_ms(int ms)
{
    nanosleep(&(struct timespec){ms / 1000, ms % 1000 * 1000000L}, NULL);
}

static uint64_t word(int message, size_t i)
{
    return (seed ^ (uint64_t)(message + 1)) * 0x9e3779b97f4a7c15u + i * 0xd1b54a32d192ed03u;
}

static void fill(int message)
{
    uint64_t *words = (uint64_t *)(from + (size_t)(message % window) * size);
    for (size_t i = 0; i < size / 8; i++)
        words[i] = word(message, i);
}

static char *place_of(int message)
{
    return to + (size_t)(message % (KEPT * window)) * size;
}

static bool is_whole(int message)
{
    const uint64_t *words = (const uint64_t *)place_of(message);
    uint64_t wrong = 0;
    for (size_t i = 0; i < size / 8; i++)
        wrong |= words[i] ^ word(message, i);
    return wrong == 0;
}

static void fail(const char *what, int result)
{
    fprintf(stderr, "bench_net: %s: %d (seed %" PRIu64 ")\n", what, result, seed);
    atomic_store(&fatal, result ? result : -1);
    atomic_store(&stop, true);
}

struct end { void *request[MAX_WINDOW]; int posted, done; };

/* False: nothing was to be done. */
static bool send_some(struct end *end)
{
    bool moved = false;
    int result, done = 0, sizes[8];
    if (end->posted < messages && end->posted - end->done < window && !atomic_load(&stop)) {
        fill(end->posted);
        void **request = &end->request[end->posted % window];
        result = drive_send(&net, sender, from + (size_t)(end->posted % window) * size, size, TAG,
                            send_memory, request);
        if (result)
            fail("isend", result);
        moved = *request != NULL;
        end->posted += moved;
    }
    if (end->done < end->posted) {
        result = drive_test(&net, end->request[end->done % window], &done, sizes);
        if (result)
            fail("test of a send", result);
        end->done += done;
    }
    return moved || done;
}

static bool receive_some(struct end *end)
{
    bool moved = false;
    int result, done = 0, sizes[8], tag = TAG;
    if (end->posted < messages && end->posted - end->done < window) {
        void *data = place_of(end->posted), **request = &end->request[end->posted % window];
        if (end->request[end->posted % window] == NULL && end->posted >= KEPT * window) {
            atomic_fetch_add(&corrupt, !is_whole(end->posted - KEPT * window));
            memset(data, 0xee, size);
        }
        result = drive_receive(&net, receiver, 1, &data, &size, &tag, &receive_memory, request);
        if (result)
            fail("irecv", result);
        moved = *request != NULL;
        end->posted += moved;
    }
    if (end->done < end->posted) {
        result = drive_test(&net, end->request[end->done % window], &done, sizes);
        if (result)
            fail("test of a receive", result);
        if (done) {
            end->request[end->done % window] = NULL;
            atomic_store(&at_ns[end->done], now_ns());
            atomic_fetch_add(&corrupt, sizes[0] != (int)size || !is_whole(end->done));
            end->done++;
            atomic_store(&received, end->done);
        }
    }
    return moved || done;
}

static void *send_all(void *unused)
{
    struct end end = {0};
    (void)unused;
    while (!atomic_load(&fatal) && end.done < messages && !(atomic_load(&stop) &&
                                                            end.done == end.posted))
        if (!send_some(&end))
            sched_yield();
    return NULL;
}

/* A sender that stops leaves receives that nothing matches: a pause ends them. */
static void *receive_all(void *unused)
{
    const int64_t hang_ns = (is_open ? OPEN_HANG_S : HANG_S) * INT64_C(1000000000);
    struct end end = {0};
    int64_t moved_ns = now_ns(), moved_cpu_ns = cpu_ns();
    (void)unused;
    while (!atomic_load(&fatal) && end.done < messages && !(is_open && atomic_load(&corrupt))) {
        if (receive_some(&end)) {
            moved_ns = now_ns();
            moved_cpu_ns = cpu_ns();
        } else if (atomic_load(&stop) && now_ns() - moved_ns > INT64_C(500000000))
            break;
        else if (cpu_ns() - moved_cpu_ns > hang_ns)
            fail("no message came", 0);
        else
            sched_yield();
    }
    if (is_open && atomic_load(&corrupt)) /* the sender need not wait for what nobody takes */
        atomic_store(&fatal, 1);
    atomic_store(&ended, true);
    return NULL;
}

static void *drive_both(void *unused)
{
    struct end sending = {0}, receiving = {0};
    (void)unused;
    while (!atomic_load(&fatal) && !atomic_load(&stop) && receiving.done < messages) {
        send_some(&sending);
        receive_some(&receiving);
        if (!atomic_load_explicit(&looked_at, memory_order_relaxed))
            nanosleep(&(struct timespec){.tv_nsec = 100000}, NULL);
    }
    atomic_store(&ended, true);
    return NULL;
}

/* This thread goes before those of other programs, or no longer: false if that is not allowed. */
static bool go_first(pthread_t thread, int priority)
{
    struct sched_param param = {.sched_priority = priority};
    return pthread_setschedparam(thread, priority ? SCHED_FIFO : SCHED_OTHER, &param) == 0;
}

static void look(pthread_t driver, bool now)
{
    go_first(driver, now ? DRIVER_PRIORITY : 0);
    atomic_store(&looked_at, now);
    if (now)
        rest_ms(BEFORE_MS);
}

static void connect_both(void)
{
    char handle[HANDLE] = {0};
    void *listener = NULL;
    int here = drive_merge(&net, 2, (int[]){0, 1}), there = drive_merge(&net, 2, (int[]){2, 3});
    if (here < 0 || there < 0 || drive_listen(&net, there, handle, &listener)) {
        fprintf(stderr, "bench_net: no merged devices\n");
        exit(1);
    }
    while (sender == NULL || receiver == NULL)
        if ((sender == NULL && drive_connect(&net, here, handle, &sender)) ||
            (receiver == NULL && drive_accept(&net, listener, &receiver))) {
            fprintf(stderr, "bench_net: no connection\n");
            exit(1);
        }
    from = aligned_alloc(4096, (size_t)window * size);
    to = aligned_alloc(4096, KEPT * (size_t)window * size);
    memset(from, 0, (size_t)window * size);
    memset(to, 0xee, KEPT * (size_t)window * size);
    if (drive_reg(&net, sender, from, (size_t)window * size, &send_memory) ||
        drive_reg(&net, receiver, to, KEPT * (size_t)window * size, &receive_memory)) {
        fprintf(stderr, "bench_net: no memory\n");
        exit(1);
    }
    at_ns = calloc((size_t)messages + 1, sizeof *at_ns);
}

/* The longest time without a message that ends after `begun_ns`: of it, what lies after that. */
static int64_t longest_after(int64_t begun_ns, int64_t until_ns)
{
    int64_t longest_ns = 0, last_ns = begun_ns;
    int count = atomic_load(&received);
    for (int i = 0; i < count; i++) {
        int64_t one_ns = atomic_load(&at_ns[i]);
        if (one_ns <= begun_ns)
            continue;
        if (one_ns - last_ns > longest_ns)
            longest_ns = one_ns - last_ns;
        last_ns = one_ns;
        if (one_ns > until_ns)
            break;
    }
    return longest_ns;
}

/* How long a thread has not run so far, give or take a constant. */
static int64_t idle_ns(pthread_t thread)
{
    clockid_t clock;
    struct timespec t = {0};
    if (pthread_getcpuclockid(thread, &clock) == 0)
        clock_gettime(clock, &t);
    return now_ns() - t.tv_sec * INT64_C(1000000000) - t.tv_nsec;
}

static int64_t last_ns(void)
{
    int count = atomic_load(&received);
    return count ? atomic_load(&at_ns[count - 1]) : 0;
}

static void inject_one(int number, uint64_t *random)
{
    const struct progress progress = {&received, &ended, (KEPT + 1) * window};
    if (number % 2)
        faults_inject(-1, random);
    else
        late_inject((enum late)((seed + (uint64_t)number / 2) % LATE_KINDS), random, &progress);
}

/* One fault after another, until the messages or the places for stalls end. Returns how many; in
 * `kept` of how many the stall is known. */
static int inject(pthread_t driver, const char *kind, int most, int64_t *stalls, int *kept)
{
    uint64_t random = seed * 0x9e3779b97f4a7c15u | 1;
    int count = 0;
    bool mixed = is_open || strcmp(kind, "mixed") == 0, is_return = strcmp(kind, "return") == 0;
    for (; !atomic_load(&ended) &&
           (count < most || (mixed && !is_open && atomic_load(&received) < LEAST_MESSAGES)); count++) {
        if (mixed) {
            inject_one(count, &random);
            rest_ms((int)(faults_draw(&random) % 20));
            continue;
        }
        int rail = (int)(faults_draw(&random) % 2);
        look(driver, !is_return);
        int64_t begun_ns = now_ns(), held_up_ns = -idle_ns(driver);
        if (strcmp(kind, "port") == 0 || is_return)
            faults_port(rail, 0);
        else if (strcmp(kind, "none") != 0)
            faults_lose(rail, 1000);
        if (strcmp(kind, "notice") == 0) {
            rest_ms(20);
            begun_ns = now_ns();
            faults_notify(1, rail, rail + 2, 60000000);
        }
        if (strcmp(kind, "hole") == 0) { /* to the end of a stall: queue pairs have to give up */
            rest_ms(HOLE_MS);
            for (int i = 0; i < 100 && now_ns() - last_ns() > INT64_C(20000000); i++)
                rest_ms(100);
        }
        rest_ms(REST_MS);
        int64_t until_ns = now_ns();
        if (!is_return)
            held_up_ns += idle_ns(driver);
        look(driver, is_return); /* for short, or the kernel gives others their share at once */
        if (is_return) {
            begun_ns = now_ns();
            held_up_ns = -idle_ns(driver);
        }
        faults_port(rail, 1);
        faults_lose(rail, 0);
        rest_ms(REST_MS);
        int64_t seen_ns = now_ns();
        if (is_return)
            held_up_ns += idle_ns(driver);
        look(driver, false);
        if (held_up_ns < HELD_UP_NS)
            stalls[(*kept)++] = longest_after(begun_ns, is_return ? seen_ns : until_ns);
        rest_ms(BACK_MS); /* until the rail is back: a second one would be the last */
    }
    return count;
}

static int by_size(const void *one, const void *other)
{
    int64_t a = *(const int64_t *)one, b = *(const int64_t *)other;
    return (a > b) - (a < b);
}

static void run_faults(const char *kind, int most)
{
    static int64_t stalls[MAX_STALLS];
    bool mixed = is_open || strcmp(kind, "mixed") == 0;
    pthread_t sending, receiving;
    pthread_create(&receiving, NULL, mixed ? receive_all : drive_both, NULL);
    if (mixed)
        pthread_create(&sending, NULL, send_all, NULL);
    else
        look(receiving, false);
    rest_ms(200);
    for (int i = 0; i < 3000 && strcmp(kind, "notice") == 0 && faults_page() == NULL; i++)
        rest_ms(1); /* a notice to nobody is none */
    int kept = 0, count = inject(receiving, kind, most < MAX_STALLS ? most : MAX_STALLS, stalls, &kept);
    atomic_store(&stop, true);
    pthread_join(receiving, NULL);
    if (mixed)
        pthread_join(sending, NULL);
    qsort(stalls, (size_t)kept, sizeof *stalls, by_size);
    printf("{\"messages\": %d, \"corrupt\": %d, \"fatal\": %d, \"provider_clean\": %s, \"faults\": %d",
           atomic_load(&received), atomic_load(&corrupt), atomic_load(&fatal),
           faults_provider_is_clean() ? "true" : "false", count);
    if (!mixed && kept)
        printf(", \"kept\": %d, \"p50_ms\": %.2f, \"p99_ms\": %.2f, \"max_ms\": %.2f", kept,
               (double)stalls[kept / 2] / 1e6, (double)stalls[kept * 99 / 100] / 1e6,
               (double)stalls[kept - 1] / 1e6);
    printf("}\n");
}

/* A window of messages, both ends in turn. */
static void drive_window(void)
{
    void *requests[2][MAX_WINDOW];
    int done, sizes[8], tag = TAG;
    for (int end = 0; end < 2; end++)
        for (int i = 0; i < window; i++)
            for (requests[end][i] = NULL; requests[end][i] == NULL;) {
                void *data = place_of(i);
                int result = end ? drive_send(&net, sender, from + (size_t)i * size, size, TAG,
                                              send_memory, &requests[end][i])
                                 : drive_receive(&net, receiver, 1, &data, &size, &tag,
                                                 &receive_memory, &requests[end][i]);
                if (result || (end && requests[end][i] == NULL &&
                               drive_test(&net, requests[0][window - 1], &done, sizes)))
                    exit(1);
            }
    for (int left = 2 * window; left;)
        for (int i = 0; i < 2 * window; i++) {
            void **request = &requests[i / window][i % window];
            done = 0;
            if (*request && drive_test(&net, *request, &done, sizes))
                exit(1);
            if (done) {
                *request = NULL;
                left--;
            }
        }
}

/* Without checks of the data: they would be most of it. The quickest tenth: others use
 * the cores, too. */
static void run_cost(void)
{
    int count = messages / window;
    int64_t *own_ns = calloc((size_t)count + 1, sizeof *own_ns);
    int64_t *whole_ns = calloc((size_t)count + 1, sizeof *whole_ns);
    double accounting_ns = faults_cost_of_accounting();
    struct fake_cost first, before, after;
    faults_cost(&first);
    before = first;
    for (int i = 0; i < count; i++) {
        int64_t begun_ns = now_ns();
        drive_window();
        own_ns[i] = whole_ns[i] = now_ns() - begun_ns;
        faults_cost(&after);
        own_ns[i] -= (int64_t)(after.posting_ns - before.posting_ns + after.polling_ns -
                               before.polling_ns);
        own_ns[i] -= (int64_t)(accounting_ns * (double)(after.posts - before.posts + after.polls -
                                                        before.polls));
        before = after;
    }
    qsort(own_ns, (size_t)count, sizeof *own_ns, by_size);
    qsort(whole_ns, (size_t)count, sizeof *whole_ns, by_size);
    printf("{\"messages\": %d, \"mb_per_s\": %.0f, \"own_ns\": %.0f, \"posts\": %.2f, \"polls\": %.2f}\n",
           count * window, (double)window * (double)size * 1e3 / (double)whole_ns[count / 10],
           (double)own_ns[count / 10] / window,
           (double)(after.posts - first.posts) / (count * window),
           (double)(after.polls - first.polls) / (count * window));
}

int main(int argc, char **argv)
{
    if (argc < 9)
        return 2;
    size = strtoull(argv[4], NULL, 0) / 8 * 8;
    window = atoi(argv[5]);
    messages = atoi(argv[6]);
    seed = strtoull(argv[7], NULL, 0);
    if (window < 1 || window > MAX_WINDOW || size == 0 || messages < 1)
        return 2;
    /* The provider's packets: from memory that is there already. */
    mallopt(M_MMAP_THRESHOLD, 1 << 30);
    mallopt(M_TRIM_THRESHOLD, 1 << 30);
    faults_load(argv[3]);
    if (getenv("SYNTONY_AGENT") == NULL) /* else a real one */
        faults_start_agent();
    net = drive_load(argv[1], atoi(argv[2]));
    is_open = strcmp(argv[8], "open") == 0;
    bool is_alone = !is_open && strcmp(argv[8], "cost") != 0 && strcmp(argv[8], "mixed") != 0;
    if (is_alone && !go_first(pthread_self(), MAIN_PRIORITY)) /* and the transport's own thread */
        fprintf(stderr, "bench_net: no SCHED_FIFO: other programs' time is in the figures\n");
    if (drive_init(&net)) {
        fprintf(stderr, "bench_net: init failed\n");
        return 1;
    }
    connect_both();
    if (strcmp(argv[8], "cost") == 0)
        run_cost();
    else
        run_faults(argv[8], argc > 9 ? atoi(argv[9]) : MAX_STALLS);
    fflush(NULL);
    _exit(0); /* connections that ended badly are not closed */
}
