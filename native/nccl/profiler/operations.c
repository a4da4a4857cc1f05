#include "operations.h"

#include <stddef.h>
#include <string.h>
#include <time.h>

#include "door.h"

const struct door_kind door_kind = {.suffix = "-nccl", .memory = "syntony-nccl",
                                    .magic = SYN_NCCL_MAGIC, .version = SYN_NCCL_PAGE_VERSION,
                                    .size = sizeof(struct syn_nccl_page)};

/* Parts of the gate. Its counts never run over: a process has fewer threads than `WRITES` allow, and
 * MOST_PARTS are let in. */
static const uint64_t HOLD = 1, HOLDS = 0xffff, WRITE = 0x10000, WRITES = 0xffff0000;
enum { MOST_PARTS = 60000, TRIES = 8 };

static struct syn_nccl_page *page;

int64_t now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * INT64_C(1000000000) + t.tv_nsec;
}

bool operations_open(uint32_t abi)
{
    struct syn_nccl_page *mine = door_page();
    if (mine == NULL)
        return false;
    SET(mine->abi, abi);
    __atomic_store_n(&page, mine, __ATOMIC_RELEASE);
    door_look(now_ns());
    return true;
}

bool operations_are_open(void)
{
    return __atomic_load_n(&page, __ATOMIC_ACQUIRE) != NULL && door_is_mine();
}

static struct syn_nccl_operation *place_of(uint64_t number)
{
    return &page->operations[number % SYN_NCCL_OPERATIONS];
}

static uint64_t gate_of(uint64_t number)
{
    return number << 32;
}

/* Write to an operation: nobody takes its place until `leave`. NULL: it has none any more. */
static struct syn_nccl_operation *enter(uint64_t number)
{
    if (number == NO_OPERATION || !operations_are_open())
        return NULL;
    struct syn_nccl_operation *to = place_of(number);
    uint64_t gate = __atomic_fetch_add(&to->gate, WRITE, __ATOMIC_ACQUIRE);
    if (gate >> 32 == (uint32_t)number)
        return to;
    __atomic_fetch_sub(&to->gate, WRITE, __ATOMIC_RELEASE);
    return NULL;
}

static void leave(struct syn_nccl_operation *from, uint64_t holds)
{
    __atomic_fetch_sub(&from->gate, WRITE + holds, __ATOMIC_RELEASE);
}

/* A place where nobody writes, for the next number. What is there is overwritten even if it has not
 * ended: the reader counts it. */
static struct syn_nccl_operation *claim(uint64_t *number)
{
    for (int tries = 0; tries < TRIES; tries++) {
        *number = ADD(page->begun, 1);
        struct syn_nccl_operation *to = place_of(*number);
        uint64_t gate = GET(to->gate);
        if (!(gate & WRITES) &&
            __atomic_compare_exchange_n(&to->gate, &gate, gate_of(*number) | WRITE | HOLD, 0,
                                        __ATOMIC_ACQUIRE, __ATOMIC_RELAXED))
            return to;
    }
    return NULL;
}

/* Word by word: the agent may read at the same time. */
static void store(void *to, const void *from, size_t size)
{
    typedef uint64_t __attribute__((may_alias)) word_t;
    for (size_t i = 0; i < size / sizeof(word_t); i++)
        SET(((word_t *)to)[i], ((const word_t *)from)[i]);
}

static void copy_text(char *to, size_t size, const char *from)
{
    for (size_t i = 0; from && i + 1 < size && from[i]; i++)
        to[i] = from[i];
}

uint64_t operation_begin(const struct operation *operation)
{
    enum { AFTER_GATE = offsetof(struct syn_nccl_operation, comm) };
    if (!operations_are_open())
        return NO_OPERATION;
    struct syn_nccl_operation fresh = {
        .comm = operation->comm, .sequence = operation->sequence,
        .nccl_sequence = operation->nccl_sequence, .count = operation->count,
        .kind = (uint16_t)operation->kind, .rank = operation->rank, .ranks = operation->ranks,
        .peer = operation->peer,
    };
    copy_text(fresh.op, sizeof fresh.op, operation->op);
    copy_text(fresh.datatype, sizeof fresh.datatype, operation->datatype);
    copy_text(fresh.algorithm, sizeof fresh.algorithm, operation->algorithm);
    copy_text(fresh.protocol, sizeof fresh.protocol, operation->protocol);
    copy_text(fresh.name, sizeof fresh.name, operation->name);
    fresh.enqueue_ns = fresh.changed_ns = now_ns();
    uint64_t number;
    struct syn_nccl_operation *to = claim(&number);
    if (to == NULL)
        return NO_OPERATION;
    SET(to->number, NO_OPERATION);
    __atomic_thread_fence(__ATOMIC_RELEASE);
    store((char *)to + AFTER_GATE, (char *)&fresh + AFTER_GATE, sizeof fresh - AFTER_GATE);
    __atomic_store_n(&to->number, number, __ATOMIC_RELEASE);
    leave(to, 0);
    door_look(fresh.enqueue_ns);
    return number;
}

void operation_enqueued(uint64_t number)
{
    struct syn_nccl_operation *to = enter(number);
    if (to != NULL)
        leave(to, HOLD);
}

bool operation_part(uint64_t number, enum part_kind kind)
{
    struct syn_nccl_operation *to = enter(number);
    if (to == NULL)
        return false;
    if ((GET(to->gate) & HOLDS) >= MOST_PARTS) {
        leave(to, 0);
        return false;
    }
    ADD(*(kind == PART_SEND ? &to->sends : kind == PART_RECEIVE ? &to->receives : &to->kernels), 1);
    int64_t at_ns = now_ns();
    if (GET(to->started_ns) == 0)
        SET(to->started_ns, at_ns);
    SET(to->changed_ns, at_ns);
    leave(to, -HOLD);
    return true;
}

void operation_wait(uint64_t number, uint8_t before, uint8_t after, int64_t since_ns,
                    int64_t at_ns, uint32_t steps)
{
    struct syn_nccl_operation *to = enter(number);
    if (to == NULL)
        return;
    if (before < SYN_NCCL_WAITS)
        ADD(to->wait_ns[before], at_ns - since_ns);
    if (before != after) {
        if (before < SYN_NCCL_WAITS)
            ADD(to->waiting[before], -1);
        if (after < SYN_NCCL_WAITS)
            ADD(to->waiting[after], 1);
    }
    if (steps)
        ADD(to->steps, steps);
    SET(to->changed_ns, at_ns);
    leave(to, 0);
    door_look(at_ns);
}

void operation_part_ended(uint64_t number, int64_t at_ns)
{
    struct syn_nccl_operation *to = enter(number);
    if (to == NULL)
        return;
    if (GET(to->done_ns) < at_ns)
        SET(to->done_ns, at_ns);
    SET(to->changed_ns, at_ns);
    leave(to, HOLD);
}

void operation_left_out(void)
{
    if (operations_are_open())
        ADD(page->left_out, 1);
}
