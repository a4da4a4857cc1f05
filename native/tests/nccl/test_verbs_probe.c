/* Probes over verbs, on the fake provider. test_verbs_probe PROVIDER CASE SEED */
#include <inttypes.h>
#include <sched.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <time.h>

#include "syn_packet.h"
#include "verbs.h"
#include "verbs_ends.h"

static bool all_is_well(const struct sum *sum)
{
    return sum->forward + sum->reverse <= sum->answered / 20 && sum->stamped > sum->answered * 9 / 10 &&
           sum->seen == (1u << FLOWS) - 1 && sum->least_rtt_ns > 0 && sum->least_rtt_ns < 50 * MS;
}

static void pairs(void)
{
    open_both();
    struct sum sum = until(0, 0, 300);
    /* What the provider's own thread delivers too late on a busy machine counts as lost: not again and again. */
    for (int i = 0; !all_is_well(&sum); i++) {
        printf("%zu answered, %zu with all stamps, %zu and %zu lost\n", sum.answered, sum.stamped, sum.forward,
               sum.reverse);
        CHECK(i < TRIES);
        sum = until(0, 0, 300);
    }
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
        for (int at = 0; at < ENDS; at++) {
            struct fake_datagrams seen;
            int waits = 0;
            do { /* others may be on their way */
                rest(50 * MS);
                fake.datagrams(at, &seen);
            } while ((seen.traffic_class != dscp << 2 || seen.label != flow.flow_label) && ++waits < HANG_S * 20);
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
        counted_since_ns = real_ns();
        until(0, 6000, 0); /* what is lost is reported later than what is answered */
        struct sum sum;
        double share;
        bool is_plain;
        int tries = 0;
        do { /* the network's thread may be late: that counts as lost, but not again and again */
            sum = until(0, 6000, 0);
            size_t lost = side == 0 ? sum.forward : sum.reverse;
            size_t wrong = side == 0 ? sum.reverse : sum.forward;
            share = (double)lost / (double)sum.count;
            printf("side %d, %d permille: %zu of %zu, %zu unknown, %zu wrong, %zu while stalled\n",
                   side, permille, lost, sum.count, sum.unknown, wrong, sum.stalled);
            is_plain = share < permille * 1.4e-3 && wrong <= sum.count / 50;
        } while (!is_plain && ++tries < TRIES);
        CHECK(is_plain);
        fake.set_fault(side, &(struct fake_fault){0});
        rest(250 * MS);
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
    counted_since_ns = real_ns(); /* what was answered before may be reported late */
    CHECK_EQUAL(until(0, 51, 0).answered, 0);
    offer(1);
    struct syn_verbs_endpoint remote = ask(0);
    CHECK(remote.qpn != 0 && remote.qpn != before.qpn);
    CHECK_EQUAL(route(0, &remote), 8);
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
        struct sum sum = until(0, 0, 101);
        printf("%zu records, %zu answered, %zu with all stamps\n", sum.count, sum.answered,
               sum.stamped);
        CHECK(sum.stamped > 0);
        for (int i = 0; by_nic && sum.least_rtt_ns >= 1 * MS; i++) { /* the network's thread was late */
            CHECK(i < TRIES);
            sum = until(0, 0, 101);
        }
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

/* What the kernel says of loopback's hardware address. */
static void say_address(const char *text)
{
    FILE *file = fopen("/sys/class/net/lo/address", "w");
    CHECK(file != NULL && fputs(text, file) > 0 && fclose(file) == 0);
}

/* An IPoIB interface's address is not among its port's GIDs: the end of its hardware address is one. */
static void ipoib(void)
{
    enum { SKIPPED = 77 };
    char message[256] = "";
    struct syn_probe_nic nic = nic_of(0, SYN_PLANE_VERBS, 1);
    struct syn_verbs_endpoint own;
    if (unshare(CLONE_NEWNS) || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) ||
        mount("none", "/sys/class/net", "tmpfs", 0, NULL) || mkdir("/sys/class/net/lo", 0755))
        exit(SKIPPED);
    memcpy(nic.address, (uint8_t[4]){192, 168, 1, 1}, 4);
    for (int at = 0; at < FAKE_PORTS; at++)
        fake.set_machine(at, &(struct fake_machine){.infiniband = 1, .gid_kind = 2});
    ends[0].verbs = open_engine(SYN_PLANE_VERBS);
    say_address("00:00:00:00:00:03\n");
    CHECK_EQUAL(syn_probe_attach(ends[0].verbs, 0, &nic, message), SYN_ERROR_ABSENT);
    say_address("80:00:00:48:fe:80:00:00:00:00:00:00:00:00:00:00:00:00:00:33\n"); /* another port */
    CHECK_EQUAL(syn_probe_attach(ends[0].verbs, 0, &nic, message), SYN_ERROR_ABSENT);
    say_address("80:00:00:48:fe:80:00:00:00:00:00:00:00:00:00:00:00:00:00:03\n");
    CHECK_EQUAL(syn_probe_attach(ends[0].verbs, 0, &nic, message), SYN_OK);
    CHECK_EQUAL(syn_probe_read_endpoints(ends[0].verbs, &own, 1), 1);
    CHECK(own.infiniband && own.lid == 3 && own.gid[0] == 0xfe && own.gid[15] == 3);
    syn_probe_close(ends[0].verbs);
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

/* Ways to a peer that is gone take long to fail: one call takes about two seconds, and the next one goes on with
 * those behind them. What is known is not made again. */
static void ways(void)
{
    enum { GONE = 4, ALL = 6 };
    struct syn_verbs_route routes[ALL];
    char message[256] = "";
    fake.set_machine(0, &(struct fake_machine){.unanswered_ns = 700 * MS});
    ends[0].verbs = open_engine(SYN_PLANE_VERBS);
    CHECK_EQUAL(attach(0, message), SYN_OK);
    for (uint32_t i = 0; i < ALL; i++)
        routes[i] = (struct syn_verbs_route){.dst_nic_id = i < GONE ? 2 : 3, .qpn = 1, .flow_label = i,
                                             .gid = {[10] = 0xff, [11] = 0xff, [12] = 10,
                                                     [15] = i < GONE ? 9 : 3}};
    CHECK_EQUAL(syn_probe_set_routes(ends[0].verbs, routes, ALL, message), 0);
    CHECK(strstr(message, "no way to a peer (Connection timed out)") != NULL);
    size_t made = 0;
    for (int i = 0; i < TRIES && made == 0; i++) /* once, unless this machine is busy */
        made = syn_probe_set_routes(ends[0].verbs, routes, ALL, message);
    CHECK_EQUAL(made, ALL - GONE);
    int objects = fake.objects();
    CHECK_EQUAL(syn_probe_set_routes(ends[0].verbs, routes + GONE, ALL - GONE, message), ALL - GONE);
    CHECK_EQUAL(message[0], '\0');
    CHECK_EQUAL(fake.objects(), objects);
    routes[GONE].qpn++; /* another one: what was on its way to the old one may still be */
    CHECK_EQUAL(syn_probe_set_routes(ends[0].verbs, routes + GONE, 1, message), 1);
    CHECK_EQUAL(fake.objects(), objects + 1);
    CHECK_EQUAL(syn_probe_set_routes(ends[0].verbs, routes + GONE, 1, message), 1);
    CHECK_EQUAL(fake.objects(), objects - 1);
    syn_probe_close(ends[0].verbs);
    fake.set_machine(0, &(struct fake_machine){0});
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
    struct syn_verbs_endpoint remote = ask(1);
    CHECK(remote.known && remote.qpn == 0);
    counted_since_ns = real_ns(); /* what was answered before may be reported late */
    rest(200 * MS);
    CHECK_EQUAL(run(0, 100 * MS).answered, 0);
    CHECK_EQUAL(attach(0, message), SYN_OK);
    meet(0);
    meet(1);
    rest(200 * MS);
    until(0, 0, 50);
    fake.set_machine(0, &(struct fake_machine){.refusing = 1});
    counted_since_ns = real_ns();
    struct sum refused = until(0, 51, 0); /* not sent, which is not lost */
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
    struct syn_verbs_endpoint remote = ask(0);
    struct ibv_ah_attr to = {.is_global = 1};
    memcpy(to.grh.dgid.raw, remote.gid, 16);
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
                                 .wr.ud = {ah, remote.qpn, 0x53594e50}}, *bad;
        CHECK(ibv_post_send(qp, &wr, &bad) == 0);
        uint64_t counted = 0, lost = 0;
        for (int waits = 0; i % 100 == 99 && 10 * (counted + lost) <= 9 * (uint64_t)i; waits++) { /* else receives run out */
            CHECK(waits < HANG_S * 200);
            rest(5 * MS);
            struct fake_datagrams seen;
            fake.datagrams(2, &seen);
            syn_probe_read_counters(ends[1].verbs, &after);
            counted = after.malformed + after.foreign - before.malformed - before.foreign;
            lost = seen.no_room;
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
                 {"ipoib", ipoib},
                 {"gone", gone},       {"churn", churn},           {"ways", ways}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        if (strcmp(words[2], cases[i].name) == 0) {
            cases[i].run();
            CHECK_EQUAL(fake.objects(), 0);
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
