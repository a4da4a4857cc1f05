/* The verbs that queue pairs and completion queues have in tables of their own, over a provider that this
 * file alone knows: each call arrives as it was made, and is counted. */
#include <errno.h>
#include <stdbool.h>
#include <string.h>
#include <time.h>

#include "check.h"
#include "door.h"
#include "table.h"
#include "watch.h"

enum { NUMBER = 77, LENGTHS = IBV_WC_EX_WITH_BYTE_LEN, NUMBERS = IBV_WC_EX_WITH_QP_NUM };
static const int64_t LOCK_NS = 2000000;

static struct { /* what arrived at the provider, and what it answers */
    uint64_t sum; /* of all arguments of the last call, each times its place */
    int calls, completing, error;
    int64_t started_ns, completed_ns;
    const struct syn_qp_slot *slot;
} provider;

static int64_t now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * INT64_C(1000000000) + t.tv_nsec;
}

static void arrived(uint64_t a, uint64_t b, uint64_t c, uint64_t d)
{
    provider.calls++;
    provider.sum = a + 2 * b + 3 * c + 4 * d;
}

static void op_send(struct ibv_qp_ex *qp) { arrived(qp->wr_id, 0, 0, 0); }
static void op_send_imm(struct ibv_qp_ex *qp, __be32 imm) { arrived(qp->wr_id, imm, 0, 0); }
static void op_key(struct ibv_qp_ex *qp, uint32_t key) { arrived(qp->wr_id, key, 0, 0); }
static void op_remote(struct ibv_qp_ex *qp, uint32_t key, uint64_t to) { arrived(qp->wr_id, key, to, 0); }
static void op_write_imm(struct ibv_qp_ex *qp, uint32_t key, uint64_t to, __be32 imm)
{
    arrived(qp->wr_id, key, to, imm);
}
static void op_swap(struct ibv_qp_ex *qp, uint32_t key, uint64_t to, uint64_t compare, uint64_t swap)
{
    arrived(qp->wr_id, key, to, compare + swap);
}
static void op_add(struct ibv_qp_ex *qp, uint32_t key, uint64_t to, uint64_t add)
{
    arrived(qp->wr_id, key, to, add);
}
static void op_tso(struct ibv_qp_ex *qp, void *header, uint16_t size, uint16_t most)
{
    arrived(qp->wr_id, (uintptr_t)header, size, most);
}
#ifdef WITH_ATOMIC_WRITE
static void op_atomic_write(struct ibv_qp_ex *qp, uint32_t key, uint64_t to, const void *data)
{
    arrived(qp->wr_id, key, to, (uintptr_t)data);
}
#endif
#ifdef WITH_FLUSH
static void op_flush(struct ibv_qp_ex *qp, uint32_t key, uint64_t from, size_t length, uint8_t type,
                     uint8_t level)
{
    arrived(qp->wr_id, key, from, length + type + level);
}
#endif
static void op_bind(struct ibv_qp_ex *qp, struct ibv_mw *window, uint32_t key,
                    const struct ibv_mw_bind_info *info)
{
    arrived(qp->wr_id, (uintptr_t)window, key, (uintptr_t)info);
}
static void op_sge(struct ibv_qp_ex *qp, uint32_t key, uint64_t address, uint32_t length)
{
    arrived(qp->wr_id, key, address, length);
}
static void op_sges(struct ibv_qp_ex *qp, size_t count, const struct ibv_sge *list)
{
    arrived(qp->wr_id, count, (uintptr_t)list, 0);
}
static void op_inline(struct ibv_qp_ex *qp, void *from, size_t length)
{
    arrived(qp->wr_id, (uintptr_t)from, length, 0);
}
static void op_inlines(struct ibv_qp_ex *qp, size_t count, const struct ibv_data_buf *list)
{
    arrived(qp->wr_id, count, (uintptr_t)list, 0);
}

/* Another thread has the queue pair's lock until then. */
static void op_start(struct ibv_qp_ex *qp)
{
    int64_t until_ns = now() + LOCK_NS;
    arrived(qp->wr_id, 0, 0, 0);
    while (now() < until_ns)
        ;
    provider.started_ns = now();
}

