/* New queue pairs of a rail, connected in a thread of their own; of one that returns also made there.
 * To make one ready to receive, the kernel asks for its neighbour's address, and may wait for it for a
 * second, as after a port's return: NCCL's thread goes on with other rails and connections. */
#ifndef NET_BUILD_H
#define NET_BUILD_H

#include <pthread.h>
#include <stdatomic.h>

#include "queues.h"

struct build_order {
    bool make;                 /* new queue pairs, instead of the old ones */
    bool connect;              /* them, to: */
    struct endpoint remote;
    uint32_t generation, seed; /* as of `queues_connect` */
    int traffic_class;
};

struct build {
    bool running; /* the queues are the thread's, and nobody else's */
    atomic_bool ended;
    pthread_t thread;
    struct queues *queues;
    struct build_order order;
    const char *problem;
};

/* NULL: it runs; or what is wrong. */
const char *build_begin(struct build *build, struct queues *queues,
                        const struct build_order *order);
/* True once, when it has ended: the queues are the caller's again. `problem` NULL: it worked. */
bool build_ended(struct build *build, const char **problem);
/* Waits for its end, if it runs: as long as the kernel does. */
void build_wait(struct build *build);

#endif
