/* bench_profiler PLUGIN VERSION costs ROUNDS: ns of a callback, a line for each round and kind.
 * bench_profiler PLUGIN VERSION rate PER_SECOND SECONDS: so many operations, then how many, and ends
 * when its input does. SYNTONY_AGENT names the agent. */
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "check.h"
#include "drive.h"

static struct plugin plugin;
static void *context;
static int pid;

static int64_t now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * INT64_C(1000000000) + t.tv_nsec;
}

static void *coll(void) { return start_coll(&plugin, context, NULL, 0, "AllReduce", 1); }

static void step_life(void *part, const int *states, int count)
{
    void *step = start_step(&plugin, context, part, 0);
    for (int i = 0; i < count; i++)
        state(&plugin, step, states[i]);
    stop(&plugin, step);
}

static void costs(int rounds)
{
    enum { TIMES = 1000 };
    static const int SEND[] = {8, 20, 9}, RECEIVE[] = {10, 11, 12};
    for (int round = 0; round < rounds; round++) {
        int64_t began = now();
        for (int i = 0; i < TIMES; i++)
            stop(&plugin, coll());
        int64_t collectives = now() - began;
        void *operation = coll();
        began = now();
        for (int i = 0; i < TIMES; i++)
            stop(&plugin, start_proxy_op(&plugin, context, operation, pid, 0, true));
        int64_t parts = now() - began;
        void *part = start_proxy_op(&plugin, context, operation, pid, 0, true);
        began = now();
        for (int i = 0; i < TIMES; i++)
            step_life(part, SEND, 3);
        int64_t sends = now() - began;
        began = now();
        for (int i = 0; i < TIMES; i++)
            step_life(part, RECEIVE, 3);
        int64_t receives = now() - began;
        void *step = start_step(&plugin, context, part, 0);
        state(&plugin, step, 8);
        began = now();
        for (int i = 0; i < TIMES; i++)
            state(&plugin, step, 20);
        int64_t again = now() - began;
        began = now();
        for (int i = 0; i < TIMES; i++)
            start_type(&plugin, context, operation, GROUP);
        int64_t other = now() - began;
        printf("%f %f %f %f %f %f\n", collectives / 2.0 / TIMES, parts / 2.0 / TIMES,
               sends / 5.0 / TIMES, receives / 5.0 / TIMES, (double)again / TIMES,
               (double)other / TIMES);
        stop(&plugin, step);
        stop(&plugin, part);
        stop(&plugin, operation);
    }
}

static void rate(int64_t each_second, int64_t seconds)
{
    static const int SEND[] = {8, 20, 9}, RECEIVE[] = {10, 11, 12};
    int64_t began = now(), count = each_second * seconds;
    for (int64_t i = 0; i < count; i++) {
        while (now() < began + i * 1000000000 / each_second)
            usleep(200);
        void *operation = coll();
        void *send = start_proxy_op(&plugin, context, operation, pid, 0, true);
        void *receive = start_proxy_op(&plugin, context, operation, pid, 0, false);
        stop(&plugin, operation);
        for (int step = 0; step < 2; step++) {
            step_life(send, SEND, 3);
            step_life(receive, RECEIVE, 3);
        }
        stop(&plugin, send);
        stop(&plugin, receive);
    }
    printf("%ld %f\n", (long)count, (now() - began) / 1e9);
    fflush(stdout);
    getchar();
}

int main(int argc, char **words)
{
    CHECK(argc >= 5);
    int mask = 0;
    pid = getpid();
    plugin = plugin_load(words[1], atoi(words[2]));
    context = plugin_init(&plugin, 0xabc, &mask);
    if (strcmp(words[3], "costs") == 0)
        costs(atoi(words[4]));
    else
        rate(atol(words[4]), atol(words[5]));
    plugin_finalize(&plugin, context);
}
