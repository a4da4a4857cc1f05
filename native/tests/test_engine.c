/* Two engines over loopback while another thread keeps changing plans, keys and reading everything:
 * for the sanitizers. That the measurements are right is the business of the Python tests. */
#include <arpa/inet.h>
#include <sched.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "check.h"
#include "engine.h"

enum { ROUNDS = 60, FLOWS = 24, BACKLOG = 4 * SYN_BATCH };

static const uint8_t KEY[16] = "sixteen byte key", NEXT_KEY[16] = "another key here";

/* Below the range of ephemeral ports: tests that run at the same time use those, and one took a
 * source port between here and the plan that names it. */
static uint16_t free_port(void)
{
    static uint16_t port;
    if (port == 0)
        port = (uint16_t)(10000 + getpid() * 97 % 12000);
    for (int tries = 0; tries < 1000; tries++) {
        int fd = socket(AF_INET, SOCK_DGRAM, 0);
        struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(++port),
                                      .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
        int taken = bind(fd, (struct sockaddr *)&address, sizeof address) != 0;
        close(fd);
        if (!taken)
            return port;
    }
    CHECK(!"no free port");
    return 0;
}

/* The peers are NICs 1 and 2, unsorted and among others. */
static void rekey(struct syn_probe_engine *engine, int round)
{
    struct syn_probe_peer peers[4];
    char message[256] = "";
    for (uint32_t i = 0; i < 4; i++) {
        peers[i] = (struct syn_probe_peer){.nic_id = 4 - i, .key_id = 1 + (uint32_t)round / 20,
                                           .other_id = 1};
        memcpy(peers[i].key, round < 20 ? KEY : NEXT_KEY, sizeof KEY);
        memcpy(peers[i].other, KEY, sizeof KEY);
    }
    CHECK_EQUAL(syn_probe_set_peers(engine, peers, 4, message), SYN_OK);
}

static struct syn_probe_nic nic_of(uint32_t nic_id, uint16_t port)
{
    return (struct syn_probe_nic){.nic_id = nic_id, .port = port, .family = 4, .ifname = "lo",
                                  .address = {127, 0, 0, 1}};
}

/* Away, refused for its address, and back. */
static void come_and_go(struct syn_probe_engine *engine, uint32_t nic_id, uint16_t port)
{
    char message[256] = "";
    struct syn_probe_nic nic = nic_of(nic_id, port);
    syn_probe_detach(engine, 0);
    nic.address[0] = 198;
    CHECK_EQUAL(syn_probe_attach(engine, 0, &nic, message), SYN_ERROR_MISSING);
    CHECK(message[0] != '\0');
    nic.address[0] = 127;
    CHECK_EQUAL(syn_probe_attach(engine, 0, &nic, message), SYN_OK);
}

static struct syn_probe_engine *open_nics(uint32_t nic_id, const uint16_t *ports, size_t count,
                                          struct syn_clock *clock)
{
    struct syn_probe_options options = {.timeout_ns = 200000000, .min_gap_ns = 20000,
                                        .stall_ns = 5000000, .ring_records = 1024};
    int error = -1;
    char message[256] = "";
    struct syn_probe_engine *engine = syn_probe_open(count, &options, clock, &error, message);
    if (engine == NULL)
        fprintf(stderr, "%s\n", message);
    CHECK(engine != NULL && error == SYN_OK);
    for (size_t i = 0; i < count; i++) {
        struct syn_probe_nic nic = nic_of(nic_id, ports[i]);
        CHECK_EQUAL(syn_probe_attach(engine, i, &nic, message), SYN_OK);
    }
    rekey(engine, 0);
    CHECK_EQUAL(syn_probe_start(engine, message), SYN_OK);
    return engine;
}

static struct syn_probe_engine *open_engine(uint32_t nic_id, uint16_t port, struct syn_clock *clock)
{
    return open_nics(nic_id, &port, 1, clock);
}

static void plan(struct syn_probe_engine *engine, int round, const uint16_t *ports, uint16_t to)
{
    struct syn_probe_flow flows[FLOWS] = {0};
    char message[256] = "";
    for (uint32_t i = 0; i < FLOWS; i++)
        flows[i] = (struct syn_probe_flow){
            .flow_id = i + (i < FLOWS / 2 ? 0 : (uint32_t)round), .dst_nic_id = 2, .family = 4,
            .src_port = ports[(i + (uint32_t)round) % 3], .dst_port = to, .interval_ns = 2000000,
            .dscp = (uint8_t)(i % 2), .dst_address = {127, 0, 0, 1}};
    /* Every other plan is refused for its last flow. */
    if (round % 2)
        flows[FLOWS - 1].dscp = 200;
    int failed = syn_probe_set_flows(engine, flows, FLOWS, message);
    CHECK_EQUAL(failed, round % 2 ? SYN_ERROR_USAGE : SYN_OK);
    CHECK((message[0] != '\0' && strstr(message, "DSCP") != NULL) == round % 2);
}

