#include "parts.h"

#include <stddef.h>

enum { PARTS = 16384, STEPS = 16 }; /* NCCL has at most 8 steps of a part under way */

struct step {
    void *next;
    uint8_t begun, waits; /* `begun` counts, to distinguish steps in one place */
    uint8_t active;
};

struct part {
    uint32_t generation;
    uint32_t free_next; /* in the list of what is free: a place plus 1; 0: the last */
    uint64_t operation;
    int64_t since_ns; /* waits since */
    void *next;
    uint8_t kind; /* enum part_kind; PART_NONE: another profiler's event */
    uint8_t used;
    uint8_t waits;        /* of the oldest step */
    uint32_t oldest, end; /* steps in the order in which they began, modulo STEPS */
    struct step steps[STEPS];
};

/* An operation's event. Its place is that of its number. */
struct call {
    uint64_t number;
    void *next;
    uint8_t open;
};

static struct part parts[PARTS];
static struct call calls[SYN_NCCL_OPERATIONS];
static uint64_t free_parts; /* count of changes << 32 | place plus 1 */
static uint32_t parts_used; /* places that were ever taken */

/* A handle: what it names (2 bits, never 0), generation (30), place (32). Of a step the generation
 * is 22 bits of its part's and 8 of its own, its place 16 for each part. */
enum what { NOTHING = 0, CALL = 1, PART = 2, STEP = 3 };

static handle_t pack(enum what what, uint32_t generation, uint32_t place)
{
    return (uint64_t)what << 62 | (uint64_t)(generation & 0x3fffffff) << 32 | place;
}

static enum what what_of(handle_t handle) { return (enum what)(handle >> 62); }
static uint32_t generation_of(handle_t handle) { return handle >> 32 & 0x3fffffff; }
static uint32_t place_of(handle_t handle) { return (uint32_t)handle; }

static handle_t pack_call(uint64_t number)
{
    return pack(CALL, (uint32_t)(number / SYN_NCCL_OPERATIONS),
                (uint32_t)(number % SYN_NCCL_OPERATIONS));
}

static struct call *find_call(handle_t handle)
{
    if (what_of(handle) != CALL || place_of(handle) >= SYN_NCCL_OPERATIONS)
        return NULL;
    struct call *call = &calls[place_of(handle)];
    uint64_t number = GET(call->number);
    return pack_call(number) == handle ? call : NULL;
}

static struct part *find_part(handle_t handle)
{
    if (what_of(handle) != PART || place_of(handle) >= PARTS)
        return NULL;
    struct part *part = &parts[place_of(handle)];
    return GET(part->used) && (GET(part->generation) & 0x3fffffff) == generation_of(handle) ? part
                                                                                           : NULL;
}

static handle_t handle_of_step(const struct part *part, uint32_t at)
{
    uint32_t begun = GET(part->steps[at % STEPS].begun);
    return pack(STEP, GET(part->generation) << 8 | begun,
                (uint32_t)(part - parts) * STEPS + at % STEPS);
}

static struct step *find_step(handle_t handle, struct part **part)
{
    if (what_of(handle) != STEP || place_of(handle) >= PARTS * STEPS)
        return NULL;
    *part = &parts[place_of(handle) / STEPS];
    uint32_t at = place_of(handle) % STEPS;
    return GET((*part)->used) && GET((*part)->steps[at].active) &&
                   handle_of_step(*part, at) == handle
               ? &(*part)->steps[at]
               : NULL;
}

/* Those that ended last are used again first: their memory is near. */
static struct part *take_place(void)
{
    uint64_t head = __atomic_load_n(&free_parts, __ATOMIC_ACQUIRE);
    while ((uint32_t)head) {
        struct part *part = &parts[(uint32_t)head - 1];
        uint64_t after = ((head >> 32) + 1) << 32 | GET(part->free_next);
        if (__atomic_compare_exchange_n(&free_parts, &head, after, 0, __ATOMIC_ACQUIRE,
                                        __ATOMIC_ACQUIRE))
            return part;
    }
    if (GET(parts_used) >= PARTS)
        return NULL;
    uint32_t place = ADD(parts_used, 1);
    return place < PARTS ? &parts[place] : NULL;
}

static void give_place(struct part *part)
{
    uint64_t head = GET(free_parts), after;
    do {
        SET(part->free_next, (uint32_t)head);
        after = ((head >> 32) + 1) << 32 | (uint32_t)(part - parts + 1);
    } while (!__atomic_compare_exchange_n(&free_parts, &head, after, 0, __ATOMIC_RELEASE,
                                          __ATOMIC_RELAXED));
}

static handle_t begin(uint64_t operation, enum part_kind kind)
{
    struct part *part = take_place();
    if (part == NULL)
        return 0;
    SET(part->operation, operation);
    SET(part->kind, (uint8_t)kind);
    SET(part->next, NULL);
    SET(part->waits, NO_WAIT);
    SET(part->oldest, GET(part->end)); /* handles of former steps name nothing: see `active` */
    for (int i = 0; i < STEPS; i++)
        SET(part->steps[i].active, 0);
    uint32_t generation = GET(part->generation) + 1;
    SET(part->generation, generation);
    __atomic_store_n(&part->used, 1, __ATOMIC_RELEASE);
    return pack(PART, generation, (uint32_t)(part - parts));
}

