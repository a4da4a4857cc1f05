/* A process that connects to the plug-in's listener, whether or not it is a peer. */
#ifndef NCCL_VISITOR_H
#define NCCL_VISITOR_H

#include <stdbool.h>

#include "edge.h"
#include "../../nccl/net/wire.h"

struct greeting { struct control control; struct hello hello; };

int reach(void); /* a connection to the listener, perhaps not yet accepted */
struct greeting greeting_of(uint32_t version, uint32_t rails, bool has_cookie);
void say(int fd, const void *what, size_t size);
/* A true peer connects, and sends, and does not wait until strangers are refused after 10 s. */
void peer_connects(void);

#endif
