/* Engines over queue pairs of the fake provider, which find each other over UDP on loopback. */
#include <arpa/inet.h>
#include <dlfcn.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "check.h"
#include "fake_verbs.h"
#include "syn_packet.h"
#include "syn_probe.h"
#include "verbs.h"

enum { ENDS = 2, FLOWS = 12, MS = 1000000, RECORDS = 4096 };

static struct {
    void (*set_fault)(int, const struct fake_fault *);
    void (*set_machine)(int, const struct fake_machine *);
    void (*datagrams)(int, struct fake_datagrams *);
    void (*fail_device)(int);
} fake;

/* One host: its NIC's number is its place plus 1, its RDMA device the fake's of that place. */
struct end {
    struct syn_probe_engine *udp, *verbs;
    uint16_t port;
};

static struct end ends[ENDS];
static struct syn_probe_record records[RECORDS];
static const uint8_t KEY[16] = "sixteen byte key";

static void load_fake(const char *path)
{
    void *loaded = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    CHECK(loaded != NULL);
    *(void **)&fake.set_fault = dlsym(loaded, "fake_set_fault");
    *(void **)&fake.set_machine = dlsym(loaded, "fake_set_machine");
    *(void **)&fake.datagrams = dlsym(loaded, "fake_datagrams");
    *(void **)&fake.fail_device = dlsym(loaded, "fake_fail_device");
}

static void rest(int64_t ns)
{
    nanosleep(&(struct timespec){ns / 1000000000, ns % 1000000000}, NULL);
}

static uint16_t free_port(void)
{
    int fd = socket(AF_INET, SOCK_DGRAM, 0);
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t length = sizeof address;
    CHECK(bind(fd, (struct sockaddr *)&address, length) == 0);
    CHECK(getsockname(fd, (struct sockaddr *)&address, &length) == 0);
    close(fd);
    return ntohs(address.sin_port);
}

static struct syn_probe_nic nic_of(int at, int plane, uint16_t port)
{
    struct syn_probe_nic nic = {.nic_id = (uint32_t)at + 1, .port = port, .family = 4,
                                .ifname = "lo", .address = {127, 0, 0, 1}};
    if (plane == SYN_PLANE_VERBS)
        memcpy(nic.address, (uint8_t[4]){10, 0, 0, (uint8_t)(at + 1)}, 4);
    return nic;
}

static struct syn_probe_engine *open_engine(int plane)
{
    struct syn_probe_options options = {.timeout_ns = 100 * MS, .min_gap_ns = 20000,
                                        .stall_ns = 5 * MS, .ring_records = RECORDS,
                                        .plane = (uint32_t)plane};
    int error = -1;
    char message[256] = "";
    struct syn_probe_engine *engine = syn_probe_open(1, &options, NULL, &error, message);
    CHECK(engine != NULL && error == SYN_OK);
    struct syn_probe_peer peers[ENDS];
    for (uint32_t i = 0; i < ENDS; i++) {
        peers[i] = (struct syn_probe_peer){.nic_id = i + 1, .key_id = 1};
        memcpy(peers[i].key, KEY, sizeof KEY);
    }
    CHECK_EQUAL(syn_probe_set_peers(engine, peers, ENDS, message), SYN_OK);
    CHECK_EQUAL(syn_probe_start(engine, message), SYN_OK);
    return engine;
}

static int attach(int at, char *message)
{
    struct syn_probe_nic nic = nic_of(at, SYN_PLANE_VERBS, 1);
    return syn_probe_attach(ends[at].verbs, 0, &nic, message);
}

static void open_end(int at)
{
    char message[256] = "";
    ends[at] = (struct end){open_engine(SYN_PLANE_UDP), open_engine(SYN_PLANE_VERBS), free_port()};
    struct syn_probe_nic nic = nic_of(at, SYN_PLANE_UDP, ends[at].port);
    CHECK_EQUAL(syn_probe_attach(ends[at].udp, 0, &nic, message), SYN_OK);
    if (attach(at, message) != SYN_OK) {
        fprintf(stderr, "%s\n", message);
        CHECK(0);
    }
}

static void close_end(int at)
{
    syn_probe_close(ends[at].verbs);
    syn_probe_close(ends[at].udp);
}

