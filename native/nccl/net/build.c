#include "build.h"

static void *run(void *argument)
{
    struct build *build = argument;
    const struct build_order *order = &build->order;
    build->problem = order->make ? queues_remake(build->queues) : NULL;
    if (build->problem == NULL && order->connect)
        build->problem = queues_connect(build->queues, &order->remote, order->generation,
                                        order->seed, order->traffic_class);
    atomic_store(&build->ended, true);
    return NULL;
}

const char *build_begin(struct build *build, struct queues *queues,
                        const struct build_order *order)
{
    build->queues = queues;
    build->order = *order;
    atomic_store(&build->ended, false);
    build->running = pthread_create(&build->thread, NULL, run, build) == 0;
    return build->running ? NULL : "no thread";
}

void build_wait(struct build *build)
{
    if (build->running)
        pthread_join(build->thread, NULL);
    build->running = false;
}

bool build_ended(struct build *build, const char **problem)
{
    if (!build->running || !atomic_load(&build->ended))
        return false;
    build_wait(build);
    *problem = build->problem;
    return true;
}
