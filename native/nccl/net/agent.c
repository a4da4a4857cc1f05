#include "agent.h"

#include <pthread.h>
#include <stdbool.h>
#include <string.h>

#include "config.h"
#include "device.h"
#include "log.h"
#include "syn_job_page.h"

enum { MAX_FLOWS = 512, MAX_PATHS = 256, MAX_RATES = 128, LOOK_MS = 2, IDLE_MS = 1000 };
static const int64_t AGAIN_NS = INT64_C(5000000000);
static const int64_t TELL_NS = INT64_C(100000000);

enum flow_state { FLOW_FREE, FLOW_NEW, FLOW_TOLD, FLOW_CLOSING };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* of everything up to `version` */
static struct agent_flow flows[MAX_FLOWS];
static struct syn_job_flow names[MAX_FLOWS];
static enum flow_state states[MAX_FLOWS];
static struct path {
    uint8_t local[16], remote[16];
    int64_t held_until_ns, avoided_until_ns; /* a notice, an order */
    uint32_t moves;
} paths[MAX_PATHS];
static struct rate { /* places are kept: connections use their pacers without the lock */
    uint8_t local[16], remote[16];
    uint32_t only_class;
    struct pacer pacer;
} rates[MAX_RATES];
static int path_count, rate_count;
static atomic_uint version = 1;

/* The background thread's. */
static struct syn_job job;
static bool connected;
static int64_t connect_ns, tell_ns;

uint32_t agent_version(void)
{
    return atomic_load_explicit(&version, memory_order_relaxed);
}

/* `until_ns`, or 0: that has passed. */
static int64_t in_force(int64_t until_ns, int64_t now_ns, int64_t *expires_ns)
{
    if (until_ns <= now_ns)
        return 0;
    if (until_ns < *expires_ns)
        *expires_ns = until_ns;
    return until_ns;
}

struct agent_word agent_word(const uint8_t local[16], const uint8_t remote[16], int traffic_class,
                             int64_t now_ns)
{
    struct agent_word word = {.expires_ns = INT64_MAX};
    pthread_mutex_lock(&lock);
    for (int i = 0; i < path_count; i++)
        if (memcmp(paths[i].local, local, 16) == 0 && memcmp(paths[i].remote, remote, 16) == 0) {
            word.held_until_ns = in_force(paths[i].held_until_ns, now_ns, &word.expires_ns);
            word.avoided_until_ns = in_force(paths[i].avoided_until_ns, now_ns, &word.expires_ns);
            word.moves = paths[i].moves;
        }
    for (int i = 0; i < rate_count; i++)
        if (memcmp(rates[i].local, local, 16) == 0 && memcmp(rates[i].remote, remote, 16) == 0 &&
            (rates[i].only_class == 0 || rates[i].only_class == (uint32_t)traffic_class + 1) &&
            in_force(pacer_until_ns(&rates[i].pacer), now_ns, &word.expires_ns) &&
            (word.pacer == NULL || rates[i].pacer.rate_bps < word.pacer->rate_bps))
            word.pacer = &rates[i].pacer;
    pthread_mutex_unlock(&lock);
    return word;
}

struct agent_flow *agent_open_flow(uint32_t qpn, const uint8_t local[16], const uint8_t remote[16],
                                   const char *nic)
{
    struct agent_flow *flow = NULL;
    pthread_mutex_lock(&lock);
    for (int i = 0; i < MAX_FLOWS && flow == NULL; i++)
        if (states[i] == FLOW_FREE) {
            flow = &flows[i];
            memset(flow, 0, sizeof *flow);
            flow->place = -1;
            names[i] = (struct syn_job_flow){.mechanism = SYN_JOB_RDMA, .number = qpn};
            memcpy(names[i].local, local, 16);
            memcpy(names[i].remote, remote, 16);
            strncpy(names[i].nic, nic, sizeof names[i].nic - 1);
            states[i] = FLOW_NEW;
        }
    pthread_mutex_unlock(&lock);
    return flow;
}

void agent_close_flow(struct agent_flow *flow)
{
    if (flow == NULL)
        return;
    pthread_mutex_lock(&lock);
    states[flow - flows] = FLOW_CLOSING;
    pthread_mutex_unlock(&lock);
}

/* NULL: all places are taken by paths of which something still holds. */
static struct path *path_of(const struct syn_job_notice *notice)
{
    for (int i = 0; i < path_count; i++)
        if (memcmp(paths[i].local, notice->local, 16) == 0 &&
            memcmp(paths[i].remote, notice->remote, 16) == 0)
            return &paths[i];
    for (int i = path_count - 1; path_count == MAX_PATHS && i >= 0; i--)
        if (paths[i].held_until_ns <= clock_ns() && paths[i].avoided_until_ns <= clock_ns())
            paths[i] = paths[--path_count];
    if (path_count == MAX_PATHS)
        return NULL;
    struct path *path = &paths[path_count++];
    *path = (struct path){0};
    memcpy(path->local, notice->local, 16);
    memcpy(path->remote, notice->remote, 16);
    return path;
}

