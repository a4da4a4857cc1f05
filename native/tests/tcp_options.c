/* What setsockopt and getsockopt say to every option that a stream socket may be asked for.
 *
 *     tcp_options tcp|mptcp|default
 *
 * For each option and each kind of socket (fresh, bound, listening, connected, accepted) one line:
 * LEVEL_OPTION, kind, what setting gives, what reading gives, the value read after setting. The
 * sockets are made with that protocol, or, for `default`, with protocol 0, which is what programs
 * do and what the interposer acts on. Comparing two runs shows what an application would notice.
 *
 * Exit status: 0 done, 1 a socket could not be made or connected, 2 wrong arguments.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <linux/in6.h>
#include <linux/tcp.h>
#include <net/if.h>
#include <netinet/in.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#ifndef IPPROTO_MPTCP
#define IPPROTO_MPTCP 262
#endif
#ifndef IP_LOCAL_PORT_RANGE
#define IP_LOCAL_PORT_RANGE 51
#endif
#ifndef TCP_RTO_MAX_MS
#define TCP_RTO_MAX_MS 44
#endif

enum { NUMBER, LINGER, TIMEVAL, TEXT, READ_ONLY };

struct option {
    const char *name;
    int level, number, form, value;
    const char *text;
};

#define INT(level, option, value) {#option, level, option, NUMBER, value, NULL}
#define STRING(level, option, text) {#option, level, option, TEXT, 0, text}
#define READ(level, option) {#option, level, option, READ_ONLY, 0, NULL}

static const struct option OPTIONS[] = {
    INT(SOL_SOCKET, SO_REUSEADDR, 1),
    INT(SOL_SOCKET, SO_REUSEPORT, 1),
    INT(SOL_SOCKET, SO_KEEPALIVE, 1),
    INT(SOL_SOCKET, SO_SNDBUF, 65536),
    INT(SOL_SOCKET, SO_RCVBUF, 65536),
    INT(SOL_SOCKET, SO_PRIORITY, 3),
    INT(SOL_SOCKET, SO_OOBINLINE, 1),
    INT(SOL_SOCKET, SO_DONTROUTE, 0),
    INT(SOL_SOCKET, SO_RCVLOWAT, 16),
    INT(SOL_SOCKET, SO_BUSY_POLL, 0),
    INT(SOL_SOCKET, SO_PREFER_BUSY_POLL, 0),
    INT(SOL_SOCKET, SO_MARK, 7),
    INT(SOL_SOCKET, SO_INCOMING_CPU, 0),
    INT(SOL_SOCKET, SO_TIMESTAMP, 1),
    INT(SOL_SOCKET, SO_TIMESTAMPING, 0),
    INT(SOL_SOCKET, SO_ZEROCOPY, 1),
    INT(SOL_SOCKET, SO_MAX_PACING_RATE, 100000000),
    {"SO_LINGER", SOL_SOCKET, SO_LINGER, LINGER, 5, NULL},
    {"SO_RCVTIMEO", SOL_SOCKET, SO_RCVTIMEO, TIMEVAL, 5, NULL},
    {"SO_SNDTIMEO", SOL_SOCKET, SO_SNDTIMEO, TIMEVAL, 5, NULL},
    STRING(SOL_SOCKET, SO_BINDTODEVICE, "lo"),
    READ(SOL_SOCKET, SO_PROTOCOL),
    READ(SOL_SOCKET, SO_DOMAIN),
    READ(SOL_SOCKET, SO_TYPE),
    READ(SOL_SOCKET, SO_ERROR),
    READ(SOL_SOCKET, SO_ACCEPTCONN),
    READ(SOL_SOCKET, SO_COOKIE),
    READ(SOL_SOCKET, SO_INCOMING_NAPI_ID),
    READ(SOL_SOCKET, SO_MEMINFO),
    INT(IPPROTO_TCP, TCP_NODELAY, 1),
    INT(IPPROTO_TCP, TCP_CORK, 1),
    INT(IPPROTO_TCP, TCP_MAXSEG, 1000),
    INT(IPPROTO_TCP, TCP_KEEPIDLE, 30),
    INT(IPPROTO_TCP, TCP_KEEPINTVL, 5),
    INT(IPPROTO_TCP, TCP_KEEPCNT, 3),
    INT(IPPROTO_TCP, TCP_SYNCNT, 4),
    INT(IPPROTO_TCP, TCP_LINGER2, 10),
    INT(IPPROTO_TCP, TCP_DEFER_ACCEPT, 1),
    INT(IPPROTO_TCP, TCP_WINDOW_CLAMP, 65536),
    INT(IPPROTO_TCP, TCP_QUICKACK, 1),
    INT(IPPROTO_TCP, TCP_USER_TIMEOUT, 30000),
    INT(IPPROTO_TCP, TCP_THIN_LINEAR_TIMEOUTS, 1),
    INT(IPPROTO_TCP, TCP_THIN_DUPACK, 0),
    INT(IPPROTO_TCP, TCP_FASTOPEN, 5),
    INT(IPPROTO_TCP, TCP_FASTOPEN_CONNECT, 1),
    INT(IPPROTO_TCP, TCP_FASTOPEN_NO_COOKIE, 1),
    INT(IPPROTO_TCP, TCP_NOTSENT_LOWAT, 16384),
    INT(IPPROTO_TCP, TCP_SAVE_SYN, 1),
    INT(IPPROTO_TCP, TCP_INQ, 1),
    INT(IPPROTO_TCP, TCP_TX_DELAY, 0),
    INT(IPPROTO_TCP, TCP_TIMESTAMP, 0),
    INT(IPPROTO_TCP, TCP_RTO_MAX_MS, 5000),
    STRING(IPPROTO_TCP, TCP_CONGESTION, "reno"),
    STRING(IPPROTO_TCP, TCP_ULP, "tls"),
    READ(IPPROTO_TCP, TCP_INFO),
    READ(IPPROTO_TCP, TCP_CC_INFO),
    READ(IPPROTO_TCP, TCP_SAVED_SYN),
    INT(IPPROTO_IP, IP_TOS, 16),
    INT(IPPROTO_IP, IP_TTL, 60),
    INT(IPPROTO_IP, IP_MTU_DISCOVER, IP_PMTUDISC_DO),
    INT(IPPROTO_IP, IP_RECVERR, 1),
    INT(IPPROTO_IP, IP_RECVTOS, 1),
    INT(IPPROTO_IP, IP_FREEBIND, 1),
    INT(IPPROTO_IP, IP_TRANSPARENT, 0),
    INT(IPPROTO_IP, IP_MINTTL, 1),
    INT(IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT, 1),
    INT(IPPROTO_IP, IP_LOCAL_PORT_RANGE, 0),
    INT(IPPROTO_IP, IP_UNICAST_IF, 0),
    INT(IPPROTO_IP, IP_PKTINFO, 1),
    READ(IPPROTO_IP, IP_MTU),
    INT(IPPROTO_IPV6, IPV6_V6ONLY, 1),
    INT(IPPROTO_IPV6, IPV6_TCLASS, 16),
    INT(IPPROTO_IPV6, IPV6_UNICAST_HOPS, 60),
    INT(IPPROTO_IPV6, IPV6_RECVERR, 1),
    INT(IPPROTO_IPV6, IPV6_RECVPKTINFO, 1),
    INT(IPPROTO_IPV6, IPV6_RECVTCLASS, 1),
    INT(IPPROTO_IPV6, IPV6_MTU_DISCOVER, IPV6_PMTUDISC_DO),
    INT(IPPROTO_IPV6, IPV6_FREEBIND, 1),
    INT(IPPROTO_IPV6, IPV6_TRANSPARENT, 0),
    INT(IPPROTO_IPV6, IPV6_AUTOFLOWLABEL, 1),
    INT(IPPROTO_IPV6, IPV6_FLOWINFO_SEND, 1),
};

enum { FRESH, BOUND, LISTENING, CONNECTED, ACCEPTED, KINDS };
static const char *const KIND_NAMES[KINDS] = {"fresh", "bound", "listening", "connected",
                                              "accepted"};

static void stop_if(bool failed, const char *what) {
    if (!failed)
        return;
    perror(what);
    exit(1);
}

static const char *error_name(int number) {
    const char *name = number == 0 ? "ok" : strerrorname_np(number);
    return name != NULL ? name : "?";
}

/* One socket of a kind; `companions` are the others it needs, -1 where none. */
static int make(int kind, int family, int protocol, int companions[2]) {
    struct sockaddr_storage address = {.ss_family = (sa_family_t)family};
    socklen_t length =
        family == AF_INET ? sizeof(struct sockaddr_in) : sizeof(struct sockaddr_in6);
    if (family == AF_INET)
        ((struct sockaddr_in *)&address)->sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    else
        ((struct sockaddr_in6 *)&address)->sin6_addr = (struct in6_addr)IN6ADDR_LOOPBACK_INIT;
    companions[0] = companions[1] = -1;

    int first = socket(family, SOCK_STREAM, protocol);
    stop_if(first < 0, "socket");
    if (kind == FRESH)
        return first;
    stop_if(bind(first, (struct sockaddr *)&address, length) != 0, "bind");
    if (kind == BOUND)
        return first;
    stop_if(listen(first, 8) != 0, "listen");
    if (kind == LISTENING)
        return first;
    stop_if(getsockname(first, (struct sockaddr *)&address, &length) != 0, "getsockname");
    int client = socket(family, SOCK_STREAM, protocol);
    stop_if(client < 0, "socket");
    stop_if(connect(client, (struct sockaddr *)&address, length) != 0, "connect");
    int accepted = accept(first, NULL, NULL);
    stop_if(accepted < 0, "accept");
    companions[0] = first;
    companions[1] = kind == CONNECTED ? accepted : client;
    return kind == CONNECTED ? client : accepted;
}

