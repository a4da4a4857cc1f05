/* Connections that cannot begin as they should: what the host or the peer lacks. test_starts LIBRARY PROVIDER
 * CASE */
#include <arpa/inet.h>
#include <fcntl.h>
#include <linux/if_tun.h>
#include <net/if.h>
#include <sched.h>
#include <stdbool.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "edge.h"

/* Numbers of enum ibv_gid_type (the oldest RoCE) and enum ibv_mtu. */
enum { ROCE_V1 = 1, MTU_1024 = 3, MTU_2048 = 4, SKIPPED = 77 };

static void no_device(void)
{
    struct fake_limits limits = NO_LIMITS;
    limits.ports = 0;
    faults_limit(&limits);
    CHECK_EQUAL(drive_init(&net), 2);
}

/* One that cannot be opened, as without the permission, is none; the others are used. */
static void device_stays_closed(void)
{
    int count = 0;
    faults_machine(0, &(struct fake_machine){.closed = 1});
    CHECK_EQUAL(drive_init(&net), 0);
    CHECK_EQUAL(((int (*)(int *))net.table[SLOT_DEVICES])(&count), 0);
    CHECK_EQUAL(count, FAKE_PORTS - 1);
}

/* Until one end says no; the other one waits. */
static int connecting_fails(void)
{
    for (int64_t begun = now_ms(); now_ms() - begun < HANG_MS;) {
        int result = drive_connect(&net, 0, handle, &sender);
        if (result == 0)
            result = drive_accept(&net, listener, &receiver);
        if (result)
            return result;
        CHECK(sender == NULL || receiver == NULL);
    }
    return -1;
}

static void wrong_gid_type(void)
{
    struct fake_limits limits = NO_LIMITS;
    limits.gid_type = ROCE_V1;
    faults_limit(&limits);
    begin();
    CHECK_EQUAL(connecting_fails(), 2);
}

/* The GID that the variable names is of RoCE v2, or there is a line; the sender's ports have two. */
static void gid_index(void)
{
    static const struct { const char *index; int result; const char *line; } CASES[] = {
        {"0", 2, "a GID of RoCE v1 has the index in SYNTONY_NCCL_GID_INDEX"},
        {"1", 0, NULL},
        {"2", 2, "no GID has the index in SYNTONY_NCCL_GID_INDEX"}};
    for (size_t i = 0; i < sizeof CASES / sizeof *CASES; i++) {
        pid_t child = fork();
        if (child == 0) {
            for (int port = 0; port < FAKE_PORTS; port++)
                faults_machine(port, &(struct fake_machine){.old_gid = 1, .new_gid = 1});
            setenv("SYNTONY_NCCL_GID_INDEX", CASES[i].index, 1);
            begin();
            if (CASES[i].result == 0) {
                connect_both();
                exchange();
            } else {
                CHECK_EQUAL(connecting_fails(), CASES[i].result);
                CHECK_EQUAL(drive_logged(CASES[i].line), 3); /* of each rail, and why it failed */
            }
            _exit(0);
        }
        int status = 0;
        CHECK_EQUAL(waitpid(child, &status, 0), child);
        CHECK_EQUAL(status, 0);
    }
}

/* The receiver's ports have no GID of RoCE v2: the sender learns of it, too. */
static void peers_gid_is_old(void)
{
    for (int port = 2; port < 4; port++)
        faults_machine(port, &(struct fake_machine){.old_gid = 1});
    begin();
    int results[2] = {0};
    for (int64_t begun = now_ms(); (!results[0] || !results[1]) && now_ms() - begun < HANG_MS;) {
        if (results[0] == 0)
            results[0] = drive_connect(&net, 0, handle, &sender);
        if (results[1] == 0)
            results[1] = drive_accept(&net, listener, &receiver);
    }
    CHECK_EQUAL(results[0], 2);
    CHECK_EQUAL(results[1], 2);
    CHECK_EQUAL(drive_logged("no usable GID: the port has no RoCE v2 address"), 3);
    CHECK_EQUAL(drive_logged("its port at the peer has no usable GID"), 3);
}

