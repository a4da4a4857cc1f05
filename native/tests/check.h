/* A check that cannot be compiled away and says what did not hold. */
#ifndef SYN_CHECK_H
#define SYN_CHECK_H

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#define CHECK(condition)                                                              \
    do {                                                                              \
        if (!(condition)) {                                                           \
            fprintf(stderr, "%s:%d: does not hold: %s\n", __FILE__, __LINE__, #condition); \
            abort();                                                                  \
        }                                                                             \
    } while (0)

#define CHECK_EQUAL(actual, expected)                                                 \
    do {                                                                              \
        int64_t actual_ = (int64_t)(actual), expected_ = (int64_t)(expected);         \
        if (actual_ != expected_) {                                                   \
            fprintf(stderr, "%s:%d: %s is %" PRId64 ", not %" PRId64 "\n", __FILE__,  \
                    __LINE__, #actual, actual_, expected_);                           \
            abort();                                                                  \
        }                                                                             \
    } while (0)

#endif
