#include "verbs_ends.h"

#include <arpa/inet.h>
#include <dlfcn.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

struct fake_calls fake;

struct end ends[ENDS];
struct syn_probe_record records[RECORDS];
const uint8_t KEY[16] = "sixteen byte key";

void load_fake(const char *path)
{
    void *loaded = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    CHECK(loaded != NULL);
    *(void **)&fake.set_fault = dlsym(loaded, "fake_set_fault");
    *(void **)&fake.set_machine = dlsym(loaded, "fake_set_machine");
    *(void **)&fake.datagrams = dlsym(loaded, "fake_datagrams");
    *(void **)&fake.objects = dlsym(loaded, "fake_objects");
    *(void **)&fake.fail_device = dlsym(loaded, "fake_fail_device");
    *(void **)&fake.ticks_at = dlsym(loaded, "fake_ticks_at");
}

void rest(int64_t ns)
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

struct syn_probe_nic nic_of(int at, int plane, uint16_t port)
{
    struct syn_probe_nic nic = {.nic_id = (uint32_t)at + 1, .port = port, .family = 4,
                                .ifname = "lo", .address = {127, 0, 0, 1}};
    if (plane == SYN_PLANE_VERBS)
        memcpy(nic.address, (uint8_t[4]){10, 0, 0, (uint8_t)(at + 1)}, 4);
    return nic;
}

struct syn_probe_engine *open_engine(int plane)
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

int attach(int at, char *message)
{
    struct syn_probe_nic nic = nic_of(at, SYN_PLANE_VERBS, 1);
    return syn_probe_attach(ends[at].verbs, 0, &nic, message);
}

void open_end(int at)
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

void close_end(int at)
{
    syn_probe_close(ends[at].verbs);
    syn_probe_close(ends[at].udp);
}

struct syn_probe_flow flow_to(int dst, uint32_t at)
{
    struct syn_probe_flow flow = {
        .flow_id = at, .dst_nic_id = (uint32_t)dst + 1, .flow_label = 0x12340 + at % 4,
        .src_port = (uint16_t)(61000 + at % 4), .dst_port = ends[dst].port, .family = 4,
        .dscp = at < FLOWS / 2 ? 0 : 26, .interval_ns = 2 * MS, .dst_address = {127, 0, 0, 1}};
    return flow;
}

void offer(int at)
{
    struct syn_verbs_endpoint own;
    CHECK_EQUAL(syn_probe_read_endpoints(ends[at].verbs, &own, 1), 1);
    syn_probe_offer(ends[at].udp, &own, 1);
}

struct syn_verbs_endpoint ask(int at)
{
    struct syn_verbs_endpoint remote = {0};
    struct syn_probe_flow flow = flow_to(1 - at, 0);
    char message[256] = "";
    CHECK_EQUAL(syn_probe_ask(ends[at].udp, &flow, 1, message), SYN_OK);
    rest(60 * MS); /* both engines may rest, and the answer before may be of another time */
    for (int i = 0; i < HANG_S * 50 && !remote.known; i++) {
        rest(20 * MS);
        CHECK_EQUAL(syn_probe_read_answers(ends[at].udp, &remote, 1), 1);
    }
    return remote;
}

size_t route(int at, const struct syn_verbs_endpoint *remote)
{
    struct syn_verbs_route routes[FLOWS];
    char message[256] = "";
    for (uint32_t i = 0; i < FLOWS; i++) {
        struct syn_probe_flow flow = flow_to(1 - at, i);
        routes[i] = (struct syn_verbs_route){.dst_nic_id = remote->nic_id, .qpn = remote->qpn,
                                             .flow_label = flow.flow_label, .lid = remote->lid,
                                             .dscp = flow.dscp, .sl = flow.dscp ? 3 : 0};
        memcpy(routes[i].gid, remote->gid, sizeof remote->gid);
    }
    return syn_probe_set_routes(ends[at].verbs, routes, FLOWS, message);
}

void meet(int at)
{
    offer(1 - at);
    struct syn_verbs_endpoint remote = ask(at);
    CHECK_EQUAL(remote.nic_id, (uint32_t)(1 - at) + 1);
    CHECK(remote.known && remote.qpn != 0 && remote.gid[15] == 1 - at + 1);
    CHECK_EQUAL(route(at, &remote), 8); /* four labels in two classes */
}

void plan(int at)
{
    struct syn_probe_flow flows[FLOWS];
    char message[256] = "";
    for (uint32_t i = 0; i < FLOWS; i++)
        flows[i] = flow_to(1 - at, i);
    CHECK_EQUAL(syn_probe_set_flows(ends[at].verbs, flows, FLOWS, message), SYN_OK);
}

void open_both(void)
{
    for (int at = 0; at < ENDS; at++)
        open_end(at);
    for (int at = 0; at < ENDS; at++)
        meet(at);
    for (int at = 0; at < ENDS; at++)
        plan(at);
}

void close_both(void)
{
    for (int at = 0; at < ENDS; at++)
        close_end(at);
}

size_t drain_records(int at)
{
    return syn_probe_drain(ends[at].verbs, records, RECORDS);
}

int64_t real_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

int64_t counted_since_ns;

struct sum drain(int at)
{
    struct sum sum = {.least_rtt_ns = INT64_MAX};
    size_t count = drain_records(at);
    for (size_t i = 0; i < count; i++) {
        const struct syn_probe_record *record = &records[i];
        CHECK(record->flow_id < FLOWS && record->nic_id == (uint32_t)at + 1);
        if (record->sent_ns < counted_since_ns)
            continue;
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

struct sum run(int at, int64_t ns)
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

struct sum until(int at, size_t reported, size_t answered)
{
    struct sum all = run(at, 100 * MS);
    for (int i = 0; all.count < reported || all.answered < answered; i++) {
        CHECK(i < HANG_S * 10);
        rest(100 * MS);
        struct sum more = drain(at);
        add(&all, &more);
    }
    return all;
}
