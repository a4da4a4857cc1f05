/* Of two instants or durations. */
#ifndef SYN_ORDER_H
#define SYN_ORDER_H

#include <stdint.h>

static inline int64_t syn_greater(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

static inline int64_t syn_lesser(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

#endif
