/* test_profiler PLUGIN CASE VERSION: the plug-in, driven as NCCL drives it, on a clock that only moves
 * when the test moves it. */
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"
#include "clock.h"
#include "drive.h"

enum { GPU = 8, NET = 9, RECEIVE = 10, FLUSH = 11, CONSUME = 12, CREDIT = 20, CREDIT_V2 = 1 };

static struct plugin plugin;
static void *context;
static struct syn_nccl_page *page;
static int mask, memory;

static const struct syn_nccl_operation *at(uint64_t number)
{
    const struct syn_nccl_operation *operation = &page->operations[number % SYN_NCCL_OPERATIONS];
    CHECK_EQUAL(operation->number, number);
    return operation;
}

static unsigned live(const struct syn_nccl_operation *operation)
{
    CHECK_EQUAL(operation->gate >> 16 & 0xffff, 0);
    return operation->gate & 0xffff;
}

static void *coll(void) { return start_coll(&plugin, context, NULL, 5, "AllReduce", 1000); }

static void *proxy_op(void *of, bool sends)
{
    return start_proxy_op(&plugin, context, of, getpid(), 0, sends);
}

static void *step(void *of, int number) { return start_step(&plugin, context, of, number); }
static void end(void *handle) { stop(&plugin, handle); }

static void enter(void *step, int which, int64_t for_ns)
{
    state(&plugin, step, which);
    virtual_ns += for_ns;
}

/* One step of a send and one of a receive, in all states. */
static void one_operation(void)
{
    void *operation = coll();
    const struct syn_nccl_operation *record = at(0);
    CHECK_EQUAL(record->kind, SYN_NCCL_COLLECTIVE);
    CHECK_EQUAL(record->comm, plugin.version == 2 ? 0xfeed : 0xabc);
    CHECK_EQUAL(record->nccl_sequence, 5);
    CHECK_EQUAL(record->count, 1000);
    CHECK_EQUAL(record->rank, 3);
    CHECK_EQUAL(record->ranks, plugin.version == 2 ? 0 : 8);
    CHECK(strcmp(record->op, "AllReduce") == 0 && strcmp(record->datatype, "ncclBfloat16") == 0);
    CHECK(strcmp(record->algorithm, "RING") == 0 && strcmp(record->protocol, "SIMPLE") == 0);
    CHECK(strcmp(record->name, "dp") == 0);
    CHECK_EQUAL(record->enqueue_ns, 1000);
    virtual_ns = 1500;
    void *send = proxy_op(operation, true), *receive = proxy_op(operation, false);
    CHECK_EQUAL(live(record), 3);
    end(operation);
    CHECK_EQUAL(live(record), 2);
    void *first = step(send, 0), *second = step(receive, 0);
    enter(first, GPU, 10);
    enter(first, plugin.version == 2 ? NET : CREDIT, 20);
    enter(first, NET, 40);
    CHECK_EQUAL(record->waiting[SYN_NCCL_NET], 1);
    end(first);
    CHECK_EQUAL(record->waiting[SYN_NCCL_NET], 0);
    enter(second, RECEIVE, 100);
    enter(second, FLUSH, 200);
    enter(second, CONSUME, 400);
    end(second);
    CHECK_EQUAL(record->done_ns, 0);
    end(send);
    virtual_ns = 5000;
    end(receive);
    CHECK_EQUAL(live(record), 0);
    CHECK_EQUAL(record->started_ns, 1500);
    CHECK_EQUAL(record->done_ns, 5000);
    CHECK_EQUAL(record->wait_ns[SYN_NCCL_GPU], 10);
    CHECK_EQUAL(record->wait_ns[SYN_NCCL_CREDIT], plugin.version == 2 ? 0 : 20);
    CHECK_EQUAL(record->wait_ns[SYN_NCCL_NET], plugin.version == 2 ? 60 : 40);
    CHECK_EQUAL(record->wait_ns[SYN_NCCL_RECV], 100);
    CHECK_EQUAL(record->wait_ns[SYN_NCCL_FLUSH], 200);
    CHECK_EQUAL(record->wait_ns[SYN_NCCL_CONSUME], 400);
    CHECK_EQUAL(record->steps, 2);
    CHECK_EQUAL(record->sends, 1);
    CHECK_EQUAL(record->receives, 1);
    for (int i = 0; i < SYN_NCCL_WAITS; i++)
        CHECK_EQUAL(record->waiting[i], 0);
}

