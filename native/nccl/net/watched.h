/* The plug-in's own queue pairs tell the agent what they carry, as those of any program do under the
 * interposer. */
#ifndef NET_WATCHED_H
#define NET_WATCHED_H

/* After verbs_load: puts the watching functions into the table. */
void watched_verbs(void);

#endif
