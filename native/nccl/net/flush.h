/* Reads from a GPU's memory what NICs have written there, so that the GPU sees it: a NIC's read comes
 * after its own writes. By a queue pair on each rail that is connected to itself. */
#ifndef NET_FLUSH_H
#define NET_FLUSH_H

#include "conn.h"

/* At most, of one connection. Each may be a flush, which has at most one read outstanding on a rail. */
enum { REQUESTS = SLOTS * MAX_GROUP + SLOTS };

struct reader {
    struct ibv_cq *cq; /* NULL: it is to be made */
    struct ibv_qp *qp;
    struct ibv_mr *mr;
    uint32_t generation; /* of the queue pair; reads of the one before are lost */
    uint64_t posted, completed; /* in order */
};

struct readers {
    struct reader reader[MAX_RAILS];
    const char *logged; /* the last reason in the log why a rail has none */
};

struct flush {
    uint64_t address;
    const struct memory *memory;
    unsigned waiting; /* a bit for each rail whose read has not completed */
    bool read;        /* one has */
    uint32_t generation[MAX_RAILS];
    uint64_t number[MAX_RAILS];
};

/* NULL, or what is wrong. Makes what is missing of the rails that are up. */
const char *readers_make(struct readers *readers, const struct conn *conn);
void readers_end(struct readers *readers, const struct conn *conn); /* before that is closed */
/* Reads over all rails that are up. A rail that cannot is left, unless it is the last live one. */
void flush_begin(struct readers *readers, struct conn *conn, struct flush *flush);
/* Once each of them has read, or is left, and one has read. Begins again if none has. */
bool flush_is_done(struct readers *readers, struct conn *conn, struct flush *flush);

#endif
