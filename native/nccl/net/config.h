/* What the environment says. */
#ifndef NET_CONFIG_H
#define NET_CONFIG_H

#include <stdbool.h>
#include <stdint.h>

struct config {
    uint32_t qps;          /* queue pairs of each rail */
    uint64_t least_chunk, most_chunk; /* bytes; more for messages of more than 64 chunks */
    uint8_t timeout;       /* local acknowledge timeout, 4.096 us * 2^n */
    uint8_t retries;
    uint8_t traffic_class; /* of the global route header */
    uint8_t service_level;
    int gid_index;         /* -1: the first RoCE v2 one of an IPv4 address, then of any */
    int64_t survive_ns;    /* how long a connection may be without any living rail */
    bool observe;          /* take no notices */
    int gpu_memory;        /* 0: none; 1: the NICs read it by its address; -1: if the kernel says so */
    const char *devices;   /* as NCCL_IB_HCA; NULL: all */
    const char *rails;     /* groups of NICs: "mlx5_0+mlx5_1,mlx5_2+mlx5_3"; NULL: each its own */
    const char *agent;     /* its socket, or NULL; not read again, for programs change their environment */
    const char *interface; /* of the control connections; NULL: the first that is up */
};
extern struct config config;

/* NULL, or what is wrong in one line. */
const char *config_read(void);
/* NCCL's lists of devices and interfaces: names or prefixes, after "=" exact ones, after "^" those
 * that are not wanted; a name may end in ":port", which a `number` of 0 ignores. */
bool config_is_listed(const char *list, const char *name, int number);

#endif
