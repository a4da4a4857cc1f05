/* Two engines over loopback while another thread keeps changing plans, keys and reading everything:
 * for the sanitizers. That the measurements are right is the business of the Python tests. */
#include <arpa/inet.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "check.h"
#include "syn_probe.h"

enum { ROUNDS = 60, FLOWS = 24 };

static const uint8_t KEY[16] = "sixteen byte key", NEXT_KEY[16] = "another key here";

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

static struct syn_probe_engine *open_engine(uint32_t nic_id, uint16_t port, struct syn_clock *clock)
{
    struct syn_probe_nic nic = {.nic_id = nic_id, .port = port, .family = 4, .ifname = "lo",
                                .address = {127, 0, 0, 1}};
    struct syn_probe_options options = {.timeout_ns = 200000000, .min_gap_ns = 20000,
                                        .stall_ns = 5000000, .ring_records = 1024};
    int error = -1;
    char message[256] = "";
    struct syn_probe_engine *engine = syn_probe_open(&nic, 1, &options, clock, &error, message);
    if (engine == NULL)
        fprintf(stderr, "%s\n", message);
    CHECK(engine != NULL && error == SYN_OK);
    syn_probe_set_keys(engine, 1, KEY, 0, NULL);
    CHECK_EQUAL(syn_probe_start(engine, message), SYN_OK);
    return engine;
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
    static struct syn_probe_flow_counts counts[FLOWS];
    static struct syn_probe_nic_status status[1];
    struct syn_probe_counters counters;
    size_t count = syn_probe_drain(engine, records, 256);
    for (size_t i = 0; i < count; i++)
        CHECK(records[i].sent_ns != 0 && records[i].dst_nic_id == 2);
    CHECK(syn_probe_read_heard(engine, heard, 4) <= 1);
    CHECK(syn_probe_read_flow_counts(engine, counts, FLOWS) <= FLOWS);
    CHECK_EQUAL(syn_probe_read_nic_status(engine, status, 1), 1);
    syn_probe_read_counters(engine, &counters);
    static struct syn_liveness_event events[8];
    static struct syn_watch_status watched[FLOWS];
    CHECK(syn_probe_liveness_fd(engine) >= 0);
    CHECK(syn_probe_take_liveness(engine, events, 8) <= 8);
    CHECK(syn_probe_read_watches(engine, watched, FLOWS) <= FLOWS);
    return counters.received;
}

int main(void)
{
    struct syn_clock_spec spec = {.base_ns = 1700000000, .offset_ns = 5, .drift_ppb = 1000,
                                  .swing_period_ns = 1000000000};
    struct syn_clock *clock = syn_clock_open(&spec, NULL, 0);
    CHECK(clock != NULL);
    uint16_t port = free_port(), ports[3] = {free_port(), free_port(), free_port()};
    struct syn_probe_engine *local = open_engine(1, free_port(), clock);
    struct syn_probe_engine *remote = open_engine(2, port, NULL);
    uint64_t received = 0;
    for (int round = 0; round < ROUNDS; round++) {
        plan(local, round, ports, port);
        watch(local, round, ports, port);
        syn_probe_set_keys(local, 1 + (uint32_t)round / 20, round < 20 ? KEY : NEXT_KEY, 1, KEY);
        syn_probe_set_keys(remote, 1 + (uint32_t)round / 20, round < 20 ? KEY : NEXT_KEY, 1, KEY);
        nanosleep(&(struct timespec){0, 20000000}, NULL);
        received = read_all(local) + read_all(remote);
    }
    CHECK(received > 100);
    syn_probe_close(local);
    syn_probe_close(remote);
    syn_clock_close(clock);
    return 0;
}