/* Eight steps under way wait for the GPU at once, and only the oldest counts. */
static void oldest_step(void)
{
    void *operation = coll(), *send = proxy_op(operation, true), *steps[8];
    for (int i = 0; i < 8; i++) {
        steps[i] = step(send, i);
        enter(steps[i], GPU, 0);
    }
    virtual_ns += 100;
    enter(steps[0], NET, 50);
    enter(steps[1], NET, 5);
    end(steps[1]); /* not in order */
    end(steps[0]);
    virtual_ns += 1000; /* the third waits for the GPU */
    for (int i = 2; i < 8; i++)
        end(steps[i]);
    end(send);
    CHECK_EQUAL(at(0)->wait_ns[SYN_NCCL_GPU], 1100);
    CHECK_EQUAL(at(0)->wait_ns[SYN_NCCL_NET], 55);
    CHECK_EQUAL(at(0)->steps, 8);
}

/* NCCL before 2.27 reports the wait for credit of the proxy operation. */
static void credit_v2(void)
{
    void *operation = coll(), *send = proxy_op(operation, true);
    void *first = step(send, 0), *second = step(send, 1);
    enter(first, GPU, 10);
    enter(second, GPU, 10);
    enter(send, CREDIT_V2, 300);
    enter(send, CREDIT_V2, 3); /* again, now of the second */
    enter(first, NET, 40);
    end(first);
    virtual_ns += 7;
    end(second);
    CHECK_EQUAL(at(0)->wait_ns[SYN_NCCL_GPU], 20);
    CHECK_EQUAL(at(0)->wait_ns[SYN_NCCL_CREDIT], 310);
    CHECK_EQUAL(at(0)->wait_ns[SYN_NCCL_NET], 40);
}

/* What hangs can be seen while it does. */
static void hang(void)
{
    void *operation = coll(), *receive = proxy_op(operation, false), *first = step(receive, 0);
    end(operation);
    virtual_ns = 7000;
    enter(first, RECEIVE, 1000000);
    CHECK_EQUAL(at(0)->done_ns, 0);
    CHECK_EQUAL(live(at(0)), 1);
    CHECK_EQUAL(at(0)->waiting[SYN_NCCL_RECV], 1);
    CHECK_EQUAL(at(0)->changed_ns, 7000);
}

/* Handles that name nothing: of nobody, stale, of another kind, ended twice. */
static void handles(void)
{
    void *none[] = {NULL, (void *)-1, (void *)0x5a5a5a5a5a5a5a5a, (void *)(UINT64_C(1) << 62),
                    (void *)(UINT64_C(2) << 62), (void *)(UINT64_C(3) << 62 | 0xffffffff)};
    for (size_t i = 0; i < sizeof none / sizeof *none; i++) {
        end(none[i]);
        for (int which = -1; which < 40; which++)
            state(&plugin, none[i], which);
        CHECK(proxy_op(none[i], true) == NULL || i == 3);
        CHECK(step(none[i], 0) == NULL);
    }
    void *operation = coll(), *send = proxy_op(operation, true), *first = step(send, 0);
    CHECK(step(operation, 0) == NULL);
    CHECK(proxy_op(send, true) == NULL);
    end(operation), end(operation), end(operation);
    CHECK_EQUAL(live(at(0)), 1);
    end(first), end(first);
    CHECK_EQUAL(at(0)->steps, 1);
    enter(first, NET, 10);
    end(send), end(send);
    CHECK_EQUAL(live(at(0)), 0);
    void *other = proxy_op(operation, false); /* in the place of the first */
    end(send), end(first);
    enter(first, NET, 10);
    CHECK_EQUAL(live(at(0)), 1);
    end(other);
    CHECK_EQUAL(at(0)->wait_ns[SYN_NCCL_NET], 0);
    CHECK_EQUAL(at(0)->sends, 1);
    CHECK_EQUAL(at(0)->receives, 1);
    /* A step ends after its proxy operation, one never ends, one is of no operation. */
    void *late = proxy_op(operation, true), *step_of_late = step(late, 0);
    enter(step_of_late, GPU, 10);
    end(late);
    end(step_of_late);
    CHECK_EQUAL(at(0)->wait_ns[SYN_NCCL_GPU], 10);
    CHECK_EQUAL(live(at(0)), 0);
}

