/* What the plug-in does over NICs that do what the specification allows, and most do not do.
 * test_foreign LIBRARY PROVIDER CASE */
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "edge.h"

enum { DEVICE_FATAL = 8, PORT_ACTIVE, PORT_ERR, SECOND_PORT = 2 << 8 }; /* of enum ibv_event_type */

static void begin_patiently(void)
{
    setenv("SYNTONY_NCCL_TIMEOUT", "22", 1); /* 2 x 17 s: no rail is left by chance */
    begin();
    connect_both();
    until_both_up();
}

/* One port of each end goes down and comes back. */
static void ports_return_over(const struct fake_vendor *nics)
{
    faults_be(nics);
    begin_patiently();
    for (int port = 0; port < 4; port += 3) {
        faults_port(port, 0);
        until_pairs(4);
        faults_port(port, 1);
        until_both_up();
    }
}

/* No event tells that a port is up again, or it was lost: the port is asked. */
static void port_returns_silently(void)
{
    ports_return_over(&(struct fake_vendor){.silent = 1});
    both_rails_carry();
}

/* An event of a port that is down says that it is down, though it is up. */
static void port_is_said_to_be_down(void)
{
    begin_patiently();
    /* It is left at both ends, and may be back before we look. If this process stops, the port may be asked before
     * it is left. */
    for (int64_t told = -5000; drive_logged("is left") < 2; exchange())
        if (ran_ms() - told > 3000) {
            faults_event(0, PORT_ERR);
            told = ran_ms();
        }
    until_both_up();
}

/* A device that has failed is not asked: it may say that its ports are up. */
static void device_fails(void)
{
    begin_patiently();
    faults_event(0, DEVICE_FATAL);
    until_pairs(4);
    for (int64_t begun = now_ms(); now_ms() - begun < 2200;) {
        exchange();
        CHECK_EQUAL(faults_flow_labels((uint32_t[16]){0}, 16), 4);
    }
}

/* Events of the other port of a device are not of the one that is used. */
static void another_ports_events(void)
{
    begin_patiently();
    faults_event(0, PORT_ERR | SECOND_PORT);
    exchange_for(200);
    CHECK_EQUAL(drive_logged("is left"), 0);
    faults_port(0, 0);
    until_pairs(4);
    faults_event(0, PORT_ACTIVE | SECOND_PORT);
    exchange_for(200);
    until_pairs(4);
    CHECK_EQUAL(drive_logged("does not return"), 0);
    faults_port(0, 1);
    until_both_up();
}

/* Each event comes twice. */
static void events_twice(void)
{
    ports_return_over(&(struct fake_vendor){.twice = 1});
    CHECK_EQUAL(drive_logged("is left"), 4); /* at each end, once */
}

/* A sender's completion queue fails once: its rail is left, and returns. */
static void senders_poll_fails(void)
{
    begin_patiently();
    for (int port = 0; port < 2; port++) {
        faults_machine(port, &(struct fake_machine){.failing_polls = 1});
        for (int64_t begun = now_ms(); drive_logged("its completion queue failed") == port;) {
            CHECK(now_ms() - begun < HANG_MS);
            exchange();
        }
        until_both_up();
    }
    both_rails_carry();
}

/* A receiver's: what it acknowledged and did not tell of is lost, which is an error at once. */
static void receivers_poll_fails(void)
{
    int result = 0;
    begin_patiently();
    for (int port = 2; port < 4; port++)
        faults_machine(port, &(struct fake_machine){.failing_polls = 1});
    void *next = post_receive(sizeof to); /* behind the one that `exchange` has posted */
    void *sent = post_send(sizeof from, next, &result);
    CHECK(sent != NULL || result == 6);
    CHECK_EQUAL(result_of(next, sent), 6);
    CHECK_EQUAL(drive_logged("its rail cannot be fenced"), 1);
}

/* Work of queue pairs that were destroyed before they were ready completes late: it is not work of those
 * that are made next, by which the rail returns, and is drained when it is left again. */
static void leftovers(void)
{
    faults_be(&(struct fake_vendor){.leftovers = 1, .scrambled_ns = 30000000});
    begin_patiently();
    for (int i = 1; i <= 3; i++) {
        faults_machine(2, &(struct fake_machine){.unready = 1});
        faults_error(0);
        until_pairs(4);
        exchange_for(300); /* it is tried again and again */
        faults_machine(2, &(struct fake_machine){0});
        until_both_up();
    }
    faults_port(0, 0);
    until_pairs(4);
    exchange_for(2500); /* by which it has to be drained */
    CHECK_EQUAL(drive_logged("does not end its work"), 0);
    CHECK(drive_logged("cannot be made ready to send") > 0);
}

static void begin_patiently_with_agent(void)
{
    setenv("SYNTONY_NCCL_TIMEOUT", "22", 1);
    begin_with_agent();
    until_both_up();
}

/* What either end's agent says holds as long as it says, without its word that it is over, and no rail that
 * has returned is left for it again. */
static void notices_expire(void)
{
    enum { FOR_MS = 300, NOTICES = 6 };
    begin_patiently_with_agent();
    for (int i = 0; i < NOTICES; i++) {
        int rail = i % 2, end = i / 2 % 2, back = drive_logged("is back");
        int64_t begun = now_ms(), for_ms = FOR_MS, noticed = 0;
        while (drive_logged("is back") < back + 2) { /* at both ends */
            CHECK(now_ms() - begun < HANG_MS);
            /* It expires unread if this process was paused for so long. */
            if (drive_logged("is left: a notice") == i && (noticed == 0 || now_ms() - noticed > 2 * for_ms)) {
                for_ms *= noticed ? 2 : 1;
                noticed = now_ms();
                faults_notify(1, rail + 2 * end, rail + 2 * !end, for_ms * 1000000);
            }
            exchange();
        }
        CHECK(now_ms() - noticed >= for_ms - 5);
    }
    CHECK_EQUAL(drive_logged("is left: a notice"), NOTICES);
}

