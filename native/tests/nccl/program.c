#include "program.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "check.h"
#include "faults.h"
#include "syn_job_page.h"

struct program program;
_Thread_local int program_thread;

static _Thread_local uint64_t program_random;

uint64_t draw(uint64_t bound)
{
    if (program_random == 0)
        program_random = (program.seed * 4 + (uint64_t)program_thread) * 0x9e3779b97f4a7c15u | 1;
    return (faults_draw(&program_random) >> 11) % bound;
}

bool one_in(uint64_t n)
{
    return draw(n) == 0;
}

int64_t now_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

static uint64_t below(uint64_t *random, uint64_t bound)
{
    return (faults_draw(random) >> 11) % bound;
}

/* Of all kinds: also at, before and behind what a message is cut into, and how often it can be. */
static size_t size_of(uint64_t *random)
{
    size_t chunk = program.chunk ? program.chunk : 1 << 18;
    size_t several[] = {1, 2, 3, (size_t)program.layout->used, 63, 64, 65, 128};
    uint64_t kind = below(random, 16);
    if (kind < 4)
        return below(random, 4);
    if (kind < 10)
        return below(random, 600);
    if (kind < 13)
        return below(random, 3 * 4096);
    if (program.chunk == 0 && below(random, 4))
        return 4095 + below(random, 3);
    return several[below(random, program.chunk ? 8 : 4)] * chunk - 1 + below(random, 3);
}

struct plan plan_of(uint64_t key, int group)
{
    uint64_t random = (key + (uint64_t)group * 2 + 1) * 0xd1b54a32d192ed03u | 1;
    struct plan plan = {.count = below(&random, 2) ? 1 : 1 + (int)below(&random, GROUP)};
    bool same_tags = below(&random, 8) == 0;
    for (int i = 0; i < plan.count; i++) {
        plan.tag[i] = same_tags ? (int)below(&random, 2) - 1 : group * 16 + i;
        plan.size[i] = size_of(&random);
        plan.offered[i] = plan.size[i] + (below(&random, 2) ? 0 : below(&random, 5000));
        plan.order[i] = i;
    }
    for (int i = plan.count - 1; i > 0; i--) {
        int j = (int)below(&random, (uint64_t)i + 1), other = plan.order[i];
        plan.order[i] = plan.order[j];
        plan.order[j] = other;
    }
    for (int i = 0; i < plan.count; i++)
        for (int j = 0; j < i; j++) /* the sends of one tag: their places in order */
            if (plan.tag[plan.order[j]] == plan.tag[plan.order[i]] &&
                plan.order[j] > plan.order[i]) {
                int other = plan.order[i];
                plan.order[i] = plan.order[j];
                plan.order[j] = other;
            }
    return plan;
}

enum { POISON = 0xe7 };

void buffer_make(struct buffer *buffer, void *comm, size_t size)
{
    size_t ahead = draw(9);
    buffer->block = malloc(ahead + size + (size == 0));
    buffer->data = buffer->block + ahead;
    buffer->size = size;
    memset(buffer->data, POISON, size);
    CHECK_EQUAL(drive_reg(&program.net, comm, buffer->data, size + (size == 0), &buffer->memory), 0);
}

void buffer_end(struct buffer *buffer, void *comm)
{
    CHECK_EQUAL(drive_dereg(&program.net, comm, buffer->memory), 0);
    free(buffer->block);
}

static uint32_t byte_key(uint64_t key, int group, int place)
{
    return (uint32_t)((key * 31 + (uint64_t)group * 8 + (uint64_t)place) * 0x9e3779b97f4a7c15u >> 17);
}

static char byte_at(uint32_t key, size_t i)
{
    return (char)((key + (uint32_t)i * 2654435761u) >> 19);
}

void buffer_fill(struct buffer *buffer, uint64_t key, int group, int place)
{
    uint32_t of = byte_key(key, group, place);
    for (size_t i = 0; i < buffer->size; i++)
        buffer->data[i] = byte_at(of, i);
}

bool buffer_has(const struct buffer *buffer, uint64_t key, int group, int place, size_t size,
                const char *what)
{
    uint32_t of = byte_key(key, group, place);
    for (size_t i = 0; i < buffer->size; i++) {
        char wanted = i < size ? byte_at(of, i) : (char)POISON;
        if (buffer->data[i] == wanted)
            continue;
        if (what)
            fprintf(stderr, "%s: group %d place %d: byte %zu of %zu (%zu offered) is wrong\n", what, group,
                    place, i, size, buffer->size);
        return false;
    }
    return true;
}

/* Kinds of faults, first those of a port that end. */
enum kind { LATE, LOSS, HOLE, TWICE, SLOW, DOWN, PORT_EVENT, HELD, HIDDEN, NO_ADDRESS, OTHER_INDEX, UNREADY,
            NO_QUEUES,
            WITH_AN_END, ERROR = WITH_AN_END, QUEUE_EVENT, NOTICE, ALL_NOTICES, MOVE, AVOID, PACE, ALIVE,
            STOPPED, KINDS };
enum { EVENT_ACTIVE = 9, EVENT_DOWN = 10 }; /* enum ibv_event_type */