static void types(void)
{
    void *operation = coll();
    for (int bit = 0; bit < (plugin.version < 5 ? 8 : 64); bit++)
        if ((UINT64_C(1) << bit & (COLL | P2P | PROXY_OP | KERNEL)) == 0)
            CHECK(start_type(&plugin, context, operation, UINT64_C(1) << bit) == NULL);
    CHECK(start_type(&plugin, context, operation, 0) == NULL);
    CHECK(start_type(&plugin, context, operation, plugin.version < 5 ? 0xff : UINT64_MAX) == NULL);
    CHECK(start_coll(&plugin, NULL, NULL, 0, "AllReduce", 1) == NULL);
    CHECK(start_coll(&plugin, (void *)8, NULL, 0, "AllReduce", 1) == NULL);
    CHECK(start_coll(&plugin, (char *)context + 1, NULL, 0, "AllReduce", 1) == NULL);
    CHECK(start_coll(&plugin, context, NULL, 0, NULL, 1) != NULL);
    CHECK_EQUAL(at(1)->op[0], 0);
    CHECK(start_coll(&plugin, context, NULL, 0, "AnOperationWithALongName", 1) != NULL);
    CHECK(strcmp(at(2)->op, "AnOperationWith") == 0);
    CHECK_EQUAL(page->begun, 3);
}

/* Proxy operations of another process (PXN) carry its handles. */
static void other_process(void)
{
    void *operation = coll();
    CHECK(start_proxy_op(&plugin, context, operation, getpid() + 1, 0, true) == NULL);
    CHECK_EQUAL(at(0)->sends, 0);
}

static void sequences(void)
{
    int other_mask = 0;
    void *other = plugin_init(&plugin, 0xdef, &other_mask);
    end(coll());
    end(start_p2p(&plugin, context, NULL, "Send", 77, 6));
    end(coll());
    end(start_coll(&plugin, other, NULL, 0, "Broadcast", 1));
    end(start_p2p(&plugin, context, NULL, "Recv", 77, 6));
    static const uint64_t expected[] = {0, 0, 1, 0, 1};
    for (uint64_t i = 0; i < 5; i++)
        CHECK_EQUAL(at(i)->sequence, expected[i]);
    CHECK_EQUAL(at(1)->kind, SYN_NCCL_P2P);
    CHECK_EQUAL(at(1)->peer, 6);
    CHECK_EQUAL(at(1)->count, 77);
    CHECK(strcmp(at(4)->op, "Recv") == 0);
    CHECK_EQUAL(at(3)->comm, plugin.version == 2 ? 0xfeed : 0xdef);
    plugin_finalize(&plugin, other);
    CHECK(start_coll(&plugin, other, NULL, 0, "Broadcast", 1) == NULL);
    plugin_finalize(&plugin, other);
    plugin_finalize(&plugin, (void *)17);
}

/* More operations than there is room for: the old ones are overwritten, and what comes of them late
 * touches nothing else. */
static void overwritten(void)
{
    void *first = coll(), *send = proxy_op(first, true), *begun = step(send, 0);
    enter(begun, GPU, 10);
    for (int i = 0; i < SYN_NCCL_OPERATIONS; i++)
        end(coll());
    const struct syn_nccl_operation *now = at(SYN_NCCL_OPERATIONS);
    CHECK_EQUAL(page->begun, SYN_NCCL_OPERATIONS + 1);
    enter(begun, NET, 10);
    end(begun);
    CHECK(proxy_op(first, true) == NULL);
    end(send);
    end(first);
    CHECK_EQUAL(live(now), 0);
    CHECK_EQUAL(now->sends + now->steps + now->wait_ns[0] + now->waiting[2], 0);
}