static struct syn_probe_flow flow_to(int dst, uint32_t at)
{
    struct syn_probe_flow flow = {
        .flow_id = at, .dst_nic_id = (uint32_t)dst + 1, .flow_label = 0x12340 + at % 4,
        .src_port = (uint16_t)(61000 + at % 4), .dst_port = ends[dst].port, .family = 4,
        .dscp = at < FLOWS / 2 ? 0 : 26, .interval_ns = 2 * MS, .dst_address = {127, 0, 0, 1}};
    return flow;
}

static void offer(int at)
{
    struct syn_verbs_endpoint own;
    CHECK_EQUAL(syn_probe_read_endpoints(ends[at].verbs, &own, 1), 1);
    syn_probe_offer(ends[at].udp, &own, 1);
}

/* What the other end says of itself, asked anew. */
static struct syn_verbs_endpoint ask(int at)
{
    struct syn_verbs_endpoint told = {0};
    struct syn_probe_flow flow = flow_to(1 - at, 0);
    char message[256] = "";
    CHECK_EQUAL(syn_probe_ask(ends[at].udp, &flow, 1, message), SYN_OK);
    rest(60 * MS); /* both engines may rest, and the answer before may be of another time */
    for (int i = 0; i < 100 && !told.known; i++) {
        rest(20 * MS);
        CHECK_EQUAL(syn_probe_read_told(ends[at].udp, &told, 1), 1);
    }
    return told;
}

static size_t route(int at, const struct syn_verbs_endpoint *told)
{
    struct syn_verbs_route routes[FLOWS];
    char message[256] = "";
    for (uint32_t i = 0; i < FLOWS; i++) {
        struct syn_probe_flow flow = flow_to(1 - at, i);
        routes[i] = (struct syn_verbs_route){.dst_nic_id = told->nic_id, .qpn = told->qpn,
                                             .flow_label = flow.flow_label, .lid = told->lid,
                                             .dscp = flow.dscp, .sl = flow.dscp ? 3 : 0};
        memcpy(routes[i].gid, told->gid, sizeof told->gid);
    }
    return syn_probe_set_routes(ends[at].verbs, routes, FLOWS, message);
}

static void meet(int at)
{
    offer(1 - at);
    struct syn_verbs_endpoint told = ask(at);
    CHECK_EQUAL(told.nic_id, (uint32_t)(1 - at) + 1);
    CHECK(told.known && told.qpn != 0 && told.gid[15] == 1 - at + 1);
    CHECK_EQUAL(route(at, &told), 8); /* four labels in two classes */
}

static void plan(int at)
{
    struct syn_probe_flow flows[FLOWS];
    char message[256] = "";
    for (uint32_t i = 0; i < FLOWS; i++)
        flows[i] = flow_to(1 - at, i);
    CHECK_EQUAL(syn_probe_set_flows(ends[at].verbs, flows, FLOWS, message), SYN_OK);
}

static void open_both(void)
{
    for (int at = 0; at < ENDS; at++)
        open_end(at);
    for (int at = 0; at < ENDS; at++)
        meet(at);
    for (int at = 0; at < ENDS; at++)
        plan(at);
}

static void close_both(void)
{
    for (int at = 0; at < ENDS; at++)
        close_end(at);
}

struct sum {
    size_t count, answered, forward, reverse, unknown, stamped, stalled;
    int64_t least_rtt_ns;
    uint32_t seen; /* flows */
};

