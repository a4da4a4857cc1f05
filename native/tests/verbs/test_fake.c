/* The interposer's exported functions over the fake provider: what programs see is what they saw
 * before, and the page shows what they did. SYNTONY_VERBS_LIBRARY names the provider. */
#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <stdbool.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "check.h"
#include "../nccl/fake_verbs.h"
#include "door.h"
#include "syn_qp_page.h"
#include "table.h"
#include "watch.h"

static struct {
    struct ibv_device **(*get_device_list)(int *);
    struct ibv_pd *(*alloc_pd)(struct ibv_context *);
    struct ibv_mr *(*reg_mr)(struct ibv_pd *, void *, size_t, int);
    int (*dereg_mr)(struct ibv_mr *);
    int (*dealloc_pd)(struct ibv_pd *);
    struct ibv_cq *(*create_cq)(struct ibv_context *, int, void *, struct ibv_comp_channel *, int);
    struct ibv_qp *(*create_qp)(struct ibv_pd *, struct ibv_qp_init_attr *);
    struct ibv_context *(*open_device)(struct ibv_device *); /* its own, with nothing under it */
    void (*fail_queues)(int);
    void (*set_machine)(int, const struct fake_machine *);
} fake;

struct end {
    struct ibv_context *context;
    struct ibv_pd *pd;
    struct ibv_cq *cq;
    struct ibv_qp *qp;
    struct ibv_mr *mr;
    char memory[4096];
};

static struct ibv_device **devices;

/* Its functions are not the provider's. */
static bool is_watched(const struct ibv_context *context)
{
    struct ibv_context *plain = fake.open_device(devices[2]);
    bool is_other = context->ops.post_send != plain->ops.post_send;
    ibv_close_device(plain);
    return is_other;
}

static void open_end(struct end *end, int port)
{
    end->context = ibv_open_device(devices[port]);
    CHECK(end->context != NULL);
    end->pd = fake.alloc_pd(end->context);
    end->mr = fake.reg_mr(end->pd, end->memory, sizeof end->memory, IBV_ACCESS_LOCAL_WRITE);
    end->cq = fake.create_cq(end->context, 64, NULL, NULL, 0);
    struct ibv_qp_init_attr attr = {.send_cq = end->cq, .recv_cq = end->cq, .qp_type = IBV_QPT_RC};
    end->qp = fake.create_qp(end->pd, &attr);
    end->qp->qp_type = IBV_QPT_RC;
}

static void receive(struct end *end)
{
    struct ibv_sge sge = {(uintptr_t)end->memory, 256, end->mr->lkey};
    struct ibv_recv_wr work = {.wr_id = 5, .sg_list = &sge, .num_sge = 1}, *bad;
    CHECK_EQUAL(ibv_post_recv(end->qp, &work, &bad), 0);
}

/* With so many receives that are posted before it is ready. */
static void connect_end(struct end *end, const struct end *peer, int port, uint32_t psn,
                        uint32_t peer_psn, int receives)
{
    struct ibv_qp_attr attr = {.qp_state = IBV_QPS_INIT};
    CHECK_EQUAL(ibv_modify_qp(end->qp, &attr, IBV_QP_STATE), 0);
    while (receives-- > 0)
        receive(end);
    attr = (struct ibv_qp_attr){.qp_state = IBV_QPS_RTR, .dest_qp_num = peer->qp->qp_num,
                                .rq_psn = peer_psn, .ah_attr = {.is_global = 1, .port_num = 1}};
    attr.ah_attr.grh.dgid.raw[0] = 0xfe;
    attr.ah_attr.grh.dgid.raw[15] = (uint8_t)(port + 1); /* the peer's */
    CHECK_EQUAL(ibv_modify_qp(end->qp, &attr, IBV_QP_STATE | IBV_QP_DEST_QPN | IBV_QP_AV |
                                                   IBV_QP_RQ_PSN), 0);
    attr = (struct ibv_qp_attr){.qp_state = IBV_QPS_RTS, .timeout = 14, .retry_cnt = 7, .sq_psn = psn};
    CHECK_EQUAL(ibv_modify_qp(end->qp, &attr, IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_SQ_PSN), 0);
}