/* Of one rail the two ends' GIDs are of different kinds: it is left out with a line at both ends, and
 * comes when they agree. The same of all rails is an error, at both ends. */
static void gids_differ(void)
{
    static const char *const KINDS[] = {"of IPv4", "of IPv6", "link-local"};
    setenv("SYNTONY_NCCL_TIMEOUT", "18", 1); /* 2 x 1 s: no rail is left by chance */
    begin();
    for (int here = 0; here < 3; here++)
        for (int there = 0; there < 3; there++) {
            char line[80];
            faults_machine(0, &(struct fake_machine){.gid_kind = here});
            faults_machine(2, &(struct fake_machine){.gid_kind = there});
            listen_again();
            connect_both();
            snprintf(line, sizeof line, "rail fake0: its GID is %s here, and %s at the peer",
                     KINDS[here], KINDS[there]);
            CHECK_EQUAL(drive_logged(line), here != there);
            snprintf(line, sizeof line, "rail fake2: its GID is %s here, and %s at the peer",
                     KINDS[there], KINDS[here]);
            CHECK_EQUAL(drive_logged(line), here != there);
            exchange();
            if (here == 0 && there == 2) { /* and it takes as long as a peer is waited for */
                exchange_for(3500);
                CHECK_EQUAL(drive_logged("rail fake2 does not return: its GID is link-local"), 1);
                faults_machine(0, &(struct fake_machine){.gid_kind = there});
                until_both_up();
            }
            close_both();
        }
    for (int port = 0; port < 2; port++)
        faults_machine(port, &(struct fake_machine){.gid_kind = 2});
    for (int port = 2; port < 4; port++)
        faults_machine(port, &(struct fake_machine){0});
    listen_again();
    CHECK_EQUAL(connecting_fails(), 2);
}

static void other_mtu(void)
{
    struct fake_limits limits = NO_LIMITS;
    limits.mtu[0] = MTU_1024;
    limits.mtu[3] = MTU_2048;
    faults_limit(&limits);
    begin();
    connect_both();
    exchange();
}

static void no_queue_pairs(void)
{
    begin();
    struct fake_limits limits = NO_LIMITS;
    limits.queue_pairs = 5; /* of 8 */
    faults_limit(&limits);
    CHECK_EQUAL(connecting_fails(), 2);
    faults_limit(&NO_LIMITS); /* and later there are some, for another connection */
    listen_again();
    connect_both();
    exchange();
}

static void no_locked_memory_to_connect(void)
{
    begin();
    struct fake_limits limits = NO_LIMITS;
    limits.regions = 3; /* of 4: one for each rail and end */
    faults_limit(&limits);
    CHECK_EQUAL(connecting_fails(), 2);
    faults_limit(&NO_LIMITS);
    listen_again();
    connect_both();
    exchange();
}

/* A second communicator comes to the limit, at any of its registrations: it fails, leaves nothing behind, and the
 * first goes on. */
static void no_locked_memory_for_another(void)
{
    begin();
    connect_both();
    exchange();
    struct connection first = keep_connection();
    int objects = faults_objects();
    for (int regions = 0; regions < 4; regions++) { /* of 4: one for each rail and end */
        struct fake_limits limits = NO_LIMITS;
        listen_again();
        limits.regions = regions;
        faults_limit(&limits);
        CHECK_EQUAL(connecting_fails(), 2);
        while (regions >= 2 && drive_connect(&net, 0, handle, &sender) == 0) /* the other end learns of it */
            CHECK(sender == NULL);
        faults_limit(&NO_LIMITS);
        CHECK_EQUAL(drive_close(&net, SLOT_CLOSE_LISTEN, listener), 0);
        while (faults_objects() > objects)
            usleep(1000);
    }
    exchange_over(first);
}

