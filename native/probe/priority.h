/* How promptly the engine's thread is scheduled: what it reports of dead paths depends on it, here
 * and at the peers that it answers. */
#ifndef SYN_PRIORITY_H
#define SYN_PRIORITY_H

#include <stdint.h>

struct syn_priority {
    int realtime;
    int64_t check_ns; /* monotonic */
    int64_t used_ns;  /* of this thread's processor time, at the last check */
    int64_t retry_ns; /* monotonic: real time is not tried again before */
};

/* For the calling thread: real time if this process may, else a short time slice. */
void syn_priority_raise(struct syn_priority *priority, int64_t now_ns);
/* Now and then: a thread that takes half a core (a flood of packets, say) gives real time up for a
 * while, so that it cannot starve the host. */
void syn_priority_check(struct syn_priority *priority, int64_t now_ns);

#endif