static int post(struct end *end, enum ibv_wr_opcode opcode, uint32_t length, unsigned flags)
{
    struct ibv_sge sge = {(uintptr_t)end->memory, length, end->mr->lkey};
    struct ibv_send_wr work = {.wr_id = 9, .sg_list = &sge, .num_sge = 1, .opcode = opcode,
                               .send_flags = flags}, *bad = NULL;
    return ibv_post_send(end->qp, &work, &bad);
}

static struct ibv_wc wait_one(struct end *end)
{
    struct ibv_wc wc;
    for (int i = 0; i < 100000; i++) {
        if (ibv_poll_cq(end->cq, 1, &wc) == 1)
            return wc;
        nanosleep(&(struct timespec){.tv_nsec = 10000}, NULL);
    }
    CHECK(!"a completion");
    return wc;
}

static const struct syn_qp_slot *slot_of(const struct end *end)
{
    struct syn_qp_page *page = door_page();
    for (uint32_t i = 0; i < page->used; i++)
        if (page->slots[i].state != SYN_QP_FREE && page->slots[i].number == end->qp->qp_num)
            return &page->slots[i];
    return NULL;
}

static void test_counts(struct end *a, struct end *b)
{
    receive(b);
    CHECK_EQUAL(post(a, IBV_WR_SEND, 100, IBV_SEND_SIGNALED), 0);
    struct ibv_wc wc = wait_one(b);
    CHECK(wc.status == IBV_WC_SUCCESS && wc.opcode == IBV_WC_RECV && wc.wr_id == 5);
    CHECK_EQUAL(wc.byte_len, 100);
    wc = wait_one(a);
    CHECK(wc.status == IBV_WC_SUCCESS && wc.wr_id == 9);
    const struct syn_qp_slot *from = slot_of(a), *to = slot_of(b);
    CHECK(from != NULL && to != NULL);
    CHECK(strcmp(from->device, "fake0") == 0 && strcmp(to->device, "fake1") == 0);
    CHECK_EQUAL(from->peer_number, b->qp->qp_num);
    CHECK_EQUAL(from->send_psn, 7);
    CHECK_EQUAL(from->receive_psn, 8);
    CHECK_EQUAL(from->remote[0], 0xfe);
    CHECK_EQUAL(from->local[12], 10);
    CHECK_EQUAL(from->sent, 1);
    CHECK_EQUAL(from->bytes_posted, 100);
    CHECK_EQUAL(from->signaled, 1);
    CHECK_EQUAL(from->completed, 1);
    CHECK_EQUAL(from->stamped[SYN_QP_SENT], 1);
    CHECK_EQUAL(from->stamped[SYN_QP_COMPLETED], 1);
    CHECK_EQUAL(to->received, 1);
    CHECK_EQUAL(to->bytes_received, 100);
    CHECK_EQUAL(to->receives_posted, 2);
    CHECK_EQUAL(to->stamped[SYN_QP_RECEIVED], 1);
    CHECK(from->generation != to->generation && from->type == IBV_QPT_RC);
    CHECK(from->posted_ns >= from->began_ns && to->received_ns > from->posted_ns);
    CHECK_EQUAL(post(a, IBV_WR_RDMA_WRITE, 0, IBV_SEND_SIGNALED), 0);
    wait_one(a);
    CHECK_EQUAL(from->unannounced, 1);
    CHECK_EQUAL(from->sent, 1);
}

static void test_errors(struct end *a)
{
    const struct syn_qp_slot *slot = slot_of(a);
    post(a, IBV_WR_RDMA_WRITE, 0, IBV_SEND_SIGNALED);
    fake.fail_queues(0);
    struct ibv_wc wc = wait_one(a);
    CHECK(wc.status != IBV_WC_SUCCESS);
    CHECK_EQUAL(slot->state, SYN_QP_FAILED);
    CHECK_EQUAL(slot->errors, 1);
    CHECK_EQUAL(slot->first_error, wc.status);
    uint64_t before = slot->generation;
    struct ibv_qp_attr attr = {.qp_state = IBV_QPS_RESET};
    CHECK_EQUAL(ibv_modify_qp(a->qp, &attr, IBV_QP_STATE), 0);
    CHECK(slot_of(a) == NULL);
    connect_end(a, a, 0, 3, 3, 0);
    CHECK(slot_of(a) == slot && slot->generation > before && slot->errors == 0 && slot->sent == 0);
}

