#ifndef SYN_CLOCK_H
#define SYN_CLOCK_H
#include <stdint.h>
int64_t syn_x(void);
#endif
