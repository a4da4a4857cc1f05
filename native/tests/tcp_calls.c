/* A stream between two hosts, made with the very calls that NCCL's socket transport makes.
 *
 *     tcp_calls serve ADDRESS COUNT            prints its port, then serves COUNT connections
 *     tcp_calls ask ADDRESS PORT COUNT [BYTES] each sends BYTES and checks what comes back
 *     tcp_calls show                           whether socket() gives MPTCP here: "mptcp" or "tcp"
 *
 * The order of calls is that of NCCL 2.28's src/os/linux.cc: socket without protocol, non-blocking,
 * TCP_NODELAY, SO_SNDBUF and SO_RCVBUF; bind to an interface's address and any port, listen with a
 * backlog of 16384; connect, poll for 1 ms at a time, SO_ERROR; a refused connection is tried again
 * on a new socket put under the old number by dup2; magic and type first, then data by non-blocking
 * send and recv. Prints how many connections were MPTCP.
 *
 * Exit status: 0 every byte was right, 1 it was not or a call failed, 2 wrong arguments.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum {
    IS_MPTCP = 43, /* TCP_IS_MPTCP of linux/tcp.h */
    BUFFER = 1 << 20,
    BACKLOG = 16384,
    CLOSED_PORT = 1,
    PATIENCE_MS = 20000,
};

static const uint64_t MAGIC = UINT64_C(0x564ab9f2fc4b9d6c);
static const int32_t TYPE = 3;

static void stop_if(bool failed, const char *what) {
    if (!failed)
        return;
    fprintf(stderr, "tcp_calls: %s: %s\n", what, strerror(errno));
    exit(1);
}

static bool is_mptcp(int fd) {
    int yes = 0;
    socklen_t length = sizeof yes;
    return getsockopt(fd, IPPROTO_TCP, IS_MPTCP, &yes, &length) == 0 && yes == 1;
}

static void set_flags(int fd) {
    const int one = 1, buffer = BUFFER;
    int flags = fcntl(fd, F_GETFL);
    stop_if(flags < 0 || fcntl(fd, F_SETFL, flags | O_NONBLOCK) != 0, "O_NONBLOCK");
    stop_if(setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one) != 0, "TCP_NODELAY");
    stop_if(setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &buffer, sizeof buffer) != 0, "SO_SNDBUF");
    stop_if(setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &buffer, sizeof buffer) != 0, "SO_RCVBUF");
}

/* A new socket, under the number `fd` if that is one already. */
static int reset(int fd, int family) {
    int made = socket(family, SOCK_STREAM, 0);
    stop_if(made < 0, "socket");
    if (fd >= 0) {
        stop_if(dup2(made, fd) < 0 || close(made) != 0, "dup2");
        made = fd;
    }
    set_flags(made);
    return made;
}

static void wait_for(int fd, short events) {
    struct pollfd ready = {.fd = fd, .events = events};
    for (int waited = 0; waited < PATIENCE_MS; waited++) {
        int result = poll(&ready, 1, 1);
        stop_if(result < 0 && errno != EINTR, "poll");
        if (result > 0)
            return;
    }
    errno = ETIMEDOUT;
    stop_if(true, "poll");
}

static void progress(int fd, void *data, size_t size, bool sending) {
    for (size_t done = 0; done < size;) {
        char *at = (char *)data + done;
        ssize_t n = sending ? send(fd, at, size - done, MSG_DONTWAIT | MSG_NOSIGNAL)
                            : recv(fd, at, size - done, MSG_DONTWAIT);
        if (n == 0 && !sending)
            errno = ECONNRESET;
        stop_if(n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR), sending ? "send" : "recv");
        if (n < 0)
            wait_for(fd, sending ? POLLOUT : POLLIN);
        else
            done += (size_t)n;
    }
}

static int family_of(const char *text, int port, struct sockaddr_storage *address,
                     socklen_t *length) {
    struct sockaddr_in *v4 = (struct sockaddr_in *)address;
    struct sockaddr_in6 *v6 = (struct sockaddr_in6 *)address;
    memset(address, 0, sizeof *address);
    if (inet_pton(AF_INET, text, &v4->sin_addr) == 1) {
        v4->sin_family = AF_INET;
        v4->sin_port = htons((uint16_t)port);
        *length = sizeof *v4;
        return AF_INET;
    }
    errno = EINVAL;
    stop_if(inet_pton(AF_INET6, text, &v6->sin6_addr) != 1, text);
    v6->sin6_family = AF_INET6;
    v6->sin6_port = htons((uint16_t)port);
    *length = sizeof *v6;
    return AF_INET6;
}

