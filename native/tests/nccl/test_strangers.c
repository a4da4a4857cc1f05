/* Who connects to the plug-in's listener and is no peer, and what true peers notice of it: nothing.
 * test_strangers LIBRARY PROVIDER CASE */
#include <errno.h>
#include <stdbool.h>
#include <sys/socket.h>
#include <unistd.h>

#include "visitor.h"

enum { PENDING = 32 }; /* of a listener at once: setup.h */

static bool is_open(int fd)
{
    char byte;
    return recv(fd, &byte, 1, MSG_PEEK) != 0 && errno == EAGAIN;
}

static const struct control READY = {.kind = CONTROL_READY, .bits = 1};

/* Of a peer with one rail. */
static struct greeting greeting_of_one(void)
{
    struct greeting greeting = greeting_of(WIRE_VERSION, 1, true);
    greeting.hello.rail[0] = (struct endpoint){.gid = {[10] = 0xff, [11] = 0xff, [12] = 10, [15] = 1},
                                               .mtu = 5, .link_layer = 2, .qps = 1};
    return greeting;
}

static void accept_for(int64_t for_ms)
{
    int64_t begun = now_ms();
    do { /* at least once, however busy the machine is */
        CHECK_EQUAL(drive_accept(&net, listener, &receiver), 0);
        CHECK(receiver == NULL);
        nap_for(1000);
    } while (now_ms() - begun < for_ms);
}

static void that_go(void)
{
    begin();
    /* Read as a message it has a length of 800 MB, and more comes than any message has. */
    static const char NOISE[1 << 20] = "GET / HTTP/1.0\r\n\r\n";
    for (int i = 0; i < 3; i++) { /* one that talks, one that is silent and goes, one with zeros */
        int fd = reach();
        if (i != 1)
            CHECK(send(fd, NOISE + i * 1000, sizeof NOISE - 2000, MSG_DONTWAIT) > 100000);
        close(fd);
    }
    peer_connects();
}

/* A port scan: each of these stays. Some are pending, others in the kernel. */
static void that_stay(void)
{
    enum { COUNT = 200 };
    begin();
    struct greeting other = greeting_of(WIRE_VERSION, 2, false);
    for (int i = 0; i < COUNT; i++) {
        int fd = reach();
        if (i % 4 == 1)
            say(fd, "SSH-2.0-scan\r\n", 14); /* less than a message has */
        else if (i % 4 == 2)
            say(fd, &other, sizeof other / 2); /* and no more */
        else if (i % 4 == 3)
            say(fd, &other, sizeof other);
        if (i == COUNT / 2)
            accept_for(1);
    }
    peer_connects();
    CHECK(faults_queue_pairs() <= 8); /* a stranger costs none */
}

/* Who is silent, or slow, keeps its place while there is room. It may be a peer whose process has been stopped, or
 * whose NCCL does not call. */
static void that_wait(void)
{
    begin();
    int silent = reach(), slow = reach(), fd = reach();
    struct greeting other = greeting_of(WIRE_VERSION, 2, false), greeting = greeting_of_one();
    void *late = NULL;
    int64_t begun = ran_ms();
    for (size_t i = 0; ran_ms() - begun < 11000; i++) {
        say(slow, (char *)&other + i % sizeof other, 1);
        accept_for(500);
    }
    CHECK(is_open(silent) && is_open(slow));
    CHECK_EQUAL(drive_logged("was refused"), 0);
    say(fd, &greeting, sizeof greeting);
    say(fd, &READY, sizeof READY);
    for (; late == NULL; nap())
        CHECK_EQUAL(drive_accept(&net, listener, &late), 0);
    CHECK_EQUAL(drive_close(&net, SLOT_CLOSE_RECEIVE, late), 0);
    peer_connects();
}

/* There is room for so many: the oldest goes first. */
static void too_many(void)
{
    int fds[PENDING + 2];
    begin();
    for (int i = 0; i < PENDING; i++) {
        fds[i] = reach();
        accept_for(2);
    }
    for (int i = PENDING; i < PENDING + 2; i++) {
        CHECK(is_open(fds[i - PENDING]));
        fds[i] = reach();
        accept_for(50);
        CHECK(!is_open(fds[i - PENDING]));
        CHECK(is_open(fds[i - PENDING + 1]) && is_open(fds[PENDING - 1]) && is_open(fds[i]));
    }
    CHECK_EQUAL(drive_logged("was refused: no greeting"), 2);
    CHECK_EQUAL(drive_logged("WARN NET/Syntony: a control connection from"), 1); /* the first */
    peer_connects();
}