/* One end is stopped for 20 s after any of its calls, and the other one goes on. */
static void one_end_is_stopped(void)
{
    enum { CALLS = 6 };
    for (int i = 0; i < 2 * CALLS; i++) {
        int stopped = i % 2, calls[2] = {0};
        int64_t since = -1;
        if (fork())
            continue;
        begin();
        for (; sender == NULL || receiver == NULL; nap_for(1000)) {
            if (since < 0 && calls[stopped] == i / 2)
                since = ran_ms();
            bool is_stopped = since >= 0 && ran_ms() - since < 20000;
            if (sender == NULL && !(is_stopped && stopped == 0) && ++calls[0])
                CHECK_EQUAL(drive_connect(&net, 0, handle, &sender), 0);
            if (receiver == NULL && !(is_stopped && stopped == 1) && ++calls[1])
                CHECK_EQUAL(drive_accept(&net, listener, &receiver), 0);
        }
        connect_both();
        for (int j = 0; j < 10; j++)
            exchange();
        close_both();
        _exit(0);
    }
    for (int i = 0, status = 0; i < 2 * CALLS; i++) {
        CHECK(wait(&status) > 0);
        CHECK_EQUAL(status, 0);
    }
}

static void no_locked_memory(void)
{
    begin();
    connect_both();
    struct fake_limits limits = NO_LIMITS;
    void *memory = NULL;
    limits.regions = 1; /* of 2: one for each rail */
    faults_limit(&limits);
    CHECK_EQUAL(drive_reg(&net, sender, from, sizeof from, &memory), 2);
    CHECK(memory == NULL);
    faults_limit(&NO_LIMITS);
    exchange();
}

/* Gone before the connection: it does without that rail. */
static void without_a_device(void)
{
    begin();
    faults_vanish(0);
    while (sender == NULL || receiver == NULL) {
        if (sender == NULL)
            CHECK_EQUAL(drive_connect(&net, 0, handle, &sender), 0);
        if (receiver == NULL)
            CHECK_EQUAL(drive_accept(&net, listener, &receiver), 0);
    }
    void *none;
    for (int64_t begun = now_ms(); now_ms() - begun < 50;) /* it is not tried again */
        CHECK_EQUAL(drive_send(&net, sender, from, 8, 0, NULL, &none), 0);
    CHECK_EQUAL(drive_logged("rail fake0 does not return"), 0);
    connect_both();
    for (int i = 0; i < 20; i++)
        exchange();
    faults_vanish(3); /* the receiver's, of the other rail */
    listen_again();
    CHECK_EQUAL(connecting_fails(), 2);
}

/* A rail that cannot be connected is left out, at both ends, and comes when it can. */
static void without(void (*leave_out)(int port, int now))
{
    setenv("SYNTONY_NCCL_TIMEOUT", "18", 1); /* 2 x 1 s: no rail is left by chance */
    begin();
    for (int port = 0; port < 4; port++) {
        listen_again();
        leave_out(port, 1);
        connect_both();
        for (int i = 0; i < 20; i++)
            exchange();
        leave_out(port, 0);
        until_both_up();
        faults_port(port ^ 1, 0); /* and it carries all */
        for (int i = 0; i < 20; i++)
            exchange();
        faults_port(port ^ 1, 1);
        close_both();
    }
    leave_out(0, 1);
    leave_out(3, 1);
    listen_again();
    CHECK_EQUAL(connecting_fails(), 2);
}

static void have_old_gid(int port, int now)
{
    faults_machine(port, &(struct fake_machine){.old_gid = now});
}

static void without_an_address(void)
{
    without(have_old_gid);
    have_old_gid(3, 0);
    int before = drive_logged("rail fake0 does not return: no usable GID");
    int pairs = faults_queue_pairs(); /* of what could not connect */
    listen_again();
    connect_both();
    exchange_for(200);
    CHECK_EQUAL(drive_logged("rail fake0 does not return: no usable GID"), before + 1);
    have_old_gid(0, 0); /* it returns, and later the same keeps it away: one more line */
    until_both_up();
    have_old_gid(0, 1);
    faults_error(0);
    for (int64_t begun = now_ms(); now_ms() - begun < HANG_MS;) { /* attempts have become rare */
        exchange();
        if (drive_logged("rail fake0 does not return: no usable GID") == before + 2)
            break;
    }
    CHECK_EQUAL(drive_logged("rail fake0 does not return: no usable GID"), before + 2);
    close_both();
    while (faults_queue_pairs() > pairs)
        usleep(1000);
}

