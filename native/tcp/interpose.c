/* libsyntony_tcp.so: preloaded into a program, it makes the program's TCP sockets MPTCP sockets.
 *
 *     LD_PRELOAD=/…/libsyntony_tcp.so COMMAND
 *
 * SYNTONY_TCP=off           do nothing
 * SYNTONY_TCP=all           connections within the host too (normally left plain: faster there)
 * SYNTONY_TCP_EXCLUDE=LIST  ports, port ranges, addresses, prefixes to connect to in plain TCP
 * SYNTONY_TCP_DEBUG=1       one line on stderr for each thing done
 *
 * It talks to nobody, starts nothing, allocates nothing, and takes no lock. Where the kernel has no
 * MPTCP the program gets TCP, as without it. Sockets made by other means than libc's socket() (Go,
 * static programs, io_uring) are not seen and stay as they are.
 */
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "exclude.h"
#include "next.h"
#include "plain.h"
#include "quirks.h"

#define EXPORT __attribute__((visibility("default")))

enum {
    MAX_FD = 1 << 16, /* beyond, an MPTCP socket stays one wherever it connects to */
    TYPE_MASK = 0xf,  /* socket types without SOCK_NONBLOCK and SOCK_CLOEXEC */
};

/* Until the constructor has run, sockets stay as they are. */
static struct {
    bool on, within_host, debug;
    struct syn_exclude exclude;
} settings;

/* Not to be put another socket in the place of: an epoll set holds it and would not notice, or the
 * program asked for MPTCP itself. */
static atomic_bool settled[MAX_FD];
static atomic_bool refused[2]; /* IPv4, IPv6: this kernel makes no such MPTCP sockets for us */

__attribute__((format(printf, 1, 2))) static void say(const char *format, ...) {
    if (!settings.debug)
        return;
    int before = errno;
    char line[256];
    int head = snprintf(line, sizeof line, "syntony_tcp[%d]: ", (int)getpid());
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(line + head, sizeof line - (size_t)head, format, arguments);
    va_end(arguments);
    /* One write: lines of many processes stay whole. Nothing can be done if it fails. */
    if (write(STDERR_FILENO, line, strlen(line)) < 0)
        errno = before;
    errno = before;
}

__attribute__((constructor)) static void read_environment(void) {
    const char *mode = getenv("SYNTONY_TCP"), *debug = getenv("SYNTONY_TCP_DEBUG");
    settings.debug = debug != NULL && strcmp(debug, "") != 0 && strcmp(debug, "0") != 0;
    settings.within_host = mode != NULL && strcmp(mode, "all") == 0;
    unsigned left_out = syn_exclude_parse(getenv("SYNTONY_TCP_EXCLUDE"), &settings.exclude);
    if (left_out > 0)
        say("%u entries of SYNTONY_TCP_EXCLUDE left out: neither port nor address\n", left_out);
    settings.on = mode == NULL || strcmp(mode, "off") != 0;
}

static void settle(int fd, bool yes) {
    if (fd >= 0 && fd < MAX_FD)
        atomic_store_explicit(&settled[fd], yes, memory_order_relaxed);
}

static bool is_settled(int fd) {
    return fd < 0 || fd >= MAX_FD || atomic_load_explicit(&settled[fd], memory_order_relaxed);
}

/* Not in this kernel (5.5 and older: EINVAL), switched off, or forbidden: none of it changes while a
 * program runs, if TCP was not refused as well. */
static bool is_final(int error) {
    return error == EPROTONOSUPPORT || error == ENOPROTOOPT || error == EACCES ||
           error == EPERM || error == EINVAL;
}

/* Where TCP is asked for, an MPTCP socket. -1: make what was asked for; `why` is the kernel's error
 * if it refused, else 0. */
static int multipath_socket(int domain, int type, int protocol, int *why) {
    *why = 0;
    if (!settings.on || (domain != AF_INET && domain != AF_INET6) ||
        (type & TYPE_MASK) != SOCK_STREAM || (protocol != 0 && protocol != IPPROTO_TCP) ||
        atomic_load_explicit(&refused[domain == AF_INET6], memory_order_relaxed))
        return -1;
    int before = errno;
    int fd = syn_next_socket(domain, type, IPPROTO_MPTCP);
    if (fd < 0) {
        *why = errno;
        errno = before;
    }
    return fd;
}

