/* NCCL's calls on a net plug-in, whichever version of the ABI: by slot of its table, as NCCL's
 * headers count them, so that a wrong table is found. */
#ifndef NCCL_DRIVE_H
#define NCCL_DRIVE_H

#include <stddef.h>
#include <stdint.h>

enum { SLOT_INIT = 1, SLOT_DEVICES, SLOT_PROPERTIES, SLOT_LISTEN, SLOT_CONNECT, SLOT_ACCEPT,
       SLOT_REG_MR, SLOT_REG_DMABUF, SLOT_DEREG_MR, SLOT_ISEND, SLOT_IRECV, SLOT_IFLUSH, SLOT_TEST,
       SLOT_CLOSE_SEND, SLOT_CLOSE_RECEIVE, SLOT_CLOSE_LISTEN, SLOT_DEVICE_MR, SLOT_CONSUMED,
       SLOT_VIRTUAL, SLOT_FINALIZE };

struct net {
    void **table;
    int version;
    void *context; /* v11 and later */
};

struct drive_properties {
    const char *name;
    uint64_t guid;
    int pointers, speed, max_comms, max_receives, virtual_count;
    int64_t max_bytes; /* -1: this version has none */
};

/* The table of a library; exits with a line if there is none. "LIBRARY@OFFSET": one at that offset of
 * NCCL's own library. */
struct net drive_load(const char *library, int version);
int drive_init(struct net *net);
int drive_properties(const struct net *net, int device, struct drive_properties *properties);
/* One device of up to eight: its number, or -1. Not for v8. */
int drive_merge(const struct net *net, int count, const int *devices);
int drive_listen(const struct net *net, int device, void *handle, void **listener);
int drive_connect(const struct net *net, int device, void *handle, void **comm);
int drive_accept(const struct net *net, void *listener, void **comm);
int drive_reg(const struct net *net, void *comm, void *data, size_t size, void **memory);
int drive_dereg(const struct net *net, void *comm, void *memory);
int drive_send(const struct net *net, void *comm, void *data, size_t size, int tag, void *memory,
               void **request);
int drive_receive(const struct net *net, void *comm, int count, void **data, const size_t *sizes,
                  int *tags, void **memories, void **request);
int drive_test(const struct net *net, void *request, int *done, int *sizes);
int drive_close(const struct net *net, int slot, void *what);
int drive_finalize(const struct net *net);
int drive_logged(const char *text); /* how many of the last 256 lines of the log have it */
void drive_forget_log(void);        /* they are none from now on */

#endif