static int op_complete(struct ibv_qp_ex *qp)
{
    arrived(qp->wr_id, 0, 0, 0);
    provider.completed_ns = now();
    return provider.error;
}

static void op_abort(struct ibv_qp_ex *qp) { arrived(qp->wr_id, 1, 0, 0); }

static struct ibv_qp_ex qp = {
    .qp_base = {.qp_num = NUMBER, .qp_type = IBV_QPT_RC},
    .wr_send = op_send, .wr_send_imm = op_send_imm, .wr_send_inv = op_key, .wr_local_inv = op_key,
    .wr_rdma_write = op_remote, .wr_rdma_read = op_remote, .wr_rdma_write_imm = op_write_imm,
    .wr_atomic_cmp_swp = op_swap, .wr_atomic_fetch_add = op_add, .wr_bind_mw = op_bind,
    .wr_send_tso = op_tso,
    .wr_set_sge = op_sge, .wr_set_sge_list = op_sges, .wr_set_inline_data = op_inline,
    .wr_set_inline_data_list = op_inlines, .wr_start = op_start, .wr_complete = op_complete,
    .wr_abort = op_abort,
#ifdef WITH_ATOMIC_WRITE
    .wr_atomic_write = op_atomic_write,
#endif
#ifdef WITH_FLUSH
    .wr_flush = op_flush,
#endif
};
static struct ibv_qp_ex older = { /* of a library whose table is shorter: */
    .qp_base = {.qp_num = NUMBER + 1, .qp_type = IBV_QPT_RC}, .wr_send = op_send};

/* --- completions ---------------------------------------------------------------------------- */

static const struct { enum ibv_wc_status status; enum ibv_wc_opcode opcode; uint32_t bytes; } DONE[] = {
    {IBV_WC_SUCCESS, IBV_WC_RECV, 300}, {IBV_WC_SUCCESS, IBV_WC_SEND, 0},
    {IBV_WC_SUCCESS, IBV_WC_RECV_RDMA_WITH_IMM, 50}, {IBV_WC_SUCCESS, IBV_WC_LOCAL_INV, 0},
    {IBV_WC_RETRY_EXC_ERR, IBV_WC_SEND, 0}, {IBV_WC_WR_FLUSH_ERR, IBV_WC_RECV, 0}};
enum { DONES = sizeof DONE / sizeof *DONE };

static struct ibv_cq_ex cqs[2];
static int next_done, next_cq;
static uint64_t refused_flags, wanted_flags;

static int get(struct ibv_cq_ex *cq)
{
    if (next_done == DONES)
        return ENOENT;
    cq->status = DONE[next_done++].status;
    return 0;
}
static int start_poll(struct ibv_cq_ex *cq, struct ibv_poll_cq_attr *attr)
{
    CHECK(attr->comp_mask == 5);
    return get(cq);
}
static enum ibv_wc_opcode read_opcode(struct ibv_cq_ex *cq)
{
    CHECK(cq->status == IBV_WC_SUCCESS); /* else it is void */
    return DONE[next_done - 1].opcode;
}
static uint32_t read_byte_len(struct ibv_cq_ex *cq) { (void)cq; return DONE[next_done - 1].bytes; }
static uint32_t read_qp_num(struct ibv_cq_ex *cq) { (void)cq; return NUMBER; }

static struct ibv_cq_ex *create_cq_ex(struct ibv_context *context, struct ibv_cq_init_attr_ex *attr)
{
    if (attr->wc_flags & refused_flags) {
        errno = EOPNOTSUPP;
        return NULL;
    }
    wanted_flags = attr->wc_flags;
    struct ibv_cq_ex *cq = &cqs[next_cq++];
    *cq = (struct ibv_cq_ex){.context = context, .start_poll = start_poll, .next_poll = get,
                             .read_opcode = read_opcode, .read_byte_len = read_byte_len,
                             .read_qp_num = read_qp_num};
    return cq;
}

/* --- tests ---------------------------------------------------------------------------------- */

static struct verbs_context device;