/* Whether the connection came to be; false: refused. */
static bool try_connect(int fd, const char *host, int port) {
    struct sockaddr_storage address;
    socklen_t length;
    family_of(host, port, &address, &length);
    int error = connect(fd, (struct sockaddr *)&address, length) == 0 ? 0 : errno;
    if (error == EINPROGRESS) {
        socklen_t size = sizeof error;
        wait_for(fd, POLLOUT);
        stop_if(getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &size) != 0, "SO_ERROR");
    }
    errno = error;
    stop_if(error != 0 && error != ECONNREFUSED, "connect");
    return error == 0;
}

static void fill(unsigned char *data, size_t size, unsigned seed) {
    for (size_t i = 0; i < size; i++)
        data[i] = (unsigned char)(i * 31 + i / 251 + seed);
}

static bool ask_once(const char *host, int port, size_t size, unsigned seed) {
    struct sockaddr_storage address;
    socklen_t length;
    int family = family_of(host, port, &address, &length);
    int fd = reset(-1, family);
    stop_if(try_connect(fd, host, CLOSED_PORT), "a closed port accepts");
    fd = reset(fd, family);
    stop_if(!try_connect(fd, host, port), "connect");
    uint64_t magic = MAGIC, bytes = size;
    int32_t type = TYPE;
    progress(fd, &magic, sizeof magic, true);
    progress(fd, &type, sizeof type, true);
    progress(fd, &bytes, sizeof bytes, true);
    unsigned char *sent = malloc(size + 1), *back = malloc(size + 1);
    stop_if(sent == NULL || back == NULL, "malloc");
    fill(sent, size, seed);
    progress(fd, sent, size, true);
    progress(fd, back, size, false);
    errno = EBADMSG;
    stop_if(memcmp(sent, back, size) != 0, "what came back");
    bool mptcp = is_mptcp(fd);
    free(sent);
    free(back);
    close(fd);
    return mptcp;
}

static bool serve_once(int listener) {
    int fd;
    for (;;) {
        fd = accept(listener, NULL, NULL);
        if (fd >= 0)
            break;
        stop_if(errno != EAGAIN && errno != EINTR, "accept");
        wait_for(listener, POLLIN);
    }
    set_flags(fd);
    uint64_t magic = 0, bytes = 0;
    int32_t type = 0;
    progress(fd, &magic, sizeof magic, false);
    progress(fd, &type, sizeof type, false);
    progress(fd, &bytes, sizeof bytes, false);
    errno = EBADMSG;
    stop_if(magic != MAGIC || type != TYPE, "magic");
    unsigned char *data = malloc(bytes + 1);
    stop_if(data == NULL, "malloc");
    progress(fd, data, bytes, false);
    progress(fd, data, bytes, true);
    bool mptcp = is_mptcp(fd);
    free(data);
    close(fd);
    return mptcp;
}

static int serve(const char *host, int count) {
    struct sockaddr_storage address;
    socklen_t length;
    const int one = 1;
    int listener = reset(-1, family_of(host, 0, &address, &length)), mptcp = 0;
    stop_if(setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one) != 0, "SO_REUSEADDR");
    stop_if(setsockopt(listener, SOL_SOCKET, SO_REUSEPORT, &one, sizeof one) != 0, "SO_REUSEPORT");
    stop_if(bind(listener, (struct sockaddr *)&address, length) != 0, "bind");
    stop_if(getsockname(listener, (struct sockaddr *)&address, &length) != 0, "getsockname");
    stop_if(listen(listener, BACKLOG) != 0, "listen");
    printf("%d\n", ntohs(((struct sockaddr_in *)&address)->sin_port));
    fflush(stdout);
    for (int i = 0; i < count; i++)
        mptcp += serve_once(listener);
    printf("%d of %d mptcp\n", mptcp, count);
    return 0;
}

static int ask(const char *host, int port, int count, size_t size) {
    int mptcp = 0;
    for (int i = 0; i < count; i++)
        mptcp += ask_once(host, port, size, (unsigned)i);
    printf("%d of %d mptcp\n", mptcp, count);
    return 0;
}

int main(int argc, char **argv) {
    if (argc == 4 && strcmp(argv[1], "serve") == 0)
        return serve(argv[2], atoi(argv[3]));
    if (argc >= 5 && strcmp(argv[1], "ask") == 0)
        return ask(argv[2], atoi(argv[3]), atoi(argv[4]),
                   argc == 6 ? (size_t)atol(argv[5]) : 100000);
    if (argc == 2 && strcmp(argv[1], "show") == 0) {
        int fd = socket(AF_INET, SOCK_STREAM, 0);
        stop_if(fd < 0, "socket");
        puts(is_mptcp(fd) ? "mptcp" : "tcp");
        return 0;
    }
    fprintf(stderr, "usage: tcp_calls serve ADDRESS COUNT | ask ADDRESS PORT COUNT | show\n");
    return 2;
}