static void no_room(void)
{
    enum { MANY = 17000, MOST = 16384 };
    static void *sends[MANY];
    void *operation = coll();
    for (int i = 0; i < MANY; i++)
        sends[i] = proxy_op(operation, true);
    CHECK(sends[MOST - 1] != NULL && sends[MOST] == NULL);
    CHECK_EQUAL(page->left_out, MANY - MOST);
    CHECK_EQUAL(live(at(0)), MOST + 1);
    for (int i = 0; i < MANY; i++)
        end(sends[i]);
    CHECK_EQUAL(live(at(0)), 1);
    CHECK(proxy_op(operation, false) != NULL);
    /* A step that never ends is given up after 16 others, and no longer stands for the rest. */
    void *send = proxy_op(operation, true);
    enter(step(send, 0), GPU, 100);
    for (int i = 1; i < 16; i++)
        enter(step(send, i), NET, 0);
    uint64_t before = page->left_out;
    CHECK(step(send, 16) != NULL);
    CHECK_EQUAL(page->left_out, before + 1);
    CHECK_EQUAL(at(0)->wait_ns[SYN_NCCL_GPU], 100);
    CHECK_EQUAL(at(0)->waiting[SYN_NCCL_NET], 1);
}

static void forked(void)
{
    void *operation = coll(), *send = proxy_op(operation, true), *first = step(send, 0);
    enter(first, GPU, 10);
    int child = fork();
    if (child == 0) {
        int child_mask = -1;
        enter(first, NET, 10);
        end(first), end(send), end(operation);
        coll();
        plugin_init(&plugin, 0x123, &child_mask);
        _exit(child_mask == 0 ? 0 : 1);
    }
    int status;
    CHECK(waitpid(child, &status, 0) == child);
    CHECK_EQUAL(status, 0);
    CHECK_EQUAL(page->begun, 1);
    CHECK_EQUAL(live(at(0)), 2);
    CHECK_EQUAL(at(0)->steps, 0);
    end(first), end(send), end(operation);
    CHECK_EQUAL(live(at(0)), 0);
}

static void kernels(void)
{
    CHECK_EQUAL(mask, plugin.version == 2 ? 30 : 30 | KERNEL);
    void *operation = coll();
    void *kernel = start_type(&plugin, context, operation, KERNEL);
    CHECK_EQUAL(kernel != NULL, plugin.version != 2);
    end(operation);
    virtual_ns = 9000;
    end(kernel);
    CHECK_EQUAL(at(0)->done_ns, plugin.version == 2 ? 0 : 9000);
    CHECK_EQUAL(at(0)->kernels, plugin.version == 2 ? 0 : 1);
    CHECK_EQUAL(live(at(0)), 0);
}

int main(int argc, char **words)
{
    static const struct { const char *name; void (*run)(void); } cases[] = {
        {"one_operation", one_operation}, {"oldest_step", oldest_step}, {"credit_v2", credit_v2},
        {"hang", hang}, {"handles", handles}, {"types", types}, {"other_process", other_process},
        {"sequences", sequences}, {"overwritten", overwritten}, {"no_room", no_room},
        {"forked", forked}, {"kernels", kernels},
    };
    CHECK(argc == 4);
    virtual_ns = 1000;
    setenv("SYNTONY_NCCL_KERNELS", strcmp(words[2], "kernels") == 0 ? "1" : "0", 1);
    int listener = agent_listen();
    plugin = plugin_load(words[1], atoi(words[3]));
    context = plugin_init(&plugin, 0xabc, &mask);
    CHECK(context != NULL && (mask & ~KERNEL) == (COLL | P2P | PROXY_OP | PROXY_STEP));
    memory = agent_take(listener);
    page = map_page(memory);
    CHECK_EQUAL(page->abi, plugin.version);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        if (strcmp(cases[i].name, words[2]) == 0) {
            cases[i].run();
            plugin_finalize(&plugin, context);
            return 0;
        }
    CHECK(!"a case");
}
