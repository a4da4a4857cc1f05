/* The engine's thread: wait, receive, send what is due, finish what is overdue. */
#include <errno.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "engine.h"
#include "order.h"

#ifndef SYS_epoll_pwait2
#define SYS_epoll_pwait2 441 /* Linux 5.11; the same number on every architecture */
#endif

enum {
    EVENTS = 64,
    TIMER_SLACK_NS = 1000,
    IDLE_NS = 1000000000,
    /* Overdue probes are looked for twenty times per timeout, within these bounds. */
    SWEEPS_PER_TIMEOUT = 20,
    MIN_SWEEP_NS = 1000000,
    MAX_SWEEP_NS = 50000000,
    /* Under load the engine lets packets gather as a NIC does (interrupt moderation): the kernel has
     * stamped them, so reading them later costs no accuracy and saves a wake-up for each. */
    GATHER_NS = 1000000,
    GATHER_WINDOW_NS = 10000000,
    GATHER_PACKETS = 20, /* in a window: 2,000 packets/s */
    /* So long while nobody waits for a verdict: what is due meanwhile is sent together as well. */
    CALM_NS = 5000000,
};

static int64_t due(const struct syn_probe_engine *engine, size_t index)
{
    return engine->flows[index]->flow.due_ns;
}

static void sift_down(struct syn_probe_engine *engine, size_t at)
{
    for (;;) {
        size_t least = at;
        for (size_t child = 2 * at + 1; child <= 2 * at + 2 && child < engine->flow_count; child++)
            if (due(engine, child) < due(engine, least))
                least = child;
        if (least == at)
            return;
        struct syn_engine_flow *moved = engine->flows[at];
        engine->flows[at] = engine->flows[least];
        engine->flows[least] = moved;
        at = least;
    }
}

void syn_heap_build(struct syn_probe_engine *engine)
{
    for (size_t i = engine->flow_count / 2; i-- > 0;)
        sift_down(engine, i);
}

static int64_t sweep_period(const struct syn_probe_engine *engine)
{
    int64_t period_ns = engine->options.timeout_ns / SWEEPS_PER_TIMEOUT;
    if (period_ns < MIN_SWEEP_NS)
        return MIN_SWEEP_NS;
    return period_ns > MAX_SWEEP_NS ? MAX_SWEEP_NS : period_ns;
}

/* Spread over the interval by the golden ratio: consecutive ids never bunch, and the same plan
 * always has the same phases. */
int64_t syn_phase_ns(const struct syn_probe_flow *flow)
{
    uint64_t fraction = (flow->flow_id * UINT64_C(0x9e3779b97f4a7c15)) >> 32;
    return (int64_t)(((unsigned __int128)fraction * (uint64_t)flow->interval_ns) >> 32);
}

void syn_begin_sending(struct syn_probe_engine *engine)
{
    int64_t now_ns = syn_clock_read(CLOCK_MONOTONIC);
    for (size_t i = 0; i < engine->flow_count; i++)
        engine->flows[i]->flow.due_ns = now_ns + syn_phase_ns(&engine->flows[i]->flow.config);
    syn_heap_build(engine);
    engine->next_sweep_ns = now_ns + sweep_period(engine);
}

static int may_send(const struct syn_probe_engine *engine)
{
    return engine->flow_count > 0 && engine->peer_count > 0;
}

static int64_t next_pair_ns(const struct syn_probe_engine *engine)
{
    return syn_greater(due(engine, 0), engine->allowed_ns);
}

static int64_t next_of_flows(struct syn_probe_engine *engine, int64_t now_ns)
{
    if (!may_send(engine)) {
        engine->next_sweep_ns = now_ns + sweep_period(engine);
        return now_ns + IDLE_NS;
    }
    return syn_lesser(next_pair_ns(engine), engine->next_sweep_ns);
}

/* What the kernel or the NIC has stamped can be read later. */
static int may_rest(const struct syn_probe_engine *engine)
{
    return engine->options.plane == SYN_PLANE_UDP;
}

