#include "flush.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "config.h"
#include "conn_parts.h"
#include "log.h"

enum { PAGE = 4096 };

/* Where what is read goes, and stays unused. */
static char page[PAGE] __attribute__((aligned(PAGE)));

static void destroy(const struct reader *reader)
{
    if (reader->qp)
        verbs.destroy_qp(reader->qp);
    if (reader->cq)
        verbs.destroy_cq(reader->cq);
    if (reader->mr)
        verbs.dereg_mr(reader->mr);
}

static void *destroy_later(void *argument)
{
    destroy(argument);
    free(argument);
    return NULL;
}

/* What a rail had that does not work: in a thread that waits for its driver, which may hang. */
static void leave_reader(struct reader *reader)
{
    if (reader->mr == NULL) /* it has made none */
        return;
    struct reader *left = malloc(sizeof *left);
    pthread_t thread;
    if (left)
        *left = *reader;
    if (left && pthread_create(&thread, NULL, destroy_later, left) == 0)
        pthread_detach(thread);
    else {
        destroy(reader);
        free(left);
    }
    *reader = (struct reader){.generation = reader->generation + 1};
}

/* No neighbour is looked for: it is its own. */
static const char *connect_to_itself(struct ibv_qp *qp, const struct port *port)
{
    struct endpoint own;
    uint8_t gid_index = 0;
    const char *problem = port_address(port, &own, &gid_index);
    if (problem)
        return problem;
    struct ibv_qp_attr init = {.qp_state = IBV_QPS_INIT, .port_num = port->number,
                               .qp_access_flags = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ};
    struct ibv_qp_attr receive = {
        .qp_state = IBV_QPS_RTR, .path_mtu = own.mtu, .dest_qp_num = qp->qp_num,
        .max_dest_rd_atomic = 1, .min_rnr_timer = 12,
        .ah_attr = {.port_num = port->number, .sl = config.service_level, .dlid = own.lid}};
    if (own.link_layer == IBV_LINK_LAYER_ETHERNET) {
        receive.ah_attr.is_global = 1;
        receive.ah_attr.grh = (struct ibv_global_route){
            .sgid_index = gid_index, .hop_limit = 255, .traffic_class = config.traffic_class};
        memcpy(receive.ah_attr.grh.dgid.raw, own.gid, sizeof own.gid);
    }
    struct ibv_qp_attr ready = {.qp_state = IBV_QPS_RTS, .timeout = config.timeout,
                                .retry_cnt = config.retries, .rnr_retry = 7, .max_rd_atomic = 1};
    if (verbs.modify_qp(qp, &init, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT |
                                       IBV_QP_ACCESS_FLAGS) ||
        verbs.modify_qp(qp, &receive, IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU |
                                          IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
                                          IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER) ||
        verbs.modify_qp(qp, &ready, IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT |
                                        IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC))
        return "a queue pair cannot be connected to itself";
    return NULL;
}

static const char *make_reader(struct reader *reader, const struct port *port)
{
    reader->mr = verbs.reg_mr(port->pd, page, PAGE, IBV_ACCESS_LOCAL_WRITE);
    if (reader->mr == NULL)
        return "memory cannot be registered (ulimit -l?)";
    reader->cq = verbs.create_cq(port->context, REQUESTS, NULL, NULL, 0);
    if (reader->cq == NULL)
        return "no completion queue";
    struct ibv_qp_init_attr attr = {
        .send_cq = reader->cq, .recv_cq = reader->cq, .qp_type = IBV_QPT_RC,
        .cap = {.max_send_wr = REQUESTS, .max_recv_wr = 1, .max_send_sge = 1, .max_recv_sge = 1}};
    reader->qp = verbs.create_qp(port->pd, &attr);
    return reader->qp ? connect_to_itself(reader->qp, port) : "no queue pair";
}