static struct sum drain(int at)
{
    struct sum sum = {.least_rtt_ns = INT64_MAX};
    size_t count = syn_probe_drain(ends[at].verbs, records, RECORDS);
    for (size_t i = 0; i < count; i++) {
        const struct syn_probe_record *record = &records[i];
        CHECK(record->flow_id < FLOWS && record->nic_id == (uint32_t)at + 1);
        uint32_t lost = SYN_LOST_FWD | SYN_LOST_REV | SYN_LOST_UNKNOWN;
        if (record->flags & lost && record->flags & (SYN_STALL_LOCAL | SYN_STALL_REMOTE)) {
            sum.stalled++; /* says nothing about the network */
            continue;
        }
        sum.count++;
        sum.forward += (record->flags & SYN_LOST_FWD) != 0;
        sum.reverse += (record->flags & SYN_LOST_REV) != 0;
        sum.unknown += (record->flags & SYN_LOST_UNKNOWN) != 0;
        if (record->t4_ns == 0)
            continue;
        sum.answered++;
        sum.seen |= 1u << record->flow_id;
        if (!(record->t1_ns && record->t2_ns && record->t3_ns))
            continue;
        sum.stamped++;
        int64_t rtt_ns = record->t4_ns - record->t1_ns - (record->t3_ns - record->t2_ns);
        sum.least_rtt_ns = rtt_ns < sum.least_rtt_ns ? rtt_ns : sum.least_rtt_ns;
    }
    return sum;
}

static struct sum run(int at, int64_t ns)
{
    drain(at);
    rest(ns);
    return drain(at);
}

static void add(struct sum *all, const struct sum *more)
{
    all->count += more->count;
    all->answered += more->answered;
    all->forward += more->forward;
    all->reverse += more->reverse;
    all->unknown += more->unknown;
    all->stamped += more->stamped;
    all->stalled += more->stalled;
    if (more->least_rtt_ns < all->least_rtt_ns)
        all->least_rtt_ns = more->least_rtt_ns;
    all->seen |= more->seen;
}

/* Until so many probes are reported, or were answered; how fast is a matter of the machine. */
static struct sum until(int at, size_t told, size_t answered)
{
    struct sum all = run(at, 100 * MS);
    for (int i = 0; all.count < told || all.answered < answered; i++) {
        CHECK(i < 200);
        rest(100 * MS);
        struct sum more = drain(at);
        add(&all, &more);
    }
    return all;
}

/* --- cases ---------------------------------------------------------------------------------- */

static void pairs(void)
{
    open_both();
    struct sum sum = until(0, 0, 300);
    /* What the provider's own thread delivers too late counts as lost. */
    CHECK(sum.forward + sum.reverse <= sum.answered / 20);
    CHECK(sum.stamped > sum.answered * 9 / 10);
    CHECK_EQUAL(sum.seen, (1u << FLOWS) - 1);
    CHECK(sum.least_rtt_ns > 0 && sum.least_rtt_ns < 50 * MS);
    struct syn_probe_counters counters;
    syn_probe_read_counters(ends[1].verbs, &counters);
    CHECK(counters.replies >= 200);
    CHECK_EQUAL(counters.foreign + counters.malformed + counters.misdelivered, 0);
    struct fake_datagrams seen;
    fake.datagrams(0, &seen);
    CHECK_EQUAL(seen.wrong_qkey, 0);
    CHECK(seen.label >= 0x12340 && seen.label <= 0x12343);
    close_both();
}

/* Each class in its own traffic class and service level, there and back. */
static void classes(void)
{
    open_both();
    for (int dscp = 0; dscp <= 26; dscp += 26) {
        struct syn_probe_flow flow = flow_to(1, dscp ? FLOWS - 1 : 0);
        char message[256];
        CHECK_EQUAL(syn_probe_set_flows(ends[1].verbs, NULL, 0, message), SYN_OK);
        CHECK_EQUAL(syn_probe_set_flows(ends[0].verbs, &flow, 1, message), SYN_OK);
        rest(100 * MS);
        for (int at = 0; at < ENDS; at++) {
            struct fake_datagrams seen;
            fake.datagrams(at, &seen);
            CHECK_EQUAL(seen.traffic_class, dscp << 2);
            CHECK_EQUAL(seen.sl, dscp ? 3 : 0);
            CHECK_EQUAL(seen.label, flow.flow_label);
        }
    }
    close_both();
}