static void *post_many(void *of)
{
    for (int i = 0; i < 2000; i++)
        post(of, IBV_WR_RDMA_WRITE, 0, 0);
    return NULL;
}

/* Two threads: nothing breaks, and the slot says that counts are not exact, if they ever met. */
static void test_threads(struct end *a)
{
    pthread_t threads[4];
    for (int i = 0; i < 4; i++)
        CHECK_EQUAL(pthread_create(&threads[i], NULL, post_many, a), 0);
    struct ibv_wc wc[8];
    for (int i = 0; i < 1000; i++)
        ibv_poll_cq(a->cq, 8, wc);
    for (int i = 0; i < 4; i++)
        pthread_join(threads[i], NULL);
    const struct syn_qp_slot *slot = slot_of(a);
    CHECK(slot->unannounced == 8000 || (slot->flags & SYN_QP_SENDS_INEXACT));
    CHECK(slot->unannounced <= 8000 && slot->unannounced >= 2000);
}

/* A child's verbs go on as they are, and change nothing in the page. */
static void test_fork(struct end *a)
{
    const struct syn_qp_slot *slot = slot_of(a);
    uint64_t before = slot->unannounced;
    pid_t child = fork();
    if (child == 0) {
        bool well = door_page() == NULL && door_is_child() &&
                    post(a, IBV_WR_RDMA_WRITE, 0, 0) == 0 && ibv_open_device(devices[2]) != NULL &&
                    ibv_destroy_qp(a->qp) == 0;
        _exit(!well);
    }
    int status;
    CHECK(waitpid(child, &status, 0) == child);
    CHECK_EQUAL(status, 0);
    CHECK_EQUAL(slot->unannounced, before);
    CHECK(slot->state != SYN_QP_FREE);
}

/* More queue pairs than there are places: those beyond work, and are counted. Returns how many. */
static uint32_t test_many(struct end *a)
{
    const struct syn_qp_page *page = door_page();
    uint32_t before = page->left_out;
    struct ibv_qp *many[SYN_QP_SLOTS + 20];
    for (int i = 0; i < SYN_QP_SLOTS + 20; i++) {
        struct ibv_qp_init_attr init = {.send_cq = a->cq, .recv_cq = a->cq};
        struct ibv_qp_attr attr = {.qp_state = IBV_QPS_INIT};
        many[i] = fake.create_qp(a->pd, &init);
        CHECK_EQUAL(ibv_modify_qp(many[i], &attr, IBV_QP_STATE), 0);
    }
    CHECK(page->left_out >= before + 20 && page->used <= SYN_QP_SLOTS);
    for (int i = 0; i < SYN_QP_SLOTS + 20; i++)
        CHECK_EQUAL(ibv_destroy_qp(many[i]), 0);
    CHECK(slot_of(a) != NULL);
    return page->left_out - before;
}

static struct ibv_cq some_queue;
static struct { /* as large as rdma-core's */
    struct ibv_qp pair;
    char more[1024];
} some = {.pair = {.qp_num = 0x777, .qp_type = IBV_QPT_RC, .recv_cq = &some_queue}};
static int refusal;

static void begin_some_pair(void)
{
    for (enum ibv_qp_state state = IBV_QPS_INIT; state <= IBV_QPS_RTR; state++)
        watch_modified(&some.pair, &(struct ibv_qp_attr){.qp_state = state}, IBV_QP_STATE);
}

static int pair_is_replaced(struct ibv_qp *pair)
{
    CHECK(pair == &some.pair);
    if (refusal == 0)
        begin_some_pair();
    return refusal;
}