static int set(int fd, const struct option *o) {
    struct linger linger = {.l_onoff = 1, .l_linger = o->value};
    struct timeval time = {.tv_sec = o->value};
    int result = 0;
    if (o->form == NUMBER)
        result = setsockopt(fd, o->level, o->number, &o->value, sizeof o->value);
    else if (o->form == LINGER)
        result = setsockopt(fd, o->level, o->number, &linger, sizeof linger);
    else if (o->form == TIMEVAL)
        result = setsockopt(fd, o->level, o->number, &time, sizeof time);
    else if (o->form == TEXT)
        result = setsockopt(fd, o->level, o->number, o->text, (socklen_t)strlen(o->text));
    return result == 0 ? 0 : errno;
}

static void try_option(const struct option *o, int kind, int family, int protocol) {
    int companions[2];
    int fd = make(kind, family, protocol, companions);
    int set_error = set(fd, o);
    unsigned char value[1024] = {0};
    socklen_t length = sizeof value;
    int get_error = getsockopt(fd, o->level, o->number, value, &length) == 0 ? 0 : errno;
    printf("%s\t%s\tIPv%d\t%s\t%s\t", o->name, KIND_NAMES[kind], family == AF_INET ? 4 : 6,
           o->form == READ_ONLY ? "-" : error_name(set_error), error_name(get_error));
    int number;
    memcpy(&number, value, sizeof number);
    if (get_error != 0)
        printf("-\n");
    else if (o->level == IPPROTO_TCP && o->number == TCP_INFO)
        printf("%s state %d\n", length >= 192 ? "long" : "short", value[0]);
    else if (o->number == SO_COOKIE && o->level == SOL_SOCKET)
        printf("%d bytes\n", (int)length);
    else if (o->form == TEXT)
        printf("%.*s\n", (int)length, (const char *)value);
    else if (length > sizeof number)
        printf("%d bytes\n", (int)length);
    else
        printf("%d\n", length == 1 ? value[0] : number);
    close(fd);
    for (int i = 0; i < 2; i++)
        if (companions[i] >= 0)
            close(companions[i]);
}

int main(int argc, char **argv) {
    static const struct {
        const char *name;
        int protocol;
    } PROTOCOLS[] = {{"tcp", IPPROTO_TCP}, {"mptcp", IPPROTO_MPTCP}, {"default", 0}};
    int protocol = -1;
    for (size_t i = 0; argc == 2 && i < sizeof PROTOCOLS / sizeof *PROTOCOLS; i++)
        if (strcmp(argv[1], PROTOCOLS[i].name) == 0)
            protocol = PROTOCOLS[i].protocol;
    if (protocol < 0) {
        fprintf(stderr, "usage: tcp_options tcp|mptcp|default\n");
        return 2;
    }
    for (size_t i = 0; i < sizeof OPTIONS / sizeof *OPTIONS; i++)
        for (int kind = FRESH; kind < KINDS; kind++)
            for (int family = AF_INET; family != 0; family = family == AF_INET ? AF_INET6 : 0)
                if (OPTIONS[i].level != IPPROTO_IPV6 || family == AF_INET6)
                    try_option(&OPTIONS[i], kind, family, protocol);
    return 0;
}