static int is_calm(const struct syn_probe_engine *engine, int64_t now_ns)
{
    int behind = may_send(engine) && due(engine, 0) <= now_ns;
    return may_rest(engine) && engine->watches.count == 0 && !engine->loaded && !behind &&
           now_ns >= engine->hasty_until_ns;
}

static int64_t next_deadline(struct syn_probe_engine *engine, int64_t now_ns)
{
    int64_t next_ns = syn_lesser(next_of_flows(engine, now_ns), syn_watches_next_ns(engine));
    return syn_greater(next_ns, engine->calm ? now_ns + CALM_NS : 0);
}

/* One slot, however many were missed: never a burst to catch up. */
static void serve(struct syn_probe_engine *engine, int64_t now_ns)
{
    struct syn_engine_flow *flow = engine->flows[0];
    int64_t interval_ns = flow->flow.config.interval_ns;
    int64_t missed = (now_ns - flow->flow.due_ns) / interval_ns;
    engine->counters.skipped += (uint64_t)missed;
    flow->flow.due_ns += (missed + 1) * interval_ns;
    sift_down(engine, 0);
    if (!syn_flow_has_room(&flow->flow)) {
        engine->counters.skipped++;
        return;
    }
    syn_send_pair(engine, flow, now_ns);
    engine->allowed_ns = now_ns + engine->options.min_gap_ns;
}

/* Of one NIC a pair at most in one turn: packets of two would queue behind each other. What is left
 * over goes in the next turn, which does not rest. */
static void serve_due(struct syn_probe_engine *engine)
{
    engine->turns++;
    while (may_send(engine)) {
        int64_t now_ns = syn_clock_read(CLOCK_MONOTONIC);
        struct syn_nic *nic = &engine->nics[engine->flows[0]->flow.config.nic];
        /* In a calm turn there are no more pairs than NICs: these need no gaps. */
        int64_t next_ns = engine->calm ? due(engine, 0) : next_pair_ns(engine);
        if (next_ns > now_ns || nic->turn == engine->turns)
            return;
        nic->turn = engine->turns;
        serve(engine, now_ns);
        if (!engine->calm)
            return;
    }
}

static void sweep(struct syn_probe_engine *engine, int64_t now_ns)
{
    if (now_ns < engine->next_sweep_ns)
        return;
    struct syn_sink sink = syn_sink_of(engine);
    for (size_t i = 0; i < engine->flow_count; i++)
        syn_flow_sweep(&engine->flows[i]->flow, now_ns, &engine->stall, &sink);
    engine->next_sweep_ns = now_ns + sweep_period(engine);
}

/* Never from before the last turn: a deadline may lie far back while there is more to do than time,
 * and together the stalls must not exceed what has passed, or no probe would ever be overdue. */
static void note_lateness(struct syn_probe_engine *engine, int64_t now_ns)
{
    int64_t late_ns = now_ns - syn_greater(engine->deadline_ns, engine->turned_ns);
    engine->turned_ns = now_ns;
    if (late_ns <= engine->options.stall_ns || !may_send(engine))
        return;
    engine->counters.stalls++;
    engine->counters.stall_ns += (uint64_t)late_ns;
    engine->stall.total_ns += late_ns;
    engine->stall.mark += late_ns > syn_grave_stall_ns(engine);
}

static void note_load(struct syn_probe_engine *engine, int64_t now_ns)
{
    if (now_ns < engine->window_end_ns)
        return;
    engine->loaded = may_rest(engine) && engine->taken_in >= GATHER_PACKETS &&
                     now_ns < engine->window_end_ns + GATHER_WINDOW_NS;
    engine->taken_in = 0;
    engine->window_end_ns = now_ns + GATHER_WINDOW_NS;
}

static void sleep_until(int64_t until_ns)
{
    struct timespec until = {until_ns / 1000000000, until_ns % 1000000000};
    (void)clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, NULL);
}

/* Let packets gather. Whether what has come is to be looked at now. */
static int gather(struct syn_probe_engine *engine, int64_t now_ns)
{
    if (engine->loaded) {
        int64_t until_ns = now_ns + GATHER_NS;
        sleep_until(until_ns < engine->deadline_ns ? until_ns : engine->deadline_ns);
        return 1;
    }
    if (engine->calm)
        sleep_until(now_ns + CALM_NS);
    return 0;
}

