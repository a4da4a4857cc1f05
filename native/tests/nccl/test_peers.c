/* What the plug-in does with a peer that knows the cookie and sends anything at all.
 * test_peers LIBRARY PROVIDER CASE */
#include <errno.h>
#include <netinet/in.h>
#include <stdbool.h>
#include <stdlib.h>
#include <linux/sockios.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "visitor.h"

/* A peer at the other end of a control connection, as whichever end; it has no queue pairs. */
static int pretend_with(bool as_sender, uint32_t qps)
{
    int server = -1, fd = -1;
    char forged[sizeof handle];
    struct greeting greeting = greeting_of(WIRE_VERSION, 2, true);
    for (int r = 0; r < 2; r++)
        greeting.hello.rail[r] = (struct endpoint){
            .gid = {[10] = 0xff, [11] = 0xff, [12] = 10, [15] = (uint8_t)(r + (as_sender ? 1 : 3))},
            .mtu = 5, .link_layer = 2 /* Ethernet */, .qps = qps};
    struct control ready = {.kind = CONTROL_READY, .bits = 3};
    sender = receiver = NULL;
    if (as_sender) {
        fd = reach();
    } else {
        struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
        socklen_t size = sizeof address;
        server = socket(AF_INET, SOCK_STREAM, 0);
        CHECK(bind(server, (void *)&address, size) == 0 && listen(server, 1) == 0);
        CHECK_EQUAL(getsockname(server, (void *)&address, &size), 0);
        memcpy(forged, handle, sizeof handle);
        memcpy(forged + 16, &address, sizeof address);
        CHECK_EQUAL(drive_connect(&net, 0, forged, &sender), 0);
        fd = accept4(server, NULL, NULL, SOCK_NONBLOCK);
        close(server);
    }
    CHECK(fd >= 0);
    say(fd, &greeting, sizeof greeting);
    say(fd, &ready, sizeof ready);
    while (sender == NULL && receiver == NULL)
        CHECK_EQUAL(as_sender ? drive_accept(&net, listener, &receiver)
                              : drive_connect(&net, 0, forged, &sender), 0);
    return fd;
}

static int pretend(bool as_sender)
{
    return pretend_with(as_sender, 2);
}

/* Of two on each of two rails here. */
static void a_peer_has_fewer_queue_pairs(void)
{
    begin();
    for (int i = 0; i < 6; i++) {
        uint32_t qps = 1 + (uint32_t)i / 2;
        int fd = pretend_with(i % 2, qps);
        CHECK_EQUAL(faults_queue_pairs(), qps > 2 ? 4 : 2 * (int)qps);
        (receiver ? close_receiver : close_sender)();
        close(fd);
    }
}

/* An end closes before it has read all that its peer said: the peer gets its last word, and no reset. */
static void last_word(void)
{
    begin();
    for (int as_sender = 0; as_sender < 2; as_sender++) {
        int fd = pretend(as_sender), at = -1;
        struct control message = {.kind = CONTROL_RETURN}, heard[64] = {{0}};
        ssize_t got;
        for (int i = 0; i < 1000; i++)
            say(fd, &message, sizeof message);
        (as_sender ? close_receiver : close_sender)();
        struct greeting greeting;
        got = recv(fd, &greeting, sizeof greeting, 0);
        CHECK_EQUAL(got, (ssize_t)sizeof greeting);
        while ((got = recv(fd, &heard[at + 1], sizeof heard[0], 0)) > 0) /* READY, BYE */
            at++;
        CHECK_EQUAL(got, 0);
        CHECK_EQUAL(heard[at].kind, CONTROL_BYE);
        close(fd);
    }
}

