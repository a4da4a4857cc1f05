#include "priority.h"

#include <pthread.h>
#include <sched.h>
#include <time.h>

#include "syn_slice.h"

enum {
    REALTIME_PRIORITY = 1, /* the lowest: above ordinary threads, below everything else */
    MAX_PERCENT = 50,
};
static const int64_t CHECK_NS = 1000000000, RETRY_NS = 10000000000;

static int64_t used(void)
{
    struct timespec time;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
    return (int64_t)time.tv_sec * 1000000000 + time.tv_nsec;
}

void syn_priority_raise(struct syn_priority *priority, int64_t now_ns)
{
    priority->check_ns = now_ns;
    priority->used_ns = used();
    struct sched_param lowest = {.sched_priority = REALTIME_PRIORITY};
    priority->realtime = pthread_setschedparam(pthread_self(), SCHED_FIFO, &lowest) == 0;
    if (!priority->realtime)
        syn_short_slice();
    priority->retry_ns = INT64_MAX;
}

static void lower(struct syn_priority *priority, int64_t now_ns)
{
    if (!priority->realtime || syn_short_slice() != 0)
        return;
    priority->realtime = 0;
    priority->retry_ns = now_ns + RETRY_NS;
}

void syn_priority_check(struct syn_priority *priority, int64_t now_ns)
{
    int64_t passed_ns = now_ns - priority->check_ns;
    if (passed_ns < CHECK_NS)
        return;
    int64_t used_ns = used();
    int busy = (used_ns - priority->used_ns) > passed_ns * MAX_PERCENT / 100;
    priority->check_ns = now_ns;
    priority->used_ns = used_ns;
    if (busy)
        lower(priority, now_ns);
    else if (now_ns >= priority->retry_ns)
        syn_priority_raise(priority, now_ns);
}
