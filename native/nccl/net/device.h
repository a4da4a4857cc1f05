/* RDMA ports of this host, and groups of them that NCCL sees as one device each. */
#ifndef NET_DEVICE_H
#define NET_DEVICE_H

#include <stdatomic.h>
#include <stdbool.h>

#include "verbs.h"
#include "wire.h"

enum { MAX_PORTS = 32, MAX_GROUPS = 64 };

struct port {
    char name[64];
    char pci_path[256]; /* empty: none */
    uint64_t guid;
    struct ibv_context *context;
    struct ibv_pd *pd;
    uint8_t number;
    uint8_t link_layer;
    int speed_mbps;
    bool takes_dmabuf; /* memory of a GPU, as a DMA-BUF */
    atomic_bool down; /* the background thread's word */
    bool failed; /* the device has, or is gone: the background thread does not ask it any more */
    atomic_uint failures; /* events that tell of a failed queue pair or completion queue */
};

struct group {
    char name[128];
    int rails;
    int rail[MAX_RAILS]; /* ports */
    int members;         /* groups that NCCL merged; otherwise itself */
    int member[MAX_RAILS];
};

extern struct port ports[MAX_PORTS];
extern struct group groups[MAX_GROUPS];
extern int port_count, group_count;

/* NULL, or what is wrong. Opens the ports that `config` wants and starts the background thread. */
const char *devices_open(void);
/* NICs register and read a GPU's memory by its address, by a module of the GPU's driver. */
bool devices_read_gpus(void);
/* A group of these groups' rails: its number, or -1. */
int devices_merge(const int *members, int count);
/* Its address now (it may move after a flap). NULL, or why it has none: later it may. */
const char *port_address(const struct port *port, struct endpoint *endpoint, uint8_t *gid_index);
/* What is wrong with these GIDs of RoCE v2 as the two ends of a queue pair; NULL: nothing. */
const char *gids_differ(const uint8_t ours[16], const uint8_t theirs[16]);
bool port_is_there(const struct port *port); /* false: its device has gone */
int64_t clock_ns(void);
int64_t clock_about_ns(void); /* right to some milliseconds, never ahead, at a fifth of the price */

#endif