/* Ids that the plan has too, other intervals and ports each round; every third set is refused. */
static void watch(struct syn_probe_engine *engine, int round, const uint16_t *ports, uint16_t to)
{
    struct syn_probe_flow flows[FLOWS];
    char message[256] = "";
    size_t count = (size_t)(round % FLOWS);
    for (uint32_t i = 0; i < FLOWS; i++)
        flows[i] = (struct syn_probe_flow){
            .flow_id = i + (uint32_t)(round / 4), .dst_nic_id = 2, .family = 4,
            .src_port = ports[i % 3], .dst_port = to, .interval_ns = 1000000 * (1 + round % 5),
            .dscp = (uint8_t)(i % 2), .dst_address = {127, 0, 0, 1}};
    int refused = round % 3 == 0 && count > 0;
    if (refused)
        flows[count - 1].interval_ns = 1;
    CHECK_EQUAL(syn_probe_set_watches(engine, flows, count, message),
                refused ? SYN_ERROR_USAGE : SYN_OK);
}

static uint64_t read_all(struct syn_probe_engine *engine)
{
    static struct syn_probe_record records[256];
    static struct syn_probe_heard heard[4];
    static struct syn_probe_nic_status status[1];
    struct syn_probe_counters counters;
    size_t count = syn_probe_drain(engine, records, 256);
    for (size_t i = 0; i < count; i++)
        CHECK(records[i].sent_ns != 0 && records[i].dst_nic_id == 2);
    CHECK(syn_probe_read_heard(engine, heard, 4) <= 1);
    CHECK_EQUAL(syn_probe_read_nic_status(engine, status, 1), 1);
    syn_probe_read_counters(engine, &counters);
    static struct syn_liveness_event events[8];
    static struct syn_watch_status watched[FLOWS];
    CHECK(syn_probe_liveness_fd(engine) >= 0);
    CHECK(syn_probe_take_liveness(engine, events, 8) <= 8);
    CHECK(syn_probe_read_watches(engine, watched, FLOWS) <= FLOWS);
    return counters.received;
}

/* Requests of a flow to a reflector, from a socket that stamps arriving answers. */
static int ask(uint16_t port, uint32_t flow_id)
{
    int fd = socket(AF_INET, SOCK_DGRAM, 0), on = 1;
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons(port),
                             .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    CHECK(setsockopt(fd, SOL_SOCKET, SO_TIMESTAMPNS, &on, sizeof on) == 0);
    CHECK(connect(fd, (struct sockaddr *)&to, sizeof to) == 0);
    struct syn_packet_key key = {.id = 1};
    memcpy(key.bytes, KEY, sizeof KEY);
    for (uint32_t seq = 0; seq < BACKLOG; seq++) {
        struct syn_packet packet = {.type = SYN_PACKET_REQUEST, .src_nic = 3, .dst_nic = 2,
                                    .flow_id = flow_id, .seq = seq, .epoch = 1};
        uint8_t data[SYN_PACKET_BYTES];
        syn_packet_encode(&packet, &key, data);
        CHECK_EQUAL(send(fd, data, sizeof data, 0), SYN_PACKET_BYTES);
    }
    return fd;
}

/* When the kernel took the next answer. */
static int64_t answered_ns(int fd)
{
    uint8_t data[SYN_PACKET_BYTES], control[64];
    struct iovec vector = {data, sizeof data};
    struct msghdr header = {.msg_iov = &vector, .msg_iovlen = 1, .msg_control = control,
                            .msg_controllen = sizeof control};
    struct timespec at;
    CHECK_EQUAL(recvmsg(fd, &header, 0), SYN_PACKET_BYTES);
    memcpy(&at, CMSG_DATA(CMSG_FIRSTHDR(&header)), sizeof at);
    return (int64_t)at.tv_sec * 1000000000 + at.tv_nsec;
}

/* What has gathered at two reflectors while nobody read it is answered at both in turn, also if the
 * thread knew only of the first when it began to wait for its turn. */
static void answers_are_given_at_all_nics_alike(void)
{
    uint16_t ports[2] = {free_port(), free_port()};
    struct syn_probe_engine *engine = open_nics(2, ports, 2, NULL);
    int fds[2];
    int64_t first_ns[2], last_ns[2];
    usleep(20000);
    syn_engine_visit(engine);
    for (int i = 0; i < 2; i++) {
        fds[i] = ask(ports[i], 7 + (uint32_t)i);
        usleep(20000);
    }
    syn_engine_leave(engine);
    for (int i = 0; i < 2; i++) {
        first_ns[i] = answered_ns(fds[i]);
        for (int n = 1; n < BACKLOG; n++)
            last_ns[i] = answered_ns(fds[i]);
        close(fds[i]);
    }
    CHECK(first_ns[0] < last_ns[1] && first_ns[1] < last_ns[0]);
    syn_probe_close(engine);
}

static int64_t now_ns(void)
{
    return syn_clock_read(CLOCK_MONOTONIC);
}

