#include "priority.h"

#include <sched.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "syn_probe.h"

enum {
    REALTIME_PRIORITY = 1, /* the lowest: above ordinary threads, below everything else */
    SLICE_NS = 100000,     /* the shortest the kernel takes; a short slice is served sooner */
    MAX_PERCENT = 50,
};
static const int64_t CHECK_NS = 1000000000, RETRY_NS = 10000000000;

/* struct sched_attr of linux/sched/types.h, which clashes with sched.h. */
struct attributes {
    uint32_t size;
    uint32_t policy;
    uint64_t flags;
    int32_t nice;
    uint32_t priority;
    uint64_t runtime, deadline, period;
};

/* Slices of ordinary threads: Linux 6.12; before that the call changes nothing. */
static int set_policy(uint32_t policy, uint32_t priority, uint64_t slice_ns)
{
    struct attributes wanted = {
        .size = sizeof wanted, .policy = policy, .priority = priority, .runtime = slice_ns};
    return syscall(SYS_sched_setattr, 0, &wanted, 0) == 0;
}

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
    if (set_policy(SCHED_FIFO, REALTIME_PRIORITY, 0))
        priority->mode = SYN_SCHEDULING_REALTIME;
    else
        priority->mode = set_policy(SCHED_OTHER, 0, SLICE_NS) ? SYN_SCHEDULING_SHORT_SLICE
                                                              : SYN_SCHEDULING_PLAIN;
    priority->retry_ns = INT64_MAX;
}

static void lower(struct syn_priority *priority, int64_t now_ns)
{
    if (priority->mode != SYN_SCHEDULING_REALTIME || !set_policy(SCHED_OTHER, 0, SLICE_NS))
        return;
    priority->mode = SYN_SCHEDULING_SHORT_SLICE;
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
