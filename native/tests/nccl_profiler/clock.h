#ifndef PROFILER_CLOCK_H
#define PROFILER_CLOCK_H

#include <stdint.h>

extern int64_t virtual_ns; /* CLOCK_MONOTONIC, and every other */

#endif