static void set_watch(struct syn_probe_engine *engine, int64_t interval_ns, uint16_t to)
{
    struct syn_probe_flow flow = {.flow_id = 99, .dst_nic_id = 2, .family = 4, .dst_port = to,
                                  .src_port = free_port(), .interval_ns = interval_ns,
                                  .dst_address = {127, 0, 0, 1}};
    char message[256] = "";
    CHECK_EQUAL(syn_probe_set_watches(engine, &flow, 1, message), SYN_OK);
}

/* Nobody answers, and paths are watched anew all the time: all stalls together are no longer than
 * what has passed, and every probe is given up in the end. */
static void watches_that_change_hide_no_loss(void)
{
    uint16_t port = free_port(), to = free_port(), sources[3] = {free_port(), free_port(), free_port()};
    int64_t begun_ns = now_ns();
    struct syn_probe_engine *engine = open_engine(1, port, NULL);
    struct syn_probe_record records[256];
    struct syn_probe_counters counters;
    plan(engine, 0, sources, to);
    unsigned lost = 0;
    while (lost < 500) {
        set_watch(engine, 5000000, to);
        usleep(20000);
        size_t count = syn_probe_drain(engine, records, 256);
        for (size_t i = 0; i < count; i++)
            lost += (records[i].flags & SYN_LOST_UNKNOWN) != 0;
        syn_probe_read_counters(engine, &counters);
        CHECK(counters.stall_ns <= (uint64_t)(now_ns() - begun_ns));
    }
    syn_probe_close(engine);
}

/* On one core the thread begins only when everything has been set: that is no stall since the
 * host was started. */
static void a_late_first_turn_is_no_stall_since_boot(void)
{
    cpu_set_t all, one;
    CHECK_EQUAL(sched_getaffinity(0, sizeof all, &all), 0);
    CPU_ZERO(&one);
    for (int cpu = 0; cpu < CPU_SETSIZE && CPU_COUNT(&one) == 0; cpu++)
        if (CPU_ISSET(cpu, &all))
            CPU_SET(cpu, &one);
    CHECK_EQUAL(sched_setaffinity(0, sizeof one, &one), 0);
    for (int i = 0; i < 20; i++) {
        uint16_t to = free_port(), sources[3] = {free_port(), free_port(), free_port()};
        struct syn_probe_counters counters;
        int64_t begun_ns = now_ns();
        struct syn_probe_engine *engine = open_engine(1, free_port(), NULL);
        plan(engine, 0, sources, to);
        set_watch(engine, 5000000, to);
        usleep(20000);
        syn_probe_read_counters(engine, &counters);
        CHECK(counters.stall_ns <= (uint64_t)(now_ns() - begun_ns));
        syn_probe_close(engine);
    }
    CHECK_EQUAL(sched_setaffinity(0, sizeof all, &all), 0);
}

/* What can no longer be asked cannot be judged either: the thread rests until its next turn. */
static void a_watch_without_a_key_keeps_nobody_busy(void)
{
    struct syn_probe_engine *engine = open_engine(1, free_port(), NULL);
    struct syn_probe_peer stranger = {.nic_id = 4, .key_id = 1, .other_id = 1};
    char message[256] = "";
    uint32_t misses = 0;
    set_watch(engine, 50000000, free_port());
    while (misses < SYN_MISSES) {
        syn_engine_visit(engine);
        misses = syn_liveness_misses(&engine->watches.set[0]->live);
        syn_engine_leave(engine);
        usleep(1000);
    }
    CHECK_EQUAL(syn_probe_set_peers(engine, &stranger, 1, message), SYN_OK);
    usleep(500000);
    syn_engine_visit(engine);
    uint64_t before = engine->turns;
    syn_engine_leave(engine);
    usleep(500000);
    syn_engine_visit(engine);
    CHECK(engine->turns - before < 200);
    syn_engine_leave(engine);
    syn_probe_close(engine);
}

int main(void)
{
    watches_that_change_hide_no_loss();
    a_late_first_turn_is_no_stall_since_boot();
    a_watch_without_a_key_keeps_nobody_busy();
    answers_are_given_at_all_nics_alike();
    struct syn_clock_spec spec = {.base_ns = 1700000000, .offset_ns = 5, .drift_ppb = 1000,
                                  .swing_period_ns = 1000000000};
    struct syn_clock *clock = syn_clock_open(&spec, NULL, 0);
    CHECK(clock != NULL);
    uint16_t port = free_port(), local_port = free_port(), ports[3] = {free_port(), free_port(), free_port()};
    struct syn_probe_engine *local = open_engine(1, local_port, clock);
    struct syn_probe_engine *remote = open_engine(2, port, NULL);
    uint64_t received = 0;
    for (int round = 0; round < ROUNDS; round++) {
        plan(local, round, ports, port);
        watch(local, round, ports, port);
        rekey(local, round);
        rekey(remote, round);
        if (round % 7 == 3)
            come_and_go(local, 1, local_port);
        nanosleep(&(struct timespec){0, 20000000}, NULL);
        received = read_all(local) + read_all(remote);
    }
    CHECK(received > 100);
    syn_probe_close(local);
    syn_probe_close(remote);
    syn_clock_close(clock);
    return 0;
}
