/* What the files of a connection share: messages (conn.c), rails that are left and return
 * (control.c), and what is posted (post.c). */
#ifndef NET_CONN_PARTS_H
#define NET_CONN_PARTS_H

#include "conn.h"

/* control.c: the control connection, and what is done with rails. */
const char *conn_rail_name(const struct conn *conn, int r);
int conn_living(const struct conn *conn); /* how many rails are up */
/* The connection has ended: every later call says so to NCCL. */
void conn_stop(struct conn *conn, const char *problem);
void conn_say(struct conn *conn, enum control_kind kind, int r, const void *payload, size_t size);
/* Leave a rail; no effect on one that is being left. */
void conn_fail_rail(struct conn *conn, int r, const char *why);
/* Nothing of a rail that is left is outstanding here any more. */
void conn_fenced(struct conn *conn, int r);
void conn_probe(struct conn *conn, int r, int queue);
void conn_accept_rejoin(struct conn *conn, int r, int64_t now_ns); /* receiver */
void conn_rebuild(struct conn *conn, int r, int64_t now_ns);       /* sender */
/* What a thread did to a rail's queue pairs, once it has ended. */
void conn_take_build(struct conn *conn, int r, int64_t now_ns);
void conn_take_controls(struct conn *conn, int64_t now_ns);
void conn_obey_agent(struct conn *conn, int64_t now_ns);

/* post.c: as much as queue pairs take now. */
void conn_post_chunks(struct conn *conn);         /* sender */
void conn_post_cts(struct conn *conn);            /* receiver */
void conn_give_credits(struct conn *conn, int r); /* receiver */

#endif
