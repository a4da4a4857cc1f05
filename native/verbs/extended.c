/* The verbs that rdma-core keeps in tables of each queue pair (ibv_wr_*) and each extended completion
 * queue (ibv_start_poll, ibv_next_poll). */
#include <dlfcn.h>
#include <errno.h>

#include "door.h"
#include "table.h"

static struct pair *pair_of(struct ibv_qp_ex *qp)
{
    return table_pair(table_device(qp->qp_base.context), qp->qp_base.qp_num);
}

static void begin_message(struct pair *pair, const struct ibv_qp_ex *qp, bool takes_receive)
{
    if (pair->pending_count < MAX_PENDING)
        pair->pending[pair->pending_count] = (struct message){
            .takes_receive = takes_receive,
            .signaled = pair->all_signaled || (qp->wr_flags & IBV_SEND_SIGNALED)};
    pair->pending_count++;
}

static void add_bytes(struct pair *pair, uint64_t bytes)
{
    if (pair->pending_count > 0 && pair->pending_count <= MAX_PENDING)
        pair->pending[pair->pending_count - 1].bytes += bytes;
}

#define OPERATION(name, takes_receive, arguments, ...)                                             \
    static void name arguments                                                                     \
    {                                                                                              \
        struct pair *pair = pair_of(qp);                                                           \
        begin_message(pair, qp, takes_receive);                                                    \
        pair->before.name(__VA_ARGS__);                                                            \
    }

OPERATION(wr_send, true, (struct ibv_qp_ex * qp), qp)
OPERATION(wr_send_imm, true, (struct ibv_qp_ex * qp, __be32 imm), qp, imm)
OPERATION(wr_send_inv, true, (struct ibv_qp_ex * qp, uint32_t key), qp, key)
OPERATION(wr_rdma_write_imm, true, (struct ibv_qp_ex * qp, uint32_t key, uint64_t to, __be32 imm),
          qp, key, to, imm)
OPERATION(wr_rdma_write, false, (struct ibv_qp_ex * qp, uint32_t key, uint64_t to), qp, key, to)
OPERATION(wr_rdma_read, false, (struct ibv_qp_ex * qp, uint32_t key, uint64_t from), qp, key, from)
OPERATION(wr_atomic_cmp_swp, false,
          (struct ibv_qp_ex * qp, uint32_t key, uint64_t to, uint64_t compare, uint64_t swap), qp,
          key, to, compare, swap)
OPERATION(wr_atomic_fetch_add, false,
          (struct ibv_qp_ex * qp, uint32_t key, uint64_t to, uint64_t add), qp, key, to, add)
#ifdef WITH_ATOMIC_WRITE
static void wr_atomic_write(struct ibv_qp_ex *qp, uint32_t key, uint64_t to, const void *data)
{
    enum { BYTES = 8 };
    struct pair *pair = pair_of(qp);
    begin_message(pair, qp, false);
    add_bytes(pair, BYTES);
    pair->before.wr_atomic_write(qp, key, to, data);
}

/* The last of the table: libraries from before have none, and there something else instead. */
static bool is_function(const void *place)
{
    Dl_info unused;
    return dladdr(*(void *const *)place, &unused) != 0;
}
#endif
#ifdef WITH_FLUSH
OPERATION(wr_flush, false,
          (struct ibv_qp_ex * qp, uint32_t key, uint64_t from, size_t length, uint8_t type,
           uint8_t level), qp, key, from, length, type, level)
#endif
/* Cut into packets, each of which takes a receive. */
static void wr_send_tso(struct ibv_qp_ex *qp, void *header, uint16_t size, uint16_t most)
{
    struct pair *pair = pair_of(qp);
    begin_message(pair, qp, false);
    add_bytes(pair, size);
    pair->before.wr_send_tso(qp, header, size, most);
}
OPERATION(wr_local_inv, false, (struct ibv_qp_ex * qp, uint32_t key), qp, key)
OPERATION(wr_bind_mw, false,
          (struct ibv_qp_ex * qp, struct ibv_mw *window, uint32_t key,
           const struct ibv_mw_bind_info *info), qp, window, key, info)

static void wr_set_sge(struct ibv_qp_ex *qp, uint32_t key, uint64_t address, uint32_t length)
{
    struct pair *pair = pair_of(qp);
    add_bytes(pair, length);
    pair->before.wr_set_sge(qp, key, address, length);
}

static void wr_set_sge_list(struct ibv_qp_ex *qp, size_t count, const struct ibv_sge *list)
{
    struct pair *pair = pair_of(qp);
    for (size_t i = 0; i < count; i++)
        add_bytes(pair, list[i].length);
    pair->before.wr_set_sge_list(qp, count, list);
}

static void wr_set_inline_data(struct ibv_qp_ex *qp, void *from, size_t length)
{
    struct pair *pair = pair_of(qp);
    add_bytes(pair, length);
    pair->before.wr_set_inline_data(qp, from, length);
}