/* Up to 20 messages of any kind, most of which could be some. */
static void rave(int fd, uint64_t *random)
{
    static const uint32_t LENGTHS[] = {0, 0, sizeof(struct endpoint), sizeof(struct endpoint),
                                       sizeof(struct receipt), SLOTS * sizeof(struct receipt), 7,
                                       SLOTS * sizeof(struct receipt) + 1};
    struct { struct control control; unsigned char payload[SLOTS * sizeof(struct receipt) + 1]; } message;
    for (uint64_t count = faults_draw(random) % 20; count > 0; count--) {
        for (size_t i = 0; i < sizeof message.payload; i++)
            message.payload[i] = (unsigned char)(faults_draw(random) % 4 ? 0 : faults_draw(random));
        message.control = (struct control){
            .kind = (uint8_t)(CONTROL_FENCED + faults_draw(random) % 6),
            .rail = (uint8_t)(faults_draw(random) % 2), .length = LENGTHS[faults_draw(random) % 6],
            .generation = (uint32_t)(faults_draw(random) % 5), .posted = faults_draw(random) % 40,
            .hold_ns = (int64_t)faults_draw(random) >> faults_draw(random) % 64};
        uint64_t odd = faults_draw(random) % 64;
        if (odd == 0)
            message.control.kind = (uint8_t)faults_draw(random);
        else if (odd == 1)
            message.control.rail = (uint8_t)faults_draw(random);
        else if (odd == 2)
            message.control.length = LENGTHS[faults_draw(random) % 8];
        else if (odd == 3)
            message.control.generation = UINT32_MAX - (uint32_t)(faults_draw(random) % 2);
        if (send(fd, &message, sizeof message.control + message.control.length, MSG_NOSIGNAL) < 0)
            return;
    }
}

/* After everything that was said to it. */
static bool is_told_of_the_end(int fd)
{
    char some[4096];
    ssize_t got;
    while ((got = recv(fd, some, sizeof some, 0)) > 0)
        ;
    return got == 0 || errno == ECONNRESET;
}

/* One that asks for a rail, and answers twice when it is asked: it is connected once. What is longer than any
 * message ends the connection. */
static void a_peer_repeats_itself(void)
{
    begin();
    int fd = pretend(false), result = 0;
    void *request = NULL;
    struct { struct control control; struct endpoint endpoint; } accept = {
        .control = {.kind = CONTROL_ACCEPT, .generation = 2, .length = sizeof accept.endpoint},
        .endpoint = {.gid = {[10] = 0xff, [11] = 0xff, [12] = 10, [15] = 3}, .mtu = 5,
                     .link_layer = 2 /* Ethernet */, .qps = 2}};
    struct control message = {.kind = CONTROL_FENCED, .generation = 2}, heard;
    CHECK_EQUAL(drive_reg(&net, sender, from, sizeof from, &send_memory), 0);
    say(fd, &message, sizeof message);
    for (;;) { /* until it asks */
        CHECK_EQUAL(drive_send(&net, sender, from, 8, 0, send_memory, &request), 0);
        if (recv(fd, &heard, sizeof heard, MSG_PEEK) != (ssize_t)sizeof heard)
            continue;
        char all[sizeof heard + sizeof(struct hello)];
        if (recv(fd, all, sizeof heard + heard.length, MSG_PEEK) != (ssize_t)(sizeof heard + heard.length))
            continue;
        CHECK_EQUAL(recv(fd, all, sizeof heard + heard.length, 0), (ssize_t)(sizeof heard + heard.length));
        if (heard.kind == CONTROL_REJOIN)
            break;
    }
    faults_hold_neighbour(0, 1);
    for (int i = 0; i < 2; i++)
        say(fd, &accept, sizeof accept.control + sizeof accept.endpoint);
    for (int64_t begun = now_ms(); now_ms() - begun < 100 || faults_held_calls() == 0;)
        CHECK_EQUAL(drive_send(&net, sender, from, 8, 0, send_memory, &request), 0);
    CHECK_EQUAL(faults_held_calls(), 1);
    faults_hold_neighbour(0, 0);
    message.length = SLOTS * sizeof(struct receipt) + 1;
    say(fd, &message, sizeof message);
    for (int64_t begun = now_ms(); result == 0 && now_ms() - begun < HANG_MS;)
        result = drive_send(&net, sender, from, 8, 0, send_memory, &request);
    CHECK_EQUAL(result, 6);
    CHECK_EQUAL(drive_logged("connection ended: the peer sent what is no message"), 1);
    close_sender();
    while (faults_queue_pairs()) /* and no thread is left */
        usleep(1000);
    close(fd);
}

