/* The page's operations. Any thread, any time; nothing waits, and of an operation that was
 * overwritten meanwhile nothing is written. */
#ifndef PROFILER_OPERATIONS_H
#define PROFILER_OPERATIONS_H

#include <stdbool.h>
#include <stdint.h>

#include "syn_nccl_page.h"

#define GET(field) __atomic_load_n(&(field), __ATOMIC_RELAXED)
#define SET(field, value) __atomic_store_n(&(field), (value), __ATOMIC_RELAXED)
#define ADD(field, value) __atomic_fetch_add(&(field), (value), __ATOMIC_RELAXED)

enum { NO_WAIT = 255 };
static const uint64_t NO_OPERATION = UINT64_MAX;

/* What begins. Texts may be NULL. */
struct operation {
    uint64_t comm, sequence, nccl_sequence, count;
    enum syn_nccl_kind kind;
    int32_t rank, ranks, peer;
    const char *op, *datatype, *algorithm, *protocol, *name;
};

enum part_kind { PART_NONE = 0, PART_SEND, PART_RECEIVE, PART_KERNEL };

/* Have a page; false: nobody reads one, or this is a child of fork. Not for two threads at once. */
bool operations_open(uint32_t abi);
/* Whether this process has one. */
bool operations_are_open(void);
int64_t now_ns(void); /* CLOCK_MONOTONIC */

/* The number of a new operation, which its call holds open; NO_OPERATION: no place. */
uint64_t operation_begin(const struct operation *operation);
/* Its call has returned. Once for each operation. */
void operation_enqueued(uint64_t number);
/* A part of it begins and holds it open. False: the operation is not there any more. */
bool operation_part(uint64_t number, enum part_kind kind);
/* What a part waited for since `since_ns`, and waits for from now on; `steps` ended. */
void operation_wait(uint64_t number, uint8_t before, uint8_t after, int64_t since_ns,
                    int64_t at_ns, uint32_t steps);
/* A part that waited for nothing has ended. */
void operation_part_ended(uint64_t number, int64_t at_ns);
/* Something of an operation had no place. */
void operation_left_out(void);

#endif
