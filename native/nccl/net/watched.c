#include "watched.h"

#include "verbs.h"
#include "watch.h"

/* The library's own functions; the table's replacements report queue pairs. What these carry is
 * reported where it is posted and polled (queues.c). */
static struct verbs library_verbs;

static struct ibv_context *open_device(struct ibv_device *device)
{
    struct ibv_context *context = library_verbs.open_device(device);
    if (context != NULL) {
        struct watch_verbs asked = {.query_gid = library_verbs.query_gid};
        watch_opened(context, library_verbs.get_device_name(device), &asked, false);
    }
    return context;
}

static int close_device(struct ibv_context *context)
{
    watch_closing(context);
    return library_verbs.close_device(context);
}

static int modify_qp(struct ibv_qp *qp, struct ibv_qp_attr *attr, int mask)
{
    int error = library_verbs.modify_qp(qp, attr, mask);
    if (error == 0)
        watch_modified(qp, attr, mask);
    return error;
}

static int destroy_qp(struct ibv_qp *qp)
{
    return watch_destroy_qp(qp, library_verbs.destroy_qp);
}

static int destroy_cq(struct ibv_cq *cq)
{
    return watch_destroy_cq(cq, library_verbs.destroy_cq);
}

void watched_verbs(void)
{
    library_verbs = verbs;
    verbs.open_device = open_device;
    verbs.close_device = close_device;
    verbs.modify_qp = modify_qp;
    verbs.destroy_qp = destroy_qp;
    verbs.destroy_cq = destroy_cq;
}
