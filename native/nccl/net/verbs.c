#include "verbs.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>

#include "watch.h"

struct verbs verbs;
/* As the library has them: what the table has instead tells the agent what queue pairs carry. */
static struct verbs library_verbs;

static struct ibv_context *open_device(struct ibv_device *device)
{
    struct ibv_context *context = library_verbs.open_device(device);
    if (context != NULL) {
        struct watch_verbs asked = {.query_gid = library_verbs.query_gid};
        watch_opened(context, library_verbs.get_device_name(device), &asked);
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

static void watch(void)
{
    library_verbs = verbs;
    verbs.open_device = open_device;
    verbs.close_device = close_device;
    verbs.modify_qp = modify_qp;
    verbs.destroy_qp = destroy_qp;
    verbs.destroy_cq = destroy_cq;
}

static const struct {
    const char *name;
    size_t offset;
    int optional;
} FUNCTIONS[] = {
#define FUNCTION(name) {"ibv_" #name, offsetof(struct verbs, name), 0}
    FUNCTION(get_device_list), FUNCTION(free_device_list), FUNCTION(get_device_name),
    FUNCTION(open_device), FUNCTION(close_device), FUNCTION(query_port), FUNCTION(query_gid),
    {"_ibv_query_gid_table", offsetof(struct verbs, query_gid_table), 1},
    {"ibv_fork_init", offsetof(struct verbs, fork_init), 1},
    FUNCTION(get_async_event), FUNCTION(ack_async_event), FUNCTION(alloc_pd), FUNCTION(dealloc_pd),
    FUNCTION(reg_mr), {"ibv_reg_dmabuf_mr", offsetof(struct verbs, reg_dmabuf_mr), 1},
    FUNCTION(dereg_mr), FUNCTION(create_cq), FUNCTION(destroy_cq), FUNCTION(create_qp),
    FUNCTION(modify_qp), FUNCTION(destroy_qp), FUNCTION(wc_status_str),
#undef FUNCTION
};

const char *verbs_load(void)
{
    static char problem[256];
    const char *name = getenv("SYNTONY_NCCL_IBVERBS");
    void *library = dlopen(name && *name ? name : "libibverbs.so.1", RTLD_NOW | RTLD_LOCAL);
    if (library == NULL) {
        snprintf(problem, sizeof problem, "%s", dlerror());
        return problem;
    }
    for (size_t i = 0; i < sizeof FUNCTIONS / sizeof *FUNCTIONS; i++) {
        /* The default version is the newest, and the one that this structure's types are of. */
        void *found = dlsym(library, FUNCTIONS[i].name);
        if (found == NULL && !FUNCTIONS[i].optional) {
            snprintf(problem, sizeof problem, "%s has no %s", name && *name ? name : "libibverbs",
                     FUNCTIONS[i].name);
            dlclose(library);
            return problem;
        }
        *(void **)((char *)&verbs + FUNCTIONS[i].offset) = found;
    }
    /* Else registered pages may move when a process forks; newer kernels need nothing. */
    if (verbs.fork_init)
        verbs.fork_init();
    watch();
    return NULL;
}