handle_t handle_of_operation(uint64_t number)
{
    if (number == NO_OPERATION)
        return 0;
    struct call *call = &calls[number % SYN_NCCL_OPERATIONS];
    SET(call->number, number);
    SET(call->next, NULL);
    SET(call->open, 1);
    return pack_call(number);
}

handle_t part_begin(handle_t parent, enum part_kind kind)
{
    struct call *call = find_call(parent);
    if (call == NULL)
        return 0;
    uint64_t operation = GET(call->number);
    handle_t handle = begin(operation, kind);
    if (handle == 0) {
        operation_left_out();
        return 0;
    }
    if (operation_part(operation, kind))
        return handle;
    operation_left_out();
    SET(find_part(handle)->operation, NO_OPERATION);
    event_end(handle);
    return 0;
}

handle_t other_begin(void)
{
    return begin(NO_OPERATION, PART_NONE);
}

/* What the oldest step of a part waits for. */
static uint8_t wait_of(struct part *part)
{
    uint32_t oldest = GET(part->oldest), end = GET(part->end);
    while (oldest != end && !GET(part->steps[oldest % STEPS].active))
        oldest++;
    SET(part->oldest, oldest);
    return oldest == end ? NO_WAIT : GET(part->steps[oldest % STEPS].waits);
}

/* Charge the time until now to what the part was waiting for. */
static void charge(struct part *part, uint8_t after, uint32_t steps)
{
    uint8_t before = GET(part->waits);
    if (before == after && steps == 0)
        return;
    int64_t at_ns = now_ns();
    operation_wait(GET(part->operation), before, after, GET(part->since_ns), at_ns, steps);
    SET(part->waits, after);
    SET(part->since_ns, at_ns);
}

handle_t step_begin(handle_t of)
{
    struct part *part = find_part(of);
    if (part == NULL || (GET(part->kind) != PART_SEND && GET(part->kind) != PART_RECEIVE))
        return 0;
    uint32_t at = GET(part->end);
    struct step *step = &part->steps[at % STEPS];
    bool crowded = at - GET(part->oldest) >= STEPS; /* the oldest never ended */
    SET(step->begun, (uint8_t)(GET(step->begun) + 1));
    SET(step->waits, NO_WAIT);
    SET(step->next, NULL);
    SET(step->active, 1);
    SET(part->end, at + 1);
    if (crowded) {
        SET(part->oldest, at + 1 - STEPS);
        operation_left_out();
        charge(part, wait_of(part), 0);
    }
    return handle_of_step(part, at);
}

void step_waits(handle_t handle, enum syn_nccl_wait wait)
{
    struct part *part;
    struct step *step = find_step(handle, &part);
    if (step == NULL || GET(step->waits) == wait)
        return;
    SET(step->waits, (uint8_t)wait);
    charge(part, wait_of(part), 0);
}

void part_waits_for_credit(handle_t handle)
{
    struct part *part = find_part(handle);
    if (part == NULL)
        return;
    for (uint32_t at = GET(part->oldest); at != GET(part->end); at++) {
        struct step *step = &part->steps[at % STEPS];
        if (GET(step->active) && GET(step->waits) == SYN_NCCL_GPU) {
            step_waits(handle_of_step(part, at), SYN_NCCL_CREDIT);
            return;
        }
    }
}

static void end_part(struct part *part)
{
    if (!__atomic_exchange_n(&part->used, 0, __ATOMIC_ACQ_REL))
        return; /* somebody else ended it, too */
    charge(part, NO_WAIT, 0);
    operation_part_ended(GET(part->operation), now_ns());
    give_place(part);
}

static void end_step(handle_t handle)
{
    struct part *part;
    struct step *step = find_step(handle, &part);
    if (step == NULL)
        return;
    SET(step->active, 0);
    charge(part, wait_of(part), 1);
}

void event_end(handle_t handle)
{
    struct part *part = find_part(handle);
    struct call *call = find_call(handle);
    if (part != NULL)
        end_part(part);
    else if (call == NULL)
        end_step(handle);
    else if (__atomic_exchange_n(&call->open, 0, __ATOMIC_ACQ_REL))
        operation_enqueued(GET(call->number));
}

static void **next_of(handle_t handle)
{
    struct part *part = find_part(handle);
    struct call *call = find_call(handle);
    struct step *step = find_step(handle, &(struct part *){NULL});
    return part ? &part->next : call ? &call->next : step ? &step->next : NULL;
}

void *event_next(handle_t handle)
{
    void **next = next_of(handle);
    return next ? GET(*next) : NULL;
}

void event_set_next(handle_t handle, void *next)
{
    void **to = next_of(handle);
    if (to != NULL)
        SET(*to, next);
}