static int wait_events(struct syn_probe_engine *engine, struct epoll_event *events)
{
    int64_t now_ns = syn_clock_read(CLOCK_MONOTONIC);
    int at_once = gather(engine, now_ns);
    int64_t left_ns = engine->deadline_ns - syn_clock_read(CLOCK_MONOTONIC);
    if (left_ns < 0 || at_once)
        left_ns = 0;
    if (!engine->coarse_wait) {
        struct timespec timeout = {left_ns / 1000000000, left_ns % 1000000000};
        long count = syscall(SYS_epoll_pwait2, engine->epoll_fd, events, EVENTS, &timeout, NULL,
                             (size_t)0);
        if (count >= 0 || errno != ENOSYS)
            return (int)count;
        engine->coarse_wait = 1;
    }
    return epoll_wait(engine->epoll_fd, events, EVENTS, (int)((left_ns + 999999) / 1000000));
}

/* An error condition without a message would keep the socket ready for ever. */
static void read_errors(struct syn_probe_engine *engine, struct syn_socket *socket)
{
    int error;
    socklen_t length = sizeof error;
    if (syn_read_sent_stamps(engine, socket) == 0)
        (void)getsockopt(socket->fd, SOL_SOCKET, SO_ERROR, &error, &length);
}

/* Whether there may be more to read. */
static int handle(struct syn_probe_engine *engine, const struct epoll_event *event)
{
    struct syn_socket *socket = event->data.ptr;
    if (socket == NULL) {
        uint64_t wakes;
        (void)!read(engine->wake_fd, &wakes, sizeof wakes);
        return 0;
    }
    if (event->events & EPOLLERR)
        read_errors(engine, socket);
    return event->events & EPOLLIN ? syn_receive(engine, socket) : 0;
}

/* A batch of each socket that has something, again until none had a full one: who has been without
 * processor time answers at all of its NICs alike, also at those where something came meanwhile. */
static void handle_all(struct syn_probe_engine *engine, struct epoll_event *events, int count)
{
    int more = 1;
    while (count > 0 && more) {
        more = 0;
        for (int i = 0; i < count; i++)
            more |= handle(engine, &events[i]);
        if (more)
            count = epoll_wait(engine->epoll_fd, events, EVENTS, 0);
    }
}

/* What arrived is read before anything is declared overdue. */
static void turn(struct syn_probe_engine *engine)
{
    struct epoll_event events[EVENTS];
    unsigned generation = engine->generation;
    int64_t began_ns = syn_clock_read(CLOCK_MONOTONIC);
    engine->calm = is_calm(engine, began_ns);
    engine->deadline_ns = next_deadline(engine, began_ns);
    pthread_mutex_unlock(&engine->lock);
    int count = wait_events(engine, events);
    pthread_mutex_lock(&engine->lock);
    int64_t now_ns = syn_clock_read(CLOCK_MONOTONIC);
    syn_priority_check(&engine->priority, now_ns);
    note_lateness(engine, now_ns);
    note_load(engine, now_ns);
    syn_watches_wake(&engine->watches, engine->deadline_ns, now_ns);
    int current = generation == engine->generation;
    if (!current)
        count = 0;
    handle_all(engine, events, count);
    if (current && count < EVENTS)
        syn_watches_serve(engine);
    serve_due(engine);
    if (may_send(engine) && count < EVENTS)
        sweep(engine, syn_clock_read(CLOCK_MONOTONIC));
}

void *syn_engine_run(void *argument)
{
    struct syn_probe_engine *engine = argument;
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_BLOCK, &all, NULL);
    (void)prctl(PR_SET_TIMERSLACK, TIMER_SLACK_NS);
    (void)prctl(PR_SET_NAME, "syn-probe");
    pthread_mutex_lock(&engine->lock);
    syn_priority_raise(&engine->priority, syn_clock_read(CLOCK_MONOTONIC));
    syn_begin_sending(engine);
    engine->turned_ns = syn_clock_read(CLOCK_MONOTONIC);
    while (!engine->stop)
        turn(engine);
    pthread_mutex_unlock(&engine->lock);
    return NULL;
}
