/* The control connection: framed messages over a TCP socket that never blocks. */
#ifndef NET_LINK_H
#define NET_LINK_H

#include <stdbool.h>
#include <stddef.h>

#include "wire.h"

enum { LINK_PAYLOAD = SLOTS * sizeof(struct receipt) };

struct link {
    struct link *next; /* of the open ones of this process */
    int fd;
    bool closed; /* by the peer, or broken */
    size_t in_used, out_used;
    unsigned char in[sizeof(struct control) + LINK_PAYLOAD];
    unsigned char out[16 * (sizeof(struct control) + LINK_PAYLOAD)];
};

_Static_assert(sizeof(struct hello) <= LINK_PAYLOAD, "fits");

void link_begin(struct link *link, int fd); /* takes the descriptor */
/* It closes when nothing has come from the peer's host for so long (at least 1 s), not even what its
 * kernel answers by itself; negative: when Linux thinks so, after two hours. */
void link_end_after(struct link *link, int64_t silence_ns);
void link_shut(struct link *link); /* nothing comes or goes any more; the peer learns at once */
void link_end(struct link *link);           /* sends what it can, and closes */
void link_send(struct link *link, const struct control *control, const void *payload);
/* 1: a message; `payload` points to its `length` bytes, until the next call. 0: none. -1: no such
 * message can be. After `closed`, what had arrived before is still given. */
int link_receive(struct link *link, struct control *control, const void **payload);
void link_flush(struct link *link);
/* Call it once. Children of fork let go of connections: a copy that lives on in one would keep the peer
 * from learning of our end. Other threads begin and end none meanwhile. */
int link_leave_at_fork(void);

#endif