/* One that knows the cookie sends what comes to its mind: the connection goes on or ends, which it learns of,
 * and nothing else happens. */
static void a_peer_raves(void)
{
    uint64_t random = 2654435761u;
    int ended = 0;
    enum { ROUNDS = 60 };
    begin();
    for (int i = 0; i < ROUNDS; i++) {
        int fd = pretend(i % 2), result = 0, done, sizes[8];
        void *request = NULL, *data = to;
        size_t size = sizeof to;
        int tag = 0;
        CHECK_EQUAL(drive_reg(&net, i % 2 ? receiver : sender, to, sizeof to, &receive_memory), 0);
        if (i % 2)
            CHECK_EQUAL(drive_receive(&net, receiver, 1, &data, &size, &tag, &receive_memory, &request), 0);
        rave(fd, &random);
        for (int64_t begun = now_ms(); result == 0 && now_ms() - begun < 20;)
            result = i % 2 ? drive_test(&net, request, &done, sizes)
                           : drive_send(&net, sender, from, 8, 0, receive_memory, &request);
        CHECK(result == 0 || result == 6);
        ended += result == 6;
        CHECK(result == 0 || is_told_of_the_end(fd));
        (i % 2 ? close_receiver : close_sender)();
        close(fd);
    }
    CHECK(ended > 0 && ended < ROUNDS);
    sender = receiver = NULL;
    peer_connects();
}

/* Each message that this end cannot get ends the connection. */
static void a_peer_says_what_is_none(void)
{
    enum { ENDPOINT = sizeof(struct endpoint) };
    static const struct { int as_sender, kind, rail; uint32_t length; } CASES[] = {
        {1, 0, 0, 0}, {0, 0, 0, 0}, {1, CONTROL_BYE + 1, 0, 0}, {0, 255, 0, 0},
        {1, CONTROL_HELLO, 0, sizeof(struct hello)}, {0, CONTROL_READY, 0, 0},
        {1, CONTROL_ACCEPT, 0, ENDPOINT}, {0, CONTROL_REJOIN, 0, ENDPOINT},
        {1, CONTROL_REJOIN, 0, ENDPOINT - 1}, {0, CONTROL_ACCEPT, 0, ENDPOINT + 1},
        {1, CONTROL_LEAVE, 0, 0}, {1, CONTROL_RETURN, 0, 0},
        {1, CONTROL_FENCED, 2, 0}, {0, CONTROL_RETURN, 2, 0}, {0, CONTROL_LEAVE, 255, 0}};
    begin();
    for (size_t i = 0; i < sizeof CASES / sizeof *CASES; i++) {
        struct { struct control control; unsigned char payload[sizeof(struct hello)]; } message = {
            .control = {.kind = (uint8_t)CASES[i].kind, .rail = (uint8_t)CASES[i].rail,
                        .length = CASES[i].length}};
        int fd = pretend(CASES[i].as_sender), result = 0, done, sizes[8];
        void *request = NULL;
        CHECK_EQUAL(drive_reg(&net, receiver ? receiver : sender, to, sizeof to, &receive_memory), 0);
        if (receiver)
            request = post_receive(sizeof to);
        say(fd, &message, sizeof message.control + message.control.length);
        for (int64_t begun = now_ms(); result == 0 && now_ms() - begun < HANG_MS;)
            result = receiver ? drive_test(&net, request, &done, sizes)
                              : drive_send(&net, sender, from, 8, 0, receive_memory, &request);
        CHECK_EQUAL(result, 6);
        CHECK_EQUAL(drive_logged("connection ended: the peer"), (int)i + 1);
        CHECK(is_told_of_the_end(fd));
        (receiver ? close_receiver : close_sender)();
        close(fd);
    }
}