/* Makes the reader of a rail that is up and has none. NULL, or what is wrong. */
static const char *need_reader(struct readers *readers, const struct conn *conn, int r)
{
    struct reader *reader = &readers->reader[r];
    if (reader->qp || conn->rail[r].state != RAIL_UP)
        return NULL;
    const char *problem = make_reader(reader, conn->queues[r].port);
    if (problem) { /* a rail that is up: no thread, as it may be tried again at each poll */
        destroy(reader);
        *reader = (struct reader){.generation = reader->generation + 1};
    }
    return problem;
}

const char *readers_make(struct readers *readers, const struct conn *conn)
{
    const char *problem = NULL;
    for (int r = 0; r < conn->rails && problem == NULL; r++)
        problem = need_reader(readers, conn, r);
    return problem;
}

void readers_end(struct readers *readers, const struct conn *conn)
{
    for (int r = 0; r < MAX_RAILS; r++)
        if (conn->rail[r].state == RAIL_UP)
            destroy(&readers->reader[r]);
        else
            leave_reader(&readers->reader[r]);
}

static int post(struct reader *reader, const struct flush *flush, int r)
{
    struct ibv_sge sge = {(uint64_t)(uintptr_t)reader->mr->addr, 1, reader->mr->lkey};
    struct ibv_send_wr wr = {.sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_RDMA_READ,
                             .send_flags = IBV_SEND_SIGNALED,
                             .wr.rdma = {flush->address, flush->memory->mr[r]->rkey}}, *bad;
    int error = ibv_post_send(reader->qp, &wr, &bad);
    reader->posted += error == 0;
    return error;
}

/* A rail that cannot be read over is left: what it writes would not be seen. */
static void leave(struct reader *reader, struct conn *conn, int r, const char *why)
{
    leave_reader(reader);
    conn_fail_rail(conn, r, why);
}

void flush_begin(struct readers *readers, struct conn *conn, struct flush *flush)
{
    flush->waiting = 0;
    for (int r = 0; r < conn->rails; r++) {
        struct reader *reader = &readers->reader[r];
        const char *problem = need_reader(readers, conn, r);
        if (problem) {
            if (problem != readers->logged)
                WARN("GPU memory cannot be flushed over %s: %s", conn_rail_name(conn, r), problem);
            readers->logged = problem;
            if (conn_living(conn) == 1)
                return; /* tried again, until there is another rail, or a reader */
            conn_fail_rail(conn, r, problem);
        }
        if (conn->rail[r].state != RAIL_UP)
            continue;
        int error = post(reader, flush, r);
        if (error) {
            leave(reader, conn, r, strerror(error));
            continue;
        }
        flush->waiting |= 1U << r;
        flush->generation[r] = reader->generation;
        flush->number[r] = reader->posted;
    }
}

static void poll_reader(struct reader *reader, struct conn *conn, int r)
{
    struct ibv_wc wc[16];
    int got = ibv_poll_cq(reader->cq, 16, wc);
    for (int i = 0; i < got && wc[i].status == IBV_WC_SUCCESS; i++)
        reader->completed++;
    if (got < 0)
        leave(reader, conn, r, "its completion queue failed");
    else if (got > 0 && wc[got - 1].status != IBV_WC_SUCCESS)
        leave(reader, conn, r, verbs.wc_status_str(wc[got - 1].status));
}

bool flush_is_done(struct readers *readers, struct conn *conn, struct flush *flush)
{
    for (int r = 0; r < conn->rails; r++) {
        struct reader *reader = &readers->reader[r];
        if (!(flush->waiting >> r & 1))
            continue;
        if (reader->qp && conn->rail[r].state != RAIL_UP)
            leave_reader(reader);
        else if (reader->generation == flush->generation[r] && reader->completed < flush->number[r])
            poll_reader(reader, conn, r);
        bool lost = reader->generation != flush->generation[r];
        if (!lost && reader->completed < flush->number[r])
            continue;
        flush->waiting &= ~(1U << r);
        flush->read |= !lost;
    }
    if (flush->waiting == 0 && !flush->read)
        flush_begin(readers, conn, flush);
    return flush->waiting == 0 && flush->read;
}