static void without_a_neighbour(void)
{
    without(faults_hide_neighbour);
}

static void other_version(void)
{
    begin();
    char changed[128];
    memcpy(changed, handle, sizeof changed);
    changed[44]++; /* struct handle's version */
    CHECK_EQUAL(drive_connect(&net, 0, changed, &sender), 2);
    CHECK(sender == NULL);
}

static void make_up(const char *name)
{
    struct ifreq request = {.ifr_flags = IFF_UP};
    int fd = socket(AF_INET, SOCK_DGRAM, 0);
    strcpy(request.ifr_name, name);
    CHECK_EQUAL(ioctl(fd, SIOCSIFFLAGS, &request), 0);
    close(fd);
}

/* Stays as long as this process. */
static void make_interface(const char *name, const char *address)
{
    struct ifreq request = {.ifr_flags = IFF_TUN};
    struct sockaddr_in own = {.sin_family = AF_INET};
    int tun = open("/dev/net/tun", O_RDWR), fd = socket(AF_INET, SOCK_DGRAM, 0);
    strcpy(request.ifr_name, name);
    if (tun < 0 || ioctl(tun, TUNSETIFF, &request))
        _exit(SKIPPED);
    CHECK_EQUAL(inet_pton(AF_INET, address, &own.sin_addr), 1);
    memcpy(&request.ifr_addr, &own, sizeof own);
    CHECK_EQUAL(ioctl(fd, SIOCSIFADDR, &request), 0);
    close(fd);
    make_up(name);
}

static void check_listens_at(const char *address)
{
    struct sockaddr_in own;
    char text[INET_ADDRSTRLEN];
    CHECK_EQUAL(drive_listen(&net, 1, handle, &listener), 0);
    memcpy(&own, handle + 16, sizeof own);
    CHECK(own.sin_family == AF_INET);
    CHECK(strcmp(inet_ntop(AF_INET, &own.sin_addr, text, sizeof text), address) == 0);
}

/* For control connections: loopback only if there is no other, and no bridge of containers. */
static void own_addresses(void)
{
    if (unshare(CLONE_NEWNET))
        _exit(SKIPPED);
    unsetenv("SYNTONY_NCCL_SOCKET_IFNAME");
    make_interface("docker0", "172.17.0.1");
    make_up("lo");
    begin();
    check_listens_at("127.0.0.1");
    make_interface("nic0", "10.9.0.1");
    check_listens_at("10.9.0.1");
}

int main(int argc, char **argv)
{
    static const struct edge_case CASES[] = {
        {"no_device", no_device}, {"device_stays_closed", device_stays_closed},
        {"wrong_gid_type", wrong_gid_type}, {"gid_index", gid_index},
        {"peers_gid_is_old", peers_gid_is_old}, {"gids_differ", gids_differ},
        {"other_mtu", other_mtu}, {"no_queue_pairs", no_queue_pairs},
        {"no_locked_memory_to_connect", no_locked_memory_to_connect},
        {"no_locked_memory_for_another", no_locked_memory_for_another},
        {"one_end_is_stopped", one_end_is_stopped},
        {"no_locked_memory", no_locked_memory}, {"without_a_device", without_a_device},
        {"without_an_address", without_an_address}, {"without_a_neighbour", without_a_neighbour},
        {"own_addresses", own_addresses},
        {"own_addresses", own_addresses}, {"other_version", other_version}};
    return run_case(argc, argv, CASES, sizeof CASES / sizeof *CASES);
}