static void wr_set_inline_data_list(struct ibv_qp_ex *qp, size_t count,
                                    const struct ibv_data_buf *list)
{
    struct pair *pair = pair_of(qp);
    for (size_t i = 0; i < count; i++)
        add_bytes(pair, list[i].length);
    pair->before.wr_set_inline_data_list(qp, count, list);
}

/* Between wr_start and wr_complete or wr_abort a queue pair belongs to one thread: rdma-core's rule,
 * and providers hold its lock. */
static void wr_start(struct ibv_qp_ex *qp)
{
    struct pair *pair = pair_of(qp);
    pair->before.wr_start(qp);
    pair->pending_count = 0;
}

static int wr_complete(struct ibv_qp_ex *qp)
{
    struct pair *pair = pair_of(qp);
    uint32_t count = pair->pending_count;
    int64_t at_ns = table_now_ns(); /* all are posted now */
    bool counts = door_is_mine();
    /* Counted before it is posted: afterwards another thread may have begun. What fails is not sent;
     * numbers are wrong from there on, and pairing is off. */
    for (uint32_t i = 0; counts && i < count && i < MAX_PENDING; i++)
        figures_sent(&pair->figures, &pair->pending[i], at_ns);
    int error = pair->before.wr_complete(qp);
    if (counts && (count > MAX_PENDING || (error && count)))
        figures_flag(&pair->figures, SYN_QP_SENDS_INEXACT);
    if (counts)
        door_look(at_ns);
    return error;
}

static void wr_abort(struct ibv_qp_ex *qp)
{
    struct pair *pair = pair_of(qp);
    pair->pending_count = 0;
    pair->before.wr_abort(qp);
}

void extended_patch(struct pair *pair, struct ibv_qp_ex *qp)
{
    pair->before = *qp;
#define PATCH(name)                                                                                \
    if (qp->name)                                                                                  \
    qp->name = name
    PATCH(wr_send);
    PATCH(wr_send_imm);
    PATCH(wr_send_inv);
    PATCH(wr_send_tso);
    PATCH(wr_rdma_write_imm);
    PATCH(wr_rdma_write);
    PATCH(wr_rdma_read);
    PATCH(wr_atomic_cmp_swp);
    PATCH(wr_atomic_fetch_add);
    PATCH(wr_local_inv);
    PATCH(wr_bind_mw);
    PATCH(wr_set_sge);
    PATCH(wr_set_sge_list);
    PATCH(wr_set_inline_data);
    PATCH(wr_set_inline_data_list);
    PATCH(wr_start);
    PATCH(wr_complete);
    PATCH(wr_abort);
#ifdef WITH_ATOMIC_WRITE
    if (is_function(&qp->wr_atomic_write)) {
        PATCH(wr_atomic_write);
#ifdef WITH_FLUSH
        if (is_function(&qp->wr_flush))
            PATCH(wr_flush);
#endif
    }
#endif
#undef PATCH
}

static void count_current(const struct queue *queue, struct ibv_cq_ex *cq)
{
    struct completion completion = {.number = cq->read_qp_num(cq), .status = cq->status};
    if (cq->status == IBV_WC_SUCCESS) {
        completion.opcode = cq->read_opcode(cq);
        if (!(queue->flags & SYN_QP_NO_LENGTHS))
            completion.bytes = cq->read_byte_len(cq);
    }
    watch_completion(table_device(cq->context), queue, &completion, table_now_ns());
}

static int start_poll(struct ibv_cq_ex *cq, struct ibv_poll_cq_attr *attr)
{
    struct queue *queue = table_queue(cq);
    int error = queue->start_poll(cq, attr);
    if (error == 0 && door_is_mine())
        count_current(queue, cq);
    return error;
}

static int next_poll(struct ibv_cq_ex *cq)
{
    struct queue *queue = table_queue(cq);
    int error = queue->next_poll(cq);
    if (error == 0 && door_is_mine())
        count_current(queue, cq);
    return error;
}

/* Lengths and queue pairs of completions are asked for, too: without them nothing can be counted. A
 * provider that cannot tell them is asked for what the program wants. */
struct ibv_cq_ex *extended_create_cq(struct ibv_context *context, struct ibv_cq_init_attr_ex *attr)
{
    struct device *device = table_device(context);
    const uint64_t added = IBV_WC_EX_WITH_BYTE_LEN | IBV_WC_EX_WITH_QP_NUM;
    struct ibv_cq_init_attr_ex more = *attr;
    more.wc_flags |= added;
    struct ibv_cq_ex *cq = device->create_cq_ex(context, &more);
    if (cq == NULL) {
        more.wc_flags = attr->wc_flags;
        cq = device->create_cq_ex(context, attr);
    }
    if (cq == NULL || !(more.wc_flags & IBV_WC_EX_WITH_QP_NUM) || !door_is_mine())
        return cq;
    watch_extended_cq(cq, !(more.wc_flags & IBV_WC_EX_WITH_BYTE_LEN));
    return cq;
}

void extended_patch_cq(struct queue *queue, struct ibv_cq_ex *cq)
{
    queue->start_poll = cq->start_poll;
    queue->next_poll = cq->next_poll;
    cq->start_poll = start_poll;
    cq->next_poll = next_poll;
}
