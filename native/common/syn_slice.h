/* How soon ordinary threads are served. */
#ifndef SYN_SLICE_H
#define SYN_SLICE_H

#pragma GCC visibility push(default)

/* --- declarations --- */
/* The calling thread becomes an ordinary one (SCHED_OTHER) of its niceness with the shortest time
 * slice that there is, and so do the threads it starts from then on: anyone who asks for little at a
 * time is served sooner (EEVDF, from Linux 6.12 on; before that the call changes nothing). Needs no
 * privilege. 0 or an errno. */
int syn_short_slice(void);
/* --- end of declarations --- */

#pragma GCC visibility pop

#endif