static void losses(uint64_t seed)
{
    uint64_t state = seed * 0x9e3779b97f4a7c15u | 1;
    setvbuf(stdout, NULL, _IOLBF, 0);
    printf("seed %" PRIu64 "\n", seed);
    open_both();
    for (int round = 0; round < 3; round++) {
        state ^= state << 13, state ^= state >> 7, state ^= state << 17;
        int side = (int)(state >> 8 & 1), permille = 100 + (int)((state >> 16) % 500);
        fake.set_fault(side, &(struct fake_fault){.lost_permille = permille});
        until(0, 6000, 0); /* what is lost is reported later than what is answered */
        struct sum sum = until(0, 6000, 0);
        fake.set_fault(side, &(struct fake_fault){0});
        rest(250 * MS);
        size_t lost = side == 0 ? sum.forward : sum.reverse;
        size_t wrong = side == 0 ? sum.reverse : sum.forward;
        double share = (double)lost / (double)sum.count;
        printf("side %d, %d permille: %zu of %zu, %zu unknown, %zu wrong, %zu while stalled\n",
               side, permille, lost, sum.count, sum.unknown, wrong, sum.stalled);
        CHECK(share < permille * 1.4e-3 && wrong <= sum.count / 50);
        /* This machine has pauses of its own: they excuse, and the direction may stay unknown. */
        CHECK(share > permille * 0.6e-3 || sum.stalled + sum.unknown > 0);
    }
    close_both();
}

/* The peer's agent starts again: other queue pairs, learned by asking. */
static void restart(void)
{
    open_both();
    struct syn_verbs_endpoint before = ask(0);
    close_end(1);
    open_end(1);
    meet(1);
    rest(200 * MS); /* what was answered before is reported with its last stamp */
    struct sum dark = run(0, 300 * MS);
    CHECK(dark.answered == 0 && dark.count > 50);
    offer(1);
    struct syn_verbs_endpoint told = ask(0);
    CHECK(told.qpn != 0 && told.qpn != before.qpn);
    CHECK_EQUAL(route(0, &told), 8);
    rest(150 * MS);
    until(0, 0, 100);
    close_both();
}

/* Stamps of the NIC do not depend on when its completions are read, those of the engine do. */
static void stamps(void)
{
    int64_t rtt_ns[2];
    for (int by_nic = 0; by_nic < 2; by_nic++) {
        for (int at = 0; at < ENDS; at++) {
            fake.set_machine(at, &(struct fake_machine){.stamps = by_nic, .offset = 5000000 * at,
                                                        .drift_ppb = 30000 - 50000 * at});
            fake.set_fault(at, &(struct fake_fault){.completion_delay_ns = 1 * MS});
        }
        open_both();
        rest(1200 * MS); /* the rates of the NICs' clocks are measured over a second */
        struct sum sum = run(0, 300 * MS);
        printf("%zu records, %zu answered, %zu with all stamps\n", sum.count, sum.answered,
               sum.stamped);
        CHECK(sum.answered > 100 && sum.stamped > 100);
        rtt_ns[by_nic] = sum.least_rtt_ns;
        struct syn_probe_nic_status status;
        CHECK_EQUAL(syn_probe_read_nic_status(ends[0].verbs, &status, 1), 1);
        CHECK(strstr(status.reason, by_nic ? "stamped by the NIC" : "stamped by the engine"));
        close_both();
        for (int at = 0; at < ENDS; at++) {
            fake.set_fault(at, &(struct fake_fault){0});
            fake.set_machine(at, &(struct fake_machine){0});
        }
    }
    printf("least round trip: engine %" PRId64 " us, NIC %" PRId64 " us\n", rtt_ns[0] / 1000,
           rtt_ns[1] / 1000);
    CHECK(rtt_ns[0] > 2 * MS);
    CHECK(rtt_ns[1] > 0 && rtt_ns[1] < 1 * MS);
}

static void infiniband(void)
{
    for (int at = 0; at < ENDS; at++)
        fake.set_machine(at, &(struct fake_machine){.infiniband = 1});
    open_both();
    until(0, 0, 100);
    close_both();
    for (int at = 0; at < ENDS; at++)
        fake.set_machine(at, &(struct fake_machine){0});
}

static void lacks(struct fake_machine machine, const char *word)
{
    char message[256] = "";
    ends[0].verbs = open_engine(SYN_PLANE_VERBS);
    fake.set_machine(0, &machine);
    CHECK_EQUAL(attach(0, message), SYN_ERROR_MISSING);
    if (strstr(message, word) == NULL)
        fprintf(stderr, "%s\n", message);
    CHECK(strstr(message, word) != NULL);
    fake.set_machine(0, &(struct fake_machine){0});
    CHECK_EQUAL(attach(0, message), SYN_OK); /* it has come */
    CHECK(syn_probe_check(ends[0].verbs, 0, message));
    syn_probe_close(ends[0].verbs);
}