static bool meets;   /* within the next call somebody makes the same */
static bool refuses; /* all but the first of a list */

static int posts(struct ibv_qp *of, struct ibv_send_wr *wr, struct ibv_send_wr **bad)
{
    bool met = meets;
    meets = false;
    *bad = wr->next;
    return met ? ibv_post_send(of, wr, bad) : refuses ? ENOMEM : 0;
}
static int receives(struct ibv_qp *of, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad)
{
    (void)of;
    *bad = wr->next;
    return refuses ? ENOMEM : 0;
}
static int polls(struct ibv_cq *cq, int room, struct ibv_wc *wc)
{
    bool met = meets;
    meets = false;
    if (met)
        CHECK_EQUAL(ibv_poll_cq(cq, room, wc), 1);
    *wc = (struct ibv_wc){.qp_num = NUMBER, .opcode = IBV_WC_RECV, .byte_len = 5};
    return 1;
}
static int query_gid(struct ibv_context *context, uint8_t port, int index, union ibv_gid *gid)
{
    (void)context, (void)port, (void)index, (void)gid;
    return -1;
}
static struct ibv_qp signals = {.qp_num = NUMBER + 2, .qp_type = IBV_QPT_RC}; /* each of its sends completes */

static int query_qp(struct ibv_qp *of, struct ibv_qp_attr *attr, int mask, struct ibv_qp_init_attr *init)
{
    (void)attr, (void)mask;
    init->sq_sig_all = of == &signals;
    return 0;
}
static struct ibv_qp_ex *to_ex(struct ibv_qp *of)
{
    return of == &qp.qp_base ? &qp : of == &older.qp_base ? &older : NULL;
}

/* A new generation: everything at 0. */
static void begin(struct ibv_cq_ex *cq)
{
    qp.qp_base.recv_cq = (struct ibv_cq *)cq;
    for (enum ibv_qp_state state = IBV_QPS_RESET; state <= IBV_QPS_RTR; state++)
        watch_modified(&qp.qp_base, &(struct ibv_qp_attr){.qp_state = state}, IBV_QP_STATE);
    const struct syn_qp_page *page = door_page();
    provider.slot = &page->slots[0];
    CHECK(provider.slot->number == NUMBER && provider.slot->state == SYN_QP_READY);
}

static void test_stamps(void)
{
    begin(&cqs[0]);
    qp.wr_start(&qp);
    qp.wr_flags = IBV_SEND_SIGNALED;
    qp.wr_send(&qp);
    qp.wr_set_sge(&qp, 1, 2, 3);
    CHECK_EQUAL(provider.slot->sent, 0);
    CHECK_EQUAL(qp.wr_complete(&qp), 0);
    CHECK_EQUAL(provider.slot->sent, 1);
    CHECK(provider.slot->posted_ns >= provider.started_ns);
    CHECK(provider.slot->posted_ns <= provider.completed_ns);
}

static int destroyed(struct ibv_cq *cq) { (void)cq; return 0; }

/* Two threads at once: counts may be wrong then, and the slot says so. */
static void test_meetings(void)
{
    struct ibv_send_wr work = {.opcode = IBV_WR_SEND}, *bad;
    struct ibv_wc wc;
    begin(&cqs[0]);
    for (int i = 0; i < 2; i++) {
        meets = i;
        CHECK_EQUAL(ibv_post_send(&qp.qp_base, &work, &bad), 0);
        CHECK_EQUAL(provider.slot->flags, i ? SYN_QP_SENDS_INEXACT : 0);
    }
    begin(&cqs[0]);
    for (int i = 0; i < 2; i++) {
        meets = i;
        CHECK_EQUAL(ibv_poll_cq((struct ibv_cq *)&cqs[0], 1, &wc), 1);
        CHECK_EQUAL(provider.slot->flags, i ? SYN_QP_RECEIVES_INEXACT : 0);
    }
    CHECK_EQUAL(provider.slot->received, 3);
    qp.qp_base.srq = (struct ibv_srq *)&meets;
    begin(&cqs[0]);
    CHECK_EQUAL(provider.slot->flags, SYN_QP_SHARED_RECEIVES);
    qp.qp_base.srq = NULL;
    CHECK_EQUAL(watch_destroy_cq((struct ibv_cq *)&cqs[0], destroyed), 0); /* the next one there is another */
}