EXPORT int socket(int domain, int type, int protocol) {
    int why;
    int fd = multipath_socket(domain, type, protocol, &why);
    if (fd >= 0) {
        settle(fd, false);
        return fd;
    }
    fd = syn_next_socket(domain, type, protocol);
    settle(fd, protocol == IPPROTO_MPTCP);
    if (fd >= 0 && is_final(why)) {
        atomic_store_explicit(&refused[domain == AF_INET6], true, memory_order_relaxed);
        say("no MPTCP here (%s): plain TCP from now on\n", strerror(why));
    }
    return fd;
}

/* Why this connection must not be multi-path; NULL if it may. */
static const char *reason_for_plain(const struct syn_peer *peer, const struct sockaddr *address,
                                    socklen_t length) {
    if (syn_excluded(&settings.exclude, peer))
        return "excluded";
    if (!settings.within_host && syn_is_own_address(address, length))
        return "within the host";
    return NULL;
}

static void decide(int fd, const struct sockaddr *address, socklen_t length) {
    struct syn_peer peer;
    if (is_settled(fd) || !syn_peer_of(address, length, &peer) || !syn_is_mptcp(fd))
        return;
    const char *reason = reason_for_plain(&peer, address, length);
    if (reason != NULL && syn_make_plain(fd))
        say("fd %d: plain TCP, %s\n", fd, reason);
    else
        say("fd %d: MPTCP\n", fd);
}

EXPORT int connect(int fd, const struct sockaddr *address, socklen_t length) {
    if (settings.on) {
        int before = errno;
        decide(fd, address, length);
        errno = before;
    }
    return syn_next_connect(fd, address, length);
}

EXPORT int epoll_ctl(int epoll, int operation, int fd, struct epoll_event *event) {
    if (operation == EPOLL_CTL_ADD)
        settle(fd, true);
    return syn_next_epoll_ctl(epoll, operation, fd, event);
}

/* MPTCP has no TCP_USER_TIMEOUT: a program that asks for one in time gets the TCP socket that has. */
static void keep_user_timeout(int fd, int level, int option, const void *value, socklen_t length) {
    int timeout_ms;
    if (!settings.on || level != IPPROTO_TCP || option != TCP_USER_TIMEOUT || value == NULL ||
        length != sizeof timeout_ms || is_settled(fd) || !syn_is_mptcp(fd))
        return;
    int before = errno;
    memcpy(&timeout_ms, value, sizeof timeout_ms);
    if (timeout_ms > 0 && syn_make_plain(fd))
        say("fd %d: plain TCP, for TCP_USER_TIMEOUT\n", fd);
    errno = before;
}

EXPORT int setsockopt(int fd, int level, int option, const void *value, socklen_t length) {
    keep_user_timeout(fd, level, option, value, length);
    int before = errno;
    int result = syn_next_setsockopt(fd, level, option, value, length);
    if (result == 0 || !settings.on || !syn_set_is_harmless(fd, level, option, errno))
        return result;
    say("fd %d: option %d of level %d ignored\n", fd, option, level);
    errno = before;
    return 0;
}

EXPORT int getsockopt(int fd, int level, int option, void *restrict value,
                      socklen_t *restrict length) {
    int before = errno;
    if (!settings.on)
        return syn_next_getsockopt(fd, level, option, value, length);
    if (level == IPPROTO_TCP && option == TCP_INFO && syn_best_tcp_info(fd, value, length))
        return 0;
    int result = syn_next_getsockopt(fd, level, option, value, length);
    if (result != 0) {
        if (!syn_get_instead(fd, level, option, errno, value, length))
            return result;
        errno = before;
        return 0;
    }
    if (level == SOL_SOCKET && option == SO_PROTOCOL && *length == sizeof(int)) {
        int protocol;
        memcpy(&protocol, value, sizeof protocol);
        if (protocol == IPPROTO_MPTCP) {
            protocol = IPPROTO_TCP;
            memcpy(value, &protocol, sizeof protocol);
        }
    }
    return 0;
}