static struct { bool on; enum kind kind; int64_t until_ms; } troubles[FAKE_PORTS];
static int64_t next_ms;
static uint64_t completed_before;

static void set(int port, enum kind kind, bool on)
{
    const struct fake_fault faults[] = {
        [LATE] = {.delay_ns = 1000000 + (int64_t)draw(40000000)}, [LOSS] = {.lost_permille = 300},
        [HOLE] = {.lost_permille = 1000}, [TWICE] = {.duplicated_permille = 500, .delay_ns = 300000},
        [SLOW] = {.completion_delay_ns = (int64_t)draw(10000000), .delay_ns = (int64_t)draw(2) * 10000000}};
    struct fake_limits limits = {-1, on ? 0 : -1, -1, -1, {-1, -1, -1, -1},
                                 program.numbers_again ? 1 : -1};
    switch (kind) {
    case LATE: case LOSS: case HOLE: case TWICE: case SLOW:
        faults_set(port, on ? &faults[kind] : &(struct fake_fault){0});
        break;
    case DOWN:
        faults_port(port, !on);
        break;
    case PORT_EVENT: /* of a port that is up */
        faults_event(port, on ? EVENT_DOWN : EVENT_ACTIVE);
        break;
    case HELD:
        faults_hold_neighbour(port, on);
        break;
    case HIDDEN:
        faults_hide_neighbour(port, on);
        break;
    case NO_ADDRESS:
        faults_machine(port, &(struct fake_machine){.old_gid = on});
        break;
    case OTHER_INDEX: /* the port's address gets another index in its table */
        faults_machine(port, &(struct fake_machine){.old_gid = on, .new_gid = on ? 3 : 0});
        break;
    case UNREADY:
        faults_machine(port, &(struct fake_machine){.unready = on});
        break;
    default:
        faults_limit(&limits);
    }
}

/* What the agent says of one rail, in one direction, for some milliseconds. */
static void say(int subject, int rail)
{
    int end = (int)draw(2);
    int64_t for_ns = 1 + (int64_t)draw(60000000);
    faults_order(subject, program.layout->ports[end][rail], program.layout->ports[!end][rail], for_ns,
                 subject == SYN_JOB_PATH_PACE ? 100000000 + draw(4000000000) : 0, 0);
}

static void begin(int port, enum kind kind, int64_t at_ms)
{
    static const int SUBJECTS[KINDS] = {
        [NOTICE] = SYN_JOB_PATH_DEAD, [ALL_NOTICES] = SYN_JOB_PATH_DEAD, [MOVE] = SYN_JOB_PATH_MOVE,
        [AVOID] = SYN_JOB_PATH_AVOID, [PACE] = SYN_JOB_PATH_PACE, [ALIVE] = SYN_JOB_PATH_ALIVE,
        [STOPPED] = SYN_JOB_STOPPED};
    if (kind == ERROR) {
        faults_error(port);
    } else if (kind == QUEUE_EVENT) {
        faults_event(port, (int)draw(4));
    } else if (kind >= WITH_AN_END) {
        for (int i = kind == ALL_NOTICES ? 8 : 1; i > 0; i--)
            say(SUBJECTS[kind], (int)draw((uint64_t)program.layout->used));
    } else {
        set(port, kind, true);
        troubles[port].on = true;
        troubles[port].kind = kind;
        troubles[port].until_ms = at_ms + 1 + (int64_t)draw(one_in(8) ? 200 : 30);
    }
}

/* Without a port's address, its neighbour or queue pairs that send, a connection cannot begin with only that rail; without queue
 * pairs none can. */
static bool is_possible(int port, enum kind kind, bool connecting)
{
    bool is_first = port == program.layout->ports[0][0] || port == program.layout->ports[1][0];
    if (kind >= HIDDEN && kind <= UNREADY)
        return is_first && program.layout->used > 1;
    return kind != NO_QUEUES || (!connecting && program.threads == 1);
}

bool trouble_keeps_from_connecting(void)
{
    if (program.threads > 1)
        return false;
    bool found = false;
    for (int port = 0; port < FAKE_PORTS; port++)
        found |= troubles[port].on && troubles[port].kind == NO_QUEUES;
    return found;
}

void trouble(int64_t at_ms, uint64_t completed, bool connecting)
{
    for (int port = 0; port < FAKE_PORTS; port++)
        if (troubles[port].on && at_ms >= troubles[port].until_ms) {
            troubles[port].on = false;
            set(port, troubles[port].kind, false);
            completed_before = completed;
        }
    if (at_ms < next_ms || completed == completed_before)
        return;
    int port = (int)draw(FAKE_PORTS);
    enum kind kind = (enum kind)draw(KINDS);
    if (troubles[port].on || !is_possible(port, kind, connecting))
        return;
    begin(port, kind, at_ms);
    completed_before = completed;
    next_ms = at_ms + (int64_t)draw(20);
}

void trouble_ends(void)
{
    for (int port = 0; port < FAKE_PORTS; port++)
        if (troubles[port].on)
            set(port, troubles[port].kind, false);
}
