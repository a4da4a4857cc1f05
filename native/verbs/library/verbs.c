#include "verbs.h"

#include <dlfcn.h>
#include <stdio.h>

struct verbs verbs;
static const struct {
    const char *name;
    size_t offset;
    int optional;
} FUNCTIONS[] = {
#define FUNCTION(name) {"ibv_" #name, offsetof(struct verbs, name), 0}
    FUNCTION(get_device_list), FUNCTION(free_device_list), FUNCTION(get_device_name),
    FUNCTION(open_device), FUNCTION(close_device), FUNCTION(query_port), FUNCTION(query_gid),
    {"_ibv_query_gid_table", offsetof(struct verbs, query_gid_table), 1},
    FUNCTION(get_async_event), FUNCTION(ack_async_event), FUNCTION(alloc_pd), FUNCTION(dealloc_pd),
    FUNCTION(reg_mr), {"ibv_reg_dmabuf_mr", offsetof(struct verbs, reg_dmabuf_mr), 1},
    FUNCTION(dereg_mr), FUNCTION(create_cq), FUNCTION(destroy_cq), FUNCTION(create_qp),
    FUNCTION(modify_qp), FUNCTION(destroy_qp), FUNCTION(wc_status_str), FUNCTION(create_ah),
    FUNCTION(destroy_ah), FUNCTION(create_comp_channel), FUNCTION(destroy_comp_channel),
    FUNCTION(get_cq_event), FUNCTION(ack_cq_events),
    {"ibv_fork_init", offsetof(struct verbs, fork_init), 1},
#undef FUNCTION
};

const char *verbs_load(const char *name)
{
    static char problem[256];
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
    return NULL;
}
