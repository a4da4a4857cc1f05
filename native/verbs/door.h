/* How the agent gets a process's page: the process hands its memory over and goes on, whoever is
 * there to take it. Nothing here waits. */
#ifndef VERBS_DOOR_H
#define VERBS_DOOR_H

#include <stdint.h>

#include "syn_qp_page.h"

enum { VERBS_LOOK_S = 2 };

/* The page of this process, made the first time; NULL: no agent is named by SYNTONY_AGENT, or there
 * is no memory for it. Not for two threads at once. */
struct syn_qp_page *door_page(void);
/* Whether this is the process that made it, and not a child of its fork. */
int door_is_mine(void);
int door_is_child(void);
/* Connect to the agent if it has no connection, at most every VERBS_LOOK_S. Any thread, any time:
 * a load, unless it is time to look. */
void door_look(int64_t now_ns);
/* For tests: as if a process began. */
void door_forget(void);

#endif