/* The receiver posts all that it can, and drains the rail that the peer leaves by this message: it answers later
 * ones at once. Returns its last request. */
static void *drained(int fd, const struct control *message)
{
    int done, sizes[8];
    void *request = NULL;
    CHECK_EQUAL(drive_reg(&net, receiver, to, sizeof to, &receive_memory), 0);
    for (int i = 0; i < SLOTS; i++) /* each is in the answer */
        request = post_receive(sizeof to);
    say(fd, message, sizeof *message);
    while (drive_logged("the peer left it") == 0)
        CHECK_EQUAL(drive_test(&net, request, &done, sizes), 0);
    CHECK_EQUAL(drive_test(&net, request, &done, sizes), 0);
    return request;
}

/* One that asks for an answer again and again and reads none: the connection ends when they have no room. */
static void a_peer_reads_nothing(void)
{
    setenv("SYNTONY_NCCL_TIMEOUT", "22", 1); /* 2 x 17 s: no rail is left by chance */
    begin();
    int fd = pretend(true), done, sizes[8], result = 0;
    struct control message = {.kind = CONTROL_FENCED, .generation = 2};
    void *request = drained(fd, &message);
    for (message.generation++; result == 0; message.generation++) {
        if (message.generation < 100000)
            (void)!send(fd, &message, sizeof message, MSG_NOSIGNAL);
        result = drive_test(&net, request, &done, sizes);
    }
    CHECK_EQUAL(result, 6);
    CHECK_EQUAL(drive_logged("connection ended: the peer has gone"), 1);
    close(fd);
}

/* The plug-in's socket of a control connection: it is one of this process. */
static int other_end(int fd)
{
    struct sockaddr_in own, peer;
    socklen_t size = sizeof own;
    CHECK_EQUAL(getsockname(fd, (void *)&own, &size), 0);
    for (int i = 0; i < 1024; i++) {
        size = sizeof peer;
        if (getpeername(i, (void *)&peer, &size) == 0 && memcmp(&own, &peer, sizeof own) == 0)
            return i;
    }
    CHECK(!"there is one");
    return -1;
}

/* One that reads late gets everything, also what had no room in the sockets. */
static void a_peer_reads_late(void)
{
    enum { ANSWER = sizeof(struct control) + SLOTS * sizeof(struct receipt), LEAST = 4 };
    int small = 1, done, sizes[8], in = 0, out = 0;
    size_t said = 0, heard = 0;
    setenv("SYNTONY_NCCL_TIMEOUT", "22", 1); /* 2 x 17 s: no rail is left by chance */
    begin();
    int fd = pretend(true), other = other_end(fd);
    CHECK_EQUAL(setsockopt(other, SOL_SOCKET, SO_SNDBUF, &small, sizeof small), 0);
    struct control message = {.kind = CONTROL_FENCED, .generation = 2};
    void *request = drained(fd, &message);
    for (said = ANSWER; said < (size_t)(in + out + LEAST * ANSWER); said += ANSWER) {
        message.generation++;
        say(fd, &message, sizeof message);
        CHECK_EQUAL(drive_test(&net, request, &done, sizes), 0);
        usleep(1000); /* what can go goes */
        CHECK(ioctl(other, SIOCOUTQ, &out) == 0 && ioctl(fd, FIONREAD, &in) == 0);
    }
    for (int64_t begun = now_ms(); heard < said && now_ms() - begun < HANG_MS;) {
        char some[4096];
        ssize_t got = recv(fd, some, sizeof some, 0);
        heard += got > 0 ? (size_t)got : 0;
        CHECK_EQUAL(drive_test(&net, request, &done, sizes), 0);
    }
    CHECK(heard >= said); /* and a greeting */
    close(fd);
}

/* The same over queue pairs: one record that none can be ends the connection of whom it reaches. What may come
 * twice may, and has no effect. */
