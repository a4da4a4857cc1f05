/* Random programs of NCCL's calls: several connections in both directions at once, which begin, carry
 * grouped receives, and end in whatever order, under faults. Every byte is checked, also after it was
 * first; no call may fail, and none may be waited for in vain, unless the peer has closed.
 *
 * test_programs LIBRARY PROVIDER SEED CONNECTIONS [faults | foreign]
 *
 * foreign: with faults, over NICs that do what the specification allows and most do not do.
 *
 * Seed 0: another one each time. What a program does follows from its seed; when the provider's packets
 * arrive does not. */
#include <dirent.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "faults.h"
#include "program.h"
#include "syn_job_page.h"

enum { THREADS = 3 };

static void *run_beside(void *argument)
{
    const int *of = argument; /* its number, and how many connections */
    program_thread = of[0];
    run_connections(of[1], false);
    return NULL;
}

static void run_all(int total, bool faulty)
{
    pthread_t threads[THREADS];
    int of[THREADS][2];
    for (int i = 1; i < program.threads; i++) {
        of[i][0] = i;
        of[i][1] = total / program.threads;
        if (pthread_create(&threads[i], NULL, run_beside, of[i]))
            abort();
    }
    run_connections(total - total / program.threads * (program.threads - 1), faulty);
    for (int i = 1; i < program.threads; i++)
        pthread_join(threads[i], NULL);
}

/* Of connections that have ended the agent is told so. */
static int flows_left(void)
{
    const struct syn_job_page *page = faults_page();
    int count = 0;
    for (int i = 0; page && i < SYN_JOB_FLOWS; i++)
        count += page->flows[i].state != SYN_JOB_FREE;
    return count;
}

static int open_files(void)
{
    int count = 0;
    DIR *directory = opendir("/proc/self/fd");
    while (readdir(directory))
        count++;
    closedir(directory);
    return count;
}

static void set_up(const char *library, const char *provider, bool is_foreign)
{
    static const struct layout LAYOUTS[] = {
        {"fake0+fake1,fake2+fake3", 2, {{0, 1}, {2, 3}}},
        {NULL, 2, {{0, 1}, {2, 3}}},
        {"fake0+fake1+fake2+fake3", 4, {{0, 1, 2, 3}, {0, 1, 2, 3}}},
        {"fake0+fake1,fake2", 1, {{0}, {2}}},
        {"fake0+fake1,fake2+fake3", 2, {{0, 1}, {2, 3}}}};
    static const char *const CHUNKS[] = {"4096", "8192", "5000", ""};
    char text[16];
    program.layout = &LAYOUTS[draw(5)];
    const char *chunk = CHUNKS[draw(4)];
    program.chunk = strtoull(chunk, NULL, 10);
    program.numbers_again = one_in(2);
    program.threads = 1 + (int)draw(THREADS);
    int version = 8 + (int)draw(5);
    if (program.layout->rails)
        setenv("SYNTONY_NCCL_RAILS", program.layout->rails, 1);
    else
        version += version == 8;
    setenv("SYNTONY_NCCL_CHUNK", chunk, 1);
    snprintf(text, sizeof text, "%d", 1 + (int)draw(one_in(4) ? 8 : 2));
    setenv("SYNTONY_NCCL_QPS", text, 1);
    snprintf(text, sizeof text, "%d", 9 + (int)draw(4));
    setenv("SYNTONY_NCCL_TIMEOUT", text, 1);
    snprintf(text, sizeof text, "%d", (int)draw(4));
    setenv("SYNTONY_NCCL_RETRIES", text, 1);
    setenv("SYNTONY_NCCL_IBVERBS", provider, 1);
    setenv("SYNTONY_NCCL_SOCKET_IFNAME", "=lo", 1);
    faults_load(provider);
    faults_limit(&(struct fake_limits){-1, -1, -1, -1, {-1, -1, -1, -1}, program.numbers_again ? 1 : -1});
    if (is_foreign) {
        struct fake_vendor vendor = {.scrambled_ns = 1 + (int64_t)draw(one_in(2) ? 50000 : 5000000),
                                     .leftovers = one_in(2), .twice = one_in(2), .silent = one_in(3)};
        faults_be(&vendor);
        printf("completions up to %" PRId64 " ns late, leftovers %d, events twice %d, silent %d\n",
               vendor.scrambled_ns, vendor.leftovers, vendor.twice, vendor.silent);
    }
    faults_start_agent();
    program.net = drive_load(library, version);
    printf("seed %" PRIu64 ": v%d, %d threads, %s, %s queue pairs, chunks of %s\n", program.seed, version,
           program.threads, program.layout->rails ? program.layout->rails : "merged", getenv("SYNTONY_NCCL_QPS"),
           *chunk ? chunk : "the default size");
    fflush(stdout);
}

int main(int argc, char **argv)
{
    if (argc < 5)
        return 2;
    program.seed = strtoull(argv[3], NULL, 0);
    if (program.seed == 0)
        program.seed = (uint64_t)now_ms() * 1000003u + (uint64_t)getpid();
    set_up(argv[1], argv[2], argc > 5 && strcmp(argv[5], "foreign") == 0);
    if (drive_init(&program.net))
        return 1;
    if (program.layout->rails == NULL && (drive_merge(&program.net, 2, (int[]){0, 1}) != 4 ||
                                          drive_merge(&program.net, 2, (int[]){2, 3}) != 5))
        return 1;
    for (int64_t begun_ms = now_ms(); faults_page() == NULL && now_ms() - begun_ms < 240000;)
        usleep(1000);
    int files = open_files(), objects = faults_objects();
    run_all(atoi(argv[4]), argc > 5);
    for (int64_t begun_ms = now_ms();
         (faults_objects() > objects || flows_left()) && now_ms() - begun_ms < 240000;)
        usleep(1000);
    faults_print();
    if (faults_objects() > objects || flows_left() || open_files() > files ||
        !faults_provider_is_clean()) {
        fprintf(stderr, "%d objects of the provider, %d flows and %d files are left\n",
                faults_objects() - objects, flows_left(), open_files() - files);
        return 1;
    }
    return drive_finalize(&program.net);
}
