/* How the agent gets a process's page: the process hands its memory over and goes on, with
 * or without an agent. Nothing here waits. One page for each library that links this. */
#ifndef DOOR_H
#define DOOR_H

#include <stdint.h>

enum { DOOR_LOOK_S = 2 };

/* Pages begin with their magic, version and size. */
struct door_kind {
    const char *suffix; /* of the agent's socket for such pages, behind SYNTONY_AGENT */
    const char *memory; /* name of the memory */
    uint64_t magic;
    uint32_t version; /* below 256: the one byte that is sent with it */
    uint32_t size;
};
extern const struct door_kind door_kind; /* defined by the library that has the page */

/* The page of this process, made the first time; NULL: SYNTONY_AGENT named no agent when the library
 * was loaded, or there is no memory for it. Not for two threads at once. */
void *door_page(void);
/* Whether this is the process that made it, and not a child of its fork. */
int door_is_mine(void);
int door_is_child(void);
/* Connect to the agent if it has no connection, at most every DOOR_LOOK_S. Any thread, any time:
 * a load, unless it is time to look. */
void door_look(int64_t now_ns);

#endif
