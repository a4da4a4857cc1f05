/* Drives the profiler plug-in as NCCL does, by its symbols. Descriptors are written by the offsets of
 * NCCL's headers, not by the plug-in's own structures. */
#ifndef PROFILER_DRIVE_H
#define PROFILER_DRIVE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "syn_nccl_page.h"

enum { GROUP = 1, COLL = 2, P2P = 4, PROXY_OP = 8, PROXY_STEP = 16, KERNEL = 64, COLL_API = 512 };

struct plugin {
    int version;
    void *table;
};

/* Listens where the plug-in hands its page over, and sets SYNTONY_AGENT. */
int agent_listen(void);
/* The page's memory: accepts, and takes the descriptor. Within 10 s. */
int agent_take(int listener);
struct syn_nccl_page *map_page(int memory);

struct plugin plugin_load(const char *path, int version);
/* A communicator of 8 ranks, this one 3, name "dp". The mask is what NCCL would keep. */
void *plugin_init(const struct plugin *plugin, uint64_t comm, int *mask);
void plugin_finalize(const struct plugin *plugin, void *context);

/* The parent of operations from version 5 on; before, it is their group. */
extern void *api_event;
void *start_coll(const struct plugin *plugin, void *context, void *group, uint64_t sequence,
                 const char *op, size_t count);
void *start_p2p(const struct plugin *plugin, void *context, void *group, const char *op,
                size_t count, int peer);
void *start_proxy_op(const struct plugin *plugin, void *context, void *parent, int pid, int channel,
                     bool sends);
void *start_step(const struct plugin *plugin, void *context, void *parent, int step);
void *start_type(const struct plugin *plugin, void *context, void *parent, uint64_t type);
void stop(const struct plugin *plugin, void *handle);
void state(const struct plugin *plugin, void *handle, int which);

#endif