static void test_signals(void)
{
    struct ibv_send_wr work = {.opcode = IBV_WR_SEND}, *bad;
    const struct syn_qp_page *page = door_page();
    begin(&cqs[0]);
    signals.context = &device.context;
    for (enum ibv_qp_state state = IBV_QPS_INIT; state <= IBV_QPS_RTR; state++)
        watch_modified(&signals, &(struct ibv_qp_attr){.qp_state = state}, IBV_QP_STATE);
    CHECK_EQUAL(page->slots[1].number, signals.qp_num);
    CHECK_EQUAL(ibv_post_send(&qp.qp_base, &work, &bad), 0);
    CHECK_EQUAL(ibv_post_send(&signals, &work, &bad), 0);
    CHECK_EQUAL(provider.slot->signaled, 0);
    CHECK_EQUAL(page->slots[1].signaled, 1);
}

/* One work request is many packets, each of which takes a receive. */
static void test_tso(void)
{
    struct ibv_sge part = {.length = 9000};
    struct ibv_send_wr work = {.opcode = IBV_WR_TSO, .sg_list = &part, .num_sge = 1, .tso = {.hdr_sz = 54, .mss = 1460}},
                       *bad;
    begin(&cqs[0]);
    CHECK_EQUAL(ibv_post_send(&qp.qp_base, &work, &bad), 0);
    CHECK_EQUAL(provider.slot->bytes_posted, 9054);
    CHECK_EQUAL(provider.slot->sent, 0);
    CHECK_EQUAL(provider.slot->unannounced, 1);
}

static void test_refusals(void)
{
    struct ibv_send_wr more = {.opcode = IBV_WR_SEND}, work = {.next = &more, .opcode = IBV_WR_SEND}, *bad;
    struct ibv_recv_wr other = {.wr_id = 1}, receive = {.next = &other}, *bad_receive;
    begin(&cqs[0]);
    for (int i = 0; i < 2; i++) {
        refuses = i == 0;
        CHECK_EQUAL(ibv_post_send(&qp.qp_base, &work, &bad), refuses ? ENOMEM : 0);
        CHECK_EQUAL(ibv_post_recv(&qp.qp_base, &receive, &bad_receive), refuses ? ENOMEM : 0);
        CHECK_EQUAL(provider.slot->sent, i ? 3 : 1);
        CHECK_EQUAL(provider.slot->receives_posted, i ? 3 : 1);
    }
}

