/* libsyntony-verbs.so: counts what queue pairs carry, for the host's agent; every verb does what it
 * did before.
 *
 *     LD_PRELOAD=/…/libsyntony-verbs.so COMMAND          programs linked with libibverbs
 *     NCCL_IBVERBS_LIB=/…/libsyntony-verbs.so COMMAND    NCCL, which loads it by name
 *
 * SYNTONY_AGENT             the agent's socket; without it nothing is watched
 * SYNTONY_VERBS_LIBRARY     the library underneath, libibverbs.so.1
 *
 * What is not exported here comes from libibverbs, which this library needs: anyone who looks a function
 * up in this one finds it there.
 */
#include <dlfcn.h>
#include <errno.h>
#include <stdlib.h>

#include "watch.h"

#define EXPORT __attribute__((visibility("default")))

static struct {
    struct ibv_context *(*open_device)(struct ibv_device *);
    int (*close_device)(struct ibv_context *);
    int (*modify_qp)(struct ibv_qp *, struct ibv_qp_attr *, int);
    int (*destroy_qp)(struct ibv_qp *);
    int (*destroy_cq)(struct ibv_cq *);
    const char *(*get_device_name)(struct ibv_device *);
    struct watch_verbs watch;
} next;

static void *function(void *library, const char *name, const char *version)
{
    void *found = dlvsym(library, name, version);
    return found ? found : dlsym(library, name);
}

__attribute__((constructor)) static void find_next(void)
{
    const char *name = getenv("SYNTONY_VERBS_LIBRARY");
    void *library = dlopen(name && *name ? name : "libibverbs.so.1", RTLD_LAZY | RTLD_LOCAL);
    if (library == NULL)
        return;
#define NEXT(to, name, version) *(void **)&(to) = function(library, name, "IBVERBS_" version)
    NEXT(next.open_device, "ibv_open_device", "1.1");
    NEXT(next.close_device, "ibv_close_device", "1.1");
    NEXT(next.modify_qp, "ibv_modify_qp", "1.1");
    NEXT(next.destroy_qp, "ibv_destroy_qp", "1.1");
    NEXT(next.destroy_cq, "ibv_destroy_cq", "1.1");
    NEXT(next.get_device_name, "ibv_get_device_name", "1.1");
    NEXT(next.watch.query_gid, "ibv_query_gid", "1.1");
    NEXT(next.watch.query_qp, "ibv_query_qp", "1.1");
    NEXT(next.watch.qp_to_qp_ex, "ibv_qp_to_qp_ex", "1.6");
#undef NEXT
}

EXPORT struct ibv_context *ibv_open_device(struct ibv_device *device)
{
    if (next.open_device == NULL) {
        errno = ENOSYS;
        return NULL;
    }
    struct ibv_context *context = next.open_device(device);
    if (context != NULL && next.get_device_name && next.watch.query_gid && next.close_device &&
        next.modify_qp && next.destroy_qp && next.destroy_cq)
        watch_opened(context, next.get_device_name(device), &next.watch, true);
    return context;
}

EXPORT int ibv_close_device(struct ibv_context *context)
{
    watch_closing(context);
    return next.close_device ? next.close_device(context) : ENOSYS;
}

EXPORT int ibv_modify_qp(struct ibv_qp *qp, struct ibv_qp_attr *attr, int mask)
{
    int error = next.modify_qp ? next.modify_qp(qp, attr, mask) : ENOSYS;
    if (error == 0)
        watch_modified(qp, attr, mask);
    return error;
}

EXPORT int ibv_destroy_qp(struct ibv_qp *qp)
{
    return next.destroy_qp ? watch_destroy_qp(qp, next.destroy_qp) : ENOSYS;
}

EXPORT int ibv_destroy_cq(struct ibv_cq *cq)
{
    return next.destroy_cq ? watch_destroy_cq(cq, next.destroy_cq) : ENOSYS;
}
