/* Where the build had no <infiniband/verbs.h>. */
#include <stdio.h>

#include "engine.h"

int syn_verbs_attach(struct syn_probe_engine *engine, uint32_t nic, char *message)
{
    (void)engine, (void)nic;
    snprintf(message, SYN_MESSAGE_BYTES, "built without verbs: libibverbs-dev was not there");
    return SYN_ERROR_ABSENT;
}

int syn_verbs_reopen_socket(struct syn_probe_engine *engine, struct syn_socket *socket,
                            char *message)
{
    (void)socket;
    (void)syn_verbs_attach(engine, 0, message);
    return 0;
}

void syn_verbs_detach(struct syn_probe_engine *engine, uint32_t nic) { (void)engine, (void)nic; }
void syn_verbs_close_socket(struct syn_socket *socket) { (void)socket; }
void syn_verbs_close(struct syn_probe_engine *engine) { (void)engine; }

void syn_verbs_send_pair(struct syn_probe_engine *engine, struct syn_engine_flow *flow,
                         int64_t now_ns)
{
    (void)engine, (void)flow, (void)now_ns;
}

void syn_verbs_receive(struct syn_probe_engine *engine, struct syn_socket *socket)
{
    (void)engine, (void)socket;
}

size_t syn_probe_set_routes(struct syn_probe_engine *engine, const struct syn_verbs_route *routes,
                            size_t count, char *message)
{
    (void)routes, (void)count;
    (void)syn_verbs_attach(engine, 0, message);
    return 0;
}

int syn_probe_check(struct syn_probe_engine *engine, size_t at, char *message)
{
    (void)syn_verbs_attach(engine, (uint32_t)at, message);
    return 0;
}

void syn_probe_read_clock(struct syn_probe_engine *engine, size_t at,
                          struct syn_verbs_clock_reading *out)
{
    (void)engine, (void)at;
    *out = (struct syn_verbs_clock_reading){0};
}

size_t syn_probe_read_endpoints(struct syn_probe_engine *engine, struct syn_verbs_endpoint *out,
                                size_t room)
{
    for (size_t i = 0; i < engine->nic_count && i < room; i++)
        out[i] = (struct syn_verbs_endpoint){.nic_id = engine->nics[i].config.nic_id, .known = 1};
    return engine->nic_count;
}
