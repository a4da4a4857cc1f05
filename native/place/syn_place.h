/* Placement and sharing where there are very many flows: what syntony/traffic/colouring.py and
 * syntony/traffic/fair.py do. Everything between the two markers is read by Python's cffi. */
#ifndef SYN_PLACE_H
#define SYN_PLACE_H

#include <stddef.h>
#include <stdint.h>

#pragma GCC visibility push(default)

/* --- declarations --- */
/* An edge colouring that flows join and leave: no two flows of one node have one colour. A leaf
 * with more flows than colours is several nodes. Not thread-safe. */
struct syn_colouring;

/* For `leaves` leaves, each with `colours` ways up (and down), and flows 0 ... flows - 1. NULL:
 * no memory, or a number out of range. */
struct syn_colouring *syn_colouring_new(int32_t leaves, int32_t colours, int32_t flows);
void syn_colouring_free(struct syn_colouring *colouring);

/* Adds flows from leaf to leaf, moving others where that makes room, at most `reach` for each.
 * Returns how many were moved, or -EINVAL for a flow that is there already or a number out of range
 * (those before it are added), or -ENOMEM. Flows for which there is no room have colour -1. */
int64_t syn_colouring_add(struct syn_colouring *colouring, const int32_t *flow, const int32_t *from,
                          const int32_t *to, size_t count, int32_t reach);

/* Takes flows away. Returns 0, or EINVAL for one that is not there (those before it are gone). */
int syn_colouring_remove(struct syn_colouring *colouring, const int32_t *flow, size_t count);

/* Colours of flows 0 ... flows - 1; -1: none. */
const int32_t *syn_colouring_colours(const struct syn_colouring *colouring);

/* Max-min fair rates. `links` is flows x hops, -1 fills up; weight and demand may be NULL.
 * Returns 0, EINVAL for a link out of range or a weight that is not positive, or ENOMEM. */
int syn_max_min(const int32_t *links, size_t flows, size_t hops, const double *capacity,
                size_t count, const double *weight, const double *demand, double *rate);
/* --- end of declarations --- */

#pragma GCC visibility pop

#endif