static void a_peer_raves_over_queue_pairs(void)
{
    enum { TO_SENDER = 2, TO_RECEIVER = 0 }; /* ports from which they come */
    static const struct { int from; union { struct header header; struct cts cts; struct credit credit; } record;
                          const char *problem; } CASES[] = {
        {TO_SENDER, {.cts = {.kind = RECORD_CTS, .count = 1, .sequence = 1}}, NULL},
        {TO_SENDER, {.cts = {.kind = RECORD_CTS, .count = 0, .sequence = 40}}, "invalid clear-to-send"},
        {TO_SENDER, {.cts = {.kind = RECORD_CTS, .count = 1, .sequence = 40}}, "invalid clear-to-send"},
        {TO_RECEIVER, {.cts = {.kind = RECORD_CTS, .count = 1, .sequence = 40}}, "invalid clear-to-send"},
        {TO_SENDER, {.credit = {.kind = RECORD_CREDIT, .count = 0}}, NULL},
        {TO_SENDER, {.credit = {.kind = RECORD_CREDIT, .count = 1}}, "invalid credit"}, /* more than there are */
        {TO_RECEIVER, {.credit = {.kind = RECORD_CREDIT, .count = 0}}, "invalid credit"},
        {TO_SENDER, {.header = {.kind = RECORD_HEADER, .chunks = 1, .sequence = 40}}, "invalid chunk"},
        {TO_RECEIVER, {.header = {.kind = RECORD_HEADER, .chunks = 1, .sequence = 40}}, "invalid chunk"},
        {TO_RECEIVER, {.header = {.kind = RECORD_HEADER, .chunks = 65, .sequence = 2}}, "invalid chunk"},
        {TO_RECEIVER, {.header = {.kind = RECORD_PROBE}}, NULL},
        {TO_SENDER, {.header = {.kind = RECORD_PROBE}}, NULL},
        {TO_RECEIVER, {.header = {.kind = 0}}, "invalid record"},
        {TO_SENDER, {.header = {.kind = 5}}, "invalid record"}};
    setenv("SYNTONY_NCCL_TIMEOUT", "22", 1); /* 2 x 17 s: no rail is left by chance */
    begin();
    for (size_t i = 0; i < sizeof CASES / sizeof *CASES; i++) {
        char line[80];
        int done, sizes[8], result = 0;
        listen_again();
        connect_both();
        exchange();
        void *request = post_receive(sizeof to), *none;
        faults_say(CASES[i].from, &CASES[i].record,
                   CASES[i].from == TO_RECEIVER ? sizeof(struct header) : sizeof(struct cts));
        snprintf(line, sizeof line, "connection ended: %s", CASES[i].problem ? CASES[i].problem : "");
        int before = drive_logged(line), polls = 0;
        for (int64_t begun = now_ms(); result == 0 && (polls++ < 100 || now_ms() - begun < 20); nap())
            result = CASES[i].from == TO_RECEIVER ? drive_test(&net, request, &done, sizes)
                                                  : drive_send(&net, sender, from, 8, 12345, send_memory, &none);
        CHECK_EQUAL(result, CASES[i].problem ? 6 : 0);
        CHECK_EQUAL(drive_logged(line) - before, CASES[i].problem != NULL);
        close_both();
    }
}
int main(int argc, char **argv)
{
    static const struct edge_case CASES[] = {
        {"last_word", last_word}, {"a_peer_raves", a_peer_raves},
        {"a_peer_has_fewer_queue_pairs", a_peer_has_fewer_queue_pairs},
        {"a_peer_repeats_itself", a_peer_repeats_itself},
        {"a_peer_reads_nothing", a_peer_reads_nothing}, {"a_peer_reads_late", a_peer_reads_late},
        {"a_peer_says_what_is_none", a_peer_says_what_is_none},
        {"a_peer_raves_over_queue_pairs", a_peer_raves_over_queue_pairs}};
    return run_case(argc, argv, CASES, sizeof CASES / sizeof *CASES);
}
