#include "quirks.h"

#include <errno.h>
#include <linux/in6.h>
#include <linux/tcp.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "next.h"

#ifndef SOL_MPTCP
#define SOL_MPTCP 284
#endif

enum {
    MPTCP_TCPINFO_OPTION = 2, /* linux/mptcp.h, whose other names clash with netinet's */
    MAX_SUBFLOWS = 16,        /* the kernel itself makes 9 at most */
    ESTABLISHED = 1,          /* net/tcp_states.h, not for user space */
    INFO_ROOM = 384,          /* a tcp_info of this kernel (256 bytes) and of some to come */
    REFUSED = -1,
};

/* struct mptcp_subflow_data of linux/mptcp.h. */
struct subflow_data {
    uint32_t size_subflow_data, num_subflows, size_kernel, size_user;
};

/* An option that Linux 6.18 refuses on MPTCP sockets, though nothing is lost without it: a hint, or
 * something that no longer matters on a connected socket. What a program relies on (SO_ZEROCOPY,
 * TCP_ULP, IP_MINTTL, …) is not here: there the refusal must reach it. The list is held against the
 * running kernel by tests/tcp. */
struct quirk {
    int level, option;
    int reads; /* what getsockopt says where the kernel would refuse, or REFUSED */
};

static const struct quirk QUIRKS[] = {
    {SOL_SOCKET, SO_REUSEADDR, REFUSED}, /* gloo, on accepted sockets */
    {SOL_SOCKET, SO_REUSEPORT, REFUSED},
    {SOL_SOCKET, SO_OOBINLINE, REFUSED}, /* MPTCP has no urgent data to put in line */
    {IPPROTO_TCP, TCP_QUICKACK, 1},
    {IPPROTO_TCP, TCP_USER_TIMEOUT, 0}, /* too late to make TCP of it: the system's is in force */
    {IPPROTO_TCP, TCP_SYNCNT, REFUSED},
    {IPPROTO_TCP, TCP_LINGER2, REFUSED},
    {IPPROTO_TCP, TCP_WINDOW_CLAMP, 0},
    {IPPROTO_TCP, TCP_THIN_LINEAR_TIMEOUTS, 0},
    {IPPROTO_TCP, TCP_THIN_DUPACK, 0},
    {IPPROTO_IP, IP_MTU_DISCOVER, REFUSED},
    {IPPROTO_IP, IP_FREEBIND, REFUSED}, /* connected: its address is bound */
    {IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT, REFUSED},
    {IPPROTO_IPV6, IPV6_TCLASS, 0},
    {IPPROTO_IPV6, IPV6_MTU_DISCOVER, REFUSED},
    {IPPROTO_IPV6, IPV6_AUTOFLOWLABEL, REFUSED},
    {IPPROTO_IPV6, IPV6_FREEBIND, REFUSED},
};

static const struct quirk *find(int level, int option) {
    for (size_t i = 0; i < sizeof QUIRKS / sizeof *QUIRKS; i++)
        if (QUIRKS[i].level == level && QUIRKS[i].option == option)
            return &QUIRKS[i];
    return NULL;
}

static bool is_refusal(int error) {
    return error == EINVAL || error == EOPNOTSUPP || error == ENOPROTOOPT;
}

bool syn_is_mptcp(int fd) {
    int protocol = 0, before = errno;
    socklen_t length = sizeof protocol;
    bool asked = syn_next_getsockopt(fd, SOL_SOCKET, SO_PROTOCOL, &protocol, &length) == 0;
    errno = before;
    return asked && protocol == IPPROTO_MPTCP;
}

bool syn_set_is_harmless(int fd, int level, int option, int error) {
    return is_refusal(error) && find(level, option) != NULL && syn_is_mptcp(fd);
}

bool syn_get_instead(int fd, int level, int option, int error, void *value, socklen_t *length) {
    const struct quirk *quirk = is_refusal(error) ? find(level, option) : NULL;
    if (quirk == NULL || quirk->reads == REFUSED || value == NULL || length == NULL ||
        !syn_is_mptcp(fd))
        return false;
    if (*length > sizeof quirk->reads)
        *length = sizeof quirk->reads;
    memcpy(value, &quirk->reads, *length);
    return true;
}

static bool is_better(const struct tcp_info *a, const struct tcp_info *b) {
    bool a_established = a->tcpi_state == ESTABLISHED;
    bool b_established = b->tcpi_state == ESTABLISHED;
    if (a_established != b_established)
        return a_established;
    if (a->tcpi_backoff != b->tcpi_backoff)
        return a->tcpi_backoff < b->tcpi_backoff;
    return a->tcpi_bytes_acked + a->tcpi_bytes_received >
           b->tcpi_bytes_acked + b->tcpi_bytes_received;
}

bool syn_best_tcp_info(int fd, void *value, socklen_t *length) {
    struct {
        struct subflow_data head;
        unsigned char subflows[MAX_SUBFLOWS * INFO_ROOM];
    } answer;
    socklen_t room = sizeof answer;
    int before = errno;
    if (value == NULL || length == NULL)
        return false;
    memset(&answer, 0, sizeof answer);
    answer.head.size_subflow_data = sizeof answer.head;
    answer.head.size_user = INFO_ROOM;
    int failed = syn_next_getsockopt(fd, SOL_MPTCP, MPTCP_TCPINFO_OPTION, &answer, &room);
    errno = before;
    /* The kernel packs them at its own size, which it says, if that is less than what was asked. */
    size_t size = answer.head.size_user;
    if (failed != 0 || room < sizeof answer.head || size == 0 || size > INFO_ROOM)
        return false;
    size_t count = (room - sizeof answer.head) / size;
    if (count == 0 || answer.head.num_subflows == 0)
        return false;
    struct tcp_info best = {0}, info = {0};
    size_t best_at = 0;
    for (size_t i = 0; i < count; i++) {
        memcpy(&info, &answer.subflows[i * size], size < sizeof info ? size : sizeof info);
        if (i == 0 || is_better(&info, &best)) {
            best = info;
            best_at = i * size;
        }
    }
    if (*length > size)
        *length = (socklen_t)size;
    memcpy(value, &answer.subflows[best_at], *length);
    return true;
}
