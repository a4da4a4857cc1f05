/* Single-producer single-consumer ring of probe records. */
#ifndef SYN_RING_H
#define SYN_RING_H

#include <stdatomic.h>
#include <stdlib.h>

#include "syn_probe.h"

struct syn_ring {
    struct syn_probe_record *records;
    size_t mask;
    _Atomic size_t head; /* next to write */
    _Atomic size_t tail; /* next to read */
};

static inline int syn_ring_open(struct syn_ring *ring, size_t records)
{
    ring->records = calloc(records, sizeof *ring->records);
    ring->mask = records - 1;
    atomic_init(&ring->head, 0);
    atomic_init(&ring->tail, 0);
    return ring->records != NULL;
}

/* 0 if the ring is full. */
static inline int syn_ring_put(struct syn_ring *ring, const struct syn_probe_record *record)
{
    size_t head = atomic_load_explicit(&ring->head, memory_order_relaxed);
    if (head - atomic_load_explicit(&ring->tail, memory_order_acquire) > ring->mask)
        return 0;
    ring->records[head & ring->mask] = *record;
    atomic_store_explicit(&ring->head, head + 1, memory_order_release);
    return 1;
}

static inline size_t syn_ring_pending(struct syn_ring *ring)
{
    return atomic_load_explicit(&ring->head, memory_order_acquire) -
           atomic_load_explicit(&ring->tail, memory_order_relaxed);
}

static inline size_t syn_ring_take(struct syn_ring *ring, struct syn_probe_record *out, size_t room)
{
    size_t tail = atomic_load_explicit(&ring->tail, memory_order_relaxed);
    size_t count = syn_ring_pending(ring);
    if (count > room)
        count = room;
    for (size_t i = 0; i < count; i++)
        out[i] = ring->records[(tail + i) & ring->mask];
    atomic_store_explicit(&ring->tail, tail + count, memory_order_release);
    return count;
}

#endif