static void missing(void)
{
    lacks((struct fake_machine){.old_gid = 1}, "RoCE v1 only");
    lacks((struct fake_machine){.no_memory = 1}, "ulimit -l");
    lacks((struct fake_machine){.few_queues = 1}, "queue pair");
    char message[256] = "";
    struct syn_probe_nic nic = nic_of(100, SYN_PLANE_VERBS, 1);
    ends[0].verbs = open_engine(SYN_PLANE_VERBS);
    CHECK_EQUAL(syn_probe_attach(ends[0].verbs, 0, &nic, message), SYN_ERROR_ABSENT);
    CHECK(strstr(message, "no RDMA device has the address of lo") != NULL);
    /* Queue pairs for the reflector and one source port: flows of the others are refused whole. */
    fake.set_machine(0, &(struct fake_machine){.few_queues = 1, .queues_left = 2});
    CHECK_EQUAL(attach(0, message), SYN_OK);
    struct syn_probe_flow flows[2] = {flow_to(1, 0), flow_to(1, 1)};
    flows[0].dst_port = flows[1].dst_port = 1;
    CHECK_EQUAL(syn_probe_set_flows(ends[0].verbs, flows, 2, message), SYN_ERROR_MISSING);
    CHECK(strstr(message, "queue pair") != NULL);
    CHECK_EQUAL(syn_probe_set_flows(ends[0].verbs, flows, 1, message), SYN_ERROR_MISSING);
    fake.set_machine(0, &(struct fake_machine){0});
    CHECK_EQUAL(syn_probe_set_flows(ends[0].verbs, flows, 2, message), SYN_OK);
    syn_probe_close(ends[0].verbs);
}

/* The device fails and comes back; over UDP everything goes on. */
static void gone(void)
{
    char message[256] = "";
    open_both();
    CHECK(syn_probe_check(ends[0].verbs, 0, message));
    fake.fail_device(0);
    CHECK(!syn_probe_check(ends[0].verbs, 0, message));
    CHECK(strstr(message, "gone") != NULL);
    syn_probe_detach(ends[0].verbs, 0);
    CHECK(!syn_probe_check(ends[0].verbs, 0, message));
    offer(0);
    struct syn_verbs_endpoint told = ask(1);
    CHECK(told.known && told.qpn == 0);
    rest(200 * MS);
    CHECK_EQUAL(run(0, 100 * MS).answered, 0);
    CHECK_EQUAL(attach(0, message), SYN_OK);
    meet(0);
    meet(1);
    rest(200 * MS);
    until(0, 0, 50);
    fake.set_machine(0, &(struct fake_machine){.refusing = 1});
    rest(250 * MS);
    struct sum refused = run(0, 200 * MS); /* not sent, which is not lost */
    CHECK(refused.count > 50);
    CHECK_EQUAL(refused.answered + refused.forward + refused.reverse + refused.unknown, 0);
    fake.set_machine(0, &(struct fake_machine){0});
    close_both();
}

