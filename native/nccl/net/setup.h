/* Connections are made without ever blocking: NCCL calls again until one is ready. */
#ifndef NET_SETUP_H
#define NET_SETUP_H

#include "conn.h"

struct setup;

struct handle { /* at most 128 bytes; NCCL carries it to the peer */
    uint64_t magic;
    uint64_t cookie;
    uint8_t address[28]; /* struct sockaddr_in or sockaddr_in6 */
    uint32_t version;
    struct setup *pending; /* of the process that connects */
};

enum { MAX_PENDING = 32 }; /* connections of one listener that are not ready */

struct listener {
    int fd;
    int group;
    uint64_t cookie;
    int traffic_class;
    unsigned refused;
    int count;
    struct setup *pending[MAX_PENDING]; /* the oldest first */
};

/* NULL, or what is wrong. */
const char *setup_listen(int group, int traffic_class, struct handle *handle,
                         struct listener **listener);
void setup_close_listener(struct listener *listener);
/* `conn` stays NULL until it is ready. */
const char *setup_connect(int group, int traffic_class, struct handle *handle, struct conn **conn);
const char *setup_accept(struct listener *listener, struct conn **conn);

#endif