/* The agent of a host knows of many paths: what it says of another one, with one end in common, is nothing to
 * this connection. */
static void notices_of_other_paths(void)
{
    enum { PORTS = 6, NOTICES = 40 };
    uint64_t random = (uint64_t)now_ms() | 1;
    fprintf(stderr, "seed %llu\n", (unsigned long long)random);
    begin_patiently_with_agent();
    for (int i = 0; i < NOTICES; i++) {
        int local = (int)(faults_draw(&random) % PORTS), remote = (int)(faults_draw(&random) % PORTS);
        if (local % 2 != remote % 2 || local / 2 == remote / 2 || local > 3 || remote > 3)
            faults_notify(1, local, remote, 0);
        exchange_for(10);
    }
    CHECK_EQUAL(drive_logged("is left"), 0);
    faults_notify(1, 0, 2, 0);
    until_pairs(4);
}

static void check_class(int class)
{
    for (int port = 0; port < FAKE_PORTS; port++)
        CHECK_EQUAL(faults_class(port), class);
}

/* A communicator's traffic class, or else those of the variables, at both ends; also when a rail returns. */
static void classes_of(int infiniband)
{
    static const struct { int wanted, class, level; } CASES[] = {
        {-1, 104, 3}, {0, 0, 0}, {5, 5, 5}, {46, 46, 14}, {255, 255, 15}};
    struct { int class; char more[60]; } config = {0}; /* as NCCL hands it over */
    for (int port = 0; port < FAKE_PORTS; port++)
        faults_machine(port, &(struct fake_machine){.infiniband = infiniband});
    setenv("SYNTONY_NCCL_TC", "104", 1);
    setenv("SYNTONY_NCCL_SL", "3", 1);
    setenv("SYNTONY_NCCL_TIMEOUT", "22", 1); /* 2 x 17 s: no rail is left by chance */
    begin();
    net.context = &config;
    for (size_t i = 0; i < sizeof CASES / sizeof *CASES; i++) {
        int class = CASES[i].level << 8 | (infiniband ? 0 : CASES[i].class);
        config.class = CASES[i].wanted;
        listen_again();
        connect_both();
        exchange();
        check_class(class);
        for (int port = 0; i == 2 && port < FAKE_PORTS; port += 3) {
            int before = drive_logged("is back");
            faults_error(port);
            while (drive_logged("is back") < before + 2) /* at both ends */
                exchange();
            check_class(class);
        }
        close_both();
    }
}

static void classes(void)
{
    classes_of(0);
}

/* InfiniBand, too: its ports have no GID of RoCE, and are found by their LIDs. */
static void classes_of_infiniband(void)
{
    classes_of(1);
}

/* Every code of a port's speed and width, and some that are none. */
static void speeds(void)
{
    enum { SPEEDS = 9, WIDTHS = 6 };
    static const struct { int code, means; } SPEED[SPEEDS] = {
        {1, 2500}, {2, 5000}, {4, 10000}, {8, 10000}, {16, 14000}, {32, 25000}, {64, 50000}, {128, 100000},
        {3, 10000}}, WIDTH[WIDTHS] = {{1, 1}, {2, 4}, {4, 8}, {8, 12}, {16, 2}, {5, 1}};
    for (int first = 0; first < SPEEDS * WIDTHS; first += FAKE_PORTS) {
        pid_t child = fork();
        if (child == 0) {
            for (int port = 0, i = first; port < FAKE_PORTS; port++, i++)
                faults_machine(port, &(struct fake_machine){.speed = SPEED[i % SPEEDS].code,
                                                            .width = WIDTH[i / SPEEDS % WIDTHS].code});
            CHECK_EQUAL(drive_init(&net), 0);
            for (int port = 0, i = first; port < FAKE_PORTS; port++, i++) {
                struct drive_properties properties;
                CHECK_EQUAL(drive_properties(&net, port, &properties), 0);
                CHECK_EQUAL(properties.guid >> 56, (uint64_t)port + 1); /* the last byte of its GID */
                CHECK_EQUAL(properties.speed, SPEED[i % SPEEDS].means * WIDTH[i / SPEEDS % WIDTHS].means);
            }
            _exit(0);
        }
        int status = 0;
        CHECK_EQUAL(waitpid(child, &status, 0), child);
        CHECK_EQUAL(status, 0);
    }
}

int main(int argc, char **argv)
{
    static const struct edge_case CASES[] = {
        {"port_returns_silently", port_returns_silently},
        {"port_is_said_to_be_down", port_is_said_to_be_down},
        {"device_fails", device_fails}, {"another_ports_events", another_ports_events},
        {"events_twice", events_twice},
        {"senders_poll_fails", senders_poll_fails}, {"receivers_poll_fails", receivers_poll_fails},
        {"leftovers", leftovers}, {"classes", classes},
        {"notices_of_other_paths", notices_of_other_paths}, {"notices_expire", notices_expire},
        {"classes_of_infiniband", classes_of_infiniband}, {"speeds", speeds}};
    return run_case(argc, argv, CASES, sizeof CASES / sizeof *CASES);
}