/* Datagrams of a stranger, of every length and with a genuine packet's bytes changed. */
static void strangers(uint64_t seed)
{
    open_both();
    int devices;
    struct ibv_device **list = verbs.get_device_list(&devices);
    struct ibv_context *context = verbs.open_device(list[2]);
    verbs.free_device_list(list);
    struct ibv_pd *pd = verbs.alloc_pd(context);
    static uint8_t data[4096];
    struct ibv_mr *mr = verbs.reg_mr(pd, data, sizeof data, IBV_ACCESS_LOCAL_WRITE);
    struct ibv_cq *cq = verbs.create_cq(context, 16, NULL, NULL, 0);
    struct ibv_qp_init_attr init = {.send_cq = cq, .recv_cq = cq, .qp_type = IBV_QPT_UD};
    struct ibv_qp *qp = verbs.create_qp(pd, &init);
    struct ibv_qp_attr attr = {.qp_state = IBV_QPS_RTS};
    CHECK(verbs.modify_qp(qp, &attr, IBV_QP_STATE) == 0);
    struct syn_verbs_endpoint told = ask(0);
    struct ibv_ah_attr to = {.is_global = 1};
    memcpy(to.grh.dgid.raw, told.gid, 16);
    struct ibv_ah *ah = verbs.create_ah(pd, &to);
    struct syn_packet packet = {.type = SYN_PACKET_REQUEST, .src_nic = 1, .dst_nic = 2,
                                .flow_id = 99, .epoch = 7};
    struct syn_packet_key key = {.id = 1};
    memcpy(key.bytes, KEY, sizeof KEY);
    uint64_t state = seed * 0x9e3779b97f4a7c15u | 1;
    setvbuf(stdout, NULL, _IOLBF, 0);
    printf("seed %" PRIu64 "\n", seed);
    struct syn_probe_counters before, after;
    syn_probe_read_counters(ends[1].verbs, &before);
    for (int i = 0; i < 3000; i++) {
        state ^= state << 13, state ^= state >> 7, state ^= state << 17;
        syn_packet_encode(&packet, &key, data);
        uint32_t length = state % 3 ? SYN_PACKET_BYTES : (uint32_t)(state >> 8) % sizeof data;
        data[(state >> 20) % SYN_PACKET_BYTES] ^= (uint8_t)(1 + (state >> 32) % 255);
        struct ibv_sge sge = {(uintptr_t)data, length, mr->lkey};
        struct ibv_send_wr wr = {.sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_SEND,
                                 .wr.ud = {ah, told.qpn, 0x53594e50}}, *bad;
        CHECK(ibv_post_send(qp, &wr, &bad) == 0);
        for (int waits = 0; i % 100 == 99 && waits < 40; waits++) { /* else receives run out */
            rest(5 * MS);
            syn_probe_read_counters(ends[1].verbs, &after);
            uint64_t counted = after.malformed + after.foreign - before.malformed - before.foreign;
            if (10 * counted > 9 * (uint64_t)i)
                break;
        }
    }
    CHECK(after.malformed + after.foreign - before.malformed - before.foreign > 2000);
    char message[256];
    CHECK(syn_probe_check(ends[1].verbs, 0, message));
    until(0, 0, 100);
    verbs.destroy_ah(ah);
    verbs.destroy_qp(qp);
    verbs.destroy_cq(cq);
    verbs.dereg_mr(mr);
    verbs.dealloc_pd(pd);
    verbs.close_device(context);
    close_both();
}

/* A plan that changes while NICs come and go and everything is read: for the sanitizers. */
static void churn(void)
{
    open_both();
    for (int round = 0; round < 25; round++) {
        char message[256] = "";
        int at = round % 2;
        if (round % 5 == 3) {
            syn_probe_detach(ends[at].verbs, 0);
            offer(at);
            CHECK_EQUAL(attach(at, message), SYN_OK);
        }
        if (round % 4 == 1)
            CHECK_EQUAL(syn_probe_set_flows(ends[at].verbs, NULL, 0, message), SYN_OK);
        meet(at);
        plan(at);
        drain(0), drain(1);
        syn_probe_check(ends[at].verbs, 0, message);
    }
    for (int at = 0; at < ENDS; at++)
        meet(at);
    rest(200 * MS);
    until(0, 0, 50);
    close_both();
}

int main(int count, char **words)
{
    CHECK(count == 4);
    load_fake(words[1]);
    setenv("SYNTONY_IBVERBS", words[1], 1);
    uint64_t seed = strtoull(words[3], NULL, 10);
    seed = seed ? seed : (uint64_t)time(NULL);
    const struct {
        const char *name;
        void (*run)(void);
    } cases[] = {{"pairs", pairs},     {"classes", classes},       {"restart", restart},
                 {"stamps", stamps},   {"infiniband", infiniband}, {"missing", missing},
                 {"gone", gone},       {"churn", churn}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        if (strcmp(words[2], cases[i].name) == 0) {
            cases[i].run();
            return 0;
        }
    if (strcmp(words[2], "losses") == 0)
        losses(seed);
    else if (strcmp(words[2], "strangers") == 0)
        strangers(seed);
    else
        CHECK(0);
    return 0;
}
