/* What every version of NCCL's net ABI is made of. All return an ncclResult_t. */
#ifndef NET_NET_H
#define NET_NET_H

#include <stdint.h>
#include <stddef.h>

#include "log.h"

struct net_properties {
    char *name, *pci_path;
    uint64_t guid;
    int pointers, speed, port, members;
    const int *member;
    size_t max_bytes;
};

int net_init(log_function *log);
int net_devices(int *count);
int net_get_properties(int device, struct net_properties *properties);
int net_listen(int device, int traffic_class, void *handle, void **listener);
int net_connect(int device, int traffic_class, void *handle, void **comm);
int net_accept(void *listener, void **comm, void **device_handle);
int net_reg_mr(void *comm, void *data, size_t size, int type, void **memory);
int net_reg_mr_dmabuf(void *comm, void *data, size_t size, int type, uint64_t offset, int fd,
                      void **memory);
int net_dereg_mr(void *comm, void *memory);
int net_isend(void *comm, void *data, size_t size, int tag, void *memory, void **request);
int net_irecv(void *comm, int count, void **data, const size_t *sizes, int *tags, void **memories,
              void **request);
int net_iflush(void *comm, int count, void **data, int *sizes, void **memories, void **request);
int net_test(void *request, int *done, int *sizes);
int net_close(void *comm);
int net_close_listen(void *listener);
int net_make_virtual(int *device, const int *members, int count);

#endif
