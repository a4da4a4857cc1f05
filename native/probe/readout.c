/* What the engine has measured, for the thread that asks. */
#include "engine.h"

size_t syn_probe_drain(struct syn_probe_engine *engine, struct syn_probe_record *out, size_t room)
{
    return syn_ring_take(&engine->ring, out, room);
}

size_t syn_probe_pending(struct syn_probe_engine *engine)
{
    return syn_ring_pending(&engine->ring);
}

void syn_probe_read_counters(struct syn_probe_engine *engine, struct syn_probe_counters *out)
{
    syn_engine_visit(engine);
    *out = engine->counters;
    syn_engine_leave(engine);
}

size_t syn_probe_read_heard(struct syn_probe_engine *engine, struct syn_probe_heard *out,
                            size_t room)
{
    size_t count = 0;
    syn_engine_visit(engine);
    for (size_t i = 0; i < SYN_HEARD_ROWS; i++) {
        if (engine->heard[i].requests == 0)
            continue;
        if (count < room)
            out[count] = engine->heard[i];
        count++;
    }
    syn_engine_leave(engine);
    return count;
}

size_t syn_probe_read_nic_status(struct syn_probe_engine *engine,
                                 struct syn_probe_nic_status *out, size_t room)
{
    for (size_t i = 0; i < engine->nic_count && i < room; i++)
        out[i] = engine->nics[i].status;
    return engine->nic_count;
}