static void pace(const struct syn_job_notice *notice)
{
    int i = 0;
    while (i < rate_count && (memcmp(rates[i].local, notice->local, 16) != 0 ||
                              memcmp(rates[i].remote, notice->remote, 16) != 0 ||
                              rates[i].only_class != notice->only_class))
        i++;
    if (i == MAX_RATES)
        return;
    if (i == rate_count) {
        memcpy(rates[i].local, notice->local, 16);
        memcpy(rates[i].remote, notice->remote, 16);
        rates[i].only_class = notice->only_class;
        rate_count++;
    }
    pacer_set(&rates[i].pacer, notice->rate_bps, notice->expires_ns, clock_ns());
}

/* Orders of paths are void. */
static void void_orders(void)
{
    for (int i = 0; i < path_count; i++)
        paths[i].held_until_ns = paths[i].avoided_until_ns = 0;
    for (int i = 0; i < rate_count; i++)
        pacer_set(&rates[i].pacer, 0, 0, clock_ns());
}

static void take(const struct syn_job_notice *notice)
{
    pthread_mutex_lock(&lock);
    if (notice->subject == SYN_JOB_PATH_DEAD || notice->subject == SYN_JOB_PATH_ALIVE ||
        notice->subject == SYN_JOB_PATH_MOVE || notice->subject == SYN_JOB_PATH_AVOID) {
        struct path *path = path_of(notice);
        if (path && notice->subject == SYN_JOB_PATH_MOVE)
            path->moves++;
        else if (path && notice->subject == SYN_JOB_PATH_AVOID)
            path->avoided_until_ns = notice->expires_ns;
        else if (path)
            path->held_until_ns = notice->subject == SYN_JOB_PATH_ALIVE ? 0
                                : notice->expires_ns > 0 ? notice->expires_ns : INT64_MAX;
    } else if (notice->subject == SYN_JOB_PATH_PACE)
        pace(notice);
    else if (notice->subject == SYN_JOB_STOPPED)
        void_orders();
    atomic_fetch_add(&version, 1);
    pthread_mutex_unlock(&lock);
}

/* What was said before a new connection is void. */
static void forget(void)
{
    pthread_mutex_lock(&lock);
    void_orders();
    for (int i = 0; i < MAX_FLOWS; i++)
        if (states[i] == FLOW_TOLD)
            states[i] = FLOW_NEW;
    atomic_fetch_add(&version, 1);
    pthread_mutex_unlock(&lock);
}

static void tell(int i)
{
    struct agent_flow *flow = &flows[i];
    struct syn_job_progress progress = {
        .bytes_done = atomic_load(&flow->bytes_done),
        .bytes_outstanding = atomic_load(&flow->bytes_outstanding),
        .last_done_ns = atomic_load(&flow->last_done_ns),
        .outstanding = atomic_load(&flow->outstanding),
        .errors = atomic_load(&flow->errors),
        .last_error = atomic_load(&flow->last_error),
        .failed = atomic_load(&flow->failed),
    };
    syn_job_tell(&job, flow->place, &progress);
}

static void tell_all(void)
{
    pthread_mutex_lock(&lock);
    for (int i = 0; i < MAX_FLOWS; i++) {
        if (states[i] == FLOW_CLOSING) {
            if (connected && flows[i].place >= 0)
                syn_job_close_flow(&job, flows[i].place);
            states[i] = FLOW_FREE;
        } else if (states[i] == FLOW_NEW && connected) {
            flows[i].place = syn_job_open_flow(&job, &names[i]);
            states[i] = FLOW_TOLD;
        }
        if (states[i] == FLOW_TOLD && connected)
            tell(i);
    }
    pthread_mutex_unlock(&lock);
}

static void connect_again(int64_t now_ns)
{
    static bool said;
    connect_ns = now_ns + AGAIN_NS;
    int error = syn_job_connect(&job, config.agent);
    connected = error == 0;
    if (connected)
        INFO("connected to the agent: its notices are obeyed");
    else if (!said)
        INFO("no agent (%s): rails are left on errors and port events alone", strerror(error));
    said = true;
}

int agent_look(void)
{
    int64_t now_ns = clock_ns();
    bool wanted = config.agent && !config.observe;
    if (wanted && !connected && now_ns >= connect_ns)
        connect_again(now_ns);
    struct syn_job_notice notice;
    for (int i = 0; i < SYN_JOB_NOTICES && connected && syn_job_take(&job, &notice); i++)
        take(&notice);
    if (now_ns >= tell_ns) {
        tell_ns = now_ns + TELL_NS;
        if (connected && syn_job_lost(&job)) {
            syn_job_close(&job);
            connected = false;
            forget();
        }
        tell_all();
    }
    return connected ? LOOK_MS : wanted ? IDLE_MS / 10 : IDLE_MS;
}