static int queue_is_replaced(struct ibv_cq *queue)
{
    CHECK(refusal || table_add_queue(queue) != NULL);
    return refusal;
}

/* While one is destroyed another one may be given its number, or its memory: that one is watched. So is one that
 * could not be destroyed. */
static void test_destroying(const struct end *a)
{
    const struct end end = {.qp = &some.pair};
    some.pair.context = a->context;
    begin_some_pair();
    uint64_t generation = slot_of(&end)->generation;
    for (refusal = EBUSY; slot_of(&end)->generation == generation; refusal = 0) {
        CHECK_EQUAL(watch_destroy_qp(&some.pair, pair_is_replaced), refusal);
        CHECK_EQUAL(watch_destroy_cq(&some_queue, queue_is_replaced), refusal);
        CHECK(slot_of(&end) != NULL && table_queue(&some_queue) != NULL);
    }
    CHECK_EQUAL(refusal, 0);
}

static void load(void)
{
    void *library = dlopen(getenv("SYNTONY_VERBS_LIBRARY"), RTLD_NOW);
    CHECK(library != NULL);
#define LOAD(to, name) CHECK((*(void **)&fake.to = dlsym(library, name)) != NULL)
    LOAD(get_device_list, "ibv_get_device_list");
    LOAD(alloc_pd, "ibv_alloc_pd");
    LOAD(reg_mr, "ibv_reg_mr");
    LOAD(dereg_mr, "ibv_dereg_mr");
    LOAD(dealloc_pd, "ibv_dealloc_pd");
    LOAD(create_cq, "ibv_create_cq");
    LOAD(create_qp, "ibv_create_qp");
    LOAD(open_device, "ibv_open_device");
    LOAD(fail_queues, "fake_fail_queues");
    LOAD(set_machine, "fake_set_machine");
#undef LOAD
    int count;
    devices = fake.get_device_list(&count);
    CHECK(count > 2);
}

static void close_end(struct end *end)
{
    CHECK_EQUAL(ibv_destroy_qp(end->qp), 0);
    CHECK_EQUAL(ibv_destroy_cq(end->cq), 0);
    fake.dereg_mr(end->mr);
    fake.dealloc_pd(end->pd);
    ibv_close_device(end->context);
}

/* Without an agent nothing is touched. */
static void test_without_agent(void)
{
    static struct end plain;
    setenv("SYNTONY_AGENT", "/nonexistent/agent", 1); /* threads may be running: too late */
    open_end(&plain, 3);
    CHECK(!is_watched(plain.context));
    CHECK(door_page() == NULL);
    close_end(&plain);
}

/* A device that cannot be opened; and one that is opened more often than there are places. */
static void test_devices(void)
{
    fake.set_machine(3, &(struct fake_machine){.closed = 1});
    CHECK(ibv_open_device(devices[3]) == NULL);
    for (int i = 0; i < 2 * MAX_DEVICES; i++) {
        struct ibv_context *context = ibv_open_device(devices[2]);
        CHECK(context != NULL && is_watched(context));
        CHECK_EQUAL(ibv_close_device(context), 0);
    }
}

int main(int argc, char **argv)
{
    load();
    if (argc > 1 && strcmp(argv[1], "without_agent") == 0) {
        test_without_agent();
        return 0;
    }
    static struct end a, b;
    unsetenv("SYNTONY_AGENT"); /* it was named when the program began */
    open_end(&a, 0);
    open_end(&b, 1);
    CHECK(is_watched(a.context));
    connect_end(&a, &b, 1, 7, 8, 0);
    connect_end(&b, &a, 0, 8, 7, 1);
    test_counts(&a, &b);
    test_errors(&a);
    test_threads(&a);
    test_fork(&a);
    uint32_t left_out = test_many(&a);
    CHECK_EQUAL(test_many(&a), left_out); /* places are given back */
    test_devices();
    test_destroying(&a);
    close_end(&a);
    close_end(&b);
    const struct syn_qp_page *page = door_page();
    CHECK_EQUAL(page->slots[0].state, SYN_QP_FREE);
    return 0;
}
