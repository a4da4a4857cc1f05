#include "plain.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/in6.h>
#include <linux/tcp.h>
#include <netinet/in.h>
#include <stddef.h>
#include <string.h>
#include <unistd.h>

#include "exclude.h"
#include "next.h"

enum { MAX_VALUE = 64 };

/* What a program may have set before it connects. */
static const struct {
    int level, option;
} CARRIED[] = {
    {SOL_SOCKET, SO_REUSEADDR},
    {SOL_SOCKET, SO_REUSEPORT},
    {SOL_SOCKET, SO_KEEPALIVE},
    {SOL_SOCKET, SO_PRIORITY},
    {SOL_SOCKET, SO_MARK},
    {SOL_SOCKET, SO_DONTROUTE},
    {SOL_SOCKET, SO_RCVLOWAT},
    {SOL_SOCKET, SO_LINGER},
    {SOL_SOCKET, SO_RCVTIMEO},
    {SOL_SOCKET, SO_SNDTIMEO},
    {SOL_SOCKET, SO_BUSY_POLL},
    {SOL_SOCKET, SO_TIMESTAMP},
    {SOL_SOCKET, SO_TIMESTAMPNS},
    {SOL_SOCKET, SO_TIMESTAMPING},
    {SOL_SOCKET, SO_BINDTODEVICE},
    {SOL_SOCKET, SO_INCOMING_CPU},
    {IPPROTO_TCP, TCP_NODELAY},
    {IPPROTO_TCP, TCP_CORK},
    {IPPROTO_TCP, TCP_MAXSEG},
    {IPPROTO_TCP, TCP_KEEPIDLE},
    {IPPROTO_TCP, TCP_KEEPINTVL},
    {IPPROTO_TCP, TCP_KEEPCNT},
    {IPPROTO_TCP, TCP_FASTOPEN_CONNECT},
    {IPPROTO_TCP, TCP_NOTSENT_LOWAT},
    {IPPROTO_TCP, TCP_INQ},
    {IPPROTO_TCP, TCP_CONGESTION},
    {IPPROTO_IP, IP_TOS},
    {IPPROTO_IP, IP_FREEBIND},
    {IPPROTO_IP, IP_TRANSPARENT},
    {IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT},
    {IPPROTO_IPV6, IPV6_V6ONLY},
};

/* The kernel doubles what it is given for these, and reads back the double. */
static const int BUFFERS[] = {SO_SNDBUF, SO_RCVBUF};

static bool carry_option(int from, int to, int level, int option) {
    unsigned char want[MAX_VALUE] = {0}, have[MAX_VALUE] = {0};
    socklen_t want_length = sizeof want, have_length = sizeof have;
    if (syn_next_getsockopt(from, level, option, want, &want_length) != 0 ||
        syn_next_getsockopt(to, level, option, have, &have_length) != 0)
        return true; /* not of this kernel, or not of this family */
    if (want_length == have_length && memcmp(want, have, want_length) == 0)
        return true;
    return syn_next_setsockopt(to, level, option, want, want_length) == 0;
}

static void carry_buffer(int from, int to, int option) {
    int want = 0, have = 0;
    socklen_t want_length = sizeof want, have_length = sizeof have;
    if (syn_next_getsockopt(from, SOL_SOCKET, option, &want, &want_length) != 0 ||
        syn_next_getsockopt(to, SOL_SOCKET, option, &have, &have_length) != 0 || want == have)
        return; /* untouched: setting it would switch autotuning off */
    want /= 2;
    syn_next_setsockopt(to, SOL_SOCKET, option, &want, sizeof want);
}

static bool carry(int from, int to) {
    for (size_t i = 0; i < sizeof CARRIED / sizeof *CARRIED; i++)
        if (!carry_option(from, to, CARRIED[i].level, CARRIED[i].option))
            return false;
    for (size_t i = 0; i < sizeof BUFFERS / sizeof *BUFFERS; i++)
        carry_buffer(from, to, BUFFERS[i]);
    int flags = fcntl(from, F_GETFL);
    return flags >= 0 && fcntl(to, F_SETFL, flags) == 0;
}

static bool is_unbound(int fd, sa_family_t *family) {
    struct sockaddr_storage own = {0};
    struct syn_peer peer;
    socklen_t length = sizeof own;
    if (getsockname(fd, (struct sockaddr *)&own, &length) != 0 ||
        !syn_peer_of((struct sockaddr *)&own, length, &peer))
        return false;
    *family = own.ss_family;
    return peer.port == 0 && syn_is_loopback(&peer.address); /* unspecified */
}

bool syn_make_plain(int fd) {
    sa_family_t family;
    int flags = fcntl(fd, F_GETFD);
    if (flags < 0 || !is_unbound(fd, &family))
        return false;
    int plain = syn_next_socket(family, SOCK_STREAM | SOCK_CLOEXEC, IPPROTO_TCP);
    if (plain < 0)
        return false;
    bool done = carry(fd, plain) && dup3(plain, fd, flags & FD_CLOEXEC ? O_CLOEXEC : 0) == fd;
    close(plain);
    return done;
}

bool syn_is_own_address(const struct sockaddr *address, socklen_t length) {
    struct sockaddr_storage own = {0};
    struct syn_peer here, there;
    socklen_t own_length = sizeof own;
    if (!syn_peer_of(address, length, &there))
        return false;
    if (syn_is_loopback(&there.address))
        return true;
    /* A UDP socket sends nothing when it connects, but chooses its source: for an address of this
     * host that is the address itself. */
    int asker = syn_next_socket(address->sa_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (asker < 0)
        return false;
    bool own_address =
        syn_next_connect(asker, address, length) == 0 &&
        getsockname(asker, (struct sockaddr *)&own, &own_length) == 0 &&
        syn_peer_of((struct sockaddr *)&own, own_length, &here) &&
        memcmp(&here.address, &there.address, sizeof here.address) == 0;
    close(asker);
    return own_address;
}
