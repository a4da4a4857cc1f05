/* profiler_chain PLUGIN VERSION agent|none: a few events of all types, for a profiler behind ours, and
 * then what ours recorded: OPERATIONS SENDS STEPS. The mask is printed to stderr at both ends. */
#include <string.h>
#include <unistd.h>

#include "check.h"
#include "drive.h"

int main(int argc, char **words)
{
    CHECK(argc == 4);
    bool with_agent = strcmp(words[3], "agent") == 0;
    int listener = with_agent ? agent_listen() : -1, mask = -1;
    struct plugin plugin = plugin_load(words[1], atoi(words[2]));
    void *context = plugin_init(&plugin, 0xabc, &mask);
    struct syn_nccl_page *page = with_agent ? map_page(agent_take(listener)) : NULL;
    fprintf(stderr, "mask %d\n", mask);
    api_event = plugin.version >= 5 ? start_type(&plugin, context, NULL, COLL_API) : NULL;
    void *group = start_type(&plugin, context, NULL, GROUP);
    void *coll = start_coll(&plugin, context, group, 0, "AllReduce", 8);
    void *p2p = start_p2p(&plugin, context, group, "Send", 8, 1);
    stop(&plugin, api_event);
    stop(&plugin, p2p);
    stop(&plugin, coll);
    stop(&plugin, group);
    void *part = start_proxy_op(&plugin, context, coll, getpid(), 0, true);
    void *step = start_step(&plugin, context, part, 0);
    state(&plugin, step, 8);
    void *net = start_type(&plugin, context, step, 128);
    stop(&plugin, net);
    stop(&plugin, step);
    if (with_agent)
        stop(&plugin, step); /* again: not passed on */
    stop(&plugin, part);
    CHECK(start_proxy_op(&plugin, context, coll, getpid() + 1, 0, true) == NULL);
    void *kernel = start_type(&plugin, context, coll, KERNEL);
    stop(&plugin, kernel);
    void *phase = plugin.version >= 5 ? start_type(&plugin, context, kernel, 1 << 15) : NULL;
    stop(&plugin, phase);
    stop(&plugin, NULL);
    fprintf(stderr, "last mask %d\n", mask);
    plugin_finalize(&plugin, context);
    if (page != NULL)
        printf("%d %d %d\n", (int)page->begun, page->operations[0].sends,
               (int)page->operations[0].steps);
}