/* A peer whose rails are being connected has its place, however many strangers come. */
static void a_peer_stays(void)
{
    begin();
    faults_hold_neighbour(2, 1);
    while (faults_held_calls() == 0) {
        CHECK_EQUAL(drive_connect(&net, 0, handle, &sender), 0);
        CHECK_EQUAL(drive_accept(&net, listener, &receiver), 0);
    }
    for (int i = 0; i < 2 * PENDING; i++) {
        reach();
        accept_for(1);
    }
    faults_hold_neighbour(2, 0);
    peer_connects();
}

/* If all that are pending know the cookie, the next one waits. */
static void only_peers(void)
{
    int fds[PENDING];
    begin();
    faults_hold_neighbour(2, 1);
    struct greeting greeting = greeting_of_one();
    for (int i = 0; i < PENDING; i++) {
        fds[i] = reach();
        say(fds[i], &greeting, sizeof greeting);
        accept_for(2);
    }
    for (int64_t begun = now_ms(); faults_held_calls() < PENDING; accept_for(1))
        CHECK(now_ms() - begun < HANG_MS);
    int next = reach();
    accept_for(50);
    CHECK(is_open(next) && is_open(fds[0]) && drive_logged("refused") == 0);
    faults_hold_neighbour(2, 0);
    CHECK_EQUAL(drive_close(&net, SLOT_CLOSE_LISTEN, listener), 0);
    while (faults_queue_pairs())
        usleep(1000);
}

/* One peer greets, and is not ready for long: another one is accepted meanwhile, and it is in the end. */
static void a_peer_stalls(void)
{
    begin();
    struct greeting greeting = greeting_of_one();
    void *stalled = NULL;
    int fd = reach();
    say(fd, &greeting, sizeof greeting);
    accept_for(100);
    peer_connects();
    for (int64_t begun = ran_ms(); ran_ms() - begun < 11000; nap_for(1000)) {
        CHECK_EQUAL(drive_accept(&net, listener, &stalled), 0);
        CHECK(stalled == NULL);
    }
    say(fd, &READY, sizeof READY);
    for (; stalled == NULL; nap())
        CHECK_EQUAL(drive_accept(&net, listener, &stalled), 0);
    CHECK_EQUAL(drive_close(&net, SLOT_CLOSE_RECEIVE, stalled), 0);
}

/* Those that are not ready end with the listener. */
static void listener_closes(void)
{
    begin();
    int first = reach(), second = reach();
    accept_for(20);
    CHECK_EQUAL(drive_close(&net, SLOT_CLOSE_LISTEN, listener), 0);
    CHECK(!is_open(first) && !is_open(second));
}

/* What accepting a greeting results in: 0 if it is ignored. */
static int result_of_greeting(uint32_t version, uint32_t rails, bool has_cookie)
{
    int fd = reach(), result = 0;
    struct greeting greeting = greeting_of(version, rails, has_cookie);
    say(fd, &greeting, sizeof greeting);
    for (int64_t begun = now_ms(); result == 0 && now_ms() - begun < (has_cookie ? HANG_MS : 200);)
        result = drive_accept(&net, listener, &receiver);
    CHECK(receiver == NULL);
    close(fd);
    return result;
}

static void other_greeting(void)
{
    begin();
    CHECK_EQUAL(result_of_greeting(WIRE_VERSION, 2, false), 0); /* a stranger */
    CHECK_EQUAL(drive_logged("from 127.0.0.1 was refused: the peer does not speak"), 1);
    CHECK_EQUAL(result_of_greeting(WIRE_VERSION + 1, 2, true), 2); /* of a plug-in to come */
    CHECK_EQUAL(result_of_greeting(WIRE_VERSION, 0, true), 2);
    CHECK_EQUAL(result_of_greeting(WIRE_VERSION, 2, true), 2); /* no rail of it has an address */
    CHECK_EQUAL(result_of_greeting(WIRE_VERSION, MAX_RAILS + 1, true), 2);
    CHECK_EQUAL(drive_logged("the peer sent no valid rails"), 2);
    peer_connects();
}

int main(int argc, char **argv)
{
    static const struct edge_case CASES[] = {
        {"that_go", that_go}, {"that_stay", that_stay}, {"that_wait", that_wait},
        {"too_many", too_many}, {"a_peer_stays", a_peer_stays}, {"only_peers", only_peers},
        {"a_peer_stalls", a_peer_stalls}, {"listener_closes", listener_closes},
        {"other_greeting", other_greeting}};
    return run_case(argc, argv, CASES, sizeof CASES / sizeof *CASES);
}