static void test_calls(void)
{
    struct ibv_sge parts[] = {{.length = 20}, {.length = 1}};
    struct ibv_data_buf pieces[] = {{.length = 300}, {.length = 4}};
    struct ibv_mw_bind_info info;
    struct ibv_mw window;
    begin(&cqs[0]);
    provider.calls = 0;
    qp.wr_id = 1000;
    qp.wr_start(&qp);
#define CALL(expected, name, ...)                                                                  \
    qp.name(&qp, ##__VA_ARGS__);                                                                   \
    CHECK_EQUAL(provider.sum, 1000 + (uint64_t)(expected))
    qp.wr_flags = IBV_SEND_SIGNALED;
    CALL(0, wr_send);
    CALL(2 * 5 + 3 * 6 + 4 * 7, wr_set_sge, 5, 6, 7);
    CALL(2 * 8, wr_send_imm, 8);
    CALL(2 * 2 + 3 * (uintptr_t)parts, wr_set_sge_list, 2, parts);
    qp.wr_flags = 0;
    CALL(2 * 9, wr_send_inv, 9);
    CALL(2 * (uintptr_t)pieces + 3 * 400, wr_set_inline_data, pieces, 400);
    CALL(2 * 3 + 3 * 4 + 4 * 5, wr_rdma_write_imm, 3, 4, 5);
    CALL(2 * 2 + 3 * (uintptr_t)pieces, wr_set_inline_data_list, 2, pieces);
    CALL(2 * 3 + 3 * 4, wr_rdma_write, 3, 4);
    CALL(2 * 5 + 3 * 6 + 4 * 7000, wr_set_sge, 5, 6, 7000);
    CALL(2 * 5 + 3 * 6, wr_rdma_read, 5, 6);
    CALL(2 * 1 + 3 * 2 + 4 * 7, wr_atomic_cmp_swp, 1, 2, 3, 4);
    CALL(2 * 1 + 3 * 2 + 4 * 3, wr_atomic_fetch_add, 1, 2, 3);
    CALL(2 * 1, wr_local_inv, 1);
    CALL(2 * (uintptr_t)&window + 3 * 2 + 4 * (uintptr_t)&info, wr_bind_mw, &window, 2, &info);
    CALL(2 * (uintptr_t)parts + 3 * 54 + 4 * 1460, wr_send_tso, parts, 54, 1460);
    CALL(2 * 5 + 3 * 6 + 4 * 90000, wr_set_sge, 5, 6, 90000);
#undef CALL
    CHECK_EQUAL(qp.wr_complete(&qp), 0);
    CHECK_EQUAL(provider.calls, 19);
    const struct syn_qp_slot *slot = provider.slot;
    CHECK_EQUAL(slot->sent, 4);
    CHECK_EQUAL(slot->unannounced, 7);
    CHECK_EQUAL(slot->signaled, 2);
    CHECK_EQUAL(slot->bytes_posted, 7 + 21 + 400 + 304 + 7000 + 54 + 90000);
    CHECK_EQUAL(slot->flags & SYN_QP_SENDS_INEXACT, 0);
}

#ifdef WITH_ATOMIC_WRITE
static void test_atomic_write(void)
{
    uint64_t data = 7, writes = 2;
    begin(&cqs[0]);
    qp.wr_id = 1000;
    qp.wr_start(&qp);
    qp.wr_rdma_write(&qp, 3, 4);
    qp.wr_atomic_write(&qp, 5, 6, &data);
    CHECK_EQUAL(provider.sum, 1000 + 2 * 5 + 3 * 6 + 4 * (uintptr_t)&data);
#ifdef WITH_FLUSH
    qp.wr_flush(&qp, 5, 6, 4096, 1, 2);
    CHECK_EQUAL(provider.sum, 1000 + 2 * 5 + 3 * 6 + 4 * 4099);
    writes++;
#endif
    CHECK_EQUAL(qp.wr_complete(&qp), 0);
    CHECK_EQUAL(provider.slot->unannounced, writes);
    CHECK_EQUAL(provider.slot->sent, 0);
    CHECK_EQUAL(provider.slot->bytes_posted, 8);
}

/* The library has a mask where newer ones have that function: it stays as it is. */
static void test_older_library(void)
{
    static const uintptr_t MASK = 1;
    memcpy(&older.wr_atomic_write, &MASK, sizeof MASK);
    older.qp_base.context = &device.context;
    watch_modified(&older.qp_base, &(struct ibv_qp_attr){.qp_state = IBV_QPS_INIT}, IBV_QP_STATE);
    CHECK(older.wr_send != op_send);
    CHECK(memcmp(&older.wr_atomic_write, &MASK, sizeof MASK) == 0);
}
#endif

static void post(int count)
{
    qp.wr_start(&qp);
    for (int i = 0; i < count; i++)
        qp.wr_send(&qp);
    (void)qp.wr_complete(&qp);
}

/* What is aborted is not sent, nor what begins with what was left without an end. */
static void test_ends(void)
{
    const struct syn_qp_slot *slot = provider.slot;
    begin(&cqs[0]);
    qp.wr_start(&qp);
    qp.wr_send(&qp);
    qp.wr_abort(&qp);
    CHECK_EQUAL(provider.sum, 1002);
    post(2);
    CHECK_EQUAL(slot->sent, 2);
    qp.wr_start(&qp);
    qp.wr_send(&qp);
    post(MAX_PENDING);
    CHECK_EQUAL(slot->sent, 2 + MAX_PENDING);
    CHECK_EQUAL(slot->flags & SYN_QP_SENDS_INEXACT, 0);
    post(MAX_PENDING + 1);
    CHECK_EQUAL(slot->sent, 2 + 2 * MAX_PENDING);
    CHECK(slot->flags & SYN_QP_SENDS_INEXACT);
    begin(&cqs[0]);
    provider.error = ENOMEM;
    qp.wr_start(&qp);
    CHECK_EQUAL(qp.wr_complete(&qp), ENOMEM);
    CHECK_EQUAL(slot->flags & SYN_QP_SENDS_INEXACT, 0); /* nothing was to be sent */
    post(1);
    CHECK(slot->flags & SYN_QP_SENDS_INEXACT);
    provider.error = 0;
}

static struct ibv_cq_ex *make_queue(uint64_t wanted, uint64_t refused)
{
    struct ibv_cq_init_attr_ex attr = {.wc_flags = wanted};
    refused_flags = refused;
    struct ibv_cq_ex *cq = device.create_cq_ex(&device.context, &attr);
    CHECK(cq != NULL && attr.wc_flags == wanted);
    return cq;
}

static void test_polls(struct ibv_cq_ex *cq, bool has_lengths)
{
    struct ibv_poll_cq_attr attr = {.comp_mask = 5};
    begin(cq);
    next_done = 0;
    CHECK_EQUAL(cq->start_poll(cq, &attr), 0);
    for (int i = 1; i < DONES; i++)
        CHECK_EQUAL(cq->next_poll(cq), 0);
    CHECK_EQUAL(cq->next_poll(cq), ENOENT);
    CHECK_EQUAL(cq->start_poll(cq, &attr), ENOENT);
    const struct syn_qp_slot *slot = provider.slot;
    CHECK_EQUAL(slot->received, 2);
    CHECK_EQUAL(slot->bytes_received, has_lengths ? 350 : 0);
    CHECK_EQUAL(slot->completed, 2);
    CHECK_EQUAL(slot->errors, 2);
    CHECK_EQUAL(slot->first_error, IBV_WC_RETRY_EXC_ERR);
    CHECK_EQUAL(slot->state, SYN_QP_FAILED);
    CHECK_EQUAL(slot->flags, has_lengths ? 0 : SYN_QP_NO_LENGTHS);
}

/* A provider that cannot tell lengths, or numbers of queue pairs, is asked for what the program wants. */
static void test_queues(void)
{
    struct ibv_cq_ex *cq = make_queue(IBV_WC_EX_WITH_IMM, 0);
    CHECK_EQUAL(wanted_flags, IBV_WC_EX_WITH_IMM | LENGTHS | NUMBERS);
    CHECK(cq->next_poll != get);
    test_polls(cq, true);
    cq = make_queue(NUMBERS, LENGTHS);
    CHECK_EQUAL(wanted_flags, NUMBERS);
    test_polls(cq, false);
    next_cq = 1;
    cq = make_queue(LENGTHS, NUMBERS);
    CHECK(cq->next_poll == get && cq->start_poll == start_poll);
}

int main(void)
{
    static const struct watch_verbs VERBS = {.query_gid = query_gid, .qp_to_qp_ex = to_ex, .query_qp = query_qp};
    device = (struct verbs_context){
        .sz = sizeof device, .create_cq_ex = create_cq_ex,
        .context = {.abi_compat = __VERBS_ABI_IS_EXTENDED,
                    .ops = {.post_send = posts, .post_recv = receives, .poll_cq = polls}}};
    qp.qp_base.context = &device.context;
    watch_opened(&device.context, "wire0", &VERBS, true);
    CHECK(device.create_cq_ex != create_cq_ex);
    cqs[0].context = &device.context;
    test_stamps();
    test_meetings();
    test_signals();
    test_tso();
    test_refusals();
    test_calls();
#ifdef WITH_ATOMIC_WRITE
    test_atomic_write();
    test_older_library();
#endif
    test_ends();
    test_queues();
    watch_closing(&device.context);
    CHECK(device.create_cq_ex == create_cq_ex && device.context.ops.post_send == posts &&
          device.context.ops.post_recv == receives && device.context.ops.poll_cq == polls);
    return 0;
}
